//! Disconnected nodes that may return: the `disconnect` block of groups (docs/reference/jobspec.md, section 4.4, and
//! docs/reference/http-api.md, sections 6.1 and 6.5).

use crate::reconcile::{Changes, is_current};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{DisconnectStrategy, Job};
use caravan_types::{AllocId, Nanos, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The reason that an allocation is unknown, with a text that clients recognize.
pub(crate) const UNKNOWN: &str = "alloc is unknown since its node is disconnected";
/// The reason that the original or the replacement is stopped when a node reconnects.
pub(crate) const RECONNECTED: &str = "alloc not needed due to disconnected client reconnect";

fn strategy(alloc: &Allocation) -> Option<&DisconnectStrategy> {
    alloc.group().and_then(|group| group.disconnect.as_ref())
}

/// Returns the time at which the servers set the allocation to a status, or `None` if they never did.
fn since_status(alloc: &Allocation, status: ClientStatus) -> Option<UnixNanos> {
    let states = alloc.alloc_states.iter().rev();
    states.filter(|s| s.field == 0).find(|s| s.value == status.as_str()).map(|s| UnixNanos(s.time.0))
}

/// The time for which allocations have been unknown or lost.
#[derive(Clone, Debug, Default)]
pub enum Passed {
    /// The times are computed from the recorded wall times, for clocks that never step and for results on which no
    /// decision depends.
    #[default]
    Recorded,
    /// The deciding server measured the times on its own clock. For allocations that are not in the map, no time has
    /// passed yet.
    Measured(BTreeMap<AllocId, Nanos>),
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Clock<'a> {
    /// The wall clock.
    pub now: UnixNanos,
    /// The times for which allocations have already been absent.
    pub passed: &'a Passed,
}

impl Clock<'_> {
    /// Returns the rest of a span since an allocation reached a status. `recorded` is the recorded time of that
    /// status.
    fn left(self, alloc: &Allocation, span: Nanos, recorded: UnixNanos) -> Nanos {
        let passed = match self.passed {
            Passed::Recorded => self.now.since(recorded),
            Passed::Measured(passed) => passed.get(&alloc.id).copied().unwrap_or(Nanos::ZERO),
        };
        Nanos(span.0.saturating_sub(passed.0))
    }
}

/// Returns the recorded time of the status from which a span of the allocation's `disconnect` block counts now, or
/// `None` if no span runs. The time only identifies the span.
pub fn absent_since(alloc: &Allocation) -> Option<UnixNanos> {
    let strategy = strategy(alloc)?;
    match alloc.client_status {
        ClientStatus::Unknown if strategy.lost_after > Nanos::ZERO => {
            since_status(alloc, ClientStatus::Unknown)
        }
        ClientStatus::Lost if strategy.stop_on_client_after.is_some() => {
            since_status(alloc, ClientStatus::Lost)
        }
        _ => None,
    }
}

/// Returns the time for which an allocation of a disconnected node is still kept as unknown. Returns `None` if its
/// job does not request that, or the time has passed.
pub fn kept_for(alloc: &Allocation, clock: Clock<'_>) -> Option<Nanos> {
    let span = strategy(alloc).map(|d| d.lost_after).filter(|span| *span > Nanos::ZERO)?;
    if alloc.server_terminal() {
        return None;
    }
    let left = match alloc.client_status {
        ClientStatus::Running => span,
        ClientStatus::Unknown => {
            since_status(alloc, ClientStatus::Unknown).map_or(span, |at| clock.left(alloc, span, at))
        }
        _ => return None,
    };
    Some(left).filter(|left| *left > Nanos::ZERO)
}

/// Returns the time until which the node of a lost allocation may still be stopping it by itself. No replacement may
/// start earlier.
pub(crate) fn stopping_until(alloc: &Allocation, clock: Clock<'_>) -> Option<UnixNanos> {
    let span = strategy(alloc)?.stop_on_client_after?;
    let left = match alloc.client_status {
        ClientStatus::Lost => clock.left(alloc, span, since_status(alloc, ClientStatus::Lost)?),
        status if status.is_terminal() => return None,
        _ => span,
    };
    (left > Nanos::ZERO).then(|| clock.now.plus(left))
}

/// Returns whether a replacement runs while this allocation is unknown.
pub(crate) fn is_replaced(alloc: &Allocation) -> bool {
    strategy(alloc).and_then(|d| d.replace) != Some(false)
}

/// Marks an allocation as unknown.
pub(crate) fn mark(alloc: &Arc<Allocation>, clock: Clock<'_>, changes: &mut Changes) {
    match kept_for(alloc, clock) {
        Some(left) if alloc.client_status != ClientStatus::Unknown => {
            changes.group_mut(&alloc.task_group).disconnect += 1;
            changes.unknown.push((Arc::clone(alloc), clock.now.plus(left)));
        }
        Some(left) => {
            changes.group_mut(&alloc.task_group).ignore += 1;
            changes.still_unknown.push((Arc::clone(alloc), clock.now.plus(left)));
        }
        _ => changes.group_mut(&alloc.task_group).ignore += 1,
    }
}

/// Selects the allocations of one name that are kept. Of a reconnected allocation and its replacement, one is
/// stopped.
pub(crate) fn reconcile(
    job: &Job,
    mut here: Vec<Arc<Allocation>>,
    changes: &mut Changes,
) -> Vec<Arc<Allocation>> {
    here.sort_by_key(|alloc| alloc.create_index);
    let mut stay: Vec<Arc<Allocation>> = Vec::new();
    for newer in here {
        let older = stay.pop_if(|older| since_status(older, ClientStatus::Unknown).is_some());
        let Some(older) = older else {
            stay.push(newer);
            continue;
        };
        let (winner, loser) =
            if keeps_original(job, &older, &newer) { (older, newer) } else { (newer, older) };
        let counts = changes.group_mut(&winner.task_group);
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
        // The strategy is `best_score`, which is also the default.
        _ => !up || score(original) >= score(replacement),
    }
}

/// Returns the time at which the youngest running task was started.
fn running_since(alloc: &Allocation) -> i64 {
    let started = alloc.task_states.values().filter(|task| task.finished_at.is_zero());
    started.map(|task| task.started_at.0.max(task.last_restart.0)).max().unwrap_or(i64::MAX)
}

/// Returns the node's score at the time of the placement.
fn score(alloc: &Allocation) -> f64 {
    let scores = alloc.metrics.iter().flat_map(|metrics| &metrics.score_meta_data);
    scores
        .filter(|score| score.node_id == alloc.node_id)
        .map(|score| score.norm_score)
        .fold(f64::MIN, f64::max)
}
