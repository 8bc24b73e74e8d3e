//! Drains of nodes: allocations leave in order, and a volume plugin leaves after the last mount that needs it.
//!
//! Changes of nodes, allocations and claims, and deadlines, wake the drainer. [`decide`] determines the next step;
//! this module executes it.

mod decide;

use crate::broker::until;
use crate::core::Core;
use crate::error::ServerError;
use crate::heartbeat::event;
use crate::node_evals::evaluation;
use crate::runtime::select;
use crate::volume::ClaimWaits;
use caravan_state::{Changed, FeedItem, Root};
use caravan_types::alloc::DesiredTransition;
use caravan_types::command::{Change, DrainEnd};
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::node::Node;
use caravan_types::{AllocId, JobKey, NodeId, UnixNanos};
use decide::{Decision, decide};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The service that drains nodes; each leader runs one.
#[derive(Debug)]
pub(crate) struct Drainer {
    pub(crate) core: Core,
    pub(crate) waits: ClaimWaits,
    /// The beginning of each delay by mounts, and the reasons that were logged last, by node.
    held: BTreeMap<NodeId, Held>,
}

#[derive(Debug)]
struct Held {
    since: UnixNanos,
    reasons: BTreeMap<String, String>,
}

/// The shortest delay by mounts that is logged.
const QUIET: caravan_types::Nanos = caravan_types::Nanos(2_000_000_000);

/// The pause before a failed commit is retried.
const PAUSE: caravan_types::Nanos = caravan_types::Nanos(1_000_000_000);

impl Drainer {
    pub(crate) fn new(core: Core, waits: ClaimWaits) -> Self {
        Self { core, waits, held: BTreeMap::new() }
    }

    /// Runs until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        loop {
            let reasons = self.waits.changed();
            let (next, holding) = self.look().await;
            select! {
                () = cancel.cancelled() => return,
                () = until(next, self.core.aged()) => {}
                // A mount that delays the drain has a new reason.
                () = reasons, if holding => {}
                more = relevant(&self.core, &mut feed) => if !more { return },
            }
        }
    }

    /// Checks all draining nodes. Returns when to check again, and whether mounts delay a drain.
    async fn look(&mut self) -> (Option<UnixNanos>, bool) {
        let root = self.core.snapshot();
        let draining: Vec<Arc<Node>> = root.nodes().filter(|n| n.drain_strategy.is_some()).cloned().collect();
        self.held.retain(|id, _| draining.iter().any(|n| n.id == *id));
        let (mut next, mut holding) = (None::<UnixNanos>, false);
        for node in draining {
            let now = self.core.aged();
            let decision = decide(&root, &node, now, |claim| self.waits.get(&claim.id));
            holding |= !decision.held_by.is_empty();
            let mut at = decision.again;
            if decision.held_by.is_empty() {
                self.held.remove(&node.id);
            } else {
                let first = || Held { since: now, reasons: BTreeMap::new() };
                let speak = self.held.entry(node.id.clone()).or_insert_with(first).since.plus(QUIET);
                if speak > now {
                    at = Some(at.map_or(speak, |at| at.min(speak)));
                }
            }
            if let Err(error) = self.act(&root, &node, decision).await {
                tracing::error!(node = %node.id, %error, "a drain could not be advanced; retrying");
                at = Some(now.plus(PAUSE));
            }
            next = [next, at].into_iter().flatten().min();
        }
        (next, holding)
    }

    async fn act(&mut self, root: &Root, node: &Node, decision: Decision) -> Result<(), ServerError> {
        let now = self.core.now();
        if decision.finished {
            tracing::info!(node = %node.id, deadline_reached = decision.deadline_reached, "drain complete");
            let end = DrainEnd { deadline_reached: decision.deadline_reached };
            let change = Change::NodeDrain {
                node: node.id.clone(),
                drain: None,
                mark_eligible: false,
                meta: BTreeMap::new(),
                accessor: String::new(),
                end: Some(end),
                evals: Vec::new(),
            };
            self.core.commit(change).await?;
            return Ok(());
        }
        if !decision.mark.is_empty() {
            let change = Change::AllocTransitions {
                evals: evaluations(root, &decision.mark, now),
                transitions: decision.mark.into_iter().map(|id| (id, leave())).collect(),
            };
            self.core.commit(change).await?;
        }
        self.tell(node, decision.held_by).await
    }

    /// Logs the mounts that delay a drain for long, once per change.
    async fn tell(&mut self, node: &Node, held_by: BTreeMap<String, String>) -> Result<(), ServerError> {
        let (now, aged) = (self.core.now(), self.core.aged());
        let Some(held) = self.held.get_mut(&node.id) else { return Ok(()) };
        if held.since.plus(QUIET) > aged || held.reasons == held_by {
            return Ok(());
        }
        tracing::warn!(node = %node.id, ?held_by, "mounts of volumes delay a drain");
        let mut event = event("Drain", "Waiting for volumes to be unmounted", now);
        event.details = held_by.clone();
        let events = BTreeMap::from([(node.id.clone(), vec![event])]);
        self.core.commit(Change::NodeEvents { events }).await?;
        held.reasons = held_by;
        Ok(())
    }
}

fn leave() -> DesiredTransition {
    DesiredTransition { migrate: Some(true), ..DesiredTransition::default() }
}

/// Returns one evaluation for each job of the allocations.
fn evaluations(root: &Root, allocs: &BTreeSet<AllocId>, now: UnixNanos) -> Vec<Evaluation> {
    let keys: BTreeSet<JobKey> = allocs.iter().filter_map(|id| root.alloc(id)).map(|a| a.job_key()).collect();
    keys.iter().filter_map(|key| root.job(key)).map(|job| evaluation(job, Trigger::NodeDrain, now)).collect()
}

/// Waits for a change that may concern a drain; returns `false` at the end of the feed.
///
/// While no node drains, only a change of a node can begin a drain; thousands of allocation changes are skipped then.
async fn relevant(core: &Core, feed: &mut caravan_state::Feed) -> bool {
    let drains = core.snapshot().nodes().any(|node| node.drain_strategy.is_some());
    loop {
        match feed.next().await {
            None => return false,
            Some(FeedItem::Resync) => return true,
            Some(FeedItem::Changes(set)) => {
                let root = core.snapshot();
                let concerns = |c: &Changed| match c {
                    Changed::Node(id) => {
                        drains || root.node(id).is_some_and(|node| node.drain_strategy.is_some())
                    }
                    Changed::Alloc(_)
                    | Changed::AllocRemoved(_)
                    | Changed::Claim(_)
                    | Changed::ClaimRemoved(_) => drains,
                    _ => false,
                };
                if set.changes.iter().any(concerns) {
                    return true;
                }
            }
        }
    }
}

#[cfg(test)]
mod simulation;
