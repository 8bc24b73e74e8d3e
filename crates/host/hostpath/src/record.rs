//! The records of volumes, snapshots and groups as they are on disk.

use crate::{mutable::Mutable, request::FsKind};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt};

/// The version of the record format that this code writes.
pub(crate) const VERSION: u32 = 3;

/// The identity of a state directory: eight hexadecimal digits, chosen at its first use. It is part of every volume
/// id, so that an instance on another host can recognize foreign volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance(String);

impl Instance {
    /// Parses an instance; `None` if the text has another format.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        is_hex(text, 8).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! ids {
    ($(#[$doc:meta])* $name:ident $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(String);

        impl $name {
            pub(crate) fn new(instance: &Instance, name: &str) -> Self {
                Self(format!("{}-{}-{}", $prefix, instance.0, hash(name)))
            }

            /// Parses an id; `None` if the text has another format.
            pub(crate) fn parse(text: &str) -> Option<Self> {
                let (instance, hash) = text.strip_prefix($prefix)?.strip_prefix('-')?.split_once('-')?;
                (is_hex(instance, 8) && is_hex(hash, 24)).then(|| Self(text.to_owned()))
            }

            /// Returns the instance that created the object.
            pub(crate) fn instance(&self) -> &str {
                self.0.get(3..11).unwrap_or_default()
            }

            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

ids!(
    /// The id of a volume: `hp-<instance>-<24 hexadecimal digits of the name's SHA-256>`. It is derived from the
    /// name, so that two creations with the same name cannot create two volumes. This format is safe as a file name.
    VolumeId "hp"
);
ids!(
    /// The id of a snapshot, like that of a volume but with the prefix `hs`.
    SnapshotId "hs"
);
ids!(
    /// The id of a group of snapshots, like that of a volume but with the prefix `hg`.
    GroupId "hg"
);

impl SnapshotId {
    /// Returns the id of the snapshot of one volume in a group. Names contain no NUL, so it differs from all other
    /// snapshot ids.
    pub(crate) fn of_member(instance: &Instance, group: &str, volume: &str) -> Self {
        Self::new(instance, &format!("{group}\0{volume}"))
    }
}

fn hash(name: &str) -> String {
    Sha256::digest(name.as_bytes()).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The kind of a volume's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Backing {
    /// A directory of the host; its size is not enforced.
    Directory,
    /// A directory of the host with a project quota; the file system enforces its size.
    Quota,
    /// A sparse file with a file system; its size is enforced.
    Image {
        /// The file system's type.
        fs: FsKind,
    },
    /// A sparse file that is used as a device; its size is enforced.
    Block,
    /// A thin volume of LVM; its size is enforced.
    Thin {
        /// The file system's type; absent for a volume that is used as a device.
        fs: Option<FsKind>,
    },
}

impl Backing {
    /// Returns whether the data is a directory of the host's file system.
    pub(crate) fn is_directory(self) -> bool {
        matches!(self, Self::Directory | Self::Quota)
    }

    /// Returns whether the data is a sparse file.
    pub(crate) fn is_file(self) -> bool {
        matches!(self, Self::Image { .. } | Self::Block)
    }

    /// Returns whether the volume is used as a device, not as a directory.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Block | Self::Thin { fs: None })
    }

    /// Returns the type of the volume's own file system.
    pub(crate) fn fs(self) -> Option<FsKind> {
        match self {
            Self::Image { fs } => Some(fs),
            Self::Thin { fs } => fs,
            Self::Directory | Self::Quota | Self::Block => None,
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("a directory"),
            Self::Quota => f.write_str("a directory with a quota"),
            Self::Image { fs } => write!(f, "an image with {}", fs.name()),
            Self::Block => f.write_str("a block device"),
            Self::Thin { fs: Some(fs) } => write!(f, "a thin volume with {}", fs.name()),
            Self::Thin { fs: None } => f.write_str("a thin volume"),
        }
    }
}

/// The phase in a volume's life. The first and the last are written before the data is changed, so that a crash
/// leaves no data without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// The data is being created. No caller has the id of the volume yet, so it can be created again.
    Creating,
    /// The volume can be used.
    Ready,
    /// The data is being removed.
    Deleting,
}

/// An attachment: the controller has attached the volume to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) node_id: String,
    pub(crate) access_mode: i32,
    #[serde(default)]
    pub(crate) readonly: bool,
    /// A text that differs for every attachment, so that a stage with an old publish context is refused.
    pub(crate) token: String,
}

/// The way in which a volume is mounted at a path, to distinguish a repeated call from a different one. The record is
/// written before the mount is made; the mount table shows whether the mount exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) access_mode: i32,
    #[serde(default)]
    pub(crate) readonly: bool,
    /// The group for the volume's files, if one was requested.
    #[serde(default)]
    pub(crate) group: Option<u32>,
}

impl Use {
    /// Returns whether this use excludes all others ("SINGLE_NODE_SINGLE_WRITER").
    pub(crate) fn is_for_one(&self) -> bool {
        use caravan_proto::csi::volume_capability::access_mode::Mode;
        self.access_mode == i32::from(Mode::SingleNodeSingleWriter)
    }
}

/// The content that a volume was created from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) from: Origin,
    /// The size of the content in bytes at that time.
    pub(crate) size: u64,
}

/// The origin of a volume's content, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    Snapshot(String),
    Volume(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => write!(f, "the snapshot {id}"),
            Self::Volume(id) => write!(f, "the volume {id}"),
        }
    }
}

/// The record of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) backing: Backing,
    /// Size in bytes; 0 for a directory without a size.
    pub(crate) capacity: u64,
    /// The project whose quota limits a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<u32>,
    pub(crate) topology: Option<BTreeMap<String, String>>,
    /// Whether the top directory of an image has its final permissions; for other volumes always true.
    #[serde(default)]
    pub(crate) opened: bool,
    /// The content from which the volume was created; absent for an empty volume.
    #[serde(default)]
    pub(crate) source: Option<Source>,
    /// Whether the file system of an image is smaller than the image. It is expanded at the next mount, or by
    /// NodeExpandVolume.
    #[serde(default)]
    pub(crate) unfilled: bool,
    /// Whether its file system is frozen for a copy. If this is set after a crash, it must be thawed.
    #[serde(default)]
    pub(crate) frozen: bool,
    /// The current values of the mutable parameters.
    #[serde(default)]
    pub(crate) mutable: Mutable,
    /// The requested values of the mutable parameters at its creation.
    #[serde(default)]
    pub(crate) born: Mutable,
    /// Whether the volume may have excess space allocated, which must be released.
    #[serde(default)]
    pub(crate) slack: bool,
    #[serde(default)]
    pub(crate) attachment: Option<Attachment>,
    /// Uses by staging path.
    #[serde(default)]
    pub(crate) staged: BTreeMap<String, Use>,
    /// Uses by target path.
    #[serde(default)]
    pub(crate) published: BTreeMap<String, Use>,
}

/// A time since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instant {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i32,
}

/// The record of one snapshot: a copy of a volume's data, independent of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) version: u32,
    pub(crate) id: SnapshotId,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    /// The id of its source volume.
    pub(crate) volume: String,
    pub(crate) backing: Backing,
    /// Size of the volume in bytes; 0 for a directory without a size.
    pub(crate) size: u64,
    pub(crate) created: Instant,
    /// The group with which the snapshot is created and deleted; absent for a single snapshot.
    #[serde(default)]
    pub(crate) group: Option<GroupId>,
}

/// The record of a group snapshot. Its phase applies to all its snapshots: callers see them only while it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) version: u32,
    pub(crate) id: GroupId,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    /// The snapshots of the group by the ids of their volumes.
    pub(crate) members: BTreeMap<String, SnapshotId>,
    pub(crate) created: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_names_and_parse_back() {
        let instance = Instance::parse("0123abcd").expect("eight digits");
        let id = VolumeId::new(&instance, "data");
        assert_eq!(id, VolumeId::new(&instance, "data"));
        assert_ne!(id, VolumeId::new(&instance, "data2"));
        assert_eq!(VolumeId::parse(id.as_str()), Some(id.clone()));
        assert_eq!(id.instance(), "0123abcd");
        let snapshot = SnapshotId::new(&instance, "data");
        assert_eq!(SnapshotId::parse(snapshot.as_str()), Some(snapshot.clone()));
        assert_eq!(VolumeId::parse(snapshot.as_str()), None);
        assert_eq!(snapshot.instance(), "0123abcd");
    }

    #[test]
    fn nothing_else_is_an_id() {
        for text in
            ["", "data", "hp-", "hp-0123abcd-", "hp-0123abcd-../../../../etc/passwd/x", "hp-0123ABCD-0"]
        {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
        assert_eq!(Instance::parse("../../x"), None);
    }

    #[test]
    fn the_record_on_disk_keeps_its_form() {
        let record: Record = serde_json::from_str(
            r#"{"version":1,"id":"hp-0123abcd-0123456789abcdef01234567","name":"data","phase":"ready",
                "backing":{"kind":"image","fs":"xfs"},"capacity":314572800,"topology":{"zone":"a"},
                "staged":{"/s":{"access_mode":1}},"published":{"/t":{"access_mode":1,"readonly":true}}}"#,
        )
        .expect("records of version 1 can be read");
        assert_eq!(record.backing, Backing::Image { fs: FsKind::Xfs });
        assert_eq!(record.published["/t"], Use { access_mode: 1, readonly: true, group: None });
        assert!(!record.unfilled && !record.frozen && record.source.is_none());
        let again = serde_json::to_string(&record).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Record>(&again).expect("it was just written"), record);
    }
}
