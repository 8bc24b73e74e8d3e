//! Hostile and faulty clients.

use crate::harness::{Api, serve};
use caravan_http::{HttpState, Transport};
use http::Method;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

async fn received(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_client_has_so_many_connections_and_no_more() {
    let api = Api::start().await;
    let transport = Transport { connections_per_client: 3, ..Transport::default() };
    let state = HttpState {
        server: Some(api.server.clone()),
        info: api.info.clone(),
        transport: Arc::new(transport),
        ..HttpState::default()
    };
    let web = serve(state, CancellationToken::new()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(web.address).await.unwrap();
        stream.write_all(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(stream);
    }
    let mut surplus = TcpStream::connect(web.address).await.unwrap();
    let text = received(&mut surplus).await;
    assert!(
        text.starts_with("HTTP/1.1 429 Too Many Requests\r\n") && text.contains("Connection: close"),
        "{text}"
    );
    held.pop();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let mut stream = TcpStream::connect(web.address).await.unwrap();
        stream
            .write_all(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        if received(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the place of a closed connection is not given on");
    }
}

#[tokio::test]
async fn headers_are_spelt_as_scripts_look_for_them() {
    let api = Api::start().await;
    let mut stream = TcpStream::connect(api.web.address).await.unwrap();
    stream.write_all(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let text = received(&mut stream).await;
    for header in ["X-Nomad-Index", "X-Nomad-Knownleader", "X-Nomad-Lastcontact", "Content-Type", "Vary"] {
        assert!(text.contains(&format!("\r\n{header}: ")), "{header}: {text}");
    }
}

#[tokio::test]
async fn malformed_requests_hurt_nobody() {
    let api = Api::start().await;
    for text in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET /v1/jobs HTTP/9.9\r\n\r\n",
        "GET /v1/jobs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let mut stream = TcpStream::connect(api.web.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let answer = received(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{text:?}: {answer}");
    }
    let many = format!("GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "a".repeat(300_000));
    let mut stream = TcpStream::connect(api.web.address).await.unwrap();
    // The server may close the connection while the client still sends.
    let _ = stream.write_all(many.as_bytes()).await;
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).await.is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    for body in [
        "{\"Job\": ".repeat(10_000),
        "[".repeat(200_000),
        "{\"Job\": {\"ID\": \"x\", \"Priority\": 1e999}}".to_owned(),
        "\u{0}\u{1}".to_owned(),
    ] {
        let got = api.web.send(Method::PUT, "/v1/jobs", body.into_bytes()).await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(got.text().len() < 1000);
    }
    let filter = format!("/v1/jobs?filter={}", "(".repeat(30_000));
    assert_eq!(api.web.get(&filter).await.status, 400);
    assert_eq!(api.web.get("/v1/status/leader").await.status, 200);
}

#[tokio::test]
async fn a_huge_body_is_refused_with_words_and_not_kept() {
    let api = Api::start().await;
    let got = api.web.send(Method::PUT, "/v1/jobs", vec![b' '; 3 * caravan_http::MAX_BODY]).await;
    assert_eq!((got.status.as_u16(), got.text().as_str()), (413, "the request body is larger than 16 MiB"));
}

#[tokio::test]
async fn slow_clients_hold_nobody_up() {
    let api = Api::start().await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(api.web.address).await.unwrap();
        stream.write_all(b"PUT /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{").await.unwrap();
        slow.push(stream);
    }
    let job = json!({"Job": {"ID": "quick", "Type": "batch", "Datacenters": ["dc1"], "TaskGroups": [
        {"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]}});
    assert_eq!(api.web.put("/v1/jobs", &job).await.status, 200);
    assert_eq!(api.web.get("/v1/job/quick").await.status, 200);
}

#[tokio::test]
async fn idle_queries_wake_for_their_own_change_only() {
    let api = Api::start().await;
    let job = |n: usize, text: &str| {
        json!({"Job": {"ID": format!("j{n}"), "Type": "batch", "Datacenters": ["dc1"], "Meta": {"text": text},
            "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]}})
    };
    const JOBS: usize = 20;
    for n in 0..JOBS {
        assert_eq!(api.web.put("/v1/jobs", &job(n, "a")).await.status, 200);
    }
    let mut waiting = Vec::new();
    for n in 0..60 {
        let web = api.web.clone();
        waiting.push(tokio::spawn(async move {
            let path = format!("/v1/job/j{}", n % JOBS);
            // Waits until the job has no pending change left.
            loop {
                let before = web.get(&path).await;
                if before.json()["Meta"]["text"] == "b" {
                    return true;
                }
                let index = before.index();
                let got = web.get(&format!("{path}?index={index}&wait=60s")).await;
                if got.json()["Meta"]["text"] == "b" {
                    return got.index() > index;
                }
            }
        }));
    }
    for n in 0..JOBS {
        assert_eq!(api.web.put("/v1/jobs", &job(n, "b")).await.status, 200);
    }
    for query in waiting {
        assert!(tokio::time::timeout(Duration::from_secs(30), query).await.unwrap().unwrap());
    }
}
