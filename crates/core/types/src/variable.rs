//! Variables: small sets of named values, stored sealed (docs/reference/http-api.md, section 5.9).

use crate::duration::GoDuration;
use crate::id::{Namespace, VariablePath};
use crate::sealed::SealedSecrets;
use crate::ser::Secrets;
use crate::time::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest size of the names and values of one variable together, in bytes.
pub const MAX_ITEMS_BYTES: usize = 64 * 1024;
/// The longest path, in bytes.
pub const MAX_PATH: usize = 128;

/// The key of a variable: namespace and path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VariableKey {
    /// The namespace, which need not exist.
    pub namespace: Namespace,
    /// The path. A write copies a page of the table of variables, and with it the keys on that page.
    pub path: VariablePath,
}

impl VariableKey {
    /// Returns the key of a variable in a namespace.
    pub fn new(namespace: impl Into<Namespace>, path: impl Into<VariablePath>) -> Self {
        Self { namespace: namespace.into(), path: path.into() }
    }
}

impl fmt::Display for VariableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.path)
    }
}

/// A variable as the servers store it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// The namespace and the path.
    pub key: VariableKey,
    /// The sealed items.
    pub items: SealedSecrets,
    /// The lock, while a holder has it.
    pub lock: Option<VariableLock>,
    /// The Raft index at which the variable was created.
    pub create_index: u64,
    /// The Raft index of the last change.
    pub modify_index: u64,
    /// The time of the creation.
    pub create_time: UnixNanos,
    /// The time of the last change.
    pub modify_time: UnixNanos,
}

/// The shortest and the longest time to live of a lock.
pub const LOCK_LIFE: (Nanos, Nanos) = (Nanos::from_secs(10), Nanos::from_secs(24 * 3600));
/// The time to live and the delay of a lock that sets none.
const LOCK_DEFAULT: Nanos = Nanos::from_secs(15);

/// A lock on a variable. Only the holder of the lock can write the variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.9")]
pub struct VariableLock {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "TTL")]
    pub ttl: GoDuration,
    pub lock_delay: GoDuration,
}

impl VariableLock {
    /// Returns the lock with defaults for a missing time to live and delay.
    #[must_use]
    pub fn or_default(mut self) -> Self {
        for duration in [&mut self.ttl, &mut self.lock_delay] {
            if duration.is_zero() {
                *duration = GoDuration(LOCK_DEFAULT);
            }
        }
        self
    }

    /// Checks the time to live and the delay.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if self.lock_delay.0.0 < 0 {
            errors.push("LockDelay must be positive".to_owned());
        }
        if self.ttl.0 < LOCK_LIFE.0 || self.ttl.0 > LOCK_LIFE.1 {
            errors.push("TTL must be between 10 seconds and 24 hours".to_owned());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// The use of a variable's lock by a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockUse {
    /// The write does not use the lock; refused while another caller holds the lock.
    #[default]
    None,
    /// The write acquires the lock; refused while another caller holds the lock.
    Acquire,
    /// The writer holds the lock with this id.
    Held(String),
    /// The write releases the lock with this id.
    Release(String),
}

/// A variable without its items, as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.9")]
pub struct VariableMetadata {
    pub namespace: Namespace,
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<VariableLock>,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}

/// A variable with its items. `Debug` shows only the names of the items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariableDecrypted {
    /// The fields of the variable except for its items.
    #[serde(flatten)]
    pub metadata: VariableMetadata,
    /// The items, by name.
    #[serde(rename = "Items", skip_serializing_if = "Secrets::is_empty")]
    pub items: Secrets,
}

impl Variable {
    /// Returns the variable without its items, as an element of a list.
    pub fn metadata(&self) -> VariableMetadata {
        VariableMetadata {
            namespace: self.key.namespace.clone(),
            path: self.key.path.as_str().to_owned(),
            lock: self.lock.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
            create_time: self.create_time,
            modify_time: self.modify_time,
        }
    }
}

/// Checks the path of a variable (docs/reference/http-api.md, section 5.9).
///
/// # Errors
/// Returns the message of the reference.
pub fn check_path(path: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '~' | '/');
    if path.is_empty() {
        return Err("missing variable path".to_owned());
    }
    if path.len() > MAX_PATH || !path.chars().all(plain) {
        return Err(format!("invalid path \"{path}\""));
    }
    let mut parts = path.split('/');
    if parts.next() != Some("nomad") {
        return Ok(());
    }
    let rest: Vec<&str> = parts.collect();
    match rest.as_slice() {
        ["jobs", ..] | ["sentinel", ..] => Ok(()),
        ["job-templates", name] if !name.is_empty() => Ok(()),
        _ => Err("only paths at \"nomad/jobs\" or \"nomad/job-templates\" and below are valid paths under the top-level \"nomad\" directory".to_owned()),
    }
}

/// Splits a reference to an item of a variable, `path/of/variable#name`, into path and name.
///
/// # Errors
/// Returns the problem of the reference, one sentence.
pub fn parse_reference(text: &str) -> Result<(&str, &str), String> {
    let wrong = |why: &str| format!("\"{text}\" is no reference to a variable: {why}");
    let (path, name) = text.split_once('#').ok_or_else(|| wrong("it must be of the form path#name"))?;
    if name.is_empty() {
        return Err(wrong("the name of an item is missing after #"));
    }
    check_path(path).map_err(|why| wrong(&why))?;
    Ok((path, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn paths_are_checked_as_recorded() {
        for good in
            ["a", "app/config", "nomad/jobs", "nomad/jobs/web/web/server", "nomad/job-templates/x", "n-_~/1"]
        {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        assert_eq!(check_path("bad path").unwrap_err(), "invalid path \"bad path\"");
        assert_eq!(check_path("").unwrap_err(), "missing variable path");
        assert!(check_path("nomad/bogus").unwrap_err().starts_with("only paths at \"nomad/jobs\""));
        assert!(check_path("nomad").is_err() && check_path("nomad/job-templates").is_err());
        assert!(check_path(&"a".repeat(129)).is_err());
    }

    #[test]
    fn references_name_a_path_and_an_item() {
        assert_eq!(parse_reference("db/creds#password"), Ok(("db/creds", "password")));
        for bad in ["db/creds", "db/creds#", "#x", "a b#c"] {
            assert!(parse_reference(bad).unwrap_err().contains("is no reference"), "{bad}");
        }
    }

    #[test]
    fn items_do_not_print() {
        let row = VariableDecrypted {
            items: Secrets::new(BTreeMap::from([("k".into(), "hunter2".into())])),
            ..Default::default()
        };
        assert!(!format!("{row:?}").contains("hunter2"));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["Items"]["k"], "hunter2");
        assert_eq!(json["Path"], "");
    }
}
