//! Attributes from the self-description of a Consul agent (`/v1/agent/self`). Pure.

use serde_json::Value;
use std::collections::BTreeMap;

/// The attributes of a Consul agent.
pub(super) const ATTRIBUTES: &[&str] = &[
    "consul.version",
    "consul.server",
    "consul.datacenter",
    "unique.consul.name",
    "consul.connect",
    "consul.grpc",
    "consul.sku",
    "consul.ft.namespaces",
    "consul.partition",
];

pub(super) const PATH: &str = "/v1/agent/self";

/// Reads the response. `tls` is whether the request used TLS, as requests to the gRPC port will. Absent fields are
/// left out.
pub(super) fn attributes(answer: &Value, tls: bool) -> BTreeMap<String, String> {
    let (config, debug) = (&answer["Config"], &answer["DebugConfig"]);
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    let Some(version) = text(&config["Version"]) else { return out };
    // Versions of the enterprise edition end in `+ent`.
    let enterprise = version.split_once('+').is_some_and(|(_, build)| build.contains("ent"));
    put("consul.server", config["Server"].as_bool().map(|server| server.to_string()));
    put("consul.datacenter", text(&config["Datacenter"]));
    put("unique.consul.name", text(&config["NodeName"]));
    put("consul.connect", debug["ConnectEnabled"].as_bool().map(|on| on.to_string()));
    put("consul.grpc", port(debug, tls).map(|port| port.to_string()));
    put("consul.sku", Some(if enterprise { "ent" } else { "oss" }.to_owned()));
    let features = text(&answer["Stats"]["license"]["features"]);
    put("consul.ft.namespaces", Some(features.is_some_and(|all| has_namespaces(&all)).to_string()));
    let partition = text(&config["Partition"]).unwrap_or_else(|| "default".to_owned());
    put("consul.partition", enterprise.then_some(partition));
    put("consul.version", Some(version));
    out
}

/// Returns the gRPC port; -1 means that gRPC is disabled.
fn port(debug: &Value, tls: bool) -> Option<i64> {
    let encrypted = debug["GRPCTLSPort"].as_i64();
    match tls {
        // Before 1.14, one port served both.
        true => encrypted.filter(|port| *port > 0).or_else(|| debug["GRPCPort"].as_i64()),
        false => debug["GRPCPort"].as_i64(),
    }
}

fn has_namespaces(features: &str) -> bool {
    features.split(',').any(|feature| feature.trim().eq_ignore_ascii_case("namespaces"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attributes_of(answer: &Value, tls: bool) -> Vec<String> {
        attributes(answer, tls).into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn both_editions_tell_what_they_have() {
        let mut answer = json!({
            "Config": {"Datacenter": "dc1", "NodeName": "box", "Server": true, "Version": "1.17.0", "Revision": "x"},
            "DebugConfig": {"ConnectEnabled": true, "GRPCPort": 8502, "GRPCTLSPort": 8503},
            "Stats": {"agent": {}},
            "Member": {},
        });
        let free = [
            "consul.connect=true",
            "consul.datacenter=dc1",
            "consul.ft.namespaces=false",
            "consul.grpc=8502",
            "consul.server=true",
            "consul.sku=oss",
            "consul.version=1.17.0",
            "unique.consul.name=box",
        ];
        assert_eq!(attributes_of(&answer, false), free);
        assert!(attributes_of(&answer, true).contains(&"consul.grpc=8503".to_owned()));
        answer["Config"]["Version"] = json!("1.17.0+ent");
        answer["Config"]["Partition"] = json!("west");
        answer["Stats"]["license"] = json!({"features": "Automated Backups, Namespaces, SSO"});
        answer["DebugConfig"] = json!({"GRPCPort": -1});
        let paid = attributes_of(&answer, true);
        for word in ["consul.sku=ent", "consul.partition=west", "consul.ft.namespaces=true", "consul.grpc=-1"]
        {
            assert!(paid.contains(&word.to_owned()), "{word}: {paid:?}");
        }
        assert!(!paid.iter().any(|word| word.starts_with("consul.connect")), "{paid:?}");
    }

    #[test]
    fn what_says_no_version_is_no_agent() {
        assert!(attributes_of(&json!({"Config": {"Server": true}}), false).is_empty());
        assert!(attributes_of(&json!([1]), false).is_empty());
    }
}
