//! Nodes: heartbeats, the fence of the volume, its writer, and the list of allocations.

use crate::Fault;
use crate::command::NodeId;
use crate::leader::heartbeat;
use crate::net::Work;
use crate::server::Sim;
use caravan_consensus::sim::{HostId, Lots, elapsed, since_boot, sleep, spawn_on};
use caravan_types::Nanos;
use caravan_volumes::lease::Lease;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a node may be silent.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// The additional time for which a leader waits.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(1000);
const CALL_TIMEOUT: Duration = Duration::from_millis(1000);
/// The fence, with shorter times than usual. As usual, a node may write for longer than it may be silent.
pub(crate) const LEASE: Lease =
    Lease { ttl: Nanos::from_secs(6), kill_grace: Nanos::from_secs(1), margin: Nanos::from_secs(1) };

#[derive(Default)]
struct Shared {
    /// The number of the claim, and the end of the time to write, in nanoseconds of the clock that counts
    /// suspended time.
    lease: Option<(u64, u64)>,
    allocs: BTreeSet<u64>,
    /// The highest index that a server has shown.
    index: u64,
}

/// Returns the host of a node.
pub(crate) fn host(node: NodeId) -> HostId {
    HostId(100 + node)
}

/// Starts the tasks of a node.
pub(crate) fn spawn(sim: &Sim, node: NodeId, mut lots: Lots) {
    let shared = Arc::new(Mutex::new(Shared::default()));
    spawn_on(host(node), beats(sim.clone(), node, lots.fork(), shared.clone()));
    spawn_on(host(node), lists(sim.clone(), node, lots.fork(), shared.clone()));
    spawn_on(host(node), writer(sim.clone(), node, shared));
}

/// Reads `CLOCK_BOOTTIME` of the current host, as clients do. Example: a node is suspended until another
/// node has the volume. According to `CLOCK_MONOTONIC`, its lease would still last.
fn boot() -> u64 {
    since_boot().unwrap_or_default()
}

async fn beats(sim: Sim, node: NodeId, mut lots: Lots, shared: Arc<Mutex<Shared>>) {
    let hosts = sim.hosts();
    let Some(mut to) = lots.pick(&hosts).copied() else { return };
    loop {
        let (sent, sent_at) = (boot(), elapsed());
        let target = sim.clone();
        let work: Work<_> = Arc::new(move || Box::pin(heartbeat(target.clone(), to, node)));
        let Some(renewed) = sim.call(host(node), to, CALL_TIMEOUT, work).await else {
            // The next server is tried immediately.
            to = server_after(&hosts, to);
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        sim.book.heartbeat_answered(node, sent_at);
        let until = sent + LEASE.ttl.to_std().as_nanos() as u64;
        shared.lock().lease = renewed.claim.map(|epoch| (epoch, until));
        sleep(lots.between(INTERVAL / 2, INTERVAL)).await;
    }
}

/// Returns the server that a node tries after a failed server. As in the client, each other server is tried
/// before the failed one. A random choice could return a removed server until the node is declared down.
pub(crate) fn server_after(hosts: &[HostId], failed: HostId) -> HostId {
    let next = hosts.iter().skip_while(|host| **host != failed).nth(1);
    next.or(hosts.first()).copied().unwrap_or(failed)
}

async fn writer(sim: Sim, node: NodeId, shared: Arc<Mutex<Shared>>) {
    loop {
        let lease = shared.lock().lease;
        if let Some((epoch, until)) = lease
            && boot() < until
        {
            sim.book.wrote(node, epoch);
        }
        sleep(Duration::from_millis(150)).await;
    }
}

/// Follows the list of the node's allocations at any server, and ends allocations that are not in it.
async fn lists(sim: Sim, node: NodeId, mut lots: Lots, shared: Arc<Mutex<Shared>>) {
    loop {
        sleep(lots.between(Duration::from_millis(200), Duration::from_millis(900))).await;
        let Some(to) = lots.pick(&sim.hosts()).copied() else { continue };
        let floor = if sim.is_planted(Fault::NoFloor) { 0 } else { shared.lock().index };
        let target = sim.clone();
        let work: Work<(u64, BTreeSet<u64>)> = Arc::new(move || {
            let sim = target.clone();
            Box::pin(async move {
                sim.handle(to)?;
                let replica = sim.with(to, |server| server.replica.clone());
                while replica.lock().index < floor {
                    sleep(Duration::from_millis(100)).await;
                }
                let state = replica.lock();
                let own = state.allocs.iter().filter(|(_, at)| **at == node).map(|(alloc, _)| *alloc);
                Some((state.index, own.collect()))
            })
        });
        let Some((index, list)) = sim.call(host(node), to, CALL_TIMEOUT, work).await else { continue };
        let mut shared = shared.lock();
        for alloc in shared.allocs.difference(&list) {
            sim.book.ended(node, *alloc);
        }
        shared.allocs = list;
        shared.index = shared.index.max(index);
    }
}
