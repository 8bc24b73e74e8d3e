//! The hook that waits before tasks start until their host volumes are verified and answer.

use super::hooks::{AllocHook, HookContext};
use crate::host_volumes::{ANSWER_TIMEOUT, HostVolumes};
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
            // A volume that does not exist is an error of the task that mounts it.
            let found = self.host_volumes.path(&alloc.namespace, &name, request.host_access);
            if let Some((path, _)) = found {
                let text = format!(
                    "volumes: waiting for host volume {name}: the file system of {} does not answer",
                    path.display()
                );
                self.host_volumes.answered(&path, ANSWER_TIMEOUT, || cx.report(&text)).await;
            }
        }
        Ok(())
    }
}
