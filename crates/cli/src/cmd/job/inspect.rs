//! `job inspect`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::json;
use crate::resolve;

/// Flags of `job inspect`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InspectArgs {
    /// Show the text that the job was made from
    #[arg(long)]
    hcl: bool,
    /// Show JSON (it always is)
    #[arg(long)]
    json: bool,
    /// Show this version
    #[arg(long = "version", value_name = "N")]
    number: Option<u64>,
    /// Job
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, args: &InspectArgs) -> Outcome {
    let given = one(&args.args, "This command takes one argument: <job>")?;
    let job = resolve::job(ctx, given).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let id = job.id.as_str();
    let jobs = ctx.client.jobs();
    let shown =
        match args.number {
            None => jobs.raw(id, &query).await.doing("Error inspecting job")?.value,
            Some(number) => {
                let versions = jobs.versions(id, &query).await.doing("Error retrieving job versions")?.value;
                let found = versions.versions.into_iter().find(|job| job.version == number);
                serde_json::to_value(found.ok_or_else(|| {
                    CliError::failed(format!("No version {number} of job \"{id}\" is kept"))
                })?)?
            }
        };
    if args.hcl {
        let number = shown.get("Version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let submission =
            jobs.submission(id, number, &query).await.doing("Error retrieving job submission")?.value;
        let text = submission
            .ok_or_else(|| CliError::failed(format!("The text of job \"{id}\" was not kept")))?
            .source;
        ctx.out.raw(text.as_bytes());
        return Ok(0);
    }
    ctx.out.line(&json(&serde_json::json!({ "Job": shown }))?);
    Ok(0)
}
