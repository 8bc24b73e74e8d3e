//! The trace of a simulation, and the past events that the checks need.

use super::node::short;
use super::rows::{self, JobName};
use super::users::Object;
use super::world::HEARTBEAT;
use crate::trace;
use caravan_consensus::sim::{HostId, elapsed};
use caravan_server::Written;
use caravan_state::Root;
use caravan_testkit::linear::specs::{Register, RegisterOp, RegisterRet};
use caravan_testkit::linear::{self, Operation};
use caravan_types::AllocId;
use caravan_types::node::NodeStatus;
use caravan_types::volume::ClaimId;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The time without faults after which no node without faults may be declared down.
const CALM: Duration = Duration::from_secs(16);

/// The trace, with the past of this simulation.
pub(super) type Book = trace::Book<Past>;
type Pages = trace::Pages<Past>;

/// One operation on an object.
struct Recorded {
    object: Object,
    operation: Operation<RegisterOp, RegisterRet>,
    /// Whether the operation certainly had no effect.
    is_void: bool,
}

/// The past events that the checks need.
#[derive(Default)]
pub(super) struct Past {
    sequence: u64,
    leaders: BTreeMap<u64, HostId>,
    /// The hash of the state at each index at which a state was observed.
    hashes: BTreeMap<u64, u64>,
    /// The newest index that each server has shown.
    stale: BTreeMap<HostId, u64>,
    newest_acked: u64,
    /// The term of each change of a leader, by its index.
    written: BTreeMap<u64, u64>,
    history: Vec<Recorded>,
    refused: BTreeSet<(Object, u64)>,
    /// The index up to which states were observed. The next field has the statuses of the nodes at this index.
    observed: u64,
    statuses: BTreeMap<u32, NodeStatus>,
    /// The writers of the volume at the observed index, with their claims.
    writers: BTreeMap<AllocId, String>,
    /// The node and the allocation that write to the volume, and the allocations that wrote before.
    writer: Option<(u32, AllocId)>,
    writers_before: BTreeSet<AllocId>,
    /// The time at which each node sent its last heartbeat with a response.
    heard: BTreeMap<u32, Duration>,
    disturbed: Duration,
    nodes_disturbed: BTreeMap<u32, Duration>,
}

impl Pages {
    fn declared_down(&mut self, node: u32) {
        self.count("nodes down");
        let now = elapsed();
        if let Some(heard) = self.past.heard.get(&node)
            && now.saturating_sub(*heard) < HEARTBEAT.min_ttl
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

    /// Records changes of the allocations that write to the volume, and of their claims.
    fn observe_writers(&mut self, root: &Root) {
        let job = JobName::Writer.key();
        for alloc in root.allocs_by_job(&job) {
            let claim = root.claim(&ClaimId { volume: rows::volume_key(), alloc: alloc.id.clone() });
            let claim = claim.map(|claim| (claim.generation, claim.phase));
            let (node, desired, client) = (&alloc.node_id, alloc.desired_status, alloc.client_status);
            let now = format!("{desired:?}, {client:?} on {node}, claim {claim:?}");
            if self.past.writers.get(&alloc.id) != Some(&now) {
                self.note(format!("writer {} is {now} at {}", short(&alloc.id), root.index()));
                self.past.writers.insert(alloc.id.clone(), now);
            }
        }
    }

    /// Compares a state with another one of the same index.
    fn compare(&mut self, host: HostId, root: &Root) -> u64 {
        let mut hash = DefaultHasher::new();
        caravan_state::encode(root).hash(&mut hash);
        let (index, hash) = (root.index(), hash.finish());
        if *self.past.hashes.entry(index).or_insert(hash) != hash {
            self.violate(format!("server {} has another state at index {index}", host.0));
        }
        hash
    }
}

impl Book {
    pub(super) fn leads(&self, host: HostId, term: u64) {
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

    /// Records changes that leaders wrote. The changes of a term precede the changes of later terms.
    pub(super) fn wrote_in_term(&self, Written { term, index }: Written) {
        let mut pages = self.lock();
        let before = pages.past.written.range(..index).next_back().map(|(_, term)| *term);
        let after = pages.past.written.range(index..).next().map(|(_, term)| *term);
        if before.is_some_and(|before| before > term) || after.is_some_and(|after| after < term) {
            pages.violate(format!(
                "a change of term {term} is at index {index}, beside changes of terms {before:?} and {after:?}"
            ));
        }
        pages.past.written.insert(index, term);
    }

    /// Observes the newest state.
    pub(super) fn observe(&self, root: &Root, nodes: u32) {
        let mut pages = self.lock();
        if root.index() <= pages.past.observed {
            return;
        }
        pages.past.observed = root.index();
        for number in 1..=nodes {
            let Some(node) = root.node(&rows::node_id(number)) else { continue };
            let before = pages.past.statuses.insert(number, node.status);
            if before == Some(node.status) {
                continue;
            }
            pages.note(format!("node {number} is {}", node.status.as_str()));
            if node.status == NodeStatus::Down {
                pages.declared_down(number);
            }
        }
        pages.observe_writers(root);
    }

    /// Compares a server's state with the others of its index.
    pub(super) fn sample(&self, host: HostId, root: &Root) -> u64 {
        self.lock().compare(host, root)
    }

    pub(super) fn newest_acked(&self) -> u64 {
        self.lock().past.newest_acked
    }

    /// Records the call of an operation, and returns its place in the history.
    pub(super) fn called(&self, client: usize, object: Object, op: RegisterOp) -> usize {
        let mut pages = self.lock();
        pages.past.sequence += 1;
        let operation = Operation { client, called: pages.past.sequence, answered: None, op };
        pages.past.history.push(Recorded { object, operation, is_void: op == RegisterOp::Read });
        pages.past.history.len() - 1
    }

    pub(super) fn answered(&self, place: usize, ret: RegisterRet) {
        let mut pages = self.lock();
        pages.past.sequence += 1;
        let sequence = pages.past.sequence;
        let recorded = &mut pages.past.history[place];
        recorded.operation.answered = Some((sequence, ret));
        recorded.is_void = false;
    }

    /// Records an acknowledged write.
    pub(super) fn written(&self, place: usize, object: Object, value: u64, index: u64) {
        self.answered(place, RegisterRet::Done);
        let mut pages = self.lock();
        pages.note(format!("{object:?} is {value} at index {index}"));
        pages.count("acknowledged");
        pages.past.newest_acked = pages.past.newest_acked.max(index);
    }

    /// Records a write that had no effect according to the response of the server.
    pub(super) fn refused(&self, place: usize, object: Object, value: u64) {
        let mut pages = self.lock();
        pages.count("refused");
        pages.past.history[place].is_void = true;
        pages.past.refused.insert((object, value));
    }

    /// Records a read. `floor` is the newest index that was acknowledged before the call.
    pub(super) fn read(&self, place: usize, value: u64, index: u64, floor: u64) {
        self.answered(place, RegisterRet::Value(value));
        let mut pages = self.lock();
        pages.count("reads");
        if index < floor {
            pages.violate(format!(
                "a read is answered from index {index}, although {floor} was acknowledged before"
            ));
        }
    }

    /// Records the state that a server showed to a reader that permits old states.
    pub(super) fn stale_read(&self, host: HostId, root: &Root) {
        let mut pages = self.lock();
        pages.count("stale reads");
        pages.compare(host, root);
        let before = pages.past.stale.insert(host, root.index()).unwrap_or(0);
        if root.index() < before {
            pages.violate(format!("server {} shows index {} after {before}", host.0, root.index()));
        }
    }

    /// Records a write to the volume.
    pub(super) fn wrote(&self, node: u32, alloc: &AllocId) {
        let mut pages = self.lock();
        pages.count("writes to the volume");
        let now = (node, alloc.clone());
        if pages.past.writer.as_ref() == Some(&now) {
            return;
        }
        if pages.past.writers_before.contains(alloc) {
            let current = pages.past.writer.clone();
            pages.violate(format!("node {node} writes to the volume, which {current:?} has taken over"));
            return;
        }
        pages.note(format!("node {node} writes to the volume: {}", short(alloc)));
        pages.count("writers");
        let before = pages.past.writer.replace(now);
        pages.past.writers_before.extend(before.map(|(_, alloc)| alloc));
    }

    pub(super) fn heartbeat_answered(&self, node: u32, sent: Duration) {
        let mut pages = self.lock();
        pages.count("heartbeats");
        pages.past.heard.insert(node, sent);
    }

    /// Records that a fault lasts until now.
    pub(super) fn disturbed(&self) {
        self.lock().past.disturbed = elapsed();
    }

    pub(super) fn node_disturbed(&self, node: u32) {
        self.lock().past.nodes_disturbed.insert(node, elapsed());
    }

    /// Checks the whole history.
    pub(super) fn finish(&self, last: impl Fn(Object) -> Option<u64>) {
        let mut pages = self.lock();
        let mut histories: BTreeMap<Object, Vec<Operation<RegisterOp, RegisterRet>>> = BTreeMap::new();
        for recorded in pages.past.history.iter().filter(|recorded| !recorded.is_void) {
            histories.entry(recorded.object).or_default().push(recorded.operation.clone());
        }
        for (object, history) in histories {
            if let Some(value) = last(object)
                && pages.past.refused.contains(&(object, value))
            {
                pages.violate(format!("{object:?} has the value {value}, which was refused"));
            }
            if let Err(error) = linear::check::<Register>(&history) {
                pages.violate(format!("the history of {object:?} has no order: {:?}", error.stuck));
            }
        }
    }
}
