//! Forwarded requests: a client's to a server, a server's to the node.

use crate::harness::{Api, NOBODY, NODE, Node1, Web, serve};
use caravan_http::HttpState;
use caravan_rpc::{Channel, PeerIdentity, Secret};
use caravan_types::{AllocId, NodeId};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server with a node that has one allocation, and the API of an agent that is only that node.
struct Pair {
    api: Api,
    alloc: String,
    client: Web,
    _registration: Box<dyn std::any::Any>,
    _stop: DropGuard,
}

async fn pair() -> Pair {
    let api = Api::start().await;
    api.register_node().await;
    api.register_job("crunch").await;
    let one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    let list = api.web.until("/v1/allocations", "an allocation", one).await;
    let alloc = list[0]["ID"].as_str().unwrap().to_owned();

    let cancel = CancellationToken::new();
    let servers =
        HttpState { server: Some(api.server.clone()), info: api.info.clone(), ..HttpState::default() };
    let identity = PeerIdentity::Client { node_id: NODE.into(), secret: Secret::new("x") };
    let relay = Channel::local(caravan_http::rpc(servers).build(), identity);
    let node = Node1 { id: NodeId::new(NODE), allocs: vec![AllocId::new(&alloc)] };
    let state = HttpState {
        client: Some(Arc::new(node)),
        relay: Some(relay),
        info: api.info.clone(),
        stopping: cancel.clone(),
        ..HttpState::default()
    };
    let identity = PeerIdentity::Server { name: "s".into() };
    let back = Channel::local(caravan_http::rpc(state.clone()).build(), identity);
    let registration = Box::new(api.registry.register(NODE.to_owned(), back));
    let client = serve(state, cancel.clone()).await;
    Pair { api, alloc, client, _registration: registration, _stop: cancel.drop_guard() }
}

#[tokio::test]
async fn a_client_answers_about_the_cluster_through_a_server() {
    let pair = pair().await;
    let (own, other) = (pair.api.web.get("/v1/jobs").await, pair.client.get("/v1/jobs").await);
    assert_eq!(own.text(), other.text());
    assert_eq!((own.index(), own.header("content-type")), (other.index(), other.header("content-type")));
    let missing = pair.client.get("/v1/job/nope").await;
    assert_eq!((missing.status.as_u16(), missing.text().as_str()), (404, "job not found"));
    let stopped = pair.client.delete("/v1/job/crunch").await;
    assert_eq!(stopped.status, 200);
    assert_eq!(pair.client.get("/v1/agent/servers").await.text(), "[\"127.0.0.1:4647\"]");
    let own = pair.client.get("/v1/agent/self").await.json();
    assert_eq!(own["stats"]["client"]["node_id"], NODE);
    assert_eq!(pair.client.get("/v1/agent/health").await.json()["client"]["ok"], true);
}

#[tokio::test]
async fn files_and_logs_come_from_whoever_is_asked() {
    let pair = pair().await;
    let alloc = &pair.alloc;
    for web in [&pair.client, &pair.api.web] {
        let list = web.get(&format!("/v1/client/fs/ls/{alloc}")).await;
        assert_eq!(
            list.text(),
            r#"[{"FileMode":"-rw-r-----","IsDir":false,"ModTime":"2026-11-21T09:20:05.320444342Z","Name":"words.txt","Size":17}]"#
        );
        let missing = web.get(&format!("/v1/client/fs/ls/{alloc}?path=/nope")).await;
        assert_eq!((missing.status.as_u16(), missing.text().as_str()), (404, "no such file"));
        let cat = web.get(&format!("/v1/client/fs/cat/{alloc}?path=words.txt")).await;
        assert_eq!(cat.text(), "alpha\nbeta\ngamma\n");
        assert_eq!(cat.header("x-content-type-options"), Some("nosniff"));
        let refused = web.get(&format!("/v1/client/fs/cat/{alloc}?path=x")).await;
        assert_eq!(
            (refused.status.as_u16(), refused.text().as_str()),
            (200, "stat: no such file or directory")
        );
        assert_eq!(refused.header("x-content-type-options"), None);
        let part = web.get(&format!("/v1/client/fs/readat/{alloc}?path=words.txt&offset=6&limit=4")).await;
        assert_eq!(part.text(), "beta");
        let frames = web.get(&format!("/v1/client/fs/logs/{alloc}?task=once&type=stdout")).await;
        assert_eq!(frames.text(), r#"{"Data":"bGluZSAxCg==","File":"alloc/logs/once.stdout.0","Offset":7}"#);
        assert_eq!(frames.header("content-type"), Some("application/json"));
        let plain = web.get(&format!("/v1/client/fs/logs/{alloc}?task=once&type=stdout&plain=true")).await;
        assert_eq!((plain.text().as_str(), plain.header("content-type")), ("line 1\n", Some("text/plain")));
        let restart =
            web.put(&format!("/v1/client/allocation/{alloc}/restart"), &json!({"TaskName": "once"})).await;
        assert_eq!(restart.text(), r#"{"Index":0}"#);
        let wrong =
            web.put(&format!("/v1/client/allocation/{alloc}/restart"), &json!({"TaskName": "nope"})).await;
        assert_eq!(
            (wrong.status.as_u16(), wrong.text().as_str()),
            (500, "Could not find task runner for task: nope")
        );
        assert_eq!(web.get(&format!("/v1/client/stats?node_id={NODE}")).await.json()["Uptime"], 1);
    }
}

#[tokio::test]
async fn requests_about_nothing_end_with_a_sentence() {
    let pair = pair().await;
    let alloc = &pair.alloc;
    for web in [&pair.client, &pair.api.web] {
        for (path, status, text) in [
            (format!("/v1/client/fs/ls/{NOBODY}"), 404, format!("Unknown allocation \"{NOBODY}\"")),
            ("/v1/client/fs/ls/".to_owned(), 400, "must provide a valid alloc id".to_owned()),
            (format!("/v1/client/fs/tree/{alloc}"), 404, "Invalid method".to_owned()),
            (format!("/v1/client/fs/stat/{alloc}"), 400, "must provide a file name".to_owned()),
            (format!("/v1/client/fs/logs/{alloc}?type=stdout"), 400, "must provide task name".to_owned()),
            (
                format!("/v1/client/fs/logs/{alloc}?task=once&type=stdin"),
                400,
                "must provide log type (stdout/stderr)".to_owned(),
            ),
            (
                format!("/v1/client/fs/stream/{alloc}?path=a&origin=middle"),
                400,
                "origin must be start or end".to_owned(),
            ),
            (format!("/v1/client/allocation/{alloc}/nonsense"), 404, "resource not found".to_owned()),
            (format!("/v1/client/stats?node_id={NOBODY}"), 404, format!("Unknown node {NOBODY}")),
        ] {
            let got = web.get(&path).await;
            assert_eq!((got.status.as_u16(), got.text()), (status, text), "{path}");
        }
    }
}

#[tokio::test]
async fn a_node_that_is_away_has_no_path() {
    let pair = pair().await;
    let Pair { api, alloc, _registration: registration, .. } = pair;
    drop(registration);
    let got = api.web.get(&format!("/v1/client/fs/ls/{alloc}")).await;
    assert_eq!((got.status.as_u16(), got.text().as_str()), (404, "No path to node"));
}

#[tokio::test]
async fn a_followed_log_comes_at_once_and_ends_with_the_agent() {
    let pair = pair().await;
    let path = format!("/v1/client/fs/logs/{}?task=once&type=stdout&follow=true", pair.alloc);
    // Once from the node, once through the server.
    let mut answers = vec![pair.client.open(&path).await, pair.api.web.open(&path).await];
    for answer in &mut answers {
        let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.starts_with(b"{\"Data\":\"bGluZSAxCg==\""), "{first:?}");
    }
    drop(pair._stop);
    for answer in answers {
        let rest = tokio::time::timeout(Duration::from_secs(20), answer.into_body().collect()).await;
        // Only heartbeats came before the end.
        assert!(rest.unwrap().unwrap().to_bytes().chunks(2).all(|beat| beat == b"{}"));
    }
}
