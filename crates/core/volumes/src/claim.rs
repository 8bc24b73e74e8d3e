//! The lifecycle of a claim (docs/design/volumes.md): the legal steps of each phase, and their effects.
//!
//! ```text
//! reserved -> attaching -> attached -> mounted -> releasing -> unpublished -> unstaged -> detaching -> gone
//!     |           |          |  \________________^   |             |           ^  |  \___________________^
//!     |           |          +----- fencing <--------+-------------+           |  (no attach, or another
//!     |           |                  |  \-> unpublished (the node returned)    |   claim owes the detach)
//!     |           |                  +------> detaching or gone (time is up)   |
//!     |           +------------------------------------------------------------+
//!     +-> gone (nothing was ever intended)
//! ```
//!
//! Every arrow towards `gone` is a proof. It is the client's report about its mounts, the plugin's response about the
//! attachment, or a server's complete wait for the node's lease. A release from `attaching` passes through
//! `unstaged`, because the outcome of the controller's call is unknown and must be undone. If every call was
//! certainly refused ([`AttachCalls::Refused`]), nothing was attached, and the claim is gone.

use caravan_messages::ClaimReportStep;
use caravan_types::UnixNanos;
use caravan_types::command::{ClaimStep, LetGo, Refusal};
use caravan_types::volume::{AttachCalls, Claim, ClaimPhase};

/// A step that the phase of the claim does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim of allocation {alloc} on volume {volume} cannot take step {step} in phase {}: {why}", .phase.as_str())]
pub struct IllegalStep {
    /// The volume, with its namespace.
    pub volume: String,
    /// The id of the allocation.
    pub alloc: String,
    /// The name of the refused step.
    pub step: &'static str,
    /// The claim's current phase.
    pub phase: ClaimPhase,
    /// The reason for the refusal.
    pub why: &'static str,
}

impl From<IllegalStep> for Refusal {
    fn from(e: IllegalStep) -> Self {
        Self::IllegalStep {
            volume: e.volume,
            alloc: e.alloc,
            step: e.step.to_owned(),
            phase: e.phase.as_str().to_owned(),
        }
    }
}

/// Returns the name of a step, for messages.
pub fn step_name(step: &ClaimStep) -> &'static str {
    match step {
        ClaimStep::IntendAttach { .. } => "intend-attach",
        ClaimStep::Attached { .. } => "attached",
        ClaimStep::Mounted { .. } => "mounted",
        ClaimStep::Expanded { .. } => "expanded",
        ClaimStep::Release => "release",
        ClaimStep::Unpublished => "unpublished",
        ClaimStep::Unstaged => "unstaged",
        ClaimStep::IntendDetach => "intend-detach",
        ClaimStep::LeftAttached => "left-attached",
        ClaimStep::Freed => "freed",
        ClaimStep::Fence { .. } => "fence",
        ClaimStep::AttachRefused { .. } => "attach-refused",
        ClaimStep::Waited { then: LetGo::IntendDetach, .. } => "waited, intend-detach",
        ClaimStep::Waited { then: LetGo::LeftAttached, .. } => "waited, left-attached",
        ClaimStep::Waited { then: LetGo::Freed, .. } => "waited, freed",
        ClaimStep::Failed { .. } => "failed",
    }
}

/// Returns whether a claim in phase `this` may leave the attachment to a claim in phase `other` on the same node. The
/// other claim will detach the volume later.
///
/// An attachment is only left to claims that are strictly earlier in their release. Therefore two claims can never
/// leave the same attachment to each other.
pub fn owes_detach(this: ClaimPhase, other: ClaimPhase) -> bool {
    match other {
        ClaimPhase::Attaching
        | ClaimPhase::Attached
        | ClaimPhase::Mounted
        | ClaimPhase::Releasing
        | ClaimPhase::Unpublished => true,
        ClaimPhase::Fencing => this == ClaimPhase::Unstaged,
        ClaimPhase::Reserved | ClaimPhase::Unstaged | ClaimPhase::Detaching | ClaimPhase::Gone => false,
    }
}

/// Returns the claim of a new grant. If the allocation has an earlier claim that is gone, the new claim gets the next
/// generation. Late reports about the earlier claim then do not count.
///
/// Fails if the earlier claim is still active.
pub fn reserve(previous: Option<&Claim>, new: Claim, now: UnixNanos) -> Result<Claim, IllegalStep> {
    let generation = match previous {
        None => 0,
        Some(old) if old.phase == ClaimPhase::Gone => old.generation.saturating_add(1),
        Some(old) => return Err(illegal(old, "reserve", "the allocation's earlier claim still holds")),
    };
    let mut claim = Claim {
        generation,
        phase: ClaimPhase::Reserved,
        tries: 0,
        last_error: String::new(),
        next_try: UnixNanos(0),
        attach_calls: AttachCalls::Unclear,
        fence_until: UnixNanos(0),
        fence_index: None,
        node_off: None,
        publish_context: Default::default(),
        create_time: now,
        modify_time: now,
        phase_since: now,
        proof: None,
        expanded_to: 0,
        history: previous.map(|old| old.history.clone()).unwrap_or_default(),
        ..new
    };
    claim.note(now, ClaimPhase::Reserved, "");
    Ok(claim)
}

/// Returns the step that ends a claim without remains on its node. From a fence, the step records that the wait of
/// the fence is complete.
pub fn let_go(claim: &Claim, then: LetGo) -> ClaimStep {
    match (claim.phase, then) {
        (ClaimPhase::Fencing, then) => ClaimStep::Waited { fence: claim.fence_index.unwrap_or(0), then },
        (_, LetGo::IntendDetach) => ClaimStep::IntendDetach,
        (_, LetGo::LeftAttached) => ClaimStep::LeftAttached,
        (_, LetGo::Freed) => ClaimStep::Freed,
    }
}

/// Returns the claim after a step that happened at `now`; the time is recorded but decides nothing.
///
/// A step that changes the phase clears earlier failures. A repeated intent keeps them, because its attempts are
/// still counted.
pub fn step(claim: &Claim, step: &ClaimStep, now: UnixNanos) -> Result<Claim, IllegalStep> {
    let refuse = |why| Err(illegal(claim, step_name(step), why));
    let mut next = claim.clone();
    let phase = claim.phase;
    if phase == ClaimPhase::Gone {
        return refuse("the claim is over");
    }
    let target = match (phase, step) {
        (ClaimPhase::Attaching, ClaimStep::AttachRefused { error, next_try })
        | (_, ClaimStep::Failed { error, next_try }) => {
            next.attach_calls = match (step, claim.attach_calls) {
                (ClaimStep::AttachRefused { .. }, AttachCalls::Intended) => AttachCalls::Refused,
                (ClaimStep::AttachRefused { .. }, before) => before,
                _ => AttachCalls::Unclear,
            };
            next.tries = claim.tries.saturating_add(1);
            next.last_error.clone_from(error);
            next.next_try = *next_try;
            phase
        }

        (ClaimPhase::Reserved, ClaimStep::IntendAttach { external_node_id }) => {
            if external_node_id.is_empty() {
                return refuse("the plugin's id of the node is not known");
            }
            next.external_node_id.clone_from(external_node_id);
            next.needs_attach = Some(true);
            next.attach_calls = AttachCalls::Intended;
            ClaimPhase::Attaching
        }
        (ClaimPhase::Attaching, ClaimStep::IntendAttach { external_node_id }) => {
            if *external_node_id != claim.external_node_id {
                return refuse("the attachment to the node's earlier id has to be undone first");
            }
            // The outcome of the previous call was not recorded, unless it was refused.
            next.attach_calls = match claim.attach_calls {
                AttachCalls::Refused => AttachCalls::Intended,
                AttachCalls::Unclear | AttachCalls::Intended => AttachCalls::Unclear,
            };
            ClaimPhase::Attaching
        }

        (
            ClaimPhase::Reserved | ClaimPhase::Attaching,
            ClaimStep::Attached { publish_context, needs_attach, external_node_id },
        ) => {
            match (phase, needs_attach) {
                (ClaimPhase::Reserved, true) => return refuse("attaching was not intended first"),
                (ClaimPhase::Attaching, false) => return refuse("a controller call is under way"),
                (ClaimPhase::Attaching, true)
                    if !external_node_id.is_empty() && *external_node_id != claim.external_node_id =>
                {
                    return refuse("it is attached to another node id than intended");
                }
                _ => {}
            }
            next.publish_context.clone_from(publish_context);
            next.needs_attach = Some(*needs_attach);
            if !external_node_id.is_empty() {
                next.external_node_id.clone_from(external_node_id);
            }
            ClaimPhase::Attached
        }

        (ClaimPhase::Attached | ClaimPhase::Mounted, ClaimStep::Mounted { proof }) => {
            next.proof = Some(proof.clone());
            ClaimPhase::Mounted
        }
        (ClaimPhase::Mounted, ClaimStep::Expanded { capacity }) => {
            next.expanded_to = next.expanded_to.max(*capacity);
            ClaimPhase::Mounted
        }

        // No call was intended, so nothing can remain on any node.
        (ClaimPhase::Reserved, ClaimStep::Release) => ClaimPhase::Gone,
        // No call attached the volume.
        (ClaimPhase::Attaching, ClaimStep::Release) if claim.attach_calls == AttachCalls::Refused => {
            ClaimPhase::Gone
        }
        // The client was never permitted to mount, but the controller may have attached the volume.
        (ClaimPhase::Attaching, ClaimStep::Release) => ClaimPhase::Unstaged,
        (ClaimPhase::Attached | ClaimPhase::Mounted, ClaimStep::Release) => ClaimPhase::Releasing,

        // A node that returns during its fence proves its state itself.
        (ClaimPhase::Releasing | ClaimPhase::Fencing, ClaimStep::Unpublished) => ClaimPhase::Unpublished,
        (ClaimPhase::Unpublished, ClaimStep::Unstaged) => ClaimPhase::Unstaged,

        (_, ClaimStep::Fence { until, silence }) if phase.may_be_on_node() => {
            if phase == ClaimPhase::Fencing && silence.is_some() && *silence == claim.fence_index {
                return refuse("it is fenced for this silence of the node already");
            }
            next.fence_until = *until;
            next.fence_index = *silence;
            ClaimPhase::Fencing
        }
        (_, ClaimStep::Fence { .. }) => return refuse("nothing of it can be on the node"),

        (ClaimPhase::Fencing, ClaimStep::Waited { fence, then }) => {
            if *fence == 0 || claim.fence_index != Some(*fence) {
                return refuse("it was not this silence of the node that was waited out");
            }
            let_go_to(claim, *then).map_err(|why| illegal(claim, step_name(step), why))?
        }
        // Logs of earlier versions contain these steps. A fence of this version has an index and requires its whole
        // wait.
        (ClaimPhase::Fencing, ClaimStep::IntendDetach | ClaimStep::LeftAttached | ClaimStep::Freed)
            if claim.fence_index.is_some() =>
        {
            return refuse("nothing says that the node's lease was waited out");
        }
        (ClaimPhase::Detaching, ClaimStep::IntendDetach) => ClaimPhase::Detaching,
        (ClaimPhase::Detaching, ClaimStep::Freed) => ClaimPhase::Gone,
        (ClaimPhase::Unstaged | ClaimPhase::Fencing, ClaimStep::IntendDetach) => {
            let_go_to(claim, LetGo::IntendDetach).map_err(|why| illegal(claim, step_name(step), why))?
        }
        (ClaimPhase::Unstaged | ClaimPhase::Fencing, ClaimStep::LeftAttached) => {
            let_go_to(claim, LetGo::LeftAttached).map_err(|why| illegal(claim, step_name(step), why))?
        }
        (ClaimPhase::Unstaged | ClaimPhase::Fencing, ClaimStep::Freed) => {
            let_go_to(claim, LetGo::Freed).map_err(|why| illegal(claim, step_name(step), why))?
        }

        _ => return refuse("it is not the next step of this phase"),
    };
    if let ClaimStep::Failed { error, .. } | ClaimStep::AttachRefused { error, .. } = step
        && *error != claim.last_error
    {
        next.note(now, phase, error.as_str());
    }
    if target != phase {
        next.phase_since = now;
        let note = match (step, &claim.node_off) {
            (ClaimStep::Waited { .. }, Some(off)) => {
                format!("without a wait for the node's lease: {} confirmed that the node is off", off.by())
            }
            _ => String::new(),
        };
        next.note(now, target, note);
    }
    // Proof that the mount has ended.
    if matches!(target, ClaimPhase::Unpublished | ClaimPhase::Unstaged | ClaimPhase::Gone) {
        next.proof = None;
    }
    if target != ClaimPhase::Fencing {
        (next.fence_until, next.fence_index) = (UnixNanos(0), None);
    }
    if target != phase || matches!(step, ClaimStep::Mounted { .. } | ClaimStep::Expanded { .. }) {
        next.tries = 0;
        next.last_error.clear();
        next.next_try = UnixNanos(0);
    }
    next.phase = target;
    next.modify_time = now;
    Ok(next)
}

/// Returns the next phase of a claim without remains on its node, or the reason that the claim cannot proceed.
fn let_go_to(claim: &Claim, then: LetGo) -> Result<ClaimPhase, &'static str> {
    match (then, claim.needs_attach) {
        (LetGo::IntendDetach | LetGo::LeftAttached, Some(false)) => Err("the plugin does not attach"),
        (LetGo::IntendDetach, _) => Ok(ClaimPhase::Detaching),
        (LetGo::LeftAttached, _) => Ok(ClaimPhase::Gone),
        (LetGo::Freed, Some(false)) => Ok(ClaimPhase::Gone),
        (LetGo::Freed, _) => Err("the volume may still be attached to the node"),
    }
}

/// Returns the step for a client's report in the current phase, or `None` if the report adds nothing. A report may
/// stand for several steps: the caller repeats the call until it returns `None`.
///
/// A client that reports no mounts has finished with the claim in every phase. In this case, even a claim that is
/// being attached is released, because no client would use its attachment.
pub fn reported(claim: &Claim, report: &ClaimReportStep, now: UnixNanos) -> Option<ClaimStep> {
    use ClaimPhase as P;
    match report {
        ClaimReportStep::Mounted { proof } => match claim.phase {
            // A release overtook the mount, and the client is about to undo the mount.
            P::Attached => Some(ClaimStep::Mounted { proof: proof.clone() }),
            // The mount broke, and the client mounted the volume again.
            P::Mounted if claim.proof.as_ref() != Some(proof) => {
                Some(ClaimStep::Mounted { proof: proof.clone() })
            }
            _ => None,
        },
        ClaimReportStep::Unpublished => match claim.phase {
            phase if phase.is_live() => Some(ClaimStep::Release),
            P::Releasing | P::Fencing => Some(ClaimStep::Unpublished),
            _ => None,
        },
        ClaimReportStep::Unstaged => match claim.phase {
            phase if phase.is_live() => Some(ClaimStep::Release),
            P::Releasing | P::Fencing => Some(ClaimStep::Unpublished),
            P::Unpublished => Some(ClaimStep::Unstaged),
            _ => None,
        },
        ClaimReportStep::Failed { error, tries } => {
            let changed = claim.last_error != *error;
            let on_node = matches!(claim.phase, P::Attached | P::Mounted | P::Releasing | P::Unpublished);
            (changed && on_node).then(|| ClaimStep::Failed {
                error: error.clone(),
                next_try: now.plus(crate::retry::delay(*tries)),
            })
        }
    }
}

fn illegal(claim: &Claim, step: &'static str, why: &'static str) -> IllegalStep {
    IllegalStep {
        volume: claim.id.volume.to_string(),
        alloc: claim.id.alloc.to_string(),
        step,
        phase: claim.phase,
        why,
    }
}

#[cfg(test)]
mod tests;
