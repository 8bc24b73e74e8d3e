//! The storage system behind a fault plugin, read without the plugin: its records, the written stamps, and
//! its faults.

mod stamps;

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The shared directory of a fault plugin.
#[derive(Clone, Debug)]
pub struct San {
    dir: PathBuf,
}

/// The storage system's record of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SanVolume {
    /// The nodes to which the volume is attached.
    pub attached: Vec<String>,
    /// The nodes and paths where the volume is staged.
    pub staged: Vec<(String, String)>,
    /// The nodes and paths where the volume is published.
    pub published: Vec<(String, String)>,
}

/// One line of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The allocation of the writer.
    pub alloc: String,
    /// The run of the writer within the allocation.
    pub run: String,
    /// The boot time in nanoseconds.
    pub at: u64,
}

impl San {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the shared directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the plugin's log of calls.
    pub fn trace(&self) -> PathBuf {
        self.dir.join("trace.jsonl")
    }

    /// Returns the record of a volume; `None` if the volume does not exist.
    ///
    /// # Errors
    /// Fails if the state cannot be read.
    pub fn volume(&self, id: &str) -> Result<Option<SanVolume>> {
        let state: Value = match fs::read(self.dir.join("state.json")) {
            Ok(text) => serde_json::from_slice(&text).context("read the state of the storage system")?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("read the state of the storage system"),
        };
        let Some(volume) = state["volumes"].get(id) else { return Ok(None) };
        let nodes = |field: &str| volume[field].as_object().cloned().unwrap_or_default();
        let mut found =
            SanVolume { attached: nodes("attached").keys().cloned().collect(), ..Default::default() };
        for (node, paths) in nodes("staged") {
            let paths = paths.as_array().into_iter().flatten().filter_map(Value::as_str);
            found.staged.extend(paths.map(|path| (node.clone(), path.to_owned())));
        }
        for (node, paths) in nodes("published") {
            let paths = paths.as_object().into_iter().flatten();
            found.published.extend(paths.map(|(path, _)| (node.clone(), path.clone())));
        }
        Ok(Some(found))
    }

    /// Sets the fault rules (see the plugin's `faults.rs`); an empty list removes all faults.
    ///
    /// # Errors
    /// Fails if the rules cannot be written.
    pub fn set_faults(&self, rules: &[Value]) -> Result<()> {
        let _lock = self.lock_faults()?;
        self.save_faults(rules)
    }

    /// Adds a fault rule.
    ///
    /// # Errors
    /// Fails if the rule cannot be written.
    pub fn add_fault(&self, rule: Value) -> Result<()> {
        let _lock = self.lock_faults()?;
        let mut rules: Vec<Value> = match fs::read(self.dir.join("faults.json")) {
            Ok(text) => serde_json::from_slice(&text).context("read the rules of faults")?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).context("read the rules of faults"),
        };
        rules.push(rule);
        self.save_faults(&rules)
    }

    fn save_faults(&self, rules: &[Value]) -> Result<()> {
        let new = self.dir.join("faults.json.new");
        fs::write(&new, serde_json::to_vec(rules)?)?;
        Ok(fs::rename(new, self.dir.join("faults.json"))?)
    }

    /// Locks the fault rules. The plugin counts rules down under the same lock.
    fn lock_faults(&self) -> Result<Flock<File>> {
        let file = File::options().create(true).append(true).open(self.dir.join("faults.lock"))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).context("lock the faults")
    }

    /// Returns all stamps on a volume that is a directory, in the order of writing.
    ///
    /// # Errors
    /// Fails if the stamps cannot be read.
    pub fn stamps(&self, volume: &str) -> Result<Vec<Stamp>> {
        let path = self.dir.join("data").join(volume).join("stamps");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        stamps::read(&text).with_context(|| format!("in {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_added() {
        let dir = tempfile::tempdir().unwrap();
        let san = San::new(dir.path().to_owned());
        san.add_fault(serde_json::json!({"action": "exit"})).unwrap();
        san.add_fault(serde_json::json!({"action": "hang"})).unwrap();
        let text = fs::read_to_string(dir.path().join("faults.json")).unwrap();
        assert_eq!(text, r#"[{"action":"exit"},{"action":"hang"}]"#);
        san.set_faults(&[]).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("faults.json")).unwrap(), "[]");
    }
}
