//! Failures as HTTP answers: a status and one bare sentence (docs/reference/http-api.md, section 1.8).

use crate::reply::{Indexed, Meta};
use caravan_rpc::{Code, RpcError};
use caravan_server::{Kind, ServerError};
use caravan_types::api::DecodeError;
use http::StatusCode;

/// A request that is answered with an error. The body is `message` as plain text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Status.
    pub status: StatusCode,
    /// Body, one sentence without a newline; empty for unknown paths.
    pub message: String,
    /// Index headers: of reads that found nothing, so that clients wait for the object with them.
    pub(crate) indexed: Indexed,
}

impl ApiError {
    /// A failure with a status of its own.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), indexed: Indexed::None }
    }
    /// The request makes no sense: 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
    /// The object does not exist: 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }
    /// Everything for which the reference has no code: 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
    /// The path is not one of ours: 404 without a body.
    pub fn unknown_path() -> Self {
        Self::not_found("")
    }
    /// The path is ours, the method is not: 405.
    pub fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Invalid method")
    }
    /// With index headers.
    pub(crate) fn with_meta(mut self, meta: Meta) -> Self {
        self.indexed = Indexed::Meta(meta);
        self
    }
    /// With the index of a write.
    pub(crate) fn with_index(mut self, index: u64) -> Self {
        self.indexed = Indexed::Index(index);
        self
    }

    /// A refused change of a route for which the reference has codes.
    pub(crate) fn coded(error: &ServerError) -> Self {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, error.message.clone())
    }

    /// A refused change. The reference codes only few of them, so that what does not exist is 500 here
    /// where a read would answer 404.
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
        Self::new(status, error.message.clone())
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
