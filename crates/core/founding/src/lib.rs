//! The founding of a cluster by `bootstrap_expect` servers that have no log.
//!
//! One server, the **proposer**, proposes a [`Founding`]: a new cluster id and exactly N servers. Each of them stores
//! a [`Promise`] to take part, and then responds. A server has one promise at a time, and the promise never expires.
//! With the promises of all N servers, the proposer founds the cluster, at any later time. Two foundings with a
//! common server can therefore never both succeed. Foundings without a common server create two clusters, which
//! refuse each other.
//!
//! A promise ends in two ways only. The proposer may **withdraw** its founding as long as it has not founded the
//! cluster. It then deletes its own promise, and never again proposes that cluster id. The other servers ask the
//! proposer whether their founding still stands, and delete their promises when it does not. Or an operator removes
//! the promise of a server whose proposer is lost for good.
//!
//! Without withdrawal, foundings could block each other. For example, servers 1 to 4 expect 3. Server 1 sees 1, 2 and
//! 3, and server 2 sees 2, 3 and 4. Both propose, and server 3 has promised itself to one of them. The proposer with
//! the smaller id wins; the other one withdraws.
//!
//! All functions are pure. The caller stores promises durably before it sends any answer.

mod answer;
mod next;

pub use answer::{Answer, Refusal, Reply, accepts_admission, accepts_log, reply, stands};
pub use next::{Step, Wait, next};

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The id of a server's data directory (`server-id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerUuid(pub Uuid);

/// The id of a cluster, which the proposer of its founding generates at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub Uuid);

impl std::fmt::Display for ServerUuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A proposed cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Founding {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The server that proposes, and alone founds.
    pub proposer: ServerUuid,
    /// All servers, the proposer among them.
    pub servers: BTreeSet<ServerUuid>,
}

impl Founding {
    /// Returns the number of a founder in the log: 1 to N, in the order of ids.
    pub fn number(&self, server: ServerUuid) -> Option<u64> {
        (1..).zip(&self.servers).find(|(_, founder)| **founder == server).map(|(number, _)| number)
    }
}

/// The durable promise to take part in one founding and in no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Promise {
    /// The founding.
    pub founding: Founding,
}

/// The durable facts of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// The id of the server.
    pub server: ServerUuid,
    /// The `bootstrap_expect` of the server; 0 means that it waits for admission.
    pub expect: usize,
    /// The cluster of the server's log; absent if the log is empty.
    pub cluster: Option<ClusterId>,
    /// The promise that the server has stored.
    pub promise: Option<Promise>,
}

/// A row of the member table: a server of the same region. The table may contain the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// The id of the server.
    pub server: ServerUuid,
    /// The `bootstrap_expect` of the server.
    pub expect: usize,
    /// The cluster of the server's log; absent if the log is empty.
    pub cluster: Option<ClusterId>,
}

#[cfg(test)]
mod tests;
