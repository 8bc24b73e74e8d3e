//! The search for the leader, for requests that only the leader answers.

use super::{Lane, PeerChannels};
use crate::error::ServerError;
use crate::runtime::{self, select};
use crate::server::Parts;
use caravan_consensus::Leadership;
use caravan_rpc::Channel;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Timeout of a request's wait for a leader, as in Nomad (docs/reference/cluster.md, section 7.1).
pub(crate) const LEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The place where a request to the leader is answered.
#[derive(Debug)]
pub(crate) enum Place {
    /// This server leads.
    Here(Arc<Parts>),
    /// Another server leads.
    There(Channel),
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client or a user.
    Caller,
    /// A server that considered this server the leader; the request is not passed on again.
    Server,
}

/// Finds the leader. Waits for a leader until `deadline`.
pub(crate) async fn find(
    log: &caravan_consensus::Handle,
    mut parts: watch::Receiver<Arc<Parts>>,
    channels: &dyn PeerChannels,
    origin: Origin,
    deadline: Instant,
) -> Result<Place, ServerError> {
    let mut leadership = log.leadership();
    loop {
        let leader = match &*leadership.borrow_and_update() {
            Leadership::Follower { leader } => Some(leader.peer.clone()),
            Leadership::Leader { .. } | Leadership::Unknown => None,
        };
        let now = parts.borrow_and_update().clone();
        if now.core.term.is_some() {
            return Ok(Place::Here(now));
        }
        match (leader, origin) {
            (Some(peer), Origin::Caller) => return Ok(Place::There(channels.channel(&peer, Lane::Calls))),
            (Some(_), Origin::Server) => return Err(ServerError::NotLeader),
            // The leader is being elected, or its parts are being created.
            (None, _) => {}
        }
        select! {
            changed = leadership.changed() => if changed.is_err() { return Err(ServerError::NotLeader) },
            changed = parts.changed() => if changed.is_err() { return Err(ServerError::NotLeader) },
            () = runtime::sleep_until(deadline) => return Err(ServerError::NotLeader),
        }
    }
}
