//! Node metadata: configured values plus changes made at run time.

use crate::ClientError;
use crate::node::NodeState;
use crate::state::Store;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Changes by users, by key; `None` removes a configured key.
pub(crate) type Changes = BTreeMap<String, Option<String>>;

/// The node metadata and its sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The effective metadata.
    pub meta: BTreeMap<String, String>,
    /// Changes made at run time; `None` hides a configured key.
    pub dynamic: BTreeMap<String, Option<String>>,
    /// The configured metadata.
    pub fixed: BTreeMap<String, String>,
}

/// Defaults for the sidecars of services, which the node's configuration may override (docs/reference/http-api.md,
/// section 5.4).
const FOR_SIDECARS: [(&str, &str); 6] = [
    ("connect.sidecar_image", "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}"),
    ("connect.gateway_image", "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}"),
    ("connect.log_level", "info"),
    ("connect.proxy_concurrency", "1"),
    ("connect.transparent_proxy.default_uid", "101"),
    ("connect.transparent_proxy.default_outbound_port", "15001"),
];

/// Returns the configured metadata with the defaults that every node has.
pub(crate) fn completed(mut configured: BTreeMap<String, String>) -> BTreeMap<String, String> {
    for (key, value) in FOR_SIDECARS {
        configured.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    configured
}

/// Returns the effective metadata.
pub(crate) fn in_force(fixed: &BTreeMap<String, String>, dynamic: &Changes) -> BTreeMap<String, String> {
    let mut meta = fixed.clone();
    for (key, value) in dynamic {
        match value {
            Some(value) => drop(meta.insert(key.clone(), value.clone())),
            None => drop(meta.remove(key)),
        }
    }
    meta
}

/// Adds changes to earlier ones. Removing a key that only users had set removes its entry.
///
/// # Errors
/// If a key is invalid.
pub(crate) fn changed(
    fixed: &BTreeMap<String, String>,
    mut dynamic: Changes,
    changes: Changes,
) -> Result<Changes, String> {
    for (key, value) in changes {
        if key.is_empty() {
            return Err("metadata keys must not be empty".to_owned());
        }
        let plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'))
        };
        if !key.split('.').all(plain) {
            return Err(format!("metadata key \"{key}\" is invalid"));
        }
        match value {
            None if !fixed.contains_key(&key) => drop(dynamic.remove(&key)),
            value => drop(dynamic.insert(key, value)),
        }
    }
    Ok(dynamic)
}

/// The metadata of the node: the configured values, and the changes by users.
#[derive(Debug)]
pub(crate) struct NodeMetadata {
    pub(crate) fixed: BTreeMap<String, String>,
    /// The users' changes; `None` removes a key of the configuration.
    pub(crate) dynamic: Mutex<BTreeMap<String, Option<String>>>,
    pub(crate) node: NodeState,
    pub(crate) store: Store,
}

impl NodeMetadata {
    pub(crate) fn get(&self) -> Metadata {
        let dynamic = self.dynamic.lock().clone();
        let fixed = self.fixed.clone();
        Metadata { meta: in_force(&fixed, &dynamic), dynamic, fixed }
    }

    pub(crate) async fn change(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Metadata, ClientError> {
        let written = {
            let mut dynamic = self.dynamic.lock();
            let next = changed(&self.fixed, dynamic.clone(), changes).map_err(ClientError::Metadata)?;
            *dynamic = next;
            self.node.put_meta(in_force(&self.fixed, &dynamic));
            self.store.put_node_meta(&dynamic)
        };
        written.done().await?;
        Ok(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, Option<&str>)]) -> Changes {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned))).collect()
    }

    #[test]
    fn changes_lie_over_the_configuration_and_can_be_taken_back() {
        let fixed = BTreeMap::from([("rack".to_owned(), "r1".to_owned())]);
        let first = pairs(&[("color", Some("blue")), ("rack", None), ("n", Some("1"))]);
        let dynamic = changed(&fixed, Changes::new(), first.clone()).unwrap();
        assert_eq!(dynamic, first);
        assert_eq!(in_force(&fixed, &dynamic).keys().collect::<Vec<_>>(), ["color", "n"]);
        let back = changed(&fixed, dynamic, pairs(&[("rack", Some("r1")), ("color", None)])).unwrap();
        assert_eq!(back, pairs(&[("rack", Some("r1")), ("n", Some("1"))]));
    }

    #[test]
    fn keys_are_checked() {
        for bad in ["", "a b", ".x", "x.", "a..b"] {
            assert!(
                changed(&BTreeMap::new(), Changes::new(), pairs(&[(bad, Some("v"))])).is_err(),
                "{bad:?}"
            );
        }
        assert!(changed(&BTreeMap::new(), Changes::new(), pairs(&[("a.b-c/d_e", None)])).is_ok());
    }
}
