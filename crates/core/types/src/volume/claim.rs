//! Claims: the right of an allocation to use a volume, and the progress of its use and release.

use super::{AccessMode, AttachmentMode};
use crate::id::{AllocId, JobId, NodeId, PluginId, VolumeKey};
use crate::job::MountOptions;
use crate::sealed::SealedSecrets;
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The id of a claim: the volume and the allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId {
    /// The key of the volume.
    pub volume: VolumeKey,
    /// The UUID of the allocation.
    pub alloc: AllocId,
}

/// Whether the allocation writes to the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMode {
    /// The allocation only reads.
    #[default]
    Read,
    /// The allocation reads and writes.
    Write,
}

/// The progress of a claim (design section 4.1). Phases are ordered as a claim passes through them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimPhase {
    /// The claim was granted with the placement.
    #[default]
    Reserved,
    /// ControllerPublishVolume is intended or under way.
    Attaching,
    /// The volume is attached to the node, or the plugin does not attach volumes.
    Attached,
    /// The client proved its mount.
    Mounted,
    /// The allocation is terminal; the client must unpublish and unstage the volume.
    Releasing,
    /// The client proved that nothing is published for the allocation.
    Unpublished,
    /// The client proved that nothing is staged, or that other claims on the node still use the stage.
    Unstaged,
    /// ControllerUnpublishVolume is intended or under way.
    Detaching,
    /// The node vanished; the claim waits until the node's lease has certainly run out.
    Fencing,
    /// The claim has ended, and is kept as history.
    Gone,
}

impl ClaimPhase {
    /// Returns the name of the phase for output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Attaching => "attaching",
            Self::Attached => "attached",
            Self::Mounted => "mounted",
            Self::Releasing => "releasing",
            Self::Unpublished => "unpublished",
            Self::Unstaged => "unstaged",
            Self::Detaching => "detaching",
            Self::Fencing => "fencing",
            Self::Gone => "gone",
        }
    }
    /// Returns whether the allocation may use the volume, or the volume is being prepared for it.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Reserved | Self::Attaching | Self::Attached | Self::Mounted)
    }
    /// Returns whether the claim still counts against the volume's limits.
    pub fn holds(self) -> bool {
        self != Self::Gone
    }
    /// Returns whether the node may still hold a mount for the claim.
    pub fn may_be_on_node(self) -> bool {
        matches!(self, Self::Attached | Self::Mounted | Self::Releasing | Self::Unpublished | Self::Fencing)
    }
}

/// The facts that the responses to a claim's calls of ControllerPublishVolume prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachCalls {
    /// A call may have attached the volume. Records of earlier releases are always in this state.
    #[default]
    Unclear,
    /// The intent is recorded, and every earlier call was refused for certain.
    Intended,
    /// Every call was refused for certain, so nothing is attached.
    Refused,
}

/// The right of an allocation to use a volume. The claim contains all facts that its release needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The volume and the allocation.
    pub id: ClaimId,
    /// The job of the allocation.
    pub job_id: JobId,
    /// The group of the allocation.
    pub task_group: String,
    /// The alias of the volume in the group.
    pub alias: String,
    /// Whether the allocation writes to the volume.
    pub mode: ClaimMode,
    /// The access mode that the group requests.
    pub access_mode: AccessMode,
    /// The attachment mode that the group requests.
    pub attachment_mode: AttachmentMode,
    /// The group's overrides of the mount options, merged with the volume's.
    pub mount_options: Option<MountOptions>,
    /// The node of the allocation.
    pub node_id: NodeId,
    /// The plugin of the volume.
    pub plugin_id: PluginId,
    /// The plugin's id of the volume.
    pub external_volume_id: String,
    /// The plugin's id of the node; empty while unknown.
    pub external_node_id: String,
    /// Whether the plugin requires a call of its controller to attach; `None` while unknown.
    pub needs_attach: Option<bool>,
    /// The facts that the calls of ControllerPublishVolume prove while the claim is attaching.
    pub attach_calls: AttachCalls,
    /// The `publish_context` that ControllerPublishVolume returned.
    pub publish_context: BTreeMap<String, String>,
    /// The progress of the claim.
    pub phase: ClaimPhase,
    /// Incremented when the claim of the same allocation is granted again, so that late reports are ignored.
    pub generation: u32,
    /// The number of failed attempts of the step in progress.
    pub tries: u32,
    /// The error that the plugin returned last, or the reason of the wait.
    pub last_error: String,
    /// The expected time of the next attempt, for display. 0 means immediately, and is the only value that has an
    /// effect.
    pub next_try: UnixNanos,
    /// Fencing: the expected time at which the volume is free for other nodes, for display. It has no effect: the
    /// waiting server measures the wait on its own clock.
    pub fence_until: UnixNanos,
    /// Fencing: the Raft index at which the silence of the node began; the wait counts only for this silence. 0 means
    /// that the node has been in contact since, and no wait counts. `None` in a fence that an earlier version began.
    pub fence_index: Option<u64>,
    /// The confirmation that the node is off, if the node has not been in contact since. Then its tasks are dead, and
    /// nothing waits for its lease.
    pub node_off: Option<ConfirmedOff>,
    /// The Raft index at which the claim was granted.
    pub create_index: u64,
    /// The Raft index of the last change of the claim.
    pub modify_index: u64,
    /// The time at which the claim was granted.
    pub create_time: UnixNanos,
    /// The time of the last change.
    pub modify_time: UnixNanos,
    /// The time at which the claim entered its phase.
    pub phase_since: UnixNanos,
    /// The last proof of a mount; `None` before a mount, and after the proof of its end.
    pub proof: Option<MountProof>,
    /// The size in bytes to which the node has expanded the mounted volume; compared with
    /// [`super::Volume::node_expand_to`].
    pub expanded_to: i64,
    /// Whether the volume's row was removed by force while the claim held, so that the release uses only facts of the
    /// claim.
    pub forsaken: bool,
    /// The secrets of the volume's row when it was removed by force, for the release.
    pub kept_secrets: SealedSecrets,
    /// The references to secrets of the volume's row when it was removed by force.
    pub kept_secrets_from: BTreeMap<String, String>,
    /// The last changes of phase, and the first of consecutive failures, oldest first, at most
    /// [`Claim::MAX_HISTORY`].
    pub history: Vec<ClaimTransition>,
}

/// An operator's confirmation that a machine does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConfirmedOff {
    /// The accessor of the operator's token; empty without access control.
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    /// The name of the token.
    pub name: String,
    /// The time of the confirmation.
    pub at: UnixNanos,
}

impl ConfirmedOff {
    /// Returns a description of the operator for messages: the token's name and accessor id, if present.
    pub fn by(&self) -> String {
        match (self.name.as_str(), self.accessor_id.as_str()) {
            ("", "") => "an operator".to_owned(),
            (name, "") => format!("\"{name}\""),
            ("", accessor) => format!("token {accessor}"),
            (name, accessor) => format!("\"{name}\" (token {accessor})"),
        }
    }
}

/// A change of phase or a failure of a claim, for `explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimTransition {
    /// The time of the change or failure.
    pub at: UnixNanos,
    /// The phase that the claim entered, or in which a step failed.
    pub phase: ClaimPhase,
    /// The error that the plugin returned, or a remark; often empty.
    pub note: String,
}

impl Claim {
    /// The number of transitions that are kept.
    pub const MAX_HISTORY: usize = 24;

    /// Adds an entry to the history, and removes the oldest entry beyond the limit.
    pub fn note(&mut self, at: UnixNanos, phase: ClaimPhase, note: impl Into<String>) {
        self.history.push(ClaimTransition { at, phase, note: note.into() });
        let surplus = self.history.len().saturating_sub(Self::MAX_HISTORY);
        self.history.drain(..surplus);
    }

    /// Returns whether the claim is on a volume, or on another volume that stands for the same storage.
    pub fn is_beside(&self, volume: &super::Volume) -> bool {
        self.id.volume == volume.key()
            || (self.plugin_id == volume.plugin_id
                && volume.storage() == Some(self.external_volume_id.as_str()))
    }

    /// Returns the usage of the volume. Claims with equal usage share a stage.
    pub fn usage(&self) -> Usage {
        Usage {
            read_only: self.mode == ClaimMode::Read,
            attachment_mode: self.attachment_mode,
            access_mode: self.access_mode,
        }
    }
}

/// The use of a volume on a node. Claims of equal usage share a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Whether the claims only read.
    pub read_only: bool,
    /// Whether the task receives a file system or a block device.
    pub attachment_mode: AttachmentMode,
    /// The number of nodes and writers that the mode allows.
    pub access_mode: AccessMode,
}

/// The client's proof of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountProof {
    /// The path on the node.
    pub path: String,
    /// The major and minor number of the device.
    pub device: String,
    /// The unique id of the mount (statx(2), `STATX_MNT_ID_UNIQUE`).
    pub mount_id: u64,
}

/// Nomad's claim states, as the HTTP API returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LegacyClaimState {
    /// The claim is in use.
    Taken = 0,
    /// The volume is detached from the node.
    NodeDetached = 1,
    /// The controller has detached the volume.
    ControllerDetached = 2,
    /// The claim can be removed.
    ReadyToFree = 3,
    /// The volume is being unpublished.
    Unpublishing = 4,
}

impl From<ClaimPhase> for LegacyClaimState {
    fn from(phase: ClaimPhase) -> Self {
        match phase {
            ClaimPhase::Reserved | ClaimPhase::Attaching | ClaimPhase::Attached | ClaimPhase::Mounted => {
                Self::Taken
            }
            ClaimPhase::Releasing | ClaimPhase::Fencing | ClaimPhase::Unpublished => Self::Unpublishing,
            ClaimPhase::Unstaged | ClaimPhase::Detaching => Self::NodeDetached,
            ClaimPhase::Gone => Self::ReadyToFree,
        }
    }
}
