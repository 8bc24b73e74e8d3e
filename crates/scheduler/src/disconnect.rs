//! Allocations whose node is out of contact and may come back: the `disconnect` block of groups (`jobspec` section
//! 4.4, docs/reference/http-api.md, sections 6.1 and 6.5).

use crate::reconcile::{Changes, is_current};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{DisconnectStrategy, Job};
use caravan_types::{AllocId, Nanos, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why an allocation is unknown, as clients know it.
pub(crate) const UNKNOWN: &str = "alloc is unknown since its node is disconnected";
/// Why one of two is stopped when a node came back.
pub(crate) const RECONNECTED: &str = "alloc not needed due to disconnected client reconnect";

fn strategy(alloc: &Allocation) -> Option<&DisconnectStrategy> {
    alloc.group().and_then(|group| group.disconnect.as_ref())
}

/// When the servers gave the allocation a status, if they ever did.
fn given(alloc: &Allocation, status: ClientStatus) -> Option<UnixNanos> {
    let states = alloc.alloc_states.iter().rev();
    states.filter(|s| s.field == 0).find(|s| s.value == status.as_str()).map(|s| UnixNanos(s.time.0))
}

/// How long allocations have been unknown or lost.
#[derive(Clone, Debug, Default)]
pub enum Passed {
    /// As the wall times in their records say: for worlds whose clock never steps, and for answers that decide nothing.
    #[default]
    Recorded,
    /// As the server that decides has measured on its own clock; of others it has seen nothing yet.
    Measured(BTreeMap<AllocId, Nanos>),
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Clock<'a> {
    /// The wall clock.
    pub now: UnixNanos,
    /// What has been waited for already.
    pub passed: &'a Passed,
}

impl Clock<'_> {
    /// What is left of a span since an allocation came to a status, which was written down with the time `recorded`.
    fn left(self, alloc: &Allocation, span: Nanos, recorded: UnixNanos) -> Nanos {
        let passed = match self.passed {
            Passed::Recorded => self.now.since(recorded),
            Passed::Measured(passed) => passed.get(&alloc.id).copied().unwrap_or(Nanos::ZERO),
        };
        Nanos(span.0.saturating_sub(passed.0))
    }
}

/// The time written down with the status from which a span of the allocation's `disconnect` block counts now; none if
/// no span runs. The time tells one such span from the next, and nothing else.
pub fn absent_since(alloc: &Allocation) -> Option<UnixNanos> {
    let strategy = strategy(alloc)?;
    match alloc.client_status {
        ClientStatus::Unknown if strategy.lost_after > Nanos::ZERO => given(alloc, ClientStatus::Unknown),
        ClientStatus::Lost if strategy.stop_on_client_after.is_some() => given(alloc, ClientStatus::Lost),
        _ => None,
    }
}

/// For how long an allocation whose node is out of contact is still kept as unknown; none if its job does not ask for
/// that, or its time is up.
pub fn kept_for(alloc: &Allocation, clock: Clock<'_>) -> Option<Nanos> {
    let span = strategy(alloc).map(|d| d.lost_after).filter(|span| *span > Nanos::ZERO)?;
    if alloc.server_terminal() {
        return None;
    }
    let left = match alloc.client_status {
        ClientStatus::Running => span,
        ClientStatus::Unknown => {
            given(alloc, ClientStatus::Unknown).map_or(span, |at| clock.left(alloc, span, at))
        }
        _ => return None,
    };
    Some(left).filter(|left| *left > Nanos::ZERO)
}

/// Until when the node of a lost allocation may still be stopping it by itself; no other may take its place sooner.
pub(crate) fn stopping_until(alloc: &Allocation, clock: Clock<'_>) -> Option<UnixNanos> {
    let span = strategy(alloc)?.stop_on_client_after?;
    let left = match alloc.client_status {
        ClientStatus::Lost => clock.left(alloc, span, given(alloc, ClientStatus::Lost)?),
        status if status.is_terminal() => return None,
        _ => span,
    };
    (left > Nanos::ZERO).then(|| clock.now.plus(left))
}

/// Whether another one is to run while this one is unknown.
pub(crate) fn is_replaced(alloc: &Allocation) -> bool {
    strategy(alloc).and_then(|d| d.replace) != Some(false)
}

/// Keeps an allocation as unknown.
pub(crate) fn mark(alloc: &Arc<Allocation>, clock: Clock<'_>, changes: &mut Changes) {
    match kept_for(alloc, clock) {
        Some(left) if alloc.client_status != ClientStatus::Unknown => {
            changes.of(&alloc.task_group).disconnect += 1;
            changes.unknown.push((Arc::clone(alloc), clock.now.plus(left)));
        }
        Some(left) => {
            changes.of(&alloc.task_group).ignore += 1;
            changes.still_unknown.push((Arc::clone(alloc), clock.now.plus(left)));
        }
        _ => changes.of(&alloc.task_group).ignore += 1,
    }
}

/// Of the allocations of one name, picks which stay: one that came back and its replacement do not both.
pub(crate) fn reconcile(
    job: &Job,
    mut here: Vec<Arc<Allocation>>,
    changes: &mut Changes,
) -> Vec<Arc<Allocation>> {
    here.sort_by_key(|alloc| alloc.create_index);
    let mut stay: Vec<Arc<Allocation>> = Vec::new();
    for newer in here {
        let older = stay.pop_if(|older| given(older, ClientStatus::Unknown).is_some());
        let Some(older) = older else {
            stay.push(newer);
            continue;
        };
        let (winner, loser) =
            if keeps_original(job, &older, &newer) { (older, newer) } else { (newer, older) };
        let counts = changes.of(&winner.task_group);
        counts.stop += 1;
        counts.reconnect += 1;
        changes.stop(&loser, RECONNECTED);
        stay.push(winner);
    }
    stay
}

fn keeps_original(job: &Job, original: &Allocation, replacement: &Allocation) -> bool {
    if original.desired_transition.migrate == Some(true) || !is_current(original, job) {
        return false;
    }
    let up = replacement.client_status == ClientStatus::Running;
    match strategy(original).map(|d| d.reconcile.as_str()) {
        Some("keep_original") => true,
        Some("keep_replacement") => false,
        Some("longest_running") => !up || running_since(original) <= running_since(replacement),
        // `best_score`, which is also the default.
        _ => !up || score(original) >= score(replacement),
    }
}

/// When the youngest of its running tasks was started.
fn running_since(alloc: &Allocation) -> i64 {
    let started = alloc.task_states.values().filter(|task| task.finished_at.is_zero());
    started.map(|task| task.started_at.0.max(task.last_restart.0)).max().unwrap_or(i64::MAX)
}

/// How well its node suited it when it was placed.
fn score(alloc: &Allocation) -> f64 {
    let scores = alloc.metrics.iter().flat_map(|metrics| &metrics.score_meta_data);
    scores
        .filter(|score| score.node_id == alloc.node_id)
        .map(|score| score.norm_score)
        .fold(f64::MIN, f64::max)
}
