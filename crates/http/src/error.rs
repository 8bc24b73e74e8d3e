//! Errors as HTTP answers: a status and one plain sentence (docs/reference/http-api.md, section 1.8).

use crate::reply::{Indexed, Meta};
use caravan_rpc::{Code, RpcError};
use caravan_server::{Kind, ServerError};
use caravan_types::api::{DecodeError, ErrorReason, JobProblem};
use http::StatusCode;

/// A request that is answered with an error. The body is `message` as plain text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body, one sentence without a newline; empty for unknown paths.
    pub message: String,
    /// The index headers. A read that found nothing has them too, so that clients can block until the object exists.
    pub(crate) indexed: Indexed,
    /// Reason, where clients act on it: in a header.
    pub(crate) reason: Option<ErrorReason>,
    /// Problems of the job that was refused: for clients that ask for them.
    pub(crate) problems: Vec<JobProblem>,
}

impl ApiError {
    /// Creates an error with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), indexed: Indexed::None, reason: None, problems: Vec::new() }
    }
    /// Creates the error for an invalid request: 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
    /// Creates the error for a missing object: 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }
    /// Creates the error for failures without a code in Nomad: 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
    /// Creates the error for servers without a leader: 500.
    pub fn no_leader() -> Self {
        Self { reason: Some(ErrorReason::NoLeader), ..Self::internal("No cluster leader") }
    }
    /// Creates the error for an unknown path: 404 with an empty body.
    pub fn unknown_path() -> Self {
        Self::not_found("")
    }
    /// Creates the error for a known path with an unsupported method: 405.
    pub fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Invalid method")
    }
    /// Adds the index headers of a read.
    pub(crate) fn with_meta(mut self, meta: Meta) -> Self {
        self.indexed = Indexed::Meta(meta);
        self
    }
    /// Adds the index of a write.
    pub(crate) fn with_index(mut self, index: u64) -> Self {
        self.indexed = Indexed::Index(index);
        self
    }

    /// Converts a refused change of a route for which Nomad has status codes.
    pub(crate) fn coded(error: &ServerError) -> Self {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { reason: error.reason, ..Self::new(status, error.message.clone()) }
    }

    /// Converts a refused change. Nomad has codes for few of them: a missing object is 500 here,
    /// although a read would answer 404.
    pub(crate) fn of_change(error: &ServerError) -> Self {
        let status = match error.kind {
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::BadRequest
            | Kind::NotFound
            | Kind::Refused
            | Kind::Unavailable
            | Kind::Retry
            | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            reason: error.reason,
            problems: error.problems.clone(),
            ..Self::new(status, error.message.clone())
        }
    }
}

impl From<ServerError> for ApiError {
    fn from(error: ServerError) -> Self {
        Self::of_change(&error)
    }
}

impl From<RpcError> for ApiError {
    fn from(error: RpcError) -> Self {
        if let Some(status) = error.http_status.and_then(|s| StatusCode::from_u16(s).ok()) {
            return Self::new(status, error.message);
        }
        match error.code {
            Code::NoPath => Self::not_found("No path to node"),
            Code::NotFound => Self::not_found(error.message),
            Code::Invalid => Self::bad_request(error.message),
            Code::Permission => Self::new(StatusCode::FORBIDDEN, error.message),
            _ => Self::internal(error.message),
        }
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Empty => Self::bad_request("Request body is empty"),
            other => Self::bad_request(other.to_string()),
        }
    }
}
