//! One simulation from the start of the servers to the last check, with everything that goes wrong meanwhile.

use crate::Fault;
use crate::book::Book;
use crate::net::Net;
use crate::server::{Ended, Server, Sim};
use crate::{admin, client, node};
use caravan_consensus::sim::{DiskFault, HostId, Lots, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const CHAOS: Duration = Duration::from_secs(40);
const QUIET: Duration = Duration::from_secs(30);
/// After a fault of the disk ended, how long a server may still end because of it.
const AFTERMATH: Duration = Duration::from_secs(15);
const CLIENTS: usize = 4;
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
    for host in (1..=servers).map(HostId) {
        let wall = if lots.chance(30) { lots.below(2 * HOUR as u64) as i64 - HOUR } else { 0 };
        sim.servers.lock().insert(host, Server::new(wall));
    }
    let (later, count, disturbed) = Default::default();
    let mut nemesis = Nemesis { world, sim, lots, later, count, disturbed };
    for host in (1..=servers).map(HostId) {
        let after = nemesis.lots.between(Duration::ZERO, Duration::from_secs(2));
        nemesis.after(after, Later::Boot(host));
    }
    nemesis.whole();
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
        while self.world.elapsed() < CHAOS && self.sim.book.violation().is_none() {
            let pause = self.lots.between(Duration::from_millis(100), Duration::from_millis(2500));
            self.run_for(pause);
            self.step();
        }
        self.heal();
        self.run_for(QUIET - Duration::from_secs(6));
        *self.sim.quiet.lock() = true;
        self.run_for(Duration::from_secs(6));
        if self.sim.book.violation().is_none() {
            self.last_check();
        }
    }

    fn after(&mut self, time: Duration, what: Later) {
        self.count += 1;
        self.later.insert((self.world.elapsed() + time, self.count), what);
    }

    /// Runs the world for a time. Does what is due, and restarts processes that ended.
    fn run_for(&mut self, time: Duration) {
        let until = self.world.elapsed() + time;
        while self.sim.book.violation().is_none() {
            let due = self.later.first_key_value().map(|((at, _), _)| *at);
            let stop = due.map_or(until, |at| at.min(until));
            let sim = &self.sim;
            self.world.run(stop, |_| {
                inspect(sim);
                sim.ended.lock().is_empty() && sim.book.violation().is_none()
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
        if self.sim.with(host, |server| server.up) {
            return;
        }
        let (offset, drift) = (self.lots.below(1 << 40), self.drift());
        self.world.boot(host, offset, drift);
        let process = self.sim.start(host);
        self.world.spawn(host, process);
    }

    /// Ends a server's process. Without a loss of power, all that it wrote is kept.
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

    fn random_server(&mut self) -> HostId {
        let hosts = self.sim.hosts();
        let leader = self.sim.leader().filter(|_| self.lots.chance(40));
        leader.or_else(|| self.lots.pick(&hosts).copied()).unwrap_or(HostId(1))
    }

    fn is_up(&self, host: HostId) -> bool {
        self.sim.with(host, |server| server.up)
    }

    /// Makes one thing go wrong.
    fn step(&mut self) {
        if self.sim.book.violation().is_some() {
            return;
        }
        self.finish_removal();
        let host = self.random_server();
        let time = self.lots.between(Duration::from_millis(200), Duration::from_secs(7));
        let text = match self.lots.below(100) {
            0..12 => self.crash(host),
            12..18 => self.all_lose_power(),
            18..28 => self.freeze(host, time),
            28..52 => self.cut(host, time),
            52..59 => self.disturb(time),
            59..66 => self.clock(host),
            66..77 => self.disk(host, time),
            77..82 => self.transfer(host),
            82..86 => self.remove(host),
            86..90 => self.wipe(host),
            90..93 => self.change_program(host),
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
        // Mostly right after an acknowledgement.
        let (before, sim) = (self.sim.book.newest_acked(), self.sim.clone());
        if self.lots.chance(70) {
            let until = self.world.elapsed() + Duration::from_secs(1);
            let due = self.later.first_key_value().map_or(until, |((at, _), _)| until.min(*at));
            self.world.run(due, |_| {
                inspect(&sim);
                sim.book.newest_acked() == before && sim.ended.lock().is_empty()
            });
        }
        for host in self.sim.hosts() {
            if self.is_up(host) {
                self.kill(host, true);
            }
            let pause = self.lots.between(Duration::from_millis(50), Duration::from_secs(2));
            self.after(pause, Later::Boot(host));
        }
        Some("all servers lose power".to_owned())
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
        if self.disturbed {
            return None;
        }
        self.disturbed = true;
        let kind = self.lots.below(5);
        // Long enough for the leader of the others to miss the nodes of the minority.
        let time = if kind == 0 { time * 3 } else { time };
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
            0 => {
                // Some nodes stay on the side of the minority.
                let mut minority = vec![host];
                if servers.len() == 5 {
                    minority.extend(self.lots.pick(&others).copied());
                }
                let side = |host: &HostId| minority.contains(host);
                let stay: Vec<HostId> = nodes.iter().copied().filter(|_| self.lots.chance(50)).collect();
                for a in servers.iter().filter(|a| side(a)).chain(&stay) {
                    for b in
                        servers.iter().filter(|b| !side(b)).chain(nodes.iter().filter(|n| !stay.contains(n)))
                    {
                        both(*a, *b);
                    }
                }
                Some(format!("a minority {minority:?} with nodes {stay:?} is cut off for {time:?}"))
            }
            1 => {
                others.iter().for_each(|other| net.cut(host, *other));
                Some(format!("server {} cannot send for {time:?}", host.0))
            }
            2 => {
                others.iter().for_each(|other| net.cut(*other, host));
                Some(format!("server {} cannot receive for {time:?}", host.0))
            }
            3 => {
                let other = self.lots.pick(&others).copied()?;
                both(host, other);
                Some(format!("servers {} and {} are cut apart for {time:?}", host.0, other.0))
            }
            _ => {
                // Two halves that share one server.
                let bridge = host;
                for (n, a) in others.iter().enumerate() {
                    others.iter().skip(n + 1).step_by(2).for_each(|b| both(*a, *b));
                }
                Some(format!("server {} is the only bridge for {time:?}", bridge.0))
            }
        }
    }

    fn disturb(&mut self, time: Duration) -> Option<String> {
        if self.disturbed {
            return None;
        }
        self.disturbed = true;
        self.after(time, Later::NetHeals);
        if self.lots.chance(50) {
            let (loss, duplicates) = (self.lots.below(30), self.lots.below(30));
            self.sim.net.disturb(loss, duplicates);
            return Some(format!("{loss} % of messages are lost, {duplicates} % arrive twice, for {time:?}"));
        }
        let hosts = self.sim.hosts();
        let slow = self.random_server();
        let delay = self.lots.between(Duration::from_millis(20), Duration::from_millis(600));
        for other in hosts {
            self.sim.net.slow(slow, other, delay);
            self.sim.net.slow(other, slow, delay);
        }
        Some(format!("the links of server {} take {delay:?} more, for {time:?}", slow.0))
    }

    fn clock(&mut self, host: HostId) -> Option<String> {
        let step = self.lots.below(2 * HOUR as u64) as i64 - HOUR;
        self.sim.with(host, |server| server.wall += step);
        Some(format!("the clock of server {} steps by {} s", host.0, step / 1_000_000_000))
    }

    fn disk(&mut self, host: HostId, time: Duration) -> Option<String> {
        let all = self.lots.chance(25);
        let fault = match if all { 4 } else { self.lots.below(5) } {
            0 => DiskFault::Full,
            1 => DiskFault::Hung,
            2 => DiskFault::Broken,
            3 => DiskFault::Slow(Duration::from_secs(5)),
            _ => DiskFault::Slow(self.lots.between(Duration::from_millis(50), Duration::from_secs(1))),
        };
        let now = self.world.elapsed();
        let hosts = if all { self.sim.hosts() } else { vec![host] };
        for host in &hosts {
            self.sim.with(*host, |server| {
                server.faulty = Some(now + time);
                server.disk.set_fault(Some(fault));
            });
            self.after(time, Later::DiskHeals(*host));
        }
        Some(format!("the disks of servers {hosts:?} are {fault:?} for {time:?}"))
    }

    fn transfer(&mut self, host: HostId) -> Option<String> {
        let leader = self.sim.leader()?;
        let handle = self.sim.handle(leader)?;
        let to = self.sim.handle(host)?.identity().number;
        self.world.spawn(leader, async move {
            // The transfer may fail.
            let _ = handle.transfer(to).await;
        });
        Some(format!("server {} passes leadership on to server {}", leader.0, host.0))
    }

    /// Returns whether all servers run, vote and are up to date, so that one of them may lose its disk.
    fn is_whole(&self) -> bool {
        let servers = self.sim.hosts();
        let handles = self.sim.handles.lock().clone();
        let leader = handles.values().find(|handle| handle.is_leader());
        let Some(leader) = leader else { return false };
        let members = leader.members();
        let last = leader.metrics().last_log_index;
        let near = members.members.iter().all(|member| member.matched.is_some_and(|at| at + 20 >= last));
        members.committed
            && near
            && !self.disturbed
            && members.voters().count() == servers.len()
            && handles.len() == servers.len()
            && self.sim.removal.lock().is_none()
    }

    fn remove(&mut self, host: HostId) -> Option<String> {
        if !self.is_whole() {
            return None;
        }
        *self.sim.removal.lock() = Some(host);
        Some(format!("server {} shall leave the cluster", host.0))
    }

    /// Erases a server that was removed, so that it can be admitted again.
    fn finish_removal(&mut self) {
        let Some(host) = *self.sim.removal.lock() else { return };
        let leader = self.sim.leader().filter(|leader| *leader != host);
        let Some(leader) = leader.and_then(|leader| self.sim.handle(leader)) else { return };
        let members = leader.members();
        let gone = !members.members.iter().any(|member| crate::net::host_of(&member.peer) == host);
        if gone && members.committed {
            self.erase(host);
            *self.sim.removal.lock() = None;
        }
    }

    fn erase(&mut self, host: HostId) {
        if self.is_up(host) {
            self.kill(host, false);
        }
        self.sim.book.wiped(host);
        self.sim.with(host, |server| {
            server.disk.wipe();
            server.promise = None;
        });
        let pause = self.lots.between(Duration::from_millis(300), Duration::from_secs(2));
        self.after(pause, Later::Boot(host));
        self.sim.book.note(format!("the disk of server {} is empty", host.0));
    }

    fn wipe(&mut self, host: HostId) -> Option<String> {
        if !self.is_whole() {
            return None;
        }
        self.erase(host);
        Some(format!("server {} lost its disk", host.0))
    }

    fn change_program(&mut self, host: HostId) -> Option<String> {
        if self.lots.chance(50) {
            for host in self.sim.hosts() {
                self.sim.with(host, |server| server.level = 2);
            }
            return Some("all servers have the newer program at their next start".to_owned());
        }
        let level = 1 + self.lots.below(2) as u32;
        self.sim.with(host, |server| server.level = level);
        if self.is_up(host) {
            self.kill(host, false);
        }
        self.after(Duration::from_millis(500), Later::Boot(host));
        Some(format!("server {} restarts with a program of level {level}", host.0))
    }

    fn disturb_node(&mut self, time: Duration) -> Option<String> {
        let host = node::host(1 + self.lots.below(u64::from(NODES)) as u32);
        if self.lots.chance(50) {
            self.world.freeze(host, self.lots.chance(50));
            self.after(time * 2, Later::Thaw(host));
            return Some(format!("node {} stops for {:?}", host.0 - 100, time * 2));
        }
        if self.disturbed {
            return None;
        }
        self.disturbed = true;
        self.after(time * 2, Later::NetHeals);
        for server in self.sim.hosts() {
            self.sim.net.cut(host, server);
            self.sim.net.cut(server, host);
        }
        Some(format!("node {} is cut off for {:?}", host.0 - 100, time * 2))
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
                // An operator who downgraded a server notices that.
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

/// Checks what must hold at each moment.
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
    }
}
