//! The proof that both sides of a connection between servers belong to the same cluster.
//!
//! Each member has the key of its cluster. The connecting side sends a nonce in its greeting. The other
//! side responds with a second nonce and a code over both, which the connecting side verifies before it
//! sends a second code. The codes are HMAC-SHA-256 (RFC 2104) over both nonces, both UUIDs, the cluster and
//! the purpose of the connection. So neither side can reuse a code of another connection or send a code
//! back.

use arc_swap::ArcSwapOption;
use hmac::{Hmac, Mac as _};
use rand::TryRngCore as _;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;

/// Size of nonces and codes in bytes.
const SIZE: usize = 32;

/// A random number that is used once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce([u8; SIZE]);

impl Nonce {
    /// Returns a random nonce; `None` if the system has no randomness.
    pub(crate) fn random() -> Option<Self> {
        let mut bytes = [0; SIZE];
        rand::rngs::OsRng.try_fill_bytes(&mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// A code that proves the possession of the key of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proof([u8; SIZE]);

/// The side of a connection to which a code belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Connecting,
    Accepting,
}

/// The facts that a code covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered<'a> {
    pub(crate) role: u8,
    pub(crate) connecting: (&'a str, Nonce),
    pub(crate) accepting: (&'a str, Nonce),
}

/// The cluster of a server, and the key that proves membership.
#[derive(Clone)]
pub struct Credential {
    cluster: String,
    number: u64,
    key: [u8; SIZE],
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("cluster", &self.cluster)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Credential {
    /// Returns the credential of a server in a cluster. `number` is the server's number in the log of the cluster.
    pub fn new(cluster: impl Into<String>, number: u64, key: [u8; 32]) -> Self {
        Self { cluster: cluster.into(), number, key }
    }

    /// Returns the id of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the number of this server in the log of the cluster.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn mac(&self, side: Side, covered: &Covered<'_>) -> Hmac<Sha256> {
        let mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(&self.key);
        let mut mac = mac.expect("HMAC accepts keys of any length (RFC 2104)");
        let label: &[u8] = match side {
            Side::Connecting => b"caravan greeting, connecting side",
            Side::Accepting => b"caravan greeting, accepting side",
        };
        let Covered { role, connecting, accepting } = covered;
        let role = [*role];
        let texts =
            [label, &role[..], self.cluster.as_bytes(), connecting.0.as_bytes(), accepting.0.as_bytes()];
        // Each text follows its length, so that different lists of texts have different encodings.
        for text in texts {
            mac.update(&(text.len() as u64).to_be_bytes());
            mac.update(text);
        }
        mac.update(&connecting.1.0);
        mac.update(&accepting.1.0);
        mac
    }

    pub(crate) fn prove(&self, side: Side, covered: &Covered<'_>) -> Proof {
        Proof(self.mac(side, covered).finalize().into_bytes().into())
    }

    /// Returns whether a code was computed with the key of the cluster. Takes constant time.
    pub(crate) fn verify(&self, side: Side, covered: &Covered<'_>, proof: &Proof) -> bool {
        self.mac(side, covered).verify_slice(&proof.0).is_ok()
    }
}

/// This server as one side of connections to other servers. Clones share the credential, which the server
/// receives when it is admitted to a cluster.
#[derive(Clone, Debug, Default)]
pub struct ServerSide {
    /// The UUID of this server.
    pub id: String,
    /// The credential; empty until the server belongs to a cluster.
    pub credential: SharedCredential,
}

/// A credential that may be set later.
#[derive(Clone, Debug, Default)]
pub struct SharedCredential(Arc<ArcSwapOption<Credential>>);

impl SharedCredential {
    /// Returns the credential, if the server belongs to a cluster.
    pub fn get(&self) -> Option<Arc<Credential>> {
        self.0.load_full()
    }

    /// Sets the credential.
    pub fn set(&self, credential: Credential) {
        self.0.store(Some(Arc::new(credential)));
    }

    /// Removes the credential, because the cluster for which the server received it does not exist.
    pub fn clear(&self) {
        self.0.store(None);
    }
}

/// The part of a greeting that only servers send to servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHello {
    /// The cluster of the connecting server; absent before it is admitted to one.
    pub cluster: Option<String>,
    /// The UUID of the called server; empty if only its address is known.
    pub to: String,
    /// A random number for this connection.
    pub nonce: Nonce,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered<'a>(role: u8, ids: (&'a str, &'a str), nonces: (u8, u8)) -> Covered<'a> {
        Covered {
            role,
            connecting: (ids.0, Nonce([nonces.0; SIZE])),
            accepting: (ids.1, Nonce([nonces.1; SIZE])),
        }
    }

    #[test]
    fn a_proof_belongs_to_one_connection_and_one_side() {
        let ours = Credential::new("c", 1, [7; 32]);
        let about = covered(1, ("a", "b"), (1, 2));
        let proof = ours.prove(Side::Connecting, &about);
        assert!(ours.verify(Side::Connecting, &about, &proof));
        assert!(!ours.verify(Side::Accepting, &about, &proof), "sent back");
        for other in [
            covered(3, ("a", "b"), (1, 2)),
            covered(1, ("x", "b"), (1, 2)),
            covered(1, ("a", "x"), (1, 2)),
            covered(1, ("ab", ""), (1, 2)),
            covered(1, ("a", "b"), (3, 2)),
            covered(1, ("a", "b"), (1, 3)),
        ] {
            assert!(!ours.verify(Side::Connecting, &other, &proof), "{other:?}");
        }
        assert!(!Credential::new("d", 1, [7; 32]).verify(Side::Connecting, &about, &proof));
        assert!(!Credential::new("c", 1, [8; 32]).verify(Side::Connecting, &about, &proof));
    }

    #[test]
    fn a_credential_does_not_show_its_key() {
        let shown = format!("{:?}", Credential::new("c", 1, [173; 32]));
        assert!(shown.contains('c') && !shown.contains("173"), "{shown}");
    }
}
