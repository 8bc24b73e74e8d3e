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
    /// Volume.
    pub volume: VolumeKey,
    /// Allocation.
    pub alloc: AllocId,
}

/// Whether the allocation writes to the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMode {
    /// Only reads.
    #[default]
    Read,
    /// Reads and writes.
    Write,
}

/// The progress of a claim (design section 4.1). Phases are ordered as a claim passes through them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimPhase {
    /// Granted with the placement.
    #[default]
    Reserved,
    /// Controller publish is intended or under way.
    Attaching,
    /// Attached to the node, or the plugin does not attach.
    Attached,
    /// The client proved its mount.
    Mounted,
    /// The allocation is over; the client must unpublish and unstage.
    Releasing,
    /// The client proved that nothing is published for the allocation.
    Unpublished,
    /// The client proved that nothing is staged (or that others on the node still use the stage).
    Unstaged,
    /// Controller unpublish is intended or under way.
    Detaching,
    /// The node vanished; waits until its lease has certainly run out.
    Fencing,
    /// Over, kept as history.
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

/// What the answers to a claim's calls of ControllerPublish prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachCalls {
    /// A call may have attached the volume. Records of earlier releases do not say more.
    #[default]
    Unclear,
    /// The intention stands, and every call before it was refused for certain.
    Intended,
    /// Every call was refused for certain: nothing is attached.
    Refused,
}

/// The right of an allocation to use a volume. Holds everything that its release needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Volume and allocation.
    pub id: ClaimId,
    /// Job of the allocation.
    pub job_id: JobId,
    /// Group of the allocation.
    pub task_group: String,
    /// Alias of the volume in the group.
    pub alias: String,
    /// Reads or writes.
    pub mode: ClaimMode,
    /// The access mode that the group requests.
    pub access_mode: AccessMode,
    /// The attachment mode that the group requests.
    pub attachment_mode: AttachmentMode,
    /// The group's overrides of the mount options, merged with the volume's.
    pub mount_options: Option<MountOptions>,
    /// Node.
    pub node_id: NodeId,
    /// Plugin.
    pub plugin_id: PluginId,
    /// The plugin's id of the volume.
    pub external_volume_id: String,
    /// The plugin's id of the node; empty until known.
    pub external_node_id: String,
    /// Whether the plugin attaches: `None` while not known.
    pub needs_attach: Option<bool>,
    /// What the calls of ControllerPublish prove while the claim is attaching.
    pub attach_calls: AttachCalls,
    /// The `publish_context` that ControllerPublishVolume returned.
    pub publish_context: BTreeMap<String, String>,
    /// The progress of the claim.
    pub phase: ClaimPhase,
    /// Incremented when the claim of the same allocation is granted again, so that late reports are ignored.
    pub generation: u32,
    /// Failed tries of the step in progress.
    pub tries: u32,
    /// The error that the plugin returned last, or the reason of the wait.
    pub last_error: String,
    /// When the step is expected to be tried again, for display; 0 = at once, and only that decides.
    pub next_try: UnixNanos,
    /// Fencing: when the volume is expected to be handed on, for display. It decides nothing: the server that waits
    /// measures the wait on its own clock.
    pub fence_until: UnixNanos,
    /// Fencing: the index with which the silence of the node began that is being waited out; 0 = the node has been in
    /// contact since, and nothing has been waited out. None in a fence that an earlier version began.
    pub fence_index: Option<u64>,
    /// An operator confirmed that the node is off, and the node has not been in contact since: its tasks are dead, and
    /// the lease need not be waited out.
    pub node_off: Option<ConfirmedOff>,
    /// The Raft index at which the claim was granted.
    pub create_index: u64,
    /// The Raft index of the last change of the claim.
    pub modify_index: u64,
    /// When granted.
    pub create_time: UnixNanos,
    /// When last changed.
    pub modify_time: UnixNanos,
    /// When the claim entered its phase.
    pub phase_since: UnixNanos,
    /// The mount that the client proved last; none before, and none after the proof of its end.
    pub proof: Option<MountProof>,
    /// The size in bytes to which the node has expanded the mounted volume; compared with
    /// [`super::Volume::node_expand_to`].
    pub expanded_to: i64,
    /// The volume's row was removed by force while the claim held, so the release uses only facts of the claim.
    pub forsaken: bool,
    /// The secrets of the volume's row when it was removed by force, for the release.
    pub kept_secrets: SealedSecrets,
    /// The references to secrets of the volume's row when it was removed by force.
    pub kept_secrets_from: BTreeMap<String, String>,
    /// The last changes of phase and the first of each row of failures, oldest first, at most
    /// [`Claim::MAX_HISTORY`].
    pub history: Vec<ClaimTransition>,
}

/// An operator's confirmation that a machine does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConfirmedOff {
    /// Accessor id of the operator's token; empty without access control.
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    /// Name of the token.
    pub name: String,
    /// When.
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
    /// When.
    pub at: UnixNanos,
    /// The phase that the claim entered, or in which a step failed.
    pub phase: ClaimPhase,
    /// The error that the plugin returned, or a remark; often empty.
    pub note: String,
}

impl Claim {
    /// Most transitions kept.
    pub const MAX_HISTORY: usize = 24;

    /// Adds an entry to the history, and drops the oldest entry beyond the limit.
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

    /// Returns how the claim uses the volume. Claims with equal usage share a stage.
    pub fn usage(&self) -> Usage {
        Usage {
            read_only: self.mode == ClaimMode::Read,
            attachment_mode: self.attachment_mode,
            access_mode: self.access_mode,
        }
    }
}

/// How a volume is used on a node; claims of equal usage share a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Only reads.
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
    /// Path on the host.
    pub path: String,
    /// Major and minor number of the device.
    pub device: String,
    /// Unique id of the mount (statx(2), `STATX_MNT_ID_UNIQUE`).
    pub mount_id: u64,
}

/// Nomad's claim states, as the HTTP API returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LegacyClaimState {
    /// In use.
    Taken = 0,
    /// Off the node.
    NodeDetached = 1,
    /// Off the controller.
    ControllerDetached = 2,
    /// To be removed.
    ReadyToFree = 3,
    /// Being released.
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
