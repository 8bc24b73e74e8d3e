//! The hooks of a task, and their order before it starts and after it ends.

use super::alloc_state::AllocState;
use super::plan::Plan;
use super::users::unknown_owner;
use async_trait::async_trait;
use caravan_drivers::{DeviceNode, Dns, Mount};
use caravan_shim::lease::Term;
use caravan_sys::dir::Owner;
use caravan_types::alloc::TaskEvent;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The name of a task hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskHookName {
    /// Creates the task's directories.
    TaskDir,
    /// Binds the directories that the driver shows.
    Unveil,
    /// Opens the API socket.
    ApiSocket,
    /// Fetches and writes identities.
    Identity,
    /// Writes the dispatch payload.
    DispatchPayload,
    /// Reserves devices.
    Devices,
    /// Fetches artifacts.
    Artifacts,
    /// Finds the resolver.
    Names,
    /// Renders templates.
    Templates,
    /// Finds the network that the driver made, which may have been replaced since the run before.
    Network,
    /// Supervises a CSI plugin.
    Plugin,
    /// Mounts volumes into the task.
    Volumes,
    /// Checks the lease of single-writer volumes.
    Lease,
}

/// The hooks that may be slow, in their order: files in the task's directories first, then templates. The network is
/// last, because the engine that holds it may restart while templates wait.
pub(super) const PREPARE_ORDER: [TaskHookName; 10] = [
    TaskHookName::TaskDir,
    TaskHookName::Unveil,
    TaskHookName::ApiSocket,
    TaskHookName::Identity,
    TaskHookName::DispatchPayload,
    TaskHookName::Devices,
    TaskHookName::Names,
    TaskHookName::Artifacts,
    TaskHookName::Templates,
    TaskHookName::Network,
];

/// The hooks directly before the start, in their order. These hooks run to their end, after the intent of the start
/// is durable. The lease is checked last, so that the shim rarely has to refuse.
pub(super) const MOUNT_ORDER: [TaskHookName; 3] =
    [TaskHookName::Plugin, TaskHookName::Volumes, TaskHookName::Lease];

/// The hooks after each run, in their order.
pub(super) const STOP_ORDER: [TaskHookName; 2] = [TaskHookName::Plugin, TaskHookName::Volumes];

/// The hooks after the last run, in their order.
pub(super) const FINISH_ORDER: [TaskHookName; 3] =
    [TaskHookName::Volumes, TaskHookName::Plugin, TaskHookName::Unveil];

/// The reason that a start failed.
#[derive(Debug)]
pub(super) enum StartFault {
    /// A hook failed; a retry may help.
    Hook(String),
    /// The driver returned an error.
    Driver(caravan_drivers::Error),
    /// The lease term under which the task's volumes were mounted has ended.
    Lease,
    /// An artifact cannot be fetched.
    Artifact(String),
    /// A template cannot be rendered.
    Templates {
        /// The reason, in one sentence.
        why: String,
        /// Whether a retry may help.
        recoverable: bool,
    },
}

impl StartFault {
    /// Returns the fault of a failed hook.
    pub(super) fn of_hook(name: &str, why: impl std::fmt::Display) -> Self {
        Self::Hook(format!("prestart hook \"{name}\" failed: {why}"))
    }
}

/// The results of the hooks before a start.
#[derive(Default)]
pub(super) struct Prepared {
    /// The user that the task runs as, if the host has that user.
    pub(super) owner: Option<Owner>,
    /// Variables that contain identities.
    pub(super) tokens: BTreeMap<String, String>,
    /// Variables that templates add.
    pub(super) variables: BTreeMap<String, String>,
    /// Variables that device plugins add.
    pub(super) device_env: BTreeMap<String, String>,
    /// Device files that the task may use.
    pub(super) devices: Vec<DeviceNode>,
    /// The settings of the resolver; absent means the resolver of the node.
    pub(super) dns: Option<Dns>,
    /// The mounts that the driver creates.
    pub(super) mounts: Vec<Mount>,
    /// The lease term that limits the run.
    pub(super) lease: Option<Term>,
}

impl Prepared {
    /// Returns the owner of the task's files.
    pub(super) fn owner(&self) -> Owner {
        self.owner.unwrap_or_else(unknown_owner)
    }
}

/// A task, with the operations of its hooks.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskContext<'a> {
    pub(super) alloc: &'a AllocState,
    pub(super) name: &'a str,
}

impl TaskContext<'_> {
    /// Adds an event to the task.
    pub(super) fn emit(&self, event: TaskEvent) {
        self.alloc.emit(self.name, event);
    }
}

/// A hook of a task, with its own dependencies and the state that it keeps between runs.
#[async_trait]
pub(super) trait TaskHook: Debug + Send {
    /// Prepares a start.
    async fn start(
        &mut self,
        _cx: TaskContext<'_>,
        _plan: &Plan,
        _prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        Ok(())
    }

    /// Ends a run.
    async fn stop(&mut self, _plan: &Plan) {}

    /// Ends the task for good. The plan is absent if the driver of the task is absent.
    async fn finish(&mut self, _cx: TaskContext<'_>, _plan: Option<&Plan>) {}
}

#[cfg(test)]
mod tests {
    use super::TaskHookName::{
        ApiSocket, Artifacts, Devices, DispatchPayload, Identity, Lease, Names, Network, Plugin, TaskDir,
        Templates, Unveil, Volumes,
    };
    use super::*;

    #[test]
    fn templates_are_rendered_late_and_the_lease_is_checked_after_the_mounts() {
        assert_eq!(
            PREPARE_ORDER,
            [
                TaskDir,
                Unveil,
                ApiSocket,
                Identity,
                DispatchPayload,
                Devices,
                Names,
                Artifacts,
                Templates,
                Network
            ]
        );
        assert_eq!(MOUNT_ORDER, [Plugin, Volumes, Lease]);
    }

    #[test]
    fn a_plugin_is_deregistered_after_its_last_binds_are_undone() {
        assert_eq!(STOP_ORDER, [Plugin, Volumes]);
        assert_eq!(FINISH_ORDER, [Volumes, Plugin, Unveil]);
    }
}
