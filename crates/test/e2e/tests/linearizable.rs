//! Histories of clients of several servers, while the leader is killed, suspended and replaced.

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::linear::specs::{Lock, LockOp, Register, RegisterOp, RegisterRet};
use caravan_testkit::linear::{Operation, Spec, check};
use caravan_testkit::{Reply, Rng, Servers, request};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// The number of clients. Each uses one object at a time, through a server that it draws.
const CLIENTS: usize = 6;
/// The number of objects of each kind.
const OBJECTS: u64 = 3;
/// The changes of the leader, and the pause before each.
const CHANGES: usize = 4;
const PAUSE: Duration = Duration::from_secs(2);

type Entry<S> = (u64, Operation<<S as Spec>::Op, <S as Spec>::Ret>);

/// The state that the clients share.
struct World<'a> {
    addresses: &'a [String],
    began: Instant,
    is_over: AtomicBool,
    next: AtomicU64,
}

impl World<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns a value that no other operation has.
    fn unique(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, rng: &mut Rng, method: &str, path: &str, body: Option<&Value>) -> Option<Reply> {
        let address: &String = rng.pick(self.addresses);
        request(address, method, path, body).ok()
    }

    /// Adds an operation that is called now. `act` returns its result, or `None` if the result is not known.
    fn record<S: Spec>(
        &self,
        into: &mut Vec<Entry<S>>,
        (client, object): (usize, u64),
        op: S::Op,
        act: impl FnOnce() -> Option<S::Ret>,
    ) -> Option<S::Ret> {
        let called = self.now();
        let ret = act();
        let answered = ret.clone().map(|ret| (self.now(), ret));
        into.push((object, Operation { client, called, answered, op }));
        ret
    }
}

/// Reads and writes variables, by comparison most of the time.
fn variables(world: &World<'_>, client: usize, into: &mut Vec<Entry<Register>>) {
    let mut rng = Rng::new(client as u64 + 1);
    while !world.is_over.load(Ordering::Relaxed) {
        let object = rng.below(OBJECTS);
        let path = format!("/v1/var/register/{object}");
        let mut read = None;
        world.record::<Register>(into, (client, object), RegisterOp::Read, || {
            let reply = world.send(&mut rng, "GET", &path, None)?;
            let (value, index) = match reply.status {
                200 => {
                    let row: Value = reply.json().ok()?;
                    (row["Items"]["v"].as_str()?.parse().ok()?, row["ModifyIndex"].as_u64()?)
                }
                404 => (0, 0),
                _ => return None,
            };
            read = Some((value, index));
            Some(RegisterRet::Value(value))
        });
        // A read without an answer has no effect, so it need not be explained.
        into.pop_if(|(_, operation)| operation.answered.is_none());
        let Some((from, index)) = read else { continue };
        let to = world.unique();
        let body = json!({ "Items": { "v": to.to_string() } });
        let (op, path) = match rng.percent(80) {
            true => (RegisterOp::Cas { from, to }, format!("{path}?cas={index}")),
            false => (RegisterOp::Write(to), path),
        };
        world.record::<Register>(into, (client, object), op, || {
            match world.send(&mut rng, "PUT", &path, Some(&body))?.status {
                200 => Some(RegisterRet::Done),
                409 => Some(RegisterRet::Conflict),
                _ => None,
            }
        });
    }
}

/// Registers jobs with an enforced index.
fn jobs(world: &World<'_>, client: usize, into: &mut Vec<Entry<Register>>) {
    let mut rng = Rng::new(client as u64 + 101);
    while !world.is_over.load(Ordering::Relaxed) {
        let object = rng.below(OBJECTS);
        let id = format!("register-{object}");
        let mut read = None;
        world.record::<Register>(into, (client, object), RegisterOp::Read, || {
            let reply = world.send(&mut rng, "GET", &format!("/v1/job/{id}"), None)?;
            let (value, index) = match reply.status {
                200 => {
                    let row: Value = reply.json().ok()?;
                    (row["Meta"]["v"].as_str()?.parse().ok()?, row["JobModifyIndex"].as_u64()?)
                }
                404 => (0, 0),
                _ => return None,
            };
            read = Some((value, index));
            Some(RegisterRet::Value(value))
        });
        into.pop_if(|(_, operation)| operation.answered.is_none());
        let Some((from, index)) = read else { continue };
        let to = world.unique();
        let body = json!({ "EnforceIndex": true, "JobModifyIndex": index, "Job": {
            "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"], "Meta": { "v": to.to_string() },
            "TaskGroups": [{ "Name": "g", "Count": 0, "Tasks": [{ "Name": "t", "Driver": "raw_exec",
                "Config": { "command": "/bin/true" } }] }],
        }});
        world.record::<Register>(into, (client, object), RegisterOp::Cas { from, to }, || {
            let reply = world.send(&mut rng, "PUT", "/v1/jobs", Some(&body))?;
            match reply.status {
                200 => Some(RegisterRet::Done),
                _ if reply.text().contains("Enforcing job modify index") => Some(RegisterRet::Conflict),
                _ => None,
            }
        });
    }
}

/// Acquires and releases locks whose leases outlast the history.
fn locks(world: &World<'_>, client: usize, into: &mut Vec<Entry<Lock>>) {
    let mut rng = Rng::new(client as u64 + 201);
    while !world.is_over.load(Ordering::Relaxed) {
        let object = rng.below(OBJECTS);
        let path = format!("/v1/var/lock/{object}");
        let (number, mut held) = (world.unique(), None);
        let body = json!({ "Items": { "v": "x" }, "Lock": { "TTL": "1h", "LockDelay": "10s" } });
        world.record::<Lock>(into, (client, object), LockOp::Acquire(number), || {
            let reply = world.send(&mut rng, "PUT", &format!("{path}?lock-acquire"), Some(&body))?;
            match reply.status {
                200 => {
                    held = Some(reply.json().ok()?["Lock"]["ID"].as_str()?.to_owned());
                    Some(true)
                }
                409 => Some(false),
                _ => None,
            }
        });
        let Some(id) = held else { continue };
        let body = json!({ "Lock": { "ID": id } });
        world.record::<Lock>(into, (client, object), LockOp::Release(number), || {
            match world.send(&mut rng, "PUT", &format!("{path}?lock-release"), Some(&body))?.status {
                200 => Some(true),
                409 => Some(false),
                _ => None,
            }
        });
    }
}

/// Changes the leader in different ways.
fn disturb(servers: &mut Servers) -> Result<()> {
    for change in 0..CHANGES {
        sleep(PAUSE);
        let leader = servers.wait_leader()?;
        match change % 3 {
            0 => {
                servers.get_mut(leader).kill_9()?;
                servers.wait_leader()?;
                servers.get_mut(leader).spawn()?;
            }
            1 => {
                // The former leader believes for a while after the suspension that it leads.
                servers.get(leader).signal(Signal::SIGSTOP)?;
                sleep(PAUSE);
                servers.get(leader).signal(Signal::SIGCONT)?;
            }
            _ => servers.get(leader).transfer_leadership()?,
        }
    }
    sleep(PAUSE);
    Ok(())
}

/// Checks the history of each object. At least some operations must have been answered.
fn verify<S: Spec>(what: &str, entries: Vec<Entry<S>>) -> Result<()> {
    let answered = entries.iter().filter(|(_, operation)| operation.answered.is_some()).count();
    println!("{what}: {} operations, {answered} with an answer", entries.len());
    ensure!(answered > 100, "{what}: only {answered} operations were answered");
    for object in 0..OBJECTS {
        let mut history: Vec<_> =
            entries.iter().filter(|(at, _)| *at == object).map(|(_, operation)| operation.clone()).collect();
        history.sort_by_key(|operation| operation.called);
        if let Err(wrong) = check::<S>(&history) {
            bail!(
                "{what} {object}: after {} operations no order explains {:#?}",
                wrong.longest.len(),
                wrong.stuck
            );
        }
    }
    Ok(())
}

#[test]
fn clients_of_all_servers_see_one_history() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let addresses: Vec<String> = servers.running().into_iter().map(|n| servers.get(n).address()).collect();
    let world = World {
        addresses: &addresses,
        began: Instant::now(),
        is_over: AtomicBool::new(false),
        next: AtomicU64::new(1),
    };
    let (mut register, mut job, mut lock) = (Vec::new(), Vec::new(), Vec::new());
    let disturbed = scope(|scope| {
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let world = &world;
            clients.push(scope.spawn(move || {
                let (mut register, mut job, mut lock) = (Vec::new(), Vec::new(), Vec::new());
                match client % 3 {
                    0 => variables(world, client, &mut register),
                    1 => jobs(world, client, &mut job),
                    _ => locks(world, client, &mut lock),
                }
                (register, job, lock)
            }));
        }
        let disturbed = disturb(&mut servers);
        world.is_over.store(true, Ordering::Relaxed);
        for client in clients {
            let (r, j, l) = client.join().ok().context("a client panicked")?;
            register.extend(r);
            job.extend(j);
            lock.extend(l);
        }
        disturbed
    });
    disturbed?;
    verify::<Register>("variable", register)?;
    verify::<Register>("job", job)?;
    verify::<Lock>("lock", lock)
}
