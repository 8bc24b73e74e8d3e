//! The tables of volume specifications.

use crate::diag::Diagnostic;
use crate::job::tables::CONSTRAINT;
use crate::schema::{Content, Header, Kind, Object, Schema, attr, many, one};
use serde_json::Value as Json;

/// Arguments that are sizes: the name, the key while decoding, and the final keys.
pub(super) const SIZES: [(&str, &str, &[&str]); 3] = [
    ("capacity_min", "~capacity_min", &["RequestedCapacityMin", "RequestedCapacityMinBytes"]),
    ("capacity_max", "~capacity_max", &["RequestedCapacityMax", "RequestedCapacityMaxBytes"]),
    ("capacity", "~capacity", &["CapacityBytes"]),
];

pub(super) static CSI: Schema = Schema {
    name: "csi volume",
    attributes: &[
        attr("capacity_max", "~capacity_max", Kind::Str),
        attr("capacity_min", "~capacity_min", Kind::Str),
        attr("clone_id", "CloneID", Kind::Str),
        attr("external_id", "ExternalID", Kind::Str),
        attr("id", "ID", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("namespace", "Namespace", Kind::Str),
        attr("plugin_id", "PluginID", Kind::Str),
        attr("shared_storage", "CaravanSharedStorage", Kind::Bool),
        attr("snapshot_id", "SnapshotID", Kind::Str),
        attr("type", "~type", Kind::Str),
    ],
    blocks: &[
        many("capability", "RequestedCapabilities", &CAPABILITY),
        one("context", "Context", Content::StringsOrAttribute),
        one("mount_options", "MountOptions", Content::Schema(&MOUNT_OPTIONS)),
        one("parameters", "Parameters", Content::StringsOrAttribute),
        one("secrets", "Secrets", Content::StringsOrAttribute),
        one("secrets_from", "SecretsFrom", Content::StringsOrAttribute),
        one("topology_request", "RequestedTopologies", Content::Schema(&TOPOLOGY_REQUEST)),
    ],
    finish: None,
};

pub(super) static HOST: Schema = Schema {
    name: "host volume",
    attributes: &[
        attr("capacity", "~capacity", Kind::Str),
        attr("capacity_max", "~capacity_max", Kind::Str),
        attr("capacity_min", "~capacity_min", Kind::Str),
        attr("host_path", "HostPath", Kind::Str),
        attr("id", "ID", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("namespace", "Namespace", Kind::Str),
        attr("node_id", "NodeID", Kind::Str),
        attr("node_pool", "NodePool", Kind::Str),
        attr("plugin_id", "PluginID", Kind::Str),
        attr("type", "~type", Kind::Str),
    ],
    blocks: &[
        many("capability", "RequestedCapabilities", &CAPABILITY),
        many("constraint", "Constraints", &CONSTRAINT),
        one("parameters", "Parameters", Content::StringsOrAttribute),
    ],
    finish: None,
};

static CAPABILITY: Schema = Schema {
    name: "capability",
    attributes: &[
        attr("access_mode", "AccessMode", Kind::Str),
        attr("attachment_mode", "AttachmentMode", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static MOUNT_OPTIONS: Schema = Schema {
    name: "mount_options",
    attributes: &[attr("fs_type", "FSType", Kind::Str), attr("mount_flags", "MountFlags", Kind::Strings)],
    blocks: &[],
    finish: None,
};

static TOPOLOGY_REQUEST: Schema = Schema {
    name: "topology_request",
    attributes: &[],
    blocks: &[
        one("preferred", "Preferred", Content::Schema(&TOPOLOGIES)),
        one("required", "Required", Content::Schema(&TOPOLOGIES)),
    ],
    finish: Some(topology_request),
};

static TOPOLOGIES: Schema = Schema {
    name: "topologies",
    attributes: &[],
    blocks: &[many("topology", "~list", &TOPOLOGY)],
    finish: None,
};

static TOPOLOGY: Schema = Schema {
    name: "topology",
    attributes: &[],
    blocks: &[one("segments", "Segments", Content::StringsOrAttribute)],
    finish: None,
};

/// Converts `required { topology {} }` to a list.
fn topology_request(object: &mut Object, _: &Header<'_>) -> Result<(), Box<Diagnostic>> {
    for key in ["Preferred", "Required"] {
        if let Some(Json::Object(mut block)) = object.remove(key) {
            object.insert(key.to_owned(), block.remove("~list").unwrap_or(Json::Null));
        }
    }
    Ok(())
}
