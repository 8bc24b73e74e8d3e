//! The errors of calls to an agent.

use crate::config::Address;
use caravan_api::{ErrorReason, JobProblem};

/// The failure of a call, as one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens at the address.
    #[error("no agent answers at {address}: start one with `caravan agent -dev` or set CARAVAN_ADDR")]
    NoAgent {
        /// The address to which the client connected.
        address: Address,
        /// The failure of the connection.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The agent could not be reached for another reason (name resolution, routing, timeout).
    #[error("cannot reach the agent at {address}: {reason}")]
    Unreachable {
        /// The address to which the client connected.
        address: Address,
        /// The reason that the kernel or the resolver reported.
        reason: String,
        /// The failure of the connection.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The address is not valid.
    #[error("the agent's address \"{address}\" cannot be used: {reason}")]
    Address {
        /// The address as received.
        address: String,
        /// The reason why the address is invalid.
        reason: &'static str,
    },
    /// The agent refused or failed. The text is Nomad's, because other tools match on it.
    #[error("Unexpected response code: {code} ({body})")]
    Status {
        /// The HTTP status.
        code: u16,
        /// The agent's sentence.
        body: String,
        /// The reason, if the agent names one; agents of other kinds send only the sentence.
        reason: Option<ErrorReason>,
        /// The problems of a refused job; empty for every other request and from agents of other kinds.
        problems: Vec<JobProblem>,
    },
    /// The connection broke in the middle of an answer.
    #[error("the connection to {address} broke while {path} was being answered")]
    Broken {
        /// The address of the agent.
        address: Address,
        /// The path of the request.
        path: String,
        /// The failure of the connection.
        #[source]
        source: hyper::Error,
    },
    /// An exec session was refused or broke.
    #[error("{reason}")]
    Session {
        /// The reason in one sentence; the agent's own if the agent refused.
        reason: String,
    },
    /// The answer does not have the shape that the route promises.
    #[error("the answer to {path} cannot be understood: {source}")]
    Decode {
        /// The path of the request.
        path: String,
        /// The place in the answer and the cause.
        #[source]
        source: serde_json::Error,
    },
    /// The request cannot be encoded as JSON.
    #[error("the request to {path} cannot be written")]
    Encode {
        /// The path of the request.
        path: String,
        /// The cause of the failed encoding.
        #[source]
        source: serde_json::Error,
    },
    /// A header or the address has characters that HTTP forbids.
    #[error("the request to {path} cannot be made")]
    Request {
        /// The path of the request.
        path: String,
        /// The cause of the refused request.
        #[source]
        source: http::Error,
    },
}

impl Error {
    /// Returns the HTTP status of a refusal; `None` for other errors.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the reason of a refusal, if the agent names one.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Status { reason, .. } => *reason,
            _ => None,
        }
    }

    /// Returns whether the agent answered that the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Returns whether no agent could be reached.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoAgent { .. } | Self::Unreachable { .. })
    }
}
