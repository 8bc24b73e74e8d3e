//! Nodes: registration, heartbeats, the list of allocations, their states, and the fence of a volume with its writer.
//!
//! The rules are the rules of the client (`crates/host/client`). A heartbeat with a response extends the
//! lease, counted from its sending. An allocation that writes to a single-writer volume ends with the
//! lease. A full list ends the allocations that it does not name.

use super::relay::{Caller, Line};
use super::rows;
use super::world::Sim;
use crate::node::server_after;
use caravan_consensus::sim::{HostId, Lots, elapsed, now, since_boot, sleep, spawn_on, timeout};
use caravan_messages::{
    AllocDelta, AllocStatus, ClaimProgress, ClaimReport, ClaimReportStep, ClaimVolume, NodeContact,
    NodeHeartbeat, NodeRegister, WatchAllocs,
};
use caravan_rpc::{Method, RpcError, methods};
use caravan_types::AllocId;
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus, DesiredStatus, TaskRunState, TaskState};
use caravan_types::job::JobType;
use caravan_types::node::{Node, NodeStatus};
use caravan_types::volume::{Claim, ClaimId, MountProof};
use futures::StreamExt as _;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause before a call is retried.
const RETRY: Duration = Duration::from_millis(250);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// More attempts than a simulation has time for.
const TRIES: usize = 1000;
const TICK: Duration = Duration::from_millis(150);

fn boot() -> u64 {
    since_boot().unwrap_or_default()
}

/// Returns the host of a node.
pub(super) fn host(number: u32) -> HostId {
    HostId(100 + number)
}

/// An allocation on a node.
struct Run {
    index: u64,
    stop: Arc<AtomicBool>,
    /// The newest report; absent before the first report.
    report: Option<AllocUpdate>,
}

struct Shared {
    /// The server that responded last.
    server: Option<HostId>,
    /// The end of the time to write to single-writer volumes, on the clock that counts suspended time.
    lease: Option<u64>,
    /// The number of leases. After a lease has run out, another lease begins.
    term: u64,
    /// The highest index that a server has shown.
    seen: u64,
    runs: BTreeMap<AllocId, Run>,
    registered: bool,
    lots: Lots,
}

/// A node; clones are the same node.
#[derive(Clone)]
struct Agent {
    sim: Sim,
    number: u32,
    row: Arc<Node>,
    shared: Arc<Mutex<Shared>>,
}

/// Starts the tasks of a node.
pub(super) fn spawn(sim: &Sim, number: u32, lots: Lots) {
    let (server, lease, term, seen, registered) = Default::default();
    let shared = Shared { server, lease, term, seen, runs: BTreeMap::new(), registered, lots };
    let shared = Arc::new(Mutex::new(shared));
    let agent = Agent { sim: sim.clone(), number, row: Arc::new(rows::node(number)), shared };
    spawn_on(host(number), agent.clone().contact());
    spawn_on(host(number), agent.lists());
}

impl Agent {
    /// Returns a connection to the server that responded last, or to any server.
    fn line(&self) -> Line {
        let hosts = self.sim.hosts();
        let mut shared = self.shared.lock();
        let any = shared.lots.pick(&hosts).copied().unwrap_or_default();
        let caller =
            Caller::Node { id: self.row.id.to_string(), secret: self.row.secret_id.expose().to_owned() };
        let to = *shared.server.get_or_insert(any);
        Line { sim: self.sim.clone(), from: host(self.number), to, caller }
    }

    /// Returns the connection for the next list, often to another server than before, and the time for
    /// which it is kept.
    fn line_of_list(&self) -> (Line, Duration) {
        let (mut line, hosts) = (self.line(), self.sim.hosts());
        let mut shared = self.shared.lock();
        if shared.lots.chance(50) {
            line.to = shared.lots.pick(&hosts).copied().unwrap_or(line.to);
        }
        (line, shared.lots.between(Duration::from_secs(1), Duration::from_secs(12)))
    }

    async fn call<M: Method>(&self, request: M::Request) -> Result<M::Response, RpcError> {
        let line = self.line();
        let answer = line.call::<M>(request, CALL_TIMEOUT, false).await;
        if answer.is_err() {
            // The next call uses the next server.
            let mut shared = self.shared.lock();
            if shared.server == Some(line.to) {
                shared.server = Some(server_after(&self.sim.hosts(), line.to));
            }
        }
        answer
    }

    /// Registers the node and sends heartbeats.
    async fn contact(self) {
        loop {
            let (sent, sent_at) = (boot(), elapsed());
            let (registered, before) = {
                let shared = self.shared.lock();
                (shared.registered, shared.seen)
            };
            let answer = if registered {
                let beat = NodeHeartbeat {
                    node_id: self.row.id.clone(),
                    secret: self.row.secret_id.clone(),
                    wants_identity: false,
                };
                self.call::<methods::NodeHeartbeat>(beat).await
            } else {
                self.call::<methods::NodeRegister>(NodeRegister { node: (*self.row).clone() }).await
            };
            match answer {
                Ok(contact) => {
                    let pause = self.answered(&contact, sent, sent_at, before);
                    sleep(pause).await;
                }
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    /// Processes the response to a heartbeat; returns the pause before the next one.
    fn answered(&self, contact: &NodeContact, sent: u64, sent_at: Duration, before: u64) -> Duration {
        let mut shared = self.shared.lock();
        shared.registered = !contact.unknown;
        if contact.unknown {
            return RETRY;
        }
        self.sim.book.heartbeat_answered(self.number, sent_at);
        // As in clients: a list may have arrived during the call.
        let floor = if contact.state_index < before { 0 } else { shared.seen };
        shared.seen = contact.state_index.max(floor);
        shared.term += u64::from(shared.lease.is_none_or(|until| boot() >= until));
        shared.lease = Some(sent + contact.lease_ttl.to_std().as_nanos() as u64);
        drop(shared);
        if contact.status != NodeStatus::Ready {
            // The servers may have marked the allocations as lost.
            spawn_on(host(self.number), self.clone().report_all());
        }
        (contact.heartbeat_ttl.to_std() / 2).min(contact.lease_ttl.to_std() / 3)
    }

    async fn report_all(self) {
        let updates: Vec<AllocUpdate> =
            self.shared.lock().runs.values().filter_map(|run| run.report.clone()).collect();
        let _ = self.send(updates).await;
    }

    async fn send(&self, updates: Vec<AllocUpdate>) -> Result<(), RpcError> {
        let request =
            AllocStatus { node_id: self.row.id.clone(), secret: self.row.secret_id.clone(), updates };
        self.call::<methods::AllocStatus>(request).await.map(drop)
    }

    /// Follows the list of the node's allocations.
    async fn lists(self) {
        loop {
            let (registered, after) = {
                let shared = self.shared.lock();
                (shared.registered, shared.seen)
            };
            if registered {
                let request =
                    WatchAllocs { node_id: self.row.id.clone(), secret: self.row.secret_id.clone(), after };
                let (line, stay) = self.line_of_list();
                let mut deltas = line.stream::<methods::WatchAllocs>(request);
                let end = now() + stay;
                while let Ok(Some(Ok(delta))) =
                    timeout(end.saturating_duration_since(now()), deltas.next()).await
                {
                    self.apply(&delta);
                }
            }
            let pause = self.shared.lock().lots.between(RETRY, RETRY * 3);
            sleep(pause).await;
        }
    }

    fn apply(&self, delta: &AllocDelta) {
        let mut shared = self.shared.lock();
        shared.seen = shared.seen.max(delta.index);
        let mut again = Vec::new();
        for alloc in &delta.allocs {
            let ends = alloc.desired_status != DesiredStatus::Run || alloc.client_terminal();
            if let Some(run) = shared.runs.get_mut(&alloc.id) {
                if run.index <= alloc.alloc_modify_index {
                    run.index = alloc.alloc_modify_index;
                    run.stop.fetch_or(ends, Ordering::Relaxed);
                }
                // The servers may have lost earlier reports.
                again.extend(run.report.clone().filter(|_| delta.full));
                continue;
            }
            if alloc.client_terminal() {
                self.disown(alloc);
                continue;
            }
            let stop = Arc::new(AtomicBool::new(ends));
            let run = Run { index: alloc.alloc_modify_index, stop: stop.clone(), report: None };
            shared.runs.insert(alloc.id.clone(), run);
            spawn_on(host(self.number), self.clone().run(alloc.clone(), stop));
        }
        let named = |id: &AllocId| delta.allocs.iter().any(|alloc| alloc.id == *id);
        let unnamed: Vec<AllocId> =
            shared.runs.keys().filter(|id| delta.full && !named(id)).cloned().collect();
        for id in delta.removed.iter().chain(&unnamed) {
            if let Some((id, run)) = shared.runs.remove_entry(id) {
                run.stop.store(true, Ordering::Relaxed);
                self.sim.ended_unnamed(self.number, &id, delta.index);
            }
        }
        drop(shared);
        if !again.is_empty() {
            let this = self.clone();
            spawn_on(host(self.number), async move {
                let _ = this.send(again).await;
            });
        }
    }

    /// Reports that an allocation that was lost before this node received it has no mounts.
    fn disown(&self, alloc: &Allocation) {
        if alloc.client_status != ClientStatus::Lost {
            return;
        }
        if let Some(id) = claim_of(alloc) {
            let this = self.clone();
            spawn_on(host(self.number), async move { this.prove(&id, 0, ClaimReportStep::Unstaged).await });
        }
    }

    /// Reports a step of a claim until the servers have recorded it.
    async fn prove(&self, claim: &ClaimId, generation: u32, step: ClaimReportStep) {
        let mut last = String::new();
        for _ in 0..TRIES {
            let report = ClaimReport {
                node_id: self.row.id.clone(),
                secret: self.row.secret_id.clone(),
                claim: claim.clone(),
                generation,
                step: step.clone(),
            };
            match self.call::<methods::ClaimReport>(report).await {
                Ok(_) => return,
                Err(error) => last = error.to_string(),
            }
            sleep(RETRY).await;
        }
        self.sim.book.violate(format!("node {} cannot report a claim: {last}", self.number));
    }

    /// Runs an allocation to its end.
    async fn run(self, alloc: Arc<Allocation>, stop: Arc<AtomicBool>) {
        let stops = || stop.load(Ordering::Relaxed);
        let claim = match claim_of(&alloc) {
            Some(id) => match self.obtain(&id, &stop).await {
                Ok((claim, term)) => {
                    let proof = MountProof { path: "/mnt".into(), device: "8:1".into(), mount_id: 7 };
                    self.prove(&id, claim.generation, ClaimReportStep::Mounted { proof }).await;
                    Some((claim, term))
                }
                Err(status) => {
                    let text =
                        format!("node {} does not get the volume for {}", self.number, short(&alloc.id));
                    self.sim.book.note(text);
                    self.report(&alloc, status).await;
                    return self.prove(&id, 0, ClaimReportStep::Unstaged).await;
                }
            },
            None => None,
        };
        if !stops() {
            self.report(&alloc, ClientStatus::Running).await;
        }
        let ends = alloc.job.as_ref().is_some_and(|job| job.kind == JobType::Batch);
        let life = self.shared.lock().lots.between(Duration::from_secs(1), Duration::from_secs(5));
        let end = now() + life;
        let status = loop {
            if stops() || ends && now() >= end {
                break ClientStatus::Complete;
            }
            if let Some((claim, term)) = &claim {
                let lease = {
                    let shared = self.shared.lock();
                    shared.lease.filter(|_| shared.term == *term)
                };
                if lease.is_none_or(|until| boot() >= until) {
                    self.sim.book.note(format!("node {} loses its lease", self.number));
                    break ClientStatus::Failed;
                }
                self.sim.wrote(self.number, claim);
            }
            sleep(TICK).await;
        };
        if claim.is_some() {
            self.sim.book.note(format!("node {} ends the writer {}", self.number, short(&alloc.id)));
        }
        self.report(&alloc, status).await;
        if let Some((claim, _)) = claim {
            self.prove(&claim.id, claim.generation, ClaimReportStep::Unpublished).await;
            self.prove(&claim.id, claim.generation, ClaimReportStep::Unstaged).await;
        }
    }

    /// Waits for a volume. Returns its claim, with the lease that was valid before the grant. Returns the status of the
    /// allocation if the volume is not granted.
    async fn obtain(&self, id: &ClaimId, stop: &AtomicBool) -> Result<(Claim, u64), ClientStatus> {
        loop {
            let term = self.shared.lock().term;
            let request = ClaimVolume {
                node_id: self.row.id.clone(),
                secret: self.row.secret_id.clone(),
                claim: id.clone(),
            };
            let mut progress = self.line().stream::<methods::ClaimVolume>(request);
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Err(ClientStatus::Complete);
                }
                match timeout(TICK, progress.next()).await {
                    // The node was out of contact meanwhile and may have lost the grant.
                    Ok(Some(Ok(ClaimProgress::Attached(_)))) if self.shared.lock().term != term => break,
                    Ok(Some(Ok(ClaimProgress::Attached(grant)))) => return Ok((grant.claim, term)),
                    Ok(Some(Ok(ClaimProgress::Denied { reason }))) => {
                        self.sim.book.note(format!("node {} is denied a claim: {reason}", self.number));
                        return Err(ClientStatus::Failed);
                    }
                    Ok(Some(Ok(ClaimProgress::Waiting { .. }))) | Err(_) => {}
                    Ok(None | Some(Err(_))) => break,
                }
            }
            sleep(RETRY).await;
        }
    }

    /// Reports the status of an allocation until the servers have recorded it.
    async fn report(&self, alloc: &Allocation, status: ClientStatus) {
        let update = update(alloc, status);
        if let Some(run) = self.shared.lock().runs.get_mut(&alloc.id) {
            run.report = Some(update.clone());
        }
        for _ in 0..TRIES {
            if self.send(vec![update.clone()]).await.is_ok() {
                return;
            }
            sleep(RETRY).await;
        }
    }
}

/// Returns the beginning of an id.
pub(super) fn short(id: &AllocId) -> &str {
    id.as_str().get(..8).unwrap_or(id.as_str())
}

/// Returns the claim of an allocation that writes to the volume.
pub(super) fn claim_of(alloc: &Allocation) -> Option<ClaimId> {
    let writes = alloc.group().is_some_and(|group| !group.volumes.is_empty());
    writes.then(|| ClaimId { volume: rows::volume_key(), alloc: alloc.id.clone() })
}

fn update(alloc: &Allocation, status: ClientStatus) -> AllocUpdate {
    let state = TaskState {
        state: if status == ClientStatus::Running { TaskRunState::Running } else { TaskRunState::Dead },
        failed: status == ClientStatus::Failed,
        ..TaskState::default()
    };
    let tasks = alloc.group().into_iter().flat_map(|group| &group.tasks);
    AllocUpdate {
        alloc_id: alloc.id.clone(),
        client_status: status,
        task_states: tasks.map(|task| (task.name.clone(), state.clone())).collect(),
        ..AllocUpdate::default()
    }
}
