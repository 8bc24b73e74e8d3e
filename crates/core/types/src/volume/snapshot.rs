//! Snapshots of volumes in the form of the HTTP API. Only the plugin stores snapshots, not the servers.

use crate::id::{PluginId, VolumeId};
use crate::ser::{Secrets, nil, null_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A snapshot in a request or a response. Secrets are read from requests and never written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 5.2")]
pub struct CsiSnapshot {
    #[serde(rename = "ID", deserialize_with = "null_default")]
    pub id: String,
    #[serde(rename = "ExternalSourceVolumeID", deserialize_with = "null_default")]
    pub external_source_volume_id: String,
    #[serde(deserialize_with = "null_default")]
    pub size_bytes: i64,
    /// The time of the snapshot, in seconds since the epoch.
    #[serde(deserialize_with = "null_default")]
    pub create_time: i64,
    #[serde(deserialize_with = "null_default")]
    pub is_ready: bool,
    #[serde(rename = "SourceVolumeID", deserialize_with = "null_default")]
    pub source_volume_id: VolumeId,
    #[serde(rename = "PluginID", deserialize_with = "null_default")]
    pub plugin_id: PluginId,
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    #[serde(deserialize_with = "null_default", serialize_with = "never")]
    pub secrets: Secrets,
    #[serde(with = "nil")]
    pub parameters: BTreeMap<String, String>,
}

fn never<S: serde::Serializer>(_: &Secrets, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_and_never_written() {
        let read: CsiSnapshot = serde_json::from_str(r#"{"Name":"s","Secrets":{"k":"hunter2"}}"#).unwrap();
        assert_eq!(read.secrets.expose()["k"], "hunter2");
        let json = serde_json::to_string(&read).unwrap();
        assert!(json.contains(r#""Secrets":null"#) && !json.contains("hunter2"));
    }
}
