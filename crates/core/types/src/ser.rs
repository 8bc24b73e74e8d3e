//! Small helpers for serde.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Returns whether a value equals its default, so that its key is omitted.
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

/// Collections that clients read as `null` when empty. Use as `#[serde(with = "crate::ser::nil")]`.
pub mod nil {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    /// A collection that can be empty.
    pub trait Collection {
        /// Returns whether the collection is empty.
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

/// Key and value pairs with secret values. `Debug` prints only the keys.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Wraps the pairs.
    pub fn new(pairs: BTreeMap<String, String>) -> Self {
        Self(pairs)
    }
    /// Returns the pairs, for the one call that needs them.
    pub fn expose(&self) -> &BTreeMap<String, String> {
        &self.0
    }
    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns these pairs, with those of `other` added or replaced.
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
