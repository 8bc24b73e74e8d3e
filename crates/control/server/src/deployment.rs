//! Deployments: a watcher that advances them, and the users' requests (docs/reference/http-api.md, sections 3.2 and
//! 6.3).
//!
//! The scheduler creates a deployment with the first placements of a version, and decides how many allocations may be
//! updated at a time. [`decide`] determines from the reported health whether the deployment continues, succeeds, fails
//! or is reverted. [`Watcher`] executes this; changes and deadlines wake it.

mod decide;
mod fault;
mod requests;

pub use fault::DeploymentFault;
pub use requests::Deployments;
pub use requests::{DeploymentRequest, DeploymentUpdated};

use crate::broker::until;
use crate::core::Core;
use crate::error::ServerError;
use crate::node_evals::evaluation;
use crate::runtime::select;
use caravan_state::{Changed, FeedItem, Root};
use caravan_types::command::{Change, DeploymentChange};
use caravan_types::deployment::{Deployment, Verdict};
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::job::Job;
use caravan_types::{DeploymentId, Nanos, UnixNanos};
use decide::{Step, decide};
use std::collections::{BTreeMap, BTreeSet};
use tokio_util::sync::CancellationToken;

/// The pause before a failed commit is retried.
const PAUSE: Nanos = Nanos(1_000_000_000);

/// Advances deployments; one per leader.
#[derive(Debug)]
pub(crate) struct Watcher {
    core: Core,
    /// Deployments to check, and the latest time of the check.
    timers: BTreeMap<DeploymentId, UnixNanos>,
}

impl Watcher {
    pub(crate) fn new(core: Core) -> Self {
        Self { core, timers: BTreeMap::new() }
    }

    /// Runs until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        let mut moved = all(&self.core.snapshot());
        loop {
            for id in std::mem::take(&mut moved) {
                self.look(id).await;
            }
            let next = self.timers.values().min().copied();
            select! {
                () = cancel.cancelled() => return,
                () = until(next, self.core.aged()) => {
                    let now = self.core.aged();
                    moved = self.timers.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
                }
                item = feed.next() => match item {
                    None => return,
                    Some(FeedItem::Resync) => moved = all(&self.core.snapshot()),
                    Some(FeedItem::Changes(set)) => {
                        moved = concerned(&self.core.snapshot(), &set.changes);
                    }
                },
            }
        }
    }

    async fn look(&mut self, id: DeploymentId) {
        self.timers.remove(&id);
        let (root, now) = (self.core.snapshot(), self.core.aged());
        let Some(row) = root.deployment(&id) else { return };
        let step = decide(&root, row, now);
        let again = step.again;
        if let Err(error) = self.act(&root, row, step, self.core.now()).await {
            tracing::error!(deployment = %id, %error, "a deployment could not be advanced; retrying");
            self.timers.insert(id, now.plus(PAUSE));
        } else if let Some(at) = again {
            self.timers.insert(id, at);
        }
    }

    async fn act(
        &self,
        root: &Root,
        row: &Deployment,
        step: Step,
        now: UnixNanos,
    ) -> Result<(), ServerError> {
        let Some(change) = change_of(root, row, step, now) else { return Ok(()) };
        if let Some(verdict) = &change.verdict {
            tracing::info!(deployment = %row.id, job = %row.job_id, says = verdict.description, "deployment ends");
        }
        let outcome = self.core.propose(Change::Deployment(Box::new(change))).await?;
        if let Some(refusal) = outcome.refused {
            // The deployment ended or changed since the check; that change causes the next check.
            tracing::debug!(deployment = %row.id, %refusal, "a step of a deployment was refused");
        }
        Ok(())
    }
}

/// Returns the change that executes a step; `None` if it changes nothing.
fn change_of(root: &Root, row: &Deployment, step: Step, now: UnixNanos) -> Option<DeploymentChange> {
    let evals: Vec<Evaluation> =
        if step.evaluate { eval(root, row, now).into_iter().collect() } else { Vec::new() };
    let change = DeploymentChange {
        id: row.id.clone(),
        promote: step.promote.then(Vec::new),
        reschedule: step.reschedule,
        verdict: step.end.map(|(status, description)| Verdict { id: row.id.clone(), status, description }),
        revert: step.revert.map(|job| Box::new(Job { submit_time: now, stop: false, ..(*job).clone() })),
        evals,
        ..DeploymentChange::default()
    };
    (change != DeploymentChange { id: row.id.clone(), ..DeploymentChange::default() }).then_some(change)
}

/// Returns an evaluation of the deployment's job.
fn eval(root: &Root, row: &Deployment, now: UnixNanos) -> Option<Evaluation> {
    let job = root.job(&row.job_key())?;
    let priority = if row.eval_priority > 0 { row.eval_priority } else { job.priority };
    Some(Evaluation {
        deployment_id: row.id.clone(),
        // Clients identify these evaluations by their deployment, so they carry no index of the job.
        job_modify_index: 0,
        priority,
        ..evaluation(job, Trigger::DeploymentWatcher, now)
    })
}

fn all(root: &Root) -> BTreeSet<DeploymentId> {
    root.deployments().filter(|row| !row.status.is_terminal()).map(|row| row.id.clone()).collect()
}

/// Returns the deployments that changes may concern.
fn concerned(root: &Root, changes: &[Changed]) -> BTreeSet<DeploymentId> {
    let mut found = BTreeSet::new();
    for changed in changes {
        match changed {
            Changed::Deployment(id) => {
                found.insert(id.clone());
            }
            Changed::Alloc(id) => {
                let Some(alloc) = root.alloc(id) else { continue };
                // The deployment may wait only for the end of an earlier version's allocation.
                let of_job = root.deployments_by_job(&alloc.job_key());
                found.extend(of_job.filter(|row| !row.status.is_terminal()).map(|row| row.id.clone()));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod simulation;
