//! The hooks of one allocation, by name.

use super::RunnerParts;
use crate::runner::alloc_state::AllocState;
use crate::runner::cores_hook::CoresHook;
use crate::runner::csi_hook::CsiHook;
use crate::runner::devices_hook::HoldersHook;
use crate::runner::disk::{DiskHook, FindAlloc};
use crate::runner::hooks::{
    AllocHook, DirHook, HookContext, HookName, PREPARE_ORDER, PredecessorHook, RELEASE_ORDER, ReleaseStep,
};
use crate::runner::host_hook::HostVolumesHook;
use crate::runner::network::NetworkHook;
use crate::runner::sockets::SocketsHook;
use std::sync::Arc;

/// The hooks of one allocation.
#[derive(Debug)]
pub(super) struct AllocHooks {
    predecessors: PredecessorHook,
    dir: DirHook,
    network: NetworkHook,
    disk: DiskHook,
    host_volumes: HostVolumesHook,
    pub(super) csi: CsiHook,
    cores: CoresHook,
    devices: HoldersHook,
    sockets: SocketsHook,
}

impl AllocHooks {
    /// Creates the hooks of an allocation, whose tasks start once the tasks of the allocations in `before` are dead.
    pub(super) fn new(
        parts: &RunnerParts,
        sockets: SocketsHook,
        network: NetworkHook,
        before: Vec<AllocState>,
        allocs: Arc<dyn FindAlloc>,
    ) -> Self {
        let RunnerParts { planner, site, tasks, .. } = parts;
        Self {
            predecessors: PredecessorHook { before },
            dir: DirHook,
            network,
            disk: DiskHook { allocs, link: tasks.link.clone(), planner: Arc::clone(planner) },
            host_volumes: HostVolumesHook { host_volumes: tasks.sources.host_volumes.clone() },
            csi: CsiHook {
                volumes: tasks.sources.volumes.clone(),
                link: tasks.link.clone(),
                lease: tasks.fence.lease.clone(),
                cgroup_parent: site.cgroup_parent.clone(),
            },
            cores: CoresHook { cores: site.cores.clone() },
            devices: HoldersHook { holders: tasks.holders.clone() },
            sockets,
        }
    }

    fn hook(&self, name: HookName) -> &dyn AllocHook {
        match name {
            HookName::Predecessors => &self.predecessors,
            HookName::AllocDir => &self.dir,
            HookName::Network => &self.network,
            HookName::Disk => &self.disk,
            HookName::HostVolumes => &self.host_volumes,
            HookName::Csi => &self.csi,
            HookName::Cores => &self.cores,
            HookName::Devices => &self.devices,
            HookName::Sockets => &self.sockets,
        }
    }

    /// Runs the hooks before the tasks. May be dropped at any time. The error is in Nomad's words.
    pub(super) async fn prepare(&self, state: &AllocState) -> Result<(), String> {
        let cx = HookContext::new(state);
        for name in PREPARE_ORDER {
            let work = self.hook(name).prepare(&cx);
            match name.measured() {
                Some(measured) => state.hook(measured, work).await?,
                None => work.await?,
            }
        }
        Ok(())
    }

    /// Runs the steps after the tasks.
    pub(super) async fn release(&self, state: &AllocState) {
        let cx = HookContext::new(state);
        for step in RELEASE_ORDER {
            match step {
                ReleaseStep::Hook(name) => self.hook(name).release(&cx).await,
                ReleaseStep::Report => state.push(),
                ReleaseStep::Reach(stage) => state.reach(stage),
            }
        }
    }
}
