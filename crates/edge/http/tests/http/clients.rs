//! Behaviour that published clients of Nomad rely on.

use crate::harness::{Api, Got, NOBODY};
use caravan_server::AclConfig;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

fn answer(got: &Got) -> (u16, String) {
    (got.status.as_u16(), got.text())
}

#[tokio::test]
async fn a_query_with_index_0_does_not_wait() {
    let api = Api::start().await;
    let path = "/v1/evaluations?index=0&wait=10m";
    let got = tokio::time::timeout(Duration::from_secs(20), api.web.get(path)).await.unwrap();
    assert_eq!((got.status.as_u16(), got.index()), (200, 0));
}

#[tokio::test]
async fn names_with_slashes_are_names_of_nothing() {
    let api = Api::start().await;
    let uuid = "UUID must be 36 characters";
    for (path, status, text) in [
        ("/v1/node/pool/a/b", 404, "node pool not found"),
        ("/v1/node/pool/a%2Fb", 404, "node pool not found"),
        ("/v1/node/pool/a/b/nodes", 404, "node pool not found"),
        ("/v1/node/pool/a/b/jobs", 404, "node pool not found"),
        ("/v1/node/pool/", 404, "node pool not found"),
        ("/v1/namespace/a/b", 404, "Namespace not found"),
        ("/v1/plugin/csi/a/b", 404, "plugin not found"),
        ("/v1/volume/csi/a/b", 404, "volume not found"),
        ("/v1/volume/host/a/b", 404, "resource not found"),
        ("/v1/var/a/b", 404, "variable not found"),
        ("/v1/scaling/policy/a/b", 404, "policy not found"),
        ("/v1/job/a/b", 404, "job not found"),
        ("/v1/allocation/a/b/c", 404, "resource not found"),
        ("/v1/allocation/a/b", 404, "resource not found"),
        ("/v1/client/allocation/a/b/c", 404, "resource not found"),
        ("/v1/service/a/b/c", 400, "invalid URI"),
        ("/v1/node/a/b", 500, uuid),
        ("/v1/evaluation/a/b", 500, uuid),
        ("/v1/deployment/a/b", 500, uuid),
        ("/v1/deployment/allocations/a/b", 500, uuid),
        ("/v1/operator/raft/bogus", 404, "Invalid method"),
        ("/v1/operator/keyring/bogus", 405, "Invalid method"),
    ] {
        let got = api.web.get(path).await;
        assert_eq!(got.status, status, "{path}: {}", got.text());
        assert!(got.text().contains(text), "{path}: {}", got.text());
    }
    let got = api.web.delete("/v1/node/pool/a/b").await;
    assert!(got.status == 500 && got.text().contains("not found"), "{}", got.text());
    let got = api.web.put("/v1/node/pool/a/b", &json!({"Name": "a"})).await;
    assert_eq!(answer(&got), (400, "Node pool name does not match request path".into()));
    // The route of a single object redirects to the path with a trailing slash, which may be followed by a name.
    let got = api.web.get("/v1/node/pool?x=1").await;
    assert_eq!((got.status.as_u16(), got.header("location")), (307, Some("/v1/node/pool/?x=1")));
}

#[tokio::test]
async fn a_node_that_is_not_known_has_no_allocations() {
    let api = Api::start().await;
    for node in ["nope", "a/b", "a%2Fb", NOBODY, "pool%20x"] {
        let got = api.web.get(&format!("/v1/node/{node}/allocations")).await;
        assert_eq!(answer(&got), (200, "[]".into()), "{node}");
    }
}

#[tokio::test]
async fn a_job_without_an_id_is_validated() {
    let api = Api::start().await;
    let group = json!({"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]});
    for id in [Value::Null, json!("")] {
        let job =
            json!({"ID": id, "Name": "n", "Type": "batch", "Datacenters": ["dc1"], "TaskGroups": [group]});
        let got = api.web.put("/v1/validate/job", &json!({"Job": job})).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.json()["ValidationErrors"], json!(["Missing job ID"]));
        assert_eq!(got.json()["Error"], "1 error occurred:\n\t* Missing job ID\n\n");
        let got = api.web.put("/v1/jobs", &json!({"Job": job})).await;
        assert_eq!(answer(&got), (400, "Job ID hasn't been provided".into()));
    }
    let got = api.web.put("/v1/validate/job", &json!({})).await;
    assert_eq!(answer(&got), (400, "Job must be specified".into()));
}

#[tokio::test]
async fn single_schedulers_are_disabled_and_enabled() {
    let api = Api::start().await;
    api.register_node().await;
    let path = "/v1/agent/schedulers/config";
    let set = async |number: i64, enabled: &[&str]| {
        api.web.put(path, &json!({"num_schedulers": number, "enabled_schedulers": enabled})).await
    };
    let all = ["service", "batch", "system", "sysbatch", "_core"];
    let got = set(1, &["_core", "system"]).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.json()["enabled_schedulers"], json!(["_core", "system"]));
    assert_eq!(api.web.get(path).await.json(), got.json());
    let reported = api.web.get("/v1/agent/schedulers").await.json();
    assert_eq!(reported["schedulers"][0]["enabled_schedulers"], json!(["_core", "system"]));
    // System allocations are placed; the batch job waits for its scheduler.
    api.register_job("crunch").await;
    api.register_job("everywhere").await;
    let one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    api.web.until("/v1/job/everywhere/allocations", "an allocation", one).await;
    let evals = api.web.get("/v1/job/crunch/evaluations").await.json();
    assert_eq!(evals[0]["Status"], "pending");
    assert_eq!(set(1, &all).await.status, 200);
    api.web.until("/v1/job/crunch/allocations", "an allocation", one).await;
    // First no workers at all, then the original number.
    assert_eq!(set(0, &all).await.json()["num_schedulers"], 0);
    assert_eq!(api.web.get("/v1/agent/schedulers").await.json()["schedulers"], json!([]));
    assert_eq!(set(3, &all).await.json()["num_schedulers"], 3);
    for got in
        [set(-1, &all).await, set(1, &["system"]).await, set(1, &["_core", "bogus"]).await, set(1, &[]).await]
    {
        assert_eq!(answer(&got), (400, "Invalid request".into()));
    }
    let got = api.web.put(path, &json!({"num_schedulers": "two"})).await;
    assert!(got.status == 400 && got.text().starts_with("Invalid request: "), "{}", got.text());
    assert_eq!(set(100_000, &all).await.status, 400);
    assert_eq!(api.web.get(path).await.json()["num_schedulers"], 3);
}

#[tokio::test]
async fn client_tokens_are_uploaded_and_keep_their_expiry() {
    let api = Api::start_with(AclConfig { enabled: true, ..AclConfig::default() }).await;
    let boot = api.web.put("/v1/acl/bootstrap", &json!({})).await.json();
    let root = boot["SecretID"].as_str().unwrap().to_owned();
    let put = async |path: &str, body: Value| api.web.put_as(path, &body, &root).await;
    let (accessor, secret) = ("b306571d-a3fa-42d2-ac5b-bbe49d8c3c7f", "c28ba0f6-ab8d-4e4d-b9f0-7f9f5d1c2e3a");
    let path = format!("/v1/acl/token/{accessor}");
    let row = |kind: &str, accessor: &str, secret: &str| {
        let policies = if kind == "client" { json!(["p"]) } else { Value::Null };
        json!({"AccessorID": accessor, "SecretID": secret, "Name": "n", "Type": kind, "Policies": policies})
    };
    for (body, text) in [
        (row("management", accessor, secret), "cannot upload management tokens"),
        (row("client", accessor, ""), &*format!("cannot find token {accessor}")),
        (row("client", accessor, "short"), "invalid secret ID: it must be a UUID"),
        (row("client", accessor, &root), "the secret ID is that of another token"),
    ] {
        assert_eq!(answer(&put(&path, body).await), (400, text.to_owned()));
    }
    let got = put("/v1/acl/token/short", row("client", "short", secret)).await;
    assert_eq!(answer(&got), (400, "invalid accessor ID: it must be a UUID".into()));
    let got = put(&path, row("client", accessor, secret)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.index() > 0);
    let mut token = got.json();
    assert_eq!((&token["AccessorID"], &token["SecretID"]), (&json!(accessor), &json!(secret)));
    let got = api.web.send_with(Method::GET, "/v1/acl/token/self", &[("x-nomad-token", secret)]).await;
    assert_eq!(got.json()["AccessorID"], accessor);
    // The token exists now: an update keeps its secret and its expiration.
    token["Name"] = json!("renamed");
    token["SecretID"] = json!("f5b20e34-9a6c-53d2-b8e4-7f1a2c3d5b6e");
    let got = put(&path, token.clone()).await;
    assert_eq!((got.status.as_u16(), &got.json()["SecretID"]), (200, &json!(secret)));
    token["ExpirationTTL"] = json!("10m");
    let refused = |text: &str| (400, format!("token 0 invalid: 1 error occurred:\n\t* {text}\n\n"));
    assert_eq!(answer(&put(&path, token.clone()).await), refused("cannot update expiration TTL"));
    token["ExpirationTTL"] = json!("");
    token["ExpirationTime"] = json!("2035-01-01T00:00:00Z");
    assert_eq!(answer(&put(&path, token).await), refused("cannot update expiration time"));
    // Sending back a token with an expiration does not change the token.
    let body = json!({"Name": "x", "Type": "client", "Policies": ["p"], "ExpirationTTL": "8h"});
    let mut token = put("/v1/acl/token", body).await.json();
    token["Name"] = json!("y");
    let path = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
    let got = put(&path, token.clone()).await;
    assert_eq!((got.status.as_u16(), &got.json()["ExpirationTime"]), (200, &token["ExpirationTime"]));
}
