//! Events over HTTP, and programs over a websocket.

use crate::harness::{Api, NODE, Node1, Web, serve};
use caravan_http::HttpState;
use caravan_rpc::{Channel, PeerIdentity};
use caravan_types::AllocId;
use futures::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tokio_tungstenite::{WebSocketStream, tungstenite::handshake::client::generate_key};
use tokio_util::sync::CancellationToken;

/// Upgrades a connection and sends the first messages. Returns the received messages, with the close frame's code and
/// reason last.
pub(crate) async fn talk(web: &Web, path: &str, first: &[Value]) -> Vec<Value> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect(web.address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
        web.address,
        generate_key()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    for message in first {
        socket.send(Message::text(message.to_string())).await.unwrap();
    }
    let mut reported = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Text(text) => reported.push(serde_json::from_str(&text).unwrap()),
            Message::Close(Some(frame)) => {
                reported.push(json!({"close": u16::from(frame.code), "reason": frame.reason.as_str()}));
            }
            _ => {}
        }
    }
    reported
}

/// Starts a server, and a node with one allocation.
async fn node(api: &Api, alloc: &str) -> Box<dyn std::any::Any> {
    let node = Node1::new(vec![AllocId::new(alloc)]);
    let state = HttpState { client: Some(Arc::new(node)), info: api.info.clone(), ..HttpState::default() };
    let identity = PeerIdentity::server("s");
    let back = Channel::local(caravan_http::rpc(state).build(), identity);
    Box::new(api.registry.register(NODE.to_owned(), back))
}

async fn placed(api: &Api) -> String {
    api.register_node().await;
    api.register_job("crunch").await;
    let one = |list: &Value| list.as_array().is_some_and(|list| list.len() == 1);
    let list = api.web.until("/v1/allocations", "an allocation", one).await;
    list[0]["ID"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn programs_are_talked_to_through_the_server() {
    let api = Api::start().await;
    let alloc = placed(&api).await;
    let _node = node(&api, &alloc).await;
    let path = |rest: &str| format!("/v1/client/allocation/{alloc}/exec?{rest}");
    let command = "command=%5B%22say%22%2C%22it%22%5D";
    let first = [
        json!({"tty_size": {"height": 24, "width": 80}}),
        json!({}),
        json!({"stdin": {"data": "aGkK"}}),
        json!({"stdin": {"close": true}}),
    ];
    let reported = talk(&api.web, &path(&format!("task=t&tty=true&{command}")), &first).await;
    let want = [
        json!({"stdout": {"data": "c2F5IGl0"}}),
        json!({"stdout": {"data": "MjR4ODA="}}),
        json!({"stdout": {"data": "aGkK"}}),
        json!({"stdout": {"close": true}}),
        json!({"exited": true, "result": {"exit_code": 3}}),
    ];
    assert_eq!(reported, want);
    // The recorded refusals.
    let close = json!({"stdin": {"close": true}});
    for (query, code, reason) in [
        (format!("task=nope&{command}"), 1011, "task not found"),
        (command.to_owned(), 1008, "must provide task name"),
        (
            "task=t&command=not%20json".to_owned(),
            1011,
            "failed to marshal command into json: invalid character 'o' in literal null (expecting 'u')",
        ),
        (
            format!("task=t&tty=perhaps&{command}"),
            1011,
            "tty value is not a boolean: strconv.ParseBool: parsing \"perhaps\": invalid syntax",
        ),
    ] {
        let reported = talk(&api.web, &path(&query), std::slice::from_ref(&close)).await;
        assert_eq!(reported, [json!({"close": code, "reason": reason})], "{query}");
    }
    let action = |name: &str| format!("/v1/job/crunch/action?allocID={alloc}&task=t&action={name}");
    let reported = talk(&api.web, &action("dump"), &[]).await;
    assert_eq!(reported, [json!({"close": 1008, "reason": "action dump not found in task t"})]);
    let unknown =
        "/v1/client/allocation/11111111-2222-3333-4444-555555555555/exec?task=t&command=%5B%22x%22%5D";
    let reported = talk(&api.web, unknown, &[]).await;
    let reason = "Unknown allocation \"11111111-2222-3333-4444-555555555555\"";
    assert_eq!(reported, [json!({"close": 1008, "reason": reason})]);
    let shaken = [json!({"version": 1, "auth_token": ""}), close.clone()];
    let reported = talk(&api.web, &path(&format!("task=t&ws_handshake=true&{command}")), &shaken).await;
    assert_eq!(reported.last(), Some(&json!({"exited": true, "result": {"exit_code": 3}})));
    let plain = api.web.get(&path(command)).await;
    assert_eq!(plain.status, 500);
    assert_eq!(plain.text(), "websocket connection not found in context");
}

#[tokio::test]
async fn events_come_in_lines_and_the_first_line_at_once() {
    let api = Api::start().await;
    let mut stream = api.web.open("/v1/event/stream?topic=Job:crunch&topic=Node").await.into_body();
    let mut text = String::new();
    let mut line = async || {
        while !text.contains('\n') {
            let frame = stream.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        let rest = text.split_off(text.find('\n').unwrap() + 1);
        serde_json::from_str::<Value>(&std::mem::replace(&mut text, rest)).unwrap()
    };
    assert_eq!(line().await, json!({}));
    api.register_node().await;
    let node = line().await;
    assert_eq!(
        (&node["Events"][0]["Topic"], &node["Events"][0]["Type"]),
        (&json!("Node"), &json!("NodeRegistration"))
    );
    assert_eq!(node["Events"][0]["Payload"]["Node"]["ID"], NODE);
    assert!(!node.to_string().contains("a-secret-of-the-node"), "the node's secret is nobody's business");
    api.register_job("crunch").await;
    let job = line().await;
    let events = job["Events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "the evaluation was not asked for: {job}");
    assert_eq!(events[0]["Index"], job["Index"]);
    assert_eq!((&events[0]["Namespace"], &events[0]["FilterKeys"]), (&json!("default"), &Value::Null));
    let bad = api.web.get("/v1/event/stream?topic=a:b:c").await;
    assert_eq!(bad.status, 400);
}

/// A list that was read before the stream began lacks changes, unless its index is that of the first line.
#[tokio::test]
async fn the_first_line_names_the_newest_changes() {
    let api = Api::start().await;
    api.register_job("crunch").await;
    let path = "/v1/event/stream?topic=Job&topic=Node:x&topic=Bogus&caravan=true";
    let newest = async || {
        let list = api.web.get("/v1/jobs").await;
        let mut stream = api.web.open(path).await.into_body();
        let frame = stream.frame().await.unwrap().unwrap();
        let line: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
        let job = line["Caravan"]["Indexes"]["Job"].as_u64().unwrap();
        assert_eq!(line, json!({"Caravan": {"Denied": [], "Indexes": {"Job": job}}}));
        let index: u64 = list.header("x-nomad-index").unwrap().parse().unwrap();
        assert!(job <= index, "a list that contains everything lacks nothing: {job}, {index}");
        (job, index, stream)
    };
    let (_, before, _) = newest().await;
    api.register_job("everywhere").await;
    let (after, _, mut stream) = newest().await;
    assert!(after > before, "the older list lacks a job: {before}, {after}");
    // Events from before the first line are not repeated.
    assert_eq!(api.web.delete("/v1/job/crunch").await.status, 200);
    let frame = stream.frame().await.unwrap().unwrap();
    let line: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
    assert!(line["Index"].as_u64() > Some(after) && line["Events"][0]["Key"] == "crunch", "{line}");
}

#[tokio::test]
async fn an_event_stream_ends_with_its_agent() {
    let api = Api::start().await;
    let cancel = CancellationToken::new();
    let state = HttpState {
        server: Some(api.server.clone()),
        info: api.info.clone(),
        stopping: cancel.clone(),
        ..HttpState::default()
    };
    let web = serve(state, CancellationToken::new()).await;
    let mut stream = web.open("/v1/event/stream").await.into_body();
    assert!(stream.frame().await.is_some());
    cancel.cancel();
    while let Some(frame) = stream.frame().await {
        frame.unwrap();
    }
}
