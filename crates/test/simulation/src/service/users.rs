//! Users: variables with compare-and-set, jobs with an enforced index, and reads.

use super::rows::{self, JobName};
use super::world::{Sim, uuid};
use crate::net::{OUTSIDE, Work};
use caravan_consensus::sim::{HostId, Lots, now, sleep};
use caravan_server::{Handle, JobSubmission, Kind, LeaderPlace, ServerError, VariableWritten};
use caravan_testkit::linear::specs::{RegisterOp, RegisterRet};
use caravan_types::command::Refusal;
use caravan_types::ser::Secrets;
use caravan_types::variable::VariableKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const VARIABLES: u8 = 3;
/// The number of reads after the start of a server.
const LOOKS: usize = 40;
/// The time for which a request looks for a leader, at both servers together, as in the HTTP API.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// The time for which a server waits for the response of the leader to which it relayed a request.
const LEADER_TIMEOUT: Duration = Duration::from_secs(6);

/// An object that users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Variable(u8),
    Job(JobName),
}

/// A value of an object, and the index that a comparison uses; both are zero for an absent object.
#[derive(Clone, Copy, Debug, Default)]
struct Version {
    value: u64,
    index: u64,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Read(Object),
    /// A write of a value. With an index, only if the index is the index of the object's last change.
    Write {
        object: Object,
        value: u64,
        check: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Read(Version, u64),
    Written(Version),
    Conflict,
    /// The request had no effect.
    Refused,
    Unknown,
}

pub(super) async fn run(sim: Sim, number: usize, mut lots: Lots) {
    let mut known: BTreeMap<Object, Version> = BTreeMap::new();
    loop {
        sleep(lots.between(Duration::from_millis(50), Duration::from_millis(600))).await;
        if *sim.quiet.lock() {
            continue;
        }
        let hosts = sim.hosts();
        let leader = sim.leader().filter(|_| lots.chance(60));
        let Some(to) = leader.or_else(|| lots.pick(&hosts).copied()) else { continue };
        if lots.chance(15) {
            stale_read(&sim, to).await;
            continue;
        }
        let object = if lots.chance(15) {
            Object::Job(*lots.pick(&JobName::ALL).unwrap_or(&JobName::Web))
        } else {
            Object::Variable(lots.below(u64::from(VARIABLES)) as u8)
        };
        let known = known.entry(object).or_default();
        if lots.chance(40) {
            if let Some(version) = read(&sim, number, to, object).await {
                *known = version;
            }
            continue;
        }
        let value = sim.book.next_id();
        let (check, op) = if lots.chance(60) {
            (Some(known.index), RegisterOp::Cas { from: known.value, to: value })
        } else {
            (None, RegisterOp::Write(value))
        };
        let place = sim.book.called(number, object, op);
        match ask(&sim, to, Request::Write { object, value, check }).await {
            Answer::Written(version) => {
                *known = version;
                sim.book.written(place, object, value, version.index);
            }
            Answer::Conflict => sim.book.answered(place, RegisterRet::Conflict),
            Answer::Refused => sim.book.refused(place, object, value),
            Answer::Read(..) | Answer::Unknown => {}
        }
    }
}

/// Reads all objects, so that the history has their last values.
pub(super) async fn last_reads(sim: Sim) {
    let variables = (0..VARIABLES).map(Object::Variable);
    for object in variables.chain(JobName::ALL.map(Object::Job)) {
        let Some(to) = sim.leader() else { return };
        read(&sim, usize::MAX, to, object).await;
    }
}

/// Registers the volume, and then each job, until the servers have all of them.
pub(super) async fn prepare(sim: Sim, mut lots: Lots) {
    let hosts = sim.hosts();
    loop {
        sleep(Duration::from_millis(500)).await;
        let Some(to) = sim.leader().or_else(|| lots.pick(&hosts).copied()) else { continue };
        let target = sim.clone();
        let work: Work<bool> = Arc::new(move || {
            let sim = target.clone();
            Box::pin(async move {
                let handle = sim.handle(to)?;
                let registered =
                    handle.volumes().register(&"default".into(), vec![rows::volume()]).await.is_ok();
                Some(registered)
            })
        });
        if sim.net.call(OUTSIDE, to, CALL_TIMEOUT, work).await == Some(true) {
            sim.book.note("the volume is registered");
            break;
        }
    }
    for name in JobName::ALL {
        let (object, value) = (Object::Job(name), sim.book.next_id());
        let place = sim.book.called(usize::MAX, object, RegisterOp::Write(value));
        let Some(to) = sim.leader().or_else(|| lots.pick(&hosts).copied()) else { continue };
        match ask(&sim, to, Request::Write { object, value, check: None }).await {
            Answer::Written(version) => sim.book.written(place, object, value, version.index),
            Answer::Refused => sim.book.refused(place, object, value),
            _ => {}
        }
    }
}

async fn read(sim: &Sim, number: usize, to: HostId, object: Object) -> Option<Version> {
    let floor = sim.book.newest_acked();
    let place = sim.book.called(number, object, RegisterOp::Read);
    let Answer::Read(version, index) = ask(sim, to, Request::Read(object)).await else { return None };
    sim.book.read(place, version.value, index, floor);
    Some(version)
}

/// Sends a request to a server, which relays it if another server leads, as the HTTP API does.
async fn ask(sim: &Sim, to: HostId, request: Request) -> Answer {
    let target = sim.clone();
    let work: Work<Answer> = Arc::new(move || Box::pin(serve(target.clone(), to, request)));
    let answer = sim.net.call(OUTSIDE, to, CALL_TIMEOUT, work).await;
    answer.unwrap_or(Answer::Unknown)
}

async fn serve(sim: Sim, at: HostId, request: Request) -> Option<Answer> {
    let Some(handle) = sim.handle(at) else { return Some(Answer::Refused) };
    let is_read = matches!(request, Request::Read(_));
    let deadline = now() + SEARCH_TIMEOUT;
    match handle.cluster().place(false, is_read, deadline).await {
        Ok(LeaderPlace::Here) => Some(carry_out(&handle, request).await),
        Ok(LeaderPlace::There(_)) => {
            let leader = handle.cluster().members().into_iter().find(|member| member.leader);
            let Some(leader) = leader else { return Some(Answer::Refused) };
            let Some(to) = sim.hosts().into_iter().find(|host| uuid(*host) == leader.id) else {
                return Some(Answer::Refused);
            };
            let (target, done) = (sim.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
            let work: Work<Answer> = Arc::new(move || {
                let (sim, done) = (target.clone(), done.clone());
                Box::pin(async move {
                    // Requests are never duplicated.
                    if done.swap(true, std::sync::atomic::Ordering::Relaxed) {
                        return None;
                    }
                    let Some(handle) = sim.handle(to) else { return Some(Answer::Refused) };
                    match handle.cluster().place(true, is_read, deadline).await {
                        Ok(LeaderPlace::Here) => Some(carry_out(&handle, request).await),
                        Ok(LeaderPlace::There(_)) | Err(_) => Some(Answer::Refused),
                    }
                })
            });
            let answer = sim.net.call(at, to, LEADER_TIMEOUT, work).await;
            Some(answer.unwrap_or(Answer::Unknown))
        }
        Err(_) => Some(Answer::Refused),
    }
}

/// Executes a request as the leader.
async fn carry_out(handle: &Handle, request: Request) -> Answer {
    match request {
        Request::Read(object) => {
            let root = handle.store().snapshot();
            let version = match object {
                Object::Variable(number) => match root.variable(&variable(number)) {
                    Some(row) => match handle.variables().open(row) {
                        Ok(opened) => {
                            let value = opened.items.expose().get(rows::MARK).and_then(|v| v.parse().ok());
                            Version { value: value.unwrap_or(0), index: row.modify_index }
                        }
                        Err(_) => return Answer::Unknown,
                    },
                    None => Version::default(),
                },
                Object::Job(name) => match root.job(&name.key()) {
                    Some(job) => Version { value: rows::mark(job), index: job.job_modify_index },
                    None => Version::default(),
                },
            };
            Answer::Read(version, root.index())
        }
        Request::Write { object: Object::Variable(number), value, check } => {
            let items = Secrets::new(BTreeMap::from([(rows::MARK.to_owned(), value.to_string())]));
            match handle.variables().write(variable(number), &items, check, None).await {
                Ok(VariableWritten::Done { index, .. }) => Answer::Written(Version { value, index }),
                Ok(VariableWritten::Conflict { .. } | VariableWritten::Locked) => Answer::Conflict,
                Err(error) => failed(&error),
            }
        }
        Request::Write { object: Object::Job(name), value, check } => {
            let draft = rows::job(name, value).into();
            let submission = JobSubmission { draft, enforce_index: check, ..JobSubmission::default() };
            match handle.jobs().register(submission).await {
                Ok(done) => Answer::Written(Version { value, index: done.job_modify_index }),
                Err(ServerError::Refusal(Refusal::JobModifyIndex { .. })) => Answer::Conflict,
                Err(error) => failed(&error),
            }
        }
    }
}

fn failed(error: &ServerError) -> Answer {
    match error.kind() {
        Kind::NotLeader | Kind::Retry => Answer::Refused,
        Kind::Unavailable | Kind::Internal => Answer::Unknown,
        _ => panic!("a request that must succeed is refused: {error}"),
    }
}

fn variable(number: u8) -> VariableKey {
    VariableKey::new("default", format!("v{number}"))
}

/// Registers the job that writes to the volume again, so that another allocation claims the volume.
pub(super) async fn replace_writer(sim: Sim) {
    let Some(to) = sim.leader() else { return };
    let (object, value) = (Object::Job(JobName::Writer), sim.book.next_id());
    let place = sim.book.called(usize::MAX, object, RegisterOp::Write(value));
    match ask(&sim, to, Request::Write { object, value, check: None }).await {
        Answer::Written(version) => sim.book.written(place, object, value, version.index),
        Answer::Refused => sim.book.refused(place, object, value),
        Answer::Read(..) | Answer::Conflict | Answer::Unknown => {}
    }
}

/// Reads old states from a server that starts.
pub(super) async fn look_after_start(sim: Sim, host: HostId, mut lots: Lots) {
    for _ in 0..LOOKS {
        sleep(lots.between(Duration::from_millis(5), Duration::from_millis(100))).await;
        stale_read(&sim, host).await;
    }
}

async fn stale_read(sim: &Sim, to: HostId) {
    let target = sim.clone();
    let work: Work<()> = Arc::new(move || {
        let sim = target.clone();
        Box::pin(async move {
            let handle = sim.handle(to)?;
            handle.cluster().recovered().await.ok()?;
            sim.book.stale_read(to, &handle.store().snapshot());
            Some(())
        })
    });
    sim.net.call(OUTSIDE, to, CALL_TIMEOUT, work).await;
}
