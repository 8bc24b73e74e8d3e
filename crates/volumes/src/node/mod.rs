//! What a node does next about a claim: the node half of the claim machine.
//!
//! [`next`] compares what the ledger knows of a claim ([`Entry`]) with what the kernel and the plugin say
//! ([`Observed`]) and names the next action. The client carries the action out and asks again. Three rules decide:
//!
//! 1. A call that was never made needs no undoing. After a refusal, the mount table and the ledger together are the
//!    proof: nothing is mounted, and the ledger has no success of the call that would have mounted it.
//! 2. Staging looks at the stage first. A dead stage is ended before a new one is made, unless a live user holds it.
//! 3. The users of a stage are the claims that took part in a finished stage.

mod entry;
mod undo;

pub use entry::{Entry, MountPhase, Reach};

use undo::{Undo, undo};

/// What a claim is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Goal {
    /// The volume is published for the allocation.
    Mount,
    /// Nothing of the claim is left on the node.
    Release,
}

/// What the kernel says of a place where a volume may be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Nothing is mounted there.
    #[default]
    Empty,
    /// A file system is mounted there and answers, or a device is there.
    Mounted,
    /// A file system is mounted there that can never answer again: its daemon or its device is gone.
    Dead,
    /// A file system is mounted there that does not answer in time.
    Silent,
}

/// A place of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    /// Where the volume is published for the allocation.
    Target,
    /// Where the volume is staged for all claims that use it in the same way.
    Stage,
}

/// A call to the plugin's node service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeCall {
    /// NodeStageVolume.
    Stage,
    /// NodePublishVolume.
    Publish,
    /// NodeUnpublishVolume.
    Unpublish,
    /// NodeUnstageVolume.
    Unstage,
}

/// How a call ended, sorted by what the answer proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// OK.
    Done,
    /// NOT_FOUND: the plugin has no such volume.
    NotFound,
    /// FAILED_PRECONDITION: another call has to come first.
    OutOfOrder,
    /// Any other answer by which the plugin says that it did not do it.
    Refused,
    /// No answer, or one that leaves open whether the call is still carried out.
    Unclear,
}

impl Answer {
    /// Whether the plugin answered and did not do what it was asked.
    fn is_refusal(self) -> bool {
        matches!(self, Self::OutOfOrder | Self::Refused | Self::NotFound)
    }
}

/// The calls that this try of the client has made, and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tries {
    stage: Option<Answer>,
    publish: Option<Answer>,
    unpublish: Option<Answer>,
    unstage: Option<Answer>,
    /// Refusals of the call that undoes the present place, in a row.
    refusals: u8,
    /// A stage of before was ended in this try.
    stage_ended: bool,
    /// A target of before was ended in this try.
    target_ended: bool,
}

impl Tries {
    /// Notes the answer of a call.
    pub fn note(&mut self, call: NodeCall, answer: Answer) {
        match call {
            NodeCall::Stage => (self.stage, self.publish) = (Some(answer), None),
            NodeCall::Publish => self.publish = Some(answer),
            NodeCall::Unpublish => self.unpublish = Some(answer),
            NodeCall::Unstage => self.unstage = Some(answer),
        }
        if matches!(call, NodeCall::Unpublish | NodeCall::Unstage) {
            self.refusals = if answer.is_refusal() { (self.refusals + 1).min(undo::MAX_REFUSALS) } else { 0 };
        }
    }

    /// Notes that the kernel ended a mount: the plugin is asked again, with new patience.
    pub fn note_unmount(&mut self, spot: Spot) {
        match spot {
            // What the plugin answered about a dead mount still counts; about a live one it is asked once more.
            _ if self.refusals < undo::MAX_REFUSALS => {}
            Spot::Target => (self.unpublish, self.refusals) = (None, 0),
            Spot::Stage => (self.unstage, self.refusals) = (None, 0),
        }
    }

    /// Notes a proof: the calls about the place begin anew.
    pub fn note_proof(&mut self, proof: Proof) {
        self.refusals = 0;
        match proof {
            Proof::StageShared => {}
            Proof::TargetGone(_) => {
                (self.publish, self.unpublish, self.target_ended) = (None, None, true);
            }
            Proof::StageGone(_) | Proof::StageLeft => {
                (self.stage, self.unstage, self.stage_ended) = (None, None, true);
            }
        }
    }

    /// Returns whether a call that undoes something was answered, and its place is not proven to be empty.
    pub fn is_undoing(&self) -> bool {
        self.unpublish.is_some() || self.unstage.is_some()
    }

    /// Lets the calls that undo something be made again after a pause.
    pub fn rest(&mut self) {
        (self.unpublish, self.unstage) = (None, None);
    }
}

/// Everything beside the ledger's entry that the decision depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed<'a> {
    /// What is at the allocation's target.
    pub target: Place,
    /// What is at the stage.
    pub stage: Place,
    /// The mount at the target is the one of the claim's proof.
    pub is_proven: bool,
    /// What is published is a device: a stage shows no mount.
    pub is_device: bool,
    /// The volume's file system is mounted at another place of this machine, which is no live claim's.
    pub lingers: bool,
    /// The plugin's process is not the one that made the mount.
    pub is_replaced: bool,
    /// A claim that ended for the servers before this one was attached has left something of the volume here.
    pub is_stale: bool,
    /// Nobody wants the mount any more: no further call is made for it.
    pub is_given_up: bool,
    /// The entries of other claims on the same stage.
    pub others: &'a [Entry],
    /// The calls of this try.
    pub tries: Tries,
}

/// Why nothing is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// The call that would have made it was never made.
    NeverCalled,
    /// The plugin undid it, or does not know the volume.
    Undone,
    /// The plugin refuses to undo it; mount table and ledger prove that it is not there.
    Absent,
}

/// What is recorded without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// The claim takes part in a stage that another claim has made.
    StageShared,
    /// Nothing is published for the claim.
    TargetGone(Because),
    /// Nothing is staged for any claim.
    StageGone(Because),
    /// The stage stays for its other users, or the claim had none.
    StageLeft,
}

/// What the kernel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// Ends a mount unless it is in use.
    Now,
    /// Takes a dead mount out of the tree.
    Lazily,
}

/// What a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeWait {
    /// The end of what an earlier attachment left.
    Stale,
    /// The end of the live users of a dead stage.
    DeadStage,
    /// The end of the users of a stage that are on their way out: the plugin does not stage where something is mounted.
    LeavingStage,
    /// The file system at a place to answer.
    Silent(Spot),
    /// The plugin, which refuses a call.
    Refused(NodeCall),
    /// The plugin, which did not answer a call.
    Unanswered(NodeCall),
    /// The end of another mount of the same file system, which the plugin refuses to undo.
    Lingers(Spot),
}

/// What to do next about a claim on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAction {
    /// Write the intent ([`Entry::intend`]), make the call, note the answer ([`Tries::note`], [`Entry::learn`]).
    Call(NodeCall),
    /// End what is mounted at a place, without the plugin.
    Unmount(Spot, How),
    /// Write this down ([`Entry::record`]).
    Record(Proof),
    /// Wait, and let the calls that undo something be made again ([`Tries::rest`]).
    Wait(NodeWait),
    /// End this try: its last call failed and nothing is to be ended before the next try.
    GiveUp,
    /// Nothing: the goal is reached. A mount is proven and sealed by the caller.
    Finished,
}

/// Returns what to do next about a claim.
pub fn next(goal: Goal, entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    match goal {
        Goal::Mount => mount(entry, observed),
        Goal::Release => release(entry, observed),
    }
}

/// Returns whether a claim keeps a dead stage from being ended: it took part in the stage, and its target is not
/// ended.
pub fn is_live_user(entry: &Entry) -> bool {
    entry.holds_stage() && !(entry.renewing && entry.publish != Reach::Made)
}

/// Returns whether a claim proves that its stage is good: it is staged and not on its way out.
fn provides_stage(entry: &Entry) -> bool {
    entry.holds_stage() && entry.phase <= MountPhase::Mounted
}

fn mount(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    if entry.phase > MountPhase::Mounted || observed.is_given_up {
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

/// Returns what the stage needs before the volume is published; none when the stage is good.
fn stage(entry: &Entry, observed: &Observed<'_>) -> Option<NodeAction> {
    let tries = &observed.tries;
    if tries.unstage.is_some() {
        return Some(end_stage(entry, observed));
    }
    let made = entry.stage == Reach::Made || observed.others.iter().any(provides_stage);
    // The plugin does not know a stage that an earlier process of it made; staging is idempotent.
    let unknown = tries.publish == Some(Answer::OutOfOrder) && tries.stage.is_none();
    match observed.stage {
        Place::Silent => Some(NodeAction::Wait(NodeWait::Silent(Spot::Stage))),
        Place::Dead if !observed.others.iter().any(is_live_user) => Some(end_stage(entry, observed)),
        // The users of a mount that is made anew cannot wait for each other. Their targets stay as they are.
        Place::Dead if entry.renewing => Some(NodeAction::Unmount(Spot::Stage, How::Lazily)),
        Place::Dead => Some(NodeAction::Wait(NodeWait::DeadStage)),
        _ if unknown => Some(NodeAction::Call(NodeCall::Stage)),
        Place::Empty if !(observed.is_device && made) => match tries.stage {
            None => Some(NodeAction::Call(NodeCall::Stage)),
            Some(Answer::Done) => None,
            Some(_) => Some(NodeAction::GiveUp),
        },
        Place::Mounted | Place::Empty if made => {
            (entry.stage != Reach::Made).then_some(NodeAction::Record(Proof::StageShared))
        }
        Place::Mounted | Place::Empty => Some(match tries.stage {
            None => NodeAction::Call(NodeCall::Stage),
            // An earlier call has half succeeded, and the plugin does not repeat it.
            Some(answer) if answer.is_refusal() && !tries.stage_ended => {
                match observed.others.iter().any(Entry::holds_stage) {
                    true => NodeAction::Wait(NodeWait::LeavingStage),
                    false => end_stage(entry, observed),
                }
            }
            Some(_) => NodeAction::GiveUp,
        }),
    }
}

/// Ends a stage that no claim can use, after what the claim itself may have published from it.
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
        // An earlier call has half succeeded, and the plugin does not repeat it.
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

/// Ends a target before the volume is published there anew.
fn end_target(entry: &Entry, observed: &Observed<'_>) -> NodeAction {
    let reach = if entry.publish == Reach::Never { Reach::Never } else { Reach::Unclear };
    let gone = undo(reach, observed.target, observed.tries.unpublish, observed);
    act(gone, NodeCall::Unpublish, Spot::Target, Proof::TargetGone)
}

/// Takes a broken mount out of the tree and lets the plugin know; what the plugin answers does not matter.
fn renew_target(observed: &Observed<'_>) -> NodeAction {
    match observed.tries.unpublish {
        _ if observed.target != Place::Empty => NodeAction::Unmount(Spot::Target, How::Lazily),
        None => NodeAction::Call(NodeCall::Unpublish),
        Some(Answer::Done | Answer::NotFound) => NodeAction::Record(Proof::TargetGone(Because::Undone)),
        Some(_) => NodeAction::Record(Proof::TargetGone(Because::Absent)),
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
