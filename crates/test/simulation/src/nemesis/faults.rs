//! Faults: of processes, links, disks and clocks, and changes of the cluster.

use super::{HOUR, Later, NODES, Nemesis, inspect};
use crate::command::NodeId;
use crate::node;
use caravan_consensus::sim::{DiskFault, HostId};
use std::time::Duration;

/// The interval at which the state is checked for a node that is declared down.
const SILENCE_INTERVAL: Duration = Duration::from_millis(150);

impl Nemesis<'_> {
    fn random_server(&mut self) -> HostId {
        let hosts = self.sim.hosts();
        let leader = self.sim.leader().filter(|_| self.lots.chance(40));
        leader.or_else(|| self.lots.pick(&hosts).copied()).unwrap_or(HostId(1))
    }

    fn is_up(&self, host: HostId) -> bool {
        self.sim.with(host, |server| server.up)
    }

    /// Causes one fault.
    pub(super) fn step(&mut self) {
        if self.sim.book.is_violated() {
            return;
        }
        self.finish_removal();
        self.finish_wipe();
        let focus = self.focus.take();
        let host = focus.unwrap_or_else(|| self.random_server());
        let time = self.lots.between(Duration::from_millis(200), Duration::from_secs(7));
        // The server of the last event mostly crashes, or is isolated again.
        let kinds = if focus.is_some() && self.lots.chance(60) { 30 } else { 100 };
        let text = match self.lots.below(kinds) {
            0..14 => self.crash(host),
            14..22 => self.lose_power(),
            22..44 => self.cut(host, time),
            44..52 => self.freeze(host, time),
            52..58 => self.disturb(time),
            58..63 => self.clock(host),
            63..73 => self.disk(host, time),
            73..78 => self.transfer(host),
            78..81 => self.remove(host),
            81..87 => self.wipe(host),
            87..91 => self.change_program(host),
            91..93 => self.usurp(),
            93..96 => self.hide_holder(),
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

    /// Ends the power of so many servers that the others are no quorum, often while their disks are busy.
    fn lose_power(&mut self) -> Option<String> {
        let mut hosts = self.sim.hosts();
        while hosts.len() > self.sim.hosts().len() / 2 + 1 && self.lots.chance(25) {
            let at = self.lots.below(hosts.len() as u64) as usize;
            hosts.remove(at);
        }
        if self.lots.chance(40) {
            let time = self.lots.between(Duration::from_millis(200), Duration::from_millis(1500));
            let delay = self.lots.between(Duration::from_millis(10), Duration::from_millis(300));
            self.break_disks(&hosts, DiskFault::Slow(delay), time * 2);
            self.sim.book.note(format!("the disks of servers {hosts:?} are busy"));
            self.run_for(time);
            self.focus = None;
        }
        // The power mostly ends right after an acknowledgement.
        let (before, sim) = (self.sim.book.newest_acked(), self.sim.clone());
        if self.lots.chance(70) {
            let until = self.world.elapsed() + Duration::from_secs(1);
            let due = self.later.first_key_value().map_or(until, |((at, _), _)| until.min(*at));
            self.world.run(due, |_| {
                inspect(&sim);
                sim.book.newest_acked() == before && sim.ended.lock().is_empty()
            });
        }
        for host in &hosts {
            if self.is_up(*host) {
                self.kill(*host, true);
            }
            let pause = self.lots.between(Duration::from_millis(50), Duration::from_secs(2));
            self.after(pause, Later::Boot(*host));
        }
        Some(format!("servers {hosts:?} lose power"))
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
        // A minority with some nodes, one direction, two servers, or a bridge is cut.
        let kind = [0, 0, 0, 1, 2, 3, 4][self.lots.below(7) as usize];
        let leader = self.sim.leader().filter(|_| kind == 0 && self.lots.chance(50));
        let host = leader.unwrap_or(host);
        self.cut_off = Some(host);
        // The time is often just long enough for the others to elect a leader. A minority is isolated long
        // enough for the leader of the others to declare its nodes down.
        let time = match kind {
            _ if self.lots.chance(35) => {
                self.lots.between(Duration::from_millis(500), Duration::from_millis(1600))
            }
            0 => {
                // Half of these cuts are the only fault meanwhile, so that the majority continues without
                // the minority.
                if self.lots.chance(50) {
                    self.alone_until = self.world.elapsed() + time * 3;
                }
                time * 3
            }
            _ => time,
        };
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
                // The cut leaves two halves that share one server.
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
        Some(self.step_clock(host, step))
    }

    fn step_clock(&self, host: HostId, step: i64) -> String {
        self.sim.with(host, |server| server.wall += step);
        format!("the clock of server {} steps by {} s", host.0, step / 1_000_000_000)
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
        let hosts = if all { self.sim.hosts() } else { vec![host] };
        self.break_disks(&hosts, fault, time);
        Some(format!("the disks of servers {hosts:?} are {fault:?} for {time:?}"))
    }

    fn break_disks(&mut self, hosts: &[HostId], fault: DiskFault, time: Duration) {
        let now = self.world.elapsed();
        for host in hosts {
            self.sim.with(*host, |server| {
                server.faulty = Some(now + time);
                server.disk.set_fault(Some(fault));
            });
            self.after(time, Later::DiskHeals(*host));
        }
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

    /// Returns whether all servers vote, so that one of them may leave the cluster or lose its disk. Each
    /// committed entry is then on another server, and that server takes part in each quorum without the
    /// first one.
    fn is_whole(&self) -> bool {
        let leader = self.sim.leader().and_then(|leader| self.sim.handle(leader));
        let Some(leader) = leader else { return false };
        let members = leader.members();
        members.committed
            && members.voters().count() == self.sim.hosts().len()
            && self.lost.is_none()
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
    pub(super) fn finish_removal(&mut self) {
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
        let identity = self.sim.handle(host).map(|handle| handle.identity()).unwrap_or_default();
        if self.is_up(host) {
            self.kill(host, false);
        }
        self.sim.book.wiped(host);
        self.sim.with(host, |server| {
            server.disk.wipe();
            server.promise = None;
            server.wipes += 1;
            server.before = identity;
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
        self.lost = Some(host);
        Some(format!("server {} lost its disk", host.0))
    }

    /// Records that the server that lost its disk votes again.
    fn finish_wipe(&mut self) {
        let Some(lost) = self.lost else { return };
        let number = self.sim.handle(lost).and_then(|handle| handle.identity().number);
        let leader = self.sim.leader().and_then(|leader| self.sim.handle(leader));
        let Some((number, leader)) = number.zip(leader) else { return };
        let members = leader.members();
        if members.committed && members.voters().any(|member| member.number == number) {
            self.lost = None;
        }
    }

    fn change_program(&mut self, host: HostId) -> Option<String> {
        if self.lots.chance(40) {
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

    /// Isolates the leader while the other servers restart. The restarted servers have no record of a leader, so they
    /// elect another one as soon as they may.
    fn usurp(&mut self) -> Option<String> {
        let leader = self.sim.leader().filter(|_| !self.disturbed)?;
        let time = self.lots.between(Duration::from_millis(1200), Duration::from_millis(2500));
        (self.disturbed, self.cut_off) = (true, Some(leader));
        self.alone_until = self.world.elapsed() + time;
        self.after(time, Later::NetHeals);
        for other in self.sim.hosts().into_iter().filter(|other| *other != leader) {
            self.sim.net.cut(leader, other);
            self.sim.net.cut(other, leader);
            if self.is_up(other) {
                self.kill(other, false);
                let pause = self.lots.between(Duration::from_millis(5), Duration::from_millis(100));
                self.after(pause, Later::Boot(other));
            }
        }
        Some(format!("server {} is cut off for {time:?}, and the others restart", leader.0))
    }

    /// Isolates the node that holds the volume, for longer than it may write. The clock of the leader steps
    /// as soon as the node is declared down.
    fn hide_holder(&mut self) -> Option<String> {
        let leader = self.sim.leader().filter(|_| !self.disturbed)?;
        let claim = self.sim.with(leader, |server| server.replica.lock().claim)?;
        let time = self.lots.between(Duration::from_secs(7), Duration::from_secs(12));
        self.disturbed = true;
        self.alone_until = self.world.elapsed() + time;
        self.after(time, Later::NetHeals);
        self.after(SILENCE_INTERVAL, Later::Silent(claim.node));
        for server in self.sim.hosts() {
            self.sim.net.cut(node::host(claim.node), server);
            self.sim.net.cut(server, node::host(claim.node));
        }
        Some(format!("node {}, which holds the volume, is cut off for {time:?}", claim.node))
    }

    /// Steps the clock of the leader forward when an isolated node is declared down.
    pub(super) fn await_silence(&mut self, node: NodeId) {
        let Some(leader) = self.sim.leader().filter(|_| self.disturbed) else { return };
        if self.sim.with(leader, |server| server.replica.lock().is_up(node)) {
            return self.after(SILENCE_INTERVAL, Later::Silent(node));
        }
        let step = self.lots.below(HOUR as u64) as i64;
        let text = self.step_clock(leader, step);
        self.sim.book.note(text);
    }
}
