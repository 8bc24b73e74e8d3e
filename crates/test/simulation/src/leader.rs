//! The work of a leader in one term: deadlines of nodes, the fence of the volume, allocations, keys.

use crate::Fault;
use crate::command::{Action, Command, NodeId, Replica, State};
use crate::net::Work;
use crate::node::{GRACE, LEASE, TTL};
use crate::server::Sim;
use caravan_consensus::sim::{HostId, Lots, now, sleep, spawn_on};
use caravan_consensus::{Applied, Error, Handle, Leadership};
use caravan_types::BootInstant;
use caravan_volumes::seen::FirstSeen;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const TICK: Duration = Duration::from_millis(100);
/// The time for which a new leader waits for the first heartbeat of a node.
const FAILOVER: Duration = Duration::from_secs(6);
const FORWARD_TIMEOUT: Duration = Duration::from_millis(800);
const RETRIES: usize = 30;

/// The state that the work of a term and the requests to the leader share.
#[derive(Default)]
pub(crate) struct Desk {
    term: Option<u64>,
    deadlines: BTreeMap<NodeId, Instant>,
    /// Nodes whose silence is being recorded. The end of the term closes the channel.
    deciding: watch::Sender<BTreeSet<NodeId>>,
    granting: bool,
    key: Option<u64>,
}

/// The response to a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewed {
    /// The claim's number, if the node holds the volume.
    pub(crate) claim: Option<u64>,
}

/// Executes the work of the leader in each term that this server leads.
pub(crate) async fn run(sim: Sim, host: HostId, handle: Handle, replica: Replica, desk: Arc<Mutex<Desk>>) {
    let mut leadership = handle.leadership();
    loop {
        let term = term_of(&leadership.borrow_and_update());
        let Some(term) = term else {
            if leadership.changed().await.is_err() {
                return;
            }
            continue;
        };
        let work = work(&sim, host, &handle, term, &replica, &desk);
        tokio::select! {
            biased;
            changed = leadership.changed() => if changed.is_err() { return },
            () = work => {}
        }
        // Requests that wait for a decision of the term end.
        *desk.lock() = Desk::default();
    }
}

fn term_of(leadership: &Leadership) -> Option<u64> {
    match leadership {
        Leadership::Leader { term, .. } => Some(*term),
        Leadership::Follower { .. } | Leadership::Unknown => None,
    }
}

async fn work(
    sim: &Sim,
    host: HostId,
    handle: &Handle,
    term: u64,
    replica: &Replica,
    desk: &Arc<Mutex<Desk>>,
) {
    let began = now();
    let boot = || BootInstant::from_nanos(now().saturating_duration_since(began).as_nanos() as u64);
    let mut lots = Lots::new(term << 8 | u64::from(host.0));
    let mut seen = FirstSeen::<NodeId, (u64, u64)>::default();
    {
        let state = replica.lock();
        let up = state.nodes.iter().filter(|(_, node)| node.up).map(|(id, _)| (*id, began + FAILOVER));
        let key = state.keys.last().copied();
        *desk.lock() = Desk { term: Some(term), deadlines: up.collect(), key, ..Desk::default() };
    }
    loop {
        {
            let state = replica.lock();
            let late = late(&state, &mut desk.lock());
            for node in late {
                spawn_on(host, miss(sim.clone(), host, handle.clone(), term, node, desk.clone()));
            }
            // The fence of the volume.
            let other = state.nodes.iter().filter(|(_, node)| node.up).map(|(id, _)| *id).next();
            let from = state.claim.map(|claim| (claim.epoch, state.downs(claim.node)));
            let free = match state.claim {
                None => true,
                Some(claim) if state.is_up(claim.node) => false,
                Some(claim) => {
                    let since = seen.since(&claim.node, (claim.epoch, state.downs(claim.node)), boot());
                    let wall = state.nodes.get(&claim.node).map_or(0, |node| node.down_wall);
                    if sim.is_planted(Fault::WallClockFence) {
                        wall + LEASE.grace().0 <= sim.wall(host)
                    } else {
                        LEASE.hand_over_at(since) <= boot()
                    }
                }
            };
            if let Some(to) = other.filter(|_| free)
                && !std::mem::replace(&mut desk.lock().granting, true)
            {
                let desk = desk.clone();
                let action = Action::Grant { from, to };
                propose(sim, host, handle, term, action, move || desk.lock().granting = false);
            }
            if !*sim.quiet.lock() {
                chores(sim, host, handle, term, &state, desk, &mut lots);
            }
        }
        sleep(TICK).await;
    }
}

/// Returns the nodes whose deadline has passed, and marks them as being recorded. Omits nodes that are already marked.
fn late(state: &State, desk: &mut Desk) -> Vec<NodeId> {
    let mut late = Vec::new();
    for (id, node) in &state.nodes {
        let at = *desk.deadlines.entry(*id).or_insert(now() + FAILOVER);
        if node.up && at <= now() && !desk.deciding.borrow().contains(id) {
            late.push(*id);
        }
    }
    desk.deciding.send_if_modified(|deciding| {
        deciding.extend(&late);
        !late.is_empty()
    });
    late
}

/// Records that a node is silent.
async fn miss(sim: Sim, host: HostId, handle: Handle, term: u64, node: NodeId, desk: Arc<Mutex<Desk>>) {
    let done = decide(&sim, host, &handle, term, node, &desk).await;
    let mut desk = desk.lock();
    if desk.term != Some(term) {
        return;
    }
    if !done {
        desk.deadlines.insert(node, now() + GRACE);
    }
    desk.deciding.send_modify(|deciding| {
        deciding.remove(&node);
    });
}

/// Returns whether the decision is final. Otherwise it is due again after a while.
async fn decide(
    sim: &Sim,
    host: HostId,
    handle: &Handle,
    term: u64,
    node: NodeId,
    desk: &Mutex<Desk>,
) -> bool {
    // Without a quorum this server responds to no heartbeat, so the node is not the silent party.
    if handle.read(None).await.is_err() {
        return false;
    }
    // The node may have sent a heartbeat after its deadline.
    if desk.lock().deadlines.get(&node).is_some_and(|at| *at > now()) {
        return true;
    }
    let action = Action::NodeDown { node, wall: sim.wall(host) };
    let command = Command { id: sim.book.next_id(), term: Some(term), action };
    match propose_once(sim, handle, term, command.bytes()).await {
        Ok(applied) => sim.book.acked(command.id, applied.index),
        Err(Error::NotLeader { .. } | Error::TermEnded { .. }) => {
            sim.book.refused(command.id);
            return false;
        }
        Err(_) => {
            // The write may be in the log. No heartbeat of the node gets a response before the outcome is known.
            if handle.settle(term).await.is_err() {
                std::future::pending::<()>().await;
            }
            return false;
        }
    }
    true
}

async fn propose_once(sim: &Sim, handle: &Handle, term: u64, bytes: Vec<u8>) -> Result<Applied, Error> {
    if sim.is_planted(Fault::NoTerm) {
        handle.propose(bytes).await
    } else {
        handle.propose_in(term, bytes, None).await
    }
}

/// Places and stops allocations, rotates keys and seals secrets.
fn chores(
    sim: &Sim,
    host: HostId,
    handle: &Handle,
    term: u64,
    state: &State,
    desk: &Arc<Mutex<Desk>>,
    lots: &mut Lots,
) {
    if lots.chance(6) {
        let nodes: Vec<NodeId> = state.nodes.keys().copied().collect();
        let allocs: Vec<u64> = state.allocs.keys().copied().collect();
        if let Some(node) = lots.pick(&nodes).filter(|_| allocs.len() < 8) {
            let action = Action::Place { alloc: sim.book.next_id(), node: *node };
            propose(sim, host, handle, term, action, || ());
        } else if let Some(alloc) = lots.pick(&allocs) {
            propose(sim, host, handle, term, Action::Stop(*alloc), || ());
        }
    }
    if lots.chance(4) {
        let key = sim.book.next_id();
        let ready = desk.clone();
        if sim.is_planted(Fault::KeyBeforeLog) {
            ready.lock().key = Some(key);
        }
        propose(sim, host, handle, term, Action::Key(key), move || ready.lock().key = Some(key));
    }
    let key = desk.lock().key.filter(|_| lots.chance(15));
    if let Some(key) = key {
        propose(sim, host, handle, term, Action::Sealed(key), || ());
    }
}

/// Writes a decision of a term. A leader that cannot reach a quorum at the moment retries.
fn propose(
    sim: &Sim,
    host: HostId,
    handle: &Handle,
    term: u64,
    action: Action,
    done: impl FnOnce() + Send + 'static,
) {
    let (sim, handle) = (sim.clone(), handle.clone());
    let command = Command { id: sim.book.next_id(), term: Some(term), action };
    spawn_on(host, async move {
        let bytes = command.bytes();
        for _ in 0..RETRIES {
            match propose_once(&sim, &handle, term, bytes.clone()).await {
                Ok(applied) => {
                    sim.book.acked(command.id, applied.index);
                    return done();
                }
                Err(Error::NotLeader { .. }) => sleep(Duration::from_millis(200)).await,
                Err(Error::TermEnded { .. }) => return sim.book.refused(command.id),
                // The outcome is unknown.
                Err(_) => return,
            }
        }
        sim.book.refused(command.id);
    });
}

/// Processes the heartbeat of a node, or relays it to the leader.
pub(crate) async fn heartbeat(sim: Sim, host: HostId, node: NodeId) -> Option<Renewed> {
    let leadership = sim.handle(host)?.leadership().borrow().clone();
    match &leadership {
        Leadership::Leader { .. } => answer(sim, host, node).await,
        Leadership::Follower { leader } => {
            let to = crate::net::host_of(&leader.peer);
            let target = sim.clone();
            let work: Work<Renewed> = Arc::new(move || Box::pin(answer(target.clone(), to, node)));
            sim.call(host, to, FORWARD_TIMEOUT, work).await
        }
        Leadership::Unknown => None,
    }
}

/// Responds to the heartbeat of a node as the leader.
async fn answer(sim: Sim, host: HostId, node: NodeId) -> Option<Renewed> {
    let handle = sim.handle(host)?;
    let term = term_of(&handle.leadership().borrow())?;
    if !sim.is_planted(Fault::NoQuorumRound) {
        handle.read_quorum().await.ok()?;
    }
    let (replica, desk) = sim.with(host, |server| (server.replica.clone(), server.desk.clone()));
    let mut deciding = {
        let mut desk = desk.lock();
        if desk.term != Some(term) {
            return None;
        }
        desk.deadlines.insert(node, now() + TTL + GRACE);
        desk.deciding.subscribe()
    };
    // A decision about the node that is in progress precedes the response.
    deciding.wait_for(|deciding| !deciding.contains(&node)).await.ok()?;
    if !replica.lock().is_up(node) {
        let action = Action::NodeUp(node);
        let command = Command { id: sim.book.next_id(), term: Some(term), action };
        let applied = handle.propose_in(term, command.bytes(), None).await.ok()?;
        sim.book.acked(command.id, applied.index);
    }
    let state = replica.lock();
    let claim = state.claim.filter(|claim| claim.node == node).map(|claim| claim.epoch);
    Some(Renewed { claim })
}
