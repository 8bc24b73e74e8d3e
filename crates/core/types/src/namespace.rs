//! Namespaces as objects (docs/reference/http-api.md, section 5.8).

use crate::id::Namespace;
use crate::ser::nil;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest description of a namespace, in characters.
pub const MAX_DESCRIPTION: usize = 256;

/// A namespace, as stored and as the HTTP API returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct NamespaceSpec {
    pub name: Namespace,
    pub description: String,
    pub quota: String,
    pub capabilities: Option<NamespaceCapabilities>,
    pub node_pool_configuration: Option<AllowedConfig>,
    pub vault_configuration: Option<AllowedConfig>,
    pub consul_configuration: Option<AllowedConfig>,
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    pub hash: String,
    #[serde(with = "nil")]
    pub required_extra_claims: BTreeMap<String, String>,
    #[serde(with = "nil")]
    pub optional_extra_claims: BTreeMap<String, String>,
    pub create_index: u64,
    pub modify_index: u64,
}

/// The drivers and network modes that jobs of a namespace may use. An empty `enabled_*` list enables all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct NamespaceCapabilities {
    #[serde(with = "nil")]
    pub enabled_task_drivers: Vec<String>,
    #[serde(with = "nil")]
    pub disabled_task_drivers: Vec<String>,
    #[serde(with = "nil")]
    pub enabled_network_modes: Vec<String>,
    #[serde(with = "nil")]
    pub disabled_network_modes: Vec<String>,
}

/// The default for jobs that do not set a value, and the values that jobs may set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.8")]
pub struct AllowedConfig {
    pub default: String,
    #[serde(with = "nil")]
    pub allowed: Vec<String>,
    #[serde(with = "nil")]
    pub denied: Vec<String>,
}

/// Returns whether `what` is not disabled, and is enabled if the list of enabled names is not empty.
fn allowed(enabled: &[String], disabled: &[String], what: &str) -> bool {
    !disabled.iter().any(|d| d == what) && (enabled.is_empty() || enabled.iter().any(|e| e == what))
}

impl NamespaceCapabilities {
    /// Returns whether tasks may use a driver.
    pub fn allows_driver(&self, driver: &str) -> bool {
        allowed(&self.enabled_task_drivers, &self.disabled_task_drivers, driver)
    }
    /// Returns whether groups may use a network mode.
    pub fn allows_network_mode(&self, mode: &str) -> bool {
        allowed(&self.enabled_network_modes, &self.disabled_network_modes, mode)
    }
}

impl NamespaceSpec {
    /// Returns the namespace `default`, which exists in every cluster.
    pub fn default_one() -> Self {
        Self {
            name: Namespace::default_namespace(),
            description: "Default shared namespace".into(),
            create_index: 1,
            modify_index: 1,
            ..Self::default()
        }
    }

    /// Checks the name and the description. Quotas are not supported and not checked.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !is_name(self.name.as_str()) {
            errors.push(format!("invalid name \"{}\". Must match regex ^[a-zA-Z0-9-]{{1,128}}$", self.name));
        }
        if self.description.chars().count() > MAX_DESCRIPTION {
            errors.push(format!("description longer than {MAX_DESCRIPTION}"));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// Returns whether `text` is a valid name of a namespace, policy, role or authentication method.
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_one_has_the_recorded_keys() {
        let json = serde_json::to_value(NamespaceSpec::default_one()).unwrap();
        assert_eq!((&json["Name"], json["Meta"].is_null()), (&"default".into(), true));
        assert_eq!(json.as_object().unwrap().len(), 13);
    }

    #[test]
    fn names_are_checked() {
        let named = |name: &str| NamespaceSpec { name: name.into(), ..NamespaceSpec::default() }.check();
        assert!(named("team-a").is_ok());
        assert_eq!(
            named("bad name!").unwrap_err(),
            ["invalid name \"bad name!\". Must match regex ^[a-zA-Z0-9-]{1,128}$"]
        );
    }

    #[test]
    fn what_is_disabled_is_so_even_if_enabled() {
        let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let caps = NamespaceCapabilities {
            enabled_task_drivers: text(&["exec", "docker"]),
            disabled_task_drivers: text(&["docker"]),
            ..Default::default()
        };
        assert!(caps.allows_driver("exec") && !caps.allows_driver("docker") && !caps.allows_driver("java"));
        assert!(caps.allows_network_mode("bridge"));
    }
}
