//! Secrets as they lie in the shared state: sealed with a key of the servers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Pairs that only a holder of the servers' root key can read. What is sealed says neither its values nor
/// the names of them; sealing and opening is the servers' part.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SealedSecrets {
    /// Which root key sealed them; empty when there are none.
    pub key: String,
    /// Nonce and sealed text, base64; empty when there are none.
    pub text: String,
}

impl SealedSecrets {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Debug for SealedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => f.write_str("[NONE]"),
            false => write!(f, "[SEALED BY {}]", self.key),
        }
    }
}
