//! The rescheduling of failed allocations: the `reschedule` block (docs/reference/jobspec.md, sections 4.4 and 5).

use caravan_types::alloc::{Allocation, ClientStatus, LEASE_EXPIRED, RescheduleEvent, RescheduleTracker};
use caravan_types::job::{JobType, ReschedulePolicy};
use caravan_types::{Nanos, NodeId, UnixNanos};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The number of past attempts that are recorded for a group without a limit, in addition to the newest.
const REMEMBERED: usize = 5;

/// The span within which a due reschedule happens immediately, because an evaluation for it would run too late.
const SOON: Nanos = Nanos(1_000_000_000);

/// The decision about a failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The allocation is replaced now.
    Now,
    /// The allocation is replaced at this time.
    Later(UnixNanos),
    /// The allocation is never replaced.
    Never,
}

/// Returns the time at which the allocation failed, which is the end of the last of its tasks.
fn failed_at(alloc: &Allocation) -> UnixNanos {
    let ends = alloc.task_states.values().map(|task| task.finished_at.0);
    UnixNanos(ends.max().filter(|at| *at > 0).unwrap_or(alloc.modify_time.0))
}

fn events(alloc: &Allocation) -> &[RescheduleEvent] {
    alloc.reschedule_tracker.as_ref().map_or(&[], |tracker| &tracker.events)
}

/// The pauses before a failed system allocation is placed on its node again. Job files have no block for them,
/// because a system job belongs on the node in any case. Without pauses, a task that cannot start would be placed
/// many times a second.
static SYSTEM: LazyLock<ReschedulePolicy> = LazyLock::new(|| ReschedulePolicy {
    delay: Nanos::from_secs(1),
    delay_function: "exponential".to_owned(),
    max_delay: Nanos::from_secs(300),
    unlimited: true,
    ..ReschedulePolicy::default()
});

fn is_system(alloc: &Allocation) -> bool {
    alloc.job.as_ref().is_some_and(|job| job.kind == JobType::System)
}

fn policy(alloc: &Allocation) -> Option<&ReschedulePolicy> {
    alloc.group()?.reschedule_policy.as_ref().filter(|policy| policy.is_enabled())
}

/// Returns the pauses before the next attempt: the group's pauses, or the pauses of all system jobs.
fn pauses(alloc: &Allocation) -> Option<&ReschedulePolicy> {
    if is_system(alloc) { Some(&SYSTEM) } else { policy(alloc) }
}

/// Returns the attempts that lengthen the next pause. A system allocation that ran for longer than the longest pause
/// was healthy, and its pauses start again.
fn attempts(alloc: &Allocation) -> &[RescheduleEvent] {
    let (known, failed) = (events(alloc), failed_at(alloc));
    let is_over = |last: &RescheduleEvent| failed.since(last.reschedule_time) > SYSTEM.max_delay;
    if is_system(alloc) && known.last().is_some_and(is_over) { &[] } else { known }
}

/// Returns the delay before the next attempt.
fn delay(policy: &ReschedulePolicy, events: &[RescheduleEvent], failed: UnixNanos) -> Nanos {
    let last = events.last();
    let desired = match (policy.delay_function.as_str(), events) {
        ("exponential", [.., last]) => Nanos(last.delay.0.saturating_mul(2)),
        // The sequence has restarted after the maximum delay, so it continues as a new sequence.
        ("fibonacci", [.., before, last])
            if before.delay == policy.max_delay && last.delay == policy.delay =>
        {
            last.delay
        }
        ("fibonacci", [.., before, last]) => Nanos(last.delay.0.saturating_add(before.delay.0)),
        _ => policy.delay,
    };
    if policy.max_delay <= Nanos::ZERO || desired <= policy.max_delay {
        return desired;
    }
    // An allocation that ran longer than the maximum delay was healthy, so the delays start again.
    let well = last.is_some_and(|last| failed.since(last.reschedule_time) > policy.max_delay);
    if well && policy.delay_function != "constant" { policy.delay } else { policy.max_delay }
}

/// Returns the decision about a failed allocation by a policy alone.
fn by_policy(alloc: &Allocation, policy: Option<&ReschedulePolicy>, now: UnixNanos) -> Verdict {
    let Some(policy) = policy else { return Verdict::Never };
    let failed = failed_at(alloc);
    let wait = delay(policy, attempts(alloc), failed);
    if !policy.unlimited {
        let tried =
            events(alloc).iter().filter(|e| failed.since(e.reschedule_time) < policy.interval).count();
        let left = usize::try_from(policy.attempts).is_ok_and(|attempts| tried < attempts);
        if !left || wait >= policy.interval {
            return Verdict::Never;
        }
    }
    // The times in rows come from other clocks. A clock that is an hour ahead must not delay the replacement by an
    // hour.
    let at = failed.min(now).plus(wait);
    if at <= now.plus(SOON) { Verdict::Now } else { Verdict::Later(at) }
}

/// Returns whether the group's policy will allow rescheduling a failed allocation, now or later.
pub fn can_reschedule(alloc: &Allocation) -> bool {
    by_policy(alloc, policy(alloc), failed_at(alloc)) != Verdict::Never
}

/// Returns the decision about a failed allocation. With `held`, its active deployment has not allowed the reschedule
/// yet, or has failed. With `due`, the current evaluation was created for the reschedule.
pub(crate) fn verdict(alloc: &Allocation, now: UnixNanos, held: bool, due: bool) -> Verdict {
    debug_assert_eq!(alloc.client_status, ClientStatus::Failed, "only failed allocations are placed anew");
    if alloc.desired_transition.force_reschedule == Some(true) {
        return Verdict::Now;
    }
    // The node stopped the allocation because the lease expired, which is not the allocation's failure.
    if alloc.client_description == LEASE_EXPIRED {
        return Verdict::Now;
    }
    if held {
        return Verdict::Never;
    }
    match by_policy(alloc, pauses(alloc), now) {
        Verdict::Later(_) if due => Verdict::Now,
        other => other,
    }
}

/// Returns the reschedule attempts that the successor of a failed allocation records.
pub(crate) fn tracker(previous: &Allocation, now: UnixNanos) -> RescheduleTracker {
    let failed = failed_at(previous);
    let known = events(previous);
    let mut kept: Vec<RescheduleEvent> = match policy(previous).filter(|policy| !policy.unlimited) {
        Some(policy) => known
            .iter()
            .filter(|event| failed.since(event.reschedule_time) < policy.interval)
            .cloned()
            .collect(),
        None => known[known.len().saturating_sub(REMEMBERED)..].to_vec(),
    };
    let wait = pauses(previous).map_or(Nanos::ZERO, |policy| delay(policy, attempts(previous), failed));
    kept.push(RescheduleEvent {
        reschedule_time: now,
        prev_alloc_id: previous.id.clone(),
        prev_node_id: previous.node_id.clone(),
        delay: wait,
    });
    RescheduleTracker { events: kept, last_reschedule: "ok".to_owned() }
}

/// Returns the nodes on which an allocation and its predecessors failed.
pub(crate) fn penalties(previous: &Allocation) -> BTreeSet<NodeId> {
    let earlier = events(previous).iter().map(|event| event.prev_node_id.clone());
    earlier.chain([previous.node_id.clone()]).collect()
}

#[cfg(test)]
mod tests;
