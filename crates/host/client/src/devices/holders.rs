//! The allocations that hold device instances. An instance is used by one allocation at a time. Another allocation
//! waits until the tasks of the first are dead, even if the servers already count the instance as free.

use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Vendor, type, name and id of an instance.
type Instance = (String, String, String, String);

/// The holders of the node's device instances. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Allocations by instance; the first one holds it, the others wait.
    queues: Mutex<BTreeMap<Instance, Vec<AllocId>>>,
    /// A counter of the releases.
    released: watch::Sender<u64>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { queues: Mutex::default(), released: watch::Sender::new(0) }
    }
}

/// An instance that another allocation holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Vendor, type, name and id, as in `vendor/type/name[id]`.
    pub(crate) device: String,
    /// The allocation that holds the instance.
    pub(crate) by: AllocId,
}

fn instances(alloc: &Allocation) -> impl Iterator<Item = Instance> + '_ {
    let tasks = alloc.allocated_resources.iter().flat_map(|resources| resources.tasks.values());
    tasks.flat_map(|task| &task.devices).flat_map(|device| {
        let of =
            move |id: &String| (device.vendor.clone(), device.kind.clone(), device.name.clone(), id.clone());
        device.device_ids.iter().map(of)
    })
}

impl Holders {
    /// Enters an allocation for its instances: in front if one of its tasks was started by an earlier agent, otherwise
    /// behind all earlier ones.
    pub(crate) fn enter(&self, alloc: &Allocation, runs: bool) {
        let mut queues = self.inner.queues.lock();
        for instance in instances(alloc) {
            let queue = queues.entry(instance).or_default();
            if queue.contains(&alloc.id) {
                continue;
            }
            queue.insert(if runs { 0 } else { queue.len() }, alloc.id.clone());
        }
    }

    /// Removes an allocation, once none of its tasks runs.
    pub(crate) fn release(&self, alloc: &AllocId) {
        let mut queues = self.inner.queues.lock();
        queues.retain(|_, queue| {
            queue.retain(|id| id != alloc);
            !queue.is_empty()
        });
        drop(queues);
        self.inner.released.send_modify(|count| *count += 1);
    }

    /// Returns the first instance of an allocation that another one holds.
    pub(crate) fn held(&self, alloc: &Allocation) -> Option<Held> {
        let queues = self.inner.queues.lock();
        instances(alloc).find_map(|instance| {
            let by = queues.get(&instance)?.first().filter(|first| **first != alloc.id)?.clone();
            let (vendor, kind, name, id) = instance;
            Some(Held { device: format!("{vendor}/{kind}/{name}[{id}]"), by })
        })
    }

    /// Waits until an allocation holds all its instances.
    pub(crate) async fn turn(&self, alloc: &Allocation) {
        let mut released = self.inner.released.subscribe();
        // The sender lives as long as the holders.
        let _ = released.wait_for(|_| self.held(alloc).is_none()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedDevice, AllocatedResources, AllocatedTaskResources};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn alloc(id: &str, ids: &BTreeSet<u8>) -> Allocation {
        let device = AllocatedDevice {
            device_ids: ids.iter().map(u8::to_string).collect(),
            ..AllocatedDevice::default()
        };
        let task = AllocatedTaskResources { devices: vec![device], ..Default::default() };
        let resources = AllocatedResources { tasks: [("t".into(), task)].into(), ..Default::default() };
        Allocation { id: id.into(), allocated_resources: Some(Arc::new(resources)), ..Default::default() }
    }

    #[tokio::test]
    async fn an_instance_passes_on_when_its_holder_releases_it() {
        let holders = Holders::default();
        let (old, new) = (alloc("old", &[1].into()), alloc("new", &[1, 2].into()));
        holders.enter(&old, false);
        holders.enter(&new, false);
        assert_eq!(holders.held(&old), None);
        let held = holders.held(&new).unwrap();
        assert_eq!((held.device.as_str(), held.by.as_str()), ("//[1]", "old"));
        let waiting = tokio::spawn({
            let (holders, new) = (holders.clone(), new.clone());
            async move { holders.turn(&new).await }
        });
        holders.release(&old.id);
        waiting.await.unwrap();
        assert_eq!(holders.held(&new), None);
    }

    #[test]
    fn a_task_that_runs_comes_before_one_that_waits() {
        let holders = Holders::default();
        let (waits, runs) = (alloc("a", &[1].into()), alloc("b", &[1].into()));
        holders.enter(&waits, false);
        holders.enter(&runs, true);
        assert_eq!(holders.held(&runs), None);
        assert_eq!(holders.held(&waits).unwrap().by.as_str(), "b");
    }

    proptest! {
        #[test]
        fn no_two_allocations_hold_one_instance_and_some_allocation_may_go_on(
            asked in prop::collection::vec(prop::collection::btree_set(0_u8..5, 1..4), 1..8),
            ends in prop::collection::vec(0_usize..8, 0..16),
        ) {
            let holders = Holders::default();
            let allocs: Vec<Allocation> =
                asked.iter().enumerate().map(|(n, ids)| alloc(&n.to_string(), ids)).collect();
            let mut left: BTreeSet<usize> = (0..allocs.len()).collect();
            for alloc in &allocs {
                holders.enter(alloc, false);
            }
            for end in ends.into_iter().map(Some).chain([None]) {
                let may: Vec<usize> =
                    left.iter().copied().filter(|n| holders.held(&allocs[*n]).is_none()).collect();
                let mut used = BTreeSet::new();
                for id in may.iter().flat_map(|n| &asked[*n]) {
                    prop_assert!(used.insert(id), "instance {id} is held twice");
                }
                prop_assert!(left.is_empty() || !may.is_empty(), "all wait");
                if let Some(end) = end.filter(|end| left.remove(end)) {
                    holders.release(&allocs[end].id);
                }
            }
        }
    }
}
