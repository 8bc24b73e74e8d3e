//! Node pools (docs/reference/http-api.md, section 3.3).

use crate::ser::nil;
use crate::time::Nanos;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The pool that contains every node.
pub const ALL: &str = "all";
/// The pool of nodes whose agents configure no pool.
pub const DEFAULT: &str = "default";

/// The default time for which identities of nodes are valid.
pub const IDENTITY_TTL: Nanos = Nanos::from_secs(24 * 3600);

/// A named set of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 3.3")]
pub struct NodePool {
    pub name: String,
    pub description: String,
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    #[serde(rename = "NodeIdentityTTL", deserialize_with = "ttl")]
    pub node_identity_ttl: Nanos,
    pub scheduler_configuration: Option<NodePoolScheduler>,
    pub hash: Option<String>,
    pub create_index: u64,
    pub modify_index: u64,
}

/// The scheduler settings of a pool, which override those of the region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 3.3")]
pub struct NodePoolScheduler {
    pub scheduler_algorithm: String,
    pub memory_oversubscription_enabled: Option<bool>,
}

impl Default for NodePool {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            meta: BTreeMap::new(),
            node_identity_ttl: IDENTITY_TTL,
            scheduler_configuration: None,
            hash: None,
            create_index: 0,
            modify_index: 0,
        }
    }
}

/// Reads a duration in nanoseconds or in Go's notation; zero means the default.
fn ttl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let supplied = crate::duration::GoDuration::deserialize(deserializer)?;
    Ok(if supplied.is_zero() { IDENTITY_TTL } else { supplied.0 })
}

/// Returns whether a text is a valid name of a pool.
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

impl NodePool {
    /// Returns the pools that exist in every cluster.
    pub fn built_in() -> [Self; 2] {
        let pool = |name: &str, description: &str| Self {
            name: name.into(),
            description: description.into(),
            create_index: 1,
            modify_index: 1,
            ..Self::default()
        };
        [pool(ALL, "Node pool with all nodes in the cluster."), pool(DEFAULT, "Default node pool.")]
    }

    /// Returns whether a pool exists in every cluster.
    pub fn is_built_in(name: &str) -> bool {
        name == ALL || name == DEFAULT
    }

    /// Checks the name and the description.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !is_name(&self.name) {
            errors.push(format!("invalid name \"{}\", must match regex ^[a-zA-Z0-9-_]{{1,128}}$", self.name));
        }
        if self.description.chars().count() > crate::namespace::MAX_DESCRIPTION {
            errors.push(format!("description longer than {} characters", crate::namespace::MAX_DESCRIPTION));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_ones_have_the_recorded_shape() {
        let json = serde_json::to_value(&NodePool::built_in()[0]).unwrap();
        assert_eq!(
            (&json["Name"], &json["NodeIdentityTTL"]),
            (&"all".into(), &86_400_000_000_000_i64.into())
        );
        assert!(json["Hash"].is_null() && json["Meta"].is_null() && json.as_object().unwrap().len() == 8);
        let read: NodePool = serde_json::from_str(r#"{"Name":"p","NodeIdentityTTL":"1h"}"#).unwrap();
        assert_eq!(read.node_identity_ttl, Nanos::from_secs(3600));
    }
}
