//! Mounts that an earlier agent has left.

use crate::alloc_dir::end_mounts_below;
use crate::config::ClientConfig;
use crate::csi::LeftMounts;
use crate::csi::supervisor::PluginTask;
use crate::state::TaskRecord;
use caravan_drivers::FsIsolation;
use caravan_sys::below::Treatment;
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, TaskRunState};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Ends the mounts that an earlier agent's plugins left and watches the remaining ones. When this returns, all
/// plugins that have not ended are recorded.
pub(super) fn look_for_left_mounts(
    left_mounts: LeftMounts,
    csi_dir: &Path,
    restored: &[Allocation],
    records: &BTreeMap<(AllocId, String), TaskRecord>,
    cancel: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    let mut plugins = BTreeMap::new();
    for alloc in restored {
        for task in alloc.group().map_or(&[][..], |group| &group.tasks) {
            let Some(block) = &task.csi_plugin_config else { continue };
            plugins.insert(alloc.id.clone(), block.id.clone());
            let record = records.get(&(alloc.id.clone(), task.name.clone()));
            if record.is_none_or(|record| record.state.state != TaskRunState::Dead) {
                // The directories are the same for all drivers.
                let plugin = PluginTask::plan(csi_dir, &alloc.id, block, FsIsolation::None);
                left_mounts.adopt(&task.name, &plugin);
            }
        }
    }
    async move {
        left_mounts.sweep(|alloc| plugins.get(alloc).cloned()).await;
        left_mounts.run(cancel).await;
    }
}

/// Ends the mounts that a development agent has left, because none of its state survives. Mounts of tasks or plugins
/// that are in use stay, and then their directory is not removed.
pub(super) fn end_mounts(config: &ClientConfig, shared: &[PathBuf]) {
    for (dir, depth) in [(&config.alloc_dir, 3), (&config.state_dir, 0)] {
        let own = |real| shared.contains(dir) || shared.contains(&real);
        let itself = match dir.canonicalize().is_ok_and(own) {
            true => Treatment::Own,
            false => Treatment::Keep,
        };
        let left = match end_mounts_below(dir, depth, itself) {
            Ok(left) => left,
            Err(error) => {
                tracing::warn!(
                    dir = %dir.display(), error = caravan_sys::describe(&error),
                    "mounts below the directory cannot be removed"
                );
                continue;
            }
        };
        for mount in &left {
            tracing::warn!(%mount, "a mount below the directory of the development agent stays");
        }
    }
}
