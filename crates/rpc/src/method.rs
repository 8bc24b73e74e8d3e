//! What can be called, and by whom.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

/// A call with one answer.
pub trait Method: 'static {
    /// Name on the wire, unique in a router, such as `Node.Register`.
    const NAME: &'static str;
    /// What the caller sends.
    type Request: Serialize + DeserializeOwned + Send + 'static;
    /// What comes back.
    type Response: Serialize + DeserializeOwned + Send + 'static;
}

/// A call with any number of answers, one after the other.
pub trait StreamMethod: 'static {
    /// Name on the wire, unique in a router.
    const NAME: &'static str;
    /// What the caller sends.
    type Request: Serialize + DeserializeOwned + Send + 'static;
    /// What comes back, repeatedly.
    type Item: Serialize + DeserializeOwned + Send + 'static;
}

/// A call with streams both ways, such as a terminal.
pub trait DuplexMethod: 'static {
    /// Name on the wire, unique in a router.
    const NAME: &'static str;
    /// What the caller sends first.
    type Request: Serialize + DeserializeOwned + Send + 'static;
    /// What the caller sends afterwards, repeatedly.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What comes back, repeatedly.
    type Output: Serialize + DeserializeOwned + Send + 'static;
}

/// Around a call: who made it, and whether it is still wanted.
#[derive(Debug, Clone)]
pub struct Context {
    /// Who calls, as the authenticator verified.
    pub peer: PeerIdentity,
    /// Cancelled when nobody waits for the answer any more: the caller went away, or this side is
    /// stopping. A handler's own future or stream is dropped then as well; the token is for what
    /// it started elsewhere.
    pub cancel: CancellationToken,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PeerIdentity {
    /// A server agent.
    Server {
        /// Its name, unique in the region.
        name: String,
    },
    /// A client agent.
    Client {
        /// Its node id.
        node_id: String,
        /// What proves that it is the node: the secret it chose when it first registered.
        secret: Secret,
    },
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { name } => write!(f, "server {name}"),
            Self::Client { node_id, .. } => write!(f, "client {node_id}"),
        }
    }
}

/// Text that is never shown. Comparing takes the same time whatever differs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that compares or stores it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_but_not_shown() {
        let peer = PeerIdentity::Client { node_id: "n".into(), secret: Secret::new("hush") };
        assert!(!format!("{peer:?} {peer}").contains("hush"));
        assert_eq!(Secret::new("hush"), Secret::new("hush"));
        assert_ne!(Secret::new("hush"), Secret::new("husk"));
        assert_ne!(Secret::new("hush"), Secret::new("hus"));
    }
}
