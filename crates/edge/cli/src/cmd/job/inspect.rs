//! `job inspect`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use caravan_api as api;
use caravan_sdk::Submission;
use serde_json::{Value, json};

/// Flags of `job inspect`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Show the submitted job file, or one that describes the same job
    #[arg(long)]
    hcl: bool,
    /// Show this version
    #[arg(long = "version", value_name = "N")]
    number: Option<u64>,
    /// With -hcl: include the values of variables
    #[arg(long)]
    with_vars: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &InspectArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <job>")?;
    if args.hcl && args.data.is_requested() {
        return Err(CliError::failed("-hcl cannot be used with -json or -t"));
    }
    if args.with_vars && !args.hcl {
        return Err(CliError::failed("-with-vars can only be used with -hcl"));
    }
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let id = job.id.as_str();
    let jobs = ctx.client.jobs();
    let shown = match args.number {
        None => jobs.raw(id, &query).await.doing("Error inspecting job")?.value,
        Some(number) => {
            let versions =
                jobs.history(id, &query).await.doing("Error retrieving job versions")?.value.versions;
            let found =
                versions.into_iter().find(|job| job.get("Version").and_then(Value::as_u64) == Some(number));
            found.ok_or_else(|| CliError::failed(format!("No version {number} of job \"{id}\" is kept")))?
        }
    };
    if args.hcl {
        let number = shown.get("Version").and_then(Value::as_u64).unwrap_or(0);
        let submission = match jobs.submission(id, number, &query).await {
            Err(error) if error.is_not_found() => None,
            answer => answer.doing("Error retrieving job submission")?.value,
        };
        ctx.out.line(&text(&shown, submission.as_ref(), args.with_vars)?);
        return Ok(0);
    }
    if args.data.template.is_some() {
        return args.data.always(ctx, &shown);
    }
    // Use the keys that clients send, so that the output can be submitted again.
    args.data.always(ctx, &json!({ "Job": sent(&shown)? }))
}

fn sent(job: &Value) -> Result<api::Job, CliError> {
    api::from_value(job).map_err(|e| CliError::failed(format!("Error reading the job: {e}")))
}

/// Returns the submitted text if the servers stored it and it is in the job language. Otherwise writes a job file
/// that parses to the same job.
fn text(job: &Value, submission: Option<&Submission>, with_variables: bool) -> Result<String, CliError> {
    let Some(kept) = submission.filter(|kept| kept.format == "hcl2" && !kept.source.is_empty()) else {
        let job: api::Job =
            api::from_value(job).map_err(|e| CliError::failed(format!("Error reading the job: {e}")))?;
        return caravan_hcl::write::job(&job).map_err(|e| {
            CliError::failed(format!("The job has no text of its own, and none can be made: {e}"))
        });
    };
    let mut out = kept.source.clone();
    if with_variables && !(kept.variables.trim().is_empty() && kept.variable_flags.is_empty()) {
        out.push_str("\n# Variables that were given when the job was submitted.\n");
        for line in kept.variables.trim_end().lines() {
            out.push_str(&format!("# {line}\n"));
        }
        for (name, value) in &kept.variable_flags {
            out.push_str(&format!("# -var {name}={value}\n"));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_kept_one_or_made() {
        let job = json!({"ID": "web", "Name": "web", "Type": "batch", "Version": 3});
        let mut kept =
            Submission { source: "job \"web\" {}\n".into(), format: "hcl2".into(), ..Submission::default() };
        assert_eq!(text(&job, Some(&kept), true).unwrap(), "job \"web\" {}\n");
        kept.variable_flags.insert("a".into(), "b".into());
        assert!(text(&job, Some(&kept), true).unwrap().ends_with("submitted.\n# -var a=b\n"));
        let made = "job \"web\" {\n  type = \"batch\"\n}\n";
        assert_eq!(text(&job, None, false).unwrap(), made);
        kept.format = "json".into();
        assert_eq!(text(&job, Some(&kept), false).unwrap(), made);
    }
}
