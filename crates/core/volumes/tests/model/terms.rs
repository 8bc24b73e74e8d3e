//! The transfer of a fence across leader terms. There are two servers, of which each may believe that it leads, and a
//! node whose task is the only writer of a volume. A deposed leader keeps its old state until it receives the next
//! term.
//!
//! The decisions are the real ones (`reconcile::next`), and so is the state machine of the claim. The model in
//! `model.rs` has one process of servers at a time. This model has two at the same time.

use caravan_messages::ClaimReportStep;
use caravan_types::command::{ClaimStep, LetGo};
use caravan_types::volume::{AccessMode, AttachmentMode, Claim, ClaimMode, ClaimPhase, MountProof, Volume};
use caravan_types::{BootInstant, Nanos, UnixNanos};
use caravan_volumes::claim;
use caravan_volumes::lease::Lease;
use caravan_volumes::reconcile::{self, Action, Facts, Presence, Seen};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// A unit of the model's time, in nanoseconds.
const UNIT: i64 = 1_000_000_000;
const NOW: UnixNanos = UnixNanos(1_000 * UNIT);
const BOOT: BootInstant = BootInstant::from_nanos(77_000_000_000);
const LEASE: Lease = Lease { ttl: Nanos(UNIT), kill_grace: Nanos(UNIT), margin: Nanos(UNIT) };
/// The units after which the shim may have ended the task, and must have ended it (`KILLED`).
const TTL: u8 = 1;
const KILLED: u8 = 2;
/// The age from which a greater age makes no difference.
const OLD: u8 = 4;

/// A mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// A server that believes that it leads answers heartbeats without a round of heartbeats of the log.
    NoRound,
    /// A new leader counts the wait of its predecessor.
    InheritedWait,
    /// A new leader answers a heartbeat before it has recorded the node's return.
    RenewedBeforeRecorded,
    /// The next silence of a node has the index of the last one.
    SilenceWithoutIndex,
    /// The write of a deposed leader replaces the record.
    UncheckedWrite,
}

/// The part of the log that both servers read: the claim and its fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Records {
    silent: bool,
    silence: u8,
    phase: ClaimPhase,
    fence: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    /// The term in which the server believes that it leads; 0 means that it does not.
    term: u8,
    records: Records,
    /// The silence for which the server waits, and the time since the server first saw it.
    seen: Option<(u8, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    term: u8,
    records: Records,
    servers: [Server; 2],
    /// The time since the node sent the last heartbeat that a server answered.
    age: u8,
    linked: bool,
    /// Whether the node's task runs. The next field is the same for the task of another node.
    task: bool,
    second: bool,
    leaders: u8,
    cuts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Beat(usize),
    DeclareSilent(usize),
    DeclareLost(usize),
    Reconcile(usize),
    NewLeader(usize),
    Learn(usize),
    Kill,
    Report,
    PlaceSecond,
    Cut,
    Heal,
    Tick,
}

struct Terms {
    planted: Planted,
    /// Whether writes of a deposed leader reach the log. Only the checks of the records stop them then.
    late_writes: bool,
    times: u8,
}

fn claim(records: &Records) -> Claim {
    Claim {
        id: caravan_types::volume::ClaimId {
            volume: caravan_types::VolumeKey::new("default", "data"),
            alloc: "a".into(),
        },
        node_id: "n".into(),
        plugin_id: "p".into(),
        mode: ClaimMode::Write,
        access_mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        needs_attach: Some(false),
        phase: records.phase,
        fence_index: records.fence.map(u64::from),
        proof: Some(MountProof::default()),
        ..Claim::default()
    }
}

impl Terms {
    fn may_write(&self, state: &State, s: usize) -> bool {
        state.servers[s].term == state.term || self.late_writes || self.planted == Planted::UncheckedWrite
    }

    /// Takes a step as the real state does, if the record is unchanged since the server's decision.
    fn step(&self, state: &mut State, s: usize, step: &ClaimStep) {
        if !self.may_write(state, s) {
            return;
        }
        let decided_on = state.servers[s].records.clone();
        let unchecked = self.planted == Planted::UncheckedWrite;
        let records = &mut state.records;
        let unchanged = (records.phase, records.fence) == (decided_on.phase, decided_on.fence);
        let same = |index: u64| records.silent && u64::from(records.silence) == index;
        let valid = match step {
            ClaimStep::Fence { silence: Some(index), .. } | ClaimStep::Waited { fence: index, .. } => {
                same(*index)
            }
            _ => true,
        };
        let is_checked = unchanged && valid;
        if !unchecked && !is_checked {
            return;
        }
        let before = claim(if unchecked { &decided_on } else { records });
        if let Ok(after) = claim::step(&before, step, NOW) {
            records.phase = after.phase;
            records.fence = after.fence_index.and_then(|index| u8::try_from(index).ok());
        }
        self.publish(state);
    }

    /// Copies all records to the server that leads the current term.
    fn publish(&self, state: &mut State) {
        let (term, records) = (state.term, state.records.clone());
        for server in state.servers.iter_mut().filter(|server| server.term == term) {
            server.records = records.clone();
        }
    }

    fn decide(&self, state: &mut State, s: usize) -> Action {
        let server = &mut state.servers[s];
        let record = claim(&server.records);
        let node = match server.records.silent {
            true => Presence::Silent { index: u64::from(server.records.silence) },
            false => Presence::Here,
        };
        let mut seen = Seen::at(BOOT);
        let index = u8::try_from(reconcile::silence(&record, node)).unwrap_or(0);
        if index > 0 {
            let age = match server.seen {
                Some((known, age)) if known == index => age,
                _ => 0,
            };
            server.seen = Some((index, age));
            seen.silence = BootInstant::from_nanos(77_000_000_000 - u64::from(age) * 1_000_000_000);
        }
        reconcile::next(&Facts {
            volume: Some(&Volume::default()),
            claim: &record,
            others: &[],
            plugin: None,
            node,
            lease: LEASE,
            seen,
            now: BOOT,
        })
    }

    fn reconcile(&self, state: &mut State, s: usize) {
        let step = match self.decide(state, s) {
            Action::Fence { silence, wait } => {
                ClaimStep::Fence { until: NOW.plus(wait), silence: Some(silence) }
            }
            Action::Free => claim::let_go(&claim(&state.servers[s].records), LetGo::Freed),
            _ => return,
        };
        self.step(state, s, &step);
    }

    /// Delivers a heartbeat to a server that believes that it leads.
    fn beat(&self, state: &mut State, s: usize) {
        let leads = state.servers[s].term == state.term;
        if !leads && self.planted != Planted::NoRound {
            return;
        }
        if state.servers[s].records.silent {
            match self.planted {
                Planted::RenewedBeforeRecorded => {}
                _ if !leads => return,
                _ => {
                    state.records.silent = false;
                    state.records.fence = state.records.fence.map(|_| 0);
                    self.publish(state);
                }
            }
        }
        state.age = 0;
    }

    fn new_leader(&self, state: &mut State, s: usize) {
        state.leaders -= 1;
        state.term += 1;
        let inherited = self.planted == Planted::InheritedWait;
        let seen = inherited.then_some((state.records.silence, OLD));
        state.servers[s] = Server { term: state.term, records: state.records.clone(), seen };
    }

    fn declare_silent(&self, state: &mut State, s: usize) {
        if state.servers[s].term != state.term {
            return;
        }
        state.records.silent = true;
        if self.planted != Planted::SilenceWithoutIndex || state.records.silence == 0 {
            state.records.silence += 1;
        }
        self.publish(state);
    }

    /// Delivers the client's proof that nothing is mounted.
    fn report(&self, state: &mut State) {
        let leader = usize::from(state.servers[1].term == state.term);
        while let Some(step) = claim::reported(&claim(&state.records), &ClaimReportStep::Unstaged, NOW) {
            let before = state.records.clone();
            self.step(state, leader, &step);
            if state.records == before {
                return;
            }
        }
    }

    fn apply(&self, state: &mut State, event: Event) {
        match event {
            Event::Beat(s) => self.beat(state, s),
            Event::DeclareSilent(s) => self.declare_silent(state, s),
            Event::DeclareLost(s) => self.step(state, s, &ClaimStep::Release),
            Event::Reconcile(s) => self.reconcile(state, s),
            Event::NewLeader(s) => self.new_leader(state, s),
            Event::Learn(s) => state.servers[s].term = 0,
            Event::Kill => state.task = false,
            Event::Report => self.report(state),
            Event::PlaceSecond => state.second = true,
            Event::Cut => (state.linked, state.cuts) = (false, state.cuts - 1),
            Event::Heal => state.linked = true,
            Event::Tick => {
                state.age = (state.age + 1).min(OLD);
                let seen = state.servers.iter_mut().filter_map(|server| server.seen.as_mut());
                seen.for_each(|(_, age)| *age = (*age + 1).min(OLD));
            }
        }
    }
}

impl Model for Terms {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let records = Records { silent: false, silence: 0, phase: ClaimPhase::Mounted, fence: None };
        let server = |term| Server { term, records: records.clone(), seen: None };
        vec![State {
            term: 1,
            records: records.clone(),
            servers: [server(1), server(0)],
            age: 0,
            linked: true,
            task: true,
            second: false,
            leaders: self.times,
            cuts: self.times,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for s in 0..2 {
            let server = &state.servers[s];
            if server.term > 0 {
                events.push(Event::Reconcile(s));
                if state.linked {
                    events.push(Event::Beat(s));
                } else if !server.records.silent {
                    events.push(Event::DeclareSilent(s));
                }
                if server.records.silent && server.records.phase.is_live() {
                    events.push(Event::DeclareLost(s));
                }
                if server.term != state.term {
                    events.push(Event::Learn(s));
                }
            }
            if state.leaders > 0 && server.term != state.term {
                events.push(Event::NewLeader(s));
            }
        }
        if state.task && state.age >= TTL {
            events.push(Event::Kill);
        }
        if state.linked && !state.task && !state.records.silent {
            events.push(Event::Report);
        }
        if state.records.phase == ClaimPhase::Gone && !state.second {
            events.push(Event::PlaceSecond);
        }
        match state.linked {
            true if state.cuts > 0 => events.push(Event::Cut),
            true => {}
            false => events.push(Event::Heal),
        }
        // At this age, the shim has certainly ended its task.
        if !state.task || state.age < KILLED {
            events.push(Event::Tick);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, event);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one writer", |_, state: &State| !(state.task && state.second)),
            Property::sometimes("handed over by a second leader", |_, state: &State| {
                state.second && state.term > 1
            }),
        ]
    }
}

fn explore(planted: Planted, late_writes: bool, times: u8) -> Option<String> {
    let model = Terms { planted, late_writes, times };
    let checker = model.checker().threads(2);
    let checker = match planted {
        Planted::Nothing => checker,
        _ => checker.finish_when(HasDiscoveries::AnyOf(["one writer"].into())),
    };
    let checker = checker.spawn_bfs().join();
    println!("{planted:?}, late writes {late_writes}: {} states", checker.unique_state_count());
    if planted == Planted::Nothing {
        assert!(checker.discovery("handed over by a second leader").is_some(), "nothing is handed over");
    }
    let path = checker.discovery("one writer")?;
    Some(path.into_actions().iter().map(|event| format!("  {event:?}\n")).collect())
}

#[test]
fn fences_are_handed_over_between_terms() {
    for late_writes in [false, true] {
        for times in [1, 2] {
            if let Some(story) = explore(Planted::Nothing, late_writes, times) {
                panic!("late writes {late_writes}: two writers by\n{story}");
            }
        }
    }
}

#[test]
fn planted_faults_of_terms_are_found() {
    for planted in [
        Planted::NoRound,
        Planted::InheritedWait,
        Planted::RenewedBeforeRecorded,
        Planted::SilenceWithoutIndex,
        Planted::UncheckedWrite,
    ] {
        let story = explore(planted, false, 2).unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?} makes two writers by\n{story}");
    }
}
