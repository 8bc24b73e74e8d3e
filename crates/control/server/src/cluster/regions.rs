//! The paths to servers of other regions.
//!
//! Each region has a separate log. The member table spans all regions, so a server finds the servers of a region
//! there. A request for another region is passed on to any server of that region, which passes the request on to its
//! leader.

use super::Cluster;
use super::founder::peer;
use crate::runtime;
use caravan_members::{Member, View};
use caravan_rpc::Channel;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use std::time::Duration;
use uuid::Uuid;

/// Timeout of a connection to a server of another region.
const REACH_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of servers of a region that are tried for one request.
const MAX_TRIES: usize = 3;

/// The reason why a request is not passed on to a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// No alive server of the region is known. Nomad has the same text.
    #[error("No path to region")]
    Unknown,
    /// No server of the region accepts a connection.
    #[error("No path to region \"{region}\": {reason}")]
    Unreachable {
        /// The requested region, whose servers the member table lists.
        region: String,
        /// The errors of the servers that were tried, by their names.
        reason: String,
    },
}

impl Cluster {
    /// Returns the region whose policies, roles, global tokens, namespaces and node pools apply in all regions.
    pub(crate) fn authoritative(&self) -> &str {
        match self.config.replication.authoritative.as_str() {
            "" => &self.region,
            region => region,
        }
    }

    /// Returns a channel to a server of another region that accepts calls.
    ///
    /// # Errors
    /// [`RegionFault`].
    pub(crate) async fn reach(&self, region: &str) -> Result<Channel, RegionFault> {
        let view = self.config.directory.changes().borrow().clone();
        let mut servers = servers(&view, region);
        servers.shuffle(&mut StdRng::seed_from_u64(runtime::random()));
        let mut failures = Vec::new();
        for server in servers.into_iter().take(MAX_TRIES) {
            let to = peer(&view, server);
            let channel = self.config.channels.foreign(region, &to);
            let reason = match runtime::timeout(REACH_TIMEOUT, channel.ready()).await {
                Ok(Ok(())) => return Ok(channel),
                Ok(Err(error)) => error.message,
                Err(_) => "it did not answer in time".to_owned(),
            };
            tracing::debug!(region, server = to.name, reason, "a server of another region cannot be reached");
            failures.push(format!("server {}: {reason}", to.name));
        }
        if failures.is_empty() {
            return Err(RegionFault::Unknown);
        }
        // Sort the failures, so that the same outage always has the same text.
        failures.sort();
        Err(RegionFault::Unreachable { region: region.to_owned(), reason: failures.join("; ") })
    }
}

/// Returns the alive servers of a region.
fn servers(view: &View, region: &str) -> Vec<Uuid> {
    view.in_region(region).filter(|member| member.is_alive()).map(|member: &Member| member.id).collect()
}
