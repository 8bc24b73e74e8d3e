//! The rules of a policy as data, with the shape of `RulesJSON` (docs/reference/http-api.md, section 5.8).

use serde::{Deserialize, Serialize};

/// Everything that a policy says. Shorthands are written out already.
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

/// `namespace "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct NamespaceRules {
    pub name: String,
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
    pub variables: Option<VariableRules>,
}

/// `variables { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct VariableRules {
    pub paths: Option<Vec<VariablePath>>,
}

/// `path "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct VariablePath {
    pub path_spec: String,
    pub capabilities: Option<Vec<String>>,
}

/// `node_pool "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct NodePoolRules {
    pub name: String,
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
}

/// `host_volume "glob" { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct HostVolumeRules {
    pub name: String,
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
}

/// `agent { policy = "..." }` and the like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct PolicyRule {
    pub policy: String,
}

/// `operator { ... }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct CapabilityRules {
    pub policy: String,
    pub capabilities: Option<Vec<String>>,
}
