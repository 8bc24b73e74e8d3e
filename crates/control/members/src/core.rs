//! The state machine of one server's membership, without clocks, randomness and I/O. Times are durations since an
//! origin of the caller, and the seed comes from the caller.
//!
//! A member's status has two sources. The first is its row, which only the member itself renews; others may
//! record in the row that the member leaves. The second is failure detection ([`swim`]). Rows spread in
//! three ways. The server where they changed sends them immediately to all alive members. Each server to which
//! they were new sends them to a few random members. Syncs repair the rest.

mod merge;
mod shown;
#[cfg(test)]
mod sim;
mod swim;

use crate::frame::{Claim, Intent, Liveness, Message, Row, groups};
use crate::member::{Event, Member, Status, Tags};
use rand_010::rngs::StdRng;
use rand_010::seq::IteratorRandom as _;
use rand_010::{RngExt as _, SeedableRng as _};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use swim::{Peer, Seen, Swim};
use uuid::Uuid;

/// Times of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time between two syncs with a random alive member.
    pub sync: Duration,
    /// The time between two attempts to reach a random failed member, while other members are alive.
    pub retry: Duration,
    /// The time between two such attempts while no other member is alive.
    pub retry_alone: Duration,
    /// The time for which a member that a user forces to leave although it is alive shows `leaving` before
    /// it refutes.
    pub refute: Duration,
    /// The time after which a failed member is removed from the list.
    pub reap_failed: Duration,
    /// The time after which a member that left is removed from the list.
    pub reap_left: Duration,
    /// The time for which the rows of removed members are kept, so that older rows do not return.
    pub tombstone: Duration,
}

impl Default for Timing {
    /// Returns the times of docs/reference/cluster.md, section 5.1, for the actions that it names.
    fn default() -> Self {
        let hour = |hours: u64| Duration::from_secs(hours * 3600);
        Self {
            sync: Duration::from_secs(5),
            retry: Duration::from_secs(10),
            retry_alone: Duration::from_secs(3),
            refute: Duration::from_secs(10),
            reap_failed: hour(72),
            reap_left: hour(24),
            tombstone: hour(96),
        }
    }
}

/// The interval of the reaper.
const REAP: Duration = Duration::from_secs(15);
/// The delay of a tick that proves that the process did not run.
const PAUSE: Duration = Duration::from_secs(2);
/// The number of random members to which a new row is passed on.
const RELAYS: usize = 3;

/// The own server at its start.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) id: Uuid,
    /// `<node>.<region>`.
    pub(crate) name: String,
    /// The advertised address.
    pub(crate) addr: SocketAddr,
    pub(crate) tags: Tags,
    /// A number that is larger than at all earlier starts.
    pub(crate) epoch: u64,
}

/// The steps by which the own server leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Present,
    Leaving,
    Left,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// A message for the server at this address. Delivery need not succeed.
    Send { to: SocketAddr, message: Message },
    /// A change of a member.
    Event(Event),
    /// A fact for the log.
    Notice(Notice),
}

/// A fact for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Two alive servers have one name.
    SameName { name: String, one: SocketAddr, other: SocketAddr },
    /// An alive server of the own region belongs to another cluster.
    OtherCluster { name: String, at: SocketAddr, cluster: String, own: String },
    /// Another process uses the own UUID.
    SameId { at: SocketAddr },
    /// The own server was forced to leave and returns.
    Refuted,
    /// A row was refused.
    Refused { name: String, at: SocketAddr },
}

/// A row with its last shown form.
#[derive(Clone, Debug)]
struct Entry {
    row: Row,
    /// The member as events and the view last showed it; `None` if hidden.
    shown: Option<Member>,
    /// The time since which the member has its status.
    since: Duration,
}

/// Times of the next actions.
#[derive(Clone, Copy, Debug)]
struct Due {
    sync: Duration,
    retry: Duration,
    reap: Duration,
    refute: Option<Duration>,
}

/// Membership of one server.
#[derive(Debug)]
pub(crate) struct Core {
    id: Uuid,
    phase: Phase,
    timing: Timing,
    rows: BTreeMap<Uuid, Entry>,
    swim: Swim,
    rng: StdRng,
    due: Due,
    out: VecDeque<Output>,
    /// Whether rows changed since the last comparison of the statuses.
    has_changed: bool,
    /// A number that grows with each change of a shown member.
    version: u64,
    /// The names that several alive servers share, with the time of the last report.
    same_names: BTreeMap<String, Duration>,
    /// The cluster of each reported server, with the time of the last report.
    other_clusters: BTreeMap<Uuid, (String, Duration)>,
}

impl Core {
    /// Creates a table with the own server as the only member.
    pub(crate) fn new(own: Own, timing: Timing, seed: u64, now: Duration) -> Self {
        let Own { id, name, addr, tags, epoch } = own;
        let mut rng = StdRng::seed_from_u64(seed);
        let swim = Swim::new(Peer { id, generation: epoch, addr }, StdRng::seed_from_u64(rng.random()));
        let row = Row { id, name, addr, tags, version: epoch, intent: Intent::Present };
        let due =
            Due { sync: now + timing.sync, retry: now + timing.retry_alone, reap: now + REAP, refute: None };
        let mut core = Self {
            id,
            phase: Phase::Present,
            timing,
            rows: BTreeMap::from([(id, Entry { row, shown: None, since: now })]),
            swim,
            rng,
            due,
            out: VecDeque::new(),
            has_changed: true,
            version: 0,
            same_names: BTreeMap::new(),
            other_clusters: BTreeMap::new(),
        };
        core.settle(now);
        core
    }

    /// Returns the UUID of the own server.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns a number that grows with each change of [`Core::members`].
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the members, sorted by name, then by id.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = self.rows.values().filter_map(|entry| entry.shown.clone()).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        members
    }

    /// Removes and returns the next output.
    pub(crate) fn take(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Returns the time of the next [`Core::tick`].
    pub(crate) fn next_due(&self) -> Duration {
        let own = [Some(self.due.sync), Some(self.due.retry), Some(self.due.reap), self.due.refute];
        let own = own.into_iter().flatten();
        own.chain(self.swim.next_due()).min().unwrap_or(self.due.sync)
    }

    /// Runs the due actions.
    pub(crate) fn tick(&mut self, now: Duration) {
        let late = now.saturating_sub(self.next_due());
        if late > PAUSE {
            tracing::debug!(?late, "the process did not run for a while");
            self.swim.postpone(late);
        }
        if self.phase != Phase::Left {
            self.swim.run_due(now);
        }
        if now >= self.due.sync {
            self.due.sync = now + self.jittered(self.timing.sync);
            self.sync(Status::Alive);
        }
        if now >= self.due.retry {
            let is_alone = self.others(Status::Alive).next().is_none();
            let interval = if is_alone { self.timing.retry_alone } else { self.timing.retry };
            self.due.retry = now + self.jittered(interval);
            self.sync(Status::Failed);
        }
        if self.due.refute.is_some_and(|due| now >= due) {
            self.due.refute = None;
            self.refute();
        }
        if now >= self.due.reap {
            self.due.reap = now + REAP;
            self.reap(now);
        }
        self.settle(now);
    }

    /// Handles a message from untrusted bytes, and returns the responses to its sender.
    pub(crate) fn receive(&mut self, now: Duration, message: Message) -> Vec<Message> {
        let mut answers = Vec::new();
        match message {
            Message::Swim(bytes) => {
                if self.phase != Phase::Left {
                    self.swim.receive(now, &bytes);
                }
            }
            Message::Sync { claims } => {
                let Differences { rows, requests } = self.compare(now, &claims);
                self.believe(now, &claims);
                let mut groups = groups(rows).into_iter();
                let rows = groups.next().unwrap_or_default();
                let claims = self.claims();
                answers.push(Message::SyncAnswer { claims: claims.clone(), rows, requests });
                answers.extend(groups.map(|rows| Message::Rows { claims: claims.clone(), rows }));
            }
            Message::SyncAnswer { claims, rows, requests } => {
                self.merge_all(now, rows, &claims);
                // The claims may have changed the row of the own server, and then the other side lacks the new row.
                let Differences { mut rows, .. } = self.compare(now, &claims);
                for id in requests {
                    if let Some(entry) = self.rows.get(&id)
                        && rows.iter().all(|row| row.id != id)
                    {
                        rows.push(entry.row.clone());
                    }
                }
                let claims = self.claims();
                answers.extend(
                    groups(rows).into_iter().map(|rows| Message::Rows { claims: claims.clone(), rows }),
                );
            }
            Message::Rows { claims, rows } => {
                self.merge_all(now, rows, &claims);
            }
            // The caller handles keys.
            Message::Keys(_) | Message::KeysAnswer(_) => {}
        }
        self.settle(now);
        answers
    }

    /// Returns the message that begins a sync.
    pub(crate) fn sync_message(&self) -> Message {
        Message::Sync { claims: self.claims() }
    }

    /// Replaces the tags of the own server.
    pub(crate) fn set_tags(&mut self, now: Duration, tags: Tags) {
        if let Some(entry) = self.rows.get_mut(&self.id)
            && entry.row.tags != tags
        {
            entry.row.tags = tags;
            entry.row.version += 1;
            self.announce(&[self.id]);
        }
        self.settle(now);
    }

    /// Forces the members of a name to leave, or removes them from the list. Returns whether the name has a member.
    pub(crate) fn force_leave(&mut self, now: Duration, name: &str, prune: bool) -> bool {
        let seen = self.swim.seen();
        let named = self.rows.values().filter(|entry| entry.shown.is_some() && entry.row.name == name);
        let ids: Vec<Uuid> = named.map(|entry| entry.row.id).collect();
        for &id in &ids {
            let is_up = id == self.id || seen.get(&id).is_some_and(Seen::is_up);
            let intent = match (prune, is_up) {
                (true, _) => Intent::Pruned,
                (false, true) => Intent::Leaving,
                (false, false) => Intent::Left,
            };
            let Some(entry) = self.rows.get(&id) else { continue };
            let forced = Row { intent, ..entry.row.clone() };
            if id == self.id {
                self.own_row(now, forced.rank());
            } else if forced.rank() > entry.row.rank() {
                self.merge(now, forced);
                self.announce(&[id]);
            }
        }
        self.settle(now);
        !ids.is_empty()
    }

    /// Announces that the own server leaves. The caller calls [`Core::left`] after a short while.
    pub(crate) fn leave(&mut self, now: Duration) {
        if self.phase == Phase::Present {
            self.phase = Phase::Leaving;
            self.due.refute = None;
            self.withdraw(Intent::Leaving);
            self.settle(now);
        }
    }

    /// Announces that the own server has left. The server ignores all later messages of failure detection.
    pub(crate) fn left(&mut self, now: Duration) {
        if self.phase != Phase::Left {
            self.phase = Phase::Left;
            self.due.refute = None;
            self.withdraw(Intent::Left);
            self.swim.leave(now);
            self.settle(now);
        }
    }

    fn withdraw(&mut self, intent: Intent) {
        if let Some(entry) = self.rows.get_mut(&self.id) {
            entry.row.version += 1;
            entry.row.intent = intent;
            self.announce(&[self.id]);
            // A failed member may have just returned. After this server has ended, that member would show
            // this server as failed until its next sync with a third server.
            let failed = self.others(Status::Failed).collect();
            self.send_rows(&[self.id], failed);
        }
    }

    fn jittered(&mut self, interval: Duration) -> Duration {
        interval.mul_f64(self.rng.random_range(0.8..1.2))
    }

    /// Returns the addresses of the other members with a status.
    fn others(&self, status: Status) -> impl Iterator<Item = SocketAddr> {
        let shown = self.rows.values().filter(|entry| entry.row.id != self.id);
        shown
            .filter(move |entry| entry.shown.as_ref().is_some_and(|m| m.status == status))
            .map(|e| e.row.addr)
    }

    /// Begins a sync with a random member that has a status.
    fn sync(&mut self, status: Status) {
        if self.phase == Phase::Left {
            return;
        }
        let addresses: Vec<SocketAddr> = self.others(status).collect();
        if let Some(to) = addresses.into_iter().choose(&mut self.rng) {
            self.out.push_back(Output::Send { to, message: self.sync_message() });
        }
    }

    /// Returns a claim about each member, including the own server.
    fn claims(&self) -> Vec<Claim> {
        let seen = self.swim.seen();
        let own = self.swim.peer();
        let claim = |row: &Row| {
            let (peer, incarnation, liveness) = if row.id == self.id {
                (own, 0, if self.phase == Phase::Left { Liveness::Down } else { Liveness::Alive })
            } else {
                let seen = seen.get(&row.id)?;
                (seen.peer, seen.incarnation, seen.liveness)
            };
            let Row { id, version, intent, .. } = *row;
            let Peer { addr, generation, .. } = peer;
            Some(Claim { id, addr, generation, incarnation, liveness, version, intent })
        };
        self.rows.values().filter_map(|entry| claim(&entry.row)).collect()
    }

    /// Sends rows to all alive members, and to the members that the rows describe.
    fn announce(&mut self, ids: &[Uuid]) {
        self.has_changed = true;
        let named = self.rows.values().filter(|entry| ids.contains(&entry.row.id) && entry.row.id != self.id);
        let mut to: Vec<SocketAddr> = named.map(|entry| entry.row.addr).collect();
        to.extend(self.others(Status::Alive).chain(self.others(Status::Leaving)));
        to.sort();
        to.dedup();
        self.send_rows(ids, to);
    }

    fn send_rows(&mut self, ids: &[Uuid], to: Vec<SocketAddr>) {
        let rows: Vec<Row> =
            ids.iter().filter_map(|id| self.rows.get(id)).map(|entry| entry.row.clone()).collect();
        let claims: Vec<Claim> = self
            .claims()
            .into_iter()
            .filter(|claim| ids.contains(&claim.id) || claim.id == self.id)
            .collect();
        for rows in groups(rows) {
            for to in &to {
                let message = Message::Rows { claims: claims.clone(), rows: rows.clone() };
                self.out.push_back(Output::Send { to: *to, message });
            }
        }
    }

    /// Passes new rows on to a few random members.
    fn relay(&mut self, ids: &[Uuid]) {
        if self.phase != Phase::Left && !ids.is_empty() {
            let alive: Vec<SocketAddr> = self.others(Status::Alive).collect();
            let to = alive.into_iter().sample(&mut self.rng, RELAYS);
            self.send_rows(ids, to);
        }
    }
}

/// The difference between the rows of two servers.
struct Differences {
    /// Rows that the other side lacks.
    rows: Vec<Row>,
    /// Members whose rows this side lacks.
    requests: Vec<Uuid>,
}
