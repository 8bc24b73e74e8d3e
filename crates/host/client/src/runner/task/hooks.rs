//! The hooks of one task, by name.

use super::dir_hook::TaskDirHook;
use super::plugin_hook::PluginHook;
use super::volumes_hook::VolumesHook;
use crate::csi::LeftMounts;
use crate::csi::registry::Registry;
use crate::devices::{DeviceManager, Holders};
use crate::runner::artifacts::ArtifactsHook;
use crate::runner::binds::Sources;
use crate::runner::devices_hook::DevicesHook;
use crate::runner::fence::{Fence, LeaseHook};
use crate::runner::identity::IdentityHook;
use crate::runner::names::NamesHook;
use crate::runner::network::NetworkHook;
use crate::runner::payload::PayloadHook;
use crate::runner::plan::{Plan, Planner};
use crate::runner::sockets::SocketsHook;
use crate::runner::task_hooks::{
    FINISH_ORDER, MOUNT_ORDER, PREPARE_ORDER, Prepared, STOP_ORDER, StartFault, TaskContext, TaskHook,
    TaskHookName,
};
use crate::runner::templates::act::TemplatesHook;
use crate::runner::unveil::UnveilHook;
use crate::servers::Link;
use caravan_csi::Deadlines;
use std::path::PathBuf;
use std::sync::Arc;

/// The dependencies of task hooks, from which the hooks of a task are created.
#[derive(Clone, Debug)]
pub(crate) struct TaskHookParts {
    pub(crate) link: Link,
    pub(crate) planner: Arc<Planner>,
    pub(crate) sources: Sources,
    pub(crate) csi_dir: PathBuf,
    pub(crate) fence: Fence,
    pub(crate) registry: Registry,
    pub(crate) left_mounts: LeftMounts,
    pub(crate) deadlines: Deadlines,
    pub(crate) devices: DeviceManager,
    pub(crate) holders: Holders,
}

/// The hooks of one task.
#[derive(Debug)]
pub(super) struct TaskHooks {
    pub(super) dir: TaskDirHook,
    pub(super) unveil: UnveilHook,
    pub(super) sockets: SocketsHook,
    pub(super) identity: IdentityHook,
    pub(super) payload: PayloadHook,
    pub(super) devices: DevicesHook,
    pub(super) names: NamesHook,
    pub(super) artifacts: ArtifactsHook,
    pub(super) templates: TemplatesHook,
    pub(super) plugin: PluginHook,
    pub(super) volumes: VolumesHook,
    pub(super) lease: LeaseHook,
    pub(super) network: NetworkHook,
}

impl TaskHooks {
    /// Creates the hooks of a task.
    pub(super) fn new(parts: TaskHookParts, sockets: SocketsHook, network: NetworkHook) -> Self {
        let TaskHookParts { link, planner, sources, csi_dir, fence, registry, left_mounts, .. } = parts;
        let TaskHookParts { deadlines, devices, holders, .. } = parts;
        Self {
            dir: TaskDirHook,
            unveil: UnveilHook { base: planner.mounts_dir.clone() },
            sockets,
            identity: IdentityHook::new(link.clone()),
            payload: PayloadHook,
            devices: DevicesHook { devices, holders },
            names: NamesHook::default(),
            artifacts: ArtifactsHook { planner: Arc::clone(&planner) },
            templates: TemplatesHook::new(link, planner),
            plugin: PluginHook { registry, left_mounts, deadlines },
            volumes: VolumesHook::new(sources, csi_dir),
            lease: LeaseHook { fence },
            network,
        }
    }

    fn hook(&mut self, name: TaskHookName) -> &mut dyn TaskHook {
        match name {
            TaskHookName::TaskDir => &mut self.dir,
            TaskHookName::Unveil => &mut self.unveil,
            TaskHookName::ApiSocket => &mut self.sockets,
            TaskHookName::Identity => &mut self.identity,
            TaskHookName::DispatchPayload => &mut self.payload,
            TaskHookName::Devices => &mut self.devices,
            TaskHookName::Names => &mut self.names,
            TaskHookName::Artifacts => &mut self.artifacts,
            TaskHookName::Templates => &mut self.templates,
            TaskHookName::Network => &mut self.network,
            TaskHookName::Plugin => &mut self.plugin,
            TaskHookName::Volumes => &mut self.volumes,
            TaskHookName::Lease => &mut self.lease,
        }
    }

    /// Runs the slow hooks before a start. May be dropped at any time.
    pub(super) async fn prepare(&mut self, cx: TaskContext<'_>, plan: &Plan) -> Result<Prepared, StartFault> {
        let mut prepared = Prepared::default();
        for name in PREPARE_ORDER {
            self.hook(name).start(cx, plan, &mut prepared).await?;
        }
        Ok(prepared)
    }

    /// Runs the hooks directly before a start.
    pub(super) async fn mount(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        for name in MOUNT_ORDER {
            self.hook(name).start(cx, plan, prepared).await?;
        }
        Ok(())
    }

    /// Runs the hooks after a run.
    pub(super) async fn stop(&mut self, plan: &Plan) {
        for name in STOP_ORDER {
            self.hook(name).stop(plan).await;
        }
    }

    /// Runs the hooks after the last run.
    pub(super) async fn finish(&mut self, cx: TaskContext<'_>, plan: Option<&Plan>) {
        for name in FINISH_ORDER {
            self.hook(name).finish(cx, plan).await;
        }
    }
}
