//! Faults: of processes, links, disks, clocks, and leadership.

use super::super::rows;
use super::super::world::uuid;
use super::{HOUR, Later, NODES, Nemesis};
use crate::service::{node, users};
use caravan_consensus::sim::{DiskFault, HostId, step_wall};
use caravan_types::node::NodeStatus;
use std::time::Duration;

/// The interval at which the state is checked for a node that is declared down.
const SILENCE_INTERVAL: Duration = Duration::from_millis(100);

impl Nemesis<'_> {
    fn random_server(&mut self) -> HostId {
        let hosts = self.sim.hosts();
        let leader = self.sim.leader().filter(|_| self.lots.chance(50));
        leader.or_else(|| self.lots.pick(&hosts).copied()).unwrap_or(HostId(1))
    }

    pub(super) fn is_up(&self, host: HostId) -> bool {
        self.sim.with(host, |server| server.up)
    }

    /// Causes one fault.
    pub(super) fn step(&mut self) {
        if self.sim.book.is_violated() {
            return;
        }
        let host = self.random_server();
        let time = self.lots.between(Duration::from_millis(200), Duration::from_secs(7));
        let text = match self.lots.below(100) {
            0..13 => self.crash(host),
            13..16 => self.all_lose_power(),
            16..20 => self.others_end(host),
            20..27 => self.freeze(host, time),
            27..44 => self.cut(host, time),
            44..51 => self.disturb(time),
            51..57 => self.clock(host),
            57..66 => self.disk(host, time),
            66..74 => self.transfer(host),
            74..79 => self.isolate_with_holder(),
            79..86 => self.hide_holder(),
            86..89 => self.slow_leader(),
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

    /// Ends all servers except one, mostly the leader, for longer than it waits for them.
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
        // The time is long enough for the leader of the others to declare the nodes of the minority down.
        let time = if kind < 2 { time * 3 } else { time };
        self.after(time, Later::NetHeals);
        let servers = self.sim.hosts();
        let others: Vec<HostId> = servers.iter().copied().filter(|other| *other != host).collect();
        let nodes: Vec<HostId> = (1..=NODES).map(node::host).collect();
        let net = self.sim.net.clone();
        match kind {
            0 | 1 => {
                // Some nodes stay on the side of the minority.
                let stay: Vec<HostId> = nodes.iter().copied().filter(|_| self.lots.chance(50)).collect();
                self.isolate(host, &stay);
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
                self.cut_apart(host, other);
                Some(format!("servers {} and {} are cut apart for {time:?}", host.0, other.0))
            }
        }
    }

    fn cut_apart(&self, a: HostId, b: HostId) {
        self.sim.net.cut(a, b);
        self.sim.net.cut(b, a);
    }

    /// Isolates a server from the others, together with some nodes.
    fn isolate(&self, host: HostId, stay: &[HostId]) {
        let nodes: Vec<HostId> = (1..=NODES).map(node::host).collect();
        for other in self.sim.hosts().into_iter().filter(|other| *other != host) {
            self.cut_apart(host, other);
            stay.iter().for_each(|node| self.cut_apart(*node, other));
        }
        nodes.iter().filter(|node| !stay.contains(node)).for_each(|node| self.cut_apart(host, *node));
    }

    /// Isolates the leader with the node that uses the volume, for so long that the others grant the volume
    /// to another node.
    fn isolate_with_holder(&mut self) -> Option<String> {
        let (leader, holder) = (self.sim.leader()?, self.sim.holder()?);
        if std::mem::replace(&mut self.disturbed, true) {
            return None;
        }
        let time = self.lots.between(Duration::from_secs(18), Duration::from_secs(22));
        self.alone_until = self.world.elapsed() + time;
        self.after(time, Later::NetHeals);
        self.isolate(leader, &[node::host(holder)]);
        Some(format!(
            "server {} with node {holder}, which uses the volume, is cut off for {time:?}",
            leader.0
        ))
    }

    /// Isolates the node that uses the volume, for longer than its lease. As soon as the node is declared
    /// down, another server leads, whose clock is ahead.
    fn hide_holder(&mut self) -> Option<String> {
        let (leader, holder) = (self.sim.leader()?, self.sim.holder()?);
        if std::mem::replace(&mut self.disturbed, true) {
            return None;
        }
        let time = self.lots.between(Duration::from_secs(8), Duration::from_secs(13));
        self.alone_until = self.world.elapsed() + time;
        self.after(time, Later::NetHeals);
        self.after(SILENCE_INTERVAL, Later::Silent(holder));
        for server in self.sim.hosts() {
            self.cut_apart(node::host(holder), server);
            if server != leader {
                step_wall(server, self.lots.below(HOUR as u64) as i64);
            }
        }
        Some(format!(
            "node {holder}, which uses the volume, is cut off for {time:?}; the clocks of followers step"
        ))
    }

    /// Passes leadership on when an isolated node is declared down.
    pub(super) fn await_silence(&mut self, number: u32) {
        let Some((_, root)) = self.sim.newest().filter(|_| self.disturbed) else { return };
        if root.node(&rows::node_id(number)).is_some_and(|node| node.status == NodeStatus::Ready) {
            return self.after(SILENCE_INTERVAL, Later::Silent(number));
        }
        let leader = self.sim.leader();
        let others: Vec<HostId> =
            self.sim.hosts().into_iter().filter(|host| Some(*host) != leader && self.is_up(*host)).collect();
        let other = self.lots.pick(&others).copied();
        if let Some(text) = other.and_then(|other| self.transfer(other)) {
            self.sim.book.note(text);
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
        self.break_disk(host, fault, time);
        Some(format!("the disk of server {} is {fault:?} for {time:?}", host.0))
    }

    fn break_disk(&mut self, host: HostId, fault: DiskFault, time: Duration) {
        let until = self.world.elapsed() + time;
        self.sim.with(host, |server| {
            server.faulty = Some(until);
            server.disk.set_fault(Some(fault));
        });
        self.after(time, Later::DiskHeals(host));
    }

    /// Slows down the disk of the leader while the volume is passed on: followers apply entries before the leader.
    fn slow_leader(&mut self) -> Option<String> {
        let leader = self.sim.leader()?;
        let time = self.lots.between(Duration::from_secs(8), Duration::from_secs(12));
        let delay = self.lots.between(Duration::from_millis(100), Duration::from_millis(600));
        self.alone_until = self.world.elapsed() + time;
        self.break_disk(leader, DiskFault::Slow(delay), time);
        self.world.spawn(HostId(0), users::replace_writer(self.sim.clone()));
        Some(format!("each flush of server {}, which leads, takes {delay:?} for {time:?}", leader.0))
    }

    fn transfer(&mut self, host: HostId) -> Option<String> {
        let leader = self.sim.leader()?;
        let handle = self.sim.handle(leader)?;
        let to = uuid(host).to_string();
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
}
