//! The users' requests about host volumes.

use crate::error::ServerError;
use crate::server::{Parts, to_the_end};
use caravan_types::host_volume::{HostVolume, HostVolumeSpec};
use caravan_types::{HostVolumeId, Namespace};
use std::sync::Arc;

/// The requests about host volumes that a server answers.
#[derive(Clone, Debug)]
pub struct HostVolumeRequests(pub(crate) Arc<Parts>);

impl HostVolumeRequests {
    /// Creates a host volume on a node by its plugin, or updates an existing one; `namespace` applies to a
    /// specification without a namespace.
    ///
    /// # Errors
    /// With the problems of the specification, the reason why no node fits, or the plugin's error.
    pub async fn create(
        self,
        namespace: &Namespace,
        spec: HostVolumeSpec,
    ) -> Result<Arc<HostVolume>, ServerError> {
        let (this, namespace) = (self.0.host_volumes.clone(), namespace.clone());
        to_the_end(&self.0.host_volumes.commands, async move { this.create(&namespace, spec).await }).await
    }

    /// Registers a directory of a node as a host volume.
    ///
    /// # Errors
    /// With the problems of the specification, or the reason why the node refuses.
    pub async fn register(
        self,
        namespace: &Namespace,
        spec: HostVolumeSpec,
    ) -> Result<Arc<HostVolume>, ServerError> {
        let (this, namespace) = (self.0.host_volumes.clone(), namespace.clone());
        to_the_end(&self.0.host_volumes.commands, async move { this.register(&namespace, spec).await }).await
    }

    /// Deletes a host volume on its node, then removes its row. Returns the index.
    ///
    /// # Errors
    /// If the volume does not exist, is in use or held, its node is unreachable (unless forced), or the plugin
    /// refuses.
    pub async fn delete(
        self,
        namespace: &Namespace,
        id: &HostVolumeId,
        force: bool,
    ) -> Result<u64, ServerError> {
        let (this, namespace, id) = (self.0.host_volumes.clone(), namespace.clone(), id.clone());
        let command = async move { this.delete(&namespace, &id, force).await };
        to_the_end(&self.0.host_volumes.commands, command).await
    }

    /// Removes the hold of a group on a host volume. Returns the index.
    ///
    /// # Errors
    /// If the hold does not exist.
    pub async fn delete_claim(self, id: &str) -> Result<u64, ServerError> {
        self.0.host_volumes.delete_claim(id).await
    }
}
