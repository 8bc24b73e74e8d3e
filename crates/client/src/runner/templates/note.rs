//! What an agent has to know of the templates of a task that runs when it starts again. It lies in the task's private
//! directory, which is in memory and which the task does not see: the machine's end ends the task too.

use crate::alloc_dir::TaskDir;
use caravan_sys::dir::{Access, Mounts};
use caravan_types::UnixNanos;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::ffi::OsStr;
use std::path::Path;

/// Tells one text from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(<Sha256 as sha2::Digest>::digest(bytes).into())
    }
}

/// What is known of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Note {
    /// The time and the seed that it was rendered with: with them it says the same again.
    pub(super) clock: Option<(UnixNanos, u64)>,
    /// What the task was last told that it says.
    pub(super) told: Option<Digest>,
    /// Its text, if that is read from a file.
    pub(super) source: Option<Digest>,
}

const DIR: &str = "private";
const FILE: &str = "templates.json";
/// Largest file that is read.
const MOST: u64 = 1024 * 1024;

/// Notes of an earlier agent, in the order of the templates; none if there are none that can be read.
pub(super) fn load(dirs: &TaskDir) -> Vec<Note> {
    let read = || dirs.open_part(DIR)?.read_all(Path::new(FILE), MOST, Mounts::Refuse);
    serde_json::from_slice(&read().unwrap_or_default()).unwrap_or_default()
}

pub(super) fn store(dirs: &TaskDir, notes: &[Note]) -> Result<(), caravan_sys::Error> {
    // Plain data with text keys; nothing can fail in memory.
    let bytes = serde_json::to_vec(notes).unwrap_or_default();
    dirs.open_part(DIR)?.replace(OsStr::new(FILE), &bytes, Access::mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_back() {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("t"), shared: base.path().join("alloc") };
        assert_eq!(load(&dirs), []);
        std::fs::create_dir_all(dirs.private()).unwrap();
        let note = Note { clock: Some((UnixNanos(7), 9)), told: Some(Digest::of(b"x")), source: None };
        store(&dirs, std::slice::from_ref(&note)).unwrap();
        assert_eq!(load(&dirs), [note]);
    }
}
