//! The members and the voters of the log: the leader admits, promotes and removes servers (docs/reference/cluster.md,
//! sections 5.2, 8 and 10).
//!
//! [`decide`] is pure and returns one change at a time. Each change is one entry of the log, written only if the
//! membership has not changed since the decision.

mod acknowledged;
mod decide;

use super::founder::peer;
use super::health::{Observed, ServerHealth, is_healthy};
use super::{Cluster, Lane};
use crate::core::Core;
use crate::error::ServerError;
use crate::runtime::{self, Interval, select};
use acknowledged::{Acknowledged, Found};
use caravan_consensus::{MemberState, Members, Peer, ServerId};
use caravan_members::{Member, Status, View};
use caravan_messages::cluster::{Admit, AskStatus, ServerStatus};
use caravan_rpc::methods;
use caravan_types::command::FIRST_LEVEL;
use caravan_types::{BootInstant, Nanos};
use caravan_volumes::seen::FirstSeen;
use decide::{Change, Facts, Server, decide};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Interval between measurements of the servers' health, as in Nomad.
const MEASURE_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a server's report of its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of the call in which a server stores its admission.
const ADMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a change that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The service that maintains the membership during one leader term.
#[derive(Debug)]
pub(crate) struct Voters {
    core: Core,
    cluster: Cluster,
    began: BootInstant,
    /// The time since which each server has its status in the member table, as observed in this term.
    statuses: FirstSeen<Uuid, Option<Status>>,
    /// The servers that the member table has shown in this term.
    known: BTreeSet<Uuid>,
    /// The changes that failed in the last round, each with the reason that was logged.
    failures: BTreeMap<String, String>,
    /// The last entry that each server has acknowledged.
    acknowledged: Acknowledged,
}

impl Voters {
    pub(crate) fn new(core: Core, cluster: Cluster) -> Self {
        let began = core.boot();
        cluster.health.clear();
        Self {
            core,
            cluster,
            began,
            statuses: FirstSeen::default(),
            known: BTreeSet::new(),
            failures: BTreeMap::new(),
            acknowledged: Acknowledged::default(),
        }
    }

    /// Runs until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut view = self.cluster.config.directory.changes();
        let mut measure = Interval::new(MEASURE_INTERVAL);
        loop {
            let is_done = select! {
                () = cancel.cancelled() => return,
                is_done = self.round() => is_done,
            };
            if !is_done {
                select! {
                    () = cancel.cancelled() => return,
                    () = runtime::sleep(RETRY_INTERVAL) => {}
                }
                continue;
            }
            select! {
                () = cancel.cancelled() => return,
                Ok(()) = view.changed() => {}
                // A server that runs alone has no other server to measure.
                _ = measure.tick(), if self.has_others() => {}
            }
        }
    }

    /// Returns whether the membership has other servers, or waits for the return of some.
    fn has_others(&self) -> bool {
        self.cluster.log.members().members.len() > 1 || self.cluster.removals.is_waiting()
    }

    /// Measures the servers and executes all changes that are due. Returns whether no change remains. A server that
    /// cannot be admitted, for example because it refuses the connection, delays no change of another server.
    async fn round(&mut self) -> bool {
        self.measure().await;
        self.raise_level().await;
        let before = std::mem::take(&mut self.failures);
        let mut stuck = BTreeSet::new();
        while let Some(change) = self.due(&stuck) {
            let text = change.to_string();
            let candidate = match &change {
                Change::Admit { server, .. } => Some(*server),
                _ => None,
            };
            match self.make(change).await {
                Ok(true) => {
                    tracing::info!(change = text, "the membership of the cluster has changed");
                    continue;
                }
                Ok(false) => {}
                Err(error) => {
                    let error = error.to_string();
                    if before.get(&text) != Some(&error) {
                        tracing::warn!(
                            change = text,
                            error,
                            "the membership of the cluster could not be changed; retrying"
                        );
                    }
                    self.failures.insert(text, error);
                }
            }
            match candidate {
                Some(server) => drop(stuck.insert(server)),
                None => return false,
            }
        }
        stuck.is_empty()
    }

    /// Raises the feature level of the cluster to the lowest level of its servers. A server that is down counts with
    /// the level that it had, because it may return.
    async fn raise_level(&self) {
        let (members, health) = (self.cluster.log.members(), self.cluster.health.now());
        let is_measured = members.committed && health.servers.len() == members.members.len();
        let Some(level) = health.common_level().filter(|_| is_measured) else { return };
        let before = self.core.snapshot().level();
        if level <= before {
            return;
        }
        match self.core.commit(caravan_types::command::Change::RaiseLevel { level }).await {
            Ok(_) => tracing::info!(level, before, "the feature level of the cluster was raised"),
            Err(error) => tracing::warn!(level, before, %error, "the feature level was not raised"),
        }
    }

    /// Returns the next change of the membership. Servers that are `stuck` are not admitted in this round.
    fn due(&mut self, stuck: &BTreeSet<Uuid>) -> Option<Change> {
        let (members, boot) = (self.cluster.log.members(), self.core.boot());
        if !members.committed {
            return None;
        }
        let view = self.view();
        let config = self.core.snapshot().autopilot_config().clone();
        let mut servers = self.servers(&view, &members, boot);
        servers.iter_mut().for_each(|server| server.is_stuck = stuck.contains(&server.id));
        decide(&Facts {
            own: self.cluster.identity().number?,
            level: self.core.snapshot().level(),
            cluster: self.cluster.identity().cluster?.0,
            term_age: boot.since(self.began),
            config: &config,
            servers: &servers,
        })
    }

    fn view(&self) -> Arc<View> {
        self.cluster.config.directory.changes().borrow().clone()
    }

    /// Combines the member table with the membership of the log.
    fn servers(&mut self, view: &View, members: &Members, boot: BootInstant) -> Vec<Server> {
        self.cluster.removals.sweep(boot);
        let (mut servers, region) = (Vec::new(), self.cluster.region.clone());
        for member in view.in_region(&region) {
            let recorded = members.members.iter().find(|state| state.peer.server == member.id);
            servers.push(self.server(member.id, Some(member), recorded, boot));
        }
        for state in &members.members {
            if view.by_id(state.peer.server).is_none() {
                servers.push(self.server(state.peer.server, None, Some(state), boot));
            }
        }
        self.statuses.sweep(|id| servers.iter().any(|server| server.id == *id));
        self.known.retain(|id| servers.iter().any(|server| server.id == *id));
        servers
    }

    fn server(
        &mut self,
        id: Uuid,
        member: Option<&Member>,
        recorded: Option<&MemberState>,
        boot: BootInstant,
    ) -> Server {
        let tags = member.map(Member::server_tags).unwrap_or_default();
        let status = member.map(|member| member.status);
        let address = member.and_then(Member::server_rpc_addr).map(|address| address.to_string());
        if member.is_some() {
            self.known.insert(id);
        }
        if status != Some(Status::Alive) {
            self.cluster.removals.end(id);
        }
        Server {
            id,
            name: member.map(|member| member.name.clone()).unwrap_or_default(),
            address: address.unwrap_or_default(),
            status,
            status_age: boot.since(self.statuses.since(&id, status, boot)),
            was_known: self.known.contains(&id),
            is_held: self.cluster.removals.holds(id, boot),
            is_stuck: false,
            cluster: tags.cluster,
            number: tags.number.map(ServerId),
            level: tags.level,
            never_votes: tags.nonvoter,
            healthy_for: self.cluster.health.healthy_for(id, boot),
            recorded: recorded.cloned(),
        }
    }

    /// Executes a change. Returns false if the change is not possible yet.
    async fn make(&self, change: Change) -> Result<bool, ServerError> {
        let log = &self.cluster.log;
        let members = log.members();
        match change {
            Change::Admit { server, peer, replaces } => {
                let (Some(cluster), Some(key)) =
                    (self.cluster.identity().cluster, self.cluster.keyring.cluster_key())
                else {
                    return Ok(false);
                };
                let channel = self.cluster.config.channels.channel(&peer, Lane::Calls);
                // The server may have been admitted in the meantime, or by an earlier leader.
                let status =
                    runtime::call::<methods::ServerStatus>(&channel, AskStatus {}, STATUS_TIMEOUT).await?;
                let number = match status.number.map(ServerId) {
                    // The server has just restarted, and its row does not show its cluster yet.
                    Some(number) if status.cluster == Some(cluster.0) && Some(number) == replaces => {
                        return Ok(false);
                    }
                    Some(number) if status.cluster == Some(cluster.0) => number,
                    _ => log.next_number().await?,
                };
                let admit =
                    Admit { cluster: cluster.0, number: number.0, key, level: self.core.snapshot().level() };
                runtime::call::<methods::ServerAdmit>(&channel, admit, ADMIT_TIMEOUT).await?;
                tracing::info!(server = %server, %number, "a server is admitted");
                log.add_learner(log.members().version, number, peer).await?;
                if let Some(old) = replaces {
                    log.remove(log.members().version, old).await?;
                }
            }
            Change::Return { number, peer } => log.add_learner(members.version, number, peer).await?,
            Change::Describe { number, peer } => log.update_peer(members.version, number, peer).await?,
            Change::Promote { number } => log.promote(members.version, number).await?,
            Change::Remove { number, name, forced } => {
                log.remove(members.version, number).await?;
                if forced && !name.is_empty() {
                    self.cluster.config.directory.force_leave(name).await;
                }
            }
            Change::Leave { name } => self.cluster.config.directory.force_leave(name).await,
        }
        Ok(true)
    }

    /// Measures the health of all servers in the membership.
    async fn measure(&mut self) {
        let (view, members) = (self.view(), self.cluster.log.members());
        let own = self.cluster.identity().number;
        let leader = self.cluster.status();
        let asked = members.members.iter().map(|state| {
            let at = known(&view, state);
            let channel = self.cluster.config.channels.channel(&at, Lane::Calls);
            let is_own = Some(state.number) == own;
            let (leader, core, sent) = (&leader, &self.core, self.core.boot());
            async move {
                if is_own {
                    return (Some(leader.clone()), sent, sent);
                }
                let status =
                    runtime::call::<methods::ServerStatus>(&channel, AskStatus {}, STATUS_TIMEOUT).await;
                (status.ok(), sent, core.boot())
            }
        });
        let answers = futures::future::join_all(asked).await;
        let (boot, wall) = (self.core.boot(), self.core.now());
        let config = self.core.snapshot().autopilot_config().clone();
        let silence = self.cluster.log.longest_silence();
        self.acknowledged.begin();
        let mut all = Vec::new();
        for (state, (status, sent, received)) in members.members.iter().zip(answers) {
            let is_own = Some(state.number) == own;
            let has_lost = !is_own && self.has_lost_entries(state, status.as_ref());
            // The server read its clock between the sending and the reception.
            let skew = status.as_ref().map(|status| {
                let middle = wall.plus(Nanos(-(boot.since(sent).0 + boot.since(received).0) / 2));
                status.now.since(middle)
            });
            let observed = observed(&view, state, status, skew.unwrap_or_default(), is_own);
            let healthy = is_healthy(&observed, &leader, &config, silence) && !has_lost;
            all.push(ServerHealth { healthy, ..observed.health });
        }
        self.cluster.health.record(all, boot, wall);
    }

    /// Returns whether the log of a server lacks entries that the server had acknowledged, and reports the loss once.
    fn has_lost_entries(&mut self, state: &MemberState, status: Option<&ServerStatus>) -> bool {
        let status = status.filter(|status| status.number == Some(state.number.0) && status.last_index > 0);
        let last = status.map(|status| status.last_index);
        let found = self.acknowledged.compare(state.number, state.matched, last);
        if let Found::Lost(index) = found {
            tracing::error!(
                "the log of server {} ends with entry {}, although the server acknowledged entry {index}: its data directory is \
                 an older copy. Stop the server, move its directory \"server\" away, and start it again",
                state.peer.name,
                last.unwrap_or_default()
            );
        }
        !found.is_complete()
    }
}

/// Returns a recorded server with the address that the member table has.
fn known(view: &View, state: &MemberState) -> Peer {
    match view.by_id(state.peer.server) {
        Some(_) => peer(view, state.peer.server),
        None => state.peer.clone(),
    }
}

fn observed(
    view: &View,
    state: &MemberState,
    status: Option<ServerStatus>,
    clock_skew: Nanos,
    leader: bool,
) -> Observed {
    let member = view.by_id(state.peer.server);
    let health = ServerHealth {
        id: state.peer.server,
        name: member.map_or_else(|| state.peer.name.clone(), |member| member.name.clone()),
        address: known(view, state).addr,
        member_status: member.map_or("none", |member| member.status.as_str()).to_owned(),
        version: member.map(|member| member.server_tags().build).unwrap_or_default(),
        level: status
            .as_ref()
            .map(|status| status.level)
            .or_else(|| member.and_then(|member| member.server_tags().level))
            .unwrap_or(FIRST_LEVEL),
        leader,
        voter: state.voter,
        last_contact: status
            .as_ref()
            .and_then(|status| status.last_contact)
            .map(|age| Nanos(i64::try_from(age).unwrap_or(i64::MAX))),
        last_term: status.as_ref().map_or(0, |status| status.last_term),
        last_index: status.as_ref().map_or(0, |status| status.last_index),
        clock_skew,
        ..ServerHealth::default()
    };
    // A server without a member table runs alone.
    let is_alive = member.map_or(leader, Member::is_alive);
    Observed { health, is_alive, status }
}
