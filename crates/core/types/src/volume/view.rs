//! Volumes in the form of requests and responses (docs/reference/storage.md, section 5.2).

use super::{AccessMode, AttachmentMode, Capability, Claim, ClaimMode, Topology, TopologyRequest, Volume};
use crate::alloc::AllocListStub;
use crate::id::{AllocId, Namespace, PluginId, VolumeId};
use crate::job::MountOptions;
use crate::plugin::Plugin;
use crate::ser::{Secrets, nil, null_default};
use crate::time::{Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A volume in a request to register or create it. Other keys are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 5.2")]
pub struct VolumeRequestBody {
    #[serde(rename = "ID", deserialize_with = "null_default")]
    pub id: VolumeId,
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    #[serde(rename = "ExternalID", deserialize_with = "null_default")]
    pub external_id: String,
    #[serde(deserialize_with = "null_default")]
    pub namespace: Namespace,
    pub requested_topologies: Option<TopologyRequest>,
    #[serde(with = "nil")]
    pub topologies: Vec<Topology>,
    #[serde(deserialize_with = "null_default")]
    pub access_mode: AccessMode,
    #[serde(deserialize_with = "null_default")]
    pub attachment_mode: AttachmentMode,
    pub mount_options: Option<MountOptions>,
    #[serde(deserialize_with = "null_default")]
    pub secrets: Secrets,
    /// The secrets that are looked up in variables at each call: name of the secret to `path#name`.
    #[serde(with = "nil", skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets_from: BTreeMap<String, String>,
    #[serde(with = "nil")]
    pub parameters: BTreeMap<String, String>,
    #[serde(with = "nil")]
    pub context: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_min: i64,
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_max: i64,
    #[serde(with = "nil")]
    pub requested_capabilities: Vec<Capability>,
    #[serde(rename = "CloneID", deserialize_with = "null_default")]
    pub clone_id: String,
    #[serde(rename = "SnapshotID", deserialize_with = "null_default")]
    pub snapshot_id: String,
    #[serde(rename = "PluginID", deserialize_with = "null_default")]
    pub plugin_id: PluginId,
    /// Whether other volumes may stand for the same storage; all of them must set this, and none may be for writing.
    #[serde(
        rename = "CaravanSharedStorage",
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub shared_storage: bool,
}

/// A volume in a response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 5.2")]
pub struct CsiVolume {
    #[serde(rename = "ID")]
    pub id: VolumeId,
    pub name: String,
    #[serde(rename = "ExternalID")]
    pub external_id: String,
    pub namespace: Namespace,
    pub requested_topologies: Option<TopologyRequest>,
    #[serde(deserialize_with = "null_default")]
    pub topologies: Vec<Topology>,
    pub access_mode: AccessMode,
    pub attachment_mode: AttachmentMode,
    /// The mount options; present even if the user set none.
    pub mount_options: Option<MountOptions>,
    /// The secrets, always `null`.
    pub secrets: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "null_default")]
    pub parameters: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_default")]
    pub context: BTreeMap<String, String>,
    pub capacity: i64,
    pub requested_capacity_min: i64,
    pub requested_capacity_max: i64,
    #[serde(with = "nil")]
    pub requested_capabilities: Vec<Capability>,
    #[serde(rename = "CloneID")]
    pub clone_id: String,
    #[serde(rename = "SnapshotID")]
    pub snapshot_id: String,
    /// The ids of reading allocations, with `null` as values.
    pub read_allocs: BTreeMap<AllocId, Option<()>>,
    /// The ids of writing allocations, with `null` as values.
    pub write_allocs: BTreeMap<AllocId, Option<()>>,
    pub allocations: Vec<AllocListStub>,
    pub schedulable: bool,
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    pub provider: String,
    pub provider_version: String,
    pub controller_required: bool,
    pub controllers_healthy: u32,
    pub controllers_expected: u32,
    pub nodes_healthy: u32,
    pub nodes_expected: u32,
    pub resource_exhausted: Time,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
    /// Whether other volumes may stand for the same storage.
    #[serde(rename = "CaravanSharedStorage", skip_serializing_if = "std::ops::Not::not")]
    pub shared_storage: bool,
}

/// A volume as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 5.2")]
pub struct CsiVolumeStub {
    #[serde(rename = "ID")]
    pub id: VolumeId,
    pub namespace: Namespace,
    pub name: String,
    #[serde(rename = "ExternalID")]
    pub external_id: String,
    #[serde(deserialize_with = "null_default")]
    pub topologies: Vec<Topology>,
    pub access_mode: AccessMode,
    pub attachment_mode: AttachmentMode,
    pub current_readers: u32,
    pub current_writers: u32,
    pub schedulable: bool,
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    pub provider: String,
    pub controller_required: bool,
    pub controllers_healthy: u32,
    pub controllers_expected: u32,
    pub nodes_healthy: u32,
    pub nodes_expected: u32,
    pub resource_exhausted: Time,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}

/// A volume in the list of its plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 5.2")]
pub struct VolumeExternalStub {
    #[serde(rename = "ExternalID")]
    pub external_id: String,
    pub capacity_bytes: i64,
    #[serde(with = "nil")]
    pub volume_context: BTreeMap<String, String>,
    #[serde(rename = "CloneID")]
    pub clone_id: String,
    #[serde(rename = "SnapshotID")]
    pub snapshot_id: String,
    #[serde(rename = "PublishedExternalNodeIDs", with = "nil")]
    pub published_external_node_ids: Vec<String>,
    pub is_abnormal: bool,
    pub status: String,
}

impl CsiVolume {
    /// Returns the view of a volume from its row, its claims that still hold, and its plugin.
    ///
    /// `stubs` are the allocations of live claims, readers first.
    pub fn project(
        volume: &Volume,
        claims: &[&Claim],
        plugin: Option<&Plugin>,
        stubs: Vec<AllocListStub>,
    ) -> Self {
        let allocs = |mode| {
            claims
                .iter()
                .filter(|c| c.phase.holds() && c.mode == mode)
                .map(|c| (c.id.alloc.clone(), None))
                .collect::<BTreeMap<_, _>>()
        };
        let first = claims.iter().find(|c| c.phase.holds());
        let mut options = volume.mount_options.clone().unwrap_or_default();
        if !options.mount_flags.is_empty() {
            options.mount_flags = vec!["[REDACTED]".into()];
        }
        let counts = plugin.map(Plugin::stub).unwrap_or_default();
        Self {
            id: volume.id.clone(),
            name: volume.name.clone(),
            external_id: volume.external_id.clone(),
            namespace: volume.namespace.clone(),
            requested_topologies: volume.requested_topologies.clone(),
            topologies: volume.topologies.clone(),
            access_mode: first.map(|c| c.access_mode).unwrap_or_default(),
            attachment_mode: first.map(|c| c.attachment_mode).unwrap_or_default(),
            mount_options: Some(options),
            secrets: None,
            parameters: volume.parameters.clone(),
            context: volume.context.clone(),
            capacity: volume.capacity.accepted,
            requested_capacity_min: volume.capacity.requested_min,
            requested_capacity_max: volume.capacity.requested_max,
            requested_capabilities: volume.requested_capabilities.clone(),
            clone_id: volume.clone_id.clone(),
            snapshot_id: volume.snapshot_id.clone(),
            read_allocs: allocs(ClaimMode::Read),
            write_allocs: allocs(ClaimMode::Write),
            allocations: stubs,
            schedulable: volume.phase.is_usable() && schedulable(&counts),
            plugin_id: volume.plugin_id.clone(),
            provider: plugin.map_or_else(|| volume.provider.clone(), |p| p.provider.clone()),
            provider_version: plugin.map_or_else(|| volume.provider_version.clone(), |p| p.version.clone()),
            controller_required: counts.controller_required,
            controllers_healthy: counts.controllers_healthy,
            controllers_expected: counts.controllers_expected,
            nodes_healthy: counts.nodes_healthy,
            nodes_expected: counts.nodes_expected,
            resource_exhausted: Time(0),
            create_index: volume.create_index,
            modify_index: volume.modify_index,
            create_time: volume.create_time,
            modify_time: volume.modify_time,
            shared_storage: volume.shared_storage,
        }
    }

    /// Returns the volume as an element of a list.
    pub fn stub(&self) -> CsiVolumeStub {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        CsiVolumeStub {
            id: self.id.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            external_id: self.external_id.clone(),
            topologies: self.topologies.clone(),
            access_mode: self.access_mode,
            attachment_mode: self.attachment_mode,
            current_readers: count(self.read_allocs.len()),
            current_writers: count(self.write_allocs.len()),
            schedulable: self.schedulable,
            plugin_id: self.plugin_id.clone(),
            provider: self.provider.clone(),
            controller_required: self.controller_required,
            controllers_healthy: self.controllers_healthy,
            controllers_expected: self.controllers_expected,
            nodes_healthy: self.nodes_healthy,
            nodes_expected: self.nodes_expected,
            resource_exhausted: self.resource_exhausted,
            create_index: self.create_index,
            modify_index: self.modify_index,
            create_time: self.create_time,
            modify_time: self.modify_time,
        }
    }
}

fn schedulable(counts: &crate::plugin::PluginListStub) -> bool {
    counts.nodes_healthy > 0 && (!counts.controller_required || counts.controllers_healthy > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_never_show_secrets_or_flags() {
        let volume = Volume {
            mount_options: Some(MountOptions {
                fs_type: "ext4".into(),
                mount_flags: vec!["password=hunter2".into()],
            }),
            ..Default::default()
        };
        let json = serde_json::to_string(&CsiVolume::project(&volume, &[], None, vec![])).unwrap();
        assert!(!json.contains("hunter2"));
        assert!(json.contains("[REDACTED]") && json.contains("\"Secrets\":null"));
        assert!(!format!("{volume:?}").contains("hunter2"));
    }

    #[test]
    fn sharing_is_shown_where_it_was_asked_for() {
        let shown = |shared_storage| {
            let volume = Volume { shared_storage, ..Default::default() };
            serde_json::to_value(CsiVolume::project(&volume, &[], None, vec![])).unwrap()
        };
        assert_eq!(shown(false).get("CaravanSharedStorage"), None);
        assert_eq!(shown(true)["CaravanSharedStorage"], true);
    }
}
