//! Host volumes and the holds of groups on them (docs/reference/storage.md, section 8.2).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::host_volume::{HostVolume, HostVolumeClaim, HostVolumeSpec, HostVolumeStub};
use caravan_types::ser::null_default;
use serde::Deserialize;

/// Answer to creating and registering a host volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeResponse {
    /// The volume as it is now.
    pub volume: HostVolume,
    /// Warnings.
    #[serde(deserialize_with = "null_default")]
    pub warnings: String,
    /// Index of the change.
    pub index: u64,
}

/// Routes of host volumes.
#[derive(Clone, Copy, Debug)]
pub struct HostVolumes<'a>(&'a Client);

impl Client {
    /// Routes of host volumes.
    pub fn host_volumes(&self) -> HostVolumes<'_> {
        HostVolumes(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl HostVolumes<'_> {
    /// Lists host volumes.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<HostVolumeStub>>, Error> {
        self.0.get("/v1/volumes", &query.clone().param("type", "host")).await
    }

    /// A host volume, by its whole id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<HostVolume>, Error> {
        self.0.get(&path("/v1/volume/host/{}", &[id]), query).await
    }

    /// Has a plugin on a node make a host volume, or bring one up to date.
    pub async fn create(
        &self,
        volume: &HostVolumeSpec,
        query: &QueryOptions,
    ) -> Result<Response<HostVolumeResponse>, Error> {
        self.0.put("/v1/volume/host/create", query, &serde_json::json!({"Volume": volume})).await
    }

    /// Makes a directory of a node known as a host volume.
    pub async fn register(
        &self,
        volume: &HostVolumeSpec,
        query: &QueryOptions,
    ) -> Result<Response<HostVolumeResponse>, Error> {
        self.0.put("/v1/volume/host/register", query, &serde_json::json!({"Volume": volume})).await
    }

    /// Has its node delete a host volume. `force`: also when the node is gone.
    pub async fn delete(
        &self,
        id: &str,
        force: bool,
        query: &QueryOptions,
    ) -> Result<Response<serde_json::Value>, Error> {
        let query = query.clone().param("force", force.to_string());
        self.0.delete(&path("/v1/volume/host/{}", &[id]), &query).await
    }

    /// Lists the holds of groups on host volumes.
    pub async fn claims(&self, query: &QueryOptions) -> Result<Response<Vec<HostVolumeClaim>>, Error> {
        self.0.get("/v1/volumes/claims", query).await
    }

    /// Removes the hold of a group.
    pub async fn delete_claim(&self, id: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/volumes/claim/{}", &[id]), query).await
    }
}
