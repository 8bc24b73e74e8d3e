//! The client against a small server in the same process.

use bytes::Bytes;
use caravan_sdk::{
    Client, Config, DeregisterOptions, Error, ExecOptions, LogOptions, LogSource, LogStart, QueryOptions,
    RegisterOptions, Token, Watch,
};
use caravan_types::ser::Secrets;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

/// A request as the server received it.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    uri: String,
    token: String,
    secrets: String,
    body: Value,
}

/// Returns the server's answer to a request: status, `X-Nomad-Index`, body.
type Script = Arc<dyn Fn(&Seen) -> (u16, u64, String) + Send + Sync>;

#[derive(Clone)]
struct Server {
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Script,
}

impl Server {
    fn new(script: impl Fn(&Seen) -> (u16, u64, String) + Send + Sync + 'static) -> Self {
        Self { seen: Arc::default(), script: Arc::new(script) }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        let header =
            |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let seen = Seen {
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            token: header("x-nomad-token"),
            secrets: header("x-nomad-csi-secrets"),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        let (status, index, text) = (self.script)(&seen);
        self.seen.lock().unwrap().push(seen);
        let mut answer = Response::new(Full::new(Bytes::from(text)));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer.headers_mut().insert("X-Nomad-Index", index.into());
        answer.headers_mut().insert("X-Nomad-KnownLeader", "true".parse().unwrap());
        Ok(answer)
    }

    fn serve(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let server = self.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| server.clone().answer(request));
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await
        });
    }

    /// Listens on a free port. Returns a client of that address.
    async fn client(&self) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                server.serve(io);
            }
        });
        let mut config = Config::default();
        config.address = format!("http://{address}").parse().unwrap();
        config.token = Some(Token::new("secret-token"));
        config.region = Some("mars".into());
        Client::new(config)
    }

    fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().cloned().unwrap()
    }
}

#[tokio::test]
async fn reads_carry_the_settings_and_answer_with_their_meta() {
    let server = Server::new(|_| (200, 42, r#"[{"ID":"web","Status":"running","Type":"service"}]"#.into()));
    let client = server.client().await;
    let answer = client.jobs().list(&QueryOptions::new().prefix("we b")).await.unwrap();
    assert_eq!(answer.value[0].id, "web");
    assert_eq!((answer.meta.index, answer.meta.known_leader), (42, true));
    let seen = server.last();
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("GET", "/v1/jobs?region=mars&prefix=we%20b"));
    assert_eq!(seen.token, "secret-token");
}

#[tokio::test]
async fn registering_sends_the_job_and_the_conditions() {
    let server = Server::new(|_| (200, 7, r#"{"EvalID":"e1","Warnings":"careful"}"#.into()));
    let client = server.client().await;
    let options = RegisterOptions { check_index: Some(0), preserve_counts: true, ..Default::default() };
    let answer = client.jobs().register(&json!({"ID": "web"}), &options, &QueryOptions::new()).await.unwrap();
    assert_eq!((answer.value.eval_id.as_str(), answer.value.warnings.as_str()), ("e1", "careful"));
    let seen = server.last();
    assert_eq!(seen.method, "PUT");
    assert_eq!(seen.body["Job"]["ID"], "web");
    assert_eq!(seen.body["EnforceIndex"], true);
    assert_eq!(seen.body["PreserveCounts"], true);
}

#[tokio::test]
async fn deletes_escape_ids_and_read_empty_bodies() {
    let server = Server::new(|seen| match seen.method == "DELETE" && seen.uri.starts_with("/v1/job/") {
        true => (200, 1, r#"{"EvalID":""}"#.into()),
        false => (200, 1, String::new()),
    });
    let client = server.client().await;
    let query = QueryOptions::new();
    client.jobs().deregister("a/b", DeregisterOptions::default(), &query).await.unwrap();
    assert!(server.last().uri.starts_with("/v1/job/a%2Fb?"));
    let secrets = Secrets::new(BTreeMap::from([("k".into(), "v".into())]));
    client.volumes().delete("data[0]", &secrets, &query).await.unwrap();
    assert_eq!(server.last().secrets, "k=v");
    assert_eq!(server.last().uri, "/v1/volume/csi/data%5B0%5D/delete?region=mars");
    assert_eq!(client.jobs().latest_deployment("x", &query).await.unwrap().value, None);
    client.system().gc().await.unwrap();
}

#[tokio::test]
async fn refusals_show_status_and_text() {
    let server = Server::new(|_| (500, 0, "No path to region\n".into()));
    let client = server.client().await;
    let error = client.nodes().list(&QueryOptions::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "Unexpected response code: 500 (No path to region)");
    assert_eq!(error.status(), Some(500));
    let server = Server::new(|_| (404, 0, String::new()));
    let client = server.client().await;
    let error = client.get::<Value>("/v1/unbuilt", &QueryOptions::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "Unexpected response code: 404 (the agent has no /v1/unbuilt)");
}

#[tokio::test]
async fn rubbish_names_the_route() {
    let server = Server::new(|_| (200, 0, "<html>".into()));
    let error = server.client().await.agent().members().await.unwrap_err();
    assert!(error.to_string().contains("/v1/agent/members"), "{error}");
}

#[tokio::test]
async fn no_agent_is_one_readable_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut config = Config::default();
    config.address = format!("http://{address}").parse().unwrap();
    let error = Client::new(config).jobs().list(&QueryOptions::new()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "no agent answers at http://{address}: start one with `caravan agent -dev` or set CARAVAN_ADDR"
        )
    );
    assert!(error.is_unreachable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::default();
    config.address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let client = Client::new(config);
    // Some connections end before the request is queued, some at that moment, some after it.
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    for _ in 0..1000 {
        let options = ExecOptions { task: "web".into(), command: vec!["true".into()], tty: false };
        let query = QueryOptions::new();
        let session = client.exec("a", &options, &query);
        let ended = tokio::time::timeout(Duration::from_secs(60), session).await.expect("the session ends");
        assert!(!ended.unwrap_err().to_string().is_empty());
    }
}

#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("api.sock");
    let server = Server::new(|_| (200, 0, r#""127.0.0.1:4647""#.into()));
    let listener = UnixListener::bind(&socket).unwrap();
    let accepting = server.clone();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            accepting.serve(io);
        }
    });
    let mut config = Config::default();
    config.address = format!("unix://{}", socket.display()).parse().unwrap();
    let client = Client::new(config);
    assert_eq!(client.status().leader(&QueryOptions::new()).await.unwrap(), "127.0.0.1:4647");

    let mut absent = Config::default();
    absent.address = format!("unix://{}/none.sock", dir.path().display()).parse().unwrap();
    let error = Client::new(absent).status().peers(&QueryOptions::new()).await.unwrap_err();
    assert!(matches!(error, Error::NoAgent { .. }), "{error:?}");
}

#[tokio::test]
async fn a_watch_waits_for_a_newer_state() {
    let server = Server::new(|seen| match seen.uri.contains("index=5") {
        true => (200, 6, r#"{"ID":"e","Status":"complete"}"#.into()),
        false => (200, 5, r#"{"ID":"e","Status":"pending"}"#.into()),
    });
    let client = server.client().await;
    let mut watch = Watch::new(QueryOptions::new());
    let mut states = Vec::new();
    loop {
        let answer = client.evaluations().info("e", watch.query()).await.unwrap();
        assert!(watch.saw(&answer.meta));
        states.push(answer.value.status.as_str());
        if answer.value.status.is_terminal() {
            break;
        }
    }
    assert_eq!(states, ["pending", "complete"]);
    assert!(server.last().uri.contains("wait=60000ms"));
}

#[tokio::test]
async fn logs_are_frames_until_the_end() {
    let server =
        Server::new(|_| (200, 0, r#"{"Data":"b25l","Offset":3}{}{"Data":"dHdv","Offset":6}"#.into()));
    let client = server.client().await;
    let options =
        LogOptions { task: "t".into(), source: LogSource::Stderr, start: LogStart::End(10), follow: false };
    let mut logs = client.allocations().logs("a", &options, &QueryOptions::new()).await.unwrap();
    let mut text = Vec::new();
    while let Some(frame) = logs.next().await.unwrap() {
        text.extend(frame.data);
    }
    assert_eq!(text, b"onetwo");
    assert_eq!(
        server.last().uri,
        "/v1/client/fs/logs/a?region=mars&follow=false&offset=10&origin=end&task=t&type=stderr"
    );
}

#[tokio::test]
async fn an_unhealthy_agent_still_tells_its_health() {
    let server = Server::new(|_| (500, 0, r#"{"server":{"ok":false,"message":"No cluster leader"}}"#.into()));
    let health = server.client().await.agent().health().await.unwrap();
    assert_eq!(health.server.unwrap().message, "No cluster leader");
    assert!(health.client.is_none());
}

#[tokio::test]
async fn events_are_lines_until_the_end() {
    let lines = "{}\n{\"Index\":7,\"Events\":[{\"Topic\":\"Job\"}]}\n";
    let server = Server::new(|_| (200, 0, lines.into()));
    let client = server.client().await;
    let topics = ["Job:web".to_owned(), "Node".to_owned()];
    let mut events = client.events(&topics, 5, &QueryOptions::new()).await.unwrap();
    assert!(events.next().await.unwrap().unwrap().events.is_empty(), "a sign of life");
    let batch = events.next().await.unwrap().unwrap();
    assert_eq!((batch.index, &batch.events[0]["Topic"]), (7, &json!("Job")));
    assert!(events.next().await.unwrap().is_none());
    let seen = server.seen.lock().unwrap()[0].clone();
    assert_eq!(seen.uri, "/v1/event/stream?region=mars&topic=Job%3Aweb&topic=Node&index=5");
    let pause = std::time::Duration::from_millis(500);
    client.newest_events(&topics[1..], 0, pause, &QueryOptions::new()).await.unwrap();
    let seen = server.seen.lock().unwrap()[1].clone();
    assert_eq!(seen.uri, "/v1/event/stream?region=mars&coalesce=500ms&topic=Node");
}
