//! What can go wrong between a client and an agent.

use crate::config::Address;

/// A failed call, told in one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens at the address.
    #[error("no agent answers at {address}: start one with `caravan agent -dev` or set CARAVAN_ADDR")]
    NoAgent {
        /// Where it was looked for.
        address: Address,
        /// What the kernel said.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The agent could not be reached for another reason (name resolution, routing, time).
    #[error("cannot reach the agent at {address}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        address: Address,
        /// What the kernel or the resolver said.
        reason: String,
        /// The failure.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The address cannot be used.
    #[error("the agent's address \"{address}\" cannot be used: {reason}")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The agent refused or failed; the text is the reference's, which other tools match on.
    #[error("Unexpected response code: {code} ({body})")]
    Status {
        /// HTTP status.
        code: u16,
        /// The agent's sentence.
        body: String,
    },
    /// The connection broke in the middle of an answer.
    #[error("the connection to {address} broke while {path} was being answered")]
    Broken {
        /// The agent.
        address: Address,
        /// The route.
        path: String,
        /// The failure.
        #[source]
        source: hyper::Error,
    },
    /// A session with a program was refused, or broke.
    #[error("{reason}")]
    Session {
        /// One sentence; the agent's, where it refused.
        reason: String,
    },
    /// The answer is not what the route answers.
    #[error("the answer to {path} cannot be understood: {source}")]
    Decode {
        /// The route.
        path: String,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The request cannot be written as JSON.
    #[error("the request to {path} cannot be written")]
    Encode {
        /// The route.
        path: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A header or the address holds characters that HTTP forbids.
    #[error("the request to {path} cannot be made")]
    Request {
        /// The route.
        path: String,
        /// Why.
        #[source]
        source: http::Error,
    },
}

impl Error {
    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the agent said that the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether no agent could be reached at all.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoAgent { .. } | Self::Unreachable { .. })
    }
}
