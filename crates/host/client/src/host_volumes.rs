//! Host volumes of this node: volumes of the agent's configuration, and volumes that servers have created here by
//! plugins (docs/reference/storage.md, sections 8.3 and 8.4).
//!
//! An intent is stored before a plugin is called, and the outcome after the call. When the agent starts, every plugin
//! creates its volumes again, which must be idempotent. Only then are the volumes offered, and only then do tasks start
//! with them. The reason: after a reboot that ended a mount, the directory beneath the mount is not the volume.

mod external;
mod fault;
mod mkdir;
mod plugin;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use fault::HostVolumeFault;

use crate::ClientError;
use crate::config::ClientConfig;
use crate::csi::prober::{Prober, answers};
use crate::node::NodeState;
use crate::state::{Identity, Store};
use caravan_base::{KeyedGuard, KeyedLock};
use caravan_messages::HostVolumeCreated;
use caravan_types::host_volume::HostVolume;
use caravan_types::job::HostAccess;
use caravan_types::node::HostVolumeInfo;
use caravan_types::{HostVolumeId, Namespace};
use parking_lot::{Mutex, MutexGuard};
use plugin::Plugins;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::watch;

/// The time after which a wait for the answer of a file system is reported.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two probes of a file system that does not answer.
const ANSWER_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordPhase {
    /// The call that creates the volume was sent to its plugin, or is about to be sent; the outcome is unknown.
    #[default]
    Creating,
    /// The volume exists.
    Ready,
    /// The call that deletes the volume was sent to its plugin, or is about to be sent.
    Deleting,
}

/// A volume that the servers created on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostVolumeRecord {
    /// The volume as the servers described it.
    pub(crate) volume: HostVolume,
    /// The path of the volume on the host; empty while unknown.
    pub(crate) host_path: String,
    /// The progress of the volume.
    pub(crate) phase: RecordPhase,
}

#[derive(Debug)]
struct Known {
    record: HostVolumeRecord,
    /// Whether the plugin has created the volume again since this agent started.
    verified: bool,
}

/// The host volumes of this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct HostVolumes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The volumes of the agent's configuration.
    fixed: BTreeMap<String, HostVolumeInfo>,
    plugins: Plugins,
    /// The probes of file systems.
    prober: Prober,
    store: Store,
    node: NodeState,
    known: Mutex<BTreeMap<HostVolumeId, Known>>,
    /// Locks by volume name: one operation at a time.
    turns: KeyedLock<String>,
    /// A counter of the changes of `known`.
    changes: watch::Sender<u64>,
    /// Whether every plugin and every volume was tried once.
    first_pass: watch::Sender<bool>,
}

/// Checks the volumes of the agent's configuration. A volume whose file system does not answer is accepted: its tasks
/// wait, and the agent starts without it.
///
/// # Errors
/// If a volume is not an existing directory or file.
pub(crate) fn check_fixed(volumes: &BTreeMap<String, HostVolumeInfo>) -> Result<(), ClientError> {
    for (name, volume) in volumes {
        let refused = |source| ClientError::HostVolume { name: name.clone(), source };
        if volume.path.is_empty() {
            let kind = std::io::ErrorKind::InvalidInput;
            return Err(refused(std::io::Error::new(kind, "missing path in host_volume block")));
        }
        let path = PathBuf::from(&volume.path);
        match within(ANSWER_TIMEOUT, move || std::fs::metadata(path).map(drop)) {
            Some(found) => found
                .map_err(|e| refused(std::io::Error::new(e.kind(), format!("stat {}: {e}", volume.path))))?,
            None => {
                tracing::warn!(name, path = volume.path, "the file system of a host volume does not answer");
            }
        }
    }
    Ok(())
}

/// Returns the result of a call that may hang, or `None` at the timeout. The call then keeps its thread.
fn within<T: Send + 'static>(limit: Duration, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (reply, answer) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("host-volume".to_owned()).stack_size(64 * 1024);
    let asked = thread.spawn(move || {
        // After the timeout, the receiver is dropped.
        let _late = reply.send(call());
    });
    asked.ok().and_then(|_| answer.recv_timeout(limit).ok())
}

impl HostVolumes {
    /// Creates the value with the records of an earlier agent. No recorded volume is offered before [`Self::run`].
    pub(crate) fn new(
        config: &ClientConfig,
        identity: &Identity,
        store: Store,
        node: NodeState,
        records: Vec<HostVolumeRecord>,
    ) -> Self {
        let known = records
            .into_iter()
            .map(|record| (record.volume.id.clone(), Known { record, verified: false }))
            .collect();
        let inner = Inner {
            fixed: config.host_volumes.clone(),
            plugins: Plugins {
                volumes_dir: config.host_volumes_dir.clone(),
                plugin_dir: config.host_volume_plugin_dir.clone(),
                node_id: identity.node_id.clone(),
                node_pool: config.node_pool.clone(),
            },
            prober: Prober::default(),
            store,
            node,
            known: Mutex::new(known),
            turns: KeyedLock::default(),
            changes: watch::Sender::new(0),
            first_pass: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<HostVolumeId, Known>> {
        self.inner.known.lock()
    }

    async fn turn(&self, name: &str) -> KeyedGuard<String> {
        self.inner.turns.lock(&name.to_owned()).await
    }

    /// Returns the path of a volume for tasks of a namespace, and whether it is read-only. A volume of the agent's
    /// configuration has priority over a volume that was created for the namespace.
    pub(crate) fn path(
        &self,
        namespace: &Namespace,
        name: &str,
        access: HostAccess,
    ) -> Option<(PathBuf, bool)> {
        if let Some(fixed) = self.inner.fixed.get(name) {
            let may = access == HostAccess::Any;
            return may.then(|| (PathBuf::from(&fixed.path), fixed.read_only));
        }
        let known = self.known();
        let made = known
            .values()
            .find(|k| k.verified && k.record.volume.name == name && k.record.volume.namespace == *namespace);
        made.map(|known| (PathBuf::from(&known.record.host_path), false))
    }

    /// Waits until the file system of a path answers, also with an error. For example, a hard mount of NFS waits for
    /// its server for ever, and so does each process that uses it. `report` is called once if the answer takes longer
    /// than `limit`.
    pub(crate) async fn answered(&self, path: &Path, limit: Duration, report: impl FnOnce()) {
        let ask = || {
            let asked = path.to_owned();
            self.inner.prober.look(path, limit, move || answers(&asked))
        };
        if ask().await.is_some() {
            return;
        }
        report();
        while ask().await.is_none() {
            tokio::time::sleep(ANSWER_INTERVAL).await;
        }
    }

    /// Creates a volume, or updates the one with the same id.
    pub(crate) async fn create(&self, volume: HostVolume) -> Result<HostVolumeCreated, HostVolumeFault> {
        let _turn = self.turn(&volume.name).await;
        let before = self.free_for(&volume)?;
        let plugin = self.inner.plugins.find(&volume.plugin_id)?;
        if before.is_none() {
            let record = HostVolumeRecord { volume: volume.clone(), ..HostVolumeRecord::default() };
            self.keep(record, false).await?;
        }
        let made = match self.inner.plugins.create(&plugin, &volume).await {
            Ok(made) => made,
            Err(fault) => return Err(self.not_made(&plugin, &volume, before.is_some(), fault).await),
        };
        let record = HostVolumeRecord {
            volume: volume.clone(),
            host_path: made.host_path.clone(),
            phase: RecordPhase::Ready,
        };
        if let Err(fault) = self.keep(record, true).await {
            // Without a record, the volume would be unknown after a restart.
            if before.is_none() {
                self.undo(&plugin, &volume, &made.host_path).await;
            }
            return Err(fault);
        }
        tracing::info!(volume = %volume.id, name = volume.name, path = made.host_path, "host volume ready");
        self.offer();
        Ok(made)
    }

    /// Handles a failure of a plugin. A volume that existed before stays unchanged. A new volume must leave no data
    /// on the host without a record (docs/design/rough-edges.md, 41).
    async fn not_made(
        &self,
        plugin: &plugin::Plugin,
        volume: &HostVolume,
        existed: bool,
        fault: HostVolumeFault,
    ) -> HostVolumeFault {
        if existed || fault.outcome_unknown() && !fault.after_success() {
            return fault;
        }
        if fault.after_success() && !self.undo(plugin, volume, "").await {
            return fault;
        }
        match self.remove(&volume.id).await {
            Ok(()) => fault.settled(),
            Err(other) => other,
        }
    }

    /// Deletes a volume that could not be recorded. Returns whether the deletion succeeded; otherwise the record
    /// keeps the volume.
    async fn undo(&self, plugin: &plugin::Plugin, volume: &HostVolume, path: &str) -> bool {
        match self.inner.plugins.delete(plugin, volume, path).await {
            Ok(()) => true,
            Err(fault) => {
                tracing::warn!(volume = %volume.id, error = %fault, "a volume whose creation failed cannot be deleted");
                false
            }
        }
    }

    /// Offers an existing directory.
    pub(crate) async fn register(&self, volume: HostVolume) -> Result<(), HostVolumeFault> {
        let _turn = self.turn(&volume.name).await;
        self.free_for(&volume)?;
        verify::path_exists(&volume.name, Path::new(&volume.host_path))?;
        let host_path = volume.host_path.clone();
        self.keep(HostVolumeRecord { volume, host_path, phase: RecordPhase::Ready }, true).await?;
        self.offer();
        Ok(())
    }

    /// Deletes a volume; a registered directory is only removed from the records.
    pub(crate) async fn delete(&self, volume: HostVolume) -> Result<(), HostVolumeFault> {
        let _turn = self.turn(&volume.name).await;
        let before = self.known().get(&volume.id).map(|k| (k.record.clone(), k.verified));
        if !volume.plugin_id.is_empty() {
            let plugin = self.inner.plugins.find(&volume.plugin_id)?;
            let path = before.as_ref().map_or(&volume.host_path, |(record, _)| &record.host_path).clone();
            if let Some((record, verified)) = &before {
                let doomed = HostVolumeRecord { phase: RecordPhase::Deleting, ..record.clone() };
                self.keep(doomed, *verified).await?;
            }
            if let Err(fault) = self.inner.plugins.delete(&plugin, &volume, &path).await {
                // The record returns to its earlier phase, unless the plugin's effect is unknown.
                if let Some((record, verified)) = before
                    && !fault.outcome_unknown()
                {
                    self.keep(record, verified).await?;
                }
                return Err(fault);
            }
        }
        self.remove(&volume.id).await?;
        tracing::info!(volume = %volume.id, name = volume.name, "host volume deleted");
        self.offer();
        Ok(())
    }

    /// Refuses a name that another volume has; returns the record of the volume itself, if it was created before.
    fn free_for(&self, volume: &HostVolume) -> Result<Option<HostVolumeRecord>, HostVolumeFault> {
        plugin::check_id(volume)?;
        let known = self.known();
        // A volume of a user must not hide a configured one from other namespaces.
        let taken = self.inner.fixed.contains_key(&volume.name)
            || known.values().any(|k| k.record.volume.name == volume.name && k.record.volume.id != volume.id);
        if taken {
            return Err(HostVolumeFault::NameTaken);
        }
        let own = known.get(&volume.id).filter(|k| k.record.phase != RecordPhase::Creating);
        Ok(own.map(|k| k.record.clone()))
    }

    async fn keep(&self, record: HostVolumeRecord, verified: bool) -> Result<(), HostVolumeFault> {
        self.inner.store.put_host_volume(&record).done().await.map_err(HostVolumeFault::Keep)?;
        self.known().insert(record.volume.id.clone(), Known { record, verified });
        Ok(())
    }

    async fn remove(&self, id: &HostVolumeId) -> Result<(), HostVolumeFault> {
        self.inner.store.remove_host_volume(id).done().await.map_err(HostVolumeFault::Keep)?;
        self.known().remove(id);
        Ok(())
    }

    /// Writes the offered volumes into the node, whose change is reported to the servers immediately. A configured
    /// volume is always offered; a volume that a user created earlier under the same name is not.
    fn offer(&self) {
        let mut offered = self.inner.fixed.clone();
        for known in self.known().values().filter(|k| k.verified) {
            let HostVolumeRecord { volume, host_path, .. } = &known.record;
            if self.inner.fixed.contains_key(&volume.name) {
                tracing::warn!(
                    id = %volume.id, name = volume.name, namespace = %volume.namespace,
                    "a host volume of a user is not offered: a configured volume has the same name"
                );
                continue;
            }
            let info = HostVolumeInfo {
                name: volume.name.clone(),
                path: host_path.clone(),
                read_only: false,
                id: volume.id.to_string(),
            };
            offered.insert(volume.name.clone(), info);
        }
        self.inner.node.put_host_volumes(offered);
        self.inner.changes.send_modify(|n| *n += 1);
    }
}
