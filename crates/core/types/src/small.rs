//! Compact types for values of which a server holds very many: maps of a few entries and repeated texts.
//!
//! A server holds hundreds of thousands of allocations. A node of a B-tree always has room for eleven entries, and
//! separate copies of the same text for each allocation would waste memory.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Deref, Index};
use std::sync::{Arc, LazyLock};

/// A string that is cheap to clone. Frequent strings are stored only once.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(Option<Arc<str>>);

/// The texts that most allocations contain.
static KNOWN: LazyLock<HashSet<Text>> = LazyLock::new(|| {
    let texts = [
        "Received",
        "Task Setup",
        "Started",
        "Terminated",
        "Restarting",
        "Not Restarting",
        "Killing",
        "Killed",
        "Building Task Directory",
        "message",
        "exit_code",
        "signal",
        "Tasks are running",
        "No tasks have started",
        "All tasks have completed",
        "Failed tasks",
        "alloc not needed due to job update",
        "alloc is being updated due to job update",
        "alloc is being migrated",
        "alloc is lost since its node is down",
    ];
    texts.into_iter().map(|text| Text(Some(Arc::from(text)))).collect()
});

impl Text {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}
impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}
impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
impl From<&str> for Text {
    fn from(text: &str) -> Self {
        match KNOWN.get(text) {
            Some(known) => known.clone(),
            None if text.is_empty() => Self(None),
            None => Self(Some(Arc::from(text))),
        }
    }
}
impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}
impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}
impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.as_str().to_owned()
    }
}
impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}
impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}
impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}
impl PartialEq<Text> for String {
    fn eq(&self, other: &Text) -> bool {
        self == other.as_str()
    }
}
impl PartialEq<Text> for str {
    fn eq(&self, other: &Text) -> bool {
        self == other.as_str()
    }
}
impl PartialEq<Text> for &str {
    fn eq(&self, other: &Text) -> bool {
        *self == other.as_str()
    }
}
impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "a text", |text| Self::from(text))
    }
}

/// Reads a text without a copy of it.
pub(crate) fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    make: impl Fn(&str) -> T,
) -> Result<T, D::Error> {
    struct Reads<F>(&'static str, F);
    impl<T, F: Fn(&str) -> T> Visitor<'_> for Reads<F> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            Ok((self.1)(text))
        }
    }
    deserializer.deserialize_str(Reads(expected, make))
}

/// A sorted map of a few entries that takes no more memory than its entries. A look-up takes logarithmic time; the
/// insertion of a new key copies all entries.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Map<K, V>(Box<[(K, V)]>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K, V> Map<K, V> {
    /// Returns an empty map.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Removes all entries.
    pub fn clear(&mut self) {
        self.0 = Box::default();
    }
    /// Returns the entries, ordered by key.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.0.iter().map(|(key, value)| (key, value))
    }
    /// Returns the entries with mutable values, ordered by key.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }
    /// Returns the keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key)
    }
    /// Returns the values, ordered by key.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }
    /// Returns mutable references to the values, ordered by key.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> + ExactSizeIterator {
        self.0.iter_mut().map(|(_, value)| value)
    }
    /// Returns the keys in order, and consumes the map.
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.0.into_vec().into_iter().map(|(key, _)| key)
    }
    /// Returns the values, ordered by key, and consumes the map.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_vec().into_iter().map(|(_, value)| value)
    }
    /// Keeps only the entries for which `keep` returns `true`.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut entries = std::mem::take(&mut self.0).into_vec();
        entries.retain_mut(|(key, value)| keep(key, value));
        self.0 = entries.into_boxed_slice();
    }
}

impl<K: Ord, V> Map<K, V> {
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }
    /// Returns the value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }
    /// Returns a mutable reference to the value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }
    /// Returns whether the map has a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }
    /// Inserts an entry and returns the value that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.put(at, key, value);
                None
            }
        }
    }
    fn put(&mut self, at: usize, key: K, value: V) {
        let mut entries = std::mem::take(&mut self.0).into_vec();
        entries.reserve_exact(1);
        entries.insert(at, (key, value));
        self.0 = entries.into_boxed_slice();
    }
    /// Removes an entry and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        let mut entries = std::mem::take(&mut self.0).into_vec();
        let (_, value) = entries.remove(at);
        self.0 = entries.into_boxed_slice();
        Some(value)
    }
    /// Returns the value of a key, after inserting the default value if the key is missing.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.put(at, key, V::default());
            at
        });
        &mut self.0[at].1
    }
}

type Iter<'m, K, V> = std::iter::Map<std::slice::Iter<'m, (K, V)>, fn(&'m (K, V)) -> (&'m K, &'m V)>;
type IterMut<'m, K, V> =
    std::iter::Map<std::slice::IterMut<'m, (K, V)>, fn(&'m mut (K, V)) -> (&'m K, &'m mut V)>;

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            // Of several entries with one key, the last one is kept.
            entries.reverse();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.dedup_by(|a, b| a.0 == b.0);
        }
        Self(entries.into_boxed_slice())
    }
}
impl<K: Ord, V> Extend<(K, V)> for Map<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
    }
}
impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Map<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}
impl<K: Ord, V> From<BTreeMap<K, V>> for Map<K, V> {
    fn from(entries: BTreeMap<K, V>) -> Self {
        entries.into_iter().collect()
    }
}
impl<K, V> IntoIterator for Map<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}
impl<'m, K, V> IntoIterator for &'m Map<K, V> {
    type Item = (&'m K, &'m V);
    type IntoIter = Iter<'m, K, V>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
impl<'m, K, V> IntoIterator for &'m mut Map<K, V> {
    type Item = (&'m K, &'m mut V);
    type IntoIter = IterMut<'m, K, V>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
impl<K: Ord + Borrow<Q>, V, Q: Ord + ?Sized> Index<&Q> for Map<K, V> {
    type Output = V;
    /// # Panics
    /// If the map does not have the key, as in maps of the standard library.
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("indexing a map promises that the key is there")
    }
}
impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
impl<K: Serialize, V: Serialize> Serialize for Map<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Map<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Reads<K, V> {
            type Value = Map<K, V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map<K, V>, A::Error> {
                let mut entries = Vec::with_capacity(map.size_hint().unwrap_or(0).min(64));
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries.into_iter().collect())
            }
        }
        deserializer.deserialize_map(Reads(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_read_like_strings() {
        let text = Text::from("Started");
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"Started\"");
        assert_eq!(serde_json::from_str::<Text>("\"Started\"").unwrap(), text);
        assert_eq!(text, "Started");
        assert_eq!(Text::default(), Text::from(""));
        assert_eq!(format!("{text:>9}{:?}", Text::from("a\"b")), "  Started\"a\\\"b\"");
        let known: HashSet<Text> = [Text::from("x")].into();
        assert!(known.contains("x"));
    }

    proptest! {
        #[test]
        fn a_map_is_what_a_tree_is(ops in prop::collection::vec((any::<bool>(), 0_u8..12, any::<u8>()), 0..60)) {
            let (mut small, mut tree) = (Map::new(), BTreeMap::new());
            for (put, key, value) in ops {
                if put {
                    prop_assert_eq!(small.insert(key, value), tree.insert(key, value));
                } else {
                    prop_assert_eq!(small.remove(&key), tree.remove(&key));
                }
                prop_assert_eq!(small.get(&key), tree.get(&key));
            }
            *small.or_default(3) ^= 1;
            *tree.entry(3).or_default() ^= 1;
            prop_assert!(small.iter().eq(tree.iter()));
            prop_assert_eq!(serde_json::to_string(&small).unwrap(), serde_json::to_string(&tree).unwrap());
            let packed = rmp_serde::to_vec_named(&tree).unwrap();
            prop_assert_eq!(&rmp_serde::from_slice::<Map<u8, u8>>(&packed).unwrap(), &small);
            prop_assert_eq!(tree.into_iter().rev().collect::<Map<u8, u8>>(), small);
        }
    }
}
