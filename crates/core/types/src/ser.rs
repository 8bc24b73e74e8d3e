//! Small serde helpers shared by the shapes.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Whether a value equals its default: the test of "omit-empty" shapes.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads `null` as the default value.
pub fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Collections whose empty state clients know as `null`: use as `#[serde(with = "crate::ser::nil")]`.
pub mod nil {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    /// A collection that can be empty.
    pub trait Collection {
        /// Whether it holds nothing.
        fn empty(&self) -> bool;
    }
    impl<T> Collection for [T] {
        fn empty(&self) -> bool {
            self.is_empty()
        }
    }
    impl<C: Collection + ?Sized> Collection for &C {
        fn empty(&self) -> bool {
            (*self).empty()
        }
    }
    impl<T> Collection for Vec<T> {
        fn empty(&self) -> bool {
            self.is_empty()
        }
    }
    impl<T> Collection for Box<[T]> {
        fn empty(&self) -> bool {
            self.is_empty()
        }
    }
    impl<K, V> Collection for crate::small::Map<K, V> {
        fn empty(&self) -> bool {
            self.is_empty()
        }
    }
    impl<K, V> Collection for BTreeMap<K, V> {
        fn empty(&self) -> bool {
            self.is_empty()
        }
    }

    /// Writes an empty collection as `null`.
    pub fn serialize<S: Serializer, C: Collection + Serialize>(
        value: &C,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if value.empty() { serializer.serialize_none() } else { value.serialize(serializer) }
    }

    /// Reads `null` as an empty collection.
    pub fn deserialize<'de, D: Deserializer<'de>, C: Default + Deserialize<'de>>(
        deserializer: D,
    ) -> Result<C, D::Error> {
        super::null_default(deserializer)
    }
}

/// Key and value pairs that must never be shown. `Debug` prints the keys only.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Takes the pairs into custody.
    pub fn new(pairs: BTreeMap<String, String>) -> Self {
        Self(pairs)
    }
    /// The pairs, for the one call that needs them.
    pub fn expose(&self) -> &BTreeMap<String, String> {
        &self.0
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// These secrets with the other's on top.
    pub fn overlaid(&self, other: &Self) -> Self {
        let mut pairs = self.0.clone();
        pairs.extend(other.0.iter().map(|(k, v)| (k.clone(), v.clone())));
        Self(pairs)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|k| (k, "[REDACTED]"))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_print() {
        let s = Secrets::new(BTreeMap::from([("token".to_owned(), "hunter2".to_owned())]));
        assert!(!format!("{s:?}").contains("hunter2"));
        assert!(format!("{s:?}").contains("token"));
    }
}
