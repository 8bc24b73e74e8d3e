//! The founding of the cluster: the real decisions of `caravan_founding`, with messages over the virtual network.

use crate::Fault;
use crate::net::Work;
use crate::server::{Sim, peer};
use caravan_consensus::sim::{HostId, elapsed, sleep};
use caravan_consensus::{ClusterId, Handle, Peer, ServerId};
use caravan_founding::{
    Answer, Candidate, Founding, Own, Promise, Reply, ServerUuid, Step, next, reply, stands,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const PAUSE: Duration = Duration::from_millis(200);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the id of a server. The id is on the disk, so a server that lost its disk has another id.
fn uuid(sim: &Sim, host: HostId) -> ServerUuid {
    let wipes = sim.with(host, |server| server.wipes);
    ServerUuid(Uuid::from_u128(u128::from(wipes) << 32 | u128::from(host.0)))
}

fn host(server: ServerUuid) -> HostId {
    HostId(server.0.as_u128() as u32)
}

/// Returns the durable state of a server.
pub(crate) fn own(sim: &Sim, at: HostId, handle: &Handle) -> Own {
    let cluster = handle.identity().cluster.map(|id| caravan_founding::ClusterId(id.0));
    let expect = if at.0 as usize <= sim.expect { sim.expect } else { 0 };
    Own { server: uuid(sim, at), expect, cluster, promise: sim.with(at, |server| server.promise.clone()) }
}

/// Runs until the server belongs to a cluster.
pub(crate) async fn run(sim: Sim, at: HostId, handle: Handle) {
    let mut answers: BTreeMap<ServerUuid, Answer> = BTreeMap::new();
    let mut answered: Option<Founding> = None;
    loop {
        let own = own(&sim, at, &handle);
        let members = candidates(&sim, at);
        if sim.is_planted(Fault::FirstSeenFounding) {
            first_seen(&sim, at, &handle, &own, &members).await;
            sleep(PAUSE).await;
            continue;
        }
        let proposal = own.promise.as_ref().map(|promise| promise.founding.clone());
        if answered != proposal {
            answers.clear();
            answered = proposal;
        }
        let store = |promise| sim.with(at, |server| server.promise = promise);
        match next(&own, &members, &answers) {
            Step::Done => return store(None),
            Step::Wait(_) => sleep(PAUSE).await,
            Step::Propose { servers } => {
                let cluster = drawn(at);
                sim.book.note(format!("server {} proposes cluster {:x}", at.0, cluster.as_u128()));
                let founding =
                    Founding { cluster: caravan_founding::ClusterId(cluster), proposer: own.server, servers };
                store(Some(Promise { founding }));
            }
            Step::Ask { founding, missing } => {
                for server in missing {
                    let answer = ask(&sim, at, server, founding.clone()).await;
                    let passes = matches!(answer.as_ref().and_then(Answer::refusal),
                        Some(caravan_founding::Refusal::Promised(other)) if other.proposer > founding.proposer);
                    if let Some(answer) = answer.filter(|_| !passes) {
                        answers.insert(server, answer);
                    }
                }
                sleep(PAUSE).await;
            }
            Step::Withdraw { .. } => {
                store(None);
                answers.clear();
                sleep(PAUSE).await;
            }
            Step::Inquire { founding } => {
                let stands = inquire(&sim, at, founding.clone()).await;
                let same = own.promise.is_some_and(|promise| promise.founding == founding);
                if stands == Some(false) && same && handle.identity().cluster.is_none() {
                    store(None);
                }
                sleep(PAUSE).await;
            }
            Step::Found(founding) => {
                let numbered = founding
                    .servers
                    .iter()
                    .filter_map(|server| Some((ServerId(founding.number(*server)?), peer(host(*server)))));
                let members: BTreeMap<ServerId, Peer> = numbered.collect();
                let number = founding.number(own.server).unwrap_or_default();
                if found(&handle, ClusterId(founding.cluster.0), ServerId(number), members).await {
                    store(None);
                } else {
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Admits this server to a cluster and founds the cluster. A failed disk ends the process, which retries
/// after its restart.
async fn found(
    handle: &Handle,
    cluster: ClusterId,
    number: ServerId,
    members: BTreeMap<ServerId, Peer>,
) -> bool {
    handle.admit(cluster, number).await.is_ok() && handle.found(cluster, members).await.is_ok()
}

fn drawn(at: HostId) -> Uuid {
    Uuid::from_u128(elapsed().as_nanos() << 8 | u128::from(at.0))
}

/// Founds a cluster of the first visible servers, which is the planted fault.
async fn first_seen(sim: &Sim, at: HostId, handle: &Handle, own: &Own, members: &[Candidate]) {
    let seen: BTreeSet<HostId> = members.iter().map(|member| host(member.server)).collect();
    if own.cluster.is_some() || own.expect == 0 || seen.len() < own.expect {
        return;
    }
    let members = seen.iter().take(sim.expect).map(|host| (ServerId(u64::from(host.0)), peer(*host)));
    found(handle, ClusterId(drawn(at)), ServerId(u64::from(at.0)), members.collect()).await;
}

/// Returns the running servers whose messages reach this server.
fn candidates(sim: &Sim, at: HostId) -> Vec<Candidate> {
    let handles: Vec<(HostId, Handle)> =
        sim.handles.lock().iter().map(|(host, handle)| (*host, handle.clone())).collect();
    let seen = handles.into_iter().filter(|(host, _)| sim.net.passes(*host, at));
    seen.map(|(host, handle)| {
        let Own { server, expect, cluster, .. } = own(sim, host, &handle);
        Candidate { server, expect, cluster }
    })
    .collect()
}

/// Requests the promise of a server. Servers prove their ids, so a server that lost its disk since does not respond.
async fn ask(sim: &Sim, from: HostId, server: ServerUuid, founding: Founding) -> Option<Answer> {
    let (target, to) = (sim.clone(), host(server));
    let work: Work<Answer> = Arc::new(move || {
        let (sim, founding) = (target.clone(), founding.clone());
        Box::pin(async move {
            let own = own(&sim, to, &sim.handle(to)?);
            if own.server != server {
                return None;
            }
            Some(match reply(&own, &founding) {
                Reply::Send(answer) => answer,
                Reply::Store(promise) => {
                    sim.with(to, |server| server.promise = Some(promise));
                    Answer::Promised
                }
            })
        })
    });
    sim.call(from, to, ANSWER_TIMEOUT, work).await
}

/// Asks the proposer whether its proposal is still valid, with the rules of [`ask`].
async fn inquire(sim: &Sim, from: HostId, founding: Founding) -> Option<bool> {
    let (target, to) = (sim.clone(), host(founding.proposer));
    let work: Work<bool> = Arc::new(move || {
        let (sim, founding) = (target.clone(), founding.clone());
        Box::pin(async move {
            let own = own(&sim, to, &sim.handle(to)?);
            (own.server == founding.proposer).then(|| stands(&own, &founding))
        })
    });
    sim.call(from, to, ANSWER_TIMEOUT, work).await
}
