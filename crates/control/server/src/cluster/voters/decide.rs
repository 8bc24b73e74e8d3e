//! The next change of the membership, from the member table, the membership and the health of the servers. Pure.

use caravan_consensus::{MemberState, Peer, ServerId};
use caravan_members::Status;
use caravan_types::Nanos;
use caravan_types::operator::AutopilotConfig;
use std::fmt;
use uuid::Uuid;

/// The time for which a server must have failed, and been out of contact, before its removal.
const DEAD_AFTER: Nanos = Nanos::from_secs(30);
/// The time for which a voter must have failed, and been out of contact, while the number of voters is even. Such a
/// voter increases the quorum, but not the number of failures that the cluster survives.
///
/// Example: server 4 joins in place of server 3, which was killed. Three of four voters are the quorum until server 3
/// is removed. So a second server that is replaced after 20 s would end the quorum.
const SPARE_DEAD_AFTER: Nanos = Nanos::from_secs(5);
/// The time without contact after which a server that was removed from the member table is removed from the log.
const GONE_AFTER: Nanos = Nanos::from_secs(5);
/// The age from which a term removes a server that the member table does not contain. Until then, the table may be
/// incomplete.
const UNKNOWN_AFTER: Nanos = Nanos::from_secs(60);

/// A server in the member table, in the membership of the log, or in both.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) id: Uuid,
    /// Name in the member table.
    pub(super) name: String,
    /// Address for calls between servers.
    pub(super) address: String,
    /// Status in the member table; `None`: the table does not contain the server.
    pub(super) status: Option<Status>,
    /// The time for which the server has had this status.
    pub(super) status_age: Nanos,
    /// Whether the member table has contained the server in this term.
    pub(super) was_known: bool,
    /// Whether an operator removed the server from the log a short while ago.
    pub(super) is_held: bool,
    /// Whether the admission of the server has just failed.
    pub(super) is_stuck: bool,
    /// The cluster that the server announces.
    pub(super) cluster: Option<Uuid>,
    /// The number that the server announces.
    pub(super) number: Option<ServerId>,
    /// The feature level that the server supports.
    pub(super) level: Option<u32>,
    pub(super) never_votes: bool,
    /// The time for which the server has been healthy; `None` if the server is not healthy.
    pub(super) healthy_for: Option<Nanos>,
    /// The server in the membership of the log.
    pub(super) recorded: Option<MemberState>,
}

impl Server {
    fn is_alive(&self) -> bool {
        self.status == Some(Status::Alive)
    }

    fn is_voter(&self) -> bool {
        self.recorded.as_ref().is_some_and(|state| state.voter)
    }

    fn peer(&self) -> Peer {
        Peer { server: self.id, name: self.name.clone(), addr: self.address.clone() }
    }

    /// Whether the leader has had no contact with the server for a time.
    fn is_silent(&self, time: Nanos) -> bool {
        let contact = self.recorded.as_ref().and_then(|state| state.last_contact);
        contact.is_none_or(|age| Nanos::from_std(age) >= time)
    }

    /// Whether the server was removed from the member table: by a user, or because another server has its name. A
    /// server that still runs returns to the table and stays a member.
    fn is_gone(&self) -> bool {
        self.status.is_none() && self.was_known && self.is_silent(GONE_AFTER)
    }
}

/// The inputs of a decision.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// The number of the leader.
    pub(super) own: ServerId,
    /// The feature level of the cluster.
    pub(super) level: u32,
    /// The cluster of the leader.
    pub(super) cluster: Uuid,
    /// The time for which the leader has led.
    pub(super) term_age: Nanos,
    pub(super) config: &'a AutopilotConfig,
    pub(super) servers: &'a [Server],
}

/// A change of the membership or of the member table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Give a server without a log a number, and let it receive the log.
    Admit { server: Uuid, peer: Peer, replaces: Option<ServerId> },
    /// Let a server that was removed receive the log again, under its old number.
    Return { number: ServerId, peer: Peer },
    /// Record the new name or address of a server.
    Describe { number: ServerId, peer: Peer },
    /// Let a server vote.
    Promote { number: ServerId },
    /// Remove a server; with `forced`, it is marked as left in the member table.
    Remove { number: ServerId, name: String, forced: bool },
    /// Mark a failed server without a place in the log as left.
    Leave { name: String },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admit { peer, replaces: None, .. } => write!(f, "admit {}", peer.name),
            Self::Admit { peer, replaces: Some(old), .. } => {
                write!(f, "admit {} in place of server {old}", peer.name)
            }
            Self::Return { number, peer } => write!(f, "take back {} as server {number}", peer.name),
            Self::Describe { number, peer } => {
                write!(f, "record {} at {} as server {number}", peer.name, peer.addr)
            }
            Self::Promote { number } => write!(f, "promote server {number}"),
            Self::Remove { number, name, forced: true } => write!(f, "remove dead server {number} ({name})"),
            Self::Remove { number, name, forced: false } => write!(f, "remove server {number} ({name})"),
            Self::Leave { name } => write!(f, "mark {name} as left"),
        }
    }
}

/// Returns the next change.
pub(super) fn decide(facts: &Facts<'_>) -> Option<Change> {
    facts
        .servers
        .iter()
        .find_map(|server| describe(facts, server))
        .or_else(|| facts.servers.iter().find_map(|server| remove_left(facts, server)))
        .or_else(|| facts.servers.iter().find_map(|server| admit(facts, server)))
        .or_else(|| facts.servers.iter().find_map(|server| promote(facts, server)))
        .or_else(|| remove_dead(facts))
}

/// Returns the change that records a new name or address. The leader's own record needs no announced number, because
/// old logs do not name their server.
fn describe(facts: &Facts<'_>, server: &Server) -> Option<Change> {
    let recorded = server.recorded.as_ref()?;
    let (is_own, peer) = (recorded.number == facts.own, server.peer());
    let is_new = server.is_alive() && server.cluster == Some(facts.cluster) && recorded.peer != peer;
    let is_same_log = server.number == Some(recorded.number);
    (is_new && (is_own || is_same_log) && !peer.addr.is_empty())
        .then_some(Change::Describe { number: recorded.number, peer })
}

fn remove_left(facts: &Facts<'_>, server: &Server) -> Option<Change> {
    let recorded = server.recorded.as_ref().filter(|state| state.number != facts.own)?;
    let has_left = server.status == Some(Status::Left) || server.is_gone();
    (has_left && can_lose(facts, server)).then(|| Change::Remove {
        number: recorded.number,
        name: server.name.clone(),
        forced: false,
    })
}

fn admit(facts: &Facts<'_>, server: &Server) -> Option<Change> {
    let can_read = server.level.is_none_or(|level| level >= facts.level);
    if !server.is_alive() || !can_read || server.is_stuck || server.address.is_empty() {
        return None;
    }
    match (server.cluster, &server.recorded) {
        // A member without a log has lost its log: the server receives another number.
        (None, recorded) => {
            let own = recorded.as_ref().map(|state| state.number);
            if own == Some(facts.own) {
                return None;
            }
            // A new server with the name of a failed server replaces that server. At the same address, the earlier
            // server does not run any more. So a machine that lost its whole disk does not count as two voters until
            // the failure is noticed.
            let namesake = facts.servers.iter().find(|other| {
                let is_over = other.status == Some(Status::Failed) || other.address == server.address;
                other.id != server.id && other.name == server.name && is_over
            });
            let namesake = namesake.and_then(|other| other.recorded.as_ref()).map(|state| state.number);
            Some(Change::Admit { server: server.id, peer: server.peer(), replaces: own.or(namesake) })
        }
        // The member table shows a replaced server until its failure is noticed.
        (Some(cluster), None)
            if cluster == facts.cluster && !server.is_held && !is_replaced(facts, server) =>
        {
            Some(Change::Return { number: server.number?, peer: server.peer() })
        }
        _ => None,
    }
}

/// Returns whether a member of the log has the address of a server that is no member.
fn is_replaced(facts: &Facts<'_>, server: &Server) -> bool {
    let has_its_address = |other: &Server| other.id != server.id && other.address == server.address;
    facts.servers.iter().any(|other| other.recorded.is_some() && other.is_alive() && has_its_address(other))
}

fn promote(facts: &Facts<'_>, server: &Server) -> Option<Change> {
    let recorded = server.recorded.as_ref().filter(|state| !state.voter)?;
    // A cluster that was just founded or restarted does not wait.
    let stable = facts.config.server_stabilization_time.0;
    let stable = if facts.term_age < stable { Nanos::ZERO } else { stable };
    let is_due = server.healthy_for.is_some_and(|age| age >= stable);
    (server.is_alive() && is_due && !server.never_votes)
        .then_some(Change::Promote { number: recorded.number })
}

/// Returns whether the cluster keeps its quorum without a server: all other voters that the quorum needs are healthy.
fn can_lose(facts: &Facts<'_>, server: &Server) -> bool {
    if !server.is_voter() {
        return true;
    }
    let others: Vec<&Server> =
        facts.servers.iter().filter(|other| other.is_voter() && other.id != server.id).collect();
    let healthy = others.iter().filter(|other| {
        other.healthy_for.is_some() || other.recorded.as_ref().is_some_and(|state| state.number == facts.own)
    });
    !others.is_empty() && healthy.count() > others.len() / 2
}

/// Returns the removal of one dead server. The number of voters never falls below the configured minimum.
fn remove_dead(facts: &Facts<'_>) -> Option<Change> {
    if !facts.config.cleanup_dead_servers {
        return None;
    }
    let dead = facts.servers.iter().find(|server| is_dead(facts, server))?;
    let Some(recorded) = &dead.recorded else { return Some(Change::Leave { name: dead.name.clone() }) };
    let voters = facts.servers.iter().filter(|server| server.is_voter());
    let (count, dead_voters) = voters
        .fold((0_usize, 0), |(count, dead), server| (count + 1, dead + usize::from(is_dead(facts, server))));
    let min = usize::try_from(facts.config.min_quorum).unwrap_or(usize::MAX);
    let is_minority = dead_voters <= count.saturating_sub(1) / 2;
    let is_enough = !recorded.voter || count > min.max(1);
    let alive_are_healthy = facts
        .servers
        .iter()
        .filter(|server| server.is_voter() && !is_dead(facts, server))
        .all(|server| server.healthy_for.is_some());
    (is_minority && is_enough && alive_are_healthy && can_lose(facts, dead)).then(|| Change::Remove {
        number: recorded.number,
        name: dead.name.clone(),
        forced: true,
    })
}

fn is_dead(facts: &Facts<'_>, server: &Server) -> bool {
    let voters = facts.servers.iter().filter(|server| server.is_voter()).count();
    let is_spare = server.is_voter() && voters.is_multiple_of(2);
    let dead_after = if is_spare { SPARE_DEAD_AFTER } else { DEAD_AFTER };
    let is_own = server.recorded.as_ref().is_some_and(|state| state.number == facts.own);
    match server.status {
        _ if is_own => false,
        // Only members of the log concern the quorum; other servers stay in the table until they are reaped.
        Some(Status::Failed) if server.recorded.is_some() => {
            server.status_age >= dead_after && server.is_silent(dead_after)
        }
        None => server.recorded.is_some() && facts.term_age >= UNKNOWN_AFTER && server.is_silent(DEAD_AFTER),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
