//! Nodes and the facts that agents report about themselves.

use crate::harness::{Api, NODE};
use crate::shape::{differences, recorded};
use serde_json::{Value, json};

#[tokio::test]
async fn the_pools_that_are_always_there_stay_as_they_are() {
    let api = Api::start().await;
    for name in ["all", "default"] {
        let got = api.web.put("/v1/node/pools", &json!({"Name": name, "Description": "mine"})).await;
        assert_eq!(
            (got.status.as_u16(), got.text()),
            (400, format!("modifying node pool \"{name}\" is not allowed"))
        );
    }
}

#[tokio::test]
async fn nodes_have_their_recorded_shapes() {
    let api = Api::start().await;
    api.register_node().await;
    let got = api.web.get(&format!("/v1/node/{NODE}")).await;
    // CPU topologies and devices are stored, not reported.
    let found = differences(&recorded("nodes", &format!("/v1/node/{NODE}")), &got.json());
    assert!(found.iter().all(|d| d.contains("Topology")), "{found:?}");
    assert_eq!((&got.json()["SecretID"], &got.json()["Drain"]), (&json!(""), &json!(false)));
    assert!(!got.text().contains("a-secret-of-the-node"));
    let list = api.web.get("/v1/nodes").await.json();
    let found = differences(&recorded("nodes", "/v1/nodes"), &list);
    assert!(found.iter().all(|d| d.contains("LastDrain")), "{found:?}");
    let more = api.web.get("/v1/nodes?resources=true&os=true").await.json();
    assert_eq!(more[0]["Attributes"].as_object().unwrap().len(), 1);
    assert!(more[0]["NodeResources"].is_object());
    assert_eq!(api.web.get("/v1/nodes?prefix=0169").await.json().as_array().unwrap().len(), 1);
    assert_eq!(api.web.get("/v1/nodes?prefix=ffff0000").await.text(), "[]");
    assert_eq!(api.web.get(&format!("/v1/node/{NODE}/allocations")).await.text(), "[]");
    let short = api.web.get("/v1/node/short").await;
    assert_eq!(
        (short.status.as_u16(), short.text().as_str()),
        (500, "node lookup failed: index error: UUID must be 36 characters")
    );
}

#[tokio::test]
async fn the_usage_of_nodes_has_their_metadata() {
    let api = Api::start().await;
    api.register_node_as(|node| {
        node.meta = (0..300).map(|at| (format!("key{at:03}"), "x".to_owned())).collect();
        node.meta.insert("a.rack".into(), "r7".into());
        node.attributes.insert("caravan.version".into(), "1.2.3".into());
    })
    .await;
    let rack = api.web.get("/v1/caravan/nodes/usage?meta=a.rack").await.json();
    assert_eq!((&rack["Meta"], &rack["Version"]), (&json!(["r7"]), &json!(["1.2.3"])), "{rack}");
    let keys = rack["MetaKeys"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0], &keys[199]), (200, &json!("a.rack"), &json!("key198")));
    let other = api.web.get("/v1/caravan/nodes/usage?meta=row").await.json();
    assert_eq!((&other["Meta"], &other["MetaKeys"]), (&json!([""]), &rack["MetaKeys"]), "{other}");
    // The keys include those of nodes that did not change.
    let none = api.web.get("/v1/caravan/nodes/usage?meta=a.rack&since=99999999").await.json();
    assert_eq!((&none["Meta"], &none["MetaKeys"]), (&json!([]), &rack["MetaKeys"]), "{none}");
}

/// A change of the members or of the leader is a line of the stream, without a request.
#[tokio::test]
async fn the_servers_are_followed() {
    let api = Api::start().await;
    // The answer waits for the leader.
    assert_eq!(api.web.get("/v1/status/leader").await.text(), "\"127.0.0.1:4647\"");
    let once = api.web.get("/v1/caravan/servers").await.json();
    assert_eq!(once["Leader"], "127.0.0.1:4647");
    assert_eq!(once["Members"], api.web.get("/v1/agent/members").await.json()["Members"]);
    let mut lines = crate::events::Lines::open_path(&api, "/v1/caravan/servers?follow=true").await;
    assert_eq!(lines.next().await, Some(once));
    let mut tags = api.members.own().unwrap().server_tags();
    tags.build = "9.9.9".into();
    api.members.set_tags(tags).await.unwrap();
    let next = lines.next().await.unwrap();
    assert_eq!(next["Members"][0]["Tags"]["build"], "9.9.9", "{next}");
}

#[tokio::test]
async fn an_agent_tells_about_itself() {
    let api = Api::start().await;
    let own = api.web.get("/v1/agent/self").await.json();
    assert_eq!(own["config"], json!({"Region": "global"}));
    assert_eq!(
        (&own["member"]["Name"], &own["member"]["Port"]),
        (&json!("fixture-node.global"), &json!(4648))
    );
    assert_eq!(own["stats"]["nomad"]["leader"], "true");
    assert!(own["stats"].get("client").is_none());
    let health = api.web.get("/v1/agent/health").await;
    assert_eq!(
        (health.status.as_u16(), health.json()),
        (200, json!({"server": {"ok": true, "message": "ok"}}))
    );
    assert_eq!(api.web.get("/v1/status/leader").await.text(), "\"127.0.0.1:4647\"");
    assert_eq!(api.web.get("/v1/status/peers?pretty").await.text(), "[\n    \"127.0.0.1:4647\"\n]\n");
    assert_eq!(api.web.get("/v1/regions").await.text(), "[\"global\"]");
    assert_eq!(api.web.get("/v1/agent/servers").await.status, 501);
    let members = api.web.get("/v1/agent/members").await.json();
    assert_eq!(members["ServerDC"], "dc1");
    assert_eq!(members["Members"].as_array().map(Vec::len), Some(1));
    let raft = api.web.get("/v1/operator/raft/configuration").await.json();
    assert_eq!(raft["Servers"][0]["Leader"], Value::Bool(true));
    assert_eq!(api.web.get("/v1/namespaces").await.json()[0]["Name"], "default");
    let metrics = api.web.get("/v1/metrics").await.json();
    let of_claims = |gauge: &&Value| gauge["Name"] == "nomad.volumes.claims";
    assert_eq!(metrics["Gauges"].as_array().map(|all| all.iter().filter(of_claims).count()), Some(9));
    let unknown = api.web.get("/v1/volume/csi/none/explain").await;
    assert_eq!((unknown.status.as_u16(), unknown.text().as_str()), (404, "volume not found"));
}
