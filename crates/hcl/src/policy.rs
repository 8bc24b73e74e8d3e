//! Files of operators (HCL 1 or JSON): the rules of an ACL policy, namespaces, node pools and quotas
//! (docs/reference/http-api.md, section 5.8), with the same diagnostics as job files.

mod tables;
mod variable;
mod words;

pub use self::variable::{VariableSpec, parse_variable};
use caravan_types::api::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;

use crate::ast::Body;
use crate::diag::{Diagnostic, Diagnostics};
use crate::eval::{Evaluator, Scope};
use crate::parse::hcl1;
use crate::parse::json::{Member, Members};
use crate::schema::{Decoder, Header, Object, Schema};
use crate::source::{Source, Sources};

/// The rules of an ACL policy, as written: what a `policy` word stands for is not filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceRule {
    /// A name or a glob.
    pub name: String,
    /// `deny`, `read`, `write`, `scale`, or empty.
    pub policy: String,
    /// Capabilities besides those of the policy.
    pub capabilities: Vec<String>,
    /// Rules of variables.
    pub variables: Option<VariablesRule>,
}

/// `variables {}` of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VariablesRule {
    /// One per `path "glob" {}`.
    pub paths: Vec<PathRule>,
}

/// `path "glob" {}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PathRule {
    /// A path or a glob.
    #[serde(alias = "Name")]
    pub path_spec: String,
    /// `list`, `read`, `write`, `destroy`, `deny`.
    pub capabilities: Vec<String>,
}

/// A rule for everything that a glob names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamedRule {
    /// A name or a glob.
    pub name: String,
    /// `deny`, `read`, `write`, or empty.
    pub policy: String,
    /// Capabilities besides those of the policy.
    pub capabilities: Vec<String>,
}

/// `operator {}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct OperatorRule {
    /// `deny`, `read`, `write`, or empty.
    pub policy: String,
    /// Capabilities besides those of the policy.
    pub capabilities: Vec<String>,
}

/// A block that holds a policy and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PolicyRule {
    /// `deny`, `read`, `write`.
    pub policy: String,
}

/// A namespace to apply; serialises to the body of the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceSpec {
    /// The name.
    pub name: String,
    /// One line.
    pub description: String,
    /// The quota that it counts against.
    pub quota: String,
    /// What its jobs may use.
    pub capabilities: Option<NamespaceCapabilities>,
    /// Which node pools its jobs may use.
    pub node_pool_configuration: Option<ChoiceSpec>,
    /// Which Vault clusters its jobs may use.
    pub vault_configuration: Option<ChoiceSpec>,
    /// Which Consul clusters its jobs may use.
    pub consul_configuration: Option<ChoiceSpec>,
    /// Pairs of the user.
    pub meta: Option<BTreeMap<String, String>>,
}

/// What the jobs of a namespace may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceCapabilities {
    /// Task drivers; none named: all.
    pub enabled_task_drivers: Option<Vec<String>>,
    /// Task drivers that are refused.
    pub disabled_task_drivers: Option<Vec<String>>,
    /// Network modes; none named: all.
    pub enabled_network_modes: Option<Vec<String>>,
    /// Network modes that are refused.
    pub disabled_network_modes: Option<Vec<String>>,
}

/// A default and what else is allowed, or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ChoiceSpec {
    /// Used when a job names none.
    pub default: String,
    /// Allowed besides the default.
    pub allowed: Option<Vec<String>>,
    /// Refused.
    pub denied: Option<Vec<String>>,
}

/// A node pool to apply; serialises to the body of the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodePoolSpec {
    /// The name.
    pub name: String,
    /// One line.
    pub description: String,
    /// Pairs of the user.
    pub meta: Option<BTreeMap<String, String>>,
    /// Its own scheduling.
    pub scheduler_configuration: Option<PoolScheduling>,
    /// How long identities of its nodes live.
    #[serde(rename = "NodeIdentityTTL")]
    pub node_identity_ttl: Option<Nanos>,
}

/// Scheduling of a node pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PoolScheduling {
    /// `binpack` or `spread`.
    pub scheduler_algorithm: String,
    /// Whether tasks may use more memory than they reserve.
    pub memory_oversubscription_enabled: Option<bool>,
}

/// A quota to apply; serialises to the body of the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuotaSpec {
    /// The name.
    pub name: String,
    /// One line.
    pub description: String,
    /// One per region.
    pub limits: Vec<QuotaLimit>,
}

/// The limits of a region.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuotaLimit {
    /// The region.
    pub region: String,
    /// Its limits.
    pub region_limit: Option<QuotaResources>,
    /// Size of all variables, in MiB.
    pub variables_limit: Option<i64>,
}

/// How much may be used; 0 and absent mean no limit, a negative number means nothing at all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaResources {
    /// MHz.
    #[serde(rename = "CPU")]
    pub cpu: Option<i64>,
    /// Whole cores.
    #[serde(rename = "Cores")]
    pub cores: Option<i64>,
    /// MiB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: Option<i64>,
    /// MiB.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: Option<i64>,
    /// Devices by name.
    #[serde(rename = "Devices")]
    pub devices: Vec<QuotaDevice>,
}

/// A number of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuotaDevice {
    /// `type`, `vendor/type` or `vendor/type/name`.
    pub name: String,
    /// How many.
    pub count: Option<u64>,
}

/// Reads the rules of an ACL policy.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, and words that are no policy or capability.
pub fn parse_acl(text: &str, filename: &str) -> Result<AclRules, Diagnostics> {
    read(text, filename, &tables::ACL, |body, object, items| {
        words::check(body, items);
        decoded(object, items)
    })
}

/// Reads a namespace.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, a missing name.
pub fn parse_namespace(text: &str, filename: &str) -> Result<NamespaceSpec, Diagnostics> {
    read(text, filename, &tables::NAMESPACE, |_, object, items| decoded(object, items))
}

/// Reads a node pool: `node_pool "name" {}`.
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

/// Reads a quota.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments, a missing name.
pub fn parse_quota(text: &str, filename: &str) -> Result<QuotaSpec, Diagnostics> {
    read(text, filename, &tables::QUOTA, |_, object, items| decoded(object, items))
}

/// Parses a text and decodes it by a table; `finish` makes the result.
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
