//! The paths to nodes: over a connection of this server, or through the server that a node is connected to.
//!
//! Each server follows the connections of all other servers, so that every server has a current record of the nodes
//! that can be called.

use super::founder::peer;
use super::{Cluster, Lane};
use crate::runtime::{self, select};
use caravan_members::View;
use caravan_messages::cluster::{FollowNodes, NodesChanged};
use caravan_rpc::{Channel, Code, ReverseRegistry, RpcError, methods};
use caravan_types::NodeId;
use futures::{Stream, StreamExt as _};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// Pause before a server is followed again after its stream ended.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a request's wait for the connection of its node.
pub(crate) const PATH_TIMEOUT: Duration = Duration::from_secs(5);

/// The paths to all nodes; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct NodePaths {
    registry: ReverseRegistry,
    cluster: Option<Cluster>,
    /// The server of each node that is connected to another server.
    remote: Arc<RwLock<HashMap<NodeId, Uuid>>>,
    changes: Arc<watch::Sender<u64>>,
}

impl NodePaths {
    pub(crate) fn new(registry: ReverseRegistry, cluster: Cluster) -> Self {
        Self { cluster: Some(cluster), ..Self::local(registry) }
    }

    /// Returns the paths over connections of this server only.
    pub(crate) fn local(registry: ReverseRegistry) -> Self {
        let changes = Arc::new(watch::Sender::new(0));
        Self { registry, cluster: None, remote: Arc::default(), changes }
    }

    /// Returns the nodes with a connection to this server.
    pub(crate) fn registry(&self) -> &ReverseRegistry {
        &self.registry
    }

    /// Returns a channel to a node.
    ///
    /// # Errors
    /// [`Code::NoPath`] if no server can call the node.
    pub(crate) fn get(&self, node: &str) -> Result<Channel, RpcError> {
        let error = match self.registry.get(node) {
            Ok(channel) => return Ok(channel),
            Err(error) => error,
        };
        let Some(cluster) = &self.cluster else { return Err(error) };
        let Some(server) = self.remote.read().get(&NodeId::new(node)).copied() else {
            return Err(RpcError::new(Code::NoPath, format!("node {node} has no connection to a server")));
        };
        let view = cluster.config.directory.changes().borrow().clone();
        let channel = cluster.config.channels.channel(&peer(&view, server), Lane::Calls);
        Ok(Channel::via(channel, node))
    }

    /// Waits until one of the nodes can be called, for at most [`PATH_TIMEOUT`]. For example, a node has registered
    /// at a new leader, and its connection is not open yet.
    pub(crate) async fn wait_for(&self, nodes: &[NodeId]) {
        // The call itself reports a node without a connection.
        let _ = self.until(|| nodes.iter().any(|node| self.get(node.as_str()).is_ok()).then_some(())).await;
    }

    /// Calls `look` now, and whenever a node connects or disconnects, until it returns a value. Returns `None` after
    /// [`PATH_TIMEOUT`].
    pub(crate) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let (mut own, mut all) = (self.registry.changes(), self.changes());
        let waiting = async {
            loop {
                if let Some(found) = look() {
                    return Some(found);
                }
                select! {
                    Ok(()) = own.changed() => {}
                    Ok(()) = all.changed() => {}
                    else => return None,
                }
            }
        };
        runtime::timeout(PATH_TIMEOUT, waiting).await.unwrap_or(None)
    }

    /// Returns a receiver that changes whenever a node connects to a server or disconnects.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Follows the connections of this server and of all other servers, until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut own = self.registry.changes();
        let Some(cluster) = self.cluster.clone() else { return };
        let mut view = cluster.config.directory.changes();
        let tracker = TaskTracker::new();
        let mut followed: BTreeMap<Uuid, CancellationToken> = BTreeMap::new();
        loop {
            let alive = others(&view.borrow_and_update(), &cluster);
            followed.retain(|id, stop| {
                let stays = alive.contains(id);
                if !stays {
                    stop.cancel();
                }
                stays
            });
            for id in alive {
                followed.entry(id).or_insert_with(|| {
                    let stop = cancel.child_token();
                    runtime::spawn_in(&tracker, self.clone().follow(cluster.clone(), id, stop.clone()));
                    stop
                });
            }
            select! {
                () = cancel.cancelled() => break,
                Ok(()) = own.changed() => self.changed(),
                Ok(()) = view.changed() => {}
            }
        }
        tracker.close();
        tracker.wait().await;
    }

    /// Follows the connections of another server.
    async fn follow(self, cluster: Cluster, server: Uuid, stop: CancellationToken) {
        loop {
            let view = cluster.config.directory.changes().borrow().clone();
            let channel = cluster.config.channels.channel(&peer(&view, server), Lane::Calls);
            let mut changes = channel.stream::<methods::ServerNodes>(FollowNodes {});
            loop {
                let change = select! {
                    () = stop.cancelled() => None,
                    change = changes.next() => change,
                };
                let Some(Ok(change)) = change else { break };
                self.record(server, change);
            }
            self.drop_server(server);
            select! {
                () = stop.cancelled() => return,
                () = runtime::sleep(RETRY_INTERVAL) => {}
            }
        }
    }

    fn record(&self, server: Uuid, change: NodesChanged) {
        {
            let mut remote = self.remote.write();
            for node in change.gone {
                // The node may be connected to another server by now.
                if remote.get(&node) == Some(&server) {
                    remote.remove(&node);
                }
            }
            remote.extend(change.connected.into_iter().map(|node| (node, server)));
        }
        self.changed();
    }

    fn drop_server(&self, server: Uuid) {
        let before = {
            let mut remote = self.remote.write();
            let before = remote.len();
            remote.retain(|_, other| *other != server);
            before - remote.len()
        };
        if before > 0 {
            self.changed();
        }
    }
}

fn others(view: &View, cluster: &Cluster) -> BTreeSet<Uuid> {
    let own = cluster.config.id;
    view.peers(own, &cluster.region).map(|member| member.id).filter(|id| *id != own).collect()
}

/// Returns a stream of the nodes that are connected to this server: first all nodes, then changes.
pub(super) fn follow(registry: ReverseRegistry) -> impl Stream<Item = Result<NodesChanged, RpcError>> + Send {
    let watch = registry.changes();
    let state = (registry, watch, BTreeSet::new(), true);
    futures::stream::unfold(state, |(registry, mut watch, mut sent, is_first)| async move {
        let mut is_first = is_first;
        loop {
            if !is_first {
                watch.changed().await.ok()?;
            }
            let now: BTreeSet<String> = registry.connected().into_iter().collect();
            let connected: Vec<NodeId> = now.difference(&sent).map(NodeId::new).collect();
            let gone: Vec<NodeId> = sent.difference(&now).map(NodeId::new).collect();
            sent = now;
            if is_first || !connected.is_empty() || !gone.is_empty() {
                let change = NodesChanged { connected, gone };
                return Some((Ok(change), (registry, watch, sent, false)));
            }
            is_first = false;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_rpc::{PeerIdentity, Router};

    #[tokio::test]
    async fn the_connections_of_a_server_are_followed() {
        let registry = ReverseRegistry::default();
        let channel = || Channel::local(Router::builder().build(), PeerIdentity::server("s"));
        let first = registry.register("a".into(), channel());
        let mut changes = Box::pin(follow(registry.clone()));
        let mut next = async || changes.next().await.unwrap().unwrap();
        assert_eq!(next().await, NodesChanged { connected: vec!["a".into()], gone: vec![] });
        let _second = registry.register("b".into(), channel());
        assert_eq!(next().await, NodesChanged { connected: vec!["b".into()], gone: vec![] });
        drop(first);
        assert_eq!(next().await, NodesChanged { connected: vec![], gone: vec!["a".into()] });
    }

    #[test]
    fn a_node_that_moved_is_not_lost_when_its_old_server_reports_its_end() {
        let paths = NodePaths::local(ReverseRegistry::default());
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let node = NodeId::new("n");
        let connected = || NodesChanged { connected: vec![node.clone()], gone: vec![] };
        paths.record(one, connected());
        paths.record(two, connected());
        paths.record(one, NodesChanged { connected: vec![], gone: vec![node.clone()] });
        assert_eq!(paths.remote.read().get(&node), Some(&two));
        paths.drop_server(one);
        assert_eq!(paths.remote.read().get(&node), Some(&two));
        paths.drop_server(two);
        assert!(paths.remote.read().is_empty());
    }
}
