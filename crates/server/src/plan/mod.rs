//! The planner: plans are checked one after the other against the newest state, and what fits is
//! written in one step, claims included.

mod check;
mod host;
mod rejections;

use crate::core::{Core, new_id};
use crate::error::ServerError;
use crate::heartbeat::event;
use crate::node_evals::evaluation;
use caravan_state::Root;
use caravan_types::alloc::Allocation;
use caravan_types::command::{Change, PlanCommit, Refusal};
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::node::Eligibility;
use caravan_types::plan::{Plan, StopAlloc};
use caravan_types::{JobKey, NodeId, UnixNanos};
pub(crate) use check::check;
pub use rejections::RejectionConfig;
use rejections::Rejections;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// All of it is written, the verdict on the evaluation too.
    Whole,
    /// Some of it did not fit any more; the rest is written at this index. Look again.
    Partly {
        /// State that the next attempt must have seen.
        index: u64,
        /// Whether anything of it is written.
        progress: bool,
    },
}

struct Submission {
    plan: Plan,
    evals: Vec<Evaluation>,
    answer: oneshot::Sender<Result<Submitted, ServerError>>,
}

/// Submits plans; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    submissions: mpsc::Sender<Submission>,
}

/// Writes plans, one at a time.
pub(crate) struct PlannerService {
    core: Core,
    config: RejectionConfig,
    rejections: Rejections,
    submissions: mpsc::Receiver<Submission>,
}

impl Planner {
    pub(crate) fn new(core: Core, config: RejectionConfig) -> (Self, PlannerService) {
        let (submissions, receiver) = mpsc::channel(64);
        let rejections = Rejections::default();
        (Self { submissions }, PlannerService { core, config, rejections, submissions: receiver })
    }

    /// Submits a plan; `evals` are written with it if all of it fits.
    pub(crate) async fn submit(&self, plan: Plan, evals: Vec<Evaluation>) -> Result<Submitted, ServerError> {
        let (answer, result) = oneshot::channel();
        let stopped = || ServerError::unavailable("the planner has stopped");
        self.submissions.send(Submission { plan, evals, answer }).await.map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }
}

impl PlannerService {
    /// Runs until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        loop {
            let submission = tokio::select! {
                () = cancel.cancelled() => return,
                next = self.submissions.recv() => match next {
                    Some(submission) => submission,
                    None => return,
                },
            };
            let result = self.write(submission.plan, submission.evals).await;
            // The worker may be gone, with the server stopping.
            let _ = submission.answer.send(result);
        }
    }

    /// Takes out nodes that refuse too often what is meant for them.
    async fn take_out(&mut self, root: &Root, refusing: &BTreeSet<NodeId>) {
        let now = self.core.now();
        for id in refusing {
            if !self.rejections.record(id, now, &self.config)
                || !root.node(id).is_some_and(|node| node.is_schedulable())
            {
                continue;
            }
            tracing::warn!(node = %id, "the node refused too many placements and takes no more");
            let said = event("Scheduler", "Node marked as ineligible: too many placements were refused", now);
            let ineligible = Change::NodeEligibility {
                node: id.clone(),
                eligibility: Eligibility::Ineligible,
                evals: Vec::new(),
            };
            let events = Change::NodeEvents { events: BTreeMap::from([(id.clone(), vec![said])]) };
            for change in [ineligible, events] {
                if let Err(error) = self.core.commit(change).await {
                    tracing::warn!(node = %id, %error, "a node could not be taken out");
                }
            }
        }
    }

    async fn write(&mut self, mut plan: Plan, evals: Vec<Evaluation>) -> Result<Submitted, ServerError> {
        let root = self.core.snapshot();
        let mut accepted = check(&root, &mut plan);
        for (alloc, reason) in &accepted.refused {
            tracing::debug!(%alloc, eval = %plan.eval_id, reason, "a placement does not fit any more");
        }
        self.take_out(&root, &accepted.refusing).await;
        let whole = accepted.refused.is_empty();
        // What would be begun or ended with it is decided anew by the next attempt.
        if accepted.placements.is_empty() && accepted.stops.is_empty() && !whole {
            return Ok(Submitted::Partly { index: root.index(), progress: false });
        }
        let mut evals = if whole { evals } else { Vec::new() };
        evals.extend(evals_of_preempted(&root, &accepted.stops, self.core.now()));
        sign(&root, &mut accepted.placements);
        let commit = PlanCommit {
            eval_id: plan.eval_id,
            job: plan.job,
            placements: accepted.placements,
            stops: accepted.stops,
            claims: accepted.claims,
            host_claims: accepted.host_claims.into_iter().map(with_id).collect(),
            evals,
            deployment: plan.deployment,
            deployment_updates: plan.deployment_updates,
        };
        let outcome = self.core.propose(Change::Plan(Box::new(commit))).await?;
        match outcome.refused {
            None if whole => Ok(Submitted::Whole),
            None => Ok(Submitted::Partly { index: outcome.index, progress: true }),
            // A node or a volume went away between the check and the write.
            Some(Refusal::ClaimRefused(_) | Refusal::NotFound { .. } | Refusal::Changed { .. }) => {
                Ok(Submitted::Partly { index: outcome.index, progress: false })
            }
            Some(refusal) => Err(refusal.into()),
        }
    }
}

/// Notes the root key that the identities of new allocations are signed with, so that it is kept while they live.
fn sign(root: &Root, placements: &mut [Allocation]) {
    let Some(key) = root.active_root_key() else { return };
    for alloc in placements.iter_mut().filter(|alloc| alloc.create_index == 0) {
        alloc.signing_key_id = key.key_id.as_str().into();
    }
}

/// The jobs of evicted allocations look for another place.
fn evals_of_preempted(root: &Root, stops: &[StopAlloc], now: UnixNanos) -> Vec<Evaluation> {
    let evicted = stops.iter().filter(|stop| !stop.preempted_by.is_empty());
    let jobs: BTreeSet<JobKey> =
        evicted.filter_map(|stop| root.alloc(&stop.alloc_id)).map(|alloc| alloc.job_key()).collect();
    let jobs = jobs.iter().filter_map(|key| root.job(key));
    jobs.map(|job| evaluation(job, Trigger::Preemption, now)).collect()
}

/// New holds get their ids here and not when the command is applied, so that all servers know them by the
/// same ones.
fn with_id(mut claim: HostVolumeClaim) -> HostVolumeClaim {
    if claim.id.is_empty() {
        claim.id = new_id();
    }
    claim
}

impl std::fmt::Debug for PlannerService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlannerService").finish_non_exhaustive()
    }
}
