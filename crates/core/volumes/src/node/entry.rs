//! The ledger entry of a claim on its node, and the effects of calls and proofs on it.

use super::{Answer, Goal, NodeCall, Proof};
use serde::{Deserialize, Serialize};

/// The progress of a claim on its node, in the order of its lifecycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MountPhase {
    /// The servers granted the claim; the plugin was not called yet.
    #[default]
    Granted,
    /// Staging is about to begin or in flight.
    Staging,
    /// Staged (or no stage is needed); publishing is about to begin or in flight.
    Publishing,
    /// Published, with proof.
    Mounted,
    /// Unpublishing is about to begin or in flight.
    Unpublishing,
    /// The volume is not published for the allocation.
    Unpublished,
    /// The volume is not staged, or other claims use the stage; the servers have not accepted the proof yet.
    Unstaged,
}

/// The recorded progress of a call that mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// The call was never made, or its effect was undone with proof.
    #[default]
    Never,
    /// The call was made, and its outcome is unknown.
    Unclear,
    /// The call succeeded.
    Made,
}

/// The part of a claim's ledger entry that decisions depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The progress of the claim.
    pub phase: MountPhase,
    /// Whether the plugin has the capability `STAGE_UNSTAGE_VOLUME`.
    pub stages: bool,
    /// The progress of NodeStageVolume, or of sharing another claim's stage.
    pub stage: Reach,
    /// The progress of NodePublishVolume.
    pub publish: Reach,
    /// Whether the mount broke and is being mounted again.
    pub renewing: bool,
    /// Whether the completed stage is gone, for example because the node lost its power. Another mount at its place
    /// proves nothing until the plugin confirms it. The claim still counts as a user of the stage until its release.
    pub stage_lost: bool,
}

impl Entry {
    /// Returns the entry with missing fields derived from its phase, because entries of earlier releases have only a
    /// phase.
    #[must_use]
    pub fn restored(
        phase: MountPhase,
        stages: bool,
        stage: Option<Reach>,
        publish: Option<Reach>,
        renewing: bool,
    ) -> Self {
        use MountPhase as P;
        let stage = stage.unwrap_or(match phase {
            P::Granted => Reach::Never,
            P::Staging => Reach::Unclear,
            P::Publishing | P::Mounted | P::Unpublishing | P::Unpublished => Reach::Made,
            P::Unstaged => Reach::Never,
        });
        let publish = publish.unwrap_or(match phase {
            P::Granted | P::Unpublished | P::Unstaged => Reach::Never,
            P::Staging | P::Publishing => Reach::Unclear,
            P::Mounted | P::Unpublishing => Reach::Made,
        });
        let stage = if stages { stage } else { Reach::Never };
        Self { phase, stages, stage, publish, renewing, stage_lost: false }
    }

    /// Returns whether the claim uses its stage: the stage is complete, and the claim has not released it.
    pub fn holds_stage(&self) -> bool {
        self.stages && self.stage == Reach::Made && self.phase < MountPhase::Unstaged
    }

    /// Returns whether the plugin confirmed the stage of this claim, and the stage has existed since.
    pub(super) fn has_good_stage(&self) -> bool {
        self.stage == Reach::Made && !self.stage_lost
    }

    /// Returns whether the plugin was called for the claim and may hold a mount for it.
    pub fn is_called(&self) -> bool {
        self.phase < MountPhase::Unstaged && (self.stage != Reach::Never || self.publish != Reach::Never)
    }

    /// Returns the entry that is written before a call.
    #[must_use]
    pub fn intend(self, goal: Goal, call: NodeCall) -> Self {
        let begun = |reach: Reach| if reach == Reach::Never { Reach::Unclear } else { reach };
        match call {
            NodeCall::Stage => Self { phase: MountPhase::Staging, stage: begun(self.stage), ..self },
            NodeCall::Publish => Self { phase: MountPhase::Publishing, publish: begun(self.publish), ..self },
            NodeCall::Unpublish if goal == Goal::Release => Self { phase: MountPhase::Unpublishing, ..self },
            NodeCall::Unpublish | NodeCall::Unstage => self,
        }
    }

    /// Returns the entry after the response to a call. An undoing call only counts by its proof.
    #[must_use]
    pub fn learn(self, call: NodeCall, answer: Answer) -> Self {
        match (call, answer) {
            (NodeCall::Stage, Answer::Done) => Self { stage: Reach::Made, stage_lost: false, ..self },
            (NodeCall::Publish, Answer::Done) => Self { publish: Reach::Made, ..self },
            _ => self,
        }
    }

    /// Returns the entry after a proof, which may also change the other entries of the stage
    /// ([`Entry::beside`]).
    #[must_use]
    pub fn record(self, goal: Goal, proof: Proof) -> Self {
        let phase = |to: MountPhase| if goal == Goal::Release { to } else { self.phase };
        match proof {
            Proof::StageShared => Self { stage: Reach::Made, stage_lost: false, ..self },
            Proof::StageLost => self.losing_stage(),
            Proof::TargetGone(_) => {
                Self { publish: Reach::Never, phase: phase(MountPhase::Unpublished), ..self }
            }
            Proof::StageGone(_) | Proof::StageLeft => {
                Self { stage: Reach::Never, stage_lost: false, phase: phase(MountPhase::Unstaged), ..self }
            }
        }
    }

    /// Returns the entry after another claim on the stage recorded a proof.
    #[must_use]
    pub fn beside(self, proof: Proof) -> Self {
        match proof {
            Proof::StageGone(_) => Self { stage: Reach::Never, stage_lost: false, ..self },
            Proof::StageLost => self.losing_stage(),
            Proof::StageShared | Proof::TargetGone(_) | Proof::StageLeft => self,
        }
    }

    fn losing_stage(self) -> Self {
        Self { stage_lost: self.stage == Reach::Made, ..self }
    }
}
