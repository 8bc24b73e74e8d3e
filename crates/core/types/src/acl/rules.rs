//! The rules of a policy as data, with the shape of `RulesJSON` (docs/reference/http-api.md, section 5.8).

use serde::{Deserialize, Serialize};

/// All rules of a policy, with shorthands expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are the blocks of docs/reference/http-api.md, section 5.8")]
pub struct Rules {
    pub namespaces: Option<Vec<NamespaceRules>>,
    pub node_pools: Option<Vec<NodePoolRules>>,
    pub host_volumes: Option<Vec<HostVolumeRules>>,
    pub agent: Option<PolicyRule>,
    pub node: Option<PolicyRule>,
    pub operator: Option<CapabilityRules>,
    pub quota: Option<PolicyRule>,
    pub sentinel: Option<PolicyRule>,
    pub plugin: Option<PolicyRule>,
    pub raw: String,
    #[serde(rename = "ExtraKeysHCL")]
    pub extra_keys_hcl: Option<Vec<String>>,
}

/// The rules of a block `namespace "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct NamespaceRules {
    pub name: String,
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
    pub variables: Option<VariableRules>,
}

/// The rules of a block `variables { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct VariableRules {
    pub paths: Option<Vec<VariablePath>>,
}

/// The rules of a block `path "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct VariablePath {
    pub path_spec: String,
    pub capabilities: Option<Vec<String>>,
}

/// The rules of a block `node_pool "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct NodePoolRules {
    pub name: String,
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
}

/// The rules of a block `host_volume "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct HostVolumeRules {
    pub name: String,
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
}

/// The rule of a block `agent { policy = "..." }` or similar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct PolicyRule {
    pub policy: String,
}

/// The rules of a block `operator { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct CapabilityRules {
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
}
