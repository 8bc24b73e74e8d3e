//! Access control of requests that name the same fact in more than one place.

use crate::harness::Api;
use caravan_server::AclConfig;
use http::Method;
use serde_json::json;

/// Returns the secret of a token with all rights in the namespace `mine`, and none elsewhere.
async fn with_mine(api: &Api) -> String {
    let boot = api.web.put("/v1/acl/bootstrap", &json!({})).await.json();
    let root = boot["SecretID"].as_str().unwrap().to_owned();
    let rules =
        "namespace \"mine\" { policy = \"write\"\n variables { path \"*\" { capabilities = [\"write\"] } } }";
    for (path, body) in [
        ("/v1/namespace", json!({"Name": "mine"})),
        ("/v1/acl/policy/mine", json!({"Name": "mine", "Rules": rules})),
    ] {
        let got = api.web.put_as(path, &body, &root).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let body = json!({"Name": "x", "Type": "client", "Policies": ["mine"]});
    let token = api.web.put_as("/v1/acl/token", &body, &root).await.json();
    token["SecretID"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_checked_is_what_is_done() {
    let api = Api::start_with(AclConfig { enabled: true, ..AclConfig::default() }).await;
    let mine = with_mine(&api).await;
    let job = |namespace: &str| {
        json!({"ID": "a", "Name": "a", "Namespace": namespace, "Type": "batch", "Datacenters": ["dc1"],
            "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "x"}}]}]})
    };
    for (body, status) in [
        (json!({"Job": job("mine")}), 200),
        (json!({"Job": job("default")}), 403),
        (json!({"Job": job("mine"), "job": job("default")}), 403),
        (json!({"job": job("mine"), "Job": job("default")}), 403),
        (json!({"Namespace": "mine", "namespace": "default", "Job": job("mine")}), 403),
        (json!({"Namespace": "mine", "namespace": null, "Job": job("default")}), 200),
    ] {
        let got = api.web.put_as("/v1/jobs", &body, &mine).await;
        assert_eq!(got.status, status, "{body}: {}", got.text());
    }
    for (body, status) in [
        (json!({"Namespace": "mine", "Items": {"a": "b"}}), 200),
        (json!({"Namespace": "mine", "namespace": "default", "Items": {"a": "b"}}), 403),
        (json!({"namespace": "mine", "Namespace": "default", "Items": {"a": "b"}}), 403),
    ] {
        let got = api.web.put_as("/v1/var/x", &body, &mine).await;
        assert_eq!(got.status, status, "{body}: {}", got.text());
    }
}

#[tokio::test]
async fn lists_of_all_namespaces_show_what_may_be_seen() {
    let api = Api::start_with(AclConfig { enabled: true, ..AclConfig::default() }).await;
    for path in ["services", "scaling/policies", "vars"] {
        let got = api.web.get(&format!("/v1/{path}?namespace=*")).await;
        assert_eq!((got.status.as_u16(), got.text().as_str()), (200, "[]"), "{path}");
    }
    assert_eq!(api.web.get("/v1/services").await.status, 403);
    assert_eq!(api.web.get("/v1/jobs?namespace=*").await.status, 403);
}

#[tokio::test]
async fn variables_are_in_one_namespace() {
    let api = Api::start().await;
    let got = api.web.put("/v1/var/x?namespace=*", &json!({"Items": {"a": "b"}})).await;
    assert_eq!(got.status, 400);
    assert!(got.text().ends_with("can not target wildcard (\"*\")namespace"), "{}", got.text());
    assert_eq!(api.web.delete("/v1/var/x?namespace=*").await.status, 400);
    let got = api.web.put("/v1/var/x", &json!({"Items": {"a": 7}})).await;
    assert_eq!(
        got.text(),
        "json: cannot unmarshal number into Go struct field VariableDecrypted.Items of type string"
    );
}

#[tokio::test]
async fn without_access_control_unknown_paths_and_methods_differ() {
    let api = Api::start().await;
    for (method, path, status) in [
        (Method::GET, "acl/policies", 400),
        (Method::PUT, "acl/policies", 405),
        (Method::GET, "acl/bootstrap", 405),
        (Method::DELETE, "acl/token/x", 400),
        (Method::PATCH, "acl/token/x", 405),
        (Method::PUT, "acl/oidc/auth-url", 400),
        (Method::GET, "acl/nope", 404),
    ] {
        let got = api.web.send(method.clone(), &format!("/v1/{path}"), Vec::new()).await;
        assert_eq!(got.status, status, "{method} {path}: {}", got.text());
    }
}

#[tokio::test]
async fn sizes_of_pages_are_read_everywhere() {
    let api = Api::start().await;
    for path in [
        "jobs",
        "services",
        "namespaces",
        "jobs/statuses",
        "scaling/policies",
        "plugins?type=csi",
        "node/pools",
    ] {
        let joint = if path.contains('?') { '&' } else { '?' };
        let got = api.web.get(&format!("/v1/{path}{joint}per_page=x")).await;
        assert_eq!(
            (got.status.as_u16(), got.text().as_str()),
            (400, "Expect a number for `per_page` query string parameter"),
            "{path}"
        );
    }
}
