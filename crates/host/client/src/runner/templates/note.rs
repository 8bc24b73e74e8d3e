//! The record of a running task's templates that a restarted agent needs. The record is in the task's private
//! directory, a tmpfs that the task does not see: after a reboot, neither the task nor the record exists.

use crate::alloc_dir::TaskDir;
use caravan_sys::dir::{Access, Mounts};
use caravan_types::UnixNanos;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::ffi::OsStr;
use std::path::Path;

/// A digest that distinguishes texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self(<Sha256 as sha2::Digest>::digest(bytes).into())
    }
}

/// The record of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Note {
    /// The time and the seed of the rendering; with them, rendering gives the same text again.
    pub(super) clock: Option<(UnixNanos, u64)>,
    /// The digest of the text that the task was last notified of.
    #[serde(rename = "told")]
    pub(super) reported: Option<Digest>,
    /// The digest of the template's source, if it is read from a file.
    pub(super) source: Option<Digest>,
}

const DIR: &str = "private";
const FILE: &str = "templates.json";
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Loads the records of an earlier agent, in the order of the templates; empty if they cannot be read.
pub(super) fn load(dirs: &TaskDir) -> Vec<Note> {
    let read = || dirs.open_part(DIR)?.read_all(Path::new(FILE), MAX_FILE_BYTES, Mounts::Refuse);
    serde_json::from_slice(&read().unwrap_or_default()).unwrap_or_default()
}

pub(super) fn store(dirs: &TaskDir, notes: &[Note]) -> Result<(), caravan_sys::Error> {
    // Plain data with text keys: serializing to memory cannot fail.
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
        let note = Note { clock: Some((UnixNanos(7), 9)), reported: Some(Digest::new(b"x")), source: None };
        store(&dirs, std::slice::from_ref(&note)).unwrap();
        assert_eq!(load(&dirs), [note]);
    }
}
