//! The servers' next action for a claim.
//!
//! [`next`] compares the record with the state of the plugin, the node and the volume's other claims. The servers
//! call the function after every change and at every time that it returned. Repeated calls are harmless. Every wait
//! has a typed reason ([`Wait`]).

use crate::claim::owes_detach;
use crate::lease::{Lease, needs_fence};
use crate::wait::{ControllerStep, FailedTry, NodeStep, Wait, WaitReason};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::plugin::Plugin;
use caravan_types::volume::{AttachCalls, Claim, ClaimMode, ClaimPhase, Volume, VolumePhase};
use caravan_types::{BootInstant, Nanos};

/// The contact state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The node is in contact.
    Here,
    /// The node's heartbeats stopped.
    Silent {
        /// The index of the command that recorded this silence.
        index: u64,
    },
    /// The node has no record any more.
    Unknown,
}

impl Presence {
    /// Returns the presence of a node by its record.
    pub fn from_node(node: Option<&Node>) -> Self {
        match node {
            None => Self::Unknown,
            Some(node) => match node.status {
                NodeStatus::Ready | NodeStatus::Initializing => Self::Here,
                NodeStatus::Down | NodeStatus::Disconnected => {
                    Self::Silent { index: node.last_missed_heartbeat_index }
                }
            },
        }
    }
}

/// The times when the deciding server first saw the reasons for its waits, on its own clock. A server that did not
/// see the start of a wait starts the whole wait again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The silence of the claim's node that [`silence`] returns.
    pub silence: BootInstant,
    /// The failure to which the claim's `tries` and `next_try` belong.
    pub failure: BootInstant,
    /// The failed attempts that do not count for the wait after the failure: earlier leaders made them, or the plugin
    /// had other controllers.
    pub earlier_tries: u32,
}

impl Seen {
    /// Returns the times for a server that sees all reasons for the first time.
    pub fn at(now: BootInstant) -> Self {
        Self { silence: now, failure: now, earlier_tries: 0 }
    }
}

/// The inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The volume, or `None` if its record was removed by force.
    pub volume: Option<&'a Volume>,
    /// The claim for which the action is decided.
    pub claim: &'a Claim,
    /// The volume's other claims, possibly with claims that are gone.
    pub others: &'a [&'a Claim],
    /// The claim's plugin.
    pub plugin: Option<&'a Plugin>,
    /// The claim's node.
    pub node: Presence,
    /// The spans of the fence.
    pub lease: Lease,
    /// The start times of the waits.
    pub seen: Seen,
    /// The current time, on the same clock.
    pub now: BootInstant,
}

/// Returns the silence of a claim's node that the servers wait out, as the index of the command that recorded it.
/// Returns zero while the node is in contact. Also returns zero for a node without a record, as long as no record
/// states when its silence began.
pub fn silence(claim: &Claim, node: Presence) -> u64 {
    match node {
        Presence::Here => 0,
        Presence::Silent { index } => index,
        Presence::Unknown => claim.fence_index.unwrap_or(0),
    }
}

/// Returns how long the deciding server still waits for the lease of the claim's node, or `None` if it does not wait.
pub fn fence_left(facts: &Facts<'_>) -> Option<Nanos> {
    let claim = facts.claim;
    let waits = match facts.node {
        Presence::Here => false,
        _ if !claim.phase.may_be_on_node() => false,
        Presence::Silent { .. } => !claim.phase.is_live() || needs_fence(claim.access_mode, claim.mode),
        Presence::Unknown => !claim.phase.is_live(),
    };
    waits.then(|| wait_left(facts)).filter(|left| *left > Nanos::ZERO)
}

fn wait_left(facts: &Facts<'_>) -> Nanos {
    match facts.claim.node_off {
        Some(_) => Nanos::ZERO,
        None => facts.lease.wait_left(facts.seen.silence, facts.now),
    }
}

/// The next action for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Record the intent (`IntendAttach`), call ControllerPublishVolume, record the outcome.
    Attach {
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// The plugin does not attach: record `Attached` without a call.
    MarkAttached {
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// Record the intent (`IntendDetach`), call ControllerUnpublishVolume, record the outcome.
    Detach,
    /// Another claim on the node still uses the attachment: record `LeftAttached` without a call.
    LeaveAttached,
    /// Nothing remains: record `Freed`.
    Free,
    /// The plugin requires an expansion on the node: call NodeExpandVolume, record `Expanded`. The intent is the
    /// volume's `node_expand_to`.
    ExpandNode {
        /// The minimum size in bytes.
        to: i64,
    },
    /// The node vanished: record `Fence`.
    Fence {
        /// The silence of the node for which the servers wait; 0 means that the node has no record. In that case, the
        /// wait begins with this step.
        silence: u64,
        /// The expected length of the wait, for display.
        wait: Nanos,
    },
    /// Only the client or another claim can make progress.
    WaitForClient(Wait),
    /// The plugin must become healthy or report its capabilities.
    WaitForPlugin(Wait),
    /// Decide again at this time.
    WaitUntil {
        /// The time, on the clock of the deciding server.
        time: BootInstant,
        /// The reason of the wait.
        wait: Wait,
    },
    /// Nothing to do: the volume is in use, or the claim is gone.
    Nothing,
}

impl Action {
    /// Returns the wait of the action, or `None` if the action is no wait.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            Self::WaitForClient(wait) | Self::WaitForPlugin(wait) | Self::WaitUntil { wait, .. } => {
                Some(wait)
            }
            _ => None,
        }
    }

    /// Returns the reason of the wait, or `None` if the action is no wait.
    pub fn reason(&self) -> Option<&WaitReason> {
        self.wait().map(|wait| &wait.reason)
    }
}

/// Returns the next action for a claim.
pub fn next(facts: &Facts<'_>) -> Action {
    if matches!(facts.claim.phase, ClaimPhase::Attached | ClaimPhase::Mounted)
        && let Some(action) = abandoned(facts)
    {
        return action;
    }
    match facts.claim.phase {
        ClaimPhase::Reserved | ClaimPhase::Attaching => attach(facts),
        ClaimPhase::Attached => client(facts, node_step(facts, NodeStep::Mount)),
        ClaimPhase::Mounted => grow(facts),
        ClaimPhase::Gone => Action::Nothing,
        ClaimPhase::Releasing => release(facts, NodeStep::Unpublish),
        ClaimPhase::Unpublished => release(facts, NodeStep::Unstage),
        ClaimPhase::Unstaged | ClaimPhase::Detaching => detach(facts),
        ClaimPhase::Fencing => fence(facts),
    }
}

/// Returns whether the node still must expand its mount for the claim. The right to use the volume does not depend on
/// the expansion.
pub fn owes_growth(volume: &Volume, claim: &Claim) -> bool {
    claim.phase == ClaimPhase::Mounted && claim.expanded_to < volume.node_expand_to
}

fn grow(facts: &Facts<'_>) -> Action {
    let claim = facts.claim;
    let Some(volume) = facts.volume.filter(|volume| owes_growth(volume, claim)) else {
        return Action::Nothing;
    };
    if facts.node != Presence::Here {
        return client(facts, WaitReason::NodeSilentForGrowth { node: claim.node_id.clone() });
    }
    backoff(facts).unwrap_or(Action::ExpandNode { to: volume.node_expand_to })
}

/// Returns whether a plugin that expands only unused volumes can expand the volume now. Reserved claims do not count
/// as use, because they wait for the volume's call to end.
pub fn unused<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> bool {
    claims.into_iter().all(|claim| matches!(claim.phase, ClaimPhase::Reserved | ClaimPhase::Gone))
}

/// Returns a wait for the client, with the record's last failure.
fn client(facts: &Facts<'_>, reason: WaitReason) -> Action {
    Action::WaitForClient(Wait { reason, failure: FailedTry::recorded(facts.claim) })
}

fn node_step(facts: &Facts<'_>, step: NodeStep) -> WaitReason {
    WaitReason::NodeStep { node: facts.claim.node_id.clone(), step }
}

/// Returns the wait that an earlier failure requires.
fn backoff(facts: &Facts<'_>) -> Option<Action> {
    let claim = facts.claim;
    let tries = claim.tries.saturating_sub(facts.seen.earlier_tries).max(1);
    let due = facts.seen.failure.plus(crate::retry::delay(tries));
    let wait = Wait { reason: WaitReason::Retry, failure: FailedTry::recorded(claim) };
    (!claim.next_try.is_zero() && due > facts.now).then_some(Action::WaitUntil { time: due, wait })
}

/// Checks that a healthy controller is available for a call, and otherwise returns the wait for it.
#[expect(clippy::result_large_err, reason = "the error is a decision that is moved once, not a failure")]
fn need_controller(facts: &Facts<'_>, step: ControllerStep) -> Result<(), Action> {
    let plugin = facts.claim.plugin_id.clone();
    Err(wait_for_plugin(match facts.plugin {
        None => WaitReason::PluginUnknown { plugin, step: Some(step) },
        Some(row) if row.controllers.values().any(|c| c.healthy) => return Ok(()),
        Some(_) => WaitReason::NoHealthyController { plugin, step },
    }))
}

fn wait_for_plugin(reason: WaitReason) -> Action {
    Action::WaitForPlugin(reason.into())
}

fn attach(facts: &Facts<'_>) -> Action {
    try_attach(facts).unwrap_or_else(|wait| wait)
}

#[expect(clippy::result_large_err, reason = "the error is a decision that is moved once, not a failure")]
fn try_attach(facts: &Facts<'_>) -> Result<Action, Action> {
    let claim = facts.claim;
    if facts.node != Presence::Here {
        return Err(client(facts, WaitReason::NodeSilent { node: claim.node_id.clone() }));
    }
    match facts.volume.map(|v| v.phase) {
        Some(VolumePhase::Ready | VolumePhase::Expanding) => {}
        Some(VolumePhase::Creating) => return Err(client(facts, WaitReason::VolumeCreating)),
        Some(VolumePhase::Deleting) => return Err(client(facts, WaitReason::VolumeDeleting)),
        None => return Err(client(facts, WaitReason::VolumeGone)),
    }
    if let Some(other) = in_the_way(facts) {
        let (alloc, node) = (other.id.alloc.clone(), other.node_id.clone());
        return Err(client(facts, WaitReason::OtherClaim { alloc, node, phase: other.phase }));
    }
    if let Some(wait) = backoff(facts) {
        return Err(wait);
    }
    // The intent is durable, but the outcome of an earlier call is unknown, so the call is repeated.
    if claim.phase == ClaimPhase::Attaching {
        need_controller(facts, ControllerStep::Attach)?;
        return Ok(Action::Attach { external_node_id: claim.external_node_id.clone() });
    }
    let id = || claim.plugin_id.clone();
    let Some(plugin) = facts.plugin else {
        return Err(wait_for_plugin(WaitReason::PluginUnknown { plugin: id(), step: None }));
    };
    let Some(attaches) = plugin.attaches() else {
        return Err(wait_for_plugin(WaitReason::AttachSupportUnknown { plugin: id() }));
    };
    let external_node_id = external_node_id(plugin, claim);
    if !attaches {
        return Ok(Action::MarkAttached { external_node_id: external_node_id.unwrap_or_default() });
    }
    let Some(external_node_id) = external_node_id else {
        let node = claim.node_id.clone();
        return Err(wait_for_plugin(WaitReason::NodeIdUnknown { plugin: id(), node }));
    };
    need_controller(facts, ControllerStep::Attach)?;
    Ok(Action::Attach { external_node_id })
}

/// Returns the plugin's current id of the node. Nothing is attached yet, so an earlier id does not bind.
fn external_node_id(plugin: &Plugin, claim: &Claim) -> Option<String> {
    let info = plugin.nodes.get(&claim.node_id).and_then(|report| report.node_info.as_ref());
    let id = info.map_or(&claim.external_node_id, |info| &info.id);
    (!id.is_empty()).then(|| id.clone())
}

/// Returns a claim that must end before this claim may be attached. It is a claim on another node if either claim
/// allows only one node, or if both write and only one writer is allowed. It may also be a claim on this node that is
/// being detached.
pub fn in_the_way<'a>(facts: &Facts<'a>) -> Option<&'a Claim> {
    let claim = facts.claim;
    if !matches!(claim.phase, ClaimPhase::Reserved | ClaimPhase::Attaching) {
        return None;
    }
    facts.others.iter().copied().filter(|c| c.phase.holds() && c.id != claim.id).find(|other| {
        if other.node_id == claim.node_id {
            return other.phase == ClaimPhase::Detaching;
        }
        // Of two reserved claims, the later claim waits. Otherwise they would wait for each other.
        let later = (other.create_index, &other.id) > (claim.create_index, &claim.id);
        if other.phase == ClaimPhase::Reserved && later {
            return false;
        }
        let single_node = other.access_mode.single_node() || claim.access_mode.single_node();
        let single_writer = other.access_mode.single_writer() || claim.access_mode.single_writer();
        let both_write = other.mode == ClaimMode::Write && claim.mode == ClaimMode::Write;
        single_node || (single_writer && both_write)
    })
}

/// Handles a claim whose allocation may still run, on a node that is not in contact. A use that needs the node's
/// lease has certainly ended once the lease ran out. Only then is the right removed, because the node may return in
/// time. Other claims belong to the allocation until it has ended.
fn abandoned(facts: &Facts<'_>) -> Option<Action> {
    let claim = facts.claim;
    match facts.node {
        Presence::Here => None,
        // The node may register again before its lease runs out, without an effect on its task. Otherwise the
        // allocation is declared lost because its node is missing, and the claim is fenced during its release.
        Presence::Unknown => Some(client(facts, WaitReason::NodeUnknown { node: claim.node_id.clone() })),
        Presence::Silent { .. } if !needs_fence(claim.access_mode, claim.mode) => None,
        Presence::Silent { index } => Some(match wait_left(facts) {
            Nanos::ZERO => Action::Fence { silence: index, wait: Nanos::ZERO },
            _ => until_ended(facts),
        }),
    }
}

fn until_ended(facts: &Facts<'_>) -> Action {
    let reason = WaitReason::LeaseOfSilentNode { node: facts.claim.node_id.clone() };
    Action::WaitUntil { time: facts.lease.hand_over_at(facts.seen.silence), wait: reason.into() }
}

fn release(facts: &Facts<'_>, step: NodeStep) -> Action {
    match facts.node {
        Presence::Here => client(facts, node_step(facts, step)),
        Presence::Silent { index } => Action::Fence { silence: index, wait: wait_left(facts) },
        Presence::Unknown => begin_unknown(facts),
    }
}

fn fence(facts: &Facts<'_>) -> Action {
    let claim = facts.claim;
    match facts.node {
        // The node renews its lease, so the elapsed time proves nothing any more: the node's own report is needed.
        Presence::Here => {
            return client(facts, WaitReason::NodeBack { node: claim.node_id.clone() });
        }
        // The node returned and fell silent again, or an earlier version began the fence.
        Presence::Silent { index } if claim.fence_index != Some(index) => {
            return Action::Fence { silence: index, wait: wait_left(facts) };
        }
        Presence::Unknown if claim.fence_index.unwrap_or(0) == 0 => return begin_unknown(facts),
        Presence::Silent { .. } | Presence::Unknown => {}
    }
    if wait_left(facts) > Nanos::ZERO {
        return until_ended(facts);
    }
    detach(facts)
}

/// Begins the whole wait for a node without a record, because the time of its last contact is unknown.
fn begin_unknown(facts: &Facts<'_>) -> Action {
    let wait = if facts.claim.node_off.is_some() { Nanos::ZERO } else { facts.lease.grace() };
    Action::Fence { silence: 0, wait }
}

fn detach(facts: &Facts<'_>) -> Action {
    let claim = facts.claim;
    if claim.needs_attach == Some(false) && claim.phase != ClaimPhase::Detaching {
        return Action::Free;
    }
    let beside = facts
        .others
        .iter()
        .filter(|other| other.phase.holds() && other.id != claim.id && other.node_id == claim.node_id);
    let beside: Vec<&Claim> = beside.copied().collect();
    // A claim whose calls were all refused ends without a detach, so no attachment can be left to it. While its call
    // is in flight, the outcome is unknown, and a detach could run concurrently with the call.
    let calls = |other: &&Claim| (other.phase == ClaimPhase::Attaching).then_some(other.attach_calls);
    if let Some(other) = beside.iter().find(|other| calls(other) == Some(AttachCalls::Intended))
        && claim.phase != ClaimPhase::Detaching
    {
        return client(facts, WaitReason::AttachBeside { alloc: other.id.alloc.clone() });
    }
    let heir = beside
        .iter()
        .find(|other| calls(other) != Some(AttachCalls::Refused) && owes_detach(claim.phase, other.phase));
    match heir {
        // A detach call may already have been made, and repeating it would detach the volume from the other claim.
        Some(other) if claim.phase == ClaimPhase::Detaching => {
            return client(facts, WaitReason::AttachmentInUse { alloc: other.id.alloc.clone() });
        }
        Some(_) => return Action::LeaveAttached,
        None => {}
    }
    if let Some(wait) = backoff(facts) {
        return wait;
    }
    match need_controller(facts, ControllerStep::Detach) {
        Ok(()) => Action::Detach,
        Err(wait) => wait,
    }
}

#[cfg(test)]
mod tests;
