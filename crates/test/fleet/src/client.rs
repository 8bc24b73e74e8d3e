//! A client that accepts all allocations, and runs nothing.

use crate::load::RETRY_PAUSE;
use caravan_messages::{AllocDelta, AllocStatus, NodeHeartbeat, NodeRegister, WatchAllocs};
use caravan_rpc::{Channel, Code, ItemStream, Method, PeerIdentity, Router, RpcError, Secret, methods};
use caravan_sim::report;
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, ClientStatus, DesiredStatus};
use caravan_types::node::Node;
use futures::StreamExt;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The timeout of a call that is repeated while no server leads.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client in memory.
#[derive(Debug)]
pub struct SimClient {
    node: Node,
    channel: Channel,
    /// The status that the client reported for each allocation.
    reported: HashMap<AllocId, ClientStatus>,
    acknowledged: Arc<AtomicU64>,
    /// The newest index of the servers' state that the client has seen.
    seen: u64,
}

impl SimClient {
    /// Creates a client of the server behind the router. The client adds the running allocations that the server has
    /// acknowledged to `acknowledged`.
    pub fn new(node: Node, router: Arc<Router>, acknowledged: Arc<AtomicU64>) -> Self {
        let secret = Secret::new(node.secret_id.expose());
        let peer = PeerIdentity::Client { node_id: node.id.to_string(), secret };
        let channel = Channel::local(router, peer);
        Self { node, channel, reported: HashMap::new(), acknowledged, seen: 0 }
    }

    /// Registers the client's node. Returns the TTL of its heartbeats.
    ///
    /// # Errors
    /// Returns the server's refusal.
    pub async fn register(&mut self) -> Result<Duration, RpcError> {
        let request = NodeRegister { node: self.node.clone() };
        let contact = self.channel.call::<methods::NodeRegister>(request, None).await?;
        self.seen = contact.state_index.max(contact.index);
        Ok(contact.heartbeat_ttl.to_std())
    }

    async fn beat(&self) -> Result<Duration, RpcError> {
        let beat = NodeHeartbeat {
            node_id: self.node.id.clone(),
            secret: self.node.secret_id.clone(),
            wants_identity: false,
        };
        let contact = again::<methods::NodeHeartbeat>(&self.channel, beat).await?;
        Ok(contact.heartbeat_ttl.to_std())
    }

    fn watch(&self) -> ItemStream<AllocDelta> {
        let (node_id, secret) = (self.node.id.clone(), self.node.secret_id.clone());
        self.channel.stream::<methods::WatchAllocs>(WatchAllocs { node_id, secret, after: self.seen })
    }

    /// Follows the client's allocations until cancelled, with heartbeats within `ttl`.
    ///
    /// # Errors
    /// Fails if the server ends the stream or refuses a report.
    pub async fn run(mut self, ttl: Duration, cancel: CancellationToken) -> Result<(), RpcError> {
        let mut deltas = self.watch();
        let mut cancelled = pin!(cancel.cancelled());
        let mut due = pin!(tokio::time::sleep(ttl / 2));
        loop {
            tokio::select! {
                () = &mut cancelled => return Ok(()),
                () = &mut due => {
                    let next = self.beat().await? / 2;
                    due.as_mut().reset(tokio::time::Instant::now() + next);
                }
                delta = deltas.next() => match delta {
                    Some(delta) => self.accept(delta?).await?,
                    None => return Err(RpcError::unavailable("the stream of allocations has ended")),
                },
            }
        }
    }

    /// Starts and stops allocations as the server requests, and reports their status.
    async fn accept(&mut self, delta: AllocDelta) -> Result<(), RpcError> {
        for gone in &delta.removed {
            self.reported.remove(gone);
        }
        let mut updates = Vec::new();
        for alloc in &delta.allocs {
            let Some(status) = next_status(alloc, self.reported.get(&alloc.id).copied()) else { continue };
            self.reported.insert(alloc.id.clone(), status);
            updates.push(report(alloc, status));
        }
        if updates.is_empty() {
            return Ok(());
        }
        let began = updates.iter().filter(|update| update.client_status == ClientStatus::Running).count();
        let status =
            AllocStatus { node_id: self.node.id.clone(), secret: self.node.secret_id.clone(), updates };
        again::<methods::AllocStatus>(&self.channel, status).await?;
        self.acknowledged.fetch_add(began as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Makes a call, and repeats it while no server leads.
async fn again<M: Method>(channel: &Channel, request: M::Request) -> Result<M::Response, RpcError>
where
    M::Request: Clone,
{
    let begun = Instant::now();
    loop {
        match channel.call::<M>(request.clone(), None).await {
            Err(error)
                if matches!(error.code, Code::NotLeader | Code::Unavailable) && begun.elapsed() < TIMEOUT =>
            {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Returns the next status of an allocation on a client without failures; `None` if the status stays.
fn next_status(alloc: &Allocation, reported: Option<ClientStatus>) -> Option<ClientStatus> {
    let over = reported.unwrap_or(alloc.client_status).is_terminal();
    match alloc.desired_status {
        _ if over => None,
        DesiredStatus::Run if reported.is_none() => Some(ClientStatus::Running),
        DesiredStatus::Run => None,
        DesiredStatus::Stop | DesiredStatus::Evict => Some(ClientStatus::Complete),
    }
}
