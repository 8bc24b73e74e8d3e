//! The requests about the servers of the cluster.

use super::Handle;
use crate::cluster::{AutopilotHealth, Cluster, Lane, Named, Origin, Place, RegionFault, Transferred, peer};
use crate::error::ServerError;
use crate::replication::ReplicationStatus;
use crate::runtime::{self, planted, select};
use caravan_consensus::{Leadership, MemberState};
use caravan_members::{Member, View};
use caravan_messages::region::ReplicatedKind;
use caravan_rpc::Channel;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The time for which a read at a follower waits for the entries that the leader has applied. The entries arrive
/// within milliseconds.
const CATCH_UP_TIMEOUT: Duration = Duration::from_millis(100);

/// A server in the membership of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMember {
    /// The UUID of the server.
    pub id: Uuid,
    /// The name in the member table, or `None` if the table does not have the server.
    pub name: Option<String>,
    /// The address for calls between servers.
    pub address: String,
    /// Whether this member is the leader.
    pub leader: bool,
    /// Whether this member is a voter.
    pub voter: bool,
}

/// The server that answers a request for which the leader is required.
#[derive(Clone, Debug)]
pub enum LeaderPlace {
    /// This server leads, and its state has everything that was acknowledged before.
    Here,
    /// Another server leads.
    There(Channel),
}

/// The requests about the cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterRequests<'a>(pub(super) &'a Handle);

impl ClusterRequests<'_> {
    fn cluster(&self) -> &Cluster {
        &self.0.blueprint.cluster
    }

    /// Finds the leader for a request, and waits for one until `deadline`. `is_forwarded` requests are not passed on
    /// again. For a read, this server proves its leadership before it answers.
    ///
    /// # Errors
    /// [`ServerError::NotLeader`] if there is no leader, or no proof, until the deadline.
    pub async fn place(
        self,
        is_forwarded: bool,
        is_read: bool,
        deadline: Instant,
    ) -> Result<LeaderPlace, ServerError> {
        let origin = if is_forwarded { Origin::Server } else { Origin::Caller };
        loop {
            match self.0.leader(origin, deadline).await? {
                Place::There(channel) => return Ok(LeaderPlace::There(channel)),
                Place::Here(_) if !is_read || planted!(UnprovedRead) => return Ok(LeaderPlace::Here),
                Place::Here(parts) => {
                    let proved = select! {
                        proved = parts.core.log.read(None) => proved,
                        // A leader without a quorum waits longer for a proof than the request may wait.
                        () = runtime::sleep_until(deadline) => return Err(ServerError::NotLeader),
                    };
                    match proved {
                        Ok(_) => return Ok(LeaderPlace::Here),
                        Err(error) if runtime::now() >= deadline => return Err(error.into()),
                        // Leadership ended, or its proof took too long.
                        Err(_) => runtime::sleep(Duration::from_millis(20)).await,
                    }
                }
            }
        }
    }

    /// Returns a future that ends when this server sees another leader, or an election, after the call. Callers
    /// create it before they send a request to the leader.
    pub fn leader_change(self) -> impl Future<Output = ()> + Send + 'static {
        let mut leadership = self.cluster().log.leadership();
        async move {
            if leadership.changed().await.is_err() {
                // The server stops, so it observes no other leader.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the state of this follower contains everything that was acknowledged before the call. Returns
    /// whether the state contains it; otherwise the leader must answer. Concurrent callers share one request to the
    /// leader.
    pub async fn catches_up(self) -> bool {
        self.cluster().log.catch_up(CATCH_UP_TIMEOUT).await.is_ok()
    }

    /// Returns a channel to a server of another region that accepts calls.
    ///
    /// # Errors
    /// [`RegionFault`] if no server of the region accepts calls.
    pub async fn reach(self, region: &str) -> Result<Channel, RegionFault> {
        self.cluster().reach(region).await
    }

    /// Returns a channel to another server of the own region and cluster, or `None` if no such server is known.
    /// `name` is its name, with or without the region, or its UUID. A call fails immediately if the server is not
    /// reached.
    pub fn named(self, name: &str) -> Option<Channel> {
        let (cluster, view) = (self.cluster(), self.view());
        let own = view.by_id(cluster.config.id);
        let is_named = |member: &&Member| {
            let short = member.name.strip_suffix(&*cluster.region).and_then(|name| name.strip_suffix('.'));
            member.name == name || short == Some(name) || member.id.to_string() == name
        };
        let mut found = view.in_region(&cluster.region).filter(is_named);
        let member = found.find(|member| !own.is_some_and(|own| member.is_foreign(own)))?;
        Some(cluster.config.channels.channel(&peer(&view, member.id), Lane::Calls))
    }

    /// Returns the region whose policies, roles, global tokens, namespaces and node pools apply in all regions.
    pub fn authoritative_region(&self) -> &str {
        self.cluster().authoritative()
    }

    /// Returns the status of the replication from the authoritative region, by kind; empty on servers that do not
    /// lead, and in the authoritative region.
    pub fn replication(self) -> BTreeMap<ReplicatedKind, ReplicationStatus> {
        self.cluster().replication.now()
    }

    /// Waits until the state is at least as new as before the last restart of this server.
    ///
    /// # Errors
    /// If the log has stopped.
    pub async fn recovered(self) -> Result<(), ServerError> {
        if planted!(StaleBeforeRecovery) {
            return Ok(());
        }
        Ok(self.cluster().log.recovered().await?)
    }

    /// Returns whether this server has a number in the log. Another server has no state to recover.
    pub fn is_member(self) -> bool {
        self.cluster().identity().number.is_some()
    }

    /// Returns the id of the cluster, if this server belongs to one.
    pub fn id(self) -> Option<Uuid> {
        self.cluster().identity().cluster.map(|id| id.0)
    }

    /// Returns whether this server has recent evidence of a leader. A leader without a quorum has no such evidence.
    pub fn knows_leader(self) -> bool {
        self.cluster().log.knows_leader()
    }

    /// Returns the time since the last message of the leader, or `None` before the first message. On the leader,
    /// returns the time since the last acknowledgement by a quorum, which is zero while it has a quorum.
    pub fn last_contact(self) -> Option<Duration> {
        let log = &self.cluster().log;
        if self.0.is_leader() && log.knows_leader() { Some(Duration::ZERO) } else { log.leader_contact() }
    }

    /// Returns the age of this server's state as [`Self::last_contact`]. Before the first message, returns the time
    /// since the start.
    pub fn leader_silence(self) -> Duration {
        self.last_contact().unwrap_or_else(|| self.cluster().log.since_start())
    }

    /// Returns the servers in the membership of the log.
    pub fn members(self) -> Vec<ClusterMember> {
        let cluster = self.cluster();
        let view = self.view();
        let leader = match &*cluster.log.leadership().borrow() {
            Leadership::Leader { .. } => cluster.identity().number,
            Leadership::Follower { leader } => Some(leader.number),
            Leadership::Unknown => None,
        };
        let member = |state: &MemberState| {
            let known = view.by_id(state.peer.server);
            let address = known.and_then(|member| member.server_rpc_addr());
            ClusterMember {
                id: state.peer.server,
                name: known.map(|member| member.name.clone()),
                address: address.map_or_else(|| state.peer.addr.clone(), |address| address.to_string()),
                leader: leader == Some(state.number),
                voter: state.voter,
            }
        };
        cluster.log.members().members.iter().map(member).collect()
    }

    /// Returns the address of the leader, if one is known.
    pub fn leader_address(self) -> Option<String> {
        self.members().into_iter().find(|member| member.leader).map(|member| member.address)
    }

    fn view(self) -> Arc<View> {
        self.cluster().config.directory.changes().borrow().clone()
    }

    /// Returns the health of the servers from the last measurement of the leader.
    pub fn health(self) -> AutopilotHealth {
        let (cluster, mut health) = (self.cluster(), self.cluster().health.now());
        // A server that runs alone is measured once in its term, and its log grows.
        if let [alone] = &mut health.servers[..]
            && alone.id == cluster.config.id
        {
            let now = cluster.status();
            (alone.last_term, alone.last_index) = (now.last_term, now.last_index);
        }
        health
    }

    /// Removes a server from the log. Only the leader calls this function.
    ///
    /// # Errors
    /// If the log does not have the server, or the server is its only voter.
    pub async fn remove(self, id: &str) -> Result<(), ServerError> {
        self.cluster().remove(id).await
    }

    /// Passes leadership on to a server, by its UUID or by its address. Only the leader calls this function. Returns
    /// `None` if the named server is this one, and nothing changes.
    ///
    /// # Errors
    /// If the server is unknown, does not vote, or does not take over in time.
    pub async fn transfer(
        self,
        id: Option<String>,
        address: Option<String>,
    ) -> Result<Option<Transferred>, ServerError> {
        let to = match (id, address) {
            (Some(id), _) => Named::Id(id),
            (None, address) => Named::Address(address.unwrap_or_default()),
        };
        self.cluster().transfer(&to).await
    }

    /// Passes leadership on before the agent ends, if this server leads and another server votes.
    pub async fn give_up(self) {
        self.cluster().give_up().await;
    }

    /// Leaves the cluster permanently.
    pub async fn leave(self) {
        self.cluster().leave().await;
    }
}
