//! The hook that waits until host volumes of an earlier agent are verified before tasks start.

use super::hooks::{AllocHook, HookContext};
use crate::host_volumes::HostVolumes;
use async_trait::async_trait;

/// The hook of host volumes.
#[derive(Debug)]
pub(super) struct HostVolumesHook {
    pub(super) host_volumes: HostVolumes,
}

#[async_trait]
impl AllocHook for HostVolumesHook {
    /// Waits for the group's host volumes; a wait becomes an event of the tasks.
    async fn prepare(&self, cx: &HookContext<'_>) -> Result<(), String> {
        let alloc = cx.alloc();
        for (_, request) in alloc.group().into_iter().flat_map(|group| group.host_volumes()) {
            let name = request.source_for(&alloc.name);
            let report = || {
                cx.report(&format!("volumes: waiting for the plugin of host volume {name} to verify it"));
            };
            self.host_volumes.settled(&alloc.namespace, &name, report).await;
        }
        Ok(())
    }
}
