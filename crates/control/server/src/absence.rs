//! How long allocations have been unknown or lost, on this server's clock (the `disconnect` block of groups).

use crate::core::Core;
use crate::runtime::{self, select};
use caravan_scheduler::{Clock, Params, Passed, absent_since, kept_for};
use caravan_state::{Changed, FeedItem, Root};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::{AllocId, BootInstant, JobKey, Nanos, NodeId, UnixNanos};
use caravan_volumes::seen::FirstSeen;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The state by which one absence of an allocation differs from another: its status and the time since which it is
/// absent.
type Absence = (ClientStatus, UnixNanos);

/// The times at which this server first observed each absence; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absences(Arc<Mutex<FirstSeen<AllocId, Absence>>>);

impl Absences {
    /// Locks the table of absences. Each lock holder makes one complete change, so a panic leaves the data
    /// consistent.
    fn book(&self) -> MutexGuard<'_, FirstSeen<AllocId, Absence>> {
        self.0.lock()
    }

    /// Returns how long an allocation has been absent, or `None` if it is not absent.
    fn passed(&self, alloc: &Allocation, now: BootInstant) -> Option<Nanos> {
        let absence = (alloc.client_status, absent_since(alloc)?);
        Some(now.since(self.book().since(&alloc.id, absence, now)))
    }

    /// Returns how long the given allocations have been absent.
    fn measured<'a>(&self, allocs: impl Iterator<Item = &'a Arc<Allocation>>, now: BootInstant) -> Passed {
        let passed = allocs.filter_map(|alloc| Some((alloc.id.clone(), self.passed(alloc, now)?)));
        Passed::Measured(passed.collect::<BTreeMap<_, _>>())
    }

    fn sweep(&self, root: &Root) {
        self.book().sweep(|id| root.alloc(id).is_some_and(|alloc| absent_since(alloc).is_some()));
    }
}

impl Core {
    /// Returns the inputs of a scheduling decision about a job that the state does not contain.
    pub(crate) fn params(&self, root: &Root, job: &JobKey) -> Params {
        let moment = self.clock.read();
        let passed = self.absences.measured(root.allocs_by_job(job), moment.boot);
        Params { passed, ..Params::new(moment.wall, runtime::random()) }
    }

    /// Returns how much longer some allocation of a node may still return from its absence, or `None` without such an
    /// allocation.
    pub(crate) fn kept_on(&self, root: &Root, node: &NodeId) -> Option<Nanos> {
        let moment = self.clock.read();
        let passed = self.absences.measured(root.allocs_by_node(node), moment.boot);
        let clock = Clock { now: moment.wall, passed: &passed };
        root.allocs_by_node(node).filter_map(|alloc| kept_for(alloc, clock)).max()
    }
}

/// Observes the beginnings of absences, until cancelled.
pub(crate) async fn watch(core: Core, cancel: CancellationToken) {
    let mut feed = core.store.feed();
    let all = |root: &Root| {
        for alloc in root.allocs() {
            core.absences.passed(alloc, core.boot());
        }
    };
    all(&core.snapshot());
    loop {
        select! {
            () = cancel.cancelled() => return,
            item = feed.next() => match item {
                Some(FeedItem::Changes(set)) => {
                    let root = core.snapshot();
                    for changed in &set.changes {
                        if let Changed::Alloc(id) = changed
                            && let Some(alloc) = root.alloc(id)
                        {
                            core.absences.passed(alloc, core.boot());
                        }
                    }
                    core.absences.sweep(&root);
                }
                Some(FeedItem::Resync) => all(&core.snapshot()),
                None => return,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Moment;
    use caravan_types::alloc::AllocStateChange;
    use caravan_types::job::{DisconnectStrategy, Job, TaskGroup};

    fn unknown(at: UnixNanos) -> Arc<Allocation> {
        let group = TaskGroup {
            name: "g".into(),
            disconnect: Some(DisconnectStrategy { lost_after: Nanos::from_secs(60), ..Default::default() }),
            ..TaskGroup::default()
        };
        let state =
            AllocStateChange { field: 0, value: ClientStatus::Unknown.as_str().into(), time: at.to_time() };
        Arc::new(Allocation {
            id: "a".into(),
            task_group: "g".into(),
            job: Some(Arc::new(Job { task_groups: vec![group], ..Job::default() })),
            client_status: ClientStatus::Unknown,
            alloc_states: vec![state],
            ..Allocation::default()
        })
    }

    fn left(absences: &Absences, alloc: &Arc<Allocation>, moment: Moment) -> Option<Nanos> {
        let passed = absences.measured([alloc].into_iter(), moment.boot);
        kept_for(alloc, Clock { now: moment.wall, passed: &passed })
    }

    #[test]
    fn an_absence_counts_from_when_this_server_saw_it_whatever_the_wall_clock_does() {
        let (absences, alloc) = (Absences::default(), unknown(UnixNanos(1_000)));
        let after = |secs: i64, wall: i64| Moment {
            wall: UnixNanos(wall),
            boot: BootInstant::from_nanos(5).plus(Nanos::from_secs(secs)),
        };
        assert_eq!(left(&absences, &alloc, after(0, i64::MAX)), Some(Nanos::from_secs(60)));
        assert_eq!(left(&absences, &alloc, after(20, 0)), Some(Nanos::from_secs(40)));
        assert_eq!(left(&absences, &alloc, after(60, 1_000)), None);
        // Another absence of the same allocation, and another server, begin a new measurement.
        assert_eq!(left(&absences, &unknown(UnixNanos(2_000)), after(61, 0)), Some(Nanos::from_secs(60)));
        assert_eq!(left(&Absences::default(), &alloc, after(61, 0)), Some(Nanos::from_secs(60)));
    }
}
