//! The state of the model: the servers' records, the nodes, the plugin, and calls and messages in flight.

use caravan_types::volume::{AttachCalls, ClaimPhase};
use caravan_volumes::invariants::{Outside, Rule, Verb};
use caravan_volumes::node::{self, Goal, Place, Tries};
use std::collections::{BTreeMap, BTreeSet};

pub use caravan_volumes::node::MountPhase as Mount;

/// The number of nodes, allocations and volumes.
pub const TWO: usize = 2;

/// The age from which a greater age makes no difference: every lease has run out and every fence has ended.
pub const OLD: u8 = 4;

/// The servers' desired state of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Desired {
    Unplaced,
    Run,
    Stop,
}

/// The allocation's state on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runner {
    /// The node has not received the allocation.
    None,
    Run,
    End,
}

/// A claim without its constant fields. Times are distances from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub phase: ClaimPhase,
    pub needs_attach: Option<bool>,
    pub attach_calls: AttachCalls,
    pub named: bool,
    pub proof: bool,
    pub generation: u32,
    /// The silence of the node for which the servers wait; 0 means that the node has been in contact since.
    pub fence: Option<u8>,
    /// The distance to the end of the fence on the servers' wall clock. It is recorded, and no decision may depend on
    /// it.
    pub wall_left: i8,
    /// Whether an operator confirmed that the node is off.
    pub off: bool,
}

/// An entry of the client's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub node: node::Entry,
    pub generation: u32,
}

impl Entry {
    pub fn phase(self) -> Mount {
        self.node.phase
    }
}

/// The stage of a volume on a node, as a place.
pub const STAGE: u8 = 1;

/// Returns the target of an allocation, as a place.
pub fn target(a: u8) -> u8 {
    10 + a
}

/// The state of one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alloc {
    pub node: u8,
    pub desired: Desired,
    pub claim: Option<Record>,
    pub runner: Runner,
    pub entry: Option<Entry>,
    /// Whether the servers have confirmed to the client that the claim holds, and its lease has not run out since.
    pub confirmed: bool,
    /// The generation of the claim when the client received the allocation.
    pub received_generation: u32,
    /// Whether the client has reported, once, that it has nothing of a claim that it never received.
    pub reported: bool,
    /// Whether the reconciler saw the fence of the claim end before its node returned, and has not acted yet.
    pub overdue: bool,
    /// Whether the allocation's task runs, and writes.
    pub task: bool,
    /// The client's call in flight.
    pub call: Option<Verb>,
    /// The current attempt, which holds the lock of the volume.
    pub trying: Option<Goal>,
    /// The calls of this attempt. A release has the calls of all its attempts.
    pub tries: Tries,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Whether the agent of the node runs.
    pub up: bool,
    /// Whether messages between the node and the servers arrive.
    pub linked: bool,
    /// The time since the last answered heartbeat was sent.
    pub age: u8,
    /// Whether the servers recorded the node's silence.
    pub silent: bool,
    /// The number of the node's silence, which stands for the index of the command that recorded it.
    pub silence: u8,
    /// The distance by which the node's wall clock has stepped; no decision may depend on it.
    pub skew: i8,
    /// Whether the node's record was removed.
    pub removed: bool,
}

impl Node {
    /// Returns whether the servers answer the node's heartbeats and renew its lease.
    pub fn renews(&self) -> bool {
        self.up && self.linked && !self.silent && !self.removed
    }
    /// Returns whether the node reaches the servers and they have its record.
    pub fn in_contact(&self) -> bool {
        self.renews()
    }
}

/// A controller call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerCall {
    pub alloc: u8,
    pub verb: Verb,
    /// Whether the leader that made the call is gone. In this case, no process receives the response.
    pub orphan: bool,
}

/// A late copy of a client's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    pub alloc: u8,
    pub generation: u32,
    pub ended: bool,
}

/// The faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub errors: u8,
    pub crashes: u8,
    pub cuts: u8,
    pub leaders: u8,
    pub copies: u8,
    pub removals: u8,
    pub silences: u8,
    pub regrants: u8,
    pub deaths: u8,
    /// The number of steps of the servers' and the clients' wall clocks, forward or back.
    pub steps: u8,
    /// The number of an operator's confirmations that a node is off, only given while it is off.
    pub confirms: u8,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub allocs: [Alloc; TWO],
    pub nodes: [Node; TWO],
    pub outside: [Outside<u8>; TWO],
    pub server_calls: [Option<ServerCall>; TWO],
    /// The mounts whose daemon has died: volume, node and place.
    pub dead: BTreeSet<(usize, u8, u8)>,
    /// The time for which the servers' process has seen the silences of nodes, on its own clock, by node and silence.
    /// A new leader has seen none.
    pub seen: BTreeMap<(u8, u8), u8>,
    pub copy: Option<Copy>,
    /// Whether the plugin has reported whether it attaches.
    pub plugin_reported: bool,
    pub budget: Budget,
    /// The rule that the last transition broke, with its location.
    pub broken: Option<(Rule, String)>,
}

/// A fault planted into the model, to show that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Planted {
    Nothing,
    /// Servers free a claim that is being released, without the client's proof.
    FreedWithoutProof,
    /// Servers do not wait for the lease of a silent node.
    NoFence,
    /// Servers compare the end of a fence with their wall clock.
    FenceByWallClock,
    /// The shim compares the end of the lease with the node's wall clock.
    LeaseByWallClock,
    /// A complete wait in an earlier silence of the node counts in the next one.
    EarlierWaitCounts,
    /// A heartbeat renews the lease before the node's return is recorded.
    RenewedBeforeRecorded,
    /// A node starts a task again on an existing mount, without checking whether the claim still holds.
    RestartWithoutAsking,
    /// A node uses a stage of a claim that may have ended.
    StageOfAnybody,
    /// A new leader calls the plugin while the call of the old one may still take effect.
    OverlappingLeaders,
    /// An unknown capability counts as absent.
    UnknownIsNo,
    /// The shim does not kill the task when the lease runs out.
    DeafShim,
    /// The client unstages although other claims use the stage.
    UnstageUnderOthers,
    /// A node does not report on an allocation that ended before the node received it.
    UnknownIgnored,
    /// A node that never mounted a volume reports that for the claim's first generation, even if it received another
    /// one.
    NothingOfTheFirst,
    /// A late report counts for the allocation's current claim, even if its generation is another one.
    GenerationIgnored,
    /// The client treats the plugin's refusal to undo a mount as proof of its end, even if the mount exists.
    RefusalIsProof,
    /// The client trusts the plugin only: a refusal keeps the claim, although nothing is mounted.
    WordIsTheOnlyProof,
    /// The client does not end a mount that blocks a new stage.
    StageInTheWay,
    /// The client ends a dead stage although other claims have their targets on it.
    DeadStageUnderUsers,
    /// A claim that never staged counts as a user of the stage.
    NewcomerIsUser,
    /// A refused call counts as never made.
    FailedIsNever,
    /// The servers treat an attach with an open outcome as a refused one.
    UnclearAttachIsRefused,
    /// The servers treat a plugin's refusal to detach as the end of the attachment.
    DetachRefusalIsProof,
    /// The servers only repeat a refused detach.
    DetachIsOnlyRepeated,
}

/// An explored setting.
#[derive(Clone, Debug)]
pub struct Setting {
    pub attach: bool,
    pub stage: bool,
    /// Whether many nodes and writers are allowed, instead of one node and one writer.
    pub shared: bool,
    /// Whether the plugin's node service is not idempotent: it refuses to undo nonexistent mounts, and to mount over
    /// a mount.
    pub strict: bool,
    /// Whether the plugin's controller refuses to detach a volume that is not attached.
    pub strict_controller: bool,
    /// Whether the plugin lists the nodes to which volumes are attached.
    pub lists_nodes: bool,
    /// The volume of each allocation.
    pub volume_of: [u8; TWO],
    /// The nodes on which each allocation may be placed.
    pub nodes_of: [&'static [u8]; TWO],
    /// Whether the plugin's capabilities are known from the start.
    pub plugin_reported: bool,
    pub budget: Budget,
    pub planted: Planted,
}

impl State {
    /// Returns the state of a place, as the kernel reports it.
    pub fn place(&self, volume: usize, node: u8, place: u8) -> Place {
        let outside = &self.outside[volume];
        let there = match place {
            STAGE => outside.staged.contains(&(node, place)),
            _ => outside.published.contains_key(&(node, place)),
        };
        match (there, self.dead.contains(&(volume, node, place))) {
            (false, _) => Place::Empty,
            (true, false) => Place::Mounted,
            (true, true) => Place::Dead,
        }
    }
}

impl Setting {
    pub fn initial(&self) -> State {
        let alloc = Alloc {
            node: 0,
            desired: Desired::Unplaced,
            claim: None,
            runner: Runner::None,
            entry: None,
            confirmed: false,
            received_generation: 0,
            reported: false,
            overdue: false,
            task: false,
            call: None,
            trying: None,
            tries: Tries::default(),
        };
        let node =
            Node { up: true, linked: true, age: 0, silent: false, silence: 0, skew: 0, removed: false };
        State {
            allocs: [alloc.clone(), alloc],
            nodes: [node.clone(), node],
            outside: Default::default(),
            server_calls: [None; TWO],
            dead: BTreeSet::new(),
            seen: BTreeMap::new(),
            copy: None,
            plugin_reported: self.plugin_reported,
            budget: self.budget,
            broken: None,
        }
    }
    pub fn volume(&self, alloc: u8) -> usize {
        usize::from(self.volume_of[usize::from(alloc)])
    }
    /// Returns whether the fence applies, which is the case for single-writer volumes only.
    pub fn fenced(&self) -> bool {
        !self.shared
    }
}
