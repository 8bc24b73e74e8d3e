//! Newtypes for ids, so that one kind of id can never be passed for another.

use arcstr::ArcStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The shared text of an id, with an inline copy of its first bytes. Tables are searched by ids, and most comparisons
/// are decided by the first bytes, without a fetch of both texts from memory.
#[derive(Clone, Default)]
struct Id {
    beginning: Beginning,
    /// The text. The empty text means no object, and takes no memory.
    text: ArcStr,
}

/// The first seven bytes, most significant first, and then their number, or 8 if the text is longer. Beginnings sort
/// as their texts, unless both are equal.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Beginning(u64);

impl Beginning {
    fn new(text: &str) -> Self {
        let mut bytes = [0; 8];
        let length = text.len().min(7);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        bytes[7] = if text.len() > 7 { 8 } else { u8::try_from(length).unwrap_or(7) };
        Self(u64::from_be_bytes(bytes))
    }

    /// Returns whether the beginning is the whole text.
    fn is_whole(self) -> bool {
        self.0.to_be_bytes()[7] < 8
    }
}

impl Id {
    fn new(text: &str) -> Self {
        let beginning = Beginning::new(text);
        Self { beginning, text: if text.is_empty() { ArcStr::new() } else { ArcStr::from(text) } }
    }
}

impl PartialEq for Id {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.beginning == other.beginning
            && (self.beginning.is_whole()
                || ArcStr::ptr_eq(&self.text, &other.text)
                || self.text == other.text)
    }
}
impl Eq for Id {}
impl PartialOrd for Id {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Id {
    // Most of the time of a search in a table is spent here.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.beginning.cmp(&other.beginning).then_with(|| {
            if self.beginning.is_whole() || ArcStr::ptr_eq(&self.text, &other.text) {
                Ordering::Equal
            } else {
                self.text.as_str().cmp(other.text.as_str())
            }
        })
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(Id);

        impl $name {
            /// Wraps the text of an id.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Id::new(text.as_ref()))
            }
            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                self.0.text.as_str()
            }
            /// Returns whether both ids share one text in memory, as clones do.
            pub fn is_copy_of(&self, other: &Self) -> bool {
                ArcStr::ptr_eq(&self.0.text, &other.0.text)
            }
            /// Returns whether the id is empty, which means no object.
            pub fn is_empty(&self) -> bool {
                self.0.text.is_empty()
            }
            /// Returns the first eight characters, as shown in tables.
            pub fn short(&self) -> &str {
                let text = self.as_str();
                text.get(..8).unwrap_or(text)
            }
        }
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::small::text(deserializer, "an id", |text| Self::new(text))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.as_str())
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }
        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }
    };
}

id!(
    /// The UUID of a node.
    NodeId
);
id!(
    /// The UUID of an allocation.
    AllocId
);
id!(
    /// The UUID of an evaluation.
    EvalId
);
id!(
    /// The UUID of a deployment.
    DeploymentId
);
id!(
    /// The id of a job, unique in its namespace.
    JobId
);
id!(
    /// The name of a namespace.
    Namespace
);
id!(
    /// The id of a CSI volume, unique in its namespace.
    VolumeId
);
id!(
    /// The id of a CSI plugin, unique in the region.
    PluginId
);
id!(
    /// The id of a service registration, unique in the region.
    ServiceId
);
id!(
    /// The UUID of a host volume.
    HostVolumeId
);
id!(
    /// The path of a variable, unique in its namespace.
    VariablePath
);

impl Namespace {
    /// Returns the namespace `default`, which exists in every cluster.
    pub fn default_namespace() -> Self {
        Self::new("default")
    }
}

/// The key of a job: namespace and id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The id of the job.
    pub id: JobId,
}

impl JobKey {
    /// Returns the key of a job in a namespace.
    pub fn new(namespace: impl Into<Namespace>, id: impl Into<JobId>) -> Self {
        Self { namespace: namespace.into(), id: id.into() }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)
    }
}

/// The key of a volume: namespace and id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeKey {
    /// The namespace of the volume.
    pub namespace: Namespace,
    /// The id of the volume.
    pub id: VolumeId,
}

impl VolumeKey {
    /// Returns the key of a volume in a namespace.
    pub fn new(namespace: impl Into<Namespace>, id: impl Into<VolumeId>) -> Self {
        Self { namespace: namespace.into(), id: id.into() }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_are_eight_characters_or_the_whole() {
        assert_eq!(AllocId::new("0123456789").short(), "01234567");
        assert_eq!(AllocId::new("abc").short(), "abc");
    }

    #[test]
    fn no_object_sorts_first_and_hashes_like_its_text() {
        assert_eq!(NodeId::new(""), NodeId::default());
        assert!(NodeId::default() < NodeId::new("0") && NodeId::default().is_empty());
        assert_eq!(serde_json::from_str::<NodeId>("\"\"").unwrap(), NodeId::default());
        let known = std::collections::HashSet::from([NodeId::new("a"), NodeId::default()]);
        assert!(known.contains("a") && known.contains(""));
    }

    proptest::proptest! {
        /// Tables are searched by ids and by texts, so both must have the same order.
        #[test]
        fn ids_compare_as_their_texts(a in "[\\x00ab]{0,10}", b in "[\\x00ab]{0,10}") {
            let (x, y) = (NodeId::new(&a), NodeId::new(&b));
            proptest::prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            proptest::prop_assert_eq!(x == y, a == b);
            proptest::prop_assert_eq!(x.clone().cmp(&x), Ordering::Equal);
        }
    }

    #[test]
    fn ids_serialise_as_plain_strings() {
        let json = serde_json::to_string(&NodeId::new("n1")).unwrap();
        assert_eq!(json, "\"n1\"");
        assert_eq!(serde_json::from_str::<NodeId>(&json).unwrap(), NodeId::new("n1"));
    }
}
