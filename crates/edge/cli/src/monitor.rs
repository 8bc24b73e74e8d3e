//! Follows the effects of a command until they are complete.
//!
//! State machines ([`eval`], [`follow`], [`deployment`]) without network access decide about the report of each new
//! state. The loops here feed them with the answers of blocking queries.

pub(crate) mod deployment;
pub(crate) mod eval;
pub(crate) mod follow;

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::metrics;
use caravan_sdk::Watch;
use caravan_types::alloc::ClientStatus;
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::id::{AllocId, EvalId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The exit status if some allocations were not placed.
const NOT_PLACED: u8 = 2;

/// Allocations with their last reported status.
type Statuses = BTreeMap<AllocId, ClientStatus>;

/// The options for following an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether to show full ids.
    pub(crate) verbose: bool,
    /// The longest wait, without a deployment, until every new allocation runs or has failed. `None`: no wait.
    pub(crate) start: Option<Duration>,
}

/// Follows an evaluation, then its deployment or its allocations. Returns 0, 1 if something failed, 2 if some
/// allocations were not placed. If placements wait only for plugins to become healthy, waits for them for a short
/// time.
pub(crate) async fn run(ctx: &Ctx, eval_id: &EvalId, options: Options) -> Outcome {
    let mut next = eval_id.clone();
    loop {
        let (eval, status, reported) = one(ctx, &next, options).await?;
        if !eval.next_eval.is_empty() && status == 0 {
            let clock = ctx.clock();
            let id = crate::format::id(eval.next_eval.as_str(), options.verbose);
            ctx.out.line(&format!("==> {}: Monitoring next evaluation \"{id}\"", clock.stamp()));
            next = eval.next_eval;
            continue;
        }
        if status == NOT_PLACED && plugin_comes(ctx, &eval).await {
            next = eval.blocked_eval;
            continue;
        }
        if status != 0 {
            return Ok(status);
        }
        if !eval.deployment_id.is_empty() {
            return deployment(ctx, &eval, options).await;
        }
        return match options.start {
            Some(limit) => start(ctx, &eval, options, limit, reported).await,
            None => Ok(0),
        };
    }
}

/// The longest wait for placements that wait only for plugins. A plugin that has just started registers its node part
/// and its controller part one after the other.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether the placements waited only for plugins that have become healthy. An error counts as no: the exit
/// status then reports that some allocations were not placed.
async fn plugin_comes(ctx: &Ctx, eval: &Evaluation) -> bool {
    let id = eval.blocked_eval.as_str();
    let waiting = async {
        let mut watch = Watch::new(ctx.query());
        loop {
            let asked = Instant::now();
            let Ok(answer) = ctx.client.evaluations().info(id, watch.query()).await else { return false };
            pace(watch.saw(&answer.meta), asked).await;
            match answer.value.status {
                EvalStatus::Complete => return true,
                EvalStatus::Pending => {}
                EvalStatus::Blocked if metrics::waits_only_for_plugins(&answer.value) => {}
                EvalStatus::Blocked | EvalStatus::Failed | EvalStatus::Canceled => return false,
            }
        }
    };
    !id.is_empty() && tokio::time::timeout(PLUGIN_TIMEOUT, waiting).await.unwrap_or(false)
}

/// The shortest time between two answers without changes, because some agents do not support blocking queries on
/// every route.
const PACE: Duration = Duration::from_millis(200);

/// Sleeps for the remaining part of `PACE` after an answer without changes.
pub(crate) async fn pace(new: bool, asked: Instant) {
    if !new {
        tokio::time::sleep(PACE.saturating_sub(asked.elapsed())).await;
    }
}

async fn one(ctx: &Ctx, id: &EvalId, options: Options) -> Result<(Evaluation, u8, Statuses), CliError> {
    let mut monitor = eval::EvalMonitor::new(id.clone(), options.verbose);
    ctx.out.line(&ctx.out.bold(&monitor.begin(&ctx.clock())));
    let mut watch = Watch::new(ctx.query());
    loop {
        let asked = Instant::now();
        let answer = ctx
            .client
            .evaluations()
            .info(id.as_str(), watch.query())
            .await
            .doing("Error reading evaluation")?;
        pace(watch.saw(&answer.meta), asked).await;
        let allocs = ctx
            .client
            .evaluations()
            .allocations(id.as_str(), &ctx.query())
            .await
            .doing("Error reading allocations")?;
        for line in monitor.update(&ctx.clock(), &answer.value, &allocs.value) {
            ctx.out.line(&line);
        }
        let Some(status) = monitor.ended() else { continue };
        if status == NOT_PLACED && !answer.value.blocked_eval.is_empty() {
            let blocked = answer.value.blocked_eval.as_str();
            // The blocked evaluation only explains the failure, so an error is ignored.
            if let Ok(blocked) = ctx.client.evaluations().info(blocked, &ctx.query()).await {
                for sentence in metrics::waits(&blocked.value) {
                    ctx.out.line(&format!("    {}: {sentence}", ctx.clock().stamp()));
                }
            }
        }
        return Ok((answer.value, status, monitor.into_statuses()));
    }
}

async fn deployment(ctx: &Ctx, eval: &Evaluation, options: Options) -> Outcome {
    let id = eval.deployment_id.clone();
    let mut monitor = deployment::DeploymentMonitor::new(options.verbose);
    ctx.out.line(&ctx.out.bold(&monitor.begin(&ctx.clock(), &id)));
    let mut watch = Watch::new(ctx.query());
    loop {
        let asked = Instant::now();
        let answer = ctx
            .client
            .deployments()
            .info(id.as_str(), watch.query())
            .await
            .doing("Error reading deployment")?;
        pace(watch.saw(&answer.meta), asked).await;
        if let Some(text) = monitor.update(&ctx.clock(), &answer.value) {
            ctx.out.line(&text);
        }
        if answer.value.status.is_terminal() {
            let good = answer.value.status == caravan_types::deployment::DeploymentStatus::Successful;
            return Ok(u8::from(!good));
        }
    }
}

async fn start(
    ctx: &Ctx,
    eval: &Evaluation,
    options: Options,
    limit: Duration,
    reported: Statuses,
) -> Outcome {
    let mut follow = follow::Follow::new(options.verbose, reported);
    let waiting = async {
        let mut watch = Watch::new(ctx.query());
        loop {
            let asked = Instant::now();
            let answer = ctx
                .client
                .evaluations()
                .allocations(eval.id.as_str(), watch.query())
                .await
                .doing("Error reading allocations")?;
            pace(watch.saw(&answer.meta), asked).await;
            for line in follow.update(&ctx.clock(), &answer.value) {
                ctx.out.line(&line);
            }
            if let Some(status) = follow.ended(&answer.value) {
                return Ok(status);
            }
        }
    };
    match tokio::time::timeout(limit, waiting).await {
        Ok(outcome) => outcome,
        Err(_) => {
            ctx.out.note(&format!(
                "Not everything runs after {}s; see `caravan job status {}`",
                limit.as_secs(),
                eval.job_id
            ));
            Ok(1)
        }
    }
}
