//! Allocations whose node is out of contact and may come back: the `disconnect` block of groups (`jobspec` section
//! 4.4, `http-api` sections 6.1 and 6.5).

use crate::reconcile::{Changes, is_current};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{DisconnectStrategy, Job};
use caravan_types::{Nanos, UnixNanos};
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

/// Until when an allocation whose node is out of contact is kept as unknown; none if its job does not ask for that,
/// or its time is up.
pub fn kept_until(alloc: &Allocation, now: UnixNanos) -> Option<UnixNanos> {
    let span = strategy(alloc).map(|d| d.lost_after).filter(|span| *span > Nanos::ZERO)?;
    if alloc.server_terminal() {
        return None;
    }
    let since = match alloc.client_status {
        ClientStatus::Running => now,
        ClientStatus::Unknown => given(alloc, ClientStatus::Unknown).unwrap_or(now),
        _ => return None,
    };
    Some(since.plus(span)).filter(|until| *until > now)
}

/// Until when the node of a lost allocation may still be stopping it by itself; no other may take its place sooner.
pub(crate) fn stopping_until(alloc: &Allocation, now: UnixNanos) -> Option<UnixNanos> {
    let span = strategy(alloc)?.stop_on_client_after?;
    let lost = match alloc.client_status {
        ClientStatus::Lost => given(alloc, ClientStatus::Lost)?,
        status if status.is_terminal() => return None,
        _ => now,
    };
    Some(lost.plus(span)).filter(|until| *until > now)
}

/// Whether another one is to run while this one is unknown.
pub(crate) fn is_replaced(alloc: &Allocation) -> bool {
    strategy(alloc).and_then(|d| d.replace) != Some(false)
}

/// Keeps an allocation as unknown.
pub(crate) fn mark(alloc: &Arc<Allocation>, now: UnixNanos, changes: &mut Changes) {
    match kept_until(alloc, now) {
        Some(until) if alloc.client_status != ClientStatus::Unknown => {
            changes.of(&alloc.task_group).disconnect += 1;
            changes.unknown.push((Arc::clone(alloc), until));
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
