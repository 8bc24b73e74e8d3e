//! The commands of the simulated servers, and the state that results from them.

use crate::book::Book;
use caravan_consensus::sim::HostId;
use caravan_consensus::{BoxError, Capture, Meaning, StateMachine};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The number of a node.
pub(crate) type NodeId = u32;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Action {
    Write {
        key: u8,
        value: u64,
    },
    Cas {
        key: u8,
        from: u64,
        to: u64,
    },
    /// Raises the feature level.
    Level(u32),
    /// A command that only programs of level 2 or later support.
    Newer(u64),
    NodeUp(NodeId),
    NodeDown {
        node: NodeId,
        wall: i64,
    },
    /// Grants the volume to a node, if the state still has this claim and its node is still down.
    Grant {
        from: Option<(u64, u64)>,
        to: NodeId,
    },
    Key(u64),
    /// A secret that is sealed with a key.
    Sealed(u64),
    Place {
        alloc: u64,
        node: NodeId,
    },
    Stop(u64),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Command {
    /// The id, unique in a simulation.
    pub(crate) id: u64,
    /// The term of the leader that created the command; `None` for a request.
    pub(crate) term: Option<u64>,
    pub(crate) action: Action,
}

impl Command {
    /// Returns the command of a request.
    pub(crate) fn of_request(id: u64, action: Action) -> Self {
        Self { id, term: None, action }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        rmp_serde::to_vec(self).expect("a command consists of numbers")
    }
}

/// The response of the state machine to an executed command.
pub(crate) const DONE: u8 = 0;
pub(crate) const CONFLICT: u8 = 1;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) up: bool,
    /// The number of times that the node was declared down.
    pub(crate) downs: u64,
    /// The wall time of the leader that declared the node down.
    pub(crate) down_wall: i64,
}

/// The holder of the only volume, which has a single writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) node: NodeId,
    pub(crate) epoch: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) index: u64,
    /// A hash of all commands up to the index.
    pub(crate) chain: u64,
    pub(crate) level: u32,
    pub(crate) registers: BTreeMap<u8, u64>,
    /// The number of times that each command was applied.
    pub(crate) seen: BTreeMap<u64, u32>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) claim: Option<Claim>,
    pub(crate) keys: BTreeSet<u64>,
    /// The running allocations.
    pub(crate) allocs: BTreeMap<u64, NodeId>,
}

pub(crate) type Replica = Arc<Mutex<State>>;

impl State {
    fn apply(&mut self, index: u64, command: &Command, bytes: &[u8]) -> u8 {
        let mut hash = DefaultHasher::new();
        (self.chain, index, bytes).hash(&mut hash);
        (self.index, self.chain) = (index, hash.finish());
        *self.seen.entry(command.id).or_default() += 1;
        match &command.action {
            Action::Write { key, value } => {
                self.registers.insert(*key, *value);
            }
            Action::Cas { key, from, to } => {
                if self.register(*key) != *from {
                    return CONFLICT;
                }
                self.registers.insert(*key, *to);
            }
            Action::Level(level) => self.level = self.level.max(*level),
            Action::Newer(_) => {}
            Action::NodeUp(node) => self.nodes.entry(*node).or_default().up = true,
            Action::NodeDown { node, wall } => {
                let node = self.nodes.entry(*node).or_default();
                if !node.up {
                    return CONFLICT;
                }
                (node.up, node.downs, node.down_wall) = (false, node.downs + 1, *wall);
            }
            Action::Grant { from, to } => {
                let now = self.claim.map(|claim| (claim.epoch, self.downs(claim.node)));
                let held = self.claim.is_some_and(|claim| self.is_up(claim.node));
                if now != *from || held {
                    return CONFLICT;
                }
                let epoch = self.claim.map_or(1, |claim| claim.epoch + 1);
                self.claim = Some(Claim { node: *to, epoch });
            }
            Action::Key(key) => {
                self.keys.insert(*key);
            }
            Action::Sealed(_) => {}
            Action::Place { alloc, node } => {
                self.allocs.insert(*alloc, *node);
            }
            Action::Stop(alloc) => {
                self.allocs.remove(alloc);
            }
        }
        DONE
    }

    pub(crate) fn register(&self, key: u8) -> u64 {
        self.registers.get(&key).copied().unwrap_or(0)
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.up)
    }

    pub(crate) fn downs(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |node| node.downs)
    }
}

/// The state machine of one server.
pub(crate) struct Machine {
    pub(crate) host: HostId,
    /// The feature level of the server's program.
    pub(crate) level: u32,
    /// The planted fault: whether commands that cannot be read are skipped.
    pub(crate) skips: bool,
    pub(crate) replica: Replica,
    pub(crate) book: Book,
}

impl StateMachine for Machine {
    fn apply(&mut self, index: u64, bytes: &[u8], _: Option<Meaning>) -> Result<Vec<u8>, BoxError> {
        let command: Command = rmp_serde::from_slice(bytes)?;
        let needs = match &command.action {
            Action::Level(level) => *level,
            Action::Newer(_) => 2,
            _ => 1,
        };
        if needs > self.level {
            if self.skips {
                return Ok(vec![DONE]);
            }
            return Err(format!("the committed command {index} needs a newer version").into());
        }
        let mut state = self.replica.lock();
        let before = state.index;
        let response = state.apply(index, &command, bytes);
        self.book.applied(self.host, before, &state, &command, response);
        Ok(vec![response])
    }

    fn snapshot(&self) -> Capture {
        let state = self.replica.lock().clone();
        Capture::whole(move || Ok(rmp_serde::to_vec(&state)?))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), BoxError> {
        let state: State = rmp_serde::from_slice(snapshot)?;
        if state.level > self.level && !self.skips {
            return Err("the state of the cluster needs a newer version".into());
        }
        self.book.restored(self.host, &state);
        *self.replica.lock() = state;
        Ok(())
    }
}
