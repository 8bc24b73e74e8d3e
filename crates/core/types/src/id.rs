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
    /// No object is the empty text, which takes no memory of its own.
    text: ArcStr,
}

/// The first seven bytes, most significant first, and how many there are: up to seven, or more (eight). Beginnings sort
/// as the texts do, as far as they differ.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Beginning(u64);

impl Beginning {
    fn of(text: &str) -> Self {
        let mut bytes = [0; 8];
        let length = text.len().min(7);
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        bytes[7] = if text.len() > 7 { 8 } else { u8::try_from(length).unwrap_or(7) };
        Self(u64::from_be_bytes(bytes))
    }

    /// Whether it is the whole text.
    fn is_whole(self) -> bool {
        self.0.to_be_bytes()[7] < 8
    }
}

impl Id {
    fn new(text: &str) -> Self {
        let beginning = Beginning::of(text);
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
    // Searching a table is hardly more than this.
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
            /// The id as text.
            pub fn as_str(&self) -> &str {
                self.0.text.as_str()
            }
            /// Whether both have one text in memory, as copies of each other have.
            pub fn is_copy_of(&self, other: &Self) -> bool {
                ArcStr::ptr_eq(&self.0.text, &other.0.text)
            }
            /// Whether this is the empty id (no object).
            pub fn is_empty(&self) -> bool {
                self.0.text.is_empty()
            }
            /// The first eight characters, as shown in tables.
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
    /// A client agent, by UUID.
    NodeId
);
id!(
    /// An allocation, by UUID.
    AllocId
);
id!(
    /// An evaluation, by UUID.
    EvalId
);
id!(
    /// A deployment, by UUID.
    DeploymentId
);
id!(
    /// A job within its namespace.
    JobId
);
id!(
    /// A namespace.
    Namespace
);
id!(
    /// A CSI volume within its namespace.
    VolumeId
);
id!(
    /// A CSI plugin, global to the region.
    PluginId
);
id!(
    /// A registration of a service, unique in the region.
    ServiceId
);
id!(
    /// A host volume, by UUID.
    HostVolumeId
);
id!(
    /// The path of a variable within its namespace.
    VariablePath
);

impl Namespace {
    /// The namespace that is always there.
    pub fn default_namespace() -> Self {
        Self::new("default")
    }
}

/// A job: namespace and id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// Namespace of the job.
    pub namespace: Namespace,
    /// Id of the job.
    pub id: JobId,
}

impl JobKey {
    /// Key of a job in a namespace.
    pub fn new(namespace: impl Into<Namespace>, id: impl Into<JobId>) -> Self {
        Self { namespace: namespace.into(), id: id.into() }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.id)
    }
}

/// A volume: namespace and id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeKey {
    /// Namespace of the volume.
    pub namespace: Namespace,
    /// Id of the volume.
    pub id: VolumeId,
}

impl VolumeKey {
    /// Key of a volume in a namespace.
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
        /// Tables are searched by ids and by texts alike.
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
