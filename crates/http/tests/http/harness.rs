//! An API over an in-memory server, and a node that reports only what the test tells it to report.

use async_trait::async_trait;
use bytes::Bytes;
use caravan_consensus::{Config, ServerId};
use caravan_http::{
    AgentInfo, ClientSide, ClientSideError, Content, ExecSession, FileInfo, Frame, Frames, HttpState,
    LogKind, MetricsConfig, Range,
};
use caravan_rpc::{Channel, PeerIdentity, ReverseRegistry, Secret, methods};
use caravan_server::{AclConfig, Handle, HeartbeatConfig, ServerConfig, Service};
use caravan_types::alloc::{
    AllocUpdate, Allocation, ClientStatus, TaskEvent, TaskRunState, TaskState, event,
};
use caravan_types::node::{Node, NodeSecret};
use caravan_types::volume::ClaimId;
use caravan_types::wire::{
    AllocStatus, ClaimGrant, ClaimProgress, ClaimVolume, ExecIn, ExecOpen, ExecOut, NodeHeartbeat,
    NodeRegister,
};
use caravan_types::{AllocId, NodeId, Time, UnixNanos};
use futures::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NODE: &str = "01699b02-73ad-eed7-f6f4-9aa9612a238d";
pub(crate) const NOBODY: &str = "11111111-2222-3333-4444-555555555555";
const SECRET: &str = "a-secret-of-the-node";

/// A server, its API on a port, and the means to act as its node.
pub(crate) struct Api {
    pub(crate) server: Handle,
    pub(crate) registry: ReverseRegistry,
    pub(crate) info: Arc<AgentInfo>,
    pub(crate) web: Web,
    node: Channel,
    _stop: DropGuard,
}

/// A client of one API.
#[derive(Clone)]
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A received answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
    pub(crate) fn index(&self) -> u64 {
        self.header("x-nomad-index").unwrap().parse().unwrap()
    }
}

impl Web {
    pub(crate) async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Got {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::builder().method(method).uri(uri).body(Full::from(body)).unwrap();
        let response = self.client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: parts.status, headers: parts.headers, body }
    }
    /// Starts to receive a streaming answer.
    pub(crate) async fn open(&self, path: &str) -> Response<Incoming> {
        let uri = format!("http://{}{path}", self.address);
        self.client.request(Request::get(uri).body(Full::default()).unwrap()).await.unwrap()
    }
    /// Sends a request with headers.
    pub(crate) async fn send_with(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Got {
        let uri = format!("http://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.request(request.body(Full::default()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: parts.status, headers: parts.headers, body }
    }
    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send(Method::GET, path, Vec::new()).await
    }
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Got {
        self.send(Method::PUT, path, body.to_string().into_bytes()).await
    }
    /// Sends a request with a token; without one if `secret` is empty.
    pub(crate) async fn send_as(&self, method: Method, path: &str, body: Vec<u8>, secret: &str) -> Got {
        let uri = format!("http://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(uri);
        if !secret.is_empty() {
            request = request.header("X-Nomad-Token", secret);
        }
        let response = self.client.request(request.body(Full::from(body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: parts.status, headers: parts.headers, body }
    }
    /// Starts to receive a streaming answer, with a token.
    pub(crate) async fn open_as(&self, path: &str, secret: &str) -> Response<Incoming> {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::get(uri).header("X-Nomad-Token", secret).body(Full::default()).unwrap();
        self.client.request(request).await.unwrap()
    }
    /// Sends a PUT request with a token.
    pub(crate) async fn put_as(&self, path: &str, body: &Value, secret: &str) -> Got {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::put(uri).header("X-Nomad-Token", secret).body(Full::from(body.to_string()));
        let response = self.client.request(request.unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: parts.status, headers: parts.headers, body }
    }
    pub(crate) async fn delete(&self, path: &str) -> Got {
        self.send(Method::DELETE, path, Vec::new()).await
    }
    /// Polls until the answer satisfies `good`, or fails after a timeout.
    pub(crate) async fn until(&self, path: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut index = 0;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let got = self.get(&format!("{path}{separator}index={index}&wait=1s")).await;
            if got.status == StatusCode::OK && good(&got.json()) {
                return got.json();
            }
            assert!(Instant::now() < deadline, "waited for {what}, {path} says {}", got.text());
            // A table that was never written shows index 0, which does not block.
            index = got.index().max(1);
        }
    }
}

/// Serves a state on a new port.
pub(crate) async fn serve(state: HttpState, cancel: CancellationToken) -> Web {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(caravan_http::serve(listener, state, cancel));
    Web { address, client: Client::builder(TokioExecutor::new()).build_http() }
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(AclConfig::default()).await
    }

    /// Starts an API with this access control configuration.
    pub(crate) async fn start_with(acl: AclConfig) -> Self {
        let cancel = CancellationToken::new();
        let registry = ReverseRegistry::default();
        let config = ServerConfig {
            region: "global".into(),
            log: Config::memory(ServerId(1)),
            addresses: vec!["127.0.0.1:4647".into()],
            workers: caravan_server::Workers::all(1),
            heartbeat: HeartbeatConfig::default(),
            lease: Default::default(),
            keyring: None,
            volume_calls_per_plugin: caravan_server::CALLS_PER_PLUGIN,
            acl,
            issuer: None,
            gc: Default::default(),
            rejections: Default::default(),
        };
        let (server, service) = Service::start(config, registry.clone()).await.unwrap();
        tokio::spawn(service.run(cancel.clone()));
        let info = Arc::new(AgentInfo {
            region: "global".into(),
            datacenter: "dc1".into(),
            name: "fixture-node".into(),
            version: "0.1.0".into(),
            server_id: "f051869f-93a0-cd13-9369-44e967205d70".into(),
            http_addr: "127.0.0.1:4646".into(),
            rpc_addr: "127.0.0.1:4647".into(),
            dev: true,
            metrics: MetricsConfig { allocations: true, node: true, prometheus: true },
            config: json!({"Region": "global"}).into(),
        });
        let state = HttpState { server: Some(server.clone()), info: info.clone(), ..HttpState::default() };
        let web = serve(state, cancel.clone()).await;
        let identity = PeerIdentity::Client { node_id: NODE.into(), secret: Secret::new(SECRET) };
        let node = Channel::local(server.rpc().build(), identity);
        Self { server, registry, info, web, node, _stop: cancel.drop_guard() }
    }

    /// Registers the recorded node, with the mock driver.
    pub(crate) async fn register_node(&self) {
        self.register_node_as(|_| {}).await;
    }

    /// Registers the recorded node with changes.
    pub(crate) async fn register_node_as(&self, edit: impl FnOnce(&mut Node)) {
        let recorded = crate::shape::exchanges("nodes");
        let recorded = recorded.iter().find(|e| e["path"] == format!("/v1/node/{NODE}")).unwrap();
        let mut node: Node = serde_json::from_value(recorded["body"].clone()).unwrap();
        node.secret_id = NodeSecret::new(SECRET);
        let healthy = |name: &str| caravan_types::node::DriverInfo {
            attributes: BTreeMap::from([(format!("driver.{name}"), "true".to_owned())]),
            detected: true,
            healthy: true,
            health_description: "Healthy".into(),
            update_time: Time(1),
        };
        node.drivers = ["mock_driver", "raw_exec"].map(|name| (name.to_owned(), healthy(name))).into();
        for name in ["mock_driver", "raw_exec"] {
            node.attributes.insert(format!("driver.{name}"), "1".into());
        }
        node.datacenter = "dc1".into();
        edit(&mut node);
        self.node.call::<methods::NodeRegister>(NodeRegister { node }, None).await.unwrap();
    }

    /// Registers a recorded job of the topic `jobs`.
    pub(crate) async fn register_job(&self, id: &str) -> Got {
        let recorded = crate::shape::exchanges("jobs");
        let body = recorded
            .iter()
            .filter(|e| e["path"] == "/v1/jobs" && e["method"] != "GET")
            .map(|e| &e["request_body"])
            .find(|body| body["Job"]["ID"] == id)
            .unwrap();
        let got = self.web.put("/v1/jobs", body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got
    }

    /// Sends a heartbeat of the node.
    pub(crate) async fn beat(&self) {
        let beat = NodeHeartbeat { node_id: NodeId::new(NODE), secret: NodeSecret::new(SECRET) };
        self.node.call::<methods::NodeHeartbeat>(beat, None).await.unwrap();
    }

    /// Requests a volume for the node until the claim is granted.
    pub(crate) async fn claim(&self, claim: ClaimId) -> ClaimGrant {
        let request = ClaimVolume { node_id: NodeId::new(NODE), secret: NodeSecret::new(SECRET), claim };
        let mut progress = self.node.stream::<methods::ClaimVolume>(request);
        loop {
            match progress.next().await.unwrap().unwrap() {
                ClaimProgress::Attached(grant) => return *grant,
                ClaimProgress::Waiting { .. } => {}
                ClaimProgress::Denied { reason } => panic!("{reason}"),
            }
        }
    }

    /// Reports for the node that all tasks of an allocation run.
    pub(crate) async fn run(&self, alloc: &Value) {
        let id = AllocId::new(alloc["ID"].as_str().unwrap());
        let row = self.server.store().snapshot().alloc(&id).unwrap().clone();
        let started = TaskEvent::new(event::STARTED, UnixNanos(5));
        let running = TaskState {
            state: TaskRunState::Running,
            started_at: Time(5),
            events: vec![started],
            ..TaskState::default()
        };
        let tasks = row.group().unwrap().tasks.iter().map(|task| (task.name.clone(), running.clone()));
        let update = AllocUpdate {
            alloc_id: id,
            client_status: ClientStatus::Running,
            client_description: "Tasks are running".into(),
            task_states: tasks.collect(),
            ..AllocUpdate::default()
        };
        let status = AllocStatus {
            node_id: NodeId::new(NODE),
            secret: NodeSecret::new(SECRET),
            updates: vec![update],
        };
        self.node.call::<methods::AllocStatus>(status, None).await.unwrap();
    }
}

/// A client with one file in each of its allocations.
#[derive(Debug)]
pub(crate) struct Node1 {
    pub(crate) id: NodeId,
    pub(crate) allocs: Vec<AllocId>,
}

fn refused(status: StatusCode, text: &str) -> ClientSideError {
    ClientSideError::new(status, text)
}

#[async_trait]
impl ClientSide for Node1 {
    fn node_id(&self) -> NodeId {
        self.id.clone()
    }
    fn has_alloc(&self, alloc: &AllocId) -> bool {
        self.allocs.contains(alloc)
    }
    fn alloc_count(&self) -> usize {
        self.allocs.len()
    }
    fn node(&self) -> Arc<Node> {
        Arc::new(Node { id: self.id.clone(), ..Node::default() })
    }
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)> {
        Vec::new()
    }
    fn meters(&self) -> caravan_meters::Meters {
        caravan_meters::Meters::default()
    }
    fn last_heartbeat(&self) -> Option<(std::time::Duration, std::time::Duration)> {
        None
    }
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
    async fn ready(&self) {}
    async fn snapshot(&self, _: &AllocId) -> Result<Content, ClientSideError> {
        Ok(stream::iter([Ok(Bytes::from_static(b"archive"))]).boxed())
    }
    async fn identity(&self) -> Result<Value, ClientSideError> {
        Ok(json!({"nomad_node_id": self.id}))
    }
    async fn renew_identity(&self) -> Result<(), ClientSideError> {
        Ok(())
    }
    async fn list(&self, _: &AllocId, path: &str) -> Result<Vec<FileInfo>, ClientSideError> {
        let file = FileInfo {
            name: "words.txt".into(),
            size: 17,
            file_mode: "-rw-r-----".into(),
            mod_time: Time(1_795_252_805_320_444_342),
            ..FileInfo::default()
        };
        if path == "/" { Ok(vec![file]) } else { Err(refused(StatusCode::NOT_FOUND, "no such file")) }
    }
    async fn stat(&self, alloc: &AllocId, _: &str) -> Result<FileInfo, ClientSideError> {
        let file = self.list(alloc, "/").await?.remove(0);
        Ok(FileInfo { content_type: Some("text/plain; charset=utf-8".into()), ..file })
    }
    async fn read(
        &self,
        _: &AllocId,
        path: &str,
        offset: i64,
        limit: Option<u64>,
    ) -> Result<Content, ClientSideError> {
        if path != "words.txt" {
            return Err(refused(StatusCode::NOT_FOUND, "stat: no such file or directory"));
        }
        let text = Bytes::from_static(b"alpha\nbeta\ngamma\n");
        let from = usize::try_from(offset).unwrap();
        let to = limit.map_or(text.len(), |limit| from + usize::try_from(limit).unwrap());
        Ok(stream::iter([Ok(text.slice(from..to))]).boxed())
    }
    async fn stream(&self, _: &AllocId, path: &str, _: Range) -> Result<Frames, ClientSideError> {
        let data = Bytes::from_static(b"alpha\nbeta\ngamma\n");
        let frame = Frame { data, file: path.into(), offset: 17, event: String::new() };
        Ok(stream::iter([Ok(frame)]).boxed())
    }
    async fn logs(
        &self,
        _: &AllocId,
        task: &str,
        kind: LogKind,
        range: Range,
    ) -> Result<Frames, ClientSideError> {
        let frame = Frame {
            data: Bytes::from_static(b"line 1\n"),
            file: format!("alloc/logs/{task}.{}.0", kind.as_str()),
            offset: 7,
            event: String::new(),
        };
        let first = stream::iter([Ok(frame)]);
        Ok(if range.follow { first.chain(stream::pending()).boxed() } else { first.boxed() })
    }
    async fn alloc_stats(&self, _: &AllocId, _: Option<&str>) -> Result<Value, ClientSideError> {
        Ok(json!({"Tasks": {}}))
    }
    async fn host_stats(&self) -> Result<Value, ClientSideError> {
        Ok(json!({"Uptime": 1}))
    }
    async fn restart(&self, _: &AllocId, task: Option<&str>, _: bool) -> Result<(), ClientSideError> {
        match task {
            Some("nope") => {
                Err(refused(StatusCode::INTERNAL_SERVER_ERROR, "Could not find task runner for task: nope"))
            }
            _ => Ok(()),
        }
    }
    async fn exec(&self, open: &ExecOpen) -> Result<ExecSession, ClientSideError> {
        if open.task == "nope" {
            return Err(refused(StatusCode::INTERNAL_SERVER_ERROR, "task not found"));
        }
        // The program prints its command and then its input, until the input ends.
        let (input, mut inputs) = tokio::sync::mpsc::channel(4);
        let (outputs, output) = tokio::sync::mpsc::channel(4);
        let words = open.command.join(" ");
        tokio::spawn(async move {
            let _ = outputs.send(Ok(ExecOut::Stdout(words.into_bytes()))).await;
            while let Some(message) = inputs.recv().await {
                match message {
                    ExecIn::Data(data) => drop(outputs.send(Ok(ExecOut::Stdout(data))).await),
                    ExecIn::Resize { rows, columns } => {
                        let text = format!("{rows}x{columns}");
                        drop(outputs.send(Ok(ExecOut::Stdout(text.into_bytes()))).await);
                    }
                    ExecIn::Close => break,
                }
            }
            let _ = outputs.send(Ok(ExecOut::StdoutClosed)).await;
            let _ = outputs.send(Ok(ExecOut::Exited(3))).await;
        });
        let output = stream::unfold(output, |mut output| async move { Some((output.recv().await?, output)) });
        Ok(ExecSession { input, output: output.boxed() })
    }
    async fn checks(&self, _: &AllocId) -> Result<Value, ClientSideError> {
        Ok(json!({}))
    }
    async fn collect(&self, _: &AllocId) -> Result<(), ClientSideError> {
        Ok(())
    }
    async fn collect_all(&self) -> Result<(), ClientSideError> {
        Ok(())
    }
    async fn metadata(&self) -> Result<Value, ClientSideError> {
        Ok(json!({"Meta": {}, "Dynamic": {}, "Static": {}}))
    }
    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Value, ClientSideError> {
        Ok(json!({"Meta": changes, "Dynamic": changes, "Static": {}}))
    }
    async fn signal(&self, _: &AllocId, _: Option<&str>, _: &str) -> Result<(), ClientSideError> {
        Ok(())
    }
}
