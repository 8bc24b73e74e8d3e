//! Volume requests of groups and mounts of tasks (docs/reference/storage.md, sections 4.1 and 4.2).

use crate::ser::{is_default, nil};
use crate::volume::{AccessMode, AttachmentMode};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    /// A CSI volume.
    #[default]
    Csi,
    /// A host volume: a directory of the node.
    Host,
}

/// A group's request for a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeRequest {
    /// The alias in the group.
    pub name: String,
    /// The kind of the volume.
    #[serde(rename = "Type")]
    pub kind: VolumeType,
    /// The id of a CSI volume, or the name of a host volume.
    pub source: String,
    /// Whether the tasks can only read the volume.
    pub read_only: bool,
    /// Whether later allocations use the same volume; only for host volumes.
    pub sticky: bool,
    /// The desired access mode.
    pub access_mode: AccessMode,
    /// The desired attachment mode.
    pub attachment_mode: AttachmentMode,
    /// The mount options that replace those of the volume.
    pub mount_options: Option<MountOptions>,
    /// Whether the source gets the allocation's suffix `[N]`.
    pub per_alloc: bool,
    /// The action on the tasks when their mount breaks.
    #[serde(skip_serializing_if = "is_default")]
    pub broken_mount: BrokenMount,
    /// The owner of the volume's root, a name or a number; empty changes nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub user: String,
    /// The group of the volume's root, a name or a number; empty changes nothing. A plugin with the capability for it
    /// receives the group as the mount group (CSI, `VOLUME_MOUNT_GROUP`).
    #[serde(skip_serializing_if = "is_default")]
    pub group: String,
    /// The permissions of the volume's root, octal; empty changes nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: String,
    /// The kinds of host volumes that the request may use, decided when the job was registered.
    #[serde(rename = "CaravanHostAccess", skip_serializing_if = "is_default")]
    pub host_access: HostAccess,
}

/// The kinds of host volumes that a volume request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostAccess {
    /// Host volumes of the agents' configuration, and host volumes that users created in the job's namespace.
    #[default]
    Any,
    /// Only host volumes that users created in the job's namespace.
    Created,
}

/// The action on the tasks when their mount breaks, for example because its daemon died or an operator unmounted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BrokenMount {
    /// Reports the broken mount and leaves the tasks alone. Tasks are not started again on this mount.
    #[default]
    Hold,
    /// Stops the tasks, mounts the volume again and restarts the tasks.
    Restart,
    /// Mounts the volume again while the tasks run.
    Remount,
}

impl BrokenMount {
    /// Returns the name in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Restart => "restart",
            Self::Remount => "remount",
        }
    }
}

impl VolumeRequest {
    /// Returns the volume's id for an allocation: `source`, or `source[N]` when the request is per allocation.
    pub fn source_for(&self, alloc_name: &str) -> String {
        if !self.per_alloc {
            return self.source.clone();
        }
        let suffix = alloc_name.rfind('[').map_or("", |at| &alloc_name[at..]);
        format!("{}{suffix}", self.source)
    }
}

/// The options with which a file system is mounted. `Debug` hides the flags, which may contain credentials.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MountOptions {
    /// The type of the file system; empty lets the plugin select one.
    #[serde(rename = "FSType")]
    pub fs_type: String,
    /// The flags of the mount.
    #[serde(with = "nil")]
    pub mount_flags: Vec<String>,
}

impl MountOptions {
    /// Returns whether no option is set, which is the same as no options.
    pub fn is_empty(&self) -> bool {
        self.fs_type.is_empty() && self.mount_flags.is_empty()
    }

    /// Returns these options, replaced by the options that `other` sets.
    pub fn merged(&self, other: &Self) -> Self {
        Self {
            fs_type: if other.fs_type.is_empty() { self.fs_type.clone() } else { other.fs_type.clone() },
            mount_flags: if other.mount_flags.is_empty() {
                self.mount_flags.clone()
            } else {
                other.mount_flags.clone()
            },
        }
    }
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.mount_flags.is_empty() { "[]" } else { "[REDACTED]" };
        f.debug_struct("MountOptions").field("fs_type", &self.fs_type).field("mount_flags", &flags).finish()
    }
}

/// The visibility of mounts of one side on the other side (mount_namespaces(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PropagationMode {
    /// New mounts of neither side are visible on the other side: rprivate.
    #[default]
    Private,
    /// New mounts of the host are visible in the task: rslave.
    HostToTask,
    /// New mounts of both sides are visible on the other side: rshared.
    Bidirectional,
}

impl PropagationMode {
    /// Returns the name in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::HostToTask => "host-to-task",
            Self::Bidirectional => "bidirectional",
        }
    }
}

/// A mount of a group's volume in a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMount {
    /// The alias of the group's volume.
    pub volume: String,
    /// The path in the task.
    pub destination: String,
    /// Whether the task can only read the volume.
    pub read_only: bool,
    /// The visibility of new mounts between the node and the task.
    pub propagation_mode: PropagationMode,
    /// The SELinux label: `z`, `Z` or empty.
    #[serde(rename = "SELinuxLabel")]
    pub selinux_label: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_alloc_sources_take_the_suffix_of_the_name() {
        let request = VolumeRequest { source: "data".into(), per_alloc: true, ..Default::default() };
        assert_eq!(request.source_for("job.group[12]"), "data[12]");
        let shared = VolumeRequest { source: "data".into(), ..Default::default() };
        assert_eq!(shared.source_for("job.group[12]"), "data");
    }
}
