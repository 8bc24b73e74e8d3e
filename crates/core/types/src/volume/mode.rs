//! Access and attachment modes.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

macro_rules! mode {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            /// The mode is not set (the empty string).
            #[default]
            Unknown,
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// Returns the name in job files and JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::Unknown => "",
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    "" => Ok(Self::Unknown),
                    $($text => Ok(Self::$variant),)*
                    other => {
                        let near = crate::words::suggestion(other, [$($text),*]);
                        Err(format!(concat!("unknown volume ", $what, " mode: {}{}"), other, near))
                    }
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

mode!(
    /// The nodes and allocations that may use a volume at the same time.
    AccessMode, "access" {
        /// One node reads.
        SingleNodeReaderOnly = "single-node-reader-only",
        /// One node reads and writes.
        SingleNodeWriter = "single-node-writer",
        /// Many nodes read.
        MultiNodeReaderOnly = "multi-node-reader-only",
        /// Many nodes read, one writes.
        MultiNodeSingleWriter = "multi-node-single-writer",
        /// Many nodes read and write.
        MultiNodeMultiWriter = "multi-node-multi-writer",
        /// One allocation of one node reads and writes; host volumes only.
        SingleNodeSingleWriter = "single-node-single-writer",
        /// Allocations of one node read and write; host volumes only.
        SingleNodeMultiWriter = "single-node-multi-writer",
    }
);

mode!(
    /// The form in which a task receives the volume.
    AttachmentMode, "attachment" {
        /// A block device.
        BlockDevice = "block-device",
        /// A mounted file system.
        FileSystem = "file-system",
    }
);

impl AccessMode {
    /// Returns whether the mode permits writing.
    pub fn can_write(self) -> bool {
        !matches!(self, Self::Unknown | Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }
    /// Returns whether at most one claim may write at a time.
    pub fn single_writer(self) -> bool {
        matches!(self, Self::SingleNodeWriter | Self::MultiNodeSingleWriter | Self::SingleNodeSingleWriter)
    }
    /// Returns whether all claims must be on one node.
    pub fn single_node(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::SingleNodeWriter) || self.host_only()
    }
    /// Returns whether only host volumes have the mode, which CSI plugins never receive.
    pub fn host_only(self) -> bool {
        matches!(self, Self::SingleNodeSingleWriter | Self::SingleNodeMultiWriter)
    }
}

/// A pair of modes in which a volume may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Capability {
    /// The form in which a task receives the volume.
    pub attachment_mode: AttachmentMode,
    /// The nodes and allocations that may use the volume at the same time.
    pub access_mode: AccessMode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_and_write_as_words() {
        let mode: AccessMode = "multi-node-single-writer".parse().unwrap();
        assert!(mode.single_writer() && !mode.single_node());
        assert_eq!(serde_json::to_string(&mode).unwrap(), "\"multi-node-single-writer\"");
        assert_eq!("both".parse::<AttachmentMode>().unwrap_err(), "unknown volume attachment mode: both");
    }
}
