//! `job start`

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::{monitor, resolve};
use caravan_sdk::RegisterOptions;
use caravan_types::job::JobListStub;
use serde_json::{Value, json};

/// Flags of `job start`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StartArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job ids or prefixes
    #[arg(value_name = "JOB", num_args = 0..)]
    jobs: Vec<String>,
}

/// Runs `job start`: registers the stopped version of each job again.
pub(crate) async fn run(ctx: &Ctx, args: &StartArgs) -> Outcome {
    if args.jobs.is_empty() {
        return Err(CliError::Usage("This command takes at least one argument: <job>".into()));
    }
    let mut worst = 0;
    for supplied in &args.jobs {
        let job = resolve::job(ctx, supplied).await?;
        worst = worst.max(one(ctx, args, &job).await?);
    }
    Ok(worst)
}

async fn one(ctx: &Ctx, args: &StartArgs, stub: &JobListStub) -> Outcome {
    let id = stub.id.as_str();
    if !stub.stop {
        return Err(CliError::failed(format!(
            "Job \"{id}\" has not been stopped and has the following status: {}",
            stub.status.as_str()
        )));
    }
    let query = ctx.query().namespace(stub.namespace.as_str());
    let jobs = ctx.client.jobs();
    let mut job = jobs.raw(id, &query).await.doing(format!("Error querying job with id {id}"))?.value;
    let version = job.get("Version").and_then(Value::as_u64).unwrap_or_default();
    let index = job.get("JobModifyIndex").and_then(Value::as_u64);
    job["Stop"] = json!(false);
    let submission = match jobs.submission(id, version, &query).await {
        // The submitted text is kept if the servers have it; the job starts without it too.
        Ok(answer) => answer.value,
        Err(_) => None,
    };
    // The check index rejects the registration if the job changed since it was read.
    let options = RegisterOptions { check_index: index, submission, ..RegisterOptions::default() };
    let answer = jobs.register(&job, &options, &query).await.doing(format!("Error starting job {id}"))?.value;
    if answer.eval_id.is_empty() {
        ctx.out.line("Job start successful");
        return Ok(0);
    }
    if args.detach {
        ctx.out.line(answer.eval_id.as_str());
        return Ok(0);
    }
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}
