//! The trace of a simulation, and what the checks need to know of the past.

use super::rows;
use super::users::Object;
use super::world::HEARTBEAT;
use caravan_consensus::sim::{HostId, elapsed};
use caravan_state::Root;
use caravan_testkit::linear::specs::{Register, RegisterOp, RegisterRet};
use caravan_testkit::linear::{self, Operation};
use caravan_types::AllocId;
use caravan_types::node::NodeStatus;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// How long everything must have been in order until no node may be declared down that is in order too.
const CALM: Duration = Duration::from_secs(16);

/// The trace and the past; clones are the same book.
#[derive(Clone, Default)]
pub(super) struct Book(Arc<Mutex<Pages>>);

/// One operation on an object.
struct Recorded {
    object: Object,
    operation: Operation<RegisterOp, RegisterRet>,
    /// Whether the operation certainly had no effect.
    is_void: bool,
}

#[derive(Default)]
struct Pages {
    trace: Vec<String>,
    violation: Option<String>,
    next_id: u64,
    sequence: u64,
    leaders: BTreeMap<u64, HostId>,
    /// When the newest term began. A leader that only loses its quorum may miss nodes (docs/adr/0015-simulation.md).
    term_began: Duration,
    /// The hash of the state at each index at which a state was looked at.
    hashes: BTreeMap<u64, u64>,
    /// The newest index that each server has shown.
    stale: BTreeMap<HostId, u64>,
    newest_acked: u64,
    history: Vec<Recorded>,
    refused: BTreeSet<(Object, u64)>,
    /// The index up to which states were observed, and the statuses of the nodes there.
    observed: u64,
    statuses: BTreeMap<u32, NodeStatus>,
    /// The node and the allocation that write to the volume, and the allocations that wrote before.
    writer: Option<(u32, AllocId)>,
    writers_before: BTreeSet<AllocId>,
    /// When each node sent the last heartbeat that was answered.
    heard: BTreeMap<u32, Duration>,
    disturbed: Duration,
    nodes_disturbed: BTreeMap<u32, Duration>,
    counts: BTreeMap<&'static str, u64>,
}

impl Pages {
    fn note(&mut self, text: String) {
        let at = elapsed();
        self.trace.push(format!("{:>4}.{:06} {text}", at.as_secs(), at.subsec_micros()));
    }

    fn violate(&mut self, text: String) {
        self.note(format!("VIOLATION: {text}"));
        self.violation.get_or_insert(text);
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn declared_down(&mut self, node: u32) {
        self.count("nodes down");
        let now = elapsed();
        if let Some(heard) = self.heard.get(&node)
            && now.saturating_sub(*heard) < HEARTBEAT.min_ttl
            && now.saturating_sub(self.term_began) < HEARTBEAT.failover
        {
            let age = now - *heard;
            self.violate(format!("node {node} is declared down {age:?} after a heartbeat that was answered"));
        }
        let disturbed = self.nodes_disturbed.get(&node).copied().unwrap_or_default().max(self.disturbed);
        if now.saturating_sub(disturbed) > CALM {
            self.violate(format!("node {node} is declared down, but reached all servers for {CALM:?}"));
        }
    }

    /// Compares a state with another one of the same index.
    fn compare(&mut self, host: HostId, root: &Root) -> u64 {
        let mut hash = DefaultHasher::new();
        caravan_state::encode(root).hash(&mut hash);
        let (index, hash) = (root.index(), hash.finish());
        if *self.hashes.entry(index).or_insert(hash) != hash {
            self.violate(format!("server {} has another state at index {index}", host.0));
        }
        hash
    }
}

impl Book {
    pub(super) fn note(&self, text: impl Into<String>) {
        self.0.lock().note(text.into());
    }

    pub(super) fn violate(&self, text: impl Into<String>) {
        self.0.lock().violate(text.into());
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.0.lock().violation.clone()
    }

    pub(super) fn is_violated(&self) -> bool {
        self.0.lock().violation.is_some()
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.0.lock().trace.clone()
    }

    /// Returns the hash of the trace.
    pub(super) fn hash(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.0.lock().trace.hash(&mut hash);
        hash.finish()
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().counts.clone()
    }

    pub(super) fn count(&self, what: &'static str) {
        self.0.lock().count(what);
    }

    pub(super) fn next_id(&self) -> u64 {
        let mut pages = self.0.lock();
        pages.next_id += 1;
        pages.next_id
    }

    pub(super) fn leads(&self, host: HostId, term: u64) {
        let mut pages = self.0.lock();
        match pages.leaders.insert(term, host) {
            Some(other) if other != host => {
                pages.violate(format!("servers {} and {} lead in term {term}", other.0, host.0));
            }
            Some(_) => {}
            None => {
                pages.term_began = elapsed();
                pages.note(format!("server {} leads in term {term}", host.0));
                pages.count("terms");
            }
        }
    }

    /// Observes the newest state.
    pub(super) fn observe(&self, root: &Root, nodes: u32) {
        let mut pages = self.0.lock();
        if root.index() <= pages.observed {
            return;
        }
        pages.observed = root.index();
        for number in 1..=nodes {
            let Some(node) = root.node(&rows::node_id(number)) else { continue };
            let before = pages.statuses.insert(number, node.status);
            if before == Some(node.status) {
                continue;
            }
            pages.note(format!("node {number} is {}", node.status.as_str()));
            if node.status == NodeStatus::Down {
                pages.declared_down(number);
            }
        }
    }

    /// Compares a server's state with the others of its index.
    pub(super) fn sample(&self, host: HostId, root: &Root) -> u64 {
        self.0.lock().compare(host, root)
    }

    pub(super) fn newest_acked(&self) -> u64 {
        self.0.lock().newest_acked
    }

    /// Records the call of an operation, and returns its place in the history.
    pub(super) fn called(&self, client: usize, object: Object, op: RegisterOp) -> usize {
        let mut pages = self.0.lock();
        pages.sequence += 1;
        let operation = Operation { client, called: pages.sequence, answered: None, op };
        pages.history.push(Recorded { object, operation, is_void: op == RegisterOp::Read });
        pages.history.len() - 1
    }

    pub(super) fn answered(&self, place: usize, ret: RegisterRet) {
        let mut pages = self.0.lock();
        pages.sequence += 1;
        let sequence = pages.sequence;
        let recorded = &mut pages.history[place];
        recorded.operation.answered = Some((sequence, ret));
        recorded.is_void = false;
    }

    /// Records an acknowledged write.
    pub(super) fn written(&self, place: usize, object: Object, value: u64, index: u64) {
        self.answered(place, RegisterRet::Done);
        let mut pages = self.0.lock();
        pages.note(format!("{object:?} is {value} at index {index}"));
        pages.count("acknowledged");
        pages.newest_acked = pages.newest_acked.max(index);
    }

    /// Records a write of which the server answered that nothing was done.
    pub(super) fn refused(&self, place: usize, object: Object, value: u64) {
        let mut pages = self.0.lock();
        pages.count("refused");
        pages.history[place].is_void = true;
        pages.refused.insert((object, value));
    }

    /// Records a read. `floor` is the newest index that was acknowledged before the call.
    pub(super) fn read(&self, place: usize, value: u64, index: u64, floor: u64) {
        self.answered(place, RegisterRet::Value(value));
        let mut pages = self.0.lock();
        pages.count("reads");
        if index < floor {
            pages.violate(format!(
                "a read is answered from index {index}, although {floor} was acknowledged before"
            ));
        }
    }

    /// Records the state that a server showed to a reader that permits old states.
    pub(super) fn stale_read(&self, host: HostId, root: &Root) {
        let mut pages = self.0.lock();
        pages.count("stale reads");
        pages.compare(host, root);
        let before = pages.stale.insert(host, root.index()).unwrap_or(0);
        if root.index() < before {
            pages.violate(format!("server {} shows index {} after {before}", host.0, root.index()));
        }
    }

    /// Records a write to the volume.
    pub(super) fn wrote(&self, node: u32, alloc: &AllocId) {
        let mut pages = self.0.lock();
        pages.count("writes to the volume");
        let now = (node, alloc.clone());
        if pages.writer.as_ref() == Some(&now) {
            return;
        }
        if pages.writers_before.contains(alloc) {
            let current = pages.writer.clone();
            pages.violate(format!("node {node} writes to the volume, which {current:?} has taken over"));
            return;
        }
        pages.note(format!("node {node} writes to the volume: {}", super::node::short(alloc)));
        pages.count("writers");
        let before = pages.writer.replace(now);
        pages.writers_before.extend(before.map(|(_, alloc)| alloc));
    }

    pub(super) fn heartbeat_answered(&self, node: u32, sent: Duration) {
        let mut pages = self.0.lock();
        pages.count("heartbeats");
        pages.heard.insert(node, sent);
    }

    /// Records that something is not in order, until now.
    pub(super) fn disturbed(&self) {
        self.0.lock().disturbed = elapsed();
    }

    pub(super) fn node_disturbed(&self, node: u32) {
        self.0.lock().nodes_disturbed.insert(node, elapsed());
    }

    /// Checks the whole history.
    pub(super) fn finish(&self, last: impl Fn(Object) -> Option<u64>) {
        let mut pages = self.0.lock();
        let mut histories: BTreeMap<Object, Vec<Operation<RegisterOp, RegisterRet>>> = BTreeMap::new();
        for recorded in pages.history.iter().filter(|recorded| !recorded.is_void) {
            histories.entry(recorded.object).or_default().push(recorded.operation.clone());
        }
        for (object, history) in histories {
            if let Some(value) = last(object)
                && pages.refused.contains(&(object, value))
            {
                pages.violate(format!("{object:?} has the value {value}, which was refused"));
            }
            if let Err(error) = linear::check::<Register>(&history) {
                pages.violate(format!("the history of {object:?} has no order: {:?}", error.stuck));
            }
        }
    }
}
