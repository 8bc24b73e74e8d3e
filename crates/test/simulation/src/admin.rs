//! Changes of the membership and of the feature level, which the leader makes.

use crate::command::{Action, Command};
use crate::net::{OUTSIDE, Work, host_of};
use crate::server::{Sim, peer};
use caravan_consensus::sim::{HostId, Lots, sleep};
use caravan_consensus::{ClusterId, Error, Handle, MemberState, ServerId};
use std::sync::Arc;
use std::time::Duration;

const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of entries that a server may lack when it becomes a voter.
const MAX_LAG: u64 = 20;

pub(crate) async fn run(sim: Sim, mut lots: Lots) {
    loop {
        sleep(lots.between(Duration::from_millis(300), Duration::from_millis(900))).await;
        let Some(leader) = sim.leader() else { continue };
        let target = sim.clone();
        let work: Work<()> = Arc::new(move || {
            let sim = target.clone();
            Box::pin(async move {
                let handle = sim.handle(leader)?;
                // The next round retries.
                let _ = step(&sim, leader, &handle).await;
                Some(())
            })
        });
        sim.call(OUTSIDE, leader, Duration::from_secs(15), work).await;
    }
}

async fn step(sim: &Sim, leader: HostId, handle: &Handle) -> Result<(), Error> {
    let members = handle.members();
    let Some(cluster) = handle.identity().cluster else { return Ok(()) };
    if !members.committed || !handle.is_leader() {
        return Ok(());
    }
    let removal = *sim.removal.lock();
    for member in &members.members {
        let host = host_of(&member.peer);
        let number = sim.handle(host).and_then(|handle| handle.identity().number);
        // The server lost its log, and has another number or none. A founder that the log has not reached
        // yet has a promise.
        let is_founder = sim.with(host, |server| server.promise.is_some());
        let replaced = sim.handle(host).is_some() && !is_founder && number != Some(member.number);
        let is_due = removal == Some(host) || replaced;
        if is_due && (members.voters().count() > 2 || !member.voter) {
            sim.book.note(format!("server {} removes number {}", leader.0, member.number));
            return handle.remove(members.version, member.number).await;
        }
    }
    if removal.is_some_and(|host| !members.members.iter().any(|member| host_of(&member.peer) == host)) {
        return Ok(());
    }
    for host in sim.hosts() {
        let Some(other) = sim.handle(host) else { continue };
        let known = members.members.iter().find(|member| host_of(&member.peer) == host);
        match (known, other.identity().number) {
            (None, number) => {
                let number = match number {
                    Some(number) => number,
                    None => {
                        let number = handle.next_number().await?;
                        if !admit(sim, leader, host, cluster, number).await {
                            return Ok(());
                        }
                        number
                    }
                };
                sim.book.note(format!("server {} adds server {} as number {number}", leader.0, host.0));
                return handle.add_learner(handle.members().version, number, peer(host)).await;
            }
            (Some(member), Some(_)) if !member.voter && is_near(handle, member) => {
                sim.book.note(format!("number {} becomes a voter", member.number));
                return handle.promote(members.version, member.number).await;
            }
            (Some(_), _) => {}
        }
    }
    raise_level(sim, leader, handle).await
}

fn is_near(handle: &Handle, member: &MemberState) -> bool {
    let last = handle.metrics().last_log_index;
    member.matched.is_some_and(|matched| matched + MAX_LAG >= last)
}

async fn admit(sim: &Sim, from: HostId, to: HostId, cluster: ClusterId, number: ServerId) -> bool {
    sim.book.note(format!("server {} is admitted as number {number}", to.0));
    let target = sim.clone();
    let work: Work<bool> = Arc::new(move || {
        let sim = target.clone();
        Box::pin(async move { Some(sim.handle(to)?.admit(cluster, number).await.is_ok()) })
    });
    sim.call(from, to, CALL_TIMEOUT, work).await == Some(true)
}

/// Raises the level once all servers support the next one.
async fn raise_level(sim: &Sim, leader: HostId, handle: &Handle) -> Result<(), Error> {
    let supported = sim.servers.lock().values().all(|server| server.up && server.running >= 2);
    let level = sim.with(leader, |server| server.replica.clone()).lock().level;
    if !supported || level >= 2 {
        return Ok(());
    }
    let command = Command::of_request(sim.book.next_id(), Action::Level(2));
    let applied = handle.propose(command.bytes()).await?;
    sim.book.acked(command.id, applied.index);
    sim.book.note("the feature level is 2");
    Ok(())
}
