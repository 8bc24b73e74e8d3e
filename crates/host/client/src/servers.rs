//! The calls of a client to the servers, independent of the transport.

use crate::state::Identity;
use async_trait::async_trait;
use caravan_messages::{
    AllocDelta, AllocStatus, ClaimProgress, ClaimReport, ClaimVolume, DiskChunk, Done, FetchDisk,
    NodeContact, NodeEvents, NodeHeartbeat, NodeRegister, ServiceSync, SignIdentities, SignNode,
    SignedIdentities, SignedNode, VolumeStats, WatchAllocs,
};
use caravan_rpc::{Channel, RpcError, Targets, methods};
use caravan_types::lookup::{LookupsFound, WatchLookups};
use futures::stream::{BoxStream, StreamExt};
use rand::seq::SliceRandom as _;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A stream of responses; its last item may be the error that ended it.
pub type Answers<T> = BoxStream<'static, Result<T, RpcError>>;

/// The servers as a client sees them.
#[async_trait]
pub trait Servers: Debug + Send + Sync + 'static {
    /// Replaces the known addresses by the list of an answer. An empty list changes nothing.
    fn learn(&self, addresses: &[String]) {
        let _ = addresses;
    }
    /// Makes later calls use another server, because the current server did not answer in time.
    fn leave_server(&self) {}
    /// Registers the node, or reports changes of it.
    async fn register(&self, request: NodeRegister) -> Result<NodeContact, RpcError>;
    /// Sends a heartbeat.
    async fn heartbeat(&self, request: NodeHeartbeat) -> Result<NodeContact, RpcError>;
    /// Reports node events.
    async fn node_events(&self, request: NodeEvents) -> Result<Done, RpcError>;
    /// Follows the node's allocations.
    async fn watch_allocs(&self, request: WatchAllocs) -> Answers<AllocDelta>;
    /// Reports the status of allocations.
    async fn alloc_status(&self, request: AllocStatus) -> Result<Done, RpcError>;
    /// Requests a claim on a volume and follows its progress.
    async fn claim_volume(&self, request: ClaimVolume) -> Answers<ClaimProgress>;
    /// Proves a step of a claim.
    async fn claim_report(&self, request: ClaimReport) -> Result<Done, RpcError>;
    /// Reports the usage of volumes.
    async fn volume_stats(&self, request: VolumeStats) -> Result<Done, RpcError>;
    /// Reports the services of an allocation.
    async fn sync_services(&self, request: ServiceSync) -> Result<Done, RpcError>;
    /// Follows the data that a task's templates read.
    async fn watch_lookups(&self, request: WatchLookups) -> Answers<LookupsFound>;
    /// Requests signed workload identities of tasks.
    async fn sign_identities(&self, request: SignIdentities) -> Result<SignedIdentities, RpcError>;
    /// Requests the signed identity of the node.
    async fn sign_node(&self, request: SignNode) -> Result<SignedNode, RpcError>;
    /// Requests the ephemeral disk of an allocation's predecessor on another node.
    async fn fetch_disk(&self, request: FetchDisk) -> Answers<DiskChunk>;
}

/// The servers behind an RPC channel.
#[derive(Clone, Debug)]
pub struct RpcServers {
    channel: Channel,
    known: Option<KnownServers>,
}

/// The addresses of the servers, kept for the next start of the agent.
#[derive(Clone, Debug)]
pub struct KnownServers {
    targets: Targets,
    file: PathBuf,
}

impl KnownServers {
    /// Reads the addresses of an earlier agent, which are tried after the configured ones. Once the servers have sent
    /// their addresses, the configured ones are tried only if no server at these addresses answers.
    pub fn open(targets: Targets, file: PathBuf) -> Self {
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        let mut list = targets.list();
        targets.set_fallback(list.clone());
        list.extend(stored.lines().map(str::to_owned).filter(|line| !line.is_empty()));
        let mut seen = BTreeSet::new();
        list.retain(|address| seen.insert(address.clone()));
        targets.set(list);
        Self { targets, file }
    }

    fn learn(&self, addresses: &[String]) {
        let current: BTreeSet<String> = self.targets.list().into_iter().collect();
        if addresses.is_empty() || current == addresses.iter().cloned().collect() {
            return;
        }
        tracing::info!(servers = ?addresses, "the list of servers has changed");
        // In random order: when a server ends, its clients do not all connect to the same server next.
        let mut list = addresses.to_vec();
        list.shuffle(&mut rand::rng());
        self.targets.set(list);
        let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        if let Err(error) = caravan_sys::files::atomic_write(&self.file, text.as_bytes(), 0o600) {
            tracing::warn!(error = caravan_sys::describe(&error), "the list of servers cannot be stored");
        }
    }
}

/// The timeout of a call: each of these calls is short.
const DEADLINE: Option<Duration> = Some(Duration::from_secs(30));

impl RpcServers {
    /// Creates the servers over a channel, local or remote.
    pub fn new(channel: Channel) -> Self {
        Self { channel, known: None }
    }

    /// Creates the servers of other agents, whose addresses are learned from their answers.
    pub fn learning(channel: Channel, known: KnownServers) -> Self {
        Self { channel, known: Some(known) }
    }
}

#[async_trait]
impl Servers for RpcServers {
    fn learn(&self, addresses: &[String]) {
        if let Some(known) = &self.known {
            known.learn(addresses);
        }
    }
    fn leave_server(&self) {
        self.channel.leave_server();
    }
    async fn register(&self, request: NodeRegister) -> Result<NodeContact, RpcError> {
        self.channel.call::<methods::NodeRegister>(request, DEADLINE).await
    }
    async fn heartbeat(&self, request: NodeHeartbeat) -> Result<NodeContact, RpcError> {
        self.channel.call::<methods::NodeHeartbeat>(request, DEADLINE).await
    }
    async fn node_events(&self, request: NodeEvents) -> Result<Done, RpcError> {
        self.channel.call::<methods::NodeEvents>(request, DEADLINE).await
    }
    async fn watch_allocs(&self, request: WatchAllocs) -> Answers<AllocDelta> {
        self.channel.stream::<methods::WatchAllocs>(request).boxed()
    }
    async fn alloc_status(&self, request: AllocStatus) -> Result<Done, RpcError> {
        self.channel.call::<methods::AllocStatus>(request, DEADLINE).await
    }
    async fn claim_volume(&self, request: ClaimVolume) -> Answers<ClaimProgress> {
        self.channel.stream::<methods::ClaimVolume>(request).boxed()
    }
    async fn claim_report(&self, request: ClaimReport) -> Result<Done, RpcError> {
        self.channel.call::<methods::ClaimReport>(request, DEADLINE).await
    }
    async fn volume_stats(&self, request: VolumeStats) -> Result<Done, RpcError> {
        self.channel.call::<methods::VolumeStats>(request, DEADLINE).await
    }
    async fn sync_services(&self, request: ServiceSync) -> Result<Done, RpcError> {
        self.channel.call::<methods::ServiceSync>(request, DEADLINE).await
    }
    async fn watch_lookups(&self, request: WatchLookups) -> Answers<LookupsFound> {
        self.channel.stream::<methods::WatchLookups>(request).boxed()
    }
    async fn sign_identities(&self, request: SignIdentities) -> Result<SignedIdentities, RpcError> {
        self.channel.call::<methods::SignIdentities>(request, DEADLINE).await
    }
    async fn sign_node(&self, request: SignNode) -> Result<SignedNode, RpcError> {
        self.channel.call::<methods::SignNode>(request, DEADLINE).await
    }
    async fn fetch_disk(&self, request: FetchDisk) -> Answers<DiskChunk> {
        self.channel.stream::<methods::FetchDisk>(request).boxed()
    }
}

/// The node's calls to the servers, with the identity that each call contains.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) identity: Arc<Identity>,
    pub(crate) servers: Arc<dyn Servers>,
}
