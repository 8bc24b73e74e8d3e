//! How a volume is to be used: access mode, attachment mode, mount options.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::MountFlags;

/// A mode that is not known. The text is the one users of the job language know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownMode {
    /// Not an access mode, the empty string included.
    #[error("unknown volume access mode: {0}")]
    Access(String),
    /// Not an attachment mode, the empty string included.
    #[error("unknown volume attachment mode: {0}")]
    Attachment(String),
}

/// Who may use a volume at a time, by the names of job and volume files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// `single-node-reader-only`
    SingleNodeReaderOnly,
    /// `single-node-writer`
    SingleNodeWriter,
    /// `multi-node-reader-only`
    MultiNodeReaderOnly,
    /// `multi-node-single-writer`
    MultiNodeSingleWriter,
    /// `multi-node-multi-writer`
    MultiNodeMultiWriter,
}

impl AccessMode {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::SingleNodeReaderOnly,
        Self::SingleNodeWriter,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
    ];

    /// The name in job and volume files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SingleNodeReaderOnly => "single-node-reader-only",
            Self::SingleNodeWriter => "single-node-writer",
            Self::MultiNodeReaderOnly => "multi-node-reader-only",
            Self::MultiNodeSingleWriter => "multi-node-single-writer",
            Self::MultiNodeMultiWriter => "multi-node-multi-writer",
        }
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AccessMode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.as_str() == name)
            .ok_or_else(|| UnknownMode::Access(name.to_owned()))
    }
}

/// What a task gets: a directory or a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachmentMode {
    /// `file-system`: a mounted directory.
    FileSystem,
    /// `block-device`: the raw device.
    BlockDevice,
}

impl AttachmentMode {
    /// The name in job and volume files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileSystem => "file-system",
            Self::BlockDevice => "block-device",
        }
    }
}

impl fmt::Display for AttachmentMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AttachmentMode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::FileSystem, Self::BlockDevice]
            .into_iter()
            .find(|mode| mode.as_str() == name)
            .ok_or_else(|| UnknownMode::Attachment(name.to_owned()))
    }
}

/// The file system wanted, flags for its mount, and the group of its files; all may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// For example `ext4`; empty leaves the choice to the plugin.
    pub fs_type: String,
    /// Flags in order, never shown.
    pub mount_flags: MountFlags,
    /// The number of the group that the volume's files are to belong to; empty: as they are. Only for
    /// plugins that name [`VolumeMountGroup`](crate::NodeCapability::VolumeMountGroup), others may ignore
    /// it ("MountVolume.volume_mount_group").
    pub volume_mount_group: String,
}

/// One way to use a volume, `VolumeCapability` of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeCapability {
    /// Who may use it.
    pub access_mode: AccessMode,
    /// As a directory or as a device.
    pub attachment_mode: AttachmentMode,
    /// Only sent with [`AttachmentMode::FileSystem`].
    pub mount: MountOptions,
}

impl VolumeCapability {
    /// A mounted directory with no mount options.
    pub fn file_system(access_mode: AccessMode) -> Self {
        Self { access_mode, attachment_mode: AttachmentMode::FileSystem, mount: MountOptions::default() }
    }

    /// A raw device.
    pub fn block_device(access_mode: AccessMode) -> Self {
        Self { access_mode, attachment_mode: AttachmentMode::BlockDevice, mount: MountOptions::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for mode in AccessMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for mode in [AttachmentMode::FileSystem, AttachmentMode::BlockDevice] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
    }

    #[test]
    fn unknown_names_say_so() {
        let error = "many".parse::<AccessMode>().expect_err("there is no such mode");
        assert_eq!(error.to_string(), "unknown volume access mode: many");
        let error = "".parse::<AttachmentMode>().expect_err("empty is no mode");
        assert_eq!(error.to_string(), "unknown volume attachment mode: ");
    }
}
