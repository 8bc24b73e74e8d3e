//! Errors that are sent over the wire without loss.

use bytes::Bytes;
use caravan_types::packed::Packed as _;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// Maximum length of a message in bytes, because it is sent in an HTTP/2 header.
const MAX_MESSAGE: usize = 6 * 1024;

/// The kinds of failure that a caller can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// The requested object does not exist.
    NotFound,
    /// The request is invalid in any state.
    Invalid,
    /// The caller lacks the permission.
    Permission,
    /// The other side cannot be reached, or disconnected. If the call was sent, it may have been executed.
    Unavailable,
    /// The requested node has no connection to this server.
    NoPath,
    /// A defect or a failure of the other side.
    Internal,
    /// The current state does not allow the call.
    Conflict,
    /// The caller cancelled the call, or the other side is stopping.
    Cancelled,
    /// The deadline passed; the call may have been executed.
    Deadline,
    /// The call was not executed, and the same call may be retried.
    Retryable,
    /// The called server does not lead the cluster. The call was not executed.
    NotLeader,
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The kind of failure.
    pub code: Code,
    /// One sentence for users, without secrets.
    pub message: String,
    /// The status for the HTTP API, if it differs from the status that the code implies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
}

caravan_types::packed!(RpcError);

impl RpcError {
    /// Creates an error with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), http_status: None }
    }

    /// Sets the status for the HTTP API.
    #[must_use]
    pub fn with_http_status(mut self, status: u16) -> Self {
        self.http_status = Some(status);
        self
    }

    /// Creates a [`Code::Internal`] error with a message.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Creates a [`Code::Unavailable`] error with a message.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    pub(crate) fn encode(what: &str, error: impl fmt::Display) -> Self {
        Self::internal(format!("{what} cannot be encoded: {error}"))
    }

    pub(crate) fn unknown_method(name: &str) -> Self {
        Self::new(Code::Invalid, format!("there is no method {name:?} here"))
    }

    pub(crate) fn into_status(mut self) -> tonic::Status {
        shorten(&mut self.message);
        let code = match self.code {
            Code::NotFound | Code::NoPath => tonic::Code::NotFound,
            Code::Invalid => tonic::Code::InvalidArgument,
            Code::Permission => tonic::Code::PermissionDenied,
            Code::Unavailable | Code::Retryable | Code::NotLeader => tonic::Code::Unavailable,
            Code::Internal => tonic::Code::Internal,
            Code::Conflict => tonic::Code::FailedPrecondition,
            Code::Cancelled => tonic::Code::Cancelled,
            Code::Deadline => tonic::Code::DeadlineExceeded,
        };
        match self.pack() {
            // The message is only in the details, because headers have a small size limit.
            Ok(details) => tonic::Status::with_details(code, "", Bytes::from(details)),
            Err(_) => tonic::Status::new(code, self.message),
        }
    }

    /// Returns the error that the other side sent, or the meaning of a transport failure.
    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        if !status.details().is_empty()
            && let Ok(error) = Self::unpack(status.details())
        {
            return error;
        }
        let reported = || match std::error::Error::source(status) {
            Some(source) => innermost(source),
            None => status.message().to_owned(),
        };
        match status.code() {
            // If the status has a source, the connection ended: HTTP/2 has a code of this name.
            tonic::Code::OutOfRange | tonic::Code::ResourceExhausted
                if std::error::Error::source(status).is_none() =>
            {
                Self::new(Code::Invalid, format!("a message is too large: {}", status.message()))
            }
            tonic::Code::DeadlineExceeded => Self::new(Code::Deadline, "the deadline of the call has passed"),
            tonic::Code::Cancelled => Self::new(Code::Cancelled, "the other side gave the call up"),
            _ => Self::unavailable(format!("the connection was lost during the call: {}", reported())),
        }
    }
}

/// Returns the message of the last error in a chain, which is the most specific.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn shorten(message: &mut String) {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
}

/// The reasons for which an RPC server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Listening on the address failed.
    #[error("cannot listen on {addr} for RPC")]
    Bind {
        /// The address from the configuration.
        addr: SocketAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_the_wire() {
        let codes = [
            Code::NotFound,
            Code::Invalid,
            Code::Permission,
            Code::Unavailable,
            Code::NoPath,
            Code::Internal,
            Code::Conflict,
            Code::Cancelled,
            Code::Deadline,
            Code::Retryable,
        ];
        for code in codes {
            for status in [None, Some(409)] {
                let error = RpcError { code, message: "so \"it\" is\n".into(), http_status: status };
                assert_eq!(RpcError::from_status(&error.clone().into_status()), error);
            }
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let error = RpcError::internal("é".repeat(MAX_MESSAGE));
        let back = RpcError::from_status(&error.into_status());
        assert!(back.message.len() <= MAX_MESSAGE + '…'.len_utf8());
        assert!(back.message.starts_with("éé") && back.message.ends_with('…'));
    }

    #[test]
    fn a_lost_connection_is_unavailable() {
        let error = RpcError::from_status(&tonic::Status::unknown("h2 protocol error"));
        assert_eq!(error.code, Code::Unavailable);
    }
}
