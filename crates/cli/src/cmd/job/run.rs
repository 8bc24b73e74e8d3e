//! `job run`

use super::{FileArgs, NamespaceArgs};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::format::json_as_declared;
use crate::jobfile;
use crate::monitor;
use caravan_sdk::RegisterOptions;
use caravan_types::api;
use caravan_types::job::Job;
use std::time::Duration;

/// How long a new allocation may take to run when the job does not say
/// (default of `progress_deadline`, docs/reference/jobspec.md, section 4).
const PATIENCE: Duration = Duration::from_secs(600);

/// Flags of `job run`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Register only if the job's modify index is this; 0: only a new job
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Do not wait for the placement
    #[arg(long)]
    detach: bool,
    /// Priority of the evaluation
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    eval_priority: i64,
    /// Print the job as JSON instead of registering it
    #[arg(long)]
    output: bool,
    /// Go against policies that may be gone against
    #[arg(long)]
    policy_override: bool,
    /// Keep the counts of groups that run already
    #[arg(long)]
    preserve_counts: bool,
    /// Keep the resources of tasks that run already
    #[arg(long)]
    preserve_resources: bool,
    /// Open the job's page in the browser
    #[arg(long)]
    ui: bool,
    /// Show whole ids
    #[arg(long)]
    verbose: bool,
    /// Job file, http:// URL, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, args: &RunArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    super::page(ctx, args.ui);
    let mut file = jobfile::load(ctx, path, &args.file.input()).await?;
    args.namespaces.apply(&mut file.job);
    if args.output {
        ctx.out.line(&json_as_declared(&std::collections::BTreeMap::from([("Job", file.printed()?)]))?);
        return Ok(0);
    }
    file.id()?;
    for warning in &file.warnings {
        ctx.out.note(warning);
    }
    let options = RegisterOptions {
        check_index: args.check_index,
        eval_priority: args.eval_priority,
        preserve_counts: args.preserve_counts,
        preserve_resources: args.preserve_resources,
        policy_override: args.policy_override,
        submission: file.submission.clone(),
    };
    let answer = match ctx.client.jobs().register(&file.job, &options, &ctx.query()).await {
        Ok(answer) => answer.value,
        Err(error) => {
            let conflict = match &error {
                caravan_sdk::Error::Status { body, .. } => {
                    body.find("Enforcing job modify index").map(|at| &body[at..])
                }
                _ => None,
            };
            return match conflict {
                Some(text) => Err(CliError::failed(format!("{text}\nJob not updated"))),
                None => Err(file.failed(ctx, &args.file.input(), "Error submitting job", error)),
            };
        }
    };
    if let Some(text) = super::warnings(&answer.warnings) {
        ctx.out.line(&text);
    }
    if args.detach || answer.eval_id.is_empty() {
        ctx.out.line("Job registration successful");
        if !answer.eval_id.is_empty() {
            ctx.out.line(&format!("Evaluation ID: {}", answer.eval_id));
        }
        if file.job.periodic.is_some()
            && let Ok(job) = registered(ctx, &file.job).await
            && let Some(next) = super::periodic::next_launch(&job, &ctx.clock())
        {
            ctx.out.line(&format!("Approximate next launch time: {next}"));
        }
        return Ok(0);
    }
    // A batch job is done with once it is placed; anything else is there to run.
    let start = (!file.is_batch()).then(|| file.progress_deadline().unwrap_or(PATIENCE));
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start }).await
}

/// The job as the servers keep it now.
async fn registered(ctx: &Ctx, job: &api::Job) -> Result<Job, caravan_sdk::Error> {
    let mut query = ctx.query();
    if let Some(namespace) = &job.namespace {
        query = query.namespace(namespace.as_str());
    }
    let id = job.id.as_deref().unwrap_or_default();
    Ok(ctx.client.jobs().info(id, &query).await?.value)
}
