//! Attributes from the health report of a Vault server (`/v1/sys/health`). Pure.

use serde_json::Value;
use std::collections::BTreeMap;

/// The attributes of a Vault server.
pub(super) const ATTRIBUTES: &[&str] =
    &["vault.accessible", "vault.version", "vault.cluster_id", "vault.cluster_name"];

/// The path of the health report. A sealed or standby server must answer with success too, because the fingerprint
/// only checks that the server is reached.
pub(super) const PATH: &str = "/v1/sys/health?drsecondarycode=299&performancestandbycode=299&sealedcode=299\
                               &standbycode=299&uninitcode=299";

/// Reads the response. Absent fields are left out.
pub(super) fn attributes(answer: &Value) -> BTreeMap<String, String> {
    let text = |key: &str| answer[key].as_str().filter(|text| !text.is_empty());
    let mut out = BTreeMap::new();
    let Some(version) = text("version") else { return out };
    // Old versions begin with the program's name.
    let version = version.strip_prefix("Vault ").unwrap_or(version);
    out.insert("vault.version".to_owned(), version.to_owned());
    out.insert("vault.accessible".to_owned(), "true".to_owned());
    for key in ["cluster_id", "cluster_name"] {
        if let Some(value) = text(key) {
            out.insert(format!("vault.{key}"), value.to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn its_health_is_told() {
        let mut answer = json!({
            "initialized": true, "sealed": false, "standby": false, "version": "Vault v1.15.2",
            "cluster_name": "vault-cluster-1", "cluster_id": "00af5aa8",
        });
        let reported = attributes(&answer);
        assert_eq!(reported["vault.version"], "v1.15.2");
        assert_eq!(
            (reported["vault.accessible"].as_str(), reported["vault.cluster_id"].as_str()),
            ("true", "00af5aa8")
        );
        assert_eq!(reported["vault.cluster_name"], "vault-cluster-1");
        // A sealed server does not report its cluster.
        answer["cluster_id"] = json!("");
        answer["cluster_name"] = Value::Null;
        assert_eq!(
            attributes(&answer).into_keys().collect::<Vec<_>>(),
            ["vault.accessible", "vault.version"]
        );
        assert!(attributes(&json!({})).is_empty());
    }
}
