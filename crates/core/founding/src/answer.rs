//! The answers of a server to proposers, leaders and servers with promises.

use crate::{ClusterId, Founding, Own, Promise, ServerUuid};
use serde::{Deserialize, Serialize};

/// The answer to a proposer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The promise is stored.
    Promised,
    /// The server does not promise.
    Refused(Refusal),
}

impl Answer {
    /// Returns the reason of a refusal.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Promised => None,
            Self::Refused(refusal) => Some(refusal),
        }
    }
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum Refusal {
    /// The server has a log.
    #[error("server {server} belongs to cluster {cluster}")]
    Founded {
        /// The server.
        server: ServerUuid,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// The server is promised to another founding.
    #[error("a server is promised to cluster {}, which server {} proposes", .0.cluster, .0.proposer)]
    Promised(Founding),
    /// The server expects another number of servers.
    #[error("server {server} has bootstrap_expect {expect}")]
    Expect {
        /// The server.
        server: ServerUuid,
        /// The number of servers that it expects.
        expect: usize,
    },
    /// The founding does not name the server.
    #[error("the founding does not name server {server}")]
    NotNamed {
        /// The server.
        server: ServerUuid,
    },
}

/// The reaction to a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Replace the stored promise by this one, durably and immediately, and then send [`Answer::Promised`].
    Store(Promise),
    /// Send the answer without a change of the stored promise.
    Send(Answer),
}

/// Returns the reaction of a server to a proposal.
pub fn reply(own: &Own, asked: &Founding) -> Reply {
    let server = own.server;
    let refused = |refusal| Reply::Send(Answer::Refused(refusal));
    if let Some(cluster) = own.cluster {
        // The proposer receives this answer after a crash between the founding and the deletion of its promise.
        let is_same = cluster == asked.cluster;
        return if is_same {
            Reply::Send(Answer::Promised)
        } else {
            refused(Refusal::Founded { server, cluster })
        };
    }
    if !asked.servers.contains(&server) {
        return refused(Refusal::NotNamed { server });
    }
    if own.expect != asked.servers.len() {
        return refused(Refusal::Expect { server, expect: own.expect });
    }
    let promise = Promise { founding: asked.clone() };
    match &own.promise {
        None => Reply::Store(promise),
        Some(known) if known.founding == *asked => Reply::Send(Answer::Promised),
        // The proposal of this server is withdrawn by the same write.
        Some(known) if known.founding.proposer == server && asked.proposer < server => Reply::Store(promise),
        Some(known) => refused(Refusal::Promised(known.founding.clone())),
    }
}

/// Returns whether a founding stands, judged by the durable facts of its proposer. After `false`, it never stands
/// again.
pub fn stands(own: &Own, founding: &Founding) -> bool {
    let is_promised = own.promise.as_ref().is_some_and(|promise| promise.founding == *founding);
    own.cluster == Some(founding.cluster) || (own.cluster.is_none() && is_promised)
}

/// Returns whether a server accepts log entries of a cluster without an admission, because it is a founder.
pub fn accepts_log(own: &Own, cluster: ClusterId) -> bool {
    match own.cluster {
        Some(known) => known == cluster,
        None => own.promise.as_ref().is_some_and(|promise| promise.founding.cluster == cluster),
    }
}

/// Returns whether a cluster may admit a server. A server that is promised to another founding may already be among
/// the voters of that cluster.
pub fn accepts_admission(own: &Own, cluster: ClusterId) -> bool {
    match own.cluster {
        Some(known) => known == cluster,
        None => own.promise.as_ref().is_none_or(|promise| promise.founding.cluster == cluster),
    }
}
