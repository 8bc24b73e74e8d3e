//! A snapshot that is being restored: its parts are stored one after the other, and replace the state together.
//!
//! A snapshot can be larger than the maximum size of a command. The parts belong to the state, so that every server
//! has them when the last command replaces the state at one index.

use caravan_types::blob::Blob;
use caravan_types::command::Refusal;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The received parts of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Staged {
    id: String,
    parts: Vec<Arc<Blob>>,
}

impl Staged {
    /// Returns the parts with the next one added. The first part of another restore replaces them.
    pub(crate) fn with(self, id: &str, number: u32, bytes: &Blob) -> Result<Self, Refusal> {
        let mut staged = if number == 0 { Self { id: id.to_owned(), parts: Vec::new() } } else { self };
        if staged.id != id || staged.parts.len() != number as usize {
            return Err(Refusal::Invalid("another snapshot is being restored".to_owned()));
        }
        staged.parts.push(Arc::new(bytes.clone()));
        Ok(staged)
    }

    /// Returns the number of received bytes.
    pub(crate) fn size(&self) -> usize {
        self.parts.iter().map(|part| part.0.len()).sum()
    }

    /// Returns the whole snapshot, if it is complete.
    pub(crate) fn whole(&self, id: &str, parts: u32, sha256: &str) -> Result<Vec<u8>, Refusal> {
        let is_whole = self.id == id && self.parts.len() == parts as usize;
        let bytes: Vec<u8> = self.parts.iter().flat_map(|part| part.0.iter().copied()).collect();
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if is_whole && digest == sha256 {
            Ok(bytes)
        } else {
            Err(Refusal::Invalid("the snapshot to restore is not complete".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn only_a_complete_snapshot_is_restored() {
        let part = |text: &str| Blob(text.as_bytes().to_vec());
        let staged = Staged::default().with("a", 0, &part("one ")).unwrap();
        assert!(staged.whole("a", 1, &digest(b"one two")).is_err(), "the digest differs");
        assert!(staged.clone().with("a", 2, &part("x")).is_err(), "a part is missing");
        assert!(staged.clone().with("b", 1, &part("x")).is_err(), "another restore");
        let staged = staged.with("a", 1, &part("two")).unwrap();
        assert!(staged.whole("a", 3, &digest(b"one two")).is_err());
        assert_eq!(staged.whole("a", 2, &digest(b"one two")).unwrap(), b"one two");
        let other = staged.with("b", 0, &part("new")).unwrap();
        assert!(other.whole("a", 2, &digest(b"one two")).is_err());
        assert_eq!(other.whole("b", 1, &digest(b"new")).unwrap(), b"new");
    }
}
