//! `job validate`

use super::{FileArgs, NamespaceArgs};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::jobfile;
use caravan_types::api;

/// Flags of `job validate`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Job file, http:// URL, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Runs `job validate`. Without an agent, validates the job locally.
pub(crate) async fn run(ctx: &Ctx, args: &ValidateArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let input = args.file.input();
    let mut file = jobfile::load(ctx, path, &input).await?;
    args.namespaces.apply(&mut file.job);
    for warning in &file.warnings {
        ctx.out.note(warning);
    }
    let (error, warnings) = match ctx.client.jobs().validate(&file.job, &ctx.query()).await {
        Ok(answer) => {
            let answer = answer.value;
            let errors = answer.validation_errors;
            let error = if answer.error.is_empty() { errors.join("\n") } else { answer.error };
            (error, answer.warnings)
        }
        Err(error) if error.is_unreachable() => {
            ctx.out.note(&format!(
                "Checked without an agent, so nothing is known of namespaces, node pools and volumes: {error}"
            ));
            alone(&file.job)
        }
        Err(error) => return Err(error).doing("Error validating job"),
    };
    if !error.is_empty() {
        return Err(file.refused(ctx, &input, &format!("Job validation errors:\n{error}"), &error));
    }
    if let Some(text) = super::warnings(&warnings) {
        ctx.out.line(&text);
    }
    ctx.out.line("Job validation successful");
    Ok(0)
}

/// Returns errors and warnings of the local validation, in the format of an agent's answer.
fn alone(job: &api::Job) -> (String, String) {
    let mut job = job.clone();
    api::canonicalize(&mut job);
    let (mut job, misfits) = api::fit(&job);
    // Apply the defaults that an agent would apply.
    if job.datacenters.is_empty() {
        job.datacenters = vec!["*".to_owned()];
    }
    let verdict = caravan_admission::check_all(&job, misfits);
    let error = match verdict.errors.is_empty() {
        true => String::new(),
        false => caravan_admission::joined(&verdict.errors),
    };
    (error, caravan_admission::joined_warnings(&verdict.warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_checked_without_an_agent() {
        let alone = |json: &str| alone(&api::decode(json.as_bytes()).unwrap());
        let right =
            r#"{"ID": "a", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "exec"}]}]}"#;
        assert_eq!(alone(right), (String::new(), String::new()));
        let (error, _) =
            alone(r#"{"ID": "a", "Type": "strange", "Priority": 500, "TaskGroups": [{"Name": "g"}]}"#);
        assert!(
            error.starts_with(
                "3 errors occurred:\n\t* Invalid job type: \"strange\"\n\t* Task group g validation failed"
            ),
            "{error}"
        );
        assert!(error.trim_end().ends_with("* job priority must be between [1, 100]"), "{error}");
    }
}
