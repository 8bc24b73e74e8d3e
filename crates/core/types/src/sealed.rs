//! Secrets in the shared state, sealed with a key of the servers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Pairs that only a holder of the servers' root key can read. The sealed text reveals neither names nor values. Only
/// the servers seal and open it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SealedSecrets {
    /// The id of the root key that sealed the pairs; empty without pairs.
    pub key: String,
    /// The nonce and the sealed text, in base64; empty without pairs.
    pub text: String,
}

/// The reason that sealed secrets cannot be opened; never a part of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// The server does not have the root key.
    #[error(
        "the secrets of {owner} cannot be opened: they were sealed with key {key}, which this server does not have"
    )]
    ForeignKey {
        /// The object that has the secrets.
        owner: String,
        /// The id of the root key.
        key: String,
    },
    /// The sealed text was not sealed by the root key for this object.
    #[error("the secrets of {owner} cannot be opened: they are damaged")]
    Damaged {
        /// The object that has the secrets.
        owner: String,
    },
}

impl SealedSecrets {
    /// Returns whether there are no pairs.
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
