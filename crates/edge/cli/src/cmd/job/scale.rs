//! `job scale`

use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::{monitor, resolve};
use caravan_sdk::ScaleRequest;

/// Flags of `job scale`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ScaleArgs {
    /// Scale only if the job's modify index equals this
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job, group (required if the job has several) and count
    #[arg(value_name = "ARG", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &ScaleArgs) -> Outcome {
    let (supplied, group, count) = match args.args.as_slice() {
        [job, count] => (job, None, count),
        [job, group, count] => (job, Some(group.clone()), count),
        _ => {
            return Err(wrong_count(
                &args.args,
                3,
                "This command requires at least two arguments and no more than three",
            ));
        }
    };
    let count: i64 = count.parse().map_err(|_| {
        let problem = format!("strconv.Atoi: parsing \"{count}\": invalid syntax");
        CliError::failed(format!("Failed to convert count string to int: {problem}"))
    })?;
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let group = match group {
        Some(group) => group,
        None => only_group(ctx, job.id.as_str(), &query).await?,
    };
    if let Some(index) = args.check_index.filter(|index| *index != job.job_modify_index) {
        return Err(CliError::failed(format!(
            "Error submitting scaling request: the job's modify index is {}, not {index}",
            job.job_modify_index
        )));
    }
    let request = ScaleRequest::count(&group, count, "submitted using the Caravan CLI");
    let answer = ctx
        .client
        .scaling()
        .scale(job.id.as_str(), &request, &query)
        .await
        .doing("Error submitting scaling request")?
        .value;
    if !answer.warnings.is_empty() {
        ctx.out.line(&format!("Job Warnings:\n{}\n", answer.warnings));
    }
    // Scaling a periodic or parameterized job creates no evaluation.
    if answer.eval_id.is_empty() || args.detach {
        ctx.out.line("Job scale successful");
        if !answer.eval_id.is_empty() {
            ctx.out.line(&format!("Evaluation ID: {}", answer.eval_id));
        }
        return Ok(0);
    }
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}

/// Returns the only group of a job.
async fn only_group(ctx: &Ctx, job: &str, query: &caravan_sdk::QueryOptions) -> Result<String, CliError> {
    let status = ctx.client.scaling().status(job, query).await.doing("Error querying job")?.value;
    let mut names: Vec<String> = status.task_groups.into_keys().collect();
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(CliError::failed("Group name required")),
    }
}
