//! What the ledger of a node knows of a claim, and how calls and proofs change it.

use super::{Answer, Goal, NodeCall, Proof};
use serde::{Deserialize, Serialize};

/// How far a claim got on its node. The order is the order of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MountPhase {
    /// The servers granted it; the plugin was not called yet.
    #[default]
    Granted,
    /// Staging is about to begin or under way.
    Staging,
    /// Staged (or no stage is needed); publishing is about to begin or under way.
    Publishing,
    /// Published, with proof.
    Mounted,
    /// Unpublishing is about to begin or under way.
    Unpublishing,
    /// Nothing is published for the allocation.
    Unpublished,
    /// Nothing is staged, or others use the stage; the servers have not taken the proof yet.
    Unstaged,
}

/// How far a call that makes something got, as the ledger knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// The call was never made, or what it made was undone with proof.
    #[default]
    Never,
    /// The call was made, and its outcome is not known.
    Unclear,
    /// The call succeeded.
    Made,
}

/// What the ledger of a node knows of a claim, as far as decisions go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// How far the claim got.
    pub phase: MountPhase,
    /// The plugin stages.
    pub stages: bool,
    /// How far NodeStageVolume got, or taking part in another claim's stage.
    pub stage: Reach,
    /// How far NodePublishVolume got.
    pub publish: Reach,
    /// The mount broke and is made anew.
    pub renewing: bool,
}

impl Entry {
    /// Returns the entry with what is not recorded taken from its phase: entries of earlier releases have a phase only.
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
        Self { phase, stages, stage: if stages { stage } else { Reach::Never }, publish, renewing }
    }

    /// Returns whether the claim uses its stage: it took part in a finished one and has not let go of it.
    pub fn holds_stage(&self) -> bool {
        self.stages && self.stage == Reach::Made && self.phase < MountPhase::Unstaged
    }

    /// Returns whether the plugin was called for the claim and may hold something for it.
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

    /// Returns the entry after the answer of a call. Undoing counts by its proof only.
    #[must_use]
    pub fn learn(self, call: NodeCall, answer: Answer) -> Self {
        match (call, answer) {
            (NodeCall::Stage, Answer::Done) => Self { stage: Reach::Made, ..self },
            (NodeCall::Publish, Answer::Done) => Self { publish: Reach::Made, ..self },
            _ => self,
        }
    }

    /// Returns the entry after a proof. [`Proof::StageGone`] is written to the other entries of the stage as well
    /// ([`Entry::without_stage`]).
    #[must_use]
    pub fn record(self, goal: Goal, proof: Proof) -> Self {
        let phase = |to: MountPhase| if goal == Goal::Release { to } else { self.phase };
        match proof {
            Proof::StageShared => Self { stage: Reach::Made, ..self },
            Proof::TargetGone(_) => {
                Self { publish: Reach::Never, phase: phase(MountPhase::Unpublished), ..self }
            }
            Proof::StageGone(_) | Proof::StageLeft => {
                Self { stage: Reach::Never, phase: phase(MountPhase::Unstaged), ..self }
            }
        }
    }

    /// Returns the entry after the stage that it shares has ended for all claims.
    #[must_use]
    pub fn without_stage(self) -> Self {
        Self { stage: Reach::Never, ..self }
    }
}
