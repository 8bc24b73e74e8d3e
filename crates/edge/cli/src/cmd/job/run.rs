//! `job run`

use super::{FileArgs, NamespaceArgs};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::format::json_as_declared;
use crate::jobfile;
use crate::monitor;
use caravan_api::{self as api, ErrorReason};
use caravan_sdk::RegisterOptions;
use caravan_types::job::Job;
use std::time::Duration;

/// The longest wait for a new allocation to run if the job sets no `progress_deadline` (its default,
/// docs/reference/jobspec.md, section 4).
const TIMEOUT: Duration = Duration::from_secs(600);

/// Flags of `job run`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Register only if the job's modify index equals this; 0: only if the job is new
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Return at once instead of following the placement
    #[arg(long)]
    detach: bool,
    /// Priority of the evaluation
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    eval_priority: i64,
    /// Print the job as JSON instead of registering it
    #[arg(long)]
    output: bool,
    /// Override soft-mandatory policies
    #[arg(long)]
    policy_override: bool,
    /// Keep the registered counts of groups
    #[arg(long)]
    preserve_counts: bool,
    /// Keep the registered resources of tasks
    #[arg(long)]
    preserve_resources: bool,
    /// Open the job's page in the browser; without a display, print its address
    #[arg(long)]
    ui: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job file, http:// URL, or - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &RunArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let mut file = jobfile::load(ctx, path, &args.file.input()).await?;
    args.namespaces.apply(&mut file.job);
    if args.output {
        ctx.out.line(&json_as_declared(&std::collections::BTreeMap::from([("Job", file.printed()?)]))?);
        return Ok(0);
    }
    let id = file.id()?.to_owned();
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
            let conflict = conflict(&error);
            return match conflict {
                Some(text) => Err(CliError::failed(format!("{text}\nJob not updated"))),
                None => Err(file.failed(ctx, &args.file.input(), "Error submitting job", error)),
            };
        }
    };
    let namespace = file.job.namespace.as_deref().unwrap_or("default");
    crate::cmd::page::open_job(ctx, args.ui, &id, namespace);
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
    // Following a batch job ends when it is placed; for any other job, wait until its allocations run.
    let start = (!file.is_batch()).then(|| file.progress_deadline().unwrap_or(TIMEOUT));
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start }).await
}

/// Returns the sentence of a refusal because the job is not at the index that the command names.
fn conflict(error: &caravan_sdk::Error) -> Option<&str> {
    match error {
        caravan_sdk::Error::Status { body, reason: Some(ErrorReason::ModifyIndex), .. } => Some(body),
        // Nomad's servers and older releases send no reason.
        caravan_sdk::Error::Status { body, reason: None, .. } => {
            body.find("Enforcing job modify index").map(|at| &body[at..])
        }
        _ => None,
    }
}

/// Returns the job as the servers store it now.
async fn registered(ctx: &Ctx, job: &api::Job) -> Result<Job, caravan_sdk::Error> {
    let mut query = ctx.query();
    if let Some(namespace) = &job.namespace {
        query = query.namespace(namespace.as_str());
    }
    let id = job.id.as_deref().unwrap_or_default();
    Ok(ctx.client.jobs().info(id, &query).await?.value)
}
