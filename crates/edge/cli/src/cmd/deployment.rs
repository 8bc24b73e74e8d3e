//! `deployment …`, and the `job` commands for deployments.

use crate::cmd::{at_most_one, one, wrong_count};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{id, json};
use crate::monitor::deployment::{DeploymentMonitor, details};
use crate::monitor::{self, pace};
use crate::resolve::{self, Found, pick, uuid_prefix};
use crate::table::Table;
use caravan_sdk::{DeploymentUpdateResponse, Watch};
use caravan_types::deployment::Deployment;
use caravan_types::id::EvalId;
use clap::Subcommand;
use std::time::Instant;

const USAGE: &str = "This command takes one argument: <deployment id>";

/// Subcommands of `deployment`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeploymentVerb {
    /// List deployments, newest first
    List(ListArgs),
    /// Show a deployment
    Status(StatusArgs),
    /// Pause a deployment
    Pause(ChangeArgs),
    /// Resume a paused deployment
    Resume(ChangeArgs),
    /// Promote the canaries of a deployment
    Promote(PromoteArgs),
    /// Mark a deployment as failed
    Fail(ChangeArgs),
    /// Unblock a deployment that waits for another region
    Unblock(ChangeArgs),
}

/// Flags of `deployment list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ListArgs {
    /// Show only entries that match the filter expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `deployment status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Follow the deployment until it ends
    #[arg(long)]
    monitor: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    browser: crate::cmd::page::BrowserArgs,
    /// Deployment id or prefix
    #[arg(value_name = "DEPLOYMENT", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of the subcommands that change a deployment.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ChangeArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Deployment id or prefix
    #[arg(value_name = "DEPLOYMENT", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `deployment promote`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PromoteArgs {
    /// Promote only this group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Deployment id or prefix
    #[arg(value_name = "DEPLOYMENT", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `job promote`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct JobPromoteArgs {
    /// Promote only this group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `job deployments`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct JobDeploymentsArgs {
    /// Show only the newest deployment
    #[arg(long)]
    latest: bool,
    /// Include deployments of earlier jobs with the same id
    #[arg(long)]
    all: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `job revert`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RevertArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job, and the number or the tag of the version
    #[arg(value_name = "JOB VERSION", num_args = 0..)]
    args: Vec<String>,
}

/// Runs a subcommand of `deployment`.
pub(crate) async fn run(ctx: &Ctx, verb: &DeploymentVerb) -> Outcome {
    match verb {
        DeploymentVerb::List(args) => list(ctx, args).await,
        DeploymentVerb::Status(args) => status(ctx, args).await,
        DeploymentVerb::Promote(args) => promote(ctx, args).await,
        DeploymentVerb::Pause(args) => {
            let row = find(ctx, args).await?;
            let answer = ctx.client.deployments().pause(row.id.as_str(), true, &ctx.query()).await;
            let done = answer.doing("Error pausing deployment")?.value;
            follow(ctx, args, Some(format!("Deployment \"{}\" paused", row.id)), &done).await
        }
        DeploymentVerb::Resume(args) => {
            let row = find(ctx, args).await?;
            let answer = ctx.client.deployments().pause(row.id.as_str(), false, &ctx.query()).await;
            let done = answer.doing("Error resuming deployment")?.value;
            follow(ctx, args, Some(format!("Deployment \"{}\" resumed", row.id)), &done).await
        }
        DeploymentVerb::Fail(args) => {
            let row = find(ctx, args).await?;
            let answer = ctx.client.deployments().fail(row.id.as_str(), &ctx.query()).await;
            let done = answer.doing("Error failing deployment")?.value;
            let mut text = format!("Deployment \"{}\" failed", row.id);
            if let Some(version) = done.reverted_job_version {
                text.push_str(&format!("\nAuto-reverted to job version {version}"));
            }
            follow(ctx, args, Some(text), &done).await
        }
        DeploymentVerb::Unblock(args) => {
            let row = find(ctx, args).await?;
            let answer = ctx.client.deployments().unblock(row.id.as_str(), &ctx.query()).await;
            let done = answer.doing("Error unblocking deployment")?.value;
            follow(ctx, args, Some(format!("Deployment \"{}\" unblocked", row.id)), &done).await
        }
    }
}

/// Returns the deployment with this id or unique prefix.
async fn resolve(ctx: &Ctx, supplied: &str) -> Result<Deployment, CliError> {
    let query = ctx.query().prefix(uuid_prefix(supplied)?);
    let mut rows = ctx.client.deployments().list(&query).await.doing("Error retrieving deployment")?.value;
    rows.retain(|row| row.id.as_str().starts_with(supplied));
    match pick(supplied, rows, |row| row.id.as_str()) {
        Found::One(row) => Ok(row),
        Found::None => Err(CliError::failed(format!(
            "Error retrieving deployment: Deployment ID \"{supplied}\" matched no deployments"
        ))),
        Found::Many(rows) => {
            Err(CliError::failed(format!("Prefix matched multiple deployments\n\n{}", table(&rows, false))))
        }
    }
}

async fn find(ctx: &Ctx, args: &ChangeArgs) -> Result<Deployment, CliError> {
    resolve(ctx, one(&args.args, USAGE)?).await
}

/// Prints the result of a change and follows the evaluation that the change created.
async fn follow(
    ctx: &Ctx,
    args: &ChangeArgs,
    text: Option<String>,
    done: &DeploymentUpdateResponse,
) -> Outcome {
    if let Some(text) = text {
        ctx.out.line(&text);
    }
    evaluation(ctx, &done.eval_id, args.detach, args.verbose).await
}

async fn evaluation(ctx: &Ctx, eval: &EvalId, detach: bool, verbose: bool) -> Outcome {
    if eval.is_empty() {
        return Ok(0);
    }
    if detach {
        ctx.out.line(&format!("Evaluation ID: {eval}"));
        return Ok(0);
    }
    monitor::run(ctx, eval, monitor::Options { verbose, start: None }).await
}

fn table(rows: &[Deployment], verbose: bool) -> String {
    let rows = rows.iter().map(|row| {
        vec![
            id(row.id.as_str(), verbose),
            row.job_id.to_string(),
            row.job_version.to_string(),
            row.status.as_str().to_owned(),
            row.status_description.clone(),
        ]
    });
    Table::new(&["ID", "Job ID", "Job Version", "Status", "Description"]).rows(rows).render()
}

/// Runs `deployment list`.
async fn list(ctx: &Ctx, args: &ListArgs) -> Outcome {
    let mut query = ctx.query();
    query.filter = args.filter.clone().unwrap_or_default();
    let rows = ctx.client.deployments().list(&query).await.doing("Error retrieving deployments")?.value;
    show(ctx, rows, args.json, args.verbose)
}

fn show(ctx: &Ctx, mut rows: Vec<Deployment>, as_json: bool, verbose: bool) -> Outcome {
    rows.sort_by_key(|row| std::cmp::Reverse(row.create_index));
    let text = match (as_json, rows.is_empty()) {
        (true, _) => json(&rows)?,
        (false, true) => "No deployments found".to_owned(),
        (false, false) => table(&rows, verbose),
    };
    ctx.out.line(&text);
    Ok(0)
}

/// Runs `deployment status`.
async fn status(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let supplied = at_most_one(&args.args, "This command takes only one argument: <deployment id>")?;
    let Some(supplied) = supplied else {
        return list(ctx, &ListArgs { json: args.json, verbose: args.verbose, filter: None }).await;
    };
    let row = resolve(ctx, supplied).await?;
    crate::cmd::page::open_job(ctx, args.browser.ui, row.job_id.as_str(), row.namespace.as_str());
    if args.json {
        ctx.out.line(&json(&row)?);
        return Ok(0);
    }
    if !args.monitor {
        ctx.out.line(&details(&ctx.clock(), &row, args.verbose));
        return Ok(0);
    }
    let clock = ctx.clock();
    ctx.out.line(&format!(
        "{}: Monitoring deployment \"{}\"",
        clock.stamp(),
        id(row.id.as_str(), args.verbose)
    ));
    let mut monitor = DeploymentMonitor::new(args.verbose);
    let mut watch = Watch::new(ctx.query());
    loop {
        let asked = Instant::now();
        let answer = ctx.client.deployments().info(row.id.as_str(), watch.query()).await;
        let answer = answer.doing("Error retrieving deployment")?;
        pace(watch.saw(&answer.meta), asked).await;
        if let Some(text) = monitor.news(&ctx.clock(), &answer.value) {
            ctx.out.line(&format!("\n{text}"));
        }
        if answer.value.status.is_terminal() {
            return Ok(0);
        }
    }
}

/// Runs `deployment promote`.
async fn promote(ctx: &Ctx, args: &PromoteArgs) -> Outcome {
    let row = resolve(ctx, one(&args.args, USAGE)?).await?;
    let answer = ctx.client.deployments().promote(row.id.as_str(), &args.groups, &ctx.query()).await;
    let done = answer.doing("Error promoting deployment")?.value;
    evaluation(ctx, &done.eval_id, args.detach, args.verbose).await
}

/// Runs `job promote`.
pub(crate) async fn job_promote(ctx: &Ctx, args: &JobPromoteArgs) -> Outcome {
    let job = resolve::job(ctx, one(&args.args, "This command takes one argument: <job>")?).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let newest = ctx.client.jobs().latest_deployment(job.id.as_str(), &query).await;
    let newest = newest.doing(format!("Error retrieving deployments for job \"{}\"", job.id))?.value;
    let Some(row) = newest else {
        return Err(CliError::failed(format!("Job \"{}\" has no deployment to promote", job.id)));
    };
    let answer = ctx.client.deployments().promote(row.id.as_str(), &args.groups, &query).await;
    let failed = format!("Error promoting deployment \"{}\" for job \"{}\"", row.id, job.id);
    let done = answer.doing(failed)?.value;
    evaluation(ctx, &done.eval_id, args.detach, args.verbose).await
}

/// Runs `job deployments`.
pub(crate) async fn of_job(ctx: &Ctx, args: &JobDeploymentsArgs) -> Outcome {
    let job = resolve::job(ctx, one(&args.args, "This command takes one argument: <job>")?).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    if args.latest {
        let newest = ctx.client.jobs().latest_deployment(job.id.as_str(), &query).await;
        let newest = newest.doing("Error retrieving deployments")?.value;
        let text = match (newest, args.json) {
            (None, false) => "No deployment found".to_owned(),
            (row, true) => json(&row)?,
            (Some(row), false) => details(&ctx.clock(), &row, args.verbose),
        };
        ctx.out.line(&text);
        return Ok(0);
    }
    let query = query.param("all", args.all.to_string());
    let rows = ctx.client.jobs().deployments(job.id.as_str(), &query).await;
    show(ctx, rows.doing("Error retrieving deployments")?.value, args.json, args.verbose)
}

/// Runs `job revert`.
pub(crate) async fn revert(ctx: &Ctx, args: &RevertArgs) -> Outcome {
    let [supplied, version] = args.args.as_slice() else {
        return Err(wrong_count(&args.args, 2, "This command takes two args: <job> <version|tag>"));
    };
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let number = match version.parse::<u64>() {
        Ok(number) => number,
        Err(_) => tagged(ctx, job.id.as_str(), version, &query).await?,
    };
    let answer = ctx.client.jobs().revert(job.id.as_str(), number, None, &query).await;
    let done = answer.doing("Error retrieving job versions")?.value;
    if let Some(text) = super::job::warnings(&done.warnings) {
        ctx.out.line(&text);
    }
    evaluation(ctx, &done.eval_id, args.detach, args.verbose).await
}

/// Returns the version of the job that has this tag.
async fn tagged(ctx: &Ctx, job: &str, tag: &str, query: &caravan_sdk::QueryOptions) -> Result<u64, CliError> {
    let versions = ctx.client.jobs().versions(job, query).await.doing("Error retrieving job versions")?.value;
    let bears = |version: &&caravan_types::job::Job| {
        serde_json::to_value(version).is_ok_and(|shown| shown["VersionTag"]["Name"] == tag)
    };
    let found = versions.versions.iter().find(bears);
    found
        .map(|version| version.version)
        .ok_or_else(|| CliError::failed(format!("Error retrieving job versions: tag \"{tag}\" not found")))
}
