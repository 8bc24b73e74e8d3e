//! The hook that waits before tasks start until their host volumes are verified and answer.

use super::hooks::{AllocHook, HookContext};
use crate::host_volumes::HostVolumes;
use async_trait::async_trait;
use std::path::PathBuf;
use std::time::Duration;

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
                wait_for_answer(path, || cx.report(&text)).await;
            }
        }
        Ok(())
    }
}

/// How long a file system may take to answer before the wait is reported.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until the file system of a path answers, also with an error. For example, a hard mount of NFS waits for its
/// server for ever, and so does each process that touches it. `report` is called if that takes longer than
/// [`ANSWER_TIMEOUT`].
async fn wait_for_answer(path: PathBuf, report: impl FnOnce()) {
    let (sender, mut answer) = tokio::sync::oneshot::channel();
    // Not a thread of the runtime: the runtime would wait for the server before the agent ends.
    let asked =
        std::thread::Builder::new().name("host-volume".to_owned()).stack_size(64 * 1024).spawn(move || {
            // statfs(2) asks the server; attributes of files may come from a cache.
            let answered = rustix::fs::statfs(&path).map(drop);
            let _nobody_waits = sender.send(answered);
        });
    if asked.is_err() || tokio::time::timeout(ANSWER_TIMEOUT, &mut answer).await.is_ok() {
        return;
    }
    report();
    let _answered = answer.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn local_file_systems_and_missing_paths_answer() {
        for path in ["/", "/no/such/path"] {
            wait_for_answer(path.into(), || panic!("{path} does not answer")).await;
        }
    }
}
