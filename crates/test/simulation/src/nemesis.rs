//! One simulation from the start of the servers to the last check, with all faults meanwhile.

mod faults;

use crate::Fault;
use crate::book::Book;
use crate::command::NodeId;
use crate::net::Net;
use crate::server::{Ended, Server, Sim};
use crate::{admin, client, node};
use caravan_consensus::sim::{HostId, Lots, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const CHAOS: Duration = Duration::from_secs(40);
const QUIET: Duration = Duration::from_secs(30);
/// The time after a fault of a disk in which a server may still end because of the fault.
const AFTERMATH: Duration = Duration::from_secs(15);
/// A number of polls of tasks that far exceeds the need of a simulation.
const MAX_POLLS: u64 = 10_000_000;
const CLIENTS: usize = 4;
const NODES: u32 = 3;
/// Nanoseconds of an hour.
const HOUR: i64 = 3_600_000_000_000;

/// A planned event.
enum Later {
    Boot(HostId),
    Thaw(HostId),
    DiskHeals(HostId),
    NetHeals,
    /// The clock of the leader steps as soon as this node is declared down.
    Silent(NodeId),
}

struct Nemesis<'a> {
    world: &'a World,
    sim: Sim,
    lots: Lots,
    later: BTreeMap<(Duration, u64), Later>,
    count: u64,
    /// The time until which the world runs before the next fault.
    until: Duration,
    /// The server of the last event: the next fault often concerns the same server.
    focus: Option<HostId>,
    /// Whether the network has a fault.
    disturbed: bool,
    /// The server whose links have a fault.
    cut_off: Option<HostId>,
    /// The time until which no other fault joins the current one.
    alone_until: Duration,
    /// The server that lost its disk, until it votes again.
    lost: Option<HostId>,
    /// Whether faults occur.
    chaos: bool,
    /// The newest term with a leader.
    term: u64,
}

/// Runs a simulation.
pub(crate) fn run(world: &World, book: Book, fault: Option<Fault>) {
    let mut lots = world.lots();
    let expect = if lots.chance(25) { 5 } else { 3 };
    let servers = if expect == 3 { 3 + lots.below(2) as u32 } else { 5 };
    let sim = Sim {
        net: Net::new(lots.fork()),
        handles: Arc::default(),
        servers: Arc::default(),
        ended: Arc::default(),
        quiet: Arc::default(),
        removal: Arc::default(),
        book,
        fault,
        expect,
    };
    // In half of the worlds, all servers have the newer program from the beginning.
    let programs = lots.below(4);
    for host in (1..=servers).map(HostId) {
        let wall = if lots.chance(30) { lots.below(2 * HOUR as u64) as i64 - HOUR } else { 0 };
        let level = match programs {
            0 => 1,
            1 => 1 + lots.below(2) as u32,
            _ => 2,
        };
        sim.servers.lock().insert(host, Server::new(wall, level));
    }
    let mut nemesis = Nemesis {
        world,
        sim: sim.clone(),
        lots,
        later: BTreeMap::new(),
        count: 0,
        until: Duration::ZERO,
        focus: None,
        disturbed: false,
        cut_off: None,
        alone_until: Duration::ZERO,
        lost: None,
        chaos: true,
        term: 0,
    };
    for host in (1..=servers).map(HostId) {
        let after = nemesis.lots.between(Duration::ZERO, Duration::from_secs(2));
        nemesis.after(after, Later::Boot(host));
    }
    nemesis.whole();
    // The servers and the simulation refer to each other.
    sim.handles.lock().clear();
    sim.servers.lock().clear();
}

impl Nemesis<'_> {
    fn whole(mut self) {
        for number in 1..=NODES {
            let drift = self.drift();
            self.world.boot(node::host(number), self.lots.below(1 << 40), drift);
            node::spawn(&self.sim, number, self.lots.fork());
        }
        for number in 0..CLIENTS {
            self.world.spawn(HostId(0), client::run(self.sim.clone(), number, self.lots.fork()));
        }
        self.world.spawn(HostId(0), client::reader(self.sim.clone(), self.lots.fork()));
        self.world.spawn(HostId(0), admin::run(self.sim.clone(), self.lots.fork()));
        while self.world.elapsed() < CHAOS && !self.sim.book.is_violated() {
            let pause = self.lots.between(Duration::from_millis(100), Duration::from_millis(2500));
            self.run_for(pause);
            if self.world.elapsed() >= self.alone_until {
                self.step();
            }
        }
        self.chaos = false;
        self.heal();
        self.run_for(QUIET - Duration::from_secs(6));
        *self.sim.quiet.lock() = true;
        self.run_for(Duration::from_secs(6));
        if !self.sim.book.is_violated() {
            self.last_check();
        }
    }

    fn after(&mut self, time: Duration, what: Later) {
        self.count += 1;
        self.later.insert((self.world.elapsed() + time, self.count), what);
    }

    /// Runs the world for a time. Executes due events, and restarts processes that ended.
    fn run_for(&mut self, time: Duration) {
        self.until = self.world.elapsed() + time;
        while !self.sim.book.is_violated() {
            let due = self.later.first_key_value().map(|((at, _), _)| *at);
            let stop = due.map_or(self.until, |at| at.min(self.until));
            let (sim, term) = (&self.sim, self.term);
            self.world.run(stop, |world| {
                inspect(sim);
                if world.polls() > MAX_POLLS {
                    sim.book.violate("the servers do not come to rest");
                }
                sim.ended.lock().is_empty() && !sim.book.is_violated() && sim.book.newest_term() == term
            });
            if let Some(ended) = { self.sim.ended.lock().pop_front() } {
                self.ended(ended);
                continue;
            }
            if self.sim.book.newest_term() != term {
                self.term = self.sim.book.newest_term();
                self.follow(self.sim.leader(), 20);
                continue;
            }
            if self.world.elapsed() < stop {
                continue;
            }
            if due.is_some_and(|at| at <= self.world.elapsed()) {
                if let Some((_, what)) = self.later.pop_first() {
                    self.happen(what);
                }
            } else if self.world.elapsed() >= self.until {
                return;
            }
        }
    }

    /// Lets the next fault follow soon after an event, with a chance in percent. The fault often concerns
    /// the same server.
    fn follow(&mut self, host: Option<HostId>, percent: u64) {
        if self.chaos && self.lots.chance(percent) {
            let pause = self.lots.between(Duration::from_millis(1), Duration::from_millis(400));
            self.until = self.until.min(self.world.elapsed() + pause);
            self.focus = host;
        }
    }

    fn happen(&mut self, what: Later) {
        match what {
            Later::Boot(host) => {
                self.boot(host);
                self.follow(Some(host), 20);
            }
            Later::Thaw(host) => {
                self.sim.book.note(format!("host {} continues", host.0));
                self.world.thaw(host);
                if host.0 < 100 {
                    self.sim.with(host, |server| server.frozen = false);
                    self.follow(Some(host), 30);
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
                let host = self.cut_off.take();
                self.follow(host, 40);
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
        if self.sim.with(host, |server| server.up) {
            return;
        }
        let (offset, drift) = (self.lots.below(1 << 40), self.drift());
        self.world.boot(host, offset, drift);
        let process = self.sim.start(host);
        self.world.spawn(host, process);
    }

    /// Ends a server's process. Without a loss of power, all its writes are kept.
    fn kill(&mut self, host: HostId, power: bool) {
        self.sim.handles.lock().remove(&host);
        let disk = self.sim.with(host, |server| {
            server.up = false;
            server.disk.clone()
        });
        if power {
            disk.lose_power(&mut self.lots);
        } else {
            disk.end_process();
        }
        self.world.kill(host);
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
        let old = reason.contains("newer version");
        if old {
            // The operator installs the newer program.
            self.sim.with(host, |server| server.level = 2);
        }
        let excused = faulty.is_some_and(|at| self.world.elapsed().saturating_sub(at) < AFTERMATH);
        if !(old || stopped || excused) {
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
                // The operator upgrades a server that was downgraded.
                server.level = 2;
                std::mem::take(&mut server.frozen)
            });
            if frozen {
                self.world.thaw(host);
            }
        }
        self.finish_removal();
    }

    /// Checks that there is a leader, that all servers are equal, and the whole history.
    fn last_check(&mut self) {
        let book = self.sim.book.clone();
        let Some(leader) = self.sim.leader() else { return book.violate("no leader after the quiet time") };
        let state = self.sim.with(leader, |server| server.replica.lock().clone());
        for host in self.sim.hosts() {
            let Some(handle) = self.sim.handle(host) else {
                book.violate(format!("server {} does not run after the quiet time", host.0));
                continue;
            };
            let member = handle.members().members.iter().any(|m| Some(m.number) == handle.identity().number);
            let removed = *self.sim.removal.lock() == Some(host);
            let other = self.sim.with(host, |server| server.replica.lock().clone());
            if !removed && (!member || (other.index, other.chain) != (state.index, state.chain)) {
                book.violate(format!(
                    "server {} is at index {}, the leader {} at {}, after the quiet time",
                    host.0, other.index, leader.0, state.index
                ));
            }
        }
        for node in 1..=NODES {
            if !state.is_up(node) {
                book.violate(format!("node {node} is not up after the quiet time"));
            }
        }
        book.note(format!("end: index {}, hash {:x}", state.index, state.chain));
        book.finish(&state);
    }
}

/// Checks the rules that hold at each moment.
fn inspect(sim: &Sim) {
    let handles = sim.handles.lock();
    for (host, handle) in handles.iter() {
        let metrics = handle.metrics();
        if metrics.is_leader {
            sim.book.leads(*host, metrics.term);
        }
        if metrics.committed_index > 0
            && let Some(cluster) = handle.identity().cluster
        {
            sim.book.has_committed(cluster.0.as_u128());
        }
        if let Some((index, chain)) = sim.shown(*host) {
            sim.book.shows(*host, index, chain);
        }
    }
}
