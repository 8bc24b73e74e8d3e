//! Servers that become known only after the client exists, because the connection to them needs the client's
//! identity.

use async_trait::async_trait;
use caravan_client::{Answers, RpcServers, Servers};
use caravan_rpc::{Channel, RpcError};
use caravan_types::lookup::{LookupsFound, WatchLookups};
use caravan_types::wire::{
    AllocDelta, AllocStatus, ClaimProgress, ClaimReport, ClaimVolume, DiskChunk, Done, FetchDisk,
    NodeContact, NodeEvents, NodeHeartbeat, NodeRegister, ServiceSync, SignIdentities, SignNode,
    SignedIdentities, SignedNode, VolumeStats, WatchAllocs,
};
use futures::StreamExt;
use std::sync::OnceLock;

/// Set once, before the client runs.
#[derive(Debug, Default)]
pub(crate) struct LateServers(OnceLock<RpcServers>);

impl LateServers {
    pub(crate) fn set(&self, channel: Channel) {
        // The agent calls this exactly once.
        let _ = self.0.set(RpcServers::new(channel));
    }

    fn get(&self) -> Result<&RpcServers, RpcError> {
        self.0.get().ok_or_else(|| RpcError::unavailable("the agent has no way to a server yet"))
    }
}

#[async_trait]
impl Servers for LateServers {
    async fn register(&self, request: NodeRegister) -> Result<NodeContact, RpcError> {
        self.get()?.register(request).await
    }
    async fn heartbeat(&self, request: NodeHeartbeat) -> Result<NodeContact, RpcError> {
        self.get()?.heartbeat(request).await
    }
    async fn node_events(&self, request: NodeEvents) -> Result<Done, RpcError> {
        self.get()?.node_events(request).await
    }
    async fn watch_allocs(&self, request: WatchAllocs) -> Answers<AllocDelta> {
        match self.get() {
            Ok(servers) => servers.watch_allocs(request).await,
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
    async fn alloc_status(&self, request: AllocStatus) -> Result<Done, RpcError> {
        self.get()?.alloc_status(request).await
    }
    async fn claim_volume(&self, request: ClaimVolume) -> Answers<ClaimProgress> {
        match self.get() {
            Ok(servers) => servers.claim_volume(request).await,
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
    async fn claim_report(&self, request: ClaimReport) -> Result<Done, RpcError> {
        self.get()?.claim_report(request).await
    }
    async fn volume_stats(&self, request: VolumeStats) -> Result<Done, RpcError> {
        self.get()?.volume_stats(request).await
    }
    async fn sync_services(&self, request: ServiceSync) -> Result<Done, RpcError> {
        self.get()?.sync_services(request).await
    }
    async fn watch_lookups(&self, request: WatchLookups) -> Answers<LookupsFound> {
        match self.get() {
            Ok(servers) => servers.watch_lookups(request).await,
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
    async fn sign_identities(&self, request: SignIdentities) -> Result<SignedIdentities, RpcError> {
        self.get()?.sign_identities(request).await
    }
    async fn sign_node(&self, request: SignNode) -> Result<SignedNode, RpcError> {
        self.get()?.sign_node(request).await
    }
    async fn fetch_disk(&self, request: FetchDisk) -> Answers<DiskChunk> {
        match self.get() {
            Ok(servers) => servers.fetch_disk(request).await,
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
}
