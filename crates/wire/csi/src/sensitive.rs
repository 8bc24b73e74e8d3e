//! Values that must never be displayed: secrets and mount flags.

use std::{collections::BTreeMap, fmt};

/// The replacement for a hidden value.
const REDACTED: &str = "***";

/// The length below which values are not replaced in texts, since they may occur in ordinary words.
const SHORTEST_SCRUBBED: usize = 4;

/// The secrets of one call, by name. `Debug` shows only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<String, String>);

impl Secrets {
    /// Returns `text` with every value of these secrets replaced by `***`.
    pub fn scrub(&self, text: &str) -> String {
        scrub_all(self.0.values().map(String::as_str), text)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} redacted)", self.0.len())
    }
}

impl From<BTreeMap<String, String>> for Secrets {
    fn from(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }
}

/// Flags for a mount, in order. According to the specification
/// ("VolumeCapability.MountVolume.mount_flags"), flags may contain passwords, so `Debug` shows only their
/// number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MountFlags(pub Vec<String>);

impl MountFlags {
    /// Returns `text` with the value of every `name=value` flag replaced by `***`.
    pub fn scrub(&self, text: &str) -> String {
        scrub_all(self.0.iter().filter_map(|flag| flag.split_once('=').map(|(_, value)| value)), text)
    }
}

impl fmt::Debug for MountFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MountFlags({} redacted)", self.0.len())
    }
}

impl From<Vec<String>> for MountFlags {
    fn from(flags: Vec<String>) -> Self {
        Self(flags)
    }
}

fn scrub_all<'a>(values: impl Iterator<Item = &'a str>, text: &str) -> String {
    let mut values: Vec<&str> = values.filter(|value| value.len() >= SHORTEST_SCRUBBED).collect();
    // The longest first, since one value may be part of another.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, REDACTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_value() {
        let secrets = Secrets([("password".to_owned(), "hunter2".to_owned())].into());
        assert_eq!(format!("{secrets:?}"), "Secrets(1 redacted)");
        let flags = MountFlags(vec!["password=hunter2".to_owned()]);
        assert_eq!(format!("{flags:?}"), "MountFlags(1 redacted)");
    }

    #[test]
    fn scrub_takes_the_longest_value_first_and_leaves_short_ones() {
        let secrets = Secrets(
            [("a", "hunter2"), ("b", "hunter2-long"), ("c", "no")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        );
        assert_eq!(secrets.scrub("no login with hunter2-long or hunter2"), "no login with *** or ***");
    }

    #[test]
    fn scrub_of_flags_takes_values_only() {
        let flags = MountFlags(vec!["ro".to_owned(), "password=hunter2".to_owned()]);
        assert_eq!(flags.scrub("bad option password=hunter2 (ro)"), "bad option password=*** (ro)");
    }
}
