//! `job validate`

use super::{FileArgs, NamespaceArgs};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::jobfile;
use crate::refusal::Refusal;
use caravan_api::{self as api, JobProblem};

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
    let (error, warnings, problems) = match ctx.client.jobs().validate(&file.job, &ctx.query()).await {
        Ok(answer) => {
            let answer = answer.value;
            let errors = answer.validation_errors;
            let error = if answer.error.is_empty() { errors.join("\n") } else { answer.error };
            (error, answer.warnings, answer.caravan_problems)
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
        let refusal = Refusal { text: &error, problems: &problems };
        return Err(file.refused(ctx, &input, &format!("Job validation errors:\n{error}"), refusal));
    }
    if let Some(text) = super::warnings(&warnings) {
        ctx.out.line(&text);
    }
    ctx.out.line("Job validation successful");
    Ok(0)
}

/// Returns errors and warnings of the job by itself, as an agent would put them, and the problems as data.
fn alone(submitted: &api::Job) -> (String, String, Vec<JobProblem>) {
    let mut job = submitted.clone();
    api::canonicalize(&mut job);
    let (mut job, misfits) = api::fit(&job);
    // Apply the defaults that an agent would apply.
    if job.datacenters.is_empty() {
        job.datacenters = vec!["*".to_owned()];
    }
    let verdict = caravan_admission::check_all(&job, misfits);
    let error = if verdict.errors.is_empty() { String::new() } else { verdict.refusal() };
    let mut problems = verdict.to_api();
    if let Ok(written) = serde_json::to_value(submitted) {
        for problem in &mut problems {
            problem.path = problem.path.written_in(&written);
        }
    }
    (error, verdict.warning(), problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_checked_without_an_agent() {
        let alone = |json: &str| alone(&api::decode(json.as_bytes()).unwrap());
        let right =
            r#"{"ID": "a", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "exec"}]}]}"#;
        assert_eq!(alone(right), (String::new(), String::new(), Vec::new()));
        let (error, _, problems) =
            alone(r#"{"ID": "a", "Type": "strange", "Priority": 500, "TaskGroups": [{"Name": "g"}]}"#);
        assert!(
            error.starts_with(
                "3 errors occurred:\n\t* Invalid job type: \"strange\"\n\t* Task group g validation failed"
            ),
            "{error}"
        );
        assert!(error.trim_end().ends_with("* job priority must be between [1, 100]"), "{error}");
        let found: Vec<_> = problems.iter().map(|p| format!("{} {}", p.path, p.code)).collect();
        assert_eq!(
            found,
            ["Type unknown_word", "TaskGroups[0].Tasks missing", "Priority above_maximum"],
            "{problems:?}"
        );
    }
}
