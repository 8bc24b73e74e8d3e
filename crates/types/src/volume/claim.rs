//! Claims: the right of an allocation to use a volume, and how far using or releasing it got.

use super::{AccessMode, AttachmentMode};
use crate::id::{AllocId, JobId, NodeId, PluginId, VolumeKey};
use crate::job::MountOptions;
use crate::sealed::SealedSecrets;
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A claim: volume and allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId {
    /// Volume.
    pub volume: VolumeKey,
    /// Allocation.
    pub alloc: AllocId,
}

/// Whether the allocation writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMode {
    /// Only reads.
    #[default]
    Read,
    /// Reads and writes.
    Write,
}

/// How far a claim got (design section 4.1). The order is the order of life.
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
    /// The word shown to people.
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
    /// Whether the allocation may use the volume or is on its way to.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Reserved | Self::Attaching | Self::Attached | Self::Mounted)
    }
    /// Whether the claim still counts against the volume's limits.
    pub fn holds(self) -> bool {
        self != Self::Gone
    }
    /// Whether the node may still hold a mount for it.
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
    /// Access mode asked for.
    pub access_mode: AccessMode,
    /// Attachment mode asked for.
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
    /// What controller publish answered.
    pub publish_context: BTreeMap<String, String>,
    /// How far it got.
    pub phase: ClaimPhase,
    /// Grows when the same allocation's claim is started anew, so that late reports do not count.
    pub generation: u32,
    /// Failed tries of the step in progress.
    pub tries: u32,
    /// The plugin's words of the last failure, or the reason of the wait.
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
    /// Index of its grant.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
    /// When granted.
    pub create_time: UnixNanos,
    /// When last changed.
    pub modify_time: UnixNanos,
    /// When it came to its phase.
    pub phase_since: UnixNanos,
    /// The mount that the client proved last; none before, and none after the proof of its end.
    pub proof: Option<MountProof>,
    /// Bytes to which the node has grown what it mounted; compared with [`super::Volume::node_expand_to`].
    pub expanded_to: i64,
    /// The volume's row was removed by force while the claim held: there is nothing to look up any more.
    pub forsaken: bool,
    /// The secrets that the row had then, for the release.
    pub kept_secrets: SealedSecrets,
    /// The references to secrets that it had then.
    pub kept_secrets_from: BTreeMap<String, String>,
    /// The last changes of phase and the first of each row of failures, oldest first, at most
    /// [`Claim::MAX_HISTORY`].
    pub history: Vec<ClaimTransition>,
}

/// The word of an operator that a machine is certainly off.
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
    /// The operator, for sentences: the token's name and accessor id where there are any.
    pub fn by(&self) -> String {
        match (self.name.as_str(), self.accessor_id.as_str()) {
            ("", "") => "an operator".to_owned(),
            (name, "") => format!("\"{name}\""),
            ("", accessor) => format!("token {accessor}"),
            (name, accessor) => format!("\"{name}\" (token {accessor})"),
        }
    }
}

/// Something that happened to a claim, for `explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimTransition {
    /// When.
    pub at: UnixNanos,
    /// The phase that it came to, or in which it failed.
    pub phase: ClaimPhase,
    /// The failure in the plugin's words, or what there is to say; often empty.
    pub note: String,
}

impl Claim {
    /// Most transitions kept.
    pub const MAX_HISTORY: usize = 24;

    /// Notes something, dropping the oldest beyond the limit.
    pub fn note(&mut self, at: UnixNanos, phase: ClaimPhase, note: impl Into<String>) {
        self.history.push(ClaimTransition { at, phase, note: note.into() });
        let surplus = self.history.len().saturating_sub(Self::MAX_HISTORY);
        self.history.drain(..surplus);
    }

    /// Whether it is about a volume, or about another one that stands for the same storage.
    pub fn is_beside(&self, volume: &super::Volume) -> bool {
        self.id.volume == volume.key()
            || (self.plugin_id == volume.plugin_id
                && volume.storage() == Some(self.external_volume_id.as_str()))
    }

    /// How the volume is used: what stages are shared by.
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
    /// What the task gets.
    pub attachment_mode: AttachmentMode,
    /// Who may use it.
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

/// The reference's claim states, answered in projections.
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
