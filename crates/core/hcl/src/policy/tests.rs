use super::*;
use serde_json::json;

#[test]
fn rules_of_a_policy() {
    let text = r#"
namespace "default" {
  policy       = "write"
  capabilities = ["alloc-node-exec"]
  variables {
    path "app/*" { capabilities = ["read", "write", "list", "destroy"] }
    path "other" { capabilities = ["deny"] }
  }
}
namespace "team-*" { capabilities = ["list-jobs", "read-job"] }
host_volume "scratch" { policy = "write" }
node_pool "*" { policy = "write" }
operator { policy = "write" capabilities = ["snapshot-save"] }
plugin { policy = "list" }
agent { policy = "read" }
"#;
    let rules = parse_acl(text, "dev.hcl").unwrap();
    assert_eq!(rules.namespaces.len(), 2);
    assert_eq!(rules.namespaces[0].policy, "write");
    let paths = &rules.namespaces[0].variables.as_ref().unwrap().paths;
    assert_eq!((paths[0].path_spec.as_str(), paths[1].capabilities[0].as_str()), ("app/*", "deny"));
    assert_eq!(rules.namespaces[1].capabilities, ["list-jobs", "read-job"]);
    assert_eq!(rules.host_volumes[0].name, "scratch");
    assert_eq!(rules.operator.unwrap().capabilities, ["snapshot-save"]);
    assert_eq!(rules.plugin.unwrap().policy, "list");
    assert_eq!(rules.quota, None);
    assert_eq!(parse_acl("", "empty.hcl").unwrap(), AclRules::default());
}

#[test]
fn rules_in_json() {
    let text = r#"{"namespace": {"default": {"policy": "read"}, "x": {"capabilities": ["read-job"]}},
        "node": {"policy": "read"}}"#;
    let rules = parse_acl(text, "a.json").unwrap();
    let names: Vec<&str> = rules.namespaces.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["default", "x"]);
    assert_eq!(rules.node.unwrap().policy, "read");
}

#[test]
fn wrong_words_name_their_place() {
    let error = |text: &str| parse_acl(text, "p.hcl").unwrap_err();
    let found = error("namespace \"x\" {\n  policy = \"wriet\"\n}");
    assert!(
        found.to_string().starts_with("p.hcl:2,12-19: Invalid namespace policy; \"wriet\" is no"),
        "{found}"
    );
    assert_eq!(found.items[0].hint.as_deref(), Some("Did you mean \"write\"?"));
    assert!(
        error("namespace \"x\" { capabilities = [\"fly\"] }").to_string().contains("namespace capability")
    );
    let deep = "namespace \"x\" {\n variables {\n path \"a\" { capabilities = [\"chew\"] }\n }\n}";
    assert!(error(deep).to_string().starts_with("p.hcl:3,"), "{}", error(deep));
    assert!(error("namespac \"x\" {}").to_string().contains("Did you mean \"namespace\""));
    assert!(error("namespace { policy = \"read\" }").to_string().contains("Missing name for namespace"));
    assert!(error("plugin { policy = \"scale\" }").to_string().contains("plugin policy"));
}

#[test]
fn namespaces_node_pools_and_quotas() {
    let text = r#"
name        = "team-b"
description = "From a file"
meta { owner = "bea" }
capabilities {
  enabled_task_drivers  = ["exec"]
  disabled_task_drivers = ["raw_exec"]
}
node_pool_config { default = "gold" allowed = ["all"] }
"#;
    let namespace = serde_json::to_value(parse_namespace(text, "ns.hcl").unwrap()).unwrap();
    assert_eq!(namespace["Meta"], json!({"owner": "bea"}));
    assert_eq!(namespace["Capabilities"]["EnabledTaskDrivers"], json!(["exec"]));
    assert_eq!(namespace["NodePoolConfiguration"]["Default"], "gold");
    assert!(parse_namespace("description = \"x\"", "n.hcl").unwrap_err().to_string().contains("\"name\""));

    let text = "node_pool \"gold\" {\n  description = \"fast\"\n  meta { tier = \"1\" }\n  node_identity_ttl = \"1h\"\n}\n";
    let pool = serde_json::to_value(parse_node_pool(text, "p.hcl").unwrap()).unwrap();
    assert_eq!((&pool["Name"], &pool["NodeIdentityTTL"]), (&json!("gold"), &json!(3_600_000_000_000_i64)));
    assert!(parse_node_pool("", "p.hcl").unwrap_err().to_string().contains("exactly one"));

    let text = "name = \"q\"\nlimit {\n  region = \"global\"\n  region_limit {\n    cpu = 2500\n    memory = 1000\n    device \"gpu\" { count = 2 }\n  }\n}\n";
    let quota = parse_quota(text, "q.hcl").unwrap();
    let limits = quota.limits[0].region_limit.as_ref().unwrap();
    assert_eq!((limits.cpu, limits.memory_mb, limits.devices[0].count), (Some(2500), Some(1000), Some(2)));
}
