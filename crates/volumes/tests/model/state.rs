//! What a state of the model is: the servers' records, the nodes, the plugin, and what is on its way.

use caravan_types::volume::{AttachCalls, ClaimPhase};
use caravan_volumes::invariants::{Outside, Rule, Verb};
use caravan_volumes::node::{self, Goal, Place, Tries};
use std::collections::{BTreeMap, BTreeSet};

pub use caravan_volumes::node::MountPhase as Mount;

/// Two of each.
pub const TWO: usize = 2;

/// Ages beyond this make no difference: every lease has run out and every fence is over.
pub const OLD: u8 = 4;

/// What the servers want of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    Unplaced,
    Run,
    Stop,
}

/// The allocation on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runner {
    /// The node has not heard of it.
    None,
    Run,
    End,
}

/// A claim without what never changes about it. Times are distances from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub phase: ClaimPhase,
    pub needs_attach: Option<bool>,
    pub attach_calls: AttachCalls,
    pub named: bool,
    pub proof: bool,
    pub generation: u32,
    /// The silence of the node that is waited out; 0 = the node was in contact since.
    pub fence: Option<u8>,
    /// When the fence ends by the servers' wall clock. It is written down, and must decide nothing.
    pub wall_left: i8,
    /// An operator confirmed that the node is off.
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

/// The target of an allocation, as a place.
pub fn target(a: u8) -> u8 {
    10 + a
}

/// Everything about one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alloc {
    pub node: u8,
    pub wanted: Wanted,
    pub claim: Option<Record>,
    pub runner: Runner,
    pub entry: Option<Entry>,
    /// The client knows from the servers that the claim holds, and its lease has not run out since.
    pub confirmed: bool,
    /// The generation of the claim when the client heard of the allocation.
    pub heard: u32,
    /// The client has told that it holds nothing of a claim that it never heard of; once.
    pub said: bool,
    /// The reconciler saw the fence of the claim end before its node came back, and has not acted yet.
    pub overdue: bool,
    /// Its task runs, and writes.
    pub task: bool,
    /// The client's call under way.
    pub call: Option<Verb>,
    /// The try under way, which has the turn on the volume.
    pub trying: Option<Goal>,
    /// The calls of this try; of a release, of all its tries.
    pub tries: Tries,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The agent runs.
    pub up: bool,
    /// Messages get through.
    pub linked: bool,
    /// Since the last answered heartbeat was sent.
    pub age: u8,
    /// The servers recorded that it fell silent.
    pub silent: bool,
    /// The number of its silence, which stands for the index with which it began.
    pub silence: u8,
    /// How far its wall clock is ahead of what it was: nothing may depend on it.
    pub skew: i8,
    /// Its record was removed.
    pub forgotten: bool,
}

impl Node {
    /// Its heartbeats are answered, and renew its lease.
    pub fn renews(&self) -> bool {
        self.up && self.linked && !self.silent && !self.forgotten
    }
    /// It can talk with the servers and is known to them.
    pub fn in_contact(&self) -> bool {
        self.renews()
    }
}

/// A controller call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerCall {
    pub alloc: u8,
    pub verb: Verb,
    /// The leader that made it is gone: nobody hears the answer.
    pub orphan: bool,
}

/// A late copy of a client's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    pub alloc: u8,
    pub generation: u32,
    pub ended: bool,
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub errors: u8,
    pub crashes: u8,
    pub cuts: u8,
    pub leaders: u8,
    pub copies: u8,
    pub forgets: u8,
    pub silences: u8,
    pub regrants: u8,
    pub deaths: u8,
    /// Steps of the servers' and the clients' wall clocks, forward or back.
    pub steps: u8,
    /// Words of an operator that a node is off, given only while it is.
    pub confirms: u8,
}

/// The whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub allocs: [Alloc; TWO],
    pub nodes: [Node; TWO],
    pub outside: [Outside<u8>; TWO],
    pub server_calls: [Option<ServerCall>; TWO],
    /// Mounts whose daemon has died: volume, node and place.
    pub dead: BTreeSet<(usize, u8, u8)>,
    /// Since when the servers' process has seen the silences of nodes, on its own clock: the age by node and silence.
    /// A new leader has seen none.
    pub seen: BTreeMap<(u8, u8), u8>,
    pub copy: Option<Copy>,
    /// The plugin has told whether it attaches.
    pub told: bool,
    pub budget: Budget,
    /// A rule that the last transition broke, with where it was stated.
    pub broken: Option<(Rule, String)>,
}

/// A fault planted into the model, to show that it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Planted {
    Nothing,
    /// Servers let go of a claim that is being released, without the client's proof.
    FreedWithoutProof,
    /// Servers do not wait for the lease of a silent node.
    NoFence,
    /// Servers compare the end of a fence with their wall clock.
    FenceByWallClock,
    /// The shim compares the end of the lease with the node's wall clock.
    LeaseByWallClock,
    /// What was waited out in an earlier silence of the node counts in the next one.
    EarlierWaitCounts,
    /// A heartbeat renews the lease before the node's return is on record.
    RenewedBeforeRecorded,
    /// A node starts a task again on a mount that it still has, without asking whether the claim still holds.
    RestartWithoutAsking,
    /// A node takes over a stage of a claim that may have ended.
    StageOfAnybody,
    /// A new leader calls the plugin while the call of the old one may still be carried out.
    OverlappingLeaders,
    /// A capability that is not known is taken for a no.
    UnknownIsNo,
    /// The shim does not end the task when the lease runs out.
    DeafShim,
    /// The client unstages although others use the stage.
    UnstageUnderOthers,
    /// A node says nothing of an allocation that was over before it heard of it.
    UnheardOfIgnored,
    /// A node that never mounted anything says so of the claim's first generation, whichever it heard of.
    NothingOfTheFirst,
    /// A late report counts for whatever claim the allocation has now.
    GenerationIgnored,
    /// The client takes the plugin's refusal to undo something for its end, whatever is mounted.
    RefusalIsProof,
    /// The client takes the plugin's word only: a refusal keeps the claim, although nothing is mounted.
    WordIsTheOnlyProof,
    /// The client does not end what is in the way of a new stage.
    StageInTheWay,
    /// The client ends a dead stage although others have their targets on it.
    DeadStageUnderUsers,
    /// A claim that never staged counts as a user of the stage.
    NewcomerIsUser,
    /// A call that was refused counts as never made.
    FailedIsNever,
    /// The servers take an attach whose outcome is open for one that was refused.
    UnclearAttachIsRefused,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Setting {
    pub attach: bool,
    pub stage: bool,
    /// Many nodes and writers, instead of one of each.
    pub shared: bool,
    /// The plugin's node service is not idempotent: it refuses to undo what is not there, and to mount where something is.
    pub strict: bool,
    /// The volume of each allocation.
    pub volume_of: [u8; TWO],
    /// The nodes on which each allocation may be placed.
    pub nodes_of: [&'static [u8]; TWO],
    /// The plugin's capabilities are known from the start.
    pub told: bool,
    pub budget: Budget,
    pub planted: Planted,
}

impl State {
    /// What the kernel says of a place.
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
            wanted: Wanted::Unplaced,
            claim: None,
            runner: Runner::None,
            entry: None,
            confirmed: false,
            heard: 0,
            said: false,
            overdue: false,
            task: false,
            call: None,
            trying: None,
            tries: Tries::default(),
        };
        let node =
            Node { up: true, linked: true, age: 0, silent: false, silence: 0, skew: 0, forgotten: false };
        State {
            allocs: [alloc.clone(), alloc],
            nodes: [node.clone(), node],
            outside: Default::default(),
            server_calls: [None; TWO],
            dead: BTreeSet::new(),
            seen: BTreeMap::new(),
            copy: None,
            told: self.told,
            budget: self.budget,
            broken: None,
        }
    }
    pub fn volume(&self, alloc: u8) -> usize {
        usize::from(self.volume_of[usize::from(alloc)])
    }
    /// The fence is for volumes that only one node may write.
    pub fn fenced(&self) -> bool {
        !self.shared
    }
}
