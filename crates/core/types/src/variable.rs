//! Variables: small sets of named values that are kept sealed (docs/reference/http-api.md, section 5.9).

use crate::duration::GoDuration;
use crate::id::{Namespace, VariablePath};
use crate::sealed::SealedSecrets;
use crate::ser::Secrets;
use crate::time::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most bytes that names and values of one variable may have together.
pub const MAX_ITEMS_BYTES: usize = 64 * 1024;
/// Longest path.
pub const MAX_PATH: usize = 128;

/// A variable: namespace and path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VariableKey {
    /// Namespace; it need not exist.
    pub namespace: Namespace,
    /// Path. A write copies a page of the table of variables, and with it the keys on that page.
    pub path: VariablePath,
}

impl VariableKey {
    /// Key of a variable in a namespace.
    pub fn new(namespace: impl Into<Namespace>, path: impl Into<VariablePath>) -> Self {
        Self { namespace: namespace.into(), path: path.into() }
    }
}

impl fmt::Display for VariableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.path)
    }
}

/// A variable as the servers keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// Namespace and path.
    pub key: VariableKey,
    /// Its items, sealed.
    pub items: SealedSecrets,
    /// Who holds it.
    pub lock: Option<VariableLock>,
    /// Index of its creation.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
    /// When created.
    pub create_time: UnixNanos,
    /// When last changed.
    pub modify_time: UnixNanos,
}

/// Shortest and longest life of a lock.
pub const LOCK_LIFE: (Nanos, Nanos) = (Nanos::from_secs(10), Nanos::from_secs(24 * 3600));
/// Life and delay of a lock that does not say.
const LOCK_DEFAULT: Nanos = Nanos::from_secs(15);

/// A lock on a variable: while somebody holds it, nobody else writes the variable.
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
    /// With what it does not say filled in.
    #[must_use]
    pub fn or_default(mut self) -> Self {
        for duration in [&mut self.ttl, &mut self.lock_delay] {
            if duration.is_zero() {
                *duration = GoDuration(LOCK_DEFAULT);
            }
        }
        self
    }

    /// Checks life and delay.
    ///
    /// # Errors
    /// With every problem.
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

/// What a writer has to do with a variable's lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockUse {
    /// Nothing: refused while somebody holds it.
    #[default]
    None,
    /// It takes the lock; refused while somebody else holds it.
    Acquire,
    /// It holds the lock of this id.
    Held(String),
    /// It gives up the lock of this id.
    Release(String),
}

/// What lists tell of a variable.
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

/// A variable with its items. `Debug` shows their names only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariableDecrypted {
    /// All but the items.
    #[serde(flatten)]
    pub metadata: VariableMetadata,
    /// The items.
    #[serde(rename = "Items", skip_serializing_if = "Secrets::is_empty")]
    pub items: Secrets,
}

impl Variable {
    /// What lists tell of it.
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

/// Why a path is none (docs/reference/http-api.md, section 5.9).
///
/// # Errors
/// With the reference's sentence.
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

/// Where the value of a secret is: `path/of/variable#name`.
///
/// # Errors
/// With one sentence that says what is wrong with the reference.
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
