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

/// A claim as people see it: who uses the volume, how far it got and what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimView {
    /// Allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// Its node.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// Its job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// Whether it writes.
    pub mode: ClaimMode,
    /// How far it got.
    pub phase: ClaimPhase,
    /// Failed tries of the step in progress.
    pub tries: u32,
    /// The plugin's words of the last failure.
    #[serde(deserialize_with = "null_default")]
    pub last_error: String,
    /// What the next step waits for.
    #[serde(deserialize_with = "null_default")]
    pub waits_for: String,
    /// When the step is tried again; 0 = at once.
    pub next_try: UnixNanos,
    /// When it got there.
    pub modify_time: UnixNanos,
}

/// A volume with what only our agents tell of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeDetail {
    /// The volume.
    #[serde(flatten)]
    pub volume: CsiVolume,
    /// Its claims.
    #[serde(rename = "CaravanClaims", deserialize_with = "null_default")]
    pub claims: Vec<ClaimView>,
    /// Its own life.
    #[serde(rename = "CaravanPhase", deserialize_with = "null_default")]
    pub phase: Option<VolumePhase>,
    /// The plugin's words of the last failure.
    #[serde(rename = "CaravanLastError", deserialize_with = "null_default")]
    pub last_error: String,
    /// How full it is, by node; empty when no node has told.
    #[serde(rename = "CaravanUsage", skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<NodeId, VolumeUsage>,
}

/// Answer to registering and creating volumes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumesResponse {
    /// The volumes as they are now.
    #[serde(deserialize_with = "null_default")]
    pub volumes: Vec<CsiVolume>,
    /// Warnings.
    #[serde(deserialize_with = "null_default")]
    pub warnings: String,
}

/// Volumes as a plugin lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExternalVolumes {
    /// The volumes.
    #[serde(deserialize_with = "null_default")]
    pub volumes: Vec<VolumeExternalStub>,
    /// Start of the next page; empty when there is none.
    pub next_token: String,
}

/// Snapshots, taken or as a plugin lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SnapshotPage {
    /// The snapshots.
    #[serde(deserialize_with = "null_default")]
    pub snapshots: Vec<CsiSnapshot>,
    /// Start of the next page; empty when there is none.
    #[serde(deserialize_with = "null_default")]
    pub next_token: String,
}

/// Secrets as a header, none without any.
fn secrets_header(secrets: &Secrets) -> Vec<(&'static str, Token)> {
    let pairs: Vec<String> = secrets.expose().iter().map(|(k, v)| format!("{k}={v}")).collect();
    match pairs.is_empty() {
        true => Vec::new(),
        false => vec![("X-Nomad-CSI-Secrets", Token::new(pairs.join(",")))],
    }
}

/// Routes of CSI volumes.
#[derive(Clone, Copy, Debug)]
pub struct Volumes<'a>(&'a Client);

/// Routes of plugins.
#[derive(Clone, Copy, Debug)]
pub struct Plugins<'a>(&'a Client);

impl Client {
    /// Routes of CSI volumes.
    pub fn volumes(&self) -> Volumes<'_> {
        Volumes(self)
    }

    /// Routes of plugins.
    pub fn plugins(&self) -> Plugins<'_> {
        Plugins(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Volumes<'_> {
    /// Lists volumes.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<CsiVolumeStub>>, Error> {
        self.0.get("/v1/volumes", &query.clone().param("type", "csi")).await
    }

    /// A volume.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<VolumeDetail>, Error> {
        self.0.get(&path("/v1/volume/csi/{}", &[id]), query).await
    }

    /// Where a volume and each of its claims stand, and why.
    pub async fn explain(&self, id: &str, query: &QueryOptions) -> Result<Response<VolumeExplain>, Error> {
        self.0.get(&path("/v1/volume/csi/{}/explain", &[id]), query).await
    }

    /// Makes known a volume that the plugin has already.
    pub async fn register(
        &self,
        volume: &VolumeRequestBody,
        query: &QueryOptions,
    ) -> Result<Response<VolumesResponse>, Error> {
        let body = serde_json::json!({"Volumes": [volume]});
        self.0.put(&path("/v1/volume/csi/{}", &[volume.id.as_str()]), query, &body).await
    }

    /// Has the plugin make a volume.
    pub async fn create(
        &self,
        volume: &VolumeRequestBody,
        query: &QueryOptions,
    ) -> Result<Response<VolumesResponse>, Error> {
        let body = serde_json::json!({"Volumes": [volume]});
        self.0.put(&path("/v1/volume/csi/{}/create", &[volume.id.as_str()]), query, &body).await
    }

    /// Forgets a volume; the plugin keeps it. `force` also when it is in use.
    pub async fn deregister(
        &self,
        id: &str,
        force: bool,
        query: &QueryOptions,
    ) -> Result<Response<()>, Error> {
        let query = query.clone().param("force", force.to_string());
        self.0.delete(&path("/v1/volume/csi/{}", &[id]), &query).await
    }

    /// Has the plugin delete a volume. The secrets are for the plugin; without any the servers use those
    /// that the volume was made with.
    pub async fn delete(
        &self,
        id: &str,
        secrets: &Secrets,
        query: &QueryOptions,
    ) -> Result<Response<()>, Error> {
        let path = path("/v1/volume/csi/{}/delete", &[id]);
        self.0.call(Method::DELETE, &path, query, &secrets_header(secrets), Bytes::new()).await
    }

    /// Ends the claims of a node.
    pub async fn detach(&self, id: &str, node: &str, query: &QueryOptions) -> Result<Response<()>, Error> {
        let query = query.clone().param("node", node);
        self.0.delete(&path("/v1/volume/csi/{}/detach", &[id]), &query).await
    }

    /// Has the plugin take a snapshot of a volume. Its secrets go with the request.
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

    /// Has the plugin delete a snapshot.
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

    /// Snapshots as the plugin lists them.
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

    /// Volumes as the plugin lists them.
    pub async fn list_external(
        &self,
        plugin: &str,
        query: &QueryOptions,
    ) -> Result<Response<ExternalVolumes>, Error> {
        self.0.get("/v1/volumes/external", &query.clone().param("plugin_id", plugin)).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Plugins<'_> {
    /// Lists CSI plugins.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<PluginListStub>>, Error> {
        self.0.get("/v1/plugins", &query.clone().param("type", "csi")).await
    }

    /// A CSI plugin.
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
