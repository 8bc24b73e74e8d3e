//! Forwarded requests: a client's to a server, a server's to the node.

use crate::harness::{Api, NOBODY, NODE, Node1, Web, serve};
use caravan_http::HttpState;
use caravan_messages::{HttpPart, HttpRequest};
use caravan_rpc::{Channel, ConnectOptions, PeerIdentity, Secret, ServerList, ServerPeer, methods};
use caravan_types::AllocId;
use futures::StreamExt as _;
use http::Method;
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
    /// The server's channel to the node.
    back: Channel,
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
    let node = Node1::new(vec![AllocId::new(&alloc)]);
    let state = HttpState {
        client: Some(Arc::new(node)),
        relay: Some(relay),
        info: api.info.clone(),
        stopping: cancel.clone(),
        ..HttpState::default()
    };
    let identity = PeerIdentity::server("s");
    let back = Channel::local(caravan_http::rpc(state.clone()).build(), identity);
    let registration = Box::new(api.registry.register(NODE.to_owned(), back.clone()));
    let client = serve(state, cancel.clone()).await;
    Pair { api, alloc, client, back, _registration: registration, _stop: cancel.drop_guard() }
}

#[tokio::test]
async fn a_client_answers_about_the_cluster_through_a_server() {
    let pair = pair().await;
    let (own, other) = (pair.api.web.get("/v1/jobs").await, pair.client.get("/v1/jobs").await);
    assert_eq!(own.text(), other.text());
    assert_eq!((own.index(), own.header("content-type")), (other.index(), other.header("content-type")));
    assert_eq!(own.header("content-length"), other.header("content-length"));
    assert!(other.header("content-length").is_some() && other.header("transfer-encoding").is_none());
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
async fn servers_are_listed_in_one_order() {
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    let identity = PeerIdentity::Client { node_id: NODE.into(), secret: Secret::new("x") };
    let addresses = ["10.0.0.3:4647", "10.0.0.1:4647", "10.0.0.2:4647"].map(str::to_owned);
    let options = ConnectOptions::new(addresses.into(), identity, "global");
    let state = HttpState {
        client: Some(Arc::new(Node1::new(vec![]))),
        servers: Some(ServerList::new(options)),
        ..HttpState::default()
    };
    let client = serve(state, cancel).await;
    let listed = client.get("/v1/agent/servers").await.json();
    assert_eq!(listed, json!(["10.0.0.1:4647", "10.0.0.2:4647", "10.0.0.3:4647"]));
}

#[tokio::test]
async fn files_and_logs_come_from_whoever_is_asked() {
    let pair = pair().await;
    let alloc = &pair.alloc;
    for web in [&pair.client, &pair.api.web] {
        let root = web.get(&format!("/v1/client/fs/ls/{alloc}")).await.json();
        let names: Vec<&Value> = root.as_array().unwrap().iter().map(|file| &file["Name"]).collect();
        assert_eq!(names, ["alloc", "web"]);
        let list = web.get(&format!("/v1/client/fs/ls/{alloc}?path=/web/local")).await;
        assert_eq!(
            list.text(),
            r#"[{"FileMode":"-rw-r-----","IsDir":false,"ModTime":"2026-11-21T09:20:05.320444342Z","Name":"words.txt","Size":17}]"#
        );
        let stat = |path: &str| format!("/v1/client/fs/stat/{alloc}?path={path}");
        let words = web.get(&stat("web/local/words.txt")).await.json();
        assert_eq!(
            (&words["ContentType"], &words["Size"]),
            (&json!("text/plain; charset=utf-8"), &json!(17))
        );
        assert_eq!(web.get(&stat("web")).await.json()["ContentType"], "application/octet-stream");
        let cat = |path: &str| format!("/v1/client/fs/cat/{alloc}?path={path}");
        let words = web.get(&cat("web/local/words.txt")).await;
        assert_eq!(words.text(), "alpha\nbeta\ngamma\n");
        assert_eq!(words.header("x-content-type-options"), Some("nosniff"));
        // Refusals of these two routes are content.
        for path in [cat("x"), format!("/v1/client/fs/readat/{alloc}?path=x&offset=0&limit=1")] {
            let refused = web.get(&path).await;
            let text = refused.text();
            assert_eq!(refused.status, 200, "{text}");
            assert!(text.starts_with("stat /") && text.ends_with("/x: no such file or directory"), "{text}");
            assert_eq!(refused.header("x-content-type-options"), None);
        }
        // In front of a stream, a missing file is a bad request.
        for (path, status, begin) in [
            (format!("/v1/client/fs/ls/{alloc}?path=/nope"), 404, "open /"),
            (stat("nope"), 404, "stat /"),
            (format!("/v1/client/fs/stream/{alloc}?path=nope"), 400, "stat /"),
        ] {
            let missing = web.get(&path).await;
            let text = missing.text();
            assert_eq!(missing.status, status, "{path}: {text}");
            assert!(text.starts_with(begin) && text.ends_with("/nope: no such file or directory"), "{text}");
        }
        let part =
            web.get(&format!("/v1/client/fs/readat/{alloc}?path=web/local/words.txt&offset=6&limit=4")).await;
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
        assert_eq!(
            web.get(&format!("/v1/client/stats?node_id={NODE}")).await.json()["DeviceStats"],
            Value::Null
        );
    }
}

#[tokio::test]
async fn answers_of_the_node_have_their_shapes() {
    let pair = pair().await;
    let alloc = &pair.alloc;
    let of = |rest: &str| format!("/v1/client/allocation/{alloc}/{rest}");
    for web in [&pair.client, &pair.api.web] {
        let host = web.get(&format!("/v1/client/stats?node_id={NODE}")).await.json();
        for key in ["Memory", "CPU", "DiskStats", "AllocDirStats", "Uptime", "Timestamp", "CPUTicksConsumed"]
        {
            assert!(!host[key].is_null(), "{key}: {host}");
        }
        let usage = web.get(&of("stats")).await.json();
        let tasks: Vec<&String> = usage["Tasks"].as_object().unwrap().keys().collect();
        assert_eq!(tasks, ["once"], "only tasks that run are measured");
        assert_eq!(usage["ResourceUsage"]["DeviceStats"], json!([]));
        let task = &usage["Tasks"]["once"];
        assert_eq!(task["ResourceUsage"]["MemoryStats"]["RSS"], 4096);
        assert_eq!(task["ResourceUsage"]["DeviceStats"], Value::Null);
        assert_eq!(task["Pids"]["42"]["MemoryStats"]["RSS"], 2048);
        assert_eq!(web.get(&of("checks")).await.json()["c1"]["ID"], "c1");
        let by_node = |path: &str| format!("/v1/client/{path}?node_id={NODE}");
        let identity = web.get(&by_node("identity")).await;
        assert_eq!(
            identity.text(),
            format!(r#"{{"Claims":{{"iat":7.0,"jti":"","nbf":0.0,"nomad_node_id":"{NODE}","sub":""}}}}"#)
        );
        let metadata = web.get(&by_node("metadata")).await;
        assert_eq!(metadata.text(), r#"{"Dynamic":{},"Meta":{},"Static":{}}"#);
        let change = json!({"Meta": {"color": "blue", "rack": null}});
        let changed = web.put(&by_node("metadata"), &change).await;
        assert_eq!(changed.text(), r#"{"Dynamic":{"color":"blue","rack":null},"Meta":{},"Static":{}}"#);
        let snapshot = web.get(&of("snapshot")).await;
        assert_eq!(
            (snapshot.status.as_u16(), snapshot.header("content-type")),
            (200, Some("application/x-tar"))
        );
    }
}

#[tokio::test]
async fn refusals_of_the_node_have_their_status_and_text() {
    let pair = pair().await;
    let alloc = &pair.alloc;
    let of = |rest: &str| format!("/v1/client/allocation/{alloc}/{rest}");
    let by_node = |path: &str| format!("/v1/client/{path}?node_id={NODE}");
    let unsigned = "the node's identity cannot be signed: No cluster leader";
    let not_collected = "No such allocation on client, or allocation not eligible for GC";
    for web in [&pair.client, &pair.api.web] {
        for (method, path, body, status, text) in [
            (Method::GET, of("stats?task=nope"), json!({}), 400, "unknown task name \"nope\""),
            (Method::PUT, of("signal"), json!({"Task": "nope", "Signal": "SIGHUP"}), 500, "Task not found"),
            (
                Method::PUT,
                of("restart"),
                json!({"TaskName": "nope"}),
                500,
                "Could not find task runner for task: nope",
            ),
            (Method::PUT, of("gc"), json!({}), 500, not_collected),
            (
                Method::PUT,
                by_node("metadata"),
                json!({"Meta": {"": "x"}}),
                400,
                "metadata keys must not be empty",
            ),
            (Method::PUT, by_node("identity/renew"), json!({}), 500, unsigned),
            (
                Method::GET,
                format!("/v1/client/fs/logs/{alloc}?task=nope&type=stdout"),
                json!({}),
                400,
                "unknown task name \"nope\"",
            ),
            (
                Method::GET,
                format!("/v1/client/fs/logs/{alloc}?task=web&type=stderr"),
                json!({}),
                404,
                "task \"web\" not started yet. No logs available",
            ),
        ] {
            let got = web.send(method, &path, body.to_string().into_bytes()).await;
            assert_eq!((got.status.as_u16(), got.text().as_str()), (status, text), "{path}");
        }
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
    let words = "No path to node: the node has no connection to a server, and made none within 5s";
    assert_eq!((got.status.as_u16(), got.text().as_str()), (404, words));
}

#[tokio::test]
async fn a_node_that_is_about_to_connect_is_waited_for() {
    let pair = pair().await;
    let Pair { api, alloc, back, _registration: registration, .. } = pair;
    drop(registration);
    let path = format!("/v1/client/fs/ls/{alloc}");
    let answer = api.web.get(&path);
    let connects = async {
        // The request is on its way by then; a connection before it would pass the test as well.
        tokio::task::yield_now().await;
        api.registry.register(NODE.to_owned(), back)
    };
    let (got, _registration) = tokio::join!(answer, connects);
    assert_eq!(got.status, 200, "{}", got.text());
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

/// The term of a leader ends while a query waits for a change. The next leader holds the query for the rest of its
/// time.
#[tokio::test]
async fn a_query_that_waited_at_another_server_has_the_rest_of_its_time() {
    let api = Api::start().await;
    let state =
        HttpState { server: Some(api.server.clone()), info: api.info.clone(), ..HttpState::default() };
    let other = ServerPeer { is_member: true, ..ServerPeer::default() };
    let channel = Channel::local(caravan_http::rpc(state).build(), PeerIdentity::Server(other));
    api.register_job("crunch").await;
    let index = api.web.get("/v1/jobs").await.index();
    let request = HttpRequest {
        method: "GET".into(),
        uri: format!("/v1/jobs?index={index}&wait=9m"),
        headers: vec![("x-caravan-waited".into(), Duration::from_secs(600).as_millis().to_string())],
        body: Vec::new(),
    };
    let mut answer = channel.stream::<methods::Http>(request);
    let head = tokio::time::timeout(Duration::from_secs(60), answer.next()).await.expect("an answer at once");
    assert!(matches!(head, Some(Ok(HttpPart::Head { status: 200, .. }))), "{head:?}");
}
