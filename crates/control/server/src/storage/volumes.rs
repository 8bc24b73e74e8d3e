//! The users' requests about volumes.

use crate::acl::Caller;
use crate::error::ServerError;
use crate::server::{Parts, to_the_end};
use crate::volume::{VolumeFigures, explain};
use caravan_state::Root;
use caravan_types::ser::Secrets;
use caravan_types::volume::{
    CallInFlight, ClaimId, Volume, VolumeExplain, VolumeExternalStub, VolumeRequestBody, VolumeUsage,
};
use caravan_types::{Namespace, NodeId, PluginId, VolumeKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The requests about volumes that a server answers.
#[derive(Clone, Debug)]
pub struct VolumeRequests(pub(crate) Arc<Parts>);

impl VolumeRequests {
    /// Registers volumes that already exist; `namespace` applies to volumes without a namespace.
    ///
    /// # Errors
    /// With the problems of each volume.
    pub async fn register(
        self,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.register_as(Caller::unrestricted(), namespace, volumes).await
    }

    /// Does the same as [`VolumeRequests::register`] for a caller, who must have the right to read the variables from
    /// which secrets come.
    ///
    /// # Errors
    /// As [`VolumeRequests::register`].
    pub async fn register_as(
        self,
        caller: Caller,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        let (this, namespace) = (self.0.volumes.clone(), namespace.clone());
        let command = async move { this.register(&caller, &namespace, volumes).await };
        to_the_end(&self.0.volumes.reconciler.commands, command).await
    }

    /// Creates volumes by their plugins and registers them.
    ///
    /// # Errors
    /// With the problems of each volume.
    pub async fn create(
        self,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.create_as(Caller::unrestricted(), namespace, volumes).await
    }

    /// Does the same as [`VolumeRequests::create`] for a caller. The caller must have the right to read the variables
    /// from which secrets come, and to write the cloned volumes.
    ///
    /// # Errors
    /// As [`VolumeRequests::create`].
    pub async fn create_as(
        self,
        caller: Caller,
        namespace: &Namespace,
        volumes: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        let (this, namespace) = (self.0.volumes.clone(), namespace.clone());
        let command = async move { this.create(&caller, &namespace, volumes).await };
        to_the_end(&self.0.volumes.reconciler.commands, command).await
    }

    /// Deregisters a volume without calling its plugin.
    ///
    /// # Errors
    /// If the volume does not exist or is in use.
    pub async fn deregister(self, key: &VolumeKey, force: bool) -> Result<u64, ServerError> {
        let (this, key) = (self.0.volumes.clone(), key.clone());
        to_the_end(&self.0.volumes.reconciler.commands, async move { this.deregister(&key, force).await })
            .await
    }

    /// Deletes a volume by its plugin, then removes its row. `secrets` override the volume's secrets.
    ///
    /// # Errors
    /// If the volume does not exist, is in use, or the plugin refuses.
    pub async fn delete(self, key: &VolumeKey, secrets: &Secrets) -> Result<u64, ServerError> {
        let (this, key, secrets) = (self.0.volumes.clone(), key.clone(), secrets.clone());
        to_the_end(&self.0.volumes.reconciler.commands, async move { this.delete(&key, &secrets).await })
            .await
    }

    /// Releases a volume's claims on a node whose allocations have ended.
    ///
    /// # Errors
    /// If the volume does not exist, the node has no record, a call to the node fails, or an allocation still runs
    /// with the volume.
    pub async fn detach(self, key: &VolumeKey, node: &NodeId) -> Result<u64, ServerError> {
        let (this, key, node) = (self.0.volumes.clone(), key.clone(), node.clone());
        to_the_end(&self.0.volumes.reconciler.commands, async move { this.detach(&key, &node).await }).await
    }

    /// Returns a page of a plugin's volumes, and the token of the next page. Volumes of namespaces that the caller
    /// may not list are omitted.
    ///
    /// # Errors
    /// If the plugin does not exist or cannot list.
    pub async fn list_external(
        self,
        caller: &Caller,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
    ) -> Result<(Vec<VolumeExternalStub>, String), ServerError> {
        self.0.volumes.list_external(caller, plugin, max_entries, starting_token).await
    }

    /// Returns the reason why a claim waits, if the claim waits.
    pub fn claim_wait(self, claim: &ClaimId) -> Option<caravan_volumes::wait::Wait> {
        self.0.claims.waits.get(claim)
    }

    /// Returns the sentence that explains to users why a claim waits. A server that does not lead has the sentences
    /// of the leader while a subscriber reads [`crate::Handle::reason_changes`].
    pub fn wait_sentence(self, claim: &ClaimId) -> Option<String> {
        let own = self.0.claims.waits.get(claim).map(|wait| wait.to_string());
        own.or_else(|| self.0.mirror.sentence(claim))
    }

    /// Explains the state of a volume and each of its claims; `None` if neither the volume nor a claim on it exists.
    pub fn explain(self, key: &VolumeKey) -> Option<VolumeExplain> {
        explain::explain(&self.0.volumes.reconciler, &self.0.usage, key)
    }

    /// Returns the servers' calls to a plugin that are in progress, with their volumes.
    pub fn calls_of(self, plugin: &PluginId) -> Vec<(Option<VolumeKey>, CallInFlight)> {
        self.0.volumes.reconciler.controllers.calls.of_plugin(plugin)
    }

    /// Returns the use of the lanes in which the servers call a plugin. Only the leader calls plugins.
    pub fn lanes_of(self, plugin: &PluginId) -> Vec<crate::LaneUse> {
        self.0.volumes.reconciler.controllers.calls.lanes(plugin)
    }

    /// Returns the used capacity of a volume, as reported by the nodes that use the volume.
    pub fn usage(self, root: &Root, key: &VolumeKey) -> BTreeMap<NodeId, VolumeUsage> {
        self.0.usage.list(root, key)
    }

    /// Returns metrics about volumes, their claims and the calls to their plugins.
    pub fn figures(self) -> VolumeFigures {
        VolumeFigures::collect(
            &self.0.core.snapshot(),
            self.0.core.now(),
            &self.0.volumes.reconciler,
            &self.0.usage,
        )
    }
}
