//! Deterministic simulation: many members, one virtual clock, one seed, a network that delays, loses and cuts.

mod basics;

use super::{Core, Notice, Output, Own, Timing};
use crate::frame::Message;
use crate::member::{Event, Member, ROLE, ServerTags, Status, Tags};
use rand_010::rngs::StdRng;
use rand_010::{RngExt as _, SeedableRng as _};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

/// The process of one server.
struct Server {
    core: Core,
    addr: SocketAddr,
    /// Whether the process is suspended, as by SIGSTOP. Messages that arrive meanwhile are read later.
    stopped: bool,
    inbox: Vec<(SocketAddr, Vec<u8>)>,
    events: Vec<Event>,
    notices: Vec<Notice>,
}

impl Server {
    fn new(core: Core, addr: SocketAddr) -> Self {
        Self { core, addr, stopped: false, inbox: Vec::new(), events: Vec::new(), notices: Vec::new() }
    }
}

/// A network of servers.
struct Sim {
    now: Duration,
    rng: StdRng,
    servers: BTreeMap<u16, Server>,
    flights: BTreeMap<(Duration, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sequence: u64,
    /// The share of lost messages. The real transport is TCP, which loses whole connections and no single messages.
    loss: f64,
    /// Directed links that carry no messages.
    cuts: BTreeSet<(u16, u16)>,
    epochs: BTreeMap<u16, u64>,
    hash: DefaultHasher,
    bytes: u64,
    timing: Timing,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(n: u16) -> Uuid {
    Uuid::from_u128(u128::from(n) + 1)
}

/// Returns the number of the host of an address: the third and fourth byte.
fn host(addr: SocketAddr) -> u16 {
    match addr.ip() {
        std::net::IpAddr::V4(ip) => u16::from_be_bytes([ip.octets()[2], ip.octets()[3]]),
        std::net::IpAddr::V6(_) => unreachable!("the simulation has IPv4 only"),
    }
}

fn addr(n: u16) -> SocketAddr {
    let [high, low] = n.to_be_bytes();
    ([10, 0, high, low], 4648).into()
}

fn region(n: u16) -> &'static str {
    if n.is_multiple_of(5) { "west" } else { "east" }
}

fn name(n: u16) -> String {
    format!("s{n}.{}", region(n))
}

fn tags(n: u16) -> Tags {
    ServerTags { region: region(n).into(), id: id(n), ..ServerTags::default() }.to_tags()
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            rng: StdRng::seed_from_u64(seed),
            servers: BTreeMap::new(),
            flights: BTreeMap::new(),
            sequence: 0,
            loss: 0.0,
            cuts: BTreeSet::new(),
            epochs: BTreeMap::new(),
            hash: DefaultHasher::new(),
            bytes: 0,
            timing: Timing::default(),
        }
    }

    /// Starts servers `0..count`, which all join the first one, and waits until every server has all members.
    fn cluster(seed: u64, count: u16) -> Self {
        let mut sim = Self::new(seed);
        sim.add(count);
        sim
    }

    fn add(&mut self, count: u16) {
        for n in 0..count {
            self.start(n);
            if n > 0 {
                self.join(n, 0);
            }
        }
        self.wait("all members are known", secs(60), Self::agrees);
    }

    fn start(&mut self, n: u16) {
        self.start_at(n, addr(n));
    }

    fn start_at(&mut self, n: u16, addr: SocketAddr) {
        let epoch = self.epochs.entry(n).or_insert(0);
        *epoch += 1000;
        let own = Own { id: id(n), name: name(n), addr, tags: tags(n), epoch: *epoch };
        let core = Core::new(own, self.timing, self.rng.random(), self.now);
        let server = Server::new(core, addr);
        self.servers.insert(n, server);
        self.drain(n);
    }

    /// Ends a process immediately.
    fn kill(&mut self, n: u16) {
        self.servers.remove(&n);
    }

    fn stop(&mut self, n: u16) {
        self.servers.get_mut(&n).unwrap().stopped = true;
    }

    fn resume(&mut self, n: u16) {
        let server = self.servers.get_mut(&n).unwrap();
        server.stopped = false;
        for (from, bytes) in std::mem::take(&mut server.inbox) {
            self.deliver(from, n, &bytes);
        }
    }

    /// Begins a sync with another server, as a join does.
    fn join(&mut self, n: u16, to: u16) {
        let message = self.servers[&n].core.sync_message();
        self.send(self.servers[&n].addr, addr(to), &message);
    }

    fn cut(&mut self, from: u16, to: u16) {
        self.cuts.insert((from, to));
    }

    fn cut_groups(&mut self, one: &[u16], other: &[u16]) {
        for &a in one {
            for &b in other {
                self.cut(a, b);
                self.cut(b, a);
            }
        }
    }

    fn act(&mut self, n: u16, step: impl FnOnce(&mut Core, Duration)) {
        let now = self.now;
        step(&mut self.servers.get_mut(&n).unwrap().core, now);
        self.drain(n);
    }

    fn drain(&mut self, n: u16) {
        while let Some(output) = self.servers.get_mut(&n).and_then(|server| server.core.take()) {
            match output {
                Output::Send { to, message } => self.send(self.servers[&n].addr, to, &message),
                Output::Event(event) => {
                    (n, event.as_str(), event.member().id).hash(&mut self.hash);
                    self.servers.get_mut(&n).unwrap().events.push(event);
                }
                Output::Notice(notice) => self.servers.get_mut(&n).unwrap().notices.push(notice),
            }
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, message: &Message) {
        let bytes = message.encode().unwrap();
        self.bytes += bytes.len() as u64;
        (self.now, from, to, &bytes).hash(&mut self.hash);
        let is_lost = self.rng.random::<f64>() < self.loss;
        if is_lost || self.cuts.contains(&(host(from), host(to))) {
            return;
        }
        let delay = Duration::from_micros(self.rng.random_range(500..30_000));
        self.sequence += 1;
        self.flights.insert((self.now + delay, self.sequence), (from, to, bytes));
    }

    fn deliver(&mut self, from: SocketAddr, n: u16, bytes: &[u8]) {
        let message = Message::decode(bytes).unwrap();
        let now = self.now;
        let server = self.servers.get_mut(&n).unwrap();
        let own = server.addr;
        for answer in server.core.receive(now, message) {
            self.send(own, from, &answer);
        }
        self.drain(n);
    }

    /// Runs the next step before the deadline, and returns whether there was one.
    fn step(&mut self, deadline: Duration) -> bool {
        let running = self.servers.iter().filter(|(_, server)| !server.stopped);
        let timer = running.map(|(n, server)| (server.core.next_due().max(self.now), *n)).min();
        let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
        let is_flight = flight.is_some_and(|at| timer.is_none_or(|(due, _)| at <= due));
        let next = if is_flight { flight } else { timer.map(|(due, _)| due) };
        match next {
            Some(at) if at <= deadline => self.now = at,
            _ => {
                self.now = deadline;
                return false;
            }
        }
        if is_flight {
            if let Some((_, (from, to, bytes))) = self.flights.pop_first() {
                let receiver = self.servers.iter_mut().find(|(_, server)| server.addr == to);
                match receiver {
                    Some((_, server)) if server.stopped => server.inbox.push((from, bytes)),
                    Some((&n, _)) => self.deliver(from, n, &bytes),
                    None => {}
                }
            }
        } else if let Some((_, n)) = timer {
            self.act(n, Core::tick);
        }
        true
    }

    fn run(&mut self, time: Duration) {
        let deadline = self.now + time;
        while self.step(deadline) {}
    }

    /// Runs until a condition holds, and returns the elapsed time.
    fn wait(&mut self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !condition(self) {
            let waited = self.now - start;
            assert!(waited < limit, "{what}: not within {limit:?}\n{}", self.describe());
            let deadline = self.now + Duration::from_millis(100);
            while self.step(deadline) {}
        }
        self.now - start
    }

    fn members(&self, n: u16) -> Vec<Member> {
        self.servers[&n].core.members()
    }

    fn status(&self, at: u16, of: u16) -> Option<Status> {
        self.members(at).into_iter().find(|member| member.id == id(of)).map(|member| member.status)
    }

    /// Returns whether all running servers show `of` with a status.
    fn all_show(&self, of: u16, status: Option<Status>) -> bool {
        self.servers.keys().filter(|at| **at != of).all(|at| self.status(*at, of) == status)
    }

    /// Returns whether all running servers show all running servers as alive, with their addresses and
    /// tags. They must also show equal rows of all others, sorted by name.
    fn agrees(&self) -> bool {
        let mut views = self.servers.keys().map(|n| self.members(*n));
        let Some(first) = views.next() else { return true };
        let is_same = views.all(|view| view == first);
        let is_alive = |n: &u16| {
            let own = self.servers[n].core.members().into_iter().find(|member| member.id == id(*n));
            first.iter().any(|member| Some(member) == own.as_ref() && member.is_alive())
        };
        // The API returns the members in this order.
        let is_sorted = first.is_sorted_by_key(|member| (&member.name, member.id));
        is_same && is_sorted && self.servers.keys().all(is_alive)
    }

    fn events(&self, at: u16, of: u16) -> Vec<&'static str> {
        let events = self.servers[&at].events.iter().filter(|event| event.member().id == id(of));
        events.map(Event::as_str).collect()
    }

    fn notices(&self, at: u16) -> &[Notice] {
        &self.servers[&at].notices
    }

    fn describe(&self) -> String {
        let line = |n: &u16| {
            let members = self.members(*n);
            let shown = members.iter().map(|member| format!("{}={}", member.name, member.status));
            format!("{n}: {}", shown.collect::<Vec<_>>().join(" "))
        };
        self.servers.keys().map(line).collect::<Vec<_>>().join("\n")
    }

    fn trace(&self) -> u64 {
        self.hash.finish()
    }
}

#[test]
fn all_tags_have_the_role() {
    assert_eq!(tags(1)["role"], ROLE);
}
