//! Definitions of methods, and the identity of their callers.

use caravan_types::packed::Packed;
use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

/// A method with one response.
pub trait Method: 'static {
    /// Name on the wire, unique in a router, such as `Node.Register`.
    const NAME: &'static str;
    /// The caller's message.
    type Request: Packed + Send + 'static;
    /// The response.
    type Response: Packed + Send + 'static;
}

/// A method with a stream of responses.
pub trait StreamMethod: 'static {
    /// Name on the wire, unique in a router.
    const NAME: &'static str;
    /// The caller's message.
    type Request: Packed + Send + 'static;
    /// One item of the response stream.
    type Item: Packed + Send + 'static;
}

/// A method with streams in both directions, such as a terminal.
pub trait DuplexMethod: 'static {
    /// Name on the wire, unique in a router.
    const NAME: &'static str;
    /// The caller's first message.
    type Request: Packed + Send + 'static;
    /// Each further message of the caller.
    type Input: Packed + Send + 'static;
    /// One item of the response stream.
    type Output: Packed + Send + 'static;
}

/// The context of a call: its caller, and whether it is cancelled.
#[derive(Clone, Debug)]
pub struct Context {
    /// The caller's identity, as the authenticator verified it.
    pub peer: PeerIdentity,
    /// A token that is cancelled when the response is no longer needed: the caller disconnected, or this
    /// side is stopping. The future or stream of the handler is then dropped too; the token is for tasks
    /// that the handler started.
    pub cancel: CancellationToken,
}

/// The identity of the other side of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PeerIdentity {
    /// A server agent.
    Server(ServerPeer),
    /// A client agent.
    Client {
        /// The id of the client's node.
        node_id: String,
        /// The proof of the node's identity: the secret that the node chose at its first registration.
        secret: Secret,
    },
}

/// A server as the other side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerPeer {
    /// The server's name, unique in the region.
    pub name: String,
    /// The server's UUID; empty if the server reports none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The server's region, as the authenticator verified it. Never read from the identity on the wire, because the
    /// greeting has the region.
    #[serde(skip)]
    pub region: String,
    /// Whether the server has proved its membership in the cluster of this server. Never read from the wire.
    #[serde(skip)]
    pub is_member: bool,
}

impl PeerIdentity {
    /// Returns the identity of a server without proof.
    pub fn server(name: impl Into<String>) -> Self {
        Self::Server(ServerPeer { name: name.into(), ..ServerPeer::default() })
    }

    /// Returns whether the peer is a server that has proved its membership in the cluster.
    pub fn is_member(&self) -> bool {
        matches!(self, Self::Server(ServerPeer { is_member: true, .. }))
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "server {}", server.name),
            Self::Client { node_id, .. } => write!(f, "client {node_id}"),
        }
    }
}

/// A text that is never displayed. Comparisons take constant time.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, for the code that compares or stores it.
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
