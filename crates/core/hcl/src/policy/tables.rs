//! The tables of policies, namespaces, node pools and quotas.

use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, labelled, many, one, required};

pub(super) static ACL: Schema = Schema {
    name: "policy",
    attributes: &[],
    blocks: &[
        one("agent", "Agent", Content::Schema(&POLICY_ONLY)),
        labelled("host_volume", "HostVolumes", &NAMED),
        labelled("namespace", "Namespaces", &NAMESPACE_RULE),
        one("node", "Node", Content::Schema(&POLICY_ONLY)),
        labelled("node_pool", "NodePools", &NAMED),
        one("operator", "Operator", Content::Schema(&NAMED)),
        one("plugin", "Plugin", Content::Schema(&POLICY_ONLY)),
        one("quota", "Quota", Content::Schema(&POLICY_ONLY)),
        one("sentinel", "Sentinel", Content::Schema(&POLICY_ONLY)),
    ],
    finish: None,
};

static POLICY_ONLY: Schema =
    Schema { name: "policy", attributes: &[attr("policy", "Policy", Kind::Str)], blocks: &[], finish: None };

static NAMED: Schema = Schema {
    name: "rule",
    attributes: &[attr("capabilities", "Capabilities", Kind::Strings), attr("policy", "Policy", Kind::Str)],
    blocks: &[],
    finish: None,
};

static NAMESPACE_RULE: Schema = Schema {
    name: "namespace",
    attributes: &[attr("capabilities", "Capabilities", Kind::Strings), attr("policy", "Policy", Kind::Str)],
    blocks: &[one("variables", "Variables", Content::Schema(&VARIABLES))],
    finish: None,
};

static VARIABLES: Schema = Schema {
    name: "variables",
    attributes: &[],
    blocks: &[BlockType {
        name: "path",
        key: "Paths",
        labels: &["path"],
        repeat: Repeat::Many,
        content: Content::Schema(&PATH),
        doc: "",
    }],
    finish: None,
};

static PATH: Schema = Schema {
    name: "path",
    attributes: &[attr("capabilities", "Capabilities", Kind::Strings)],
    blocks: &[],
    finish: None,
};

pub(super) static NAMESPACE: Schema = Schema {
    name: "namespace",
    attributes: &[
        attr("description", "Description", Kind::Str),
        required("name", "Name", Kind::Str),
        attr("quota", "Quota", Kind::Str),
    ],
    blocks: &[
        one("capabilities", "Capabilities", Content::Schema(&CAPABILITIES)),
        one("consul", "ConsulConfiguration", Content::Schema(&CHOICE)),
        one("meta", "Meta", Content::StringsOrAttribute),
        one("node_pool_config", "NodePoolConfiguration", Content::Schema(&CHOICE)),
        one("vault", "VaultConfiguration", Content::Schema(&CHOICE)),
    ],
    finish: None,
};

static CAPABILITIES: Schema = Schema {
    name: "capabilities",
    attributes: &[
        attr("disabled_network_modes", "DisabledNetworkModes", Kind::Strings),
        attr("disabled_task_drivers", "DisabledTaskDrivers", Kind::Strings),
        attr("enabled_network_modes", "EnabledNetworkModes", Kind::Strings),
        attr("enabled_task_drivers", "EnabledTaskDrivers", Kind::Strings),
    ],
    blocks: &[],
    finish: None,
};

static CHOICE: Schema = Schema {
    name: "configuration",
    attributes: &[
        attr("allowed", "Allowed", Kind::Strings),
        attr("default", "Default", Kind::Str),
        attr("denied", "Denied", Kind::Strings),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static NODE_POOL_FILE: Schema = Schema {
    name: "node pool file",
    attributes: &[],
    blocks: &[labelled("node_pool", "NodePools", &NODE_POOL)],
    finish: None,
};

static NODE_POOL: Schema = Schema {
    name: "node_pool",
    attributes: &[
        attr("description", "Description", Kind::Str),
        attr("node_identity_ttl", "NodeIdentityTTL", Kind::Duration),
    ],
    blocks: &[
        one("meta", "Meta", Content::StringsOrAttribute),
        one("scheduler_config", "SchedulerConfiguration", Content::Schema(&SCHEDULER)),
    ],
    finish: None,
};

static SCHEDULER: Schema = Schema {
    name: "scheduler_config",
    attributes: &[
        attr("memory_oversubscription_enabled", "MemoryOversubscriptionEnabled", Kind::Bool),
        attr("scheduler_algorithm", "SchedulerAlgorithm", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static QUOTA: Schema = Schema {
    name: "quota",
    attributes: &[attr("description", "Description", Kind::Str), required("name", "Name", Kind::Str)],
    blocks: &[many("limit", "Limits", &LIMIT)],
    finish: None,
};

static LIMIT: Schema = Schema {
    name: "limit",
    attributes: &[
        required("region", "Region", Kind::Str),
        attr("variables_limit", "VariablesLimit", Kind::Int),
    ],
    blocks: &[one("region_limit", "RegionLimit", Content::Schema(&REGION_LIMIT))],
    finish: None,
};

static REGION_LIMIT: Schema = Schema {
    name: "region_limit",
    attributes: &[
        attr("cores", "Cores", Kind::Int),
        attr("cpu", "CPU", Kind::Int),
        attr("memory", "MemoryMB", Kind::Int),
        attr("memory_max", "MemoryMaxMB", Kind::Int),
    ],
    blocks: &[labelled("device", "Devices", &DEVICE)],
    finish: None,
};

static DEVICE: Schema = Schema {
    name: "device",
    attributes: &[attr("count", "Count", Kind::Unsigned)],
    blocks: &[],
    finish: None,
};

pub(super) static VARIABLE: Schema = Schema {
    name: "variable",
    attributes: &[
        attr("create_index", "CreateIndex", Kind::Unsigned),
        attr("create_time", "CreateTime", Kind::Unsigned),
        attr("modify_index", "ModifyIndex", Kind::Unsigned),
        attr("modify_time", "ModifyTime", Kind::Unsigned),
        attr("namespace", "Namespace", Kind::Str),
        attr("path", "Path", Kind::Str),
    ],
    blocks: &[one("items", "Items", Content::StringsOrAttribute)],
    finish: None,
};
