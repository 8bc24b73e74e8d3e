//! Transfer of allocation data between nodes (`ephemeral_disk { migrate = true }`, docs/reference/jobspec.md, section
//! 4.2).
//!
//! Nodes need not reach each other: the servers relay the data.

use super::Nodes;
use super::fault::NodeFault;
use crate::cluster::NodePaths;
use crate::error::ServerError;
use caravan_messages::{DiskChunk, FetchDisk, GiveDisk};
use caravan_rpc::{ItemStream, methods};
use caravan_state::Topic;
use caravan_types::NodeId;
use caravan_types::alloc::ClientStatus;

impl Nodes {
    /// Returns the data of an allocation's predecessor, once the predecessor has ended. Only the node of the
    /// successor receives the data.
    pub(crate) async fn fetch_disk(
        &self,
        paths: &NodePaths,
        request: FetchDisk,
    ) -> Result<ItemStream<DiskChunk>, ServerError> {
        self.authentic(&request.node_id, &request.secret)?;
        let root = self.core.snapshot();
        let successor = root.alloc(&request.alloc).filter(|alloc| alloc.node_id == request.node_id);
        let previous = successor
            .map(|alloc| alloc.previous_allocation.clone())
            .filter(|previous| !previous.is_empty())
            .ok_or_else(|| NodeFault::NoPredecessor(request.alloc.clone()))?;
        let mut changes = self.core.store.watch().on(Topic::Alloc(previous.clone())).start();
        let node: NodeId = loop {
            let root = self.core.snapshot();
            let row = root.alloc(&previous).ok_or_else(|| NodeFault::PredecessorGone(previous.clone()))?;
            match row.client_status {
                status @ (ClientStatus::Lost | ClientStatus::Unknown) => {
                    return Err(NodeFault::PredecessorLost { alloc: previous, status }.into());
                }
                status if status.is_terminal() => break row.node_id.clone(),
                _ => changes.changed().await,
            }
        };
        let channel =
            paths.get(node.as_str()).map_err(|error| NodeFault::Unreachable { node: node.clone(), error })?;
        Ok(channel.stream::<methods::GiveDisk>(GiveDisk { alloc: previous }))
    }
}
