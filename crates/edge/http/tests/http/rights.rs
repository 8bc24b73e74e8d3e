//! Every route with every kind of caller: anonymous, a tenant of another namespace, a tenant of the same namespace.
//! The routes come from the table that dispatches requests, so the test includes every new route.

use crate::harness::{Api, Got, NODE};
use caravan_http::Route;
use caravan_server::AclConfig;
use caravan_state::Root;
use caravan_types::Namespace;
use caravan_types::plugin::{CsiInfo, CsiNodeInfo};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// A text in every object of the victim, and in no other object.
const CANARY: &str = "canary-of-team-a";
/// The timeout for an answer; streams never complete within it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A region with two tenants, one of which has an object of each kind.
pub(crate) struct Tenants {
    pub(crate) api: Api,
    /// The secrets of a management token, and of tokens with all rights in `team-a` and in `team-b`.
    pub(crate) root: String,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) alloc: String,
    eval: String,
    deployment: String,
}

fn rules(namespace: &str) -> String {
    format!(
        "namespace \"{namespace}\" {{ policy = \"write\"\n\
         capabilities = [\"scale-job\", \"csi-register-plugin\", \"alloc-node-exec\"]\n\
         variables {{ path \"*\" {{ capabilities = [\"write\", \"read\", \"list\", \"destroy\"] }} }} }}\n\
         plugin {{ policy = \"read\" }}"
    )
}

impl Tenants {
    /// Sends a request with a token; does not wait for the end of a stream.
    pub(crate) async fn ask(&self, method: &Method, path: &str, body: &Value, secret: &str) -> Option<Got> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let asked = self.api.web.send_as(method.clone(), path, body, secret);
        tokio::time::timeout(TIMEOUT, asked).await.ok()
    }

    pub(crate) async fn put(&self, path: &str, body: &Value, secret: &str) -> Got {
        self.api.web.put_as(path, body, secret).await
    }

    pub(crate) async fn good(&self, path: &str, body: &Value, secret: &str) -> Value {
        let got = self.put(path, body, secret).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text());
        if got.body.is_empty() { Value::Null } else { got.json() }
    }

    /// Creates a token with its own policy.
    pub(crate) async fn token(&self, name: &str, rules: &str) -> String {
        self.good(&format!("/v1/acl/policy/{name}"), &json!({"Name": name, "Rules": rules}), &self.root)
            .await;
        let body = json!({"Name": name, "Type": "client", "Policies": [name]});
        let token = self.good("/v1/acl/token", &body, &self.root).await;
        token["SecretID"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn start() -> Self {
        Self::with(AclConfig { enabled: true, ..AclConfig::default() }).await
    }

    /// Starts the region, with tokens that may expire very soon.
    pub(crate) async fn start_with_ttl() -> Self {
        let min_expiration = caravan_types::Nanos::from_secs(1);
        Self::with(AclConfig { enabled: true, min_expiration, ..AclConfig::default() }).await
    }

    async fn with(acl: AclConfig) -> Self {
        let api = Api::start_with(acl).await;
        api.register_node_as(|node| {
            let info = CsiInfo {
                plugin_id: "disk".into(),
                healthy: true,
                provider: "disk.example".into(),
                node_info: Some(CsiNodeInfo { id: "n".into(), max_volumes: i64::MAX, ..Default::default() }),
                ..Default::default()
            };
            node.csi_node_plugins.insert("disk".into(), info);
        })
        .await;
        let boot = api.web.put("/v1/acl/bootstrap", &json!({})).await.json();
        let root = boot["SecretID"].as_str().unwrap().to_owned();
        let none = String::new;
        let mut all =
            Self { api, root, a: none(), b: none(), alloc: none(), eval: none(), deployment: none() };
        for name in ["team-a", "team-b"] {
            let body = json!({"Name": name, "Description": "of a tenant"});
            all.good("/v1/namespace", &body, &all.root).await;
        }
        all.a = all.token("a", &rules("team-a")).await;
        all.b = all.token("b", &rules("team-b")).await;
        all.fill().await;
        all
    }

    /// Creates an object of each kind in `team-a`.
    async fn fill(&mut self) {
        let at = |path: &str| format!("/v1/{path}?namespace=team-a");
        self.good(&at("jobs"), &json!({"Job": job(CANARY)}), &self.a).await;
        self.good(&at("var/secret"), &json!({"Items": {"password": CANARY}}), &self.a).await;
        self.good(&at("volumes"), &json!({"Volumes": [volume(CANARY)]}), &self.a).await;
        let deadline = std::time::Instant::now() + TIMEOUT;
        let row = loop {
            let got = self.ask(&Method::GET, &at("allocations"), &Value::Null, &self.a).await.unwrap();
            if let Some(row) = got.json().as_array().and_then(|rows| rows.first().cloned()) {
                break row;
            }
            if std::time::Instant::now() > deadline {
                let evals = self.ask(&Method::GET, &at("evaluations"), &Value::Null, &self.a).await.unwrap();
                panic!("the job was not placed: {} {}", got.text(), evals.text());
            }
            tokio::task::yield_now().await;
        };
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        (self.alloc, self.eval, self.deployment) = (text("ID"), text("EvalID"), text("DeploymentID"));
    }

    /// Returns all objects of `team-a` with their modify indexes.
    fn rows(&self) -> Vec<String> {
        let root: &Root = &self.api.server.store().snapshot();
        let own = Namespace::new("team-a");
        let mut rows: Vec<String> = Vec::new();
        rows.extend(
            root.jobs()
                .filter(|row| row.namespace == own)
                .map(|row| format!("job {} {} {} {}", row.id, row.job_modify_index, row.version, row.stop)),
        );
        rows.extend(
            root.variables_with_prefix(Some(&own), "").map(|row| format!("{} {}", row.key, row.modify_index)),
        );
        rows.extend(
            root.volumes_with_prefix(Some(&own), "").map(|row| format!("{} {}", row.key(), row.modify_index)),
        );
        rows.extend(root.host_volumes().filter(|row| row.namespace == own).map(|row| row.id.to_string()));
        let allocs = root.allocs().filter(|row| row.namespace == own);
        rows.extend(
            allocs.map(|row| format!("{} {:?} {:?}", row.id, row.desired_status, row.desired_transition)),
        );
        let deployments = root.deployments_by_age(None, false).filter(|row| row.namespace == own);
        rows.extend(deployments.map(|row| format!("{} {:?}", row.id, row.status)));
        rows
    }

    /// Returns a path of a route, with the victim's objects for its stars.
    fn path(&self, route: &Route) -> String {
        let known: &[(&str, &str)] = &[
            ("/v1/job/", "secret-job"),
            ("/v1/allocation/", &self.alloc),
            ("/v1/client/", &self.alloc),
            ("/v1/evaluation/", &self.eval),
            ("/v1/deployment/", &self.deployment),
            ("/v1/var/", "secret"),
            ("/v1/volume/csi/", "secret-volume"),
            ("/v1/node/pool/", "default"),
            ("/v1/node/", NODE),
            ("/v1/namespace/", "team-a"),
            ("/v1/service/", "secret-service"),
            ("/v1/plugin/csi/", "disk"),
        ];
        let id = known.iter().find(|(start, _)| route.path.starts_with(start)).map_or("x", |(_, id)| *id);
        route.path.replace("**", id).replace('*', id)
    }
}

fn job(mark: &str) -> Value {
    json!({
        "ID": "secret-job", "Name": "secret-job", "Type": "service", "Datacenters": ["dc1"],
        "Meta": {"mark": mark}, "Update": {"MaxParallel": 1},
        "TaskGroups": [{
            "Name": "g", "Count": 1, "Update": {"MaxParallel": 1},
            "Services": [{"Name": "secret-service", "Provider": "nomad"}],
            "Scaling": {"Min": 0, "Max": 9, "Enabled": true, "Policy": {"mark": mark}},
            "Tasks": [{
                "Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"}, "Env": {"mark": mark},
                "Resources": {"CPU": 20, "MemoryMB": 20}
            }]
        }]
    })
}

fn volume(mark: &str) -> Value {
    json!({
        "ID": "secret-volume", "Name": "secret-volume", "PluginID": "disk", "ExternalID": mark,
        "Context": {"mark": mark}, "Parameters": {"mark": mark},
        "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    })
}

/// Returns bodies that name the victim's namespace or its objects in various ways.
fn bodies() -> Vec<Value> {
    let in_a = |mut value: Value| {
        value["Namespace"] = json!("team-a");
        value
    };
    let snapshot = json!({"SourceVolumeID": "secret-volume", "Name": "s", "PluginID": "disk"});
    let host = json!({"Name": "h", "Namespace": "team-a", "NodeID": NODE, "HostPath": "/srv"});
    let all = json!({
        "Job": in_a(job("attack")), "Volumes": [in_a(volume("attack"))], "Volume": host, "Snapshots": [snapshot],
        "Items": {"password": "stolen"}, "JobID": "secret-job", "JobVersion": 0, "Count": 3,
        "Target": {"Group": "g"}, "Prefix": "", "Text": "secret", "Context": "all", "Name": "team-a",
        "Jobs": [{"ID": "secret-job", "Namespace": "team-a"}], "Healthy": true, "Pause": true, "All": true,
        "JobHCL": "job \"x\" {}",
    });
    let with = |names: &[(&str, &str)]| {
        let mut value = all.clone();
        for (key, namespace) in names {
            value[*key] = json!(namespace);
        }
        value
    };
    vec![
        Value::Null,
        json!({}),
        all.clone(),
        with(&[("Namespace", "team-a")]),
        with(&[("namespace", "team-a")]),
        with(&[("Namespace", "team-b"), ("namespace", "team-a")]),
        with(&[("NAMESPACE", "team-a"), ("Namespace", "team-b")]),
        // Snapshots and variables are separate, so that no other field of the body causes the refusal.
        json!({"Namespace": "team-a", "Snapshots": [snapshot]}),
        json!({"Namespace": "team-a", "Items": {"password": "stolen"}}),
        json!({"namespace": "team-a", "Lock": {}}),
        json!({"Namespace": "team-a", "Volumes": [volume("attack")]}),
        json!({"Volumes": [in_a(volume("attack"))]}),
        json!({"Namespace": "team-a", "Volume": {"Name": "h", "NodeID": NODE, "HostPath": "/srv"}}),
        json!({"Volume": host}),
    ]
}

fn methods(route: &Route) -> Vec<Method> {
    match route.method {
        "GET" => vec![Method::GET],
        "PUT" => vec![Method::PUT, Method::POST],
        "DELETE" => vec![Method::DELETE],
        _ => vec![Method::GET, Method::PUT, Method::DELETE],
    }
}

/// Returns whether the test requests a route. Streams have separate tests, because they may stay silent.
fn is_walked(route: &Route) -> bool {
    !route.refused
        && !route.redirected
        && !matches!(route.path.as_str(), "/v1/event/stream" | "/v1/agent/monitor")
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another() {
    let tenants = Tenants::start().await;
    let before = tenants.rows();
    assert!(before.len() >= 4, "{before:?}");
    let routes = caravan_http::routes();
    assert!(routes.len() > 150);
    for route in routes.iter().filter(|route| is_walked(route)) {
        tenants.api.beat().await;
        let path = tenants.path(route);
        for (method, query) in methods(route).iter().flat_map(|method| {
            ["", "namespace=team-b", "namespace=team-a", "namespace=*", "namespace=&namespace=team-a"]
                .map(|query| (method, query))
        }) {
            let bodies = if *method == Method::GET { vec![Value::Null] } else { bodies() };
            for body in bodies {
                let asked =
                    format!("{path}?{query}&type=csi&plugin_id=disk&purge=true&version=0&node={NODE}");
                let what = format!("{method} {asked} {body}");
                if let Some(got) = tenants.ask(method, &asked, &body, &tenants.b).await {
                    let reported = got.text();
                    assert!(!reported.contains(CANARY), "{what}: {} {reported}", got.status);
                }
                assert_eq!(tenants.rows(), before, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn nobody_gets_more_than_what_is_open() {
    let tenants = Tenants::start().await;
    let before = tenants.rows();
    for route in caravan_http::routes().iter().filter(|route| is_walked(route)) {
        tenants.api.beat().await;
        // A route that filters by the caller's rights returns empty answers to anonymous callers.
        let is_open = matches!(route.need.as_str(), "Open" | "Shown") || route.need.starts_with("Rows");
        for method in methods(route) {
            for query in ["", "namespace=team-a", "namespace=*"] {
                let asked = format!("{}?{query}&type=csi", tenants.path(route));
                let Some(got) = tenants.ask(&method, &asked, &json!({}), "").await else { continue };
                let reported = got.text();
                // Metrics name jobs to every caller, as in Nomad.
                let names = route.path != "/v1/metrics" && reported.contains("secret-");
                assert!(!reported.contains(CANARY) && !names, "{method} {asked}: {reported}");
                assert!(is_open || !got.status.is_success(), "{method} {asked}: {} {reported}", got.status);
            }
        }
    }
    assert_eq!(tenants.rows(), before);
}

#[tokio::test]
async fn a_tenant_reads_what_is_its_own() {
    let tenants = Tenants::start().await;
    let in_namespace = ["Namespace", "Rows", "Alloc", "HiddenAlloc", "Eval", "Deployment", "Variable(Read)"];
    let (mut walked, mut seen) = (0, 0);
    for route in caravan_http::routes().iter().filter(|route| is_walked(route) && route.method == "GET") {
        if !in_namespace.iter().any(|need| route.need.starts_with(need)) {
            continue;
        }
        walked += 1;
        let asked = format!("{}?namespace=team-a&version=0&plugin_id=disk", tenants.path(route));
        let got = tenants.ask(&Method::GET, &asked, &Value::Null, &tenants.a).await.unwrap();
        assert_ne!(got.status, 403, "{asked}: {}", got.text());
        seen += usize::from(got.text().contains("secret-job") || got.text().contains(CANARY));
    }
    assert!(walked > 25 && seen > 10, "{seen} of {walked}");
}

/// A line without a handler would answer like an unknown path.
#[tokio::test]
async fn no_line_of_the_table_leads_nowhere() {
    let tenants = Tenants::start().await;
    for route in caravan_http::routes().iter().filter(|route| is_walked(route)) {
        let method = methods(route).remove(0);
        let asked = format!("{}?namespace=team-a", tenants.path(route));
        let Some(got) = tenants.ask(&method, &asked, &json!({}), &tenants.root).await else { continue };
        let is_elsewhere = ["/v1/agent/pprof", "/.well-known/", "/v1/quota"];
        if is_elsewhere.iter().any(|start| route.path.starts_with(start)) {
            continue;
        }
        assert!(got.status != 404 || !got.text().is_empty(), "{method} {asked} is not served");
    }
}

#[tokio::test]
async fn a_path_that_is_not_served_is_not_dispatched() {
    let tenants = Tenants::start().await;
    for path in ["/v1/nothing", "/v1/agent/unheard-of", "/v1/operator/unheard-of", "/v1/acl/unheard-of/x"] {
        for secret in [&tenants.root, &tenants.b] {
            let got = tenants.ask(&Method::GET, path, &Value::Null, secret).await.unwrap();
            assert_eq!((got.status.as_u16(), got.text().as_str()), (404, ""), "{path}");
        }
    }
    let got = tenants.ask(&Method::GET, "/v1/job/x/plan", &Value::Null, &tenants.b).await.unwrap();
    assert_eq!(got.status, 405, "{}", got.text());
}
