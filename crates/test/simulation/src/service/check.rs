//! The checks of the rules that hold at each moment, and after the quiet time.

use super::node::{self, claim_of};
use super::rows::{self, JobName};
use super::users::Object;
use super::world::Sim;
use caravan_consensus::sim::HostId;
use caravan_state::Root;
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, ClientStatus, DesiredStatus};
use caravan_types::eval::EvalStatus;
use caravan_types::node::NodeStatus;
use caravan_types::volume::{Claim, ClaimPhase};

impl Sim {
    /// Checks the rules that hold at each moment.
    pub(super) fn inspect(&self, nodes: u32) {
        for (host, handle) in self.handles() {
            let metrics = handle.log_metrics();
            if metrics.is_leader {
                self.book.leads(host, metrics.term);
            }
        }
        for written in caravan_server::take_written() {
            self.book.wrote_in_term(written);
        }
        if let Some((_, root)) = self.newest() {
            self.book.observe(&root, nodes);
        }
    }

    /// Compares the states of all servers that have the same index.
    pub(super) fn compare(&self) {
        for (host, handle) in self.handles() {
            self.book.sample(host, &handle.store().snapshot());
        }
    }

    /// Returns whether all running servers have applied the same entries.
    pub(super) fn is_level(&self) -> bool {
        let mut indexes = self.handles().into_iter().map(|(_, handle)| handle.store().snapshot().index());
        let first = indexes.next();
        indexes.all(|index| Some(index) == first)
    }

    /// Records a write of an allocation to the volume.
    pub(super) fn wrote(&self, node: u32, claim: &Claim) {
        self.book.wrote(node, &claim.id.alloc);
        let Some((_, root)) = self.newest() else { return };
        // Servers with newer entries may be down.
        if root.index() < claim.modify_index {
            return;
        }
        let row = root.claim(&claim.id);
        if row.is_none_or(|row| row.phase == ClaimPhase::Gone || row.generation != claim.generation) {
            let phase = row.map(|row| row.phase);
            self.book.violate(format!("node {node} writes to the volume, but its claim is {phase:?}"));
        }
        let uses = |other: &Claim| matches!(other.phase, ClaimPhase::Attached | ClaimPhase::Mounted);
        let other = root.claims_of(&claim.id.volume).find(|other| other.id != claim.id && uses(other));
        if let Some(other) = other {
            let other = node::short(&other.id.alloc);
            self.book.violate(format!("node {node} writes to the volume, which {other} may use"));
        }
    }

    /// Records that a node ends an allocation because a list of index `index` does not have it.
    pub(super) fn ended_unnamed(&self, node: u32, id: &AllocId, index: u64) {
        let Some((_, root)) = self.newest() else { return };
        let runs = |alloc: &Allocation| {
            alloc.node_id == rows::node_id(node)
                && alloc.desired_status == DesiredStatus::Run
                && !alloc.client_terminal()
        };
        if root.alloc(id).is_some_and(|alloc| runs(alloc) && alloc.create_index <= index) {
            self.book.violate(format!("node {node} ends allocation {}, which must run", node::short(id)));
        } else if root.alloc(id).is_some_and(|alloc| runs(alloc)) {
            self.book.violate(format!(
                "node {node} ends allocation {} by a list of index {index} that is older",
                node::short(id)
            ));
        }
    }

    /// Checks that there is a leader, that all servers are equal, that all work is done, and the whole history.
    pub(super) fn last_check(&self, nodes: u32) {
        let Some(leader) = self.leader() else {
            return self.book.violate("no leader after the quiet time");
        };
        let Some(root) = self.handle(leader).map(|handle| handle.store().snapshot()) else { return };
        let hash = self.book.sample(leader, &root);
        for host in self.hosts() {
            let Some(handle) = self.handle(host) else {
                self.book.violate(format!("server {} does not run after the quiet time", host.0));
                continue;
            };
            let other = handle.store().snapshot();
            if other.index() != root.index() {
                self.book.violate(format!(
                    "server {} is at index {}, the leader {} at {}, after the quiet time",
                    host.0,
                    other.index(),
                    leader.0,
                    root.index()
                ));
            }
            self.book.sample(host, &other);
        }
        for number in 1..=nodes {
            let status = root.node(&rows::node_id(number)).map(|node| node.status);
            if status != Some(NodeStatus::Ready) {
                self.book.violate(format!("node {number} is {status:?} after the quiet time"));
            }
        }
        for eval in
            root.evals().filter(|eval| matches!(eval.status, EvalStatus::Pending | EvalStatus::Blocked))
        {
            let (job, status, why) = (&eval.job_id, eval.status, &eval.status_description);
            self.book.violate(format!("an evaluation of {job} is {status:?} after the quiet time: {why}"));
        }
        for name in JobName::ALL {
            self.check_job(&root, name);
        }
        if self.book.is_violated() {
            self.describe(leader, &root);
        }
        self.book.note(format!("end: index {}, hash {hash:x}", root.index()));
        self.book.finish(|object| match object {
            Object::Job(name) => root.job(&name.key()).map(|job| rows::mark(job)),
            Object::Variable(_) => None,
        });
    }

    /// Adds to the trace what the claims of the volume and the evaluations wait for.
    fn describe(&self, leader: HostId, root: &Root) {
        let Some(handle) = self.handle(leader) else { return };
        for claim in root.claims_of(&rows::volume_key()).filter(|claim| claim.phase != ClaimPhase::Gone) {
            let wait = handle.volumes().claim_wait(&claim.id).map(|wait| wait.to_string());
            let (alloc, node) = (node::short(&claim.id.alloc), &claim.node_id);
            let status = root.alloc(&claim.id.alloc).map(|alloc| (alloc.desired_status, alloc.client_status));
            let (phase, index, generation) = (claim.phase, claim.modify_index, claim.generation);
            self.book.note(format!(
                "claim {generation} of {alloc} {status:?} on {node}: {phase:?} since {index}, {wait:?}"
            ));
        }
        for eval in root.evals().filter(|eval| eval.status == EvalStatus::Blocked) {
            let (job, missing) = (&eval.job_id, &eval.missing_non_node_resources);
            let (looked, index) = (eval.snapshot_index, eval.modify_index);
            self.book.note(format!(
                "evaluation of {job}, written at {index}, of the state {looked}, waits for {missing:?}"
            ));
        }
        let depth = handle.scheduling().depth();
        self.book.note(format!("the broker of server {} has {depth:?}", leader.0));
    }

    fn check_job(&self, root: &Root, name: JobName) {
        let Some(job) = root.job(&name.key()) else { return };
        let live: Vec<_> = root
            .allocs_by_job(&name.key())
            .filter(|alloc| alloc.desired_status == DesiredStatus::Run)
            .filter(|alloc| match name {
                JobName::Batch => alloc.client_status == ClientStatus::Complete,
                JobName::Web | JobName::Writer => alloc.client_status == ClientStatus::Running,
            })
            .filter(|alloc| alloc.job.as_ref().is_some_and(|own| own.version == job.version))
            .collect();
        if live.len() != name.count() {
            let all: Vec<String> = root
                .allocs_by_job(&name.key())
                .filter(|alloc| !alloc.terminal())
                .map(|alloc| {
                    let claim = claim_of(alloc).and_then(|id| root.claim(&id).map(|claim| claim.phase));
                    format!(
                        "{} on {} {:?} {claim:?}",
                        node::short(&alloc.id),
                        alloc.node_id,
                        alloc.client_status
                    )
                })
                .collect();
            self.book.violate(format!(
                "{} allocations of {name:?} in place of {} after the quiet time: {all:?}",
                live.len(),
                name.count()
            ));
        }
    }
}
