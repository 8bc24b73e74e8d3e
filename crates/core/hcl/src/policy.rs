//! Parses operators' files (HCL 1 or JSON): ACL policy rules, namespaces, node pools and quotas
//! (docs/reference/http-api.md, section 5.8), with the same diagnostics as job files.

mod tables;
mod variable;
mod words;

pub use self::variable::{VariableSpec, parse_variable};
use crate::ast::Body;
use crate::diag::{Diagnostic, Diagnostics};
use crate::eval::{Evaluator, Scope};
use crate::parse::hcl1;
use crate::parse::json::{Member, Members};
use crate::schema::{Decoder, Header, Object, Schema};
use crate::source::{Source, Sources};
use caravan_api::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The rules of an ACL policy, as written: `policy` words are not expanded to capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclRules {
    /// `namespace "glob" {}`.
    pub namespaces: Vec<NamespaceRule>,
    /// `node_pool "glob" {}`.
    pub node_pools: Vec<NamedRule>,
    /// `host_volume "glob" {}`.
    pub host_volumes: Vec<NamedRule>,
    /// `agent {}`.
    pub agent: Option<PolicyRule>,
    /// `node {}`.
    pub node: Option<PolicyRule>,
    /// `operator {}`.
    pub operator: Option<OperatorRule>,
    /// `quota {}`.
    pub quota: Option<PolicyRule>,
    /// `sentinel {}`.
    pub sentinel: Option<PolicyRule>,
    /// `plugin {}`; its policy may also be `list`.
    pub plugin: Option<PolicyRule>,
}

/// `namespace "glob" {}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceRule {
    /// The name of a namespace, or a glob over names.
    pub name: String,
    /// `deny`, `read`, `write`, `scale`, or empty.
    pub policy: String,
    /// Capabilities in addition to those of `policy`.
    pub capabilities: Vec<String>,
    /// The rules for variables of the namespace.
    pub variables: Option<VariablesRule>,
}

/// `variables {}` of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VariablesRule {
    /// The rules of the paths, one per `path "glob" {}`.
    pub paths: Vec<PathRule>,
}

/// `path "glob" {}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PathRule {
    /// The path of a variable, or a glob over paths.
    #[serde(alias = "Name")]
    pub path_spec: String,
    /// `list`, `read`, `write`, `destroy`, `deny`.
    pub capabilities: Vec<String>,
}

/// A rule for all objects that a glob matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamedRule {
    /// The name of an object, or a glob over names.
    pub name: String,
    /// `deny`, `read`, `write`, or empty.
    pub policy: String,
    /// Capabilities in addition to those of `policy`.
    pub capabilities: Vec<String>,
}

/// `operator {}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct OperatorRule {
    /// `deny`, `read`, `write`, or empty.
    pub policy: String,
    /// Capabilities in addition to those of `policy`.
    pub capabilities: Vec<String>,
}

/// A block that contains only a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PolicyRule {
    /// `deny`, `read`, `write`.
    pub policy: String,
}

/// A namespace to apply. Serializes to the body of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceSpec {
    /// The namespace's name.
    pub name: String,
    /// A description of one line.
    pub description: String,
    /// The quota that the namespace counts against. Empty: none.
    pub quota: String,
    /// Drivers and network modes that jobs may use. Absent: all.
    pub capabilities: Option<NamespaceCapabilities>,
    /// Node pools that jobs may use. Absent: all.
    pub node_pool_configuration: Option<ChoiceSpec>,
    /// Vault clusters that jobs may use. Absent: all.
    pub vault_configuration: Option<ChoiceSpec>,
    /// Consul clusters that jobs may use. Absent: all.
    pub consul_configuration: Option<ChoiceSpec>,
    /// User-defined metadata.
    pub meta: Option<BTreeMap<String, String>>,
}

/// The drivers and network modes that jobs of a namespace may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceCapabilities {
    /// Allowed task drivers. Absent: all.
    pub enabled_task_drivers: Option<Vec<String>>,
    /// Disallowed task drivers.
    pub disabled_task_drivers: Option<Vec<String>>,
    /// Allowed network modes. Absent: all.
    pub enabled_network_modes: Option<Vec<String>>,
    /// Disallowed network modes.
    pub disabled_network_modes: Option<Vec<String>>,
}

/// A default choice, and the allowed or denied others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ChoiceSpec {
    /// The choice for jobs that set none.
    pub default: String,
    /// Choices that are allowed in addition to the default.
    pub allowed: Option<Vec<String>>,
    /// Choices that are denied.
    pub denied: Option<Vec<String>>,
}

/// A node pool to apply. Serializes to the body of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodePoolSpec {
    /// The node pool's name.
    pub name: String,
    /// A description of one line.
    pub description: String,
    /// User-defined metadata.
    pub meta: Option<BTreeMap<String, String>>,
    /// Scheduler settings that override the cluster's.
    pub scheduler_configuration: Option<PoolScheduling>,
    /// The time to live of identities of the pool's nodes, in nanoseconds.
    #[serde(rename = "NodeIdentityTTL")]
    pub node_identity_ttl: Option<Nanos>,
}

/// Scheduler settings of a node pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PoolScheduling {
    /// `binpack` or `spread`.
    pub scheduler_algorithm: String,
    /// Whether tasks may use more memory than they reserve. Absent: the cluster's setting.
    pub memory_oversubscription_enabled: Option<bool>,
}

/// A quota to apply. Serializes to the body of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuotaSpec {
    /// The quota's name.
    pub name: String,
    /// A description of one line.
    pub description: String,
    /// The limits, one entry per region.
    pub limits: Vec<QuotaLimit>,
}

/// The limits of a region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuotaLimit {
    /// The region's name.
    pub region: String,
    /// The limits of resources in the region.
    pub region_limit: Option<QuotaResources>,
    /// The limit on the size of all variables, in MiB.
    pub variables_limit: Option<i64>,
}

/// Limits of resources. 0 and absent mean no limit; a negative number allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaResources {
    /// CPU in MHz.
    #[serde(rename = "CPU")]
    pub cpu: Option<i64>,
    /// The number of reserved cores.
    #[serde(rename = "Cores")]
    pub cores: Option<i64>,
    /// Memory in MiB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: Option<i64>,
    /// Maximum memory (`memory_max`) in MiB.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: Option<i64>,
    /// Devices, by name.
    #[serde(rename = "Devices")]
    pub devices: Vec<QuotaDevice>,
}

/// A limit on a number of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuotaDevice {
    /// `type`, `vendor/type` or `vendor/type/name`.
    pub name: String,
    /// The maximum number of devices.
    pub count: Option<u64>,
}

/// Parses the rules of an ACL policy.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, unknown policies or capabilities.
pub fn parse_acl(text: &str, filename: &str) -> Result<AclRules, Diagnostics> {
    read(text, filename, &tables::ACL, |body, object, items| {
        words::check(body, items);
        decoded(object, items)
    })
}

/// Parses a namespace.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, a missing name.
pub fn parse_namespace(text: &str, filename: &str) -> Result<NamespaceSpec, Diagnostics> {
    read(text, filename, &tables::NAMESPACE, |_, object, items| decoded(object, items))
}

/// Parses a node pool: `node_pool "name" {}`.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, none or several node pools.
pub fn parse_node_pool(text: &str, filename: &str) -> Result<NodePoolSpec, Diagnostics> {
    read(text, filename, &tables::NODE_POOL_FILE, |body, mut object, items| {
        let pools = match object.remove("NodePools") {
            Some(Json::Array(pools)) => pools,
            _ => Vec::new(),
        };
        let [Json::Object(pool)] = pools.as_slice() else {
            let second = body.blocks.get(1).map_or(body.span.at_start(), |block| block.header);
            items.push(Diagnostic::error(
                "E0510",
                second,
                "One node pool expected",
                "The file holds exactly one block node_pool \"name\" {}.",
            ));
            return None;
        };
        decoded(pool.clone(), items)
    })
}

/// Parses a quota.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, a missing name.
pub fn parse_quota(text: &str, filename: &str) -> Result<QuotaSpec, Diagnostics> {
    read(text, filename, &tables::QUOTA, |_, object, items| decoded(object, items))
}

/// Parses a text and decodes it by a table; `finish` creates the result.
fn read<T>(
    text: &str,
    filename: &str,
    schema: &'static Schema,
    finish: impl FnOnce(&Body, Object, &mut Vec<Diagnostic>) -> Option<T>,
) -> Result<T, Diagnostics> {
    let mut sources = Sources::default();
    let id = sources.add(Source::new(filename, text));
    let mut items = Vec::new();
    let mut done = None;
    match hcl1::parse_body(&sources, id) {
        Ok(body) => {
            let evaluator = Evaluator::literals();
            let mut decoder = Decoder::literal(&evaluator);
            let member = |name: &str| match schema.member(name) {
                Member::ArgumentOrBlock => Member::Block(&[]),
                member => member,
            };
            let body = decoder.native(&body, Members::Table(&member)).into_owned();
            let header = Header { span: body.span.at_start(), labels: &[], arguments: &[] };
            let object = decoder.body(&body, schema, &header, &Scope::default());
            items.append(&mut decoder.errors);
            if items.is_empty() {
                done = finish(&body, object, &mut items);
            }
        }
        Err(errors) => items = errors,
    }
    match done {
        Some(value) if items.is_empty() => Ok(value),
        _ => Err(Diagnostics { items, sources }),
    }
}

fn decoded<T: serde::de::DeserializeOwned>(object: Object, items: &mut Vec<Diagnostic>) -> Option<T> {
    match serde_json::from_value(Json::Object(object)) {
        Ok(value) => Some(value),
        Err(error) => {
            items.push(Diagnostic::error("E0511", None, "Invalid file", format!("{error}.")));
            None
        }
    }
}

#[cfg(test)]
mod tests;
