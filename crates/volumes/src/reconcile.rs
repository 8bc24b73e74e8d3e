//! What the servers do next about a claim.
//!
//! [`next`] compares the record with what is known of the plugin, the node and the volume's other
//! claims. It is asked again after every change and at every time that it named; asking twice is
//! harmless. Whatever waits, waits with a reason that a user can be told.

use crate::claim::owes_detach;
use crate::lease::{Lease, needs_fence};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::plugin::Plugin;
use caravan_types::volume::{AttachCalls, Claim, ClaimMode, ClaimPhase, Volume, VolumePhase};
use caravan_types::{BootInstant, Nanos};

/// Whether a node can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is in contact.
    Here,
    /// Its heartbeats stopped.
    Silent {
        /// Index with which this silence began.
        index: u64,
    },
    /// There is no such node any more.
    Unknown,
}

impl Presence {
    /// The presence of a node by its record.
    pub fn of(node: Option<&Node>) -> Self {
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

/// When the server that decides first saw what it may have to wait for, on its own clock. A server that did not see the
/// beginning of a wait begins all of it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The silence of the claim's node that [`silence`] names.
    pub silence: BootInstant,
    /// The failure that the claim's `tries` and `next_try` are about.
    pub failure: BootInstant,
}

impl Seen {
    /// All of it is seen now for the first time.
    pub fn at(now: BootInstant) -> Self {
        Self { silence: now, failure: now }
    }
}

/// Everything that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The volume; none when its record was removed by force.
    pub volume: Option<&'a Volume>,
    /// The claim in question.
    pub claim: &'a Claim,
    /// The volume's other claims; those that are gone may be among them.
    pub others: &'a [&'a Claim],
    /// The claim's plugin.
    pub plugin: Option<&'a Plugin>,
    /// The claim's node.
    pub node: Presence,
    /// Spans of the fence.
    pub lease: Lease,
    /// Since when there is something to wait for.
    pub seen: Seen,
    /// Now, on the same clock.
    pub now: BootInstant,
}

/// The silence of a claim's node that has to be waited out: the index with which it began. Zero while the node is in
/// contact, and as long as nothing on record says when the silence of a node without a record began.
pub fn silence(claim: &Claim, node: Presence) -> u64 {
    match node {
        Presence::Here => 0,
        Presence::Silent { index } => index,
        Presence::Unknown => claim.fence_index.unwrap_or(0),
    }
}

/// How long the server that decides still waits for the lease of the claim's node; none if there is nothing to wait
/// for.
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

/// What to do next about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Record the intention (`IntendAttach`), call ControllerPublish, record the outcome.
    Attach {
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// The plugin does not attach: record `Attached` without a call.
    MarkAttached {
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// Record the intention (`IntendDetach`), call ControllerUnpublish, record the outcome.
    Detach,
    /// Another claim on the node still uses the attachment: record `LeftAttached` without a call.
    LeaveAttached,
    /// Nothing is left: record `Freed`.
    Free,
    /// The plugin asked that the node grows what it mounted: call NodeExpandVolume, record `Expanded`.
    /// The intention is the volume's `node_expand_to`.
    ExpandNode {
        /// Bytes, at least.
        to: i64,
    },
    /// The node vanished: record `Fence`.
    Fence {
        /// The node's silence that is waited out; 0 = the node has no record, and the wait begins with this step.
        silence: u64,
        /// How long the wait is expected to last, for display.
        wait: Nanos,
    },
    /// Only the client or another claim can bring it on.
    WaitForClient {
        /// One sentence.
        reason: String,
    },
    /// The plugin must become healthy or tell what it can.
    WaitForPlugin {
        /// One sentence.
        reason: String,
    },
    /// Look again at this time.
    WaitUntil {
        /// When, on the clock of the server that decides.
        time: BootInstant,
        /// One sentence.
        reason: String,
    },
    /// Nothing: in use, or over.
    Nothing,
}

impl Action {
    /// The sentence of a wait.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::WaitForClient { reason }
            | Self::WaitForPlugin { reason }
            | Self::WaitUntil { reason, .. } => Some(reason),
            _ => None,
        }
    }
}

/// What to do next.
pub fn next(facts: &Facts<'_>) -> Action {
    if matches!(facts.claim.phase, ClaimPhase::Attached | ClaimPhase::Mounted)
        && let Some(action) = abandoned(facts)
    {
        return action;
    }
    match facts.claim.phase {
        ClaimPhase::Reserved | ClaimPhase::Attaching => attach(facts),
        ClaimPhase::Attached => {
            client(facts, &format!("waits for node {} to mount the volume", facts.claim.node_id.short()))
        }
        ClaimPhase::Mounted => grow(facts),
        ClaimPhase::Gone => Action::Nothing,
        ClaimPhase::Releasing => release(facts, "unpublish"),
        ClaimPhase::Unpublished => release(facts, "unstage"),
        ClaimPhase::Unstaged | ClaimPhase::Detaching => detach(facts),
        ClaimPhase::Fencing => fence(facts),
    }
}

/// Whether the node still has to grow what it mounted for the claim. The right to use the volume does not
/// depend on it.
pub fn owes_growth(volume: &Volume, claim: &Claim) -> bool {
    claim.phase == ClaimPhase::Mounted && claim.expanded_to < volume.node_expand_to
}

fn grow(facts: &Facts<'_>) -> Action {
    let claim = facts.claim;
    let Some(volume) = facts.volume.filter(|volume| owes_growth(volume, claim)) else {
        return Action::Nothing;
    };
    if facts.node != Presence::Here {
        let node = claim.node_id.short();
        return client(facts, &format!("node {node} is not in contact and cannot grow the volume"));
    }
    backoff(facts).unwrap_or(Action::ExpandNode { to: volume.node_expand_to })
}

/// Whether a plugin that grows a volume only while nobody uses it can grow it now: what is only reserved
/// waits for the volume's call to end.
pub fn unused<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> bool {
    claims.into_iter().all(|claim| matches!(claim.phase, ClaimPhase::Reserved | ClaimPhase::Gone))
}

fn client(facts: &Facts<'_>, reason: &str) -> Action {
    let claim = facts.claim;
    let reason = if claim.last_error.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason} (try {} failed: {})", claim.tries, claim.last_error)
    };
    Action::WaitForClient { reason }
}

/// The wait that an earlier failure asks for.
fn backoff(facts: &Facts<'_>) -> Option<Action> {
    let claim = facts.claim;
    let due = facts.seen.failure.plus(crate::retry::delay(claim.tries));
    (!claim.next_try.is_zero() && due > facts.now).then(|| Action::WaitUntil {
        time: due,
        reason: if claim.last_error.is_empty() {
            "waits for its next try".to_owned()
        } else {
            format!("try {} failed: {}", claim.tries, claim.last_error)
        },
    })
}

/// A healthy controller must be there for a call.
fn need_controller(facts: &Facts<'_>, what: &str) -> Result<(), Action> {
    let id = &facts.claim.plugin_id;
    let reason = match facts.plugin {
        None => format!("plugin {:?} is not known: nothing can {what} the volume", id.as_str()),
        Some(plugin) if plugin.controllers.values().any(|c| c.healthy) => return Ok(()),
        Some(_) => format!("plugin {:?} has no healthy controller to {what} the volume", id.as_str()),
    };
    Err(Action::WaitForPlugin { reason })
}

fn attach(facts: &Facts<'_>) -> Action {
    try_attach(facts).unwrap_or_else(|wait| wait)
}

fn try_attach(facts: &Facts<'_>) -> Result<Action, Action> {
    let claim = facts.claim;
    if facts.node != Presence::Here {
        return Err(client(facts, &format!("node {} is not in contact", claim.node_id.short())));
    }
    match facts.volume.map(|v| v.phase) {
        Some(VolumePhase::Ready | VolumePhase::Expanding) => {}
        Some(VolumePhase::Creating) => return Err(client(facts, "waits for the volume to be created")),
        Some(VolumePhase::Deleting) => return Err(client(facts, "the volume is being deleted")),
        None => return Err(client(facts, "the volume does not exist any more")),
    }
    if let Some(other) = in_the_way(facts) {
        let reason = format!(
            "waits for the claim of allocation {} on node {} to end ({})",
            other.id.alloc.short(),
            other.node_id.short(),
            other.phase.as_str()
        );
        return Err(client(facts, &reason));
    }
    if let Some(wait) = backoff(facts) {
        return Err(wait);
    }
    // The intention is durable: the outcome of an earlier call is not known, so it is made again.
    if claim.phase == ClaimPhase::Attaching {
        need_controller(facts, "attach")?;
        return Ok(Action::Attach { external_node_id: claim.external_node_id.clone() });
    }
    let id = claim.plugin_id.as_str();
    let Some(plugin) = facts.plugin else {
        return Err(Action::WaitForPlugin { reason: format!("plugin {id:?} is not known") });
    };
    let Some(attaches) = plugin.attaches() else {
        let reason = format!(
            "it is not known yet whether plugin {id:?} attaches volumes: no healthy controller has told"
        );
        return Err(Action::WaitForPlugin { reason });
    };
    let external_node_id = external_node_id(plugin, claim);
    if !attaches {
        return Ok(Action::MarkAttached { external_node_id: external_node_id.unwrap_or_default() });
    }
    let Some(external_node_id) = external_node_id else {
        let node = claim.node_id.short();
        let reason = format!("plugin {id:?} has not told its id of node {node} yet");
        return Err(Action::WaitForPlugin { reason });
    };
    need_controller(facts, "attach")?;
    Ok(Action::Attach { external_node_id })
}

/// What the plugin calls the node now; nothing is attached yet, so what it said earlier does not bind.
fn external_node_id(plugin: &Plugin, claim: &Claim) -> Option<String> {
    let info = plugin.nodes.get(&claim.node_id).and_then(|report| report.node_info.as_ref());
    let id = info.map_or(&claim.external_node_id, |info| &info.id);
    (!id.is_empty()).then(|| id.clone())
}

/// A claim that must end before this one may be attached: one on another node when either allows only
/// one node or both write and only one may, or a detach under way from this very node.
pub fn in_the_way<'a>(facts: &Facts<'a>) -> Option<&'a Claim> {
    let claim = facts.claim;
    if !matches!(claim.phase, ClaimPhase::Reserved | ClaimPhase::Attaching) {
        return None;
    }
    facts.others.iter().copied().filter(|c| c.phase.holds() && c.id != claim.id).find(|other| {
        if other.node_id == claim.node_id {
            return other.phase == ClaimPhase::Detaching;
        }
        // Of two that are only reserved, the later one waits; otherwise they would wait for each other.
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

/// A claim whose allocation may go on for all that the servers know, on a node that is not in contact: what needs
/// the node's lease has certainly ended once that ran out. Only then is the right taken away, because the node may
/// still come back in time. Other claims are the allocation's for as long as it is not over.
fn abandoned(facts: &Facts<'_>) -> Option<Action> {
    let claim = facts.claim;
    match facts.node {
        Presence::Here => None,
        // It may register again before its lease runs out, and its task never notices. Its allocation is declared
        // lost for want of the node, and then the claim is fenced on its way out.
        Presence::Unknown => {
            let node = claim.node_id.short();
            let reason =
                format!("node {node} is not known any more: waits for its allocation to be declared lost");
            Some(client(facts, &reason))
        }
        Presence::Silent { .. } if !needs_fence(claim.access_mode, claim.mode) => None,
        Presence::Silent { index } => Some(match wait_left(facts) {
            Nanos::ZERO => Action::Fence { silence: index, wait: Nanos::ZERO },
            _ => until_ended(facts),
        }),
    }
}

fn until_ended(facts: &Facts<'_>) -> Action {
    let node = facts.claim.node_id.short();
    let reason = format!("node {node} is not in contact: waits until its tasks have certainly ended");
    Action::WaitUntil { time: facts.lease.hand_over_at(facts.seen.silence), reason }
}

fn release(facts: &Facts<'_>, what: &str) -> Action {
    match facts.node {
        Presence::Here => {
            let node = facts.claim.node_id.short();
            client(facts, &format!("waits for node {node} to {what} the volume"))
        }
        Presence::Silent { index } => Action::Fence { silence: index, wait: wait_left(facts) },
        Presence::Unknown => begin_unknown(facts),
    }
}

fn fence(facts: &Facts<'_>) -> Action {
    let claim = facts.claim;
    match facts.node {
        // It renews its lease, so time proves nothing any more: its own word is needed.
        Presence::Here => {
            return client(
                facts,
                &format!("node {} is back: waits for it to unpublish the volume", claim.node_id.short()),
            );
        }
        // It was back and went silent again, or an earlier version began the fence.
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

/// Begins the whole wait for a node without a record: nothing tells when it was in contact last.
fn begin_unknown(facts: &Facts<'_>) -> Action {
    let wait = if facts.claim.node_off.is_some() { Nanos::ZERO } else { facts.lease.grace() };
    Action::Fence { silence: 0, wait }
}

fn detach(facts: &Facts<'_>) -> Action {
    let claim = facts.claim;
    if claim.needs_attach == Some(false) && claim.phase != ClaimPhase::Detaching {
        return Action::Free;
    }
    let heir = facts.others.iter().find(|other| {
        other.phase.holds()
            && other.id != claim.id
            && other.node_id == claim.node_id
            && owes_detach(claim.phase, other.phase)
            // Its release would go straight to gone, without a detach.
            && !(other.phase == ClaimPhase::Attaching && other.attach_calls == AttachCalls::Refused)
    });
    match heir {
        // A call may already have been made; repeating it would take the volume away from the other.
        Some(other) if claim.phase == ClaimPhase::Detaching => {
            let reason =
                format!("allocation {} uses the attachment on the same node", other.id.alloc.short());
            return client(facts, &reason);
        }
        Some(_) => return Action::LeaveAttached,
        None => {}
    }
    if let Some(wait) = backoff(facts) {
        return wait;
    }
    match need_controller(facts, "detach") {
        Ok(()) => Action::Detach,
        Err(wait) => wait,
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
