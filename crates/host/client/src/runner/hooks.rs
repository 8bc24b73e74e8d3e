//! The hooks of an allocation, and their order before its tasks start and after they end.

use super::alloc_state::{AllocState, Joined, Stage};
use crate::alloc_dir::AllocDir;
use crate::clock;
use async_trait::async_trait;
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, NetworkStatus, TaskEvent, TaskRunState, event};
use std::fmt::Debug;
use std::sync::Arc;

/// The name of an allocation hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookName {
    /// Waits for the tasks of earlier allocations.
    Predecessors,
    /// Creates the directories.
    AllocDir,
    /// Creates the network namespace.
    Network,
    /// Takes over the data of the replaced allocation.
    Disk,
    /// Waits for host volumes.
    HostVolumes,
    /// Mounts CSI volumes.
    Csi,
    /// Assigns processors.
    Cores,
    /// Holds device instances.
    Devices,
    /// Opens the API sockets of tasks.
    Sockets,
}

impl HookName {
    /// Returns the name in metrics and errors; `None` for a hook that is not measured, because it cannot fail.
    pub(super) fn measured(self) -> Option<&'static str> {
        match self {
            Self::AllocDir => Some("alloc_dir"),
            Self::Network => Some("network"),
            Self::Csi => Some("csi_hook"),
            Self::Predecessors
            | Self::Disk
            | Self::HostVolumes
            | Self::Cores
            | Self::Devices
            | Self::Sockets => None,
        }
    }
}

/// The hooks before the tasks, in their order.
pub(super) const PREPARE_ORDER: [HookName; 6] = [
    HookName::Predecessors,
    HookName::AllocDir,
    HookName::Network,
    HookName::Disk,
    HookName::HostVolumes,
    HookName::Csi,
];

/// A step after the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseStep {
    /// Runs the release of a hook.
    Hook(HookName),
    /// Reports the status to the servers.
    Report,
    /// Enters a stage, for which successors may wait.
    Reach(Stage),
}

/// The steps after the tasks, in their order. A successor may start before the volumes are unmounted.
pub(super) const RELEASE_ORDER: [ReleaseStep; 7] = [
    ReleaseStep::Hook(HookName::Cores),
    ReleaseStep::Hook(HookName::Devices),
    // The final status follows, because it frees the ports for others.
    ReleaseStep::Hook(HookName::Network),
    ReleaseStep::Report,
    ReleaseStep::Hook(HookName::Sockets),
    ReleaseStep::Reach(Stage::TasksDead),
    ReleaseStep::Hook(HookName::Csi),
];

/// A hook of an allocation, with its own dependencies.
#[async_trait]
pub(super) trait AllocHook: Debug + Send + Sync {
    /// Prepares the allocation before its tasks start. May be dropped at any time. The error is in Nomad's words.
    async fn prepare(&self, _cx: &HookContext<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Releases the resources of the hook after the tasks have ended.
    async fn release(&self, _cx: &HookContext<'_>) {}
}

/// An allocation, with the operations of its hooks.
#[derive(Clone, Copy, Debug)]
pub(super) struct HookContext<'a>(&'a AllocState);

impl<'a> HookContext<'a> {
    pub(super) fn new(alloc: &'a AllocState) -> Self {
        Self(alloc)
    }

    /// Returns the allocation as the servers last sent it.
    pub(super) fn alloc(&self) -> Arc<Allocation> {
        self.0.alloc()
    }

    /// Returns the allocation's id.
    pub(super) fn id(&self) -> AllocId {
        self.0.id()
    }

    /// Returns the allocation's directories.
    pub(super) fn dir(&self) -> &'a AllocDir {
        self.0.dir()
    }

    /// Sets the network that the tasks join when they start.
    pub(super) fn set_network(&self, joined: Joined) {
        self.0.set_network(joined);
    }

    /// Restarts running tasks in a namespace that is no longer the allocation's.
    pub(super) fn restart_strays(&self) {
        self.0.restart_strays();
    }

    /// Returns the names of the tasks.
    pub(super) fn task_names(&self) -> Vec<String> {
        self.0.task_names()
    }

    /// Returns whether any task was ever started: then its directories contain its own data.
    pub(super) fn has_begun(&self) -> bool {
        let state = self.0.lock();
        state.tasks.values().any(|slot| {
            let record = &slot.record;
            record.handle.is_some()
                || record.state.state != TaskRunState::Pending
                || !record.state.started_at.is_zero()
        })
    }

    /// Adds an event with a message to every task, and reports the event.
    pub(super) fn report(&self, message: &str) {
        for task in self.task_names() {
            self.0.emit(&task, TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(message.to_owned()));
        }
    }

    /// Adds an event with a message to every task; the next report contains the event.
    pub(super) fn note(&self, message: &str) {
        for task in self.task_names() {
            self.0.note(&task, TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(message.to_owned()));
        }
    }

    /// Records that the allocation holds a network, until [`HookContext::network_released`].
    pub(super) fn hold_network(&self) {
        self.0.hold_network();
    }

    /// Records that the allocation's network is removed.
    pub(super) fn network_released(&self) {
        self.0.network_released();
    }

    /// Records the addresses of the allocation's network.
    pub(super) fn put_network(&self, status: Arc<NetworkStatus>) {
        self.0.put_network(status);
    }

    /// Adds an event with the reason of the wait to every task that has not started.
    pub(super) fn tell_waiting(&self, reason: &str) {
        self.0.tell_waiting(reason);
    }
}

/// The hook that waits until the tasks of earlier allocations are dead. Until then, they may hold the ports and
/// memory of the allocation.
#[derive(Debug)]
pub(super) struct PredecessorHook {
    pub(super) before: Vec<AllocState>,
}

#[async_trait]
impl AllocHook for PredecessorHook {
    async fn prepare(&self, _cx: &HookContext<'_>) -> Result<(), String> {
        for other in &self.before {
            other.reached(Stage::TasksDead).await;
        }
        Ok(())
    }
}

/// The hook that creates the allocation's directories.
#[derive(Debug)]
pub(super) struct DirHook;

#[async_trait]
impl AllocHook for DirHook {
    async fn prepare(&self, cx: &HookContext<'_>) -> Result<(), String> {
        cx.dir().build().map_err(|error| caravan_sys::describe(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_mounted_last() {
        use HookName::{AllocDir, Csi, Disk, HostVolumes, Network, Predecessors};
        assert_eq!(PREPARE_ORDER, [Predecessors, AllocDir, Network, Disk, HostVolumes, Csi]);
        let measured: Vec<_> = PREPARE_ORDER.iter().filter_map(|name| name.measured()).collect();
        assert_eq!(measured, ["alloc_dir", "network", "csi_hook"]);
    }

    #[test]
    fn a_successor_may_start_before_volumes_are_unmounted() {
        use ReleaseStep::{Hook, Reach, Report};
        let steps = [
            Hook(HookName::Cores),
            Hook(HookName::Devices),
            Hook(HookName::Network),
            Report,
            Hook(HookName::Sockets),
            Reach(Stage::TasksDead),
            Hook(HookName::Csi),
        ];
        assert_eq!(RELEASE_ORDER, steps);
    }
}
