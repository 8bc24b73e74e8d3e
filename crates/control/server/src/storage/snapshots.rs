//! The users' requests about snapshots.

use crate::acl::Caller;
use crate::error::ServerError;
use crate::server::{Parts, to_the_end};
use caravan_types::ser::Secrets;
use caravan_types::volume::CsiSnapshot;
use caravan_types::{Namespace, PluginId};
use std::sync::Arc;

/// The requests about snapshots that a server answers.
#[derive(Clone, Debug)]
pub struct SnapshotRequests(pub(crate) Arc<Parts>);

impl SnapshotRequests {
    /// Creates snapshots of volumes; `namespace` is the namespace of the volumes. An invalid entry is refused.
    ///
    /// # Errors
    /// With the problems of each entry; the snapshots of the other entries have been created.
    pub async fn create(
        self,
        namespace: &Namespace,
        snapshots: Vec<Option<CsiSnapshot>>,
    ) -> Result<Vec<CsiSnapshot>, ServerError> {
        let (this, namespace) = (self.0.volumes.clone(), namespace.clone());
        to_the_end(&self.0.volumes.reconciler.commands, async move {
            this.create_snapshots(&namespace, snapshots).await
        })
        .await
    }

    /// Deletes a snapshot by its plugin; succeeds if the snapshot does not exist.
    ///
    /// # Errors
    /// If the plugin does not exist, does not support the call or refuses.
    pub async fn delete(
        self,
        plugin: &PluginId,
        snapshot: &str,
        secrets: &Secrets,
    ) -> Result<(), ServerError> {
        self.delete_as(Caller::unrestricted(), plugin, snapshot, secrets).await
    }

    /// Does the same as [`SnapshotRequests::delete`] for a caller, who must have the right to write the volume of the
    /// snapshot.
    ///
    /// # Errors
    /// As [`SnapshotRequests::delete`].
    pub async fn delete_as(
        self,
        caller: Caller,
        plugin: &PluginId,
        snapshot: &str,
        secrets: &Secrets,
    ) -> Result<(), ServerError> {
        let (this, plugin) = (self.0.volumes.clone(), plugin.clone());
        let (snapshot, secrets) = (snapshot.to_owned(), secrets.clone());
        to_the_end(&self.0.volumes.reconciler.commands, async move {
            this.delete_snapshot(&caller, &plugin, &snapshot, secrets).await
        })
        .await
    }

    /// Returns a page of a plugin's snapshots, and the token of the next page.
    ///
    /// # Errors
    /// If the plugin does not exist or cannot list.
    pub async fn list(
        self,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
    ) -> Result<(Vec<CsiSnapshot>, String), ServerError> {
        self.list_as(&Caller::unrestricted(), plugin, max_entries, starting_token, secrets).await
    }

    /// Does the same as [`SnapshotRequests::list`] for a caller: snapshots of volumes that the caller may not list
    /// are omitted.
    ///
    /// # Errors
    /// As [`SnapshotRequests::list`].
    pub async fn list_as(
        self,
        caller: &Caller,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
    ) -> Result<(Vec<CsiSnapshot>, String), ServerError> {
        self.0.volumes.list_snapshots(caller, plugin, max_entries, starting_token, secrets).await
    }
}
