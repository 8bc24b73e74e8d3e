//! The addresses that clients receive, so that they can call any server.

use super::Directory;
use caravan_members::Member;
use std::sync::Arc;
use uuid::Uuid;

/// The addresses of the servers for clients; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    own: Arc<[String]>,
    server: Uuid,
    region: Arc<str>,
    directory: Arc<dyn Directory>,
}

impl Addresses {
    /// Creates the list; `own` are the addresses of server `server`.
    pub(crate) fn new(own: Vec<String>, server: Uuid, region: &str, directory: Arc<dyn Directory>) -> Self {
        Self { own: own.into(), server, region: region.into(), directory }
    }

    /// Returns the addresses, `host:port`, of the alive servers of the region. Servers of another cluster are
    /// omitted, and, once this server is admitted, servers without a cluster. If no address remains, returns the
    /// addresses of this server.
    pub(crate) fn list(&self) -> Vec<String> {
        let view = self.directory.changes().borrow().clone();
        let is_admitted = |member: &&Member| member.server_tags().cluster.is_some();
        let is_member = view.by_id(self.server).is_some_and(|own| is_admitted(&own));
        let peers = view.peers(self.server, &self.region);
        // A server that was refused, for example for its certificate, could not answer clients.
        let known = peers.filter(|member| !is_member || is_admitted(member));
        let known: Vec<String> = known.filter_map(for_clients).collect();
        if known.is_empty() { self.own.to_vec() } else { known }
    }
}

fn for_clients(member: &Member) -> Option<String> {
    let tags = member.server_tags();
    let host = if tags.rpc_addr.contains(':') { format!("[{}]", tags.rpc_addr) } else { tags.rpc_addr };
    (!host.is_empty() && tags.port != 0).then(|| format!("{host}:{}", tags.port))
}
