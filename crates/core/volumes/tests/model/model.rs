//! The transitions, and the rules for every state.

use crate::client;
use crate::servers::{GRACE, KILLED, Servers, TTL};
use crate::state::*;
use caravan_types::volume::ClaimPhase;
use caravan_volumes::invariants::{Rule, same_users};
use caravan_volumes::node::{Answer, Place};
use stateright::{Model, Property};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The size of a step of a wall clock: the length of a fence.
const STEP: i8 = 3;

/// An event. `a` is an allocation, `n` a node, `v` a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    // Events of the servers.
    Place {
        a: u8,
        n: u8,
    },
    Stop {
        a: u8,
    },
    Reconcile {
        a: u8,
        stale: bool,
    },
    ControllerAnswers {
        v: u8,
        effect: bool,
        ok: bool,
    },
    DeclareSilent {
        n: u8,
    },
    DeclareLost {
        a: u8,
    },
    RemoveNode {
        n: u8,
    },
    /// An operator confirms that a node is off. The model allows the confirmation only if the node is off.
    ConfirmOff {
        n: u8,
    },
    LeaderChanges,
    /// The servers' wall clock steps.
    StepServers {
        by: i8,
    },
    /// A node's wall clock steps.
    StepNode {
        n: u8,
        by: i8,
    },
    // Events of the client.
    Learn {
        a: u8,
    },
    Ask {
        a: u8,
    },
    Work {
        a: u8,
    },
    NodeAnswers {
        a: u8,
        error: Option<(bool, Answer)>,
    },
    DaemonDies {
        v: u8,
        n: u8,
    },
    StartTask {
        a: u8,
    },
    EndTask {
        a: u8,
    },
    TellOver {
        a: u8,
    },
    Report {
        a: u8,
        received_generation: bool,
    },
    SayNothing {
        a: u8,
    },
    LateCopy,
    // Events of the environment.
    LeaseKills {
        a: u8,
    },
    Tick,
    Cut {
        n: u8,
    },
    Heal {
        n: u8,
    },
    Crash {
        n: u8,
        effect: bool,
    },
    Restart {
        n: u8,
    },
    Return {
        n: u8,
    },
    PluginTells,
}

impl Event {
    /// Returns whether the event is neither a fault nor a user's request, but happens by itself sooner or later.
    pub fn is_quiet(self) -> bool {
        match self {
            Self::Place { .. }
            | Self::Stop { .. }
            | Self::DeclareSilent { .. }
            | Self::DeclareLost { .. }
            | Self::RemoveNode { .. }
            | Self::ConfirmOff { .. }
            | Self::LeaderChanges
            | Self::StepServers { .. }
            | Self::StepNode { .. }
            | Self::LateCopy
            | Self::Cut { .. }
            | Self::DaemonDies { .. }
            | Self::Crash { .. } => false,
            Self::Reconcile { stale, .. } => !stale,
            Self::ControllerAnswers { ok, .. } => ok,
            Self::NodeAnswers { error, .. } => error.is_none(),
            Self::Report { received_generation, .. } => received_generation,
            _ => true,
        }
    }
}

/// The model of volumes, as stateright explores it.
#[derive(Clone, Debug)]
pub struct Volumes {
    pub setting: Setting,
    pub servers: Servers,
}

impl Volumes {
    pub fn new(setting: Setting) -> Self {
        Self { servers: Servers::new(&setting), setting }
    }

    fn of_alloc(&self, state: &State, a: u8, events: &mut Vec<Event>) {
        let alloc = &state.allocs[usize::from(a)];
        let node = &state.nodes[usize::from(alloc.node)];
        let spare = state.budget;
        let again = alloc.claim.is_some_and(|c| c.phase == ClaimPhase::Gone)
            && spare.regrants > 0
            && alloc.entry.is_none()
            && !alloc.task;
        // The allocations are placed in order, because they are symmetric.
        let turn = a == 0 || state.allocs[0].claim.is_some();
        if turn && (alloc.claim.is_none() || again) {
            for n in self.setting.nodes_of[usize::from(a)] {
                if state.nodes[usize::from(*n)].in_contact() {
                    events.push(Event::Place { a, n: *n });
                }
            }
        }
        if alloc.desired == Desired::Run {
            events.push(Event::Stop { a });
            if node.silent || node.removed {
                events.push(Event::DeclareLost { a });
            }
        }
        if alloc.claim.is_some_and(|c| c.phase.holds())
            && self.servers.has_turn(state, self.setting.volume(a))
        {
            events.push(Event::Reconcile { a, stale: false });
            if alloc.overdue {
                events.push(Event::Reconcile { a, stale: true });
            }
        }
        if node.in_contact() {
            events.extend([Event::Learn { a }, Event::Ask { a }]);
            if alloc.runner == Runner::End && !alloc.task {
                events.push(Event::TellOver { a });
                if alloc.entry.is_none() && !alloc.reported {
                    events.push(Event::SayNothing { a });
                }
            }
            if alloc.entry.is_some_and(|e| matches!(e.phase(), Mount::Mounted | Mount::Unstaged)) {
                events.push(Event::Report { a, received_generation: true });
                if spare.copies > 0 {
                    events.push(Event::Report { a, received_generation: false });
                }
            }
        }
        if node.up {
            if alloc.call.is_some() {
                events.push(Event::NodeAnswers { a, error: None });
                if spare.errors > 0 {
                    let errors = [(true, Answer::Unclear), (true, Answer::Refused), (false, Answer::Refused)];
                    events.extend(errors.map(|error| Event::NodeAnswers { a, error: Some(error) }));
                }
            } else {
                events.push(Event::Work { a });
            }
            if client::may_start(&self.setting, state, a) {
                events.push(Event::StartTask { a });
            }
            if alloc.task && alloc.runner == Runner::End {
                events.push(Event::EndTask { a });
            }
        }
        if alloc.task && self.shim_may_kill(node) {
            events.push(Event::LeaseKills { a });
        }
    }

    fn shim_may_kill(&self, node: &Node) -> bool {
        let age = match self.setting.planted {
            Planted::LeaseByWallClock => i16::from(node.age) + i16::from(node.skew),
            _ => i16::from(node.age),
        };
        self.setting.fenced() && age >= i16::from(TTL) && self.setting.planted != Planted::DeafShim
    }

    fn of_node(&self, state: &State, n: u8, events: &mut Vec<Event>) {
        let node = &state.nodes[usize::from(n)];
        let spare = state.budget;
        if node.up && node.linked {
            if spare.cuts > 0 {
                events.push(Event::Cut { n });
            }
            if node.silent || node.removed {
                events.push(Event::Return { n });
            }
        }
        if !node.linked {
            events.push(Event::Heal { n });
        }
        if !node.up {
            events.push(Event::Restart { n });
        } else if spare.crashes > 0 {
            events.push(Event::Crash { n, effect: false });
            if state.allocs.iter().any(|a| a.node == n && a.call.is_some()) {
                events.push(Event::Crash { n, effect: true });
            }
        }
        let is_missed = node.silent || node.removed;
        let answers = node.up && node.linked;
        if !is_missed && !answers && spare.silences > 0 {
            events.push(Event::DeclareSilent { n });
        }
        if node.silent && spare.removals > 0 {
            events.push(Event::RemoveNode { n });
        }
        let used = |v: u8| [STAGE, target(0), target(1)].map(|place| state.place(usize::from(v), n, place));
        if spare.deaths > 0 {
            let live = (0..2_u8).filter(|v| used(*v).contains(&Place::Mounted));
            events.extend(live.map(|v| Event::DaemonDies { v, n }));
        }
        let idle = !state.allocs.iter().any(|alloc| alloc.node == n && alloc.task);
        if (node.silent || node.removed) && !node.up && idle && spare.confirms > 0 {
            events.push(Event::ConfirmOff { n });
        }
        if spare.steps > 0 {
            events.extend([STEP, -STEP].map(|by| Event::StepNode { n, by }));
        }
    }

    /// Returns whether time may pass. It may not pass while a shim is late, because the shim has certainly ended its
    /// task by then.
    fn may_tick(&self, state: &State) -> bool {
        let late = state.allocs.iter().any(|alloc| {
            let node = &state.nodes[usize::from(alloc.node)];
            alloc.task && self.shim_may_kill(node) && node.age >= KILLED
        });
        let waits = state.seen.values().any(|age| *age < OLD);
        !late && (waits || state.nodes.iter().any(|n| !n.renews()))
    }

    /// Sends a heartbeat, which the servers answer if they have the node.
    fn beat(state: &mut State, n: u8) {
        let node = &mut state.nodes[usize::from(n)];
        if node.renews() {
            node.age = 0;
        }
    }

    fn tick(&self, state: &mut State) {
        for n in 0..2_u8 {
            let node = &mut state.nodes[usize::from(n)];
            let unrecorded = self.setting.planted == Planted::RenewedBeforeRecorded && node.up && node.linked;
            node.age = if node.renews() || unrecorded { 0 } else { (node.age + 1).min(OLD) };
            if node.age == TTL {
                client::lapse(state, n);
            }
        }
        for alloc in &mut state.allocs {
            if let Some(claim) = alloc.claim.as_mut().filter(|_| self.setting.budget.steps > 0) {
                claim.wall_left = (claim.wall_left - 1).max(0);
            }
        }
        for age in state.seen.values_mut() {
            *age = (*age + 1).min(OLD);
        }
    }

    fn report(&self, state: &mut State, a: u8, received: bool) {
        let Some(entry) = state.allocs[usize::from(a)].entry else { return };
        let ended = entry.phase() == Mount::Unstaged;
        self.servers.report(state, a, entry.generation, ended);
        if !received {
            state.budget.copies -= 1;
            state.copy = Some(Copy { alloc: a, generation: entry.generation, ended });
        } else if ended {
            let alloc = &mut state.allocs[usize::from(a)];
            alloc.entry = None;
            alloc.confirmed = false;
            alloc.reported = true;
            // The node has released its mounts: its calls count again, and the node is no longer lost.
            let (volume, node) = (self.setting.volume(a), alloc.node);
            self.found_again(state, volume, node);
        }
    }

    /// Marks a node in contact as not lost to a volume, if the node has no entry of that volume.
    fn found_again(&self, state: &mut State, volume: usize, node: u8) {
        let holds = (0..2_u8).filter(|a| self.setting.volume(*a) == volume);
        let mut holds = holds.map(|a| &state.allocs[usize::from(a)]);
        if !holds.any(|alloc| alloc.node == node && alloc.entry.is_some()) {
            state.outside[volume].lost.remove(&node);
        }
    }

    fn crash(&self, state: &mut State, n: u8, effect: bool) {
        state.budget.crashes -= 1;
        for a in 0..2_u8 {
            if state.allocs[usize::from(a)].node == n {
                client::crash(&self.setting, state, a, effect);
            }
        }
        state.nodes[usize::from(n)].up = false;
    }

    fn apply(&self, state: &mut State, event: Event) {
        let (setting, servers) = (&self.setting, &self.servers);
        match event {
            Event::Place { a, n } => {
                let again = state.allocs[usize::from(a)].claim.is_some();
                if servers.place(state, a, n) && again {
                    state.budget.regrants -= 1;
                }
            }
            Event::Stop { a } => state.allocs[usize::from(a)].desired = Desired::Stop,
            Event::Reconcile { a, stale } => {
                let action = servers.decide(state, a, stale);
                servers.act(state, a, action);
                state.allocs[usize::from(a)].overdue = false;
            }
            Event::ControllerAnswers { v, effect, ok } => {
                if !ok && state.server_calls[usize::from(v)].is_some_and(|c| !c.orphan) {
                    state.budget.errors -= 1;
                }
                servers.call_ends(state, usize::from(v), effect, ok);
            }
            Event::DeclareSilent { n } => {
                state.budget.silences -= 1;
                let node = &mut state.nodes[usize::from(n)];
                node.silent = true;
                if setting.planted != Planted::EarlierWaitCounts || node.silence == 0 {
                    node.silence += 1;
                }
            }
            Event::DeclareLost { a } => servers.over(state, a),
            Event::RemoveNode { n } => {
                state.budget.removals -= 1;
                let node = &mut state.nodes[usize::from(n)];
                (node.silent, node.removed) = (false, true);
            }
            Event::LeaderChanges => {
                state.budget.leaders -= 1;
                state.server_calls.iter_mut().flatten().for_each(|call| call.orphan = true);
                // A new leader starts every wait again.
                state.seen.clear();
            }
            Event::ConfirmOff { n } => {
                state.budget.confirms -= 1;
                Servers::confirmed_off(state, n);
            }
            Event::StepServers { by } => {
                state.budget.steps -= 1;
                for claim in state.allocs.iter_mut().filter_map(|alloc| alloc.claim.as_mut()) {
                    if claim.phase == ClaimPhase::Fencing {
                        claim.wall_left = (claim.wall_left - by).max(0);
                    }
                }
            }
            Event::StepNode { n, by } => {
                state.budget.steps -= 1;
                state.nodes[usize::from(n)].skew += by;
            }
            Event::Learn { a } => client::learn(setting, state, a),
            Event::Ask { a } => client::ask(setting, state, a),
            Event::Work { a } => client::work(setting, state, a),
            Event::NodeAnswers { a, error } => {
                if error.is_some() {
                    state.budget.errors -= 1;
                }
                client::call_ends(setting, state, a, error);
            }
            Event::DaemonDies { v, n } => {
                state.budget.deaths -= 1;
                client::daemon_dies(setting, state, usize::from(v), n);
            }
            Event::StartTask { a } => state.allocs[usize::from(a)].task = true,
            Event::EndTask { a } | Event::LeaseKills { a } => state.allocs[usize::from(a)].task = false,
            Event::TellOver { a } => servers.over(state, a),
            Event::Report { a, received_generation: received } => self.report(state, a, received),
            Event::SayNothing { a } => {
                state.allocs[usize::from(a)].reported = true;
                let first = setting.planted == Planted::NothingOfTheFirst;
                let received = state.allocs[usize::from(a)].received_generation;
                servers.report(state, a, if first { 0 } else { received }, true);
            }
            Event::LateCopy => {
                if let Some(copy) = state.copy.take() {
                    servers.report(state, copy.alloc, copy.generation, copy.ended);
                }
            }
            Event::Tick => self.tick(state),
            Event::Cut { n } => {
                state.budget.cuts -= 1;
                state.nodes[usize::from(n)].linked = false;
            }
            Event::Heal { n } => {
                state.nodes[usize::from(n)].linked = true;
                Self::beat(state, n);
            }
            Event::Crash { n, effect } => self.crash(state, n, effect),
            Event::Restart { n } => {
                state.nodes[usize::from(n)].up = true;
                Self::beat(state, n);
            }
            Event::Return { n } => {
                for alloc in state.allocs.iter_mut().filter(|alloc| alloc.node == n) {
                    let over = |silence: u8| state.seen.get(&(n, silence)) >= Some(&GRACE);
                    let waited = |c: Record| c.phase == ClaimPhase::Fencing && c.fence.is_some_and(over);
                    alloc.overdue = alloc.claim.is_some_and(waited);
                }
                let node = &mut state.nodes[usize::from(n)];
                (node.silent, node.removed) = (false, false);
                servers.returned(state, n);
                Self::beat(state, n);
                (0..TWO).for_each(|volume| self.found_again(state, volume, n));
            }
            Event::PluginTells => state.plugin_reported = true,
        }
    }

    /// Returns the reason that the state is not settled. In a settled state, every claim, task, target and attachment
    /// matches the desired state of its allocation.
    pub fn unsettled(&self, state: &State) -> Option<String> {
        for (a, alloc) in state.allocs.iter().enumerate() {
            let holds = alloc.claim.filter(|c| c.phase.holds());
            let mounted = holds.is_some_and(|c| c.phase == ClaimPhase::Mounted);
            match alloc.desired {
                Desired::Run if !mounted || !alloc.task => {
                    return Some(format!("allocation {a} should run and does not"));
                }
                Desired::Stop if holds.is_some() || alloc.task || alloc.entry.is_some() => {
                    return Some(format!("allocation {a} should be over and is not"));
                }
                _ => {}
            }
        }
        for volume in 0..TWO {
            let of = |has: &dyn Fn(&Alloc) -> bool| -> BTreeSet<(u8, u8)> {
                let all = (0..2_u8).filter(|a| self.setting.volume(*a) == volume);
                let all = all.map(|a| (a, &state.allocs[usize::from(a)])).filter(|(_, alloc)| has(alloc));
                all.map(|(a, alloc)| (alloc.node, a)).collect()
            };
            let claims = of(&|alloc| alloc.claim.is_some_and(|c| c.phase.holds()));
            let consumers = of(&|alloc| alloc.task);
            let mounts = of(&|alloc| alloc.entry.is_some_and(|e| e.phase() == Mount::Mounted));
            let outside = &state.outside[volume];
            let targets = outside.published.keys().map(|(n, t)| (*n, t - 10)).collect();
            let views = [("a consumer", &consumers), ("a mount", &mounts), ("a published target", &targets)];
            if let Some(wrong) = same_users("v", &claims, &views).into_iter().next() {
                return Some(wrong.text);
            }
            let nodes: BTreeSet<u8> = claims.iter().map(|(n, _)| *n).collect();
            if let Some((n, _)) = outside.staged.iter().find(|(n, _)| !nodes.contains(n)) {
                return Some(format!("volume {volume} is staged on node {n} without a claim"));
            }
            let expected = if self.setting.attach { nodes } else { BTreeSet::new() };
            if outside.attached != expected {
                return Some(format!("volume {volume} is attached to {:?}", outside.attached));
            }
        }
        None
    }

    /// Returns whether a state violates rule 3: no event happens by itself any more, and the state is not settled.
    fn stuck(&self, state: &State) -> bool {
        let mut events = Vec::new();
        self.actions(state, &mut events);
        let moves = events.into_iter().filter(|e| e.is_quiet()).any(|e| self.next_state(state, e).is_some());
        !moves && self.unsettled(state).is_some()
    }

    /// Returns whether the quiet continuation of a state is followed. One state in 256 is followed, or one in 8 with
    /// a planted fault, because following all states would take too long.
    fn is_sampled(&self, state: &State) -> bool {
        let one_in = if self.setting.planted == Planted::Nothing { 256 } else { 8 };
        hash(state).is_multiple_of(one_in)
    }

    /// Returns the final state of the fair continuation without new faults and requests, for one fair order of
    /// events.
    pub fn in_quiet(&self, state: &State) -> State {
        let mut state = state.clone();
        // The limit is far more than any continuation takes.
        for turn in 0..400_u16 {
            let mut events = Vec::new();
            self.actions(&state, &mut events);
            events.retain(|e| e.is_quiet());
            // Events are drawn fairly: no allocation retries permanently while other allocations make no progress.
            if !events.is_empty() {
                let by = usize::try_from(hash(&turn) % 1024).unwrap_or(0) % events.len();
                events.rotate_left(by);
            }
            match events.into_iter().find_map(|e| self.next_state(&state, e)) {
                Some(next) => state = next,
                None => return state,
            }
        }
        state
    }
}

impl Model for Volumes {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.setting.initial()]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        // A broken rule was found; later events do not matter.
        if state.broken.is_some() {
            return;
        }
        for n in 0..2_u8 {
            self.of_node(state, n, events);
        }
        for a in 0..2_u8 {
            self.of_alloc(state, a, events);
        }
        for v in 0..2_u8 {
            let Some(call) = state.server_calls[usize::from(v)] else { continue };
            events.push(Event::ControllerAnswers { v, effect: true, ok: true });
            if call.orphan || state.budget.errors > 0 {
                events.push(Event::ControllerAnswers { v, effect: false, ok: false });
            }
            if state.budget.errors > 0 && !call.orphan {
                events.push(Event::ControllerAnswers { v, effect: true, ok: false });
            }
        }
        let under_way = state.server_calls.iter().any(Option::is_some) || !state.seen.is_empty();
        if state.budget.leaders > 0 && under_way {
            events.push(Event::LeaderChanges);
        }
        if state.budget.steps > 0 {
            events.extend([STEP, -STEP].map(|by| Event::StepServers { by }));
        }
        if state.copy.is_some() {
            events.push(Event::LateCopy);
        }
        if !state.plugin_reported {
            events.push(Event::PluginTells);
        }
        if self.may_tick(state) {
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
            Property::always(
                "rules 2, 3, 4 and 6 of the records, one writer",
                |model: &Self, state: &State| model.servers.always(state).is_empty(),
            ),
            Property::always("rule 4: order of calls", |_, state: &State| {
                state.broken.as_ref().is_none_or(|(rule, _)| *rule != Rule::CallOrder)
            }),
            Property::always("rule 6: unknown is never no", |_, state: &State| {
                state.broken.as_ref().is_none_or(|(rule, _)| *rule != Rule::UnknownIsNotNo)
            }),
            Property::always("rule 3: nothing is stuck", |model: &Self, state: &State| !model.stuck(state)),
            Property::always("rule 3: quiet settles", |model: &Self, state: &State| {
                !model.is_sampled(state)
                    || state.broken.is_some()
                    || model.unsettled(&model.in_quiet(state)).is_none()
            }),
        ]
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
