//! One simulation from the start of the servers to the last check, with all faults meanwhile.

mod faults;

use super::book::Book;
use super::lan::Table;
use super::world::{Ended, Server, Sim};
use super::{node, users};
use crate::net::Net;
use caravan_consensus::sim::{HostId, Lots, World, step_wall};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const CHAOS: Duration = Duration::from_secs(40);
const QUIET: Duration = Duration::from_secs(34);
/// The end of the quiet time, in which users make no requests.
const SILENCE: Duration = Duration::from_secs(14);
/// The time in which a cluster is founded and its jobs are placed, before the first fault.
const CALM_START: Duration = Duration::from_secs(6);
/// The time after a fault of a disk in which a server may still end because of the fault.
const AFTERMATH: Duration = Duration::from_secs(15);
/// The number of attempts to find all servers at the same index.
const LEVEL_TRIES: usize = 10;
const LEVEL_PAUSE: Duration = Duration::from_millis(100);
const USERS: usize = 3;
pub(super) const NODES: u32 = 3;
/// Nanoseconds of an hour.
const HOUR: i64 = 3_600_000_000_000;

/// A planned event.
enum Later {
    Boot(HostId),
    Thaw(HostId),
    DiskHeals(HostId),
    NetHeals,
    /// Leadership is passed on as soon as this node is declared down.
    Silent(u32),
}

struct Nemesis<'a> {
    world: &'a World,
    sim: Sim,
    lots: Lots,
    later: BTreeMap<(Duration, u64), Later>,
    count: u64,
    /// Whether the network has a fault.
    disturbed: bool,
    /// The time until which no other fault joins the current one.
    alone_until: Duration,
}

/// Runs a simulation.
pub(super) fn run(world: &World, book: Book) {
    let dir = match tempfile::tempdir() {
        Ok(dir) => dir,
        Err(error) => return book.violate(format!("no directory for keys: {error}")),
    };
    let mut lots = world.lots();
    let expect = if lots.chance(20) { 5 } else { 3 };
    let hosts = || (1..=expect).map(HostId);
    let sim = Sim {
        net: Net::new(lots.fork()),
        table: Arc::new(Table::new(hosts(), expect as usize)),
        servers: Arc::default(),
        ended: Arc::default(),
        quiet: Arc::default(),
        book,
        expect: expect as usize,
    };
    for host in hosts() {
        if lots.chance(30) {
            step_wall(host, lots.below(2 * HOUR as u64) as i64 - HOUR);
        }
        sim.servers.lock().insert(host, Server::new(dir.path().join(format!("s{}", host.0))));
    }
    let (later, count, disturbed, alone_until) = Default::default();
    let mut nemesis = Nemesis { world, sim: sim.clone(), lots, later, count, disturbed, alone_until };
    for host in hosts() {
        let after = nemesis.lots.between(Duration::ZERO, Duration::from_secs(1));
        nemesis.after(after, Later::Boot(host));
    }
    nemesis.whole();
    // The servers and the simulation refer to each other.
    sim.servers.lock().clear();
}

impl Nemesis<'_> {
    fn whole(mut self) {
        for number in 1..=NODES {
            let drift = self.drift();
            self.world.boot(node::host(number), self.lots.below(1 << 40), drift);
            node::spawn(&self.sim, number, self.lots.fork());
        }
        for number in 0..USERS {
            self.world.spawn(HostId(0), users::run(self.sim.clone(), number, self.lots.fork()));
        }
        self.world.spawn(HostId(0), users::prepare(self.sim.clone(), self.lots.fork()));
        self.run_for(CALM_START);
        while self.world.elapsed() < CHAOS && !self.sim.book.is_violated() {
            let pause = self.lots.between(Duration::from_millis(200), Duration::from_millis(3500));
            self.run_for(pause);
            if self.world.elapsed() >= self.alone_until {
                self.step();
            }
            self.sim.compare();
        }
        self.heal();
        self.run_for(QUIET - SILENCE);
        *self.sim.quiet.lock() = true;
        self.run_for(SILENCE / 2);
        self.world.spawn(HostId(0), users::last_reads(self.sim.clone()));
        self.run_for(SILENCE / 2);
        // A timer of a leader may have written just now.
        for _ in 0..LEVEL_TRIES {
            if self.sim.is_level() {
                break;
            }
            self.run_for(LEVEL_PAUSE);
        }
        if !self.sim.book.is_violated() {
            self.sim.last_check(NODES);
        }
    }

    fn after(&mut self, time: Duration, what: Later) {
        self.count += 1;
        self.later.insert((self.world.elapsed() + time, self.count), what);
    }

    /// Runs the world for a time. Executes due events, and restarts processes that ended.
    fn run_for(&mut self, time: Duration) {
        let until = self.world.elapsed() + time;
        while !self.sim.book.is_violated() {
            let due = self.later.first_key_value().map(|((at, _), _)| *at);
            let stop = due.map_or(until, |at| at.min(until));
            let sim = &self.sim;
            self.world.run(stop, |_| {
                sim.inspect(NODES);
                sim.ended.lock().is_empty() && !sim.book.is_violated()
            });
            if let Some(ended) = { self.sim.ended.lock().pop_front() } {
                self.ended(ended);
                continue;
            }
            if self.world.elapsed() < stop {
                continue;
            }
            if due.is_some_and(|at| at <= self.world.elapsed()) {
                if let Some((_, what)) = self.later.pop_first() {
                    self.happen(what);
                }
            } else if self.world.elapsed() >= until {
                return;
            }
        }
    }

    fn happen(&mut self, what: Later) {
        match what {
            Later::Boot(host) => self.boot(host),
            Later::Thaw(host) => {
                self.sim.book.note(format!("host {} continues", host.0));
                self.world.thaw(host);
                if host.0 < 100 {
                    self.sim.with(host, |server| server.frozen = false);
                }
            }
            Later::DiskHeals(host) => {
                self.sim.book.note(format!("the disk of server {} is in order again", host.0));
                let now = self.world.elapsed();
                self.sim.with(host, |server| {
                    server.faulty = Some(now);
                    server.disk.set_fault(None);
                });
            }
            Later::NetHeals => {
                self.sim.book.note("the network is in order again");
                self.disturbed = false;
                self.sim.net.heal();
            }
            Later::Silent(node) => return self.await_silence(node),
        }
        self.sim.book.disturbed();
        (1..=NODES).for_each(|node| self.sim.book.node_disturbed(node));
    }

    fn drift(&mut self) -> i64 {
        self.lots.below(20_001) as i64 - 10_000
    }

    fn boot(&mut self, host: HostId) {
        if self.is_up(host) {
            return;
        }
        let (offset, drift) = (self.lots.below(1 << 40), self.drift());
        self.world.boot(host, offset, drift);
        let process = self.sim.start(host);
        self.world.spawn(host, process);
        self.world.spawn(HostId(0), users::look_after_start(self.sim.clone(), host, self.lots.fork()));
    }

    /// Ends a server's process. Without a loss of power, all its writes are kept.
    fn kill(&mut self, host: HostId, power: bool) {
        let (disk, running) = self.sim.with(host, |server| {
            server.up = false;
            (server.disk.clone(), server.running.take())
        });
        if power {
            disk.lose_power(&mut self.lots);
        } else {
            disk.end_process();
        }
        self.world.kill(host);
        drop(running);
    }

    fn ended(&mut self, ended: Ended) {
        let Ended { host, life, reason } = ended;
        let (same, stopped, faulty) = self.sim.with(host, |server| {
            let same = server.up && server.life == life;
            (same, server.stop.is_cancelled(), server.faulty)
        });
        if !same {
            return;
        }
        self.sim.book.note(format!("server {} {reason}", host.0));
        let excused = faulty.is_some_and(|at| self.world.elapsed().saturating_sub(at) < AFTERMATH);
        if !(stopped || excused) {
            self.sim.book.violate(format!("server {} {reason}, without a fault", host.0));
        }
        self.kill(host, false);
        let pause = self.lots.between(Duration::from_millis(300), Duration::from_secs(2));
        self.after(pause, Later::Boot(host));
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.sim.book.note("everything is in order from now on");
        let later = std::mem::take(&mut self.later);
        for what in later.into_values() {
            self.happen(what);
        }
        self.sim.net.heal();
        let now = self.world.elapsed();
        for host in self.sim.hosts() {
            let frozen = self.sim.with(host, |server| {
                server.disk.set_fault(None);
                if server.faulty.is_some_and(|at| at > now) {
                    server.faulty = Some(now);
                }
                std::mem::take(&mut server.frozen)
            });
            if frozen {
                self.world.thaw(host);
            }
        }
    }
}
