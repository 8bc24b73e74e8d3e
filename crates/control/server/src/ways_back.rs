//! The closing of reverse connections to nodes whose secret the servers no longer accept, because the node was
//! purged, or another agent registered it again.

use crate::core::Core;
use crate::runtime::select;
use caravan_rpc::ReverseRegistry;
use caravan_state::{Changed, FeedItem};
use caravan_types::NodeId;
use caravan_types::node::NodeSecret;
use tokio_util::sync::CancellationToken;

/// The service that follows the rows of nodes, and closes connections.
#[derive(Debug)]
pub(crate) struct WaysBack {
    pub(crate) core: Core,
    pub(crate) registry: ReverseRegistry,
}

impl WaysBack {
    /// Closes connections until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        loop {
            let item = select! {
                () = cancel.cancelled() => return,
                item = feed.next() => item,
            };
            match item {
                None => return,
                Some(FeedItem::Resync) => self.registry.connected().iter().for_each(|node| self.look(node)),
                Some(FeedItem::Changes(set)) => {
                    for changed in &set.changes {
                        if let Changed::Node(id) | Changed::NodeRemoved(id) = changed {
                            self.look(id.as_str());
                        }
                    }
                }
            }
        }
    }

    fn look(&self, node: &str) {
        let root = self.core.snapshot();
        let row = root.node(&NodeId::new(node));
        self.registry.revoke_unless(node, |secret| {
            row.is_some_and(|row| row.secret_id == NodeSecret::new(secret.expose()))
        });
    }
}
