//! Requests of operators about the membership, and the leave of this server.

use super::{Cluster, Lane};
use crate::error::{Kind, ServerError};
use crate::runtime;
use caravan_consensus::{Leadership, MembershipError, ServerId};
use caravan_messages::cluster::AskRemoval;
use caravan_rpc::methods;
use std::time::Duration;
use uuid::Uuid;

/// Timeout of this server's wait for its removal by the leader (docs/reference/cluster.md, section 8).
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The time without contact after which a server cannot become the leader. The leader sends a heartbeat each second
/// or more often.
const SILENCE: Duration = Duration::from_secs(3);

/// The reason why a request about the membership failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipFault {
    /// No member has this UUID.
    #[error("id \"{0}\" was not found in the Raft configuration")]
    UnknownId(String),
    /// No member has this address.
    #[error("address \"{0}\" was not found in the Raft configuration")]
    UnknownAddress(String),
    /// The member does not vote.
    #[error("server \"{0}\" does not vote and cannot lead")]
    NoVoter(String),
    /// The only voter cannot be removed.
    #[error("server \"{0}\" is the only voter and cannot be removed")]
    LastVoter(String),
    /// No other server can lead.
    #[error("no other server votes, so none can lead")]
    NoOther,
    /// The new leader would be a server that the leader does not reach.
    #[error("server \"{0}\" does not answer the leader and cannot take over")]
    Silent(String),
    /// The new leader did not take over in time.
    #[error("server \"{0}\" did not take over leadership in time")]
    NotTaken(String),
}

impl MembershipFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::UnknownAddress(_) | Self::NoVoter(_) | Self::NoOther => Kind::BadRequest,
            Self::UnknownId(_) | Self::LastVoter(_) => Kind::Refused,
            Self::Silent(_) | Self::NotTaken(_) => Kind::Unavailable,
        }
    }
}

/// The name of a server in an operator's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Id(String),
    Address(String),
}

/// A finished transfer of leadership: the UUIDs and addresses of both servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// The leader before the transfer.
    pub from: (Uuid, String),
    /// The leader after the transfer.
    pub to: (Uuid, String),
}

impl Cluster {
    fn find(&self, named: &Named) -> Result<(ServerId, Uuid, String), MembershipFault> {
        let members = self.log.members();
        let view = self.config.directory.changes().borrow().clone();
        let address = |state: &caravan_consensus::MemberState| {
            let known = view.by_id(state.peer.server).and_then(|member| member.server_rpc_addr());
            known.map_or_else(|| state.peer.addr.clone(), |address| address.to_string())
        };
        let found = members.members.iter().find(|state| match named {
            Named::Id(id) => state.peer.server.to_string().eq_ignore_ascii_case(id),
            Named::Address(wanted) => address(state) == *wanted || state.peer.addr == *wanted,
        });
        match (found, named) {
            (Some(state), _) => Ok((state.number, state.peer.server, address(state))),
            (None, Named::Id(id)) => Err(MembershipFault::UnknownId(id.clone())),
            (None, Named::Address(address)) => Err(MembershipFault::UnknownAddress(address.clone())),
        }
    }

    /// Removes a server from the log. The leader calls this.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), ServerError> {
        let (number, server, _) = self.find(&Named::Id(id.to_owned()))?;
        // Record this before the removal, after which the server could be admitted again immediately.
        self.removals.record(server, runtime::boot());
        let removed = self.remove_number(number).await;
        if removed.is_err() {
            self.removals.end(server);
        }
        removed
    }

    pub(crate) async fn remove_number(&self, number: ServerId) -> Result<(), ServerError> {
        let members = self.log.members();
        match self.log.remove(members.version, number).await {
            Err(caravan_consensus::Error::Membership(MembershipError::LastVoter(_))) => {
                let id = members.get(number).map(|state| state.peer.server.to_string());
                Err(MembershipFault::LastVoter(id.unwrap_or_default()).into())
            }
            Err(caravan_consensus::Error::Membership(MembershipError::NotMember(_))) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Passes leadership on to a server. The leader calls this. Returns `None` if the server already leads.
    pub(crate) async fn transfer(&self, to: &Named) -> Result<Option<Transferred>, ServerError> {
        let (number, id, address) = self.find(to)?;
        let own = self.identity().number;
        if own == Some(number) {
            return Ok(None);
        }
        let members = self.log.members();
        if !members.get(number).is_some_and(|state| state.voter) {
            return Err(MembershipFault::NoVoter(id.to_string()).into());
        }
        // The transfer would end this term, and the cluster would wait for an election.
        let contact = members.get(number).and_then(|state| state.last_contact);
        if contact.is_some_and(|age| age >= SILENCE) {
            return Err(MembershipFault::Silent(id.to_string()).into());
        }
        let from = self.find(&Named::Id(self.config.id.to_string()))?;
        match self.log.transfer(Some(number)).await {
            Ok(leader) if leader == number => {
                Ok(Some(Transferred { from: (from.1, from.2), to: (id, address) }))
            }
            // Another server was elected meanwhile.
            Ok(_) | Err(caravan_consensus::Error::NotTransferred { .. }) => {
                Err(MembershipFault::NotTaken(id.to_string()).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Passes leadership on before this server stops, if it leads and another server votes.
    pub(crate) async fn give_up(&self) {
        let metrics = self.log.metrics();
        if metrics.is_leader
            && metrics.voters > 1
            && let Err(error) = self.log.transfer(None).await
        {
            tracing::warn!(%error, "leadership could not be passed on");
        }
    }

    /// Leaves the cluster permanently: passes leadership on, and waits until the leader has removed this server.
    pub(crate) async fn leave(&self) {
        let Some(number) = self.identity().number else { return };
        if self.log.members().members.len() <= 1 {
            // The last server does not remove itself.
            return;
        }
        self.give_up().await;
        let removed = async {
            let mut leadership = self.log.leadership();
            loop {
                let leader = match &*leadership.borrow_and_update() {
                    Leadership::Follower { leader } => Some(leader.peer.clone()),
                    _ => None,
                };
                if let Some(leader) = leader {
                    let channel = self.config.channels.channel(&leader, Lane::Calls);
                    let asked = AskRemoval { number: number.0 };
                    match runtime::call::<methods::ServerRemoval>(&channel, asked, REMOVAL_TIMEOUT).await {
                        Ok(_) => return,
                        Err(error) => tracing::debug!(%error, "the leader has not removed this server"),
                    }
                    runtime::sleep(Duration::from_millis(200)).await;
                } else if leadership.changed().await.is_err() {
                    return;
                }
            }
        };
        if runtime::timeout(REMOVAL_TIMEOUT, removed).await.is_err() {
            tracing::warn!("the leader did not remove this server in time");
        }
    }
}
