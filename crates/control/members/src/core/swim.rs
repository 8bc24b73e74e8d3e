//! Failure detection by foca: its datagrams, its timers in injected time, and its view of each member.
//!
//! foca detects (probes, indirect probes, suspicion, refutation) and spreads changes quickly. The claims of a sync
//! ([`Swim::apply`]) contain every change that foca may miss.

mod codec;
#[cfg(test)]
mod tests;

use crate::frame::{Claim, Liveness};
use codec::WireCodec;
use foca::{AccumulatingRuntime, Codec as _, Config, Foca, Identity, Member, Message, NoCustomBroadcast};
use foca::{OwnedNotification, PeriodicParams, State, Timer};
use rand_010::rngs::StdRng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU32, NonZeroUsize};
use std::time::Duration;
use uuid::Uuid;

/// The period in which each member probes one other member.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// The timeout of a probe, after which other members are asked to probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// The time in which a suspected member may refute.
const SUSPICION: Duration = Duration::from_secs(6);
/// The interval at which changes are sent, and the number of receivers.
const GOSSIP: (Duration, NonZeroUsize) = (Duration::from_millis(500), NonZeroUsize::new(3).unwrap());
/// The interval at which one member is asked for its members.
const ANNOUNCE: Duration = Duration::from_secs(30);
/// The lowest number of repetitions of a change.
const MIN_TRANSMISSIONS: NonZeroU8 = NonZeroU8::new(6).unwrap();
/// Maximum size of a datagram. The transport is a stream, so the limit only bounds the changes in one message.
const DATAGRAM: NonZeroUsize = NonZeroUsize::new(16 << 10).unwrap();

/// A member in foca's form. The generation grows when a member returns that others declared down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) id: Uuid,
    pub(super) generation: u64,
    pub(super) addr: SocketAddr,
}

impl Identity for Peer {
    type Addr = Uuid;

    fn renew(&self) -> Option<Self> {
        Some(Self { generation: self.generation.checked_add(1)?, ..*self })
    }

    fn addr(&self) -> Uuid {
        self.id
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.generation > adversary.generation
    }
}

/// The state of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) peer: Peer,
    pub(super) incarnation: u16,
    pub(super) liveness: Liveness,
}

impl Seen {
    pub(super) fn is_up(&self) -> bool {
        self.liveness != Liveness::Down
    }
}

/// Failure detection of one server.
pub(super) struct Swim {
    foca: Foca<Peer, WireCodec, StdRng, NoCustomBroadcast>,
    timers: BTreeMap<(Duration, u64), Timer<Peer>>,
    next_timer: u64,
    /// Datagrams to send.
    sends: Vec<(SocketAddr, Vec<u8>)>,
    /// Whether the state of a member changed since [`Swim::take_changed`].
    has_changed: bool,
    members: u32,
}

impl std::fmt::Debug for Swim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Swim").field("peer", self.foca.identity()).finish_non_exhaustive()
    }
}

impl Swim {
    pub(super) fn new(peer: Peer, rng: StdRng) -> Self {
        Self {
            foca: Foca::new(peer, config(1), rng, WireCodec),
            timers: BTreeMap::new(),
            next_timer: 0,
            sends: Vec::new(),
            has_changed: true,
            members: 1,
        }
    }

    pub(super) fn peer(&self) -> Peer {
        *self.foca.identity()
    }

    /// Returns all members of failure detection, without the own server.
    pub(super) fn seen(&self) -> BTreeMap<Uuid, Seen> {
        let members = self.foca.iter_membership_state();
        members
            .map(|member| {
                let liveness = match member.state() {
                    State::Alive => Liveness::Alive,
                    State::Suspect => Liveness::Suspect,
                    State::Down => Liveness::Down,
                };
                let seen = Seen { peer: *member.id(), incarnation: member.incarnation(), liveness };
                (member.id().id, seen)
            })
            .collect()
    }

    /// Applies the claims of another server about members.
    pub(super) fn apply(&mut self, now: Duration, claims: &[Claim]) {
        let members = claims.iter().map(|claim| {
            let state = match claim.liveness {
                Liveness::Alive => State::Alive,
                Liveness::Suspect => State::Suspect,
                Liveness::Down => State::Down,
            };
            let peer = Peer { id: claim.id, generation: claim.generation, addr: claim.addr };
            Member::new(peer, claim.incarnation, state)
        });
        self.act(now, |foca, runtime| foca.apply_many(members, true, runtime));
    }

    /// Returns to the members with a higher generation, because others have a newer generation than the own.
    pub(super) fn raise(&mut self, now: Duration, generation: u64) {
        let peer = Peer { generation, ..self.peer() };
        self.act(now, |foca, runtime| foca.change_identity(peer, runtime));
        self.has_changed = true;
    }

    /// Handles a datagram from untrusted bytes.
    pub(super) fn receive(&mut self, now: Duration, bytes: &[u8]) {
        self.act(now, |foca, runtime| foca.handle_data(bytes, runtime));
        if let Some(peer) = acknowledging(bytes) {
            self.end_wait(now, peer);
        }
    }

    /// Runs the timer of a probe early, because the response has arrived: the timer then has no work to do. Later, it
    /// would wake an idle server twice a second, because tokio moves a timer of that length to a finer wheel before
    /// it is due.
    fn end_wait(&mut self, now: Duration, peer: Peer) {
        let waits = |timer: &Timer<Peer>| matches!(timer, Timer::SendIndirectProbe { probed_id, .. } if *probed_id == peer);
        let answered: Vec<_> =
            self.timers.iter().filter(|(_, timer)| waits(timer)).map(|(key, _)| *key).collect();
        for key in answered {
            if let Some(timer) = self.timers.remove(&key) {
                self.act(now, |foca, runtime| foca.handle_timer(timer, runtime));
            }
        }
    }

    /// Announces that this server leaves. Later datagrams have no effect.
    pub(super) fn leave(&mut self, now: Duration) {
        self.act(now, |foca, runtime| foca.leave_cluster(runtime));
        self.timers.clear();
    }

    /// Returns the time of the next timer with work to do. Without changes to spread, gossip runs together
    /// with the next probe, which saves an idle server two wakeups a second.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let has_changes = self.foca.updates_backlog() > 0;
        let mut timers = self.timers.iter();
        timers.find(|(_, timer)| has_changes || !is_gossip(timer)).map(|((due, _), _)| *due)
    }

    /// Sets the due time of deferred gossip to now.
    fn catch_up(&mut self, now: Duration) {
        let due = self.timers.range(..(now, 0));
        let late: Vec<_> = due.filter(|(_, timer)| is_gossip(timer)).map(|(key, _)| *key).collect();
        for key in late {
            if let Some(timer) = self.timers.remove(&key) {
                self.timers.insert((now, key.1), timer);
            }
        }
    }

    /// Runs the due timers.
    pub(super) fn run_due(&mut self, now: Duration) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let timer = entry.remove();
            self.act(now, |foca, runtime| foca.handle_timer(timer, runtime));
        }
    }

    /// Postpones all timers by the time for which the process did not run, because no response could arrive.
    pub(super) fn postpone(&mut self, by: Duration) {
        let timers = std::mem::take(&mut self.timers);
        self.timers =
            timers.into_iter().map(|((due, n), timer)| ((due.saturating_add(by), n), timer)).collect();
    }

    /// Adapts the number of repetitions of a change to the number of members.
    pub(super) fn resize(&mut self, members: usize) {
        let members = u32::try_from(members.max(1)).unwrap_or(u32::MAX);
        if members != self.members {
            self.members = members;
            // The new settings differ only in values that foca lets change.
            drop(self.foca.set_config(config(members)));
        }
    }

    pub(super) fn take_sends(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.sends)
    }

    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn act(
        &mut self,
        now: Duration,
        step: impl FnOnce(
            &mut Foca<Peer, WireCodec, StdRng, NoCustomBroadcast>,
            &mut AccumulatingRuntime<Peer>,
        ) -> Result<(), foca::Error>,
    ) {
        let had_changes = self.foca.updates_backlog() > 0;
        let mut runtime = AccumulatingRuntime::new();
        // Errors concern the input: bytes of another version, or a datagram that was sent to an earlier generation.
        if let Err(error) = step(&mut self.foca, &mut runtime) {
            tracing::trace!(%error, "failure detection ignored an input");
        }
        while let Some((peer, bytes)) = runtime.to_send() {
            self.sends.push((peer.addr, bytes.to_vec()));
        }
        while let Some((after, timer)) = runtime.to_schedule() {
            self.timers.insert((now.saturating_add(after), self.next_timer), timer);
            self.next_timer += 1;
        }
        if !had_changes && self.foca.updates_backlog() > 0 {
            self.catch_up(now);
        }
        while let Some(notification) = runtime.to_notify() {
            self.has_changed = true;
            if let OwnedNotification::Rejoin(peer) = notification {
                tracing::info!(
                    generation = peer.generation,
                    "other servers had declared this server failed; it rejoins"
                );
            }
        }
    }
}

/// Returns the member whose probe response is this datagram; `None` for other datagrams.
fn acknowledging(bytes: &[u8]) -> Option<Peer> {
    let header = WireCodec.decode_header(bytes).ok()?;
    matches!(header.message, Message::Ack(_)).then_some(header.src)
}

fn is_gossip(timer: &Timer<Peer>) -> bool {
    matches!(timer, Timer::PeriodicGossip(_))
}

fn config(members: u32) -> Config {
    let lan = Config::new_lan(NonZeroU32::new(members).unwrap_or(NonZeroU32::MIN));
    Config {
        probe_period: PROBE_PERIOD,
        probe_rtt: PROBE_TIMEOUT,
        suspect_to_down_after: SUSPICION,
        // In small clusters a change needs more repetitions than the logarithm gives.
        max_transmissions: lan.max_transmissions.max(MIN_TRANSMISSIONS),
        max_packet_size: DATAGRAM,
        notify_down_members: true,
        // The table decides how long members that failed or left are kept.
        remove_down_after: None,
        periodic_gossip: Some(PeriodicParams { frequency: GOSSIP.0, num_members: GOSSIP.1 }),
        periodic_announce: Some(PeriodicParams { frequency: ANNOUNCE, num_members: NonZeroUsize::MIN }),
        // The table retries failed members by syncs, also when no other member is alive.
        periodic_announce_to_down_members: None,
        ..lan
    }
}
