//! The modes in which a volume is used: access mode, attachment mode, mount options.

use crate::MountFlags;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// An unknown mode. The error text is the text that users of the job language expect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownMode {
    /// The text is not an access mode; it may be empty.
    #[error("unknown volume access mode: {0}")]
    Access(String),
    /// The text is not an attachment mode; it may be empty.
    #[error("unknown volume attachment mode: {0}")]
    Attachment(String),
}

/// The number of nodes and writers that may use a volume at a time, with the names of job and volume files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// `single-node-reader-only`: one node may read.
    SingleNodeReaderOnly,
    /// `single-node-writer`: one node may read and write.
    SingleNodeWriter,
    /// `multi-node-reader-only`: several nodes may read.
    MultiNodeReaderOnly,
    /// `multi-node-single-writer`: several nodes may read, one of them may write.
    MultiNodeSingleWriter,
    /// `multi-node-multi-writer`: several nodes may read and write.
    MultiNodeMultiWriter,
}

impl AccessMode {
    /// All access modes.
    pub const ALL: [Self; 5] = [
        Self::SingleNodeReaderOnly,
        Self::SingleNodeWriter,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
    ];

    /// Returns the name in job and volume files.
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

/// The form in which a task uses a volume: as a directory or as a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachmentMode {
    /// `file-system`: a mounted directory.
    FileSystem,
    /// `block-device`: the raw device.
    BlockDevice,
}

impl AttachmentMode {
    /// Returns the name in job and volume files.
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

/// File system, mount flags and group of the files; each may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// File system, for example `ext4`; empty means that the plugin chooses.
    pub fs_type: String,
    /// Mount flags in order; never displayed.
    pub mount_flags: MountFlags,
    /// The group id for the volume's files; empty leaves them unchanged. Only for plugins with
    /// [`VolumeMountGroup`](crate::NodeCapability::VolumeMountGroup); others may ignore it
    /// ("MountVolume.volume_mount_group").
    pub volume_mount_group: String,
}

/// One mode of using a volume: `VolumeCapability` of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCapability {
    /// The number of nodes and writers that may use the volume.
    pub access_mode: AccessMode,
    /// Whether the volume is used as a directory or as a device.
    pub attachment_mode: AttachmentMode,
    /// The mount options; sent only with [`AttachmentMode::FileSystem`].
    pub mount: MountOptions,
}

impl VolumeCapability {
    /// Returns a capability for a mounted directory without mount options.
    pub fn file_system(access_mode: AccessMode) -> Self {
        Self { access_mode, attachment_mode: AttachmentMode::FileSystem, mount: MountOptions::default() }
    }

    /// Returns a capability for a raw device.
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
