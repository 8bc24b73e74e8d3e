//! The members of the cluster, and changes of the membership: one entry at a time, with compare-and-set.

use crate::handle::{Handle, map_write_error};
use crate::raft::{LogId, Membership as RaftMembership, TypeConfig};
use crate::runtime::timeout;
use crate::start::{Running, fatal, led_term, why_stopped};
use crate::{Error, Leadership, MembershipError, Peer, PeerAddress, ServerId};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use openraft::async_runtime::WatchReceiver;
use openraft::entry::EntryPayload;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, Instant as _, Precondition};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time within which a server must take over leadership.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
/// The difference between the number of a new server and the index of its entry. Founders have smaller
/// numbers.
const FIRST_ADMITTED: u64 = 1000;

/// A version of the membership, for compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipVersion(Option<LogId>);

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// The member's number.
    pub number: ServerId,
    /// The peer that the membership records for the member.
    pub peer: Peer,
    /// Whether the member votes.
    pub voter: bool,
    /// The last entry that the member has on disk; known to the leader only.
    pub matched: Option<u64>,
    /// Time since the sending of the last message that the member acknowledged; known to the leader only.
    pub last_contact: Option<Duration>,
}

/// The members of the cluster in the newest membership of this server, committed or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The version for changes that are decided on this view.
    pub version: MembershipVersion,
    /// Whether this version is committed.
    pub committed: bool,
    /// The members by number.
    pub members: Vec<MemberState>,
}

impl Members {
    /// Returns a member by its number.
    pub fn get(&self, number: ServerId) -> Option<&MemberState> {
        self.members.iter().find(|member| member.number == number)
    }

    /// Returns the members that vote.
    pub fn voters(&self) -> impl Iterator<Item = &MemberState> {
        self.members.iter().filter(|member| member.voter)
    }

    fn nodes(&self) -> BTreeMap<u64, Peer> {
        self.members.iter().map(|member| (member.number.0, member.peer.clone())).collect()
    }

    fn voter_ids(&self) -> BTreeSet<u64> {
        self.voters().map(|member| member.number.0).collect()
    }

    fn require(&self, number: ServerId) -> Result<&MemberState, Error> {
        self.get(number).ok_or_else(|| MembershipError::NotMember(number).into())
    }

    /// Returns the numbers of the voters without one server. At least one voter must remain.
    fn voters_without(&self, number: ServerId) -> Result<BTreeSet<u64>, Error> {
        let mut voters = self.voter_ids();
        voters.remove(&number.0);
        if voters.is_empty() { Err(MembershipError::LastVoter(number).into()) } else { Ok(voters) }
    }
}

impl Running {
    pub(crate) fn members(&self) -> Members {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let member = |(id, peer): (&u64, &Peer)| {
            let matched = metrics.replication.as_ref().and_then(|map| map.get(id)).copied().flatten();
            let contact = metrics.heartbeat.as_ref().and_then(|map| map.get(id)).copied().flatten();
            let own = *id == self.number.0 && metrics.state.is_leader();
            MemberState {
                number: ServerId(*id),
                peer: peer.clone(),
                voter: voters.contains(id),
                matched: if own { metrics.last_log_index } else { matched.map(|id| id.index) },
                last_contact: if own { Some(Duration::ZERO) } else { contact.map(|at| at.elapsed()) },
            }
        };
        Members {
            version: MembershipVersion(*metrics.membership_config.log_id()),
            committed: metrics.membership_config.log_id() == metrics.committed_membership_config.log_id(),
            members: membership.nodes().map(member).collect(),
        }
    }
}

type ChangeError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;

fn failed(error: ChangeError) -> Error {
    match error {
        RaftError::Fatal(error) => fatal(error),
        RaftError::APIError(error) => map_write_error(error, None),
    }
}

impl Handle {
    /// Returns the members of the cluster; none before this server is a member.
    pub fn members(&self) -> Members {
        match self.inner.running() {
            Ok(running) => running.members(),
            Err(_) => Members { version: MembershipVersion(None), committed: true, members: Vec::new() },
        }
    }

    /// Returns a number for a new server. No other call returns the same number, on any server of this
    /// cluster.
    ///
    /// # Errors
    /// As [`Self::propose`].
    pub fn next_number(&self) -> BoxFuture<'_, Result<ServerId, Error>> {
        async move {
            let done = self.inner.running()?.raft.write_blank().await.map_err(failed)?;
            Ok(ServerId(FIRST_ADMITTED + done.log_id.index))
        }
        .boxed()
    }

    /// Adds a member that receives the log and does not vote.
    ///
    /// # Errors
    /// [`Error::Membership`], and as [`Self::propose`].
    pub fn add_learner(
        &self,
        seen: MembershipVersion,
        number: ServerId,
        peer: Peer,
    ) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let members = self.members_at(seen)?;
            if members.get(number).is_some() {
                return Err(MembershipError::Member(number).into());
            }
            let mut nodes = members.nodes();
            nodes.insert(number.0, peer);
            self.append_membership(seen, members.voter_ids(), nodes).await
        }
        .boxed()
    }

    /// Promotes a member to a voter.
    ///
    /// # Errors
    /// [`Error::Membership`], and as [`Self::propose`].
    pub fn promote(&self, seen: MembershipVersion, number: ServerId) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let members = self.members_at(seen)?;
            if members.require(number)?.voter {
                return Err(MembershipError::Member(number).into());
            }
            let mut voters = members.voter_ids();
            voters.insert(number.0);
            self.append_membership(seen, voters, members.nodes()).await
        }
        .boxed()
    }

    /// Demotes a voter to a member that does not vote.
    ///
    /// # Errors
    /// [`Error::Membership`], and as [`Self::propose`].
    pub fn demote(&self, seen: MembershipVersion, number: ServerId) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let members = self.members_at(seen)?;
            members.require(number)?;
            self.append_membership(seen, members.voters_without(number)?, members.nodes()).await
        }
        .boxed()
    }

    /// Removes a member. A leader that removes itself passes on its leadership a moment later.
    ///
    /// # Errors
    /// [`Error::Membership`], and as [`Self::propose`].
    pub fn remove(&self, seen: MembershipVersion, number: ServerId) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let members = self.members_at(seen)?;
            members.require(number)?;
            let mut nodes = members.nodes();
            nodes.remove(&number.0);
            self.append_membership(seen, members.voters_without(number)?, nodes).await
        }
        .boxed()
    }

    /// Records another name or address of a member.
    ///
    /// # Errors
    /// [`Error::Membership`], and as [`Self::propose`].
    pub fn update_peer(
        &self,
        seen: MembershipVersion,
        number: ServerId,
        peer: Peer,
    ) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let members = self.members_at(seen)?;
            if members.require(number)?.peer == peer {
                return Ok(());
            }
            let change = ChangeMembers::SetNodes(BTreeMap::from([(number.0, peer)]));
            let expected = Precondition::LastMembershipLogId { last_membership_log_id: seen.0 };
            let raft = &self.inner.running()?.raft;
            raft.change_membership_if(change, true, [expected]).await.map(drop).map_err(failed)
        }
        .boxed()
    }

    /// Returns the membership if it still has the version that the caller has seen.
    fn members_at(&self, seen: MembershipVersion) -> Result<Members, Error> {
        let members = self.inner.running()?.members();
        if members.version != seen {
            return Err(MembershipError::Changed.into());
        }
        Ok(members)
    }

    async fn append_membership(
        &self,
        seen: MembershipVersion,
        voters: BTreeSet<u64>,
        nodes: BTreeMap<u64, Peer>,
    ) -> Result<(), Error> {
        let membership = RaftMembership::new(vec![voters], nodes)
            .map_err(|error| MembershipError::Refused(error.to_string()))?;
        let expected = Precondition::LastMembershipLogId { last_membership_log_id: seen.0 };
        let raft = &self.inner.running()?.raft;
        raft.append_membership(membership, EntryPayload::Blank, [expected]).await.map(drop).map_err(failed)
    }

    /// Passes leadership on to `to`, or to the voter with the longest log, and waits until another server
    /// leads. Returns the number of the new leader.
    ///
    /// # Errors
    /// [`Error::NotLeader`]; [`Error::Membership`] if the server is not a voter, or if there is no other
    /// voter; [`Error::NotTransferred`] if no other server leads after two seconds.
    pub fn transfer(&self, to: Option<ServerId>) -> BoxFuture<'_, Result<ServerId, Error>> {
        async move {
            let running = self.inner.running()?;
            let mut metrics = running.raft.server_metrics();
            let Some(term) = led_term(&metrics.borrow_watched()) else {
                return Err(Error::NotLeader { leader: self.leader() });
            };
            let members = running.members();
            let to = match to {
                Some(to) if to == running.number => return Ok(to),
                Some(to) if members.require(to)?.voter => to,
                Some(to) => return Err(MembershipError::NotMember(to).into()),
                None => members
                    .voters()
                    .filter(|member| member.number != running.number)
                    .max_by_key(|member| (member.matched, Reverse(member.last_contact)))
                    .map(|member| member.number)
                    .ok_or(MembershipError::LastVoter(running.number))?,
            };
            tracing::info!(%to, term, "passing leadership on");
            // From now on, the lease of this server proves nothing.
            running.given_up.fetch_max(term, Ordering::SeqCst);
            running.raft.trigger().transfer_leader(to.0).await.map_err(fatal)?;
            let other_leads = async {
                loop {
                    let leader = metrics.borrow_and_update().current_leader;
                    if let Some(leader) = leader.filter(|leader| *leader != running.number.0) {
                        return Ok(ServerId(leader));
                    }
                    if metrics.changed().await.is_err() {
                        return Err(why_stopped(&running.raft));
                    }
                }
            };
            timeout(TRANSFER_TIMEOUT, other_leads).await.map_err(|_| Error::NotTransferred { to })?
        }
        .boxed()
    }

    /// Returns the leader, if this server has a record of it and is not the leader.
    fn leader(&self) -> Option<PeerAddress> {
        match &*self.inner.leadership.borrow() {
            Leadership::Follower { leader } => Some(leader.clone()),
            Leadership::Leader { .. } | Leadership::Unknown => None,
        }
    }
}
