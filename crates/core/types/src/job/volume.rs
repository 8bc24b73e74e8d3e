//! Volume requests of groups and mounts of tasks (docs/reference/storage.md, sections 4.1 and 4.2).

use crate::ser::{is_default, nil};
use crate::volume::{AccessMode, AttachmentMode};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    /// A CSI volume.
    #[default]
    Csi,
    /// A directory of the host.
    Host,
}

/// What a group asks of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeRequest {
    /// Alias in the group.
    pub name: String,
    /// Kind.
    #[serde(rename = "Type")]
    pub kind: VolumeType,
    /// Volume id, or name of a host volume.
    pub source: String,
    /// Only reads.
    pub read_only: bool,
    /// Stay with the volume; host volumes only.
    pub sticky: bool,
    /// Wanted access mode.
    pub access_mode: AccessMode,
    /// Wanted attachment mode.
    pub attachment_mode: AttachmentMode,
    /// Overrides of the volume's mount options.
    pub mount_options: Option<MountOptions>,
    /// The source gets the allocation's suffix `[N]`.
    pub per_alloc: bool,
    /// What becomes of the tasks when the mount breaks under them.
    #[serde(skip_serializing_if = "is_default")]
    pub broken_mount: BrokenMount,
    /// Owner of the volume's root, name or number; empty leaves it.
    #[serde(skip_serializing_if = "is_default")]
    pub user: String,
    /// Group of the volume's root, name or number; empty leaves it. Given to the plugin as the mount group
    /// when it can do that (CSI, `VOLUME_MOUNT_GROUP`).
    #[serde(skip_serializing_if = "is_default")]
    pub group: String,
    /// Permissions of the volume's root, octal; empty leaves them.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: String,
    /// Which host volumes of the name may be used, as allowed when the job was registered.
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
    /// Tell, and leave them alone. They are not started again on it.
    #[default]
    Hold,
    /// Stops the tasks, mounts the volume again and restarts the tasks.
    Restart,
    /// Mounts the volume again while the tasks run.
    Remount,
}

impl BrokenMount {
    /// The word in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Restart => "restart",
            Self::Remount => "remount",
        }
    }
}

impl VolumeRequest {
    /// The volume's id for an allocation: `source`, or `source[N]` when the request is per allocation.
    pub fn source_for(&self, alloc_name: &str) -> String {
        if !self.per_alloc {
            return self.source.clone();
        }
        let suffix = alloc_name.rfind('[').map_or("", |at| &alloc_name[at..]);
        format!("{}{suffix}", self.source)
    }
}

/// How a file system is mounted. `Debug` hides the flags, which may hold credentials.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MountOptions {
    /// File system type; empty leaves it to the plugin.
    #[serde(rename = "FSType")]
    pub fs_type: String,
    /// Flags.
    #[serde(with = "nil")]
    pub mount_flags: Vec<String>,
}

impl MountOptions {
    /// Whether nothing is asked for, which is the same as no options.
    pub fn is_empty(&self) -> bool {
        self.fs_type.is_empty() && self.mount_flags.is_empty()
    }

    /// These options with the non-empty ones of `other` on top.
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

/// How mounts made on one side show on the other (mount_namespaces(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PropagationMode {
    /// Neither way: rprivate.
    #[default]
    Private,
    /// The host's show in the task: rslave.
    HostToTask,
    /// Both ways: rshared.
    Bidirectional,
}

impl PropagationMode {
    /// The word in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::HostToTask => "host-to-task",
            Self::Bidirectional => "bidirectional",
        }
    }
}

/// A group's volume as seen by a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMount {
    /// Alias of the group's volume.
    pub volume: String,
    /// Path in the task.
    pub destination: String,
    /// Only reads.
    pub read_only: bool,
    /// Propagation.
    pub propagation_mode: PropagationMode,
    /// Label, `z`, `Z` or empty.
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
