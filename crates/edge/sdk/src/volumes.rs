//! CSI volumes and plugins (docs/reference/http-api.md, section 3.5).

use crate::client::Client;
use crate::config::Token;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use bytes::Bytes;
use caravan_types::id::{AllocId, JobId, NodeId};
use caravan_types::plugin::{Plugin, PluginListStub};
use caravan_types::ser::{Secrets, null_default};
use caravan_types::time::UnixNanos;
use caravan_types::volume::{
    ClaimMode, ClaimPhase, CsiSnapshot, CsiVolume, CsiVolumeStub, VolumeExplain, VolumeExternalStub,
    VolumePhase, VolumeRequestBody, VolumeUsage,
};
use http::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A claim for display: the allocation that uses the volume, the phase of the claim and its wait reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimView {
    /// The id of the allocation that holds the claim.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The node of the allocation.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The job of the allocation.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// Whether the allocation writes to the volume.
    pub mode: ClaimMode,
    /// The phase that the claim has reached.
    pub phase: ClaimPhase,
    /// The number of failed tries of the current step.
    pub tries: u32,
    /// The plugin's message of the last failure.
    #[serde(deserialize_with = "null_default")]
    pub last_error: String,
    /// The reason why the next step waits.
    #[serde(deserialize_with = "null_default")]
    pub waits_for: String,
    /// The time of the next try; 0 means an immediate try.
    pub next_try: UnixNanos,
    /// The time of the claim's last change.
    pub modify_time: UnixNanos,
}

/// A volume with the additional facts that Caravan's agents report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeDetail {
    /// The volume itself.
    #[serde(flatten)]
    pub volume: CsiVolume,
    /// The claims on the volume.
    #[serde(rename = "CaravanClaims", deserialize_with = "null_default")]
    pub claims: Vec<ClaimView>,
    /// The phase of the volume itself.
    #[serde(rename = "CaravanPhase", deserialize_with = "null_default")]
    pub phase: Option<VolumePhase>,
    /// The plugin's message of the last failure.
    #[serde(rename = "CaravanLastError", deserialize_with = "null_default")]
    pub last_error: String,
    /// The bytes and inodes in use, by node; empty if no node has reported them.
    #[serde(rename = "CaravanUsage", skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<NodeId, VolumeUsage>,
}

/// The answer to registering or creating volumes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumesResponse {
    /// The volumes after the change.
    #[serde(deserialize_with = "null_default")]
    pub volumes: Vec<CsiVolume>,
    /// Warnings for users; empty without any.
    #[serde(deserialize_with = "null_default")]
    pub warnings: String,
}

/// A page of volumes as a plugin lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExternalVolumes {
    /// The volumes of this page.
    #[serde(deserialize_with = "null_default")]
    pub volumes: Vec<VolumeExternalStub>,
    /// The start of the next page; empty on the last page.
    pub next_token: String,
}

/// A page of snapshots, newly created or as a plugin lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SnapshotPage {
    /// The snapshots of this page.
    #[serde(deserialize_with = "null_default")]
    pub snapshots: Vec<CsiSnapshot>,
    /// The start of the next page; empty on the last page.
    #[serde(deserialize_with = "null_default")]
    pub next_token: String,
}

/// Encodes secrets as a header; empty without secrets.
fn secrets_header(secrets: &Secrets) -> Vec<(&'static str, Token)> {
    let pairs: Vec<String> = secrets.expose().iter().map(|(k, v)| format!("{k}={v}")).collect();
    match pairs.is_empty() {
        true => Vec::new(),
        false => vec![("X-Nomad-CSI-Secrets", Token::new(pairs.join(",")))],
    }
}

/// The routes of CSI volumes, from [`Client::volumes`].
#[derive(Clone, Copy, Debug)]
pub struct Volumes<'a>(&'a Client);

/// The routes of plugins, from [`Client::plugins`].
#[derive(Clone, Copy, Debug)]
pub struct Plugins<'a>(&'a Client);

impl Client {
    /// Returns the routes of CSI volumes.
    pub fn volumes(&self) -> Volumes<'_> {
        Volumes(self)
    }

    /// Returns the routes of plugins.
    pub fn plugins(&self) -> Plugins<'_> {
        Plugins(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Volumes<'_> {
    /// Lists volumes.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<CsiVolumeStub>>, Error> {
        self.0.get("/v1/volumes", &query.clone().param("type", "csi")).await
    }

    /// Returns a volume by its id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<VolumeDetail>, Error> {
        self.0.get(&path("/v1/volume/csi/{}", &[id]), query).await
    }

    /// Explains the state of a volume and of each of its claims.
    pub async fn explain(&self, id: &str, query: &QueryOptions) -> Result<Response<VolumeExplain>, Error> {
        self.0.get(&path("/v1/volume/csi/{}/explain", &[id]), query).await
    }

    /// Registers a volume that exists at its plugin.
    pub async fn register(
        &self,
        volume: &VolumeRequestBody,
        query: &QueryOptions,
    ) -> Result<Response<VolumesResponse>, Error> {
        let body = serde_json::json!({"Volumes": [volume]});
        self.0.put(&path("/v1/volume/csi/{}", &[volume.id.as_str()]), query, &body).await
    }

    /// Creates a volume through its plugin.
    pub async fn create(
        &self,
        volume: &VolumeRequestBody,
        query: &QueryOptions,
    ) -> Result<Response<VolumesResponse>, Error> {
        let body = serde_json::json!({"Volumes": [volume]});
        self.0.put(&path("/v1/volume/csi/{}/create", &[volume.id.as_str()]), query, &body).await
    }

    /// Deregisters a volume; the plugin keeps its storage. With `force`, also if the volume is in use.
    pub async fn deregister(
        &self,
        id: &str,
        force: bool,
        query: &QueryOptions,
    ) -> Result<Response<()>, Error> {
        let query = query.clone().param("force", force.to_string());
        self.0.delete(&path("/v1/volume/csi/{}", &[id]), &query).await
    }

    /// Deletes a volume through its plugin. `secrets` are for the plugin; if they are empty, the servers use the
    /// secrets with which the volume was created.
    pub async fn delete(
        &self,
        id: &str,
        secrets: &Secrets,
        query: &QueryOptions,
    ) -> Result<Response<()>, Error> {
        let path = path("/v1/volume/csi/{}/delete", &[id]);
        self.0.call(Method::DELETE, &path, query, &secrets_header(secrets), Bytes::new()).await
    }

    /// Releases the claims of a node.
    pub async fn detach(&self, id: &str, node: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        let query = query.clone().param("node", node);
        self.0.delete(&path("/v1/volume/csi/{}/detach", &[id]), &query).await
    }

    /// Creates a snapshot of a volume through its plugin. The request carries the snapshot's secrets.
    pub async fn create_snapshot(
        &self,
        snapshot: &CsiSnapshot,
        query: &QueryOptions,
    ) -> Result<Response<SnapshotPage>, Error> {
        let body = serde_json::json!({"Snapshots": [{
            "SourceVolumeID": snapshot.source_volume_id,
            "PluginID": snapshot.plugin_id,
            "Name": snapshot.name,
            "Secrets": snapshot.secrets,
            "Parameters": snapshot.parameters,
        }]});
        self.0.put("/v1/volumes/snapshot", query, &body).await
    }

    /// Deletes a snapshot through its plugin.
    pub async fn delete_snapshot(
        &self,
        plugin: &str,
        snapshot: &str,
        secrets: &Secrets,
        query: &QueryOptions,
    ) -> Result<Response<()>, Error> {
        let query = query.clone().param("plugin_id", plugin).param("snapshot_id", snapshot);
        let headers = secrets_header(secrets);
        self.0.call(Method::DELETE, "/v1/volumes/snapshot", &query, &headers, Bytes::new()).await
    }

    /// Lists snapshots as the plugin reports them.
    pub async fn list_snapshots(
        &self,
        plugin: &str,
        secrets: &Secrets,
        query: &QueryOptions,
    ) -> Result<Response<SnapshotPage>, Error> {
        let query = query.clone().param("plugin_id", plugin);
        let headers = secrets_header(secrets);
        self.0.call(Method::GET, "/v1/volumes/snapshot", &query, &headers, Bytes::new()).await
    }

    /// Lists volumes as the plugin reports them.
    pub async fn list_external(
        &self,
        plugin: &str,
        query: &QueryOptions,
    ) -> Result<Response<ExternalVolumes>, Error> {
        self.0.get("/v1/volumes/external", &query.clone().param("plugin_id", plugin)).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Plugins<'_> {
    /// Lists CSI plugins.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<PluginListStub>>, Error> {
        self.0.get("/v1/plugins", &query.clone().param("type", "csi")).await
    }

    /// Returns a CSI plugin by its id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Plugin>, Error> {
        self.0.get(&path("/v1/plugin/csi/{}", &[id]), query).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_any_agent_is_read() {
        let detail: VolumeDetail = serde_json::from_str(
            r#"{"ID":"data","ReadAllocs":{},"WriteAllocs":{"a":null},"Schedulable":true}"#,
        )
        .unwrap();
        assert!(detail.volume.schedulable && detail.claims.is_empty() && detail.phase.is_none());
        assert!(detail.volume.write_allocs.contains_key("a"));
        let detail: VolumeDetail = serde_json::from_str(
            r#"{"ID":"data","CaravanPhase":"ready","CaravanLastError":"","CaravanClaims":[
                {"AllocID":"a","Mode":"write","Phase":"attaching","Tries":2,"LastError":"busy","NextTry":0,"WaitsFor":null}]}"#,
        )
        .unwrap();
        assert_eq!(detail.claims[0].phase, ClaimPhase::Attaching);
        assert_eq!(detail.phase, Some(VolumePhase::Ready));
    }
}
