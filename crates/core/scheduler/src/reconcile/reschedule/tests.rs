use super::*;
use caravan_types::job::{Job, TaskGroup};
use std::sync::Arc;

const S: i64 = 1_000_000_000;

fn policy(function: &str, limited: Option<(u32, i64)>) -> ReschedulePolicy {
    ReschedulePolicy {
        attempts: limited.map_or(0, |(attempts, _)| attempts),
        interval: Nanos(limited.map_or(0, |(_, seconds)| seconds * S)),
        delay: Nanos(5 * S),
        delay_function: function.into(),
        max_delay: Nanos(60 * S),
        unlimited: limited.is_none(),
    }
}

fn failed(policy: ReschedulePolicy, at: i64, delays: &[i64]) -> Allocation {
    let group = TaskGroup { name: "g".into(), reschedule_policy: Some(policy), ..TaskGroup::default() };
    let events = delays.iter().map(|delay| RescheduleEvent {
        reschedule_time: UnixNanos((at - 1) * S),
        delay: Nanos(delay * S),
        ..RescheduleEvent::default()
    });
    Allocation {
        id: "a".into(),
        node_id: "n".into(),
        task_group: "g".into(),
        job: Some(Arc::new(Job { task_groups: vec![group], ..Job::default() })),
        client_status: ClientStatus::Failed,
        modify_time: UnixNanos(at * S),
        reschedule_tracker: Some(Arc::new(RescheduleTracker {
            events: events.collect(),
            ..Default::default()
        })),
        ..Allocation::default()
    }
}

fn wait(function: &str, delays: &[i64]) -> i64 {
    match verdict(&failed(policy(function, None), 100, delays), UnixNanos(100 * S), false, false) {
        Verdict::Later(at) => at.0 / S - 100,
        other => panic!("{other:?}"),
    }
}

#[test]
fn delays_grow_as_their_function_says_up_to_the_ceiling() {
    assert_eq!((wait("constant", &[]), wait("constant", &[5, 5, 5])), (5, 5));
    assert_eq!(
        (wait("exponential", &[]), wait("exponential", &[5]), wait("exponential", &[5, 10])),
        (5, 10, 20)
    );
    assert_eq!(wait("exponential", &[5, 10, 20, 40]), 60);
    assert_eq!(
        (wait("fibonacci", &[5]), wait("fibonacci", &[5, 5]), wait("fibonacci", &[5, 5, 10])),
        (5, 10, 15)
    );
    assert_eq!(wait("fibonacci", &[60, 5]), 5);
}

#[test]
fn who_ran_well_for_long_begins_anew() {
    let mut alloc = failed(policy("exponential", None), 1000, &[5, 60]);
    for event in &mut Arc::make_mut(alloc.reschedule_tracker.as_mut().unwrap()).events {
        event.reschedule_time = UnixNanos(10 * S);
    }
    assert_eq!(verdict(&alloc, UnixNanos(1000 * S), false, false), Verdict::Later(UnixNanos(1005 * S)));
}

#[test]
fn attempts_are_counted_within_the_interval() {
    let limited = || policy("constant", Some((1, 3600)));
    let mut alloc = failed(limited(), 10_000, &[]);
    assert!(can_reschedule(&alloc));
    alloc = failed(limited(), 10_000, &[5]);
    assert!(!can_reschedule(&alloc));
    Arc::make_mut(alloc.reschedule_tracker.as_mut().unwrap()).events[0].reschedule_time = UnixNanos(S);
    assert!(can_reschedule(&alloc), "the attempt lies before the interval");
    assert!(
        !can_reschedule(&failed(policy("constant", Some((1, 5))), 100, &[])),
        "the delay is the interval"
    );
    assert!(!can_reschedule(&failed(ReschedulePolicy::default(), 100, &[])));
}

#[test]
fn what_holds_a_failed_allocation_back_and_what_does_not() {
    let alloc = failed(policy("constant", None), 100, &[]);
    let now = UnixNanos(100 * S);
    assert_eq!(verdict(&alloc, now, false, false), Verdict::Later(UnixNanos(105 * S)));
    assert_eq!(verdict(&alloc, now, false, true), Verdict::Now);
    assert_eq!(verdict(&alloc, now, true, true), Verdict::Never);
    let mut forced = alloc.clone();
    forced.desired_transition.force_reschedule = Some(true);
    assert_eq!(verdict(&forced, now, true, false), Verdict::Now);
}

#[test]
fn the_successor_remembers_the_last_attempts() {
    let alloc = failed(policy("exponential", None), 100, &[5, 10, 20, 40, 60, 60]);
    let tracker = tracker(&alloc, UnixNanos(200 * S));
    let delays: Vec<i64> = tracker.events.iter().map(|e| e.delay.0 / S).collect();
    assert_eq!(delays, [10, 20, 40, 60, 60, 60]);
    assert_eq!(tracker.events.last().unwrap().prev_alloc_id, "a");
    assert_eq!(penalties(&alloc).len(), 2);
    let limited = failed(policy("constant", Some((3, 3600))), 10_000, &[5]);
    assert_eq!(super::tracker(&limited, UnixNanos(10_005 * S)).events.len(), 2);
}

#[test]
fn a_failure_in_the_future_of_this_clock_waits_no_longer_than_the_delay() {
    let alloc = failed(policy("constant", None), 3_700, &[]);
    assert_eq!(verdict(&alloc, UnixNanos(100 * S), false, false), Verdict::Later(UnixNanos(105 * S)));
}
