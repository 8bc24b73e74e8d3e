//! Clients: writes, compare-and-set, reads by proof of leadership, and reads that permit old states.

use crate::command::{Action, CONFLICT, Command};
use crate::net::{OUTSIDE, Work};
use crate::server::Sim;
use caravan_consensus::Error;
use caravan_consensus::sim::{HostId, Lots, sleep, spawn_on};
use caravan_testkit::linear::specs::{RegisterOp, RegisterRet};
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 4;
/// The register for the writes of bursts. The history does not contain them.
const BURST_KEY: u8 = KEYS as u8;
const CALL_TIMEOUT: Duration = Duration::from_secs(4);

/// The outcome of a request.
enum Answer {
    Done(RegisterRet, u64),
    Refused,
    Unknown,
}

pub(crate) async fn run(sim: Sim, client: usize, mut lots: Lots) {
    let mut last = vec![0; KEYS as usize];
    loop {
        sleep(lots.between(Duration::from_millis(20), Duration::from_millis(400))).await;
        if *sim.quiet.lock() {
            continue;
        }
        let servers = sim.hosts();
        let leader = lots.pick(&sim.leaders()).copied().filter(|_| lots.chance(75));
        let Some(to) = leader.or_else(|| lots.pick(&servers).copied()) else { continue };
        if lots.chance(25) {
            stale_read(&sim, to).await;
            continue;
        }
        if lots.chance(8) {
            // Writes that do not wait for each other: the log of an isolated leader grows.
            for _ in 0..2 + lots.below(10) {
                let id = sim.book.next_id();
                let command = Command::of_request(id, Action::Write { key: BURST_KEY, value: id });
                let sim = sim.clone();
                spawn_on(OUTSIDE, async move { write(&sim, to, command, false).await });
            }
            continue;
        }
        let key = lots.below(KEYS) as u8;
        let known = &mut last[usize::from(key)];
        if lots.chance(40) {
            if let Some(value) = read(&sim, client, to, key, lots.chance(30)).await {
                *known = value;
            }
            continue;
        }
        let id = sim.book.next_id();
        let (op, action) = if lots.chance(50) {
            (RegisterOp::Write(id), Action::Write { key, value: id })
        } else {
            (RegisterOp::Cas { from: *known, to: id }, Action::Cas { key, from: *known, to: id })
        };
        // Only newer programs may support the other commands.
        if lots.chance(12) {
            let command = Command::of_request(sim.book.next_id(), Action::Newer(id));
            write(&sim, to, command, true).await;
            continue;
        }
        let place = sim.book.called(client, id, key, op);
        let answer = send(&sim, to, Command::of_request(id, action), false).await;
        if let Answer::Done(ret, index) = answer {
            sim.book.acked(id, index);
            sim.book.answered(place, ret);
            if ret == RegisterRet::Done {
                *known = id;
            }
        } else if let Answer::Refused = answer {
            sim.book.refused(id);
        }
    }
}

async fn write(sim: &Sim, to: HostId, command: Command, newer: bool) {
    let id = command.id;
    match send(sim, to, command, newer).await {
        Answer::Done(_, index) => sim.book.acked(id, index),
        Answer::Refused => sim.book.refused(id),
        Answer::Unknown => {}
    }
}

async fn send(sim: &Sim, to: HostId, command: Command, newer: bool) -> Answer {
    let (target, bytes) = (sim.clone(), command.bytes());
    let work: Work<Answer> = Arc::new(move || {
        let (sim, bytes) = (target.clone(), bytes.clone());
        Box::pin(async move {
            let Some(handle) = sim.handle(to) else { return Some(Answer::Refused) };
            // As in the server, a command waits for the level of the cluster.
            if newer && sim.with(to, |server| server.replica.clone()).lock().level < 2 {
                return Some(Answer::Refused);
            }
            Some(match handle.propose(bytes).await {
                Ok(applied) => {
                    let conflict = applied.response.first() == Some(&CONFLICT);
                    let ret = if conflict { RegisterRet::Conflict } else { RegisterRet::Done };
                    Answer::Done(ret, applied.index)
                }
                Err(Error::NotLeader { .. } | Error::NotAdmitted | Error::TermEnded { .. }) => {
                    Answer::Refused
                }
                Err(_) => Answer::Unknown,
            })
        })
    });
    sim.call(OUTSIDE, to, CALL_TIMEOUT, work).await.unwrap_or(Answer::Unknown)
}

async fn read(sim: &Sim, client: usize, to: HostId, key: u8, quorum: bool) -> Option<u64> {
    let place = sim.book.called(client, 0, key, RegisterOp::Read);
    let value = proved_read(sim, to, key, quorum).await?;
    sim.book.answered(place, RegisterRet::Value(value));
    Some(value)
}

/// Reads often from a server that considers itself the leader. The history does not contain these reads.
pub(crate) async fn reader(sim: Sim, mut lots: Lots) {
    loop {
        sleep(lots.between(Duration::from_millis(20), Duration::from_millis(90))).await;
        if let Some(to) = lots.pick(&sim.leaders()) {
            proved_read(&sim, *to, 0, false).await;
        }
    }
}

/// Reads a register from a server that proves its leadership, and checks that no acknowledged write is missing.
async fn proved_read(sim: &Sim, to: HostId, key: u8, quorum: bool) -> Option<u64> {
    let floor = sim.book.newest_acked();
    let target = sim.clone();
    let work: Work<(u64, u64)> = Arc::new(move || {
        let sim = target.clone();
        Box::pin(async move {
            let handle = sim.handle(to)?;
            let proved = if quorum { handle.read_quorum().await } else { handle.read(None).await };
            proved.ok()?;
            let replica = sim.with(to, |server| server.replica.clone());
            let state = replica.lock();
            Some((state.index, state.register(key)))
        })
    });
    let (index, value) = sim.call(OUTSIDE, to, CALL_TIMEOUT, work).await?;
    sim.book.count("reads");
    if index < floor {
        sim.book.violate(format!(
            "server {} answers a read from index {index}, although {floor} was acknowledged before",
            to.0
        ));
    }
    Some(value)
}

async fn stale_read(sim: &Sim, to: HostId) {
    let target = sim.clone();
    let work: Work<()> = Arc::new(move || {
        let sim = target.clone();
        Box::pin(async move {
            sim.handle(to)?;
            if let Some((index, chain)) = sim.shown(to) {
                sim.book.count("stale reads");
                sim.book.shows(to, index, chain);
            }
            Some(())
        })
    });
    sim.call(OUTSIDE, to, CALL_TIMEOUT, work).await;
}
