//! One simulation from the start of the servers to the last check, with everything that goes wrong meanwhile.

use super::book::Book;
use super::lan::Table;
use super::world::{Ended, Server, Sim};
use super::{node, users};
use crate::net::Net;
use caravan_consensus::sim::{DiskFault, HostId, Lots, World, step_wall};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const CHAOS: Duration = Duration::from_secs(40);
const QUIET: Duration = Duration::from_secs(34);
/// The end of the quiet time, in which users make no requests.
const SILENCE: Duration = Duration::from_secs(14);
/// The time in which a cluster is founded and its jobs are placed, before anything goes wrong.
const CALM_START: Duration = Duration::from_secs(6);
/// After a fault of the disk ended, how long a server may still end because of it.
const AFTERMATH: Duration = Duration::from_secs(15);
const USERS: usize = 3;
const NODES: u32 = 3;
/// Nanoseconds of an hour.
const HOUR: i64 = 3_600_000_000_000;

/// Something that happens later.
enum Later {
    Boot(HostId),
    Thaw(HostId),
    DiskHeals(HostId),
    NetHeals,
}

struct Nemesis<'a> {
    world: &'a World,
    sim: Sim,
    lots: Lots,
    later: BTreeMap<(Duration, u64), Later>,
    count: u64,
    /// Whether the network is out of order.
    disturbed: bool,
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
    let (later, count, disturbed) = Default::default();
    let mut nemesis = Nemesis { world, sim: sim.clone(), lots, later, count, disturbed };
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
            self.step();
            self.sim.compare();
        }
        self.heal();
        self.run_for(QUIET - SILENCE);
        *self.sim.quiet.lock() = true;
        self.run_for(SILENCE / 2);
        self.world.spawn(HostId(0), users::last_reads(self.sim.clone()));
        self.run_for(SILENCE / 2);
        if !self.sim.book.is_violated() {
            self.sim.last_check(NODES);
        }
    }

    fn after(&mut self, time: Duration, what: Later) {
        self.count += 1;
        self.later.insert((self.world.elapsed() + time, self.count), what);
    }

    /// Runs the world for a time. Does what is due, and restarts processes that ended.
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
    }

    /// Ends a server's process. Without a loss of power, all that it wrote is kept.
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

    fn random_server(&mut self) -> HostId {
        let hosts = self.sim.hosts();
        let leader = self.sim.leader().filter(|_| self.lots.chance(50));
        leader.or_else(|| self.lots.pick(&hosts).copied()).unwrap_or(HostId(1))
    }

    fn is_up(&self, host: HostId) -> bool {
        self.sim.with(host, |server| server.up)
    }

    /// Makes one thing go wrong.
    fn step(&mut self) {
        if self.sim.book.is_violated() {
            return;
        }
        let host = self.random_server();
        let time = self.lots.between(Duration::from_millis(200), Duration::from_secs(7));
        let text = match self.lots.below(100) {
            0..14 => self.crash(host),
            14..17 => self.all_lose_power(),
            17..21 => self.others_end(host),
            21..29 => self.freeze(host, time),
            29..50 => self.cut(host, time),
            50..57 => self.disturb(time),
            57..65 => self.clock(host),
            65..73 => self.disk(host, time),
            73..81 => self.transfer(host),
            _ => self.disturb_node(time),
        };
        if let Some(text) = text {
            self.sim.book.note(text);
            self.sim.book.count("faults");
            self.sim.book.disturbed();
        }
    }

    fn crash(&mut self, host: HostId) -> Option<String> {
        if !self.is_up(host) {
            return None;
        }
        let pause = self.lots.between(Duration::from_millis(50), Duration::from_secs(4));
        let kind = self.lots.below(3);
        if kind == 0 {
            self.sim.with(host, |server| server.stop.cancel());
            return Some(format!("server {} is stopped in order", host.0));
        }
        self.kill(host, kind == 2);
        self.after(pause, Later::Boot(host));
        let how = if kind == 2 { "loses power" } else { "is killed" };
        Some(format!("server {} {how}", host.0))
    }

    fn all_lose_power(&mut self) -> Option<String> {
        for host in self.sim.hosts() {
            if self.is_up(host) {
                self.kill(host, true);
            }
            let pause = self.lots.between(Duration::from_millis(50), Duration::from_secs(2));
            self.after(pause, Later::Boot(host));
        }
        Some("all servers lose power".to_owned())
    }

    /// Leaves one server, mostly the leader, without the others, for longer than it waits for them.
    fn others_end(&mut self, host: HostId) -> Option<String> {
        for other in self.sim.hosts().into_iter().filter(|other| *other != host) {
            if self.is_up(other) {
                self.kill(other, false);
            }
            let pause = self.lots.between(Duration::from_secs(5), Duration::from_secs(9));
            self.after(pause, Later::Boot(other));
        }
        Some(format!("all servers but {} are killed", host.0))
    }

    fn freeze(&mut self, host: HostId, time: Duration) -> Option<String> {
        if !self.is_up(host) || self.sim.with(host, |server| std::mem::replace(&mut server.frozen, true)) {
            return None;
        }
        let suspended = self.lots.chance(50);
        self.world.freeze(host, suspended);
        self.after(time, Later::Thaw(host));
        Some(format!("server {} {} for {time:?}", host.0, if suspended { "is suspended" } else { "stops" }))
    }

    fn cut(&mut self, host: HostId, time: Duration) -> Option<String> {
        if std::mem::replace(&mut self.disturbed, true) {
            return None;
        }
        let kind = self.lots.below(5);
        // Long enough for the leader of the others to miss the nodes of the minority.
        let time = if kind < 2 { time * 3 } else { time };
        self.after(time, Later::NetHeals);
        let servers = self.sim.hosts();
        let others: Vec<HostId> = servers.iter().copied().filter(|other| *other != host).collect();
        let nodes: Vec<HostId> = (1..=NODES).map(node::host).collect();
        let net = self.sim.net.clone();
        let both = |a: HostId, b: HostId| {
            net.cut(a, b);
            net.cut(b, a);
        };
        match kind {
            0 | 1 => {
                // Some nodes stay on the side of the minority.
                let stay: Vec<HostId> = nodes.iter().copied().filter(|_| self.lots.chance(50)).collect();
                for other in others.iter().chain(nodes.iter().filter(|node| !stay.contains(node))) {
                    both(host, *other);
                    stay.iter().for_each(|node| both(*node, *other));
                }
                Some(format!("server {} with nodes {stay:?} is cut off for {time:?}", host.0))
            }
            2 => {
                others.iter().for_each(|other| net.cut(host, *other));
                Some(format!("server {} cannot send for {time:?}", host.0))
            }
            3 => {
                others.iter().for_each(|other| net.cut(*other, host));
                Some(format!("server {} cannot receive for {time:?}", host.0))
            }
            _ => {
                let other = self.lots.pick(&others).copied()?;
                both(host, other);
                Some(format!("servers {} and {} are cut apart for {time:?}", host.0, other.0))
            }
        }
    }

    fn disturb(&mut self, time: Duration) -> Option<String> {
        if std::mem::replace(&mut self.disturbed, true) {
            return None;
        }
        self.after(time, Later::NetHeals);
        if self.lots.chance(50) {
            let (loss, duplicates) = (self.lots.below(30), self.lots.below(30));
            self.sim.net.disturb(loss, duplicates);
            return Some(format!("{loss} % of messages are lost, {duplicates} % arrive twice, for {time:?}"));
        }
        let slow = self.random_server();
        let delay = self.lots.between(Duration::from_millis(20), Duration::from_millis(600));
        let nodes = (1..=NODES).map(node::host);
        for other in self.sim.hosts().into_iter().chain(nodes) {
            self.sim.net.slow(slow, other, delay);
            self.sim.net.slow(other, slow, delay);
        }
        Some(format!("the links of server {} take {delay:?} more, for {time:?}", slow.0))
    }

    fn clock(&mut self, host: HostId) -> Option<String> {
        let step = self.lots.below(2 * HOUR as u64) as i64 - HOUR;
        step_wall(host, step);
        Some(format!("the clock of server {} steps by {} s", host.0, step / 1_000_000_000))
    }

    fn disk(&mut self, host: HostId, time: Duration) -> Option<String> {
        let fault = match self.lots.below(5) {
            0 => DiskFault::Full,
            1 => DiskFault::Hung,
            2 => DiskFault::Broken,
            3 => DiskFault::Slow(Duration::from_secs(5)),
            _ => DiskFault::Slow(self.lots.between(Duration::from_millis(50), Duration::from_secs(1))),
        };
        let until = self.world.elapsed() + time;
        self.sim.with(host, |server| {
            server.faulty = Some(until);
            server.disk.set_fault(Some(fault));
        });
        self.after(time, Later::DiskHeals(host));
        Some(format!("the disk of server {} is {fault:?} for {time:?}", host.0))
    }

    fn transfer(&mut self, host: HostId) -> Option<String> {
        let leader = self.sim.leader()?;
        let handle = self.sim.handle(leader)?;
        let to = super::world::uuid(host).to_string();
        self.world.spawn(leader, async move {
            // The transfer may fail.
            let _ = handle.cluster().transfer(Some(to), None).await;
        });
        Some(format!("server {} passes leadership on to server {}", leader.0, host.0))
    }

    fn disturb_node(&mut self, time: Duration) -> Option<String> {
        let host = node::host(1 + self.lots.below(u64::from(NODES)) as u32);
        let time = time * 3;
        if self.lots.chance(50) {
            self.world.freeze(host, self.lots.chance(50));
            self.after(time, Later::Thaw(host));
            return Some(format!("node {} stops for {time:?}", host.0 - 100));
        }
        if std::mem::replace(&mut self.disturbed, true) {
            return None;
        }
        self.after(time, Later::NetHeals);
        for server in self.sim.hosts() {
            self.sim.net.cut(host, server);
            self.sim.net.cut(server, host);
        }
        Some(format!("node {} is cut off for {time:?}", host.0 - 100))
    }

    /// Ends everything that goes wrong.
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
