//! The planner: it checks plans one after the other against the newest state, and writes the part that fits in one
//! command, claims included.

mod check;
mod host;
mod rejections;

use crate::core::{Core, new_id};
use crate::error::ServerError;
use crate::heartbeat::event;
use crate::node_evals::evaluation;
use crate::runtime::select;
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
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// The result of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The whole plan is written, with the verdict on the evaluation.
    Whole,
    /// A part of the plan does not fit any more; the rest is written at this index. The worker must plan again.
    Partly {
        /// Index of the state that the next attempt must include.
        index: u64,
        /// Whether any part of the plan is written.
        progress: bool,
    },
}

struct Submission {
    plan: Plan,
    evals: Vec<Evaluation>,
    answer: oneshot::Sender<Result<Submitted, ServerError>>,
}

/// A handle for the submission of plans; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    submissions: mpsc::Sender<Submission>,
    /// The lock of the turns. Submitters hold the read lock. A worker that retries after a conflict holds the write
    /// lock, so that no other plan is applied meanwhile.
    turns: Arc<RwLock<()>>,
}

/// The exclusive turn, which excludes other plans while it is held. A worker that takes the turn before it reads the
/// state cannot lose to other workers.
#[derive(Debug)]
pub(crate) struct Turn {
    _others_wait: OwnedRwLockWriteGuard<()>,
}

/// The service that writes plans, one at a time.
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
        let planner = Self { submissions, turns: Arc::default() };
        (planner, PlannerService { core, config, rejections, submissions: receiver })
    }

    /// Waits until the plans in progress are written, and blocks the submission of others.
    pub(crate) async fn turn(&self) -> Turn {
        Turn { _others_wait: Arc::clone(&self.turns).write_owned().await }
    }

    /// Returns the number of plans that wait to be written.
    pub(crate) fn depth(&self) -> usize {
        self.submissions.max_capacity() - self.submissions.capacity()
    }

    /// Submits a plan; `evals` are written with the plan if the whole plan fits. Waits while another worker holds the
    /// exclusive turn.
    pub(crate) async fn submit(
        &self,
        plan: Plan,
        evals: Vec<Evaluation>,
        turn: Option<&Turn>,
    ) -> Result<Submitted, ServerError> {
        let _no_turn = match turn {
            Some(_) => None,
            None => Some(self.turns.read().await),
        };
        let (answer, result) = oneshot::channel();
        let stopped = || ServerError::Stopped("planner");
        self.submissions.send(Submission { plan, evals, answer }).await.map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }
}

impl PlannerService {
    /// Runs until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        loop {
            let submission = select! {
                () = cancel.cancelled() => return,
                next = self.submissions.recv() => match next {
                    Some(submission) => submission,
                    None => return,
                },
            };
            let result = self.write(submission.plan, submission.evals).await;
            // The worker may have stopped with the server.
            let _ = submission.answer.send(result);
        }
    }

    /// Marks nodes that repeatedly reject placements as ineligible.
    async fn take_out(&mut self, root: &Root, refusing: &BTreeSet<NodeId>) {
        let now = self.core.now();
        for id in refusing {
            self.core.meters.count("plan.node_rejected", &[("node_id", id.as_str())]);
            if !self.rejections.record(id, now, &self.config)
                || !root.node(id).is_some_and(|node| node.is_schedulable())
            {
                continue;
            }
            tracing::warn!(node = %id, "too many placements on a node were refused; marking it ineligible");
            let reported =
                event("Scheduler", "Node marked as ineligible: too many placements were refused", now);
            let ineligible = Change::NodeEligibility {
                node: id.clone(),
                eligibility: Eligibility::Ineligible,
                evals: Vec::new(),
            };
            let events = Change::NodeEvents { events: BTreeMap::from([(id.clone(), vec![reported])]) };
            for change in [ineligible, events] {
                if let Err(error) = self.core.commit(change).await {
                    tracing::warn!(node = %id, %error, "the ineligibility of a node could not be recorded");
                    break;
                }
            }
        }
    }

    async fn write(&mut self, mut plan: Plan, evals: Vec<Evaluation>) -> Result<Submitted, ServerError> {
        let begun = Instant::now();
        let root = self.core.snapshot();
        let mut accepted = check(&root, &mut plan);
        self.core.meters.time("plan.evaluate", begun.elapsed(), &[]);
        for (alloc, reason) in &accepted.refused {
            tracing::debug!(%alloc, eval = %plan.eval_id, reason, "a placement was refused");
        }
        self.take_out(&root, &accepted.refusing).await;
        let whole = accepted.refused.is_empty();
        // The next attempt decides again about the deployments that this plan would start or end.
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
        let begun = Instant::now();
        let outcome = self.core.propose(Change::Plan(Box::new(commit))).await?;
        self.core.meters.time("plan.apply", begun.elapsed(), &[]);
        match outcome.refused {
            None if whole => Ok(Submitted::Whole),
            None => Ok(Submitted::Partly { index: outcome.index, progress: true }),
            // A node or a volume was removed between the check and the write.
            Some(Refusal::ClaimRefused(_) | Refusal::NotFound { .. } | Refusal::Changed { .. }) => {
                Ok(Submitted::Partly { index: outcome.index, progress: false })
            }
            Some(refusal) => Err(refusal.into()),
        }
    }
}

/// Records the root key that signs the identities of new allocations, so that the key is kept while the allocations
/// live.
fn sign(root: &Root, placements: &mut [Allocation]) {
    let Some(key) = root.active_root_key() else { return };
    for alloc in placements.iter_mut().filter(|alloc| alloc.create_index == 0) {
        alloc.signing_key_id = key.key_id.as_str().into();
    }
}

/// Creates evaluations for the jobs of preempted allocations.
fn evals_of_preempted(root: &Root, stops: &[StopAlloc], now: UnixNanos) -> Vec<Evaluation> {
    let evicted = stops.iter().filter(|stop| !stop.preempted_by.is_empty());
    let jobs: BTreeSet<JobKey> =
        evicted.filter_map(|stop| root.alloc(&stop.alloc_id)).map(|alloc| alloc.job_key()).collect();
    let jobs = jobs.iter().filter_map(|key| root.job(key));
    jobs.map(|job| evaluation(job, Trigger::Preemption, now)).collect()
}

/// Assigns an id to a new hold. The command contains the id, so that all servers use the same id.
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

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::eval::EvalStatus;

    #[tokio::test]
    async fn nobody_writes_during_the_turn_of_another() {
        let core = Core::in_memory().await;
        let (planner, service) = Planner::new(core.clone(), RejectionConfig::default());
        let cancel = CancellationToken::new();
        tokio::spawn(service.run(cancel.clone()));
        let _stop = cancel.drop_guard();
        let verdict = |id: &str| Evaluation {
            id: id.into(),
            namespace: "default".into(),
            job_id: id.into(),
            status: EvalStatus::Complete,
            ..Evaluation::default()
        };

        let turn = planner.turn().await;
        let (other, verdict_of_other) = (planner.clone(), verdict("other"));
        let waits =
            tokio::spawn(async move { other.submit(Plan::default(), vec![verdict_of_other], None).await });
        // Waits for the write, so that the other submitter had time to overtake.
        let own = planner.submit(Plan::default(), vec![verdict("own")], Some(&turn)).await.unwrap();
        assert_eq!(own, Submitted::Whole);
        let known = |id: &str| core.snapshot().eval(&id.into()).is_some();
        assert!(known("own") && !known("other") && !waits.is_finished());
        drop(turn);
        assert_eq!(waits.await.unwrap().unwrap(), Submitted::Whole);
        assert!(known("other"));
    }
}
