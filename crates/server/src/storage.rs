//! The users' requests about storage: volumes, snapshots, host volumes, variables.

use crate::acl::Caller;
use crate::error::ServerError;
use crate::server::{Handle, to_the_end};
use crate::variables::VariableWritten;
use crate::volume::{VolumeFigures, explain};
use caravan_state::Root;
use caravan_types::host_volume::{HostVolume, HostVolumeSpec};
use caravan_types::ser::Secrets;
use caravan_types::variable::{
    LockUse, Variable, VariableDecrypted, VariableKey, VariableLock, VariableMetadata,
};
use caravan_types::volume::{
    ClaimId, CsiSnapshot, Volume, VolumeExplain, VolumeExternalStub, VolumeRequestBody, VolumeUsage,
};
use caravan_types::{HostVolumeId, Namespace, NodeId, PluginId, VolumeKey};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Handle {
    /// Registers volumes that already exist; `namespace` applies to volumes that name none.
    ///
    /// # Errors
    /// With the problems of each volume.
    pub async fn register_volumes(
        &self,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.register_volumes_as(Caller::unrestricted(), namespace, volumes).await
    }

    /// As [`Handle::register_volumes`], for a caller: the caller must have the right to read the variables that secrets
    /// come from.
    ///
    /// # Errors
    /// As [`Handle::register_volumes`].
    pub async fn register_volumes_as(
        &self,
        caller: Caller,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        let (this, namespace) = (self.volumes.clone(), namespace.clone());
        let command = async move { this.register(&caller, &namespace, volumes).await };
        to_the_end(&self.volumes.reconciler.commands, command).await
    }

    /// Creates volumes by their plugins and registers them.
    ///
    /// # Errors
    /// With the problems of each volume.
    pub async fn create_volumes(
        &self,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.create_volumes_as(Caller::unrestricted(), namespace, volumes).await
    }

    /// As [`Handle::create_volumes`], for a caller: the caller must have the right to read the variables that secrets
    /// come from, and to write the volumes that are cloned.
    ///
    /// # Errors
    /// As [`Handle::create_volumes`].
    pub async fn create_volumes_as(
        &self,
        caller: Caller,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        let (this, namespace) = (self.volumes.clone(), namespace.clone());
        let command = async move { this.create(&caller, &namespace, volumes).await };
        to_the_end(&self.volumes.reconciler.commands, command).await
    }

    /// Deregisters a volume without calling its plugin.
    ///
    /// # Errors
    /// If it does not exist or is in use.
    pub async fn deregister_volume(&self, key: &VolumeKey, force: bool) -> Result<u64, ServerError> {
        let (this, key) = (self.volumes.clone(), key.clone());
        to_the_end(&self.volumes.reconciler.commands, async move { this.deregister(&key, force).await }).await
    }

    /// Deletes a volume by its plugin, then removes its row. `secrets` override the volume's own.
    ///
    /// # Errors
    /// If it does not exist, is in use, or the plugin refuses.
    pub async fn delete_volume(&self, key: &VolumeKey, secrets: &Secrets) -> Result<u64, ServerError> {
        let (this, key, secrets) = (self.volumes.clone(), key.clone(), secrets.clone());
        to_the_end(&self.volumes.reconciler.commands, async move { this.delete(&key, &secrets).await }).await
    }

    /// Releases a volume's claims on a node whose allocations have ended.
    ///
    /// # Errors
    /// If no claim can be detached, or an allocation still runs with the volume.
    pub async fn detach_volume(&self, key: &VolumeKey, node: &NodeId) -> Result<u64, ServerError> {
        let (this, key, node) = (self.volumes.clone(), key.clone(), node.clone());
        to_the_end(&self.volumes.reconciler.commands, async move { this.detach(&key, &node).await }).await
    }

    /// Returns a page of a plugin's volumes, and the token of the next page. Volumes of namespaces that the caller may
    /// not list are omitted.
    ///
    /// # Errors
    /// If the plugin is not known or cannot list.
    pub async fn list_external_volumes(
        &self,
        caller: &Caller,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
    ) -> Result<(Vec<VolumeExternalStub>, String), ServerError> {
        self.volumes.list_external(caller, plugin, max_entries, starting_token).await
    }

    /// Creates a host volume on a node by its plugin, or updates an existing one; `namespace` applies to volumes that
    /// name none.
    ///
    /// # Errors
    /// With the problems of the specification, the reason why no node fits, or the plugin's error.
    pub async fn create_host_volume(
        &self,
        namespace: &Namespace,
        spec: HostVolumeSpec,
    ) -> Result<Arc<HostVolume>, ServerError> {
        let (this, namespace) = (self.host_volumes.clone(), namespace.clone());
        to_the_end(&self.host_volumes.commands, async move { this.create(&namespace, spec).await }).await
    }

    /// Registers a directory of a node as a host volume.
    ///
    /// # Errors
    /// With the problems of the specification, or the reason why the node refuses.
    pub async fn register_host_volume(
        &self,
        namespace: &Namespace,
        spec: HostVolumeSpec,
    ) -> Result<Arc<HostVolume>, ServerError> {
        let (this, namespace) = (self.host_volumes.clone(), namespace.clone());
        to_the_end(&self.host_volumes.commands, async move { this.register(&namespace, spec).await }).await
    }

    /// Deletes a host volume on its node, then removes its row. Returns the index.
    ///
    /// # Errors
    /// If it does not exist, is in use or held, its node is unreachable (unless forced), or the plugin refuses.
    pub async fn delete_host_volume(
        &self,
        namespace: &Namespace,
        id: &HostVolumeId,
        force: bool,
    ) -> Result<u64, ServerError> {
        let (this, namespace, id) = (self.host_volumes.clone(), namespace.clone(), id.clone());
        let command = async move { this.delete(&namespace, &id, force).await };
        to_the_end(&self.host_volumes.commands, command).await
    }

    /// Removes the hold of a group on a host volume. Returns the index.
    ///
    /// # Errors
    /// If the hold does not exist.
    pub async fn delete_host_claim(&self, id: &str) -> Result<u64, ServerError> {
        self.host_volumes.delete_claim(id).await
    }

    /// Creates snapshots of volumes; `namespace` is that of the volumes. An invalid entry is refused.
    ///
    /// # Errors
    /// With the problems of each entry; the snapshots of the other entries have been created.
    pub async fn create_snapshots(
        &self,
        namespace: &Namespace,
        snapshots: Vec<Option<CsiSnapshot>>,
    ) -> Result<Vec<CsiSnapshot>, ServerError> {
        let (this, namespace) = (self.volumes.clone(), namespace.clone());
        to_the_end(&self.volumes.reconciler.commands, async move {
            this.create_snapshots(&namespace, snapshots).await
        })
        .await
    }

    /// Deletes a snapshot by its plugin; succeeds if the snapshot does not exist.
    ///
    /// # Errors
    /// If the plugin is not known, does not support the call or refuses.
    pub async fn delete_snapshot(
        &self,
        plugin: &PluginId,
        snapshot: &str,
        secrets: &Secrets,
    ) -> Result<(), ServerError> {
        self.delete_snapshot_as(Caller::unrestricted(), plugin, snapshot, secrets).await
    }

    /// As [`Handle::delete_snapshot`], for a caller, who must have the right to write the volume of the snapshot.
    ///
    /// # Errors
    /// As [`Handle::delete_snapshot`].
    pub async fn delete_snapshot_as(
        &self,
        caller: Caller,
        plugin: &PluginId,
        snapshot: &str,
        secrets: &Secrets,
    ) -> Result<(), ServerError> {
        let (this, plugin) = (self.volumes.clone(), plugin.clone());
        let (snapshot, secrets) = (snapshot.to_owned(), secrets.clone());
        to_the_end(&self.volumes.reconciler.commands, async move {
            this.delete_snapshot(&caller, &plugin, &snapshot, secrets).await
        })
        .await
    }

    /// Returns a page of a plugin's snapshots, and the token of the next page.
    ///
    /// # Errors
    /// If the plugin is not known or cannot list.
    pub async fn list_snapshots(
        &self,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
    ) -> Result<(Vec<CsiSnapshot>, String), ServerError> {
        self.list_snapshots_as(&Caller::unrestricted(), plugin, max_entries, starting_token, secrets).await
    }

    /// As [`Handle::list_snapshots`], for a caller: snapshots of volumes that the caller may not list are omitted.
    ///
    /// # Errors
    /// As [`Handle::list_snapshots`].
    pub async fn list_snapshots_as(
        &self,
        caller: &Caller,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
    ) -> Result<(Vec<CsiSnapshot>, String), ServerError> {
        self.volumes.list_snapshots(caller, plugin, max_entries, starting_token, secrets).await
    }

    /// Returns a variable with its opened items.
    ///
    /// # Errors
    /// If the items cannot be opened.
    pub fn open_variable(&self, row: &Variable) -> Result<VariableDecrypted, ServerError> {
        self.core.open_variable(row)
    }

    /// Writes a variable. With `check_index`, only if the variable was last changed at that index (0: only if it is
    /// new). `lock` is the lock operation that the write includes.
    ///
    /// # Errors
    /// If path or items are invalid, or the change cannot be made durable.
    pub async fn write_variable(
        &self,
        key: VariableKey,
        items: &Secrets,
        check_index: Option<u64>,
        lock: LockUse,
    ) -> Result<VariableWritten, ServerError> {
        self.core.write_variable(key, items, check_index, lock).await
    }

    /// Acquires the lock of a variable, and creates the variable if it does not exist. Without new items, the existing
    /// ones stay.
    ///
    /// # Errors
    /// If path, items or lock are invalid, or the change cannot be made durable.
    pub async fn acquire_lock(
        &self,
        key: VariableKey,
        items: &Secrets,
        lock: VariableLock,
    ) -> Result<VariableWritten, ServerError> {
        let done = self.core.acquire_lock(key.clone(), items, lock).await?;
        if let VariableWritten::Done { variable: Some(variable), .. } = &done
            && let Some(lock) = &variable.metadata.lock
        {
            self.locks.renew(&key, lock);
        }
        Ok(done)
    }

    /// Releases the lock of a variable.
    ///
    /// # Errors
    /// If the lock is not held, or the change cannot be made durable.
    pub async fn release_lock(&self, key: VariableKey, id: String) -> Result<VariableWritten, ServerError> {
        self.core.release_lock(key, id).await
    }

    /// Renews the lock of a variable for its holder. Returns `None` if another holder has the lock.
    ///
    /// # Errors
    /// If the variable does not exist, or its lock is not held.
    pub fn renew_lock(&self, key: &VariableKey, id: &str) -> Result<Option<VariableMetadata>, ServerError> {
        let root = self.core.snapshot();
        let row = root.variable(key).ok_or_else(|| ServerError::not_found("variable doesn't exist"))?;
        let lock = row.lock.as_ref().ok_or_else(|| ServerError::refused("variable doesn't hold a lock"))?;
        if lock.id != id {
            return Ok(None);
        }
        self.locks.renew(key, lock);
        Ok(Some(row.metadata()))
    }

    /// Removes a variable; succeeds if the variable does not exist.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn delete_variable(
        &self,
        key: VariableKey,
        check_index: Option<u64>,
    ) -> Result<VariableWritten, ServerError> {
        self.core.delete_variable(key, check_index).await
    }

    /// Returns the reason why a claim waits, if it does.
    pub fn claim_wait(&self, claim: &ClaimId) -> Option<String> {
        self.claims.waits.reason(claim)
    }

    /// Explains the state of a volume and each of its claims; `None` if there is neither such a volume nor a claim on
    /// it.
    pub fn explain_volume(&self, key: &VolumeKey) -> Option<VolumeExplain> {
        explain::explain(&self.volumes.reconciler, &self.usage, key)
    }

    /// Returns how full a volume is, as reported by the nodes that use it.
    pub fn volume_usage(&self, root: &Root, key: &VolumeKey) -> BTreeMap<NodeId, VolumeUsage> {
        self.usage.of(root, key)
    }

    /// Returns metrics about volumes, their claims and the calls to their plugins.
    pub fn volume_figures(&self) -> VolumeFigures {
        VolumeFigures::of(&self.core.snapshot(), self.core.now(), &self.volumes.reconciler, &self.usage)
    }
}
