//! The hook that mounts the volumes of a task.

use crate::csi::VolumeManager;
use crate::runner::binds::{Binds, Sources, ownerless, requested_mounts};
use crate::runner::fresh;
use crate::runner::plan::Plan;
use crate::runner::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use async_trait::async_trait;
use std::path::PathBuf;

/// The hook of a task's volumes.
#[derive(Debug)]
pub(in crate::runner) struct VolumesHook {
    sources: Sources,
    csi_dir: PathBuf,
    binds: Binds,
}

impl VolumesHook {
    pub(super) fn new(sources: Sources, csi_dir: PathBuf) -> Self {
        Self { sources, csi_dir, binds: Binds::default() }
    }

    /// Takes over the binds that an earlier agent created for this task.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        if plan.driver.capabilities().mounts {
            return;
        }
        let mounts =
            requested_mounts(&self.sources, &plan.alloc, plan.group(), plan.task(), plan.env(), false);
        self.binds = Binds::adopt(&mounts.unwrap_or_default(), plan.dirs());
    }

    /// Returns whether the task's directories contain binds.
    pub(super) fn has_binds(&self) -> bool {
        !self.binds.is_empty()
    }

    /// Unmounts the binds.
    pub(super) fn undo(&mut self) {
        self.binds.undo();
    }

    /// Returns the CSI volumes of the node.
    pub(super) fn csi_volumes(&self) -> &VolumeManager {
        &self.sources.volumes
    }
}

#[async_trait]
impl TaskHook for VolumesHook {
    async fn start(
        &mut self,
        _cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let failed = |why: String| StartFault::of_hook("volumes", why);
        let task = plan.task();
        let volumes = requested_mounts(&self.sources, &plan.alloc, plan.group(), task, plan.env(), true);
        let volumes = volumes.map_err(failed)?;
        // The driver refuses an unknown user, so the volume's root stays for the next task.
        if let Some(owner) = prepared.owner.filter(|owner| owner.uid != Some(0)) {
            let ownerless = ownerless(plan.group(), task, plan.env(), &volumes);
            let fresh = ownerless.filter(|v| !v.read_only && v.host_path.starts_with(&self.csi_dir));
            fresh.for_each(|volume| fresh::give(&volume.host_path, owner));
        }
        if plan.driver.capabilities().mounts {
            prepared.mounts.extend(volumes);
        } else {
            self.binds = Binds::make(&volumes, plan.dirs()).map_err(failed)?;
        }
        Ok(())
    }

    async fn stop(&mut self, _plan: &Plan) {
        self.binds.undo();
    }

    async fn finish(&mut self, _cx: TaskContext<'_>, _plan: Option<&Plan>) {
        self.binds.undo();
    }
}
