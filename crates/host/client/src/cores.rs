//! The processors of tasks. A task with reserved cores (`resources { cores }`) runs only on these cores, and no other
//! task uses them. All other tasks run on the remaining processors. Control groups enforce that; on a host without
//! the cpuset controller, no cores can be reserved.

use crate::config::ClientConfig;
use caravan_drivers::Processors;
use caravan_sys::cgroup::{Hierarchy, SharedCpus};
use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use caravan_types::cores::{format, parse};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// The processors of this node. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The processors of tasks: all of the host, except the reserved ones.
    usable: BTreeSet<u16>,
    /// The processors that tasks may reserve.
    reservable: BTreeSet<u16>,
    shared: Option<SharedCpus>,
    state: Mutex<State>,
    /// The shared processors, for drivers whose tasks are outside of the agent's control group.
    changes: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// Reserved cores by allocation, then task.
    held: BTreeMap<AllocId, BTreeMap<String, Vec<u16>>>,
    /// Whether the allocations of an earlier agent are restored.
    ready: bool,
    /// The shared processors as last written to the kernel.
    applied: Option<String>,
}

impl Cores {
    /// Detects the processors and prepares the shared control group.
    pub(crate) fn open(config: &ClientConfig) -> Self {
        let (available, shared) = match look(config) {
            Ok(found) => found.unzip(),
            Err(why) => {
                tracing::warn!(why, "tasks cannot be confined to processors: no cores can be reserved");
                (None, None)
            }
        };
        let kept = &config.reserved.cpu.reserved_cpu_cores;
        let mut usable = available.unwrap_or_default();
        usable.retain(|core| !kept.contains(core));
        let named = |core: &u16| config.reservable_cores.as_ref().is_none_or(|named| named.contains(core));
        let reservable = usable.iter().copied().filter(named).collect();
        let (state, changes) = (Mutex::default(), watch::Sender::default());
        Self { inner: Arc::new(Inner { usable, reservable, shared, state, changes }) }
    }

    /// Returns the cores that jobs may reserve.
    pub(crate) fn reservable(&self) -> &BTreeSet<u16> {
        &self.inner.reservable
    }

    /// Reserves the cores that the plan assigned to an allocation's tasks.
    pub(crate) fn hold(&self, alloc: &Allocation) {
        let assigned = alloc.allocated_resources.iter().flat_map(|assigned| &assigned.tasks);
        let cores = assigned.filter(|(_, task)| !task.cpu.reserved_cores.is_empty());
        let held: BTreeMap<String, Vec<u16>> =
            cores.map(|(name, task)| (name.to_string(), task.cpu.reserved_cores.clone())).collect();
        if !held.is_empty() {
            let mut state = self.lock();
            state.held.insert(alloc.id.clone(), held);
            self.say(&mut state);
        }
    }

    /// Releases the cores of an allocation, once none of its tasks runs.
    pub(crate) fn release(&self, alloc: &AllocId) {
        let mut state = self.lock();
        if state.held.remove(alloc).is_some() {
            self.say(&mut state);
        }
    }

    /// Starts sharing, once the allocations of an earlier agent are restored and all reserved cores are known.
    pub(crate) fn restored(&self) {
        let mut state = self.lock();
        state.ready = true;
        self.say(&mut state);
    }

    /// Returns the processors on which a task runs.
    pub(crate) fn get(&self, alloc: &AllocId, task: &str) -> Processors {
        let state = self.lock();
        let Some(shared) = &self.inner.shared else { return Processors::Any };
        if let Some(own) = state.held.get(alloc).and_then(|tasks| tasks.get(task)) {
            return Processors::Own(format(own.iter().copied()));
        }
        match (shared.group(), &state.applied) {
            (Some(group), _) => Processors::Group(group.to_owned()),
            (None, Some(applied)) => Processors::Only(applied.clone()),
            (None, None) => Processors::Any,
        }
    }

    /// Returns the shared processors and their changes; `None` before their first write to the kernel.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<String>> {
        self.inner.changes.subscribe()
    }

    /// Writes the shared processors again after the start of a task. If every group has a separate list, the list of
    /// the new group may be outdated.
    pub(crate) fn started(&self) {
        if self.inner.shared.as_ref().is_some_and(|shared| shared.group().is_none()) {
            let mut state = self.lock();
            if !state.held.is_empty() {
                state.applied = None;
                self.say(&mut state);
            }
        }
    }

    /// Writes the shared processors to the kernel, if they changed.
    fn say(&self, state: &mut State) {
        let Some(shared) = self.inner.shared.as_ref().filter(|_| state.ready) else { return };
        let cpus = format(self.inner.left(&state.held));
        if state.applied.as_ref() == Some(&cpus) {
            return;
        }
        let group = |alloc: &AllocId, task: &str| format!("{alloc}.{task}");
        let held = state.held.iter();
        let own = held.flat_map(|(alloc, tasks)| tasks.keys().map(move |task| group(alloc, task))).collect();
        match shared.set(&cpus, &own) {
            Ok(()) => {
                self.inner.changes.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&cpus);
                    *known = Some(cpus.clone());
                    is_new
                });
                state.applied = Some(cpus);
            }
            Err(error) => {
                let why = caravan_sys::describe(&error);
                tracing::error!(cpus, why, "tasks cannot be confined to processors that are not reserved");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }
}

impl Inner {
    /// Returns the processors that no task has reserved. The result is never empty, because tasks without reserved
    /// cores must run somewhere.
    fn left(&self, held: &BTreeMap<AllocId, BTreeMap<String, Vec<u16>>>) -> BTreeSet<u16> {
        let assigned: BTreeSet<u16> = held.values().flat_map(BTreeMap::values).flatten().copied().collect();
        let left: BTreeSet<u16> = self.usable.difference(&assigned).copied().collect();
        if left.is_empty() { self.usable.clone() } else { left }
    }
}

/// Returns the processors that control groups can use, and the shared processors below the agent's parent group.
/// Returns `None` if the host has no control groups for that.
fn look(config: &ClientConfig) -> Result<Option<(BTreeSet<u16>, SharedCpus)>, String> {
    let described = |error: caravan_sys::Error| caravan_sys::describe(&error);
    let Some(hierarchy) = Hierarchy::detect().map_err(described)? else { return Ok(None) };
    let parent = Path::new(config.cgroup_parent.trim_start_matches('/'));
    let Some(list) = SharedCpus::available(&hierarchy, parent) else { return Ok(None) };
    let available = parse(&list).map_err(|error| error.to_string())?;
    let shared = SharedCpus::open(&hierarchy, parent).map_err(described)?;
    Ok(Some((available, shared)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedResources, AllocatedTaskResources};

    fn cores() -> Cores {
        let usable: BTreeSet<u16> = (0..4).collect();
        let (state, changes) = (Mutex::default(), watch::Sender::default());
        let inner = Inner { reservable: usable.clone(), usable, shared: None, state, changes };
        Cores { inner: Arc::new(inner) }
    }

    fn alloc(id: &str, assigned: &[u16]) -> Allocation {
        let mut task = AllocatedTaskResources::default();
        task.cpu.reserved_cores = assigned.to_vec();
        let mut all = AllocatedResources::default();
        all.tasks.insert("t".into(), task);
        Allocation { id: id.into(), allocated_resources: Some(Arc::new(all)), ..Allocation::default() }
    }

    #[test]
    fn what_is_left_is_what_nobody_has() {
        let cores = cores();
        let left = || cores.inner.left(&cores.lock().held);
        cores.hold(&alloc("a", &[1]));
        cores.hold(&alloc("b", &[0, 1]));
        cores.hold(&alloc("c", &[]));
        assert_eq!(left(), BTreeSet::from([2, 3]));
        cores.release(&"b".into());
        assert_eq!(left(), BTreeSet::from([0, 2, 3]));
        cores.hold(&alloc("d", &[0, 2, 3]));
        assert_eq!(left(), (0..4).collect(), "a task must run somewhere");
        assert_eq!(cores.get(&"a".into(), "t"), Processors::Any, "nothing holds it");
    }
}
