//! The trace of a simulation, and the checks of the rules that hold at each moment and at the end.

use crate::command::{Action, Claim, Command, DONE, NodeId, State};
use crate::node::TTL;
use crate::trace;
use caravan_consensus::sim::{HostId, elapsed};
use caravan_testkit::linear::specs::{Register, RegisterOp, RegisterRet};
use caravan_testkit::linear::{self, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time without faults after which no node without faults may be declared down.
const CALM: Duration = Duration::from_secs(14);

/// The trace, with the past of this simulation.
pub(crate) type Book = trace::Book<Past>;
type Pages = trace::Pages<Past>;

/// One operation on a register.
struct Recorded {
    id: u64,
    key: u8,
    operation: Operation<RegisterOp, RegisterRet>,
}

/// The past events that the checks need.
#[derive(Default)]
pub(crate) struct Past {
    sequence: u64,
    /// The hash of the state at each index at which a server applied a command.
    chains: BTreeMap<u64, u64>,
    /// The index of each applied command.
    indexes: BTreeMap<u64, u64>,
    acked: BTreeMap<u64, u64>,
    refused: BTreeSet<u64>,
    newest_acked: u64,
    /// The newest term with a command in the log.
    work_term: u64,
    leaders: BTreeMap<u64, HostId>,
    clusters: BTreeSet<u128>,
    /// The index and the hash of the last state that each server showed.
    shown: BTreeMap<HostId, (u64, u64)>,
    history: Vec<Recorded>,
    claim: Option<Claim>,
    allocs: BTreeSet<u64>,
    /// The time at which each node sent its last heartbeat with a response.
    heard: BTreeMap<NodeId, Duration>,
    disturbed: Duration,
    /// The time at which each node was last disturbed.
    nodes_disturbed: BTreeMap<NodeId, Duration>,
}

impl Pages {
    fn committed(&mut self, state: &State, command: &Command, response: u8) {
        if let Some(before) = self.past.indexes.insert(command.id, state.index) {
            self.violate(format!("command {} is at indexes {before} and {}", command.id, state.index));
        }
        if let Some(term) = command.term {
            let newest = self.past.work_term;
            if term < newest {
                self.violate(format!(
                    "work of the leader of term {term} is applied after work of term {newest}"
                ));
            }
            self.past.work_term = term.max(newest);
        }
        if response != DONE {
            return;
        }
        match command.action {
            Action::Grant { to, .. } => {
                self.past.claim = state.claim;
                self.note(format!("volume is granted to node {to}: {:?}", state.claim));
                self.count("grants");
            }
            Action::NodeDown { node, .. } => self.declared_down(node),
            Action::NodeUp(node) => self.note(format!("node {node} is up")),
            Action::Sealed(key) if !state.keys.contains(&key) => {
                self.violate(format!("a secret is sealed by key {key}, which is not in the log"));
            }
            Action::Place { alloc, .. } => {
                self.past.allocs.insert(alloc);
            }
            Action::Stop(alloc) => {
                self.past.allocs.remove(&alloc);
            }
            _ => {}
        }
    }

    fn declared_down(&mut self, node: NodeId) {
        self.note(format!("node {node} is down"));
        self.count("nodes down");
        let now = elapsed();
        if let Some(heard) = self.past.heard.get(&node)
            && now.saturating_sub(*heard) < TTL
        {
            let age = now - *heard;
            self.violate(format!("node {node} is declared down {age:?} after a heartbeat that was answered"));
        }
        let disturbed =
            self.past.nodes_disturbed.get(&node).copied().unwrap_or_default().max(self.past.disturbed);
        if now.saturating_sub(disturbed) > CALM {
            self.violate(format!("node {node} is declared down, but reached all servers for {CALM:?}"));
        }
    }
}

impl Book {
    /// Records a command that a server applied.
    pub(crate) fn applied(&self, host: HostId, before: u64, state: &State, command: &Command, response: u8) {
        let mut pages = self.lock();
        if state.index <= before {
            pages.violate(format!("server {} applies index {} after {before}", host.0, state.index));
        }
        match pages.past.chains.insert(state.index, state.chain) {
            Some(chain) if chain != state.chain => {
                pages.violate(format!("server {} has another state at index {}", host.0, state.index));
            }
            Some(_) => {}
            None => pages.committed(state, command, response),
        }
    }

    /// Records a state that a server restored.
    pub(crate) fn restored(&self, host: HostId, state: &State) {
        let mut pages = self.lock();
        pages.note(format!("server {} restores a snapshot at index {}", host.0, state.index));
        pages.count("snapshots restored");
        if state.index > 0 && pages.past.chains.get(&state.index) != Some(&state.chain) {
            pages.violate(format!("server {} restores another state at index {}", host.0, state.index));
        }
    }

    pub(crate) fn leads(&self, host: HostId, term: u64) {
        let mut pages = self.lock();
        match pages.past.leaders.insert(term, host) {
            Some(other) if other != host => {
                pages.violate(format!("servers {} and {} lead in term {term}", other.0, host.0));
            }
            Some(_) => {}
            None => {
                pages.note(format!("server {} leads in term {term}", host.0));
                pages.count("terms");
            }
        }
    }

    /// Returns the newest term with a leader.
    pub(crate) fn newest_term(&self) -> u64 {
        self.lock().past.leaders.last_key_value().map_or(0, |(term, _)| *term)
    }

    /// Records that a cluster has a committed entry.
    pub(crate) fn has_committed(&self, cluster: u128) {
        let mut pages = self.lock();
        if pages.past.clusters.insert(cluster) {
            pages.note(format!("cluster {cluster:x} has a committed entry"));
        }
        if pages.past.clusters.len() > 1 {
            pages.violate("two clusters have committed entries".to_owned());
        }
    }

    /// Records the acknowledgement of a command.
    pub(crate) fn acked(&self, id: u64, index: u64) {
        let mut pages = self.lock();
        pages.count("acknowledged");
        if pages.past.indexes.get(&id) != Some(&index) {
            pages
                .violate(format!("command {id} is acknowledged at index {index}, but was not applied there"));
        }
        pages.past.acked.insert(id, index);
        pages.past.newest_acked = pages.past.newest_acked.max(index);
    }

    pub(crate) fn refused(&self, id: u64) {
        self.lock().past.refused.insert(id);
    }

    pub(crate) fn newest_acked(&self) -> u64 {
        self.lock().past.newest_acked
    }

    /// Records the call of an operation, and returns its place in the history.
    pub(crate) fn called(&self, client: usize, id: u64, key: u8, op: RegisterOp) -> usize {
        let mut pages = self.lock();
        pages.past.sequence += 1;
        let operation = Operation { client, called: pages.past.sequence, answered: None, op };
        pages.past.history.push(Recorded { id, key, operation });
        pages.past.history.len() - 1
    }

    pub(crate) fn answered(&self, place: usize, ret: RegisterRet) {
        let mut pages = self.lock();
        pages.past.sequence += 1;
        pages.past.history[place].operation.answered = Some((pages.past.sequence, ret));
    }

    /// Records the state that a server shows to a reader that permits old states.
    pub(crate) fn shows(&self, host: HostId, index: u64, chain: u64) {
        let mut pages = self.lock();
        let before = pages.past.shown.get(&host).copied().unwrap_or_default();
        if before == (index, chain) {
            return;
        }
        pages.count("states shown");
        if index > 0 && pages.past.chains.get(&index) != Some(&chain) {
            pages.violate(format!("server {} shows a state that never was, at index {index}", host.0));
        }
        if index < before.0 {
            pages.violate(format!("server {} shows index {index} after {}", host.0, before.0));
        }
        pages.past.shown.insert(host, (index, chain));
    }

    /// Records that a server lost its disk.
    pub(crate) fn wiped(&self, host: HostId) {
        self.lock().past.shown.remove(&host);
    }

    /// Records a write to the volume.
    pub(crate) fn wrote(&self, node: NodeId, epoch: u64) {
        let mut pages = self.lock();
        pages.count("writes to the volume");
        let now = pages.past.claim;
        if now != Some(Claim { node, epoch }) {
            pages.violate(format!("node {node} writes to the volume of {now:?}"));
        }
    }

    /// Records that a node ends an allocation because it is not in its list.
    pub(crate) fn ended(&self, node: NodeId, alloc: u64) {
        let mut pages = self.lock();
        if pages.past.allocs.contains(&alloc) {
            pages.violate(format!("node {node} ends allocation {alloc}, which must run"));
        }
    }

    pub(crate) fn heartbeat_answered(&self, node: NodeId, sent: Duration) {
        let mut pages = self.lock();
        pages.count("heartbeats");
        pages.past.heard.insert(node, sent);
    }

    /// Records that a fault lasts until now.
    pub(crate) fn disturbed(&self) {
        self.lock().past.disturbed = elapsed();
    }

    pub(crate) fn node_disturbed(&self, node: NodeId) {
        self.lock().past.nodes_disturbed.insert(node, elapsed());
    }

    /// Checks the final state of a server, and the whole history.
    pub(crate) fn finish(&self, state: &State) {
        let mut pages = self.lock();
        let lost = pages.past.acked.keys().find(|id| state.seen.get(id) != Some(&1)).copied();
        if let Some(id) = lost {
            let index = pages.past.acked.get(&id).copied();
            pages.violate(format!("command {id}, acknowledged at index {index:?}, is not applied once"));
        }
        let taken = pages.past.refused.iter().find(|id| state.seen.contains_key(id)).copied();
        if let Some(id) = taken {
            pages.violate(format!("command {id} was refused, but is applied"));
        }
        let mut histories: BTreeMap<u8, Vec<Operation<RegisterOp, RegisterRet>>> = BTreeMap::new();
        for recorded in &pages.past.history {
            let read = recorded.operation.op == RegisterOp::Read;
            // An operation without a response counts only if it took effect.
            if recorded.operation.answered.is_some() || !read && state.seen.contains_key(&recorded.id) {
                histories.entry(recorded.key).or_default().push(recorded.operation.clone());
            }
        }
        for (key, history) in histories {
            if let Err(error) = linear::check::<Register>(&history) {
                pages.violate(format!("the history of register {key} has no order: {:?}", error.stuck));
            }
        }
    }
}
