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

/// Why sealed secrets cannot be opened; never a part of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// The server lacks the root key.
    #[error(
        "the secrets of {owner} cannot be opened: they were sealed with key {key}, which this server does not have"
    )]
    ForeignKey {
        /// The object that has the secrets.
        owner: String,
        /// Id of the root key.
        key: String,
    },
    /// The sealed text is not what the root key has sealed for this object.
    #[error("the secrets of {owner} cannot be opened: they are damaged")]
    Damaged {
        /// The object that has the secrets.
        owner: String,
    },
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
