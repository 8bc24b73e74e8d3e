//! The explored system.

use caravan_founding::{
    Answer, Candidate, ClusterId, Founding, Own, Promise, Reply, ServerUuid, Step, accepts_admission,
    accepts_log, next, reply, stands,
};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use uuid::Uuid;

/// A fault in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// A server founds as soon as it sees N servers.
    FirstSeenN,
    /// The promises of a majority suffice.
    Majority,
    /// A server drops its promise while the founding is still possible.
    PromiseExpires,
    /// A promise is stored only in memory.
    PromiseNotStored,
    /// A cluster admits a server that is promised to another founding.
    AdmittedDespitePromise,
}

/// The bounds of an exploration.
#[derive(Clone, Debug)]
pub struct Setting {
    pub servers: u8,
    pub expect: usize,
    /// The largest number of crashes.
    pub crashes: u8,
    /// The largest number of proposed cluster ids.
    pub proposals: u8,
    /// The fault in the rules of this exploration.
    pub planted: Planted,
}

/// A message on its way. A message that was sent may arrive at any time, and several times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    Ask { to: u8, founding: Founding },
    Answered { from: u8, founding: Founding, answer: Answer },
    Inquiry { from: u8, founding: Founding },
    Fallen { to: u8, founding: Founding },
}

/// A server, with its durable facts and the answers that a crash loses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub own: Own,
    answers: BTreeMap<ServerUuid, Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub servers: Vec<Server>,
    messages: BTreeSet<Message>,
    /// The foundings whose proposer has written the log.
    pub founded: BTreeSet<Founding>,
    crashes: u8,
    proposals: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A server takes a step that some member table causes. The table may lack servers, and rows may be old. A table
    /// that were part of the state would multiply the number of states by thousands.
    Step { server: u8, step: Step },
    /// A message arrives.
    Arrive(Message),
    /// A message arrives, and the server crashes after it has stored the change.
    ArriveAndCrash(Message),
    /// A server takes its next step and crashes.
    StepAndCrash { server: u8, step: Step },
    /// The log of a cluster reaches a founder.
    Replicate { from: u8, to: u8 },
    /// A cluster admits a server.
    Admit { from: u8, to: u8 },
    /// The planted fault.
    Expire { server: u8 },
}

/// Returns the id of a server.
pub fn id(server: u8) -> ServerUuid {
    ServerUuid(Uuid::from_u128(u128::from(server) + 1))
}

fn position(id: ServerUuid) -> u8 {
    u8::try_from(id.0.as_u128() - 1).expect("a model has a few servers")
}

impl State {
    fn at(&mut self, server: u8) -> &mut Server {
        &mut self.servers[usize::from(server)]
    }

    fn server(&self, server: u8) -> &Server {
        &self.servers[usize::from(server)]
    }

    fn send(&mut self, message: Message) {
        self.messages.insert(message);
    }
}

impl Server {
    /// Loses everything that is not on disk.
    fn crash(&mut self) {
        self.answers.clear();
    }

    fn row(&self) -> Candidate {
        Candidate { server: self.own.server, expect: self.own.expect, cluster: self.own.cluster }
    }
}

impl Setting {
    fn initial(&self) -> State {
        let server = |n| Server {
            own: Own { server: id(n), expect: self.expect, cluster: None, promise: None },
            answers: BTreeMap::new(),
        };
        State {
            servers: (0..self.servers).map(server).collect(),
            messages: BTreeSet::new(),
            founded: BTreeSet::new(),
            crashes: self.crashes,
            proposals: self.proposals,
        }
    }

    /// Returns the next step of a server with a member table, by the rules or by the planted fault.
    fn decide(&self, server: &Server, members: &[Candidate]) -> Step {
        let step = next(&server.own, members, &server.answers);
        match (self.planted, step) {
            (Planted::FirstSeenN, Step::Ask { founding, .. }) => Step::Found(founding),
            (Planted::Majority, Step::Ask { founding, missing })
                if missing.len() * 2 < founding.servers.len() =>
            {
                Step::Found(founding)
            }
            (_, step) => step,
        }
    }

    /// Returns the different steps of a server over all member tables. In a table, each other server is missing, has
    /// its present row, or has the row from before it was in a cluster.
    fn steps(&self, state: &State, server: u8) -> Vec<Step> {
        let others: Vec<u8> = (0..self.servers).filter(|other| *other != server).collect();
        let mut steps = Vec::new();
        for table in 0..3_u32.pow(u32::from(self.servers) - 1) {
            let row = |(place, other): (u32, &u8)| {
                let row = state.server(*other).row();
                match table / 3_u32.pow(place) % 3 {
                    0 => None,
                    1 => Some(row),
                    _ => Some(Candidate { cluster: None, ..row }),
                }
            };
            let members: Vec<Candidate> = (0..).zip(&others).filter_map(row).collect();
            let step = self.decide(state.server(server), &members);
            if !matches!(step, Step::Wait(_)) && !steps.contains(&step) {
                steps.push(step);
            }
        }
        steps
    }

    fn step(&self, state: &mut State, server: u8, step: &Step) {
        match step.clone() {
            Step::Done => state.at(server).own.promise = None,
            Step::Wait(_) => {}
            Step::Propose { servers } => {
                let Some(left) = state.proposals.checked_sub(1) else { return };
                state.proposals = left;
                let drawn = u128::from(left) + 100;
                let cluster = ClusterId(Uuid::from_u128(drawn));
                let founding = Founding { cluster, proposer: id(server), servers };
                let at = state.at(server);
                at.own.promise = Some(Promise { founding });
                at.answers.clear();
            }
            Step::Ask { founding, missing } => {
                for to in missing {
                    state.send(Message::Ask { to: position(to), founding: founding.clone() });
                }
            }
            Step::Withdraw { .. } => {
                let at = state.at(server);
                at.own.promise = None;
                at.answers.clear();
            }
            Step::Inquire { founding } => state.send(Message::Inquiry { from: server, founding }),
            Step::Found(founding) => {
                // Two durable writes, which a crash may separate.
                let own = &mut state.at(server).own;
                if own.cluster.replace(founding.cluster).is_some() {
                    own.promise = None;
                    state.founded.insert(founding);
                }
            }
        }
    }

    /// Lets a message arrive. Returns the server that it reached, for a crash, and the answer.
    fn arrive(&self, state: &mut State, message: &Message) -> (u8, Option<Message>) {
        match message.clone() {
            Message::Ask { to, founding } => {
                let at = state.at(to);
                let answer = match reply(&at.own, &founding) {
                    Reply::Store(promise) => {
                        if self.planted != Planted::PromiseNotStored {
                            at.own.promise = Some(promise);
                        }
                        at.answers.clear();
                        Answer::Promised
                    }
                    Reply::Send(answer) => answer,
                };
                (to, Some(Message::Answered { from: to, founding, answer }))
            }
            Message::Answered { from, founding, answer } => {
                let to = position(founding.proposer);
                let at = state.at(to);
                let is_current = at.own.promise.as_ref().is_some_and(|promise| promise.founding == founding);
                // A late refusal does not replace a promise: the promise holds.
                let promised = at.answers.get(&id(from)) == Some(&Answer::Promised);
                if is_current && at.own.cluster.is_none() && !promised {
                    at.answers.insert(id(from), answer);
                }
                (to, None)
            }
            Message::Inquiry { from, founding } => {
                let to = position(founding.proposer);
                let fallen = !stands(&state.server(to).own, &founding);
                (to, fallen.then_some(Message::Fallen { to: from, founding }))
            }
            Message::Fallen { to, founding } => {
                let own = &mut state.at(to).own;
                own.promise.take_if(|promise| promise.founding == founding);
                (to, None)
            }
        }
    }

    fn apply(&self, state: &mut State, event: &Event) {
        match event {
            Event::Step { server, step } => self.step(state, *server, step),
            Event::StepAndCrash { server, step } => {
                state.crashes -= 1;
                self.step(state, *server, step);
                state.at(*server).crash();
            }
            Event::Arrive(message) => {
                let (_, answer) = self.arrive(state, message);
                state.messages.extend(answer);
            }
            Event::ArriveAndCrash(message) => {
                state.crashes -= 1;
                let (server, _) = self.arrive(state, message);
                state.at(server).crash();
            }
            Event::Replicate { from, to } | Event::Admit { from, to } => {
                state.at(*to).own.cluster = state.server(*from).own.cluster;
            }
            Event::Expire { server } => state.at(*server).own.promise = None,
        }
    }

    /// Returns how a server with a log may pass it on to one without.
    fn passes_on(&self, state: &State, from: u8, to: u8) -> Option<Event> {
        let cluster = state.server(from).own.cluster?;
        let own = &state.server(to).own;
        if own.cluster.is_some() {
            return None;
        }
        let founders = state.founded.iter().find(|founding| founding.cluster == cluster)?;
        if founders.servers.contains(&id(to)) {
            return accepts_log(own, cluster).then_some(Event::Replicate { from, to });
        }
        let accepts = accepts_admission(own, cluster) || self.planted == Planted::AdmittedDespitePromise;
        accepts.then_some(Event::Admit { from, to })
    }

    /// Adds the events of a state that need no fault. Only their fair continuation comes to rest.
    fn quiet(&self, state: &State, events: &mut Vec<Event>) {
        for server in 0..self.servers {
            for other in (0..self.servers).filter(|other| *other != server) {
                events.extend(self.passes_on(state, server, other));
            }
        }
        events.extend(state.messages.iter().cloned().map(Event::Arrive));
    }

    /// Returns the final state of a fair continuation without new crashes: all servers see each other, and each
    /// message arrives once.
    pub fn in_quiet(&self, state: &State) -> State {
        let mut state = State { proposals: u8::MAX, ..state.clone() };
        for _ in 0..60 {
            let before = state.clone();
            for message in std::mem::take(&mut state.messages) {
                self.apply(&mut state, &Event::Arrive(message));
            }
            for server in 0..self.servers {
                let others = state.servers.iter().map(Server::row).filter(|row| row.server != id(server));
                let members: Vec<Candidate> = others.collect();
                let step = self.decide(state.server(server), &members);
                self.apply(&mut state, &Event::Step { server, step });
            }
            for from in 0..self.servers {
                for to in (0..self.servers).filter(|to| *to != from) {
                    if let Some(event) = self.passes_on(&state, from, to) {
                        self.apply(&mut state, &event);
                    }
                }
            }
            if before == state {
                break;
            }
        }
        state
    }
}

impl Model for Setting {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        self.quiet(state, events);
        for server in 0..self.servers {
            for step in self.steps(state, server) {
                if state.crashes > 0 {
                    events.push(Event::StepAndCrash { server, step: step.clone() });
                }
                events.push(Event::Step { server, step });
            }
        }
        if self.planted == Planted::PromiseExpires {
            events.extend((0..self.servers).map(|server| Event::Expire { server }));
        }
        if state.crashes > 0 {
            events.extend(state.messages.iter().cloned().map(Event::ArriveAndCrash));
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        self.apply(&mut state, &event);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_CLUSTER, |_, state: &State| {
                let pairs = state.founded.iter().flat_map(|a| state.founded.iter().map(move |b| (a, b)));
                let mut pairs = pairs.filter(|(a, b)| a != b);
                pairs.all(|(a, b)| a.servers.is_disjoint(&b.servers))
            }),
            Property::always(ONE_VOTE, |_, state: &State| {
                let founders = |founding: &Founding| {
                    let servers = founding.servers.iter().map(|server| state.server(position(*server)));
                    let elsewhere = servers.filter_map(|s| s.own.cluster.filter(|c| *c != founding.cluster));
                    elsewhere.count() == 0
                };
                state.founded.iter().all(founders)
            }),
            Property::always(SETTLES, |model: &Self, state: &State| {
                let mut hasher = DefaultHasher::new();
                state.hash(&mut hasher);
                // Following every state would take too long.
                if model.planted != Planted::Nothing || !hasher.finish().is_multiple_of(64) {
                    return true;
                }
                let quiet = model.in_quiet(state);
                let is_founded = |id| quiet.founded.iter().any(|founding| founding.cluster == id);
                quiet.servers.iter().all(|server| server.own.cluster.is_some_and(is_founded))
            }),
            Property::sometimes(CLUSTER, |_, state: &State| !state.founded.is_empty()),
        ]
    }
}

pub const ONE_CLUSTER: &str = "foundings with a common server do not both succeed";
pub const ONE_VOTE: &str = "no founder of a cluster is in another one";
pub const SETTLES: &str = "in quiet, every server is in a cluster";
pub const CLUSTER: &str = "a cluster is founded";
