//! The next action of a node for a claim: the node's half of the claim machine.
//!
//! [`next`] compares a claim's ledger entry ([`Entry`]) with the state of the kernel and the plugin ([`Observed`])
//! and returns the next action. The client executes it and calls the function again. Three rules decide:
//!
//! 1. A call that was never made needs no undoing. After a refusal, the mount table and the ledger together are the
//!    proof. Nothing is mounted, and the ledger has no success of the call that would have mounted it.
//! 2. Staging checks the stage first. A dead stage is ended before a new stage is created, unless a live user holds
//!    it.
//! 3. The users of a stage are the claims that took part in a completed stage.

mod entry;
mod undo;

pub use entry::{Entry, MountPhase, Reach};

use undo::{Undo, undo};

/// The goal of a claim on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Goal {
    /// The volume is published for the allocation.
    Mount,
    /// The node has no remains of the claim.
    Release,
}

/// The state of a place where a volume may be mounted, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// No file system is mounted there.
    #[default]
    Empty,
    /// A file system is mounted there and responds, or a device is there.
    Mounted,
    /// A dead file system is mounted there: its daemon or its device disappeared, so it will never respond again.
    Dead,
    /// A file system is mounted there that does not respond in time.
    Silent,
}

/// A place of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    /// The publish target of the allocation.
    Target,
    /// The stage of all claims that use the volume in the same way.
    Stage,
}

/// A call to the plugin's node service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeCall {
    /// The CSI call NodeStageVolume.
    Stage,
    /// The CSI call NodePublishVolume.
    Publish,
    /// The CSI call NodeUnpublishVolume.
    Unpublish,
    /// The CSI call NodeUnstageVolume.
    Unstage,
}

/// The outcome of a call, classified by the facts that it proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The plugin returned OK.
    Done,
    /// The plugin returned NOT_FOUND: it has no such volume.
    NotFound,
    /// The plugin returned FAILED_PRECONDITION: another call must come first.
    OutOfOrder,
    /// The plugin returned any other response that reports that the call had no effect.
    Refused,
    /// The plugin returned no response, or a response after which the call may still take effect.
    Unclear,
}

impl Answer {
    /// Returns whether the plugin reported that the call had no effect.
    fn is_refusal(self) -> bool {
        matches!(self, Self::OutOfOrder | Self::Refused | Self::NotFound)
    }
}

/// The calls of the current attempt, with their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tries {
    stage: Option<Answer>,
    publish: Option<Answer>,
    unpublish: Option<Answer>,
    unstage: Option<Answer>,
    /// The number of refusals of the call that undoes the current place, since its last success.
    refusals: u8,
    /// Whether this attempt ended an earlier stage.
    stage_ended: bool,
    /// Whether this attempt ended an earlier target.
    target_ended: bool,
}

impl Tries {
    /// Records the response to a call.
    pub fn note(&mut self, call: NodeCall, answer: Answer) {
        match call {
            NodeCall::Stage => (self.stage, self.publish) = (Some(answer), None),
            NodeCall::Publish => self.publish = Some(answer),
            NodeCall::Unpublish => self.unpublish = Some(answer),
            NodeCall::Unstage => self.unstage = Some(answer),
        }
        if matches!(call, NodeCall::Unpublish | NodeCall::Unstage) {
            self.refusals = match answer {
                answer if answer.is_refusal() => (self.refusals + 1).min(undo::MAX_REFUSALS),
                // A plugin that restarts between two refusals has not changed its response.
                Answer::Unclear => self.refusals,
                _ => 0,
            };
        }
    }

    /// Records that the kernel ended a mount. After `MAX_REFUSALS` refusals, the plugin is called again.
    pub fn note_unmount(&mut self, spot: Spot) {
        match spot {
            // With fewer refusals the mount was dead or the plugin reported success, so its response still counts.
            _ if self.refusals < undo::MAX_REFUSALS => {}
            Spot::Target => (self.unpublish, self.refusals) = (None, 0),
            Spot::Stage => (self.unstage, self.refusals) = (None, 0),
        }
    }

    /// Records a proof. The calls for the place start again.
    pub fn note_proof(&mut self, proof: Proof) {
        self.refusals = 0;
        match proof {
            Proof::StageShared | Proof::StageLost => {}
            Proof::TargetGone(_) => {
                (self.publish, self.unpublish, self.target_ended) = (None, None, true);
            }
            Proof::StageGone(_) | Proof::StageLeft => {
                (self.stage, self.unstage, self.stage_ended) = (None, None, true);
            }
        }
    }

    /// Returns whether the plugin responded to an undoing call while its place is not proven to be empty.
    pub fn is_undoing(&self) -> bool {
        self.unpublish.is_some() || self.unstage.is_some()
    }

    /// Returns whether the plugin has refused to undo the current place since its last success.
    pub fn is_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Allows the undoing calls again after a pause.
    pub fn rest(&mut self) {
        (self.unpublish, self.unstage) = (None, None);
    }
}

/// The inputs of a decision in addition to the ledger entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed<'a> {
    /// The state of the allocation's target.
    pub target: Place,
    /// The state of the stage.
    pub stage: Place,
    /// Whether the mount at the target matches the claim's proof.
    pub is_proven: bool,
    /// Whether the volume is published as a device. A device has no mount at the stage.
    pub is_device: bool,
    /// Whether the volume's file system is mounted elsewhere on this machine, in a place of no live claim.
    pub lingers: bool,
    /// Whether the plugin's process differs from the process that created the mount.
    pub is_replaced: bool,
    /// Whether remains exist of a claim that ended on the servers before this claim was attached.
    pub is_stale: bool,
    /// Whether no caller waits for the mount any more. In this case, no further call is made for the mount.
    pub is_abandoned: bool,
    /// The entries of other claims on the same stage.
    pub others: &'a [Entry],
    /// The calls of this attempt.
    pub tries: Tries,
}

/// The reason that a place is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// The call that would have mounted there was never made.
    NeverCalled,
    /// The plugin undid the mount, or has no such volume.
    Undone,
    /// The plugin refuses to undo the mount; mount table and ledger prove that it does not exist.
    Absent,
}

/// A fact that is recorded without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// The claim shares a stage that another claim has created.
    StageShared,
    /// The volume is not published for the claim.
    TargetGone(Because),
    /// The volume is not staged for any claim.
    StageGone(Because),
    /// The stage is kept for its other users, or the claim had no stage.
    StageLeft,
    /// The stage that this claim or another claim created is gone, without a call that undid it.
    StageLost,
}

/// The way in which the kernel unmounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// Unmount normally, which fails while the mount is in use.
    Now,
    /// Detach a dead mount from the tree (lazy unmount).
    Lazily,
}

/// The conditions that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeWait {
    /// The end of the remains of an earlier attachment.
    Stale,
    /// The end of the live users of a dead stage.
    DeadStage,
    /// The end of the released users of a stage, because the plugin does not stage over an existing mount.
    LeavingStage,
    /// The response of the file system at a place.
    Silent(Spot),
    /// The plugin refuses a call.
    Refused(NodeCall),
    /// The plugin did not respond to a call.
    Unanswered(NodeCall),
    /// The end of another mount of the same file system, while the plugin refuses to undo it.
    Lingers(Spot),
}

/// The next action for a claim on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAction {
    /// Write the intent ([`Entry::intend`]), make the call, record the response ([`Tries::note`], [`Entry::learn`]).
    Call(NodeCall),
    /// Unmount a place without the plugin.
    Unmount(Spot, How),
    /// Record this proof ([`Entry::record`]).
    Record(Proof),
    /// Wait, then allow the undoing calls again ([`Tries::rest`]).
    Wait(NodeWait),
    /// End this attempt: its last call failed, and no mount must be ended before the next attempt.
    GiveUp,
    /// Nothing to do: the goal is reached. The caller proves and seals the mount.
    Finished,
}

/// Returns the next action for a claim.
pub fn next(goal: Goal, entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    match goal {
        Goal::Mount => mount(entry, observed),
        Goal::Release => release(entry, observed),
    }
}

/// Returns whether a claim keeps a dead stage from being ended. That is the case if the claim took part in the stage,
/// and its target has not ended.
pub fn is_live_user(entry: &Entry) -> bool {
    keeps_stage(entry) && !(entry.renewing && entry.publish != Reach::Made)
}

/// Returns whether a claim proves that its stage is good: it is staged and not being released.
fn provides_stage(entry: &Entry) -> bool {
    entry.stages && entry.has_good_stage() && entry.phase <= MountPhase::Mounted
}

/// Returns whether a claim keeps a stage that the plugin refuses to repeat from being ended. A claim whose stage is
/// gone keeps it only while the claim has a target.
fn keeps_stage(entry: &Entry) -> bool {
    entry.holds_stage() && !(entry.stage_lost && entry.publish != Reach::Made)
}

fn mount(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    if entry.phase > MountPhase::Mounted || observed.is_abandoned {
        return NodeAction::GiveUp;
    }
    if entry.phase == MountPhase::Mounted && observed.is_proven {
        return NodeAction::Finished;
    }
    if observed.is_stale {
        return NodeAction::Wait(NodeWait::Stale);
    }
    if entry.renewing && entry.publish != Reach::Never && observed.tries.publish.is_none() {
        return renew_target(observed);
    }
    let staging = if entry.stages { stage(entry, observed) } else { None };
    staging.unwrap_or_else(|| publish(entry, observed))
}

/// Returns the action that the stage needs before the volume is published, or `None` if the stage is good.
fn stage(entry: &Entry, observed: &Observed<'_>) -> Option<NodeAction> {
    let tries = &observed.tries;
    if tries.unstage.is_some() {
        return Some(end_stage(entry, observed));
    }
    let made = entry.has_good_stage() || observed.others.iter().any(provides_stage);
    // The plugin has no record of a stage that its earlier process created. Staging is idempotent.
    let unknown = tries.publish == Some(Answer::OutOfOrder) && tries.stage.is_none();
    match observed.stage {
        Place::Silent => Some(NodeAction::Wait(NodeWait::Silent(Spot::Stage))),
        Place::Dead if !observed.others.iter().any(is_live_user) => Some(end_stage(entry, observed)),
        // The users of mounts that are being mounted again cannot wait for each other. Their targets stay unchanged.
        Place::Dead if entry.renewing => Some(NodeAction::Unmount(Spot::Stage, How::Lazily)),
        Place::Dead => Some(NodeAction::Wait(NodeWait::DeadStage)),
        _ if unknown => Some(NodeAction::Call(NodeCall::Stage)),
        Place::Empty if !(observed.is_device && made) => match tries.stage {
            // The next mount at this place is another mount, which the plugin may leave unfinished.
            None if made => Some(NodeAction::Record(Proof::StageLost)),
            None => Some(NodeAction::Call(NodeCall::Stage)),
            Some(Answer::Done) => None,
            Some(_) => Some(NodeAction::GiveUp),
        },
        Place::Mounted | Place::Empty if made => {
            (!entry.has_good_stage()).then_some(NodeAction::Record(Proof::StageShared))
        }
        Place::Mounted | Place::Empty => Some(match tries.stage {
            None => NodeAction::Call(NodeCall::Stage),
            // An earlier call has partly succeeded, and the plugin does not repeat it.
            Some(answer) if answer.is_refusal() && !tries.stage_ended => {
                match observed.others.iter().any(keeps_stage) {
                    true => NodeAction::Wait(NodeWait::LeavingStage),
                    false => end_stage(entry, observed),
                }
            }
            Some(_) => NodeAction::GiveUp,
        }),
    }
}

/// Ends a stage that no claim can use, after the target that the claim itself may have published from it.
fn end_stage(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    if entry.publish != Reach::Never {
        return end_target(entry, observed);
    }
    let gone = undo(Reach::Unclear, observed.stage, observed.tries.unstage, observed);
    act(gone, NodeCall::Unstage, Spot::Stage, Proof::StageGone)
}

fn publish(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    let tries = &observed.tries;
    if tries.unpublish.is_some() {
        return end_target(entry, observed);
    }
    match (tries.publish, observed.target) {
        (Some(Answer::Done), _) => NodeAction::Finished,
        // An earlier call has partly succeeded, and the plugin does not repeat it.
        (Some(answer), Place::Mounted | Place::Dead) if answer.is_refusal() && !tries.target_ended => {
            end_target(entry, observed)
        }
        (Some(_), _) => NodeAction::GiveUp,
        (None, Place::Silent) => NodeAction::Wait(NodeWait::Silent(Spot::Target)),
        (None, Place::Dead) => end_target(entry, observed),
        (None, Place::Mounted) if entry.publish == Reach::Never => end_target(entry, observed),
        (None, Place::Mounted | Place::Empty) => NodeAction::Call(NodeCall::Publish),
    }
}

/// Ends a target before the volume is published there again.
fn end_target(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    let reach = if entry.publish == Reach::Never { Reach::Never } else { Reach::Unclear };
    let gone = undo(reach, observed.target, observed.tries.unpublish, observed);
    act(gone, NodeCall::Unpublish, Spot::Target, Proof::TargetGone)
}

/// Detaches a broken mount from the tree and calls the plugin. A refusal does not matter, but without a response the
/// next attempt calls again. A late NodeUnpublish would end the new mount, and a plugin that was restarting must not
/// receive NodeUnstage first.
fn renew_target(observed: &Observed<'_>) -> NodeAction {
    match observed.tries.unpublish {
        _ if observed.target != Place::Empty => NodeAction::Unmount(Spot::Target, How::Lazily),
        None => NodeAction::Call(NodeCall::Unpublish),
        Some(Answer::Done | Answer::NotFound) => NodeAction::Record(Proof::TargetGone(Because::Undone)),
        Some(Answer::Unclear) => NodeAction::GiveUp,
        Some(Answer::OutOfOrder | Answer::Refused) => NodeAction::Record(Proof::TargetGone(Because::Absent)),
    }
}

fn release(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    if entry.phase == MountPhase::Unstaged {
        return NodeAction::Finished;
    }
    if entry.phase < MountPhase::Unpublished {
        let gone = undo(entry.publish, observed.target, observed.tries.unpublish, observed);
        return act(gone, NodeCall::Unpublish, Spot::Target, Proof::TargetGone);
    }
    if !entry.stages || entry.stage == Reach::Never || observed.others.iter().any(Entry::holds_stage) {
        return NodeAction::Record(Proof::StageLeft);
    }
    let gone = undo(entry.stage, observed.stage, observed.tries.unstage, observed);
    act(gone, NodeCall::Unstage, Spot::Stage, Proof::StageGone)
}

fn act(gone: Undo, call: NodeCall, spot: Spot, proof: impl FnOnce(Because) -> Proof) -> NodeAction {
    match gone {
        Undo::Call => NodeAction::Call(call),
        Undo::Unmount(how) => NodeAction::Unmount(spot, how),
        Undo::Gone(because) => NodeAction::Record(proof(because)),
        Undo::Refused => NodeAction::Wait(NodeWait::Refused(call)),
        Undo::Unanswered => NodeAction::Wait(NodeWait::Unanswered(call)),
        Undo::Silent => NodeAction::Wait(NodeWait::Silent(spot)),
        Undo::Lingers => NodeAction::Wait(NodeWait::Lingers(spot)),
    }
}

#[cfg(test)]
mod tests;
