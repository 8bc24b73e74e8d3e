//! An API over an in-memory server, and a node whose reports the test chooses.

use async_trait::async_trait;
use bytes::Bytes;
use caravan_client::fs::AllocFs;
use caravan_client::{
    ClientError, ExecEvent, ExecInput, ExecRequest, ExecStream, Metadata, ProcessUsage, Usage,
};
use caravan_consensus::{Config, ServerId};
use caravan_http::{AgentInfo, ClientSide, HttpState, MetricsConfig};
use caravan_messages::{AllocStatus, ClaimGrant, ClaimProgress, ClaimVolume, NodeHeartbeat, NodeRegister};
use caravan_rpc::{Channel, PeerIdentity, ReverseRegistry, Secret, methods};
use caravan_server::{AclConfig, Handle, HeartbeatConfig, ServerConfig, Service};
use caravan_types::alloc::{
    AllocUpdate, Allocation, ClientStatus, TaskEvent, TaskRunState, TaskState, event,
};
use caravan_types::device::DeviceGroupStats;
use caravan_types::identity::Claims;
use caravan_types::node::{Node, NodeSecret};
use caravan_types::service::CheckResult;
use caravan_types::small::Map;
use caravan_types::volume::ClaimId;
use caravan_types::{AllocId, NodeId, Time, UnixNanos};
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
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
    pub(crate) members: caravan_members::Handle,
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
        self.send_body(method, path, Vec::new(), headers).await
    }
    /// Sends a request with a body and headers.
    pub(crate) async fn send_body(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> Got {
        let uri = format!("http://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.request(request.body(Full::from(body)).unwrap()).await.unwrap();
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

/// Starts the membership of a server that has no other members.
async fn members(cancel: CancellationToken) -> caravan_members::Handle {
    let id = "f051869f-93a0-cd13-9369-44e967205d70".parse().unwrap();
    let tags = caravan_members::ServerTags {
        region: "global".into(),
        datacenter: "dc1".into(),
        build: "0.1.0".into(),
        id,
        rpc_addr: "127.0.0.1".into(),
        port: 4647,
        expect: 1,
        ..Default::default()
    };
    let config = caravan_members::Config {
        id,
        node: "fixture-node".into(),
        advertise: ([127, 0, 0, 1], 4648).into(),
        tags,
        dir: None,
        encrypt: None,
        accept_plain: false,
        rejoin_after_leave: false,
        timing: caravan_members::Timing::default(),
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (handle, service) = caravan_members::Service::start(config, listener).unwrap();
    tokio::spawn(service.run(cancel));
    handle
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
            cluster: caravan_server::ClusterConfig::alone("s"),
            region: "global".into(),
            log: Config {
                peer: caravan_consensus::Peer::at("127.0.0.1:4647"),
                ..Config::memory(ServerId(1))
            },
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
            ui: Default::default(),
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
        let members = members(cancel.clone()).await;
        let state = HttpState {
            server: Some(server.clone()),
            members: Some(members.clone()),
            info: info.clone(),
            ..HttpState::default()
        };
        let web = serve(state, cancel.clone()).await;
        let identity = PeerIdentity::Client { node_id: NODE.into(), secret: Secret::new(SECRET) };
        let node = Channel::local(server.rpc().build(), identity);
        Self { server, registry, info, members, web, node, _stop: cancel.drop_guard() }
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
        let beat = NodeHeartbeat {
            node_id: NodeId::new(NODE),
            secret: NodeSecret::new(SECRET),
            wants_identity: false,
        };
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

/// A client whose allocations share a directory with a file and the logs of the tasks.
#[derive(Debug)]
pub(crate) struct Node1 {
    id: NodeId,
    allocs: Vec<AllocId>,
    dir: TempDir,
}

/// The tasks of each allocation of a [`Node1`]. Only the first one runs.
const TASKS: [&str; 3] = ["once", "t", "web"];

impl Node1 {
    pub(crate) fn new(allocs: Vec<AllocId>) -> Self {
        let dir = TempDir::new().unwrap();
        let (local, logs) = (dir.path().join("web/local"), dir.path().join("alloc/logs"));
        for below in [&local, &logs] {
            fs::create_dir_all(below).unwrap();
        }
        for task in TASKS {
            fs::write(logs.join(format!("{task}.stdout.0")), "line 1\n").unwrap();
        }
        let words = local.join("words.txt");
        fs::write(&words, "alpha\nbeta\ngamma\n").unwrap();
        fs::set_permissions(&words, Permissions::from_mode(0o640)).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_795_252_805_320_444_342);
        fs::File::options().write(true).open(&words).unwrap().set_modified(modified).unwrap();
        Self { id: NodeId::new(NODE), allocs, dir }
    }

    fn known(&self, alloc: &AllocId) -> Result<(), ClientError> {
        match self.allocs.contains(alloc) {
            true => Ok(()),
            false => Err(ClientError::UnknownAlloc(alloc.to_string())),
        }
    }

    fn task(&self, alloc: &AllocId, task: &str) -> Result<(), ClientError> {
        self.known(alloc)?;
        match TASKS.contains(&task) {
            true => Ok(()),
            false => Err(ClientError::UnknownTask(task.to_owned())),
        }
    }
}

#[async_trait]
impl ClientSide for Node1 {
    fn node_id(&self) -> NodeId {
        self.id.clone()
    }
    fn node(&self) -> Arc<Node> {
        Arc::new(Node { id: self.id.clone(), ..Node::default() })
    }
    fn last_heartbeat(&self) -> Option<(Duration, Duration)> {
        None
    }
    fn meters(&self) -> caravan_meters::Meters {
        caravan_meters::Meters::default()
    }
    fn metadata(&self) -> Metadata {
        Metadata::default()
    }
    fn allocs_dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
    fn has_alloc(&self, alloc: &AllocId) -> bool {
        self.allocs.contains(alloc)
    }
    fn alloc_ids(&self) -> Vec<AllocId> {
        self.allocs.clone()
    }
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)> {
        let row = |id: &AllocId| Arc::new(Allocation { id: id.clone(), ..Allocation::default() });
        self.allocs.iter().map(|id| (row(id), ClientStatus::Running)).collect()
    }
    fn status(&self, alloc: &AllocId) -> Result<(ClientStatus, Map<String, TaskState>), ClientError> {
        self.known(alloc)?;
        let states = TASKS.map(|task| (task.to_owned(), TaskState::default()));
        Ok((ClientStatus::Running, states.into_iter().collect()))
    }
    fn fs(&self, alloc: &AllocId) -> Result<AllocFs, ClientError> {
        self.known(alloc)?;
        Ok(AllocFs::of_agent(self.dir.path(), TASKS.map(str::to_owned).into()))
    }
    fn checks(&self, alloc: &AllocId) -> Result<BTreeMap<String, CheckResult>, ClientError> {
        self.known(alloc)?;
        Ok(BTreeMap::from([("c1".to_owned(), CheckResult { id: "c1".into(), ..CheckResult::default() })]))
    }
    fn action(&self, alloc: &AllocId, task: &str, name: &str) -> Result<Vec<String>, ClientError> {
        self.task(alloc, task)?;
        Err(ClientError::UnknownAction { action: name.to_owned(), task: task.to_owned() })
    }
    fn restart(&self, alloc: &AllocId, task: Option<&str>, _: bool) -> Result<(), ClientError> {
        task.map_or(Ok(()), |task| self.task(alloc, task))
    }
    async fn restored(&self) {}
    async fn identity_claims(&self) -> Result<Claims, ClientError> {
        Ok(Claims { node_id: self.id.to_string(), iat: 7, ..Claims::default() })
    }
    async fn renew_identity(&self) -> Result<(), ClientError> {
        Err(ClientError::Unsigned("No cluster leader".into()))
    }
    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Metadata, ClientError> {
        match changes.contains_key("") {
            true => Err(ClientError::Metadata("metadata keys must not be empty".into())),
            false => Ok(Metadata { dynamic: changes, ..Metadata::default() }),
        }
    }
    async fn stats(&self, alloc: &AllocId, task: &str) -> Result<Usage, ClientError> {
        self.task(alloc, task)?;
        if task != TASKS[0] {
            return Err(ClientError::TaskNotRunning(task.to_owned()));
        }
        let processes = vec![ProcessUsage { pid: 42, rss: 2048, ..ProcessUsage::default() }];
        Ok(Usage { rss: 4096, processes, ..Usage::default() })
    }
    fn device_stats(&self) -> Vec<DeviceGroupStats> {
        Vec::new()
    }
    fn task_device_stats(&self, alloc: &AllocId, task: &str) -> Result<Vec<DeviceGroupStats>, ClientError> {
        self.task(alloc, task).map(|()| Vec::new())
    }
    async fn signal(&self, alloc: &AllocId, task: Option<&str>, _: &str) -> Result<(), ClientError> {
        task.map_or(Ok(()), |task| self.task(alloc, task))
    }
    async fn exec_stream(
        &self,
        alloc: &AllocId,
        task: &str,
        request: ExecRequest,
    ) -> Result<ExecStream, ClientError> {
        self.task(alloc, task)?;
        // The program prints its command and then its input, until the input ends.
        let (input, mut inputs) = tokio::sync::mpsc::channel(4);
        let (outputs, output) = tokio::sync::mpsc::channel(4);
        let words = request.command.join(" ");
        tokio::spawn(async move {
            let _ = outputs.send(Ok(ExecEvent::Stdout(words.into_bytes()))).await;
            while let Some(message) = inputs.recv().await {
                match message {
                    ExecInput::Data(data) => drop(outputs.send(Ok(ExecEvent::Stdout(data))).await),
                    ExecInput::Resize { rows, columns } => {
                        let text = format!("{rows}x{columns}");
                        drop(outputs.send(Ok(ExecEvent::Stdout(text.into_bytes()))).await);
                    }
                    ExecInput::Close => break,
                }
            }
            let _ = outputs.send(Ok(ExecEvent::StdoutClosed)).await;
            let _ = outputs.send(Ok(ExecEvent::Exited(3))).await;
        });
        Ok(ExecStream { input, output })
    }
    async fn collect(&self, alloc: &AllocId) -> Result<bool, ClientError> {
        self.known(alloc)?;
        Ok(false)
    }
    async fn collect_all(&self) -> Result<(), ClientError> {
        Ok(())
    }
}
