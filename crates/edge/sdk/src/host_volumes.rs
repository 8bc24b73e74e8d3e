//! Host volumes and the claims of groups on them (docs/reference/storage.md, section 8.2).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::host_volume::{HostVolume, HostVolumeClaim, HostVolumeSpec, HostVolumeStub};
use caravan_types::ser::null_default;
use serde::Deserialize;

/// The answer to creating or registering a host volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeResponse {
    /// The volume after the change.
    pub volume: HostVolume,
    /// Warnings for users; empty without any.
    #[serde(deserialize_with = "null_default")]
    pub warnings: String,
    /// The index of the change.
    pub index: u64,
}

/// The routes of host volumes, from [`Client::host_volumes`].
#[derive(Clone, Copy, Debug)]
pub struct HostVolumes<'a>(&'a Client);

impl Client {
    /// Returns the routes of host volumes.
    pub fn host_volumes(&self) -> HostVolumes<'_> {
        HostVolumes(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl HostVolumes<'_> {
    /// Lists host volumes.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<HostVolumeStub>>, Error> {
        self.0.get("/v1/volumes", &query.clone().param("type", "host")).await
    }

    /// Returns a host volume by its full id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<HostVolume>, Error> {
        self.0.get(&path("/v1/volume/host/{}", &[id]), query).await
    }

    /// Creates a host volume through a plugin of a node, or updates an existing one.
    pub async fn create(
        &self,
        volume: &HostVolumeSpec,
        query: &QueryOptions,
    ) -> Result<Response<HostVolumeResponse>, Error> {
        self.0.put("/v1/volume/host/create", query, &serde_json::json!({"Volume": volume})).await
    }

    /// Registers an existing directory of a node as a host volume.
    pub async fn register(
        &self,
        volume: &HostVolumeSpec,
        query: &QueryOptions,
    ) -> Result<Response<HostVolumeResponse>, Error> {
        self.0.put("/v1/volume/host/register", query, &serde_json::json!({"Volume": volume})).await
    }

    /// Deletes a host volume through its node. With `force`, also if the node is lost.
    pub async fn delete(
        &self,
        id: &str,
        force: bool,
        query: &QueryOptions,
    ) -> Result<Response<serde_json::Value>, Error> {
        let query = query.clone().param("force", force.to_string());
        self.0.delete(&path("/v1/volume/host/{}", &[id]), &query).await
    }

    /// Lists the claims of groups on host volumes.
    pub async fn claims(&self, query: &QueryOptions) -> Result<Response<Vec<HostVolumeClaim>>, Error> {
        self.0.get("/v1/volumes/claims", query).await
    }

    /// Deletes the claim of a group.
    pub async fn delete_claim(&self, id: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        self.0.delete(&path("/v1/volumes/claim/{}", &[id]), query).await
    }
}
