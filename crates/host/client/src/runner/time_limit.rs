//! The run time limit of batch allocations (`max_run_duration` of the group). The limit counts from the time when the
//! client received the allocation, includes hooks and waits, and continues across restarts of the agent. An
//! allocation over its limit is stopped without its poststop tasks, and counts as complete.

use crate::state::TaskRecord;
use caravan_types::alloc::Allocation;
use caravan_types::{Nanos, UnixNanos};
use std::time::Duration;

/// The longest sleep: the wall clock may be set meanwhile.
pub(super) const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Returns the remaining run time of an allocation that was received at `begun`; `None` without a limit, zero if the
/// limit has passed.
pub(super) fn left(alloc: &Allocation, begun: UnixNanos, now: UnixNanos) -> Option<Duration> {
    let batch = alloc.job.as_ref().is_some_and(|job| job.kind.is_batch());
    let limit =
        alloc.group().and_then(|group| group.max_run_duration).filter(|limit| batch && limit.0 > 0)?;
    let run = now.since(begun).0.max(0);
    Some(Nanos(limit.0.saturating_sub(run).max(0)).to_std())
}

/// Returns the time at which a task's allocation was received. In records of earlier releases, that is the time of
/// the first event.
pub(super) fn begun(record: &TaskRecord, now: UnixNanos) -> UnixNanos {
    let recorded = record.begun;
    if recorded.0 > 0 { recorded } else { record.state.events.first().map_or(now, |event| event.time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{TaskEvent, event};
    use caravan_types::job::{Job, JobType, TaskGroup};
    use std::sync::Arc;

    fn alloc(kind: JobType, limit: Option<i64>) -> Allocation {
        let group = TaskGroup {
            name: "g".into(),
            max_run_duration: limit.map(Nanos::from_secs),
            ..TaskGroup::default()
        };
        let job = Job { kind, task_groups: vec![group], ..Job::default() };
        Allocation { task_group: "g".into(), job: Some(Arc::new(job)), ..Allocation::default() }
    }

    fn at(seconds: i64) -> UnixNanos {
        UnixNanos(Nanos::from_secs(seconds).0)
    }

    #[test]
    fn only_batch_jobs_run_out_of_time() {
        assert_eq!(left(&alloc(JobType::Service, Some(1)), at(0), at(5)), None);
        assert_eq!(left(&alloc(JobType::Batch, None), at(0), at(5)), None);
        assert_eq!(left(&alloc(JobType::Batch, Some(0)), at(0), at(5)), None);
        let batch = alloc(JobType::Sysbatch, Some(10));
        assert_eq!(left(&batch, at(3), at(5)), Some(Duration::from_secs(8)));
        assert_eq!(left(&batch, at(3), at(13)), Some(Duration::ZERO));
        assert_eq!(left(&batch, at(3), at(1)), Some(Duration::from_secs(10)), "a clock that was set back");
    }

    #[test]
    fn a_record_of_an_earlier_release_began_with_its_first_event() {
        let mut record = TaskRecord::default();
        assert_eq!(begun(&record, at(9)), at(9));
        record.state.push_event(TaskEvent::new(event::RECEIVED, at(2)));
        assert_eq!(begun(&record, at(9)), at(2));
        record.begun = at(1);
        assert_eq!(begun(&record, at(9)), at(1));
    }
}
