//! Errors, made to cross the wire without loss.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Longest message that is sent; it travels in an HTTP/2 header.
const MAX_MESSAGE: usize = 6 * 1024;

/// What kind of failure a caller can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// The thing asked for does not exist.
    NotFound,
    /// The request makes no sense, whatever the state.
    Invalid,
    /// The caller may not do this.
    Permission,
    /// The other side cannot be reached, or went away; whether the call was carried out is unknown
    /// if it was sent.
    Unavailable,
    /// The node asked for has no connection to this server.
    NoPath,
    /// A defect or a failure of the other side.
    Internal,
    /// The state does not allow it.
    Conflict,
    /// The caller gave up, or the other side is stopping.
    Cancelled,
    /// The deadline passed; whether the call was carried out is unknown.
    Deadline,
    /// Was not carried out, and may be tried again as it is.
    Retryable,
}

/// The failure of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The kind.
    pub code: Code,
    /// One sentence for people, without secrets.
    pub message: String,
    /// Status that the HTTP API is to answer with, where the one that follows from the code is
    /// wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
}

impl RpcError {
    /// An error with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), http_status: None }
    }

    /// The same with an HTTP status of its own.
    #[must_use]
    pub fn with_http_status(mut self, status: u16) -> Self {
        self.http_status = Some(status);
        self
    }

    /// [`Code::Internal`] with a message.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// [`Code::Unavailable`] with a message.
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
            Code::Unavailable | Code::Retryable => tonic::Code::Unavailable,
            Code::Internal => tonic::Code::Internal,
            Code::Conflict => tonic::Code::FailedPrecondition,
            Code::Cancelled => tonic::Code::Cancelled,
            Code::Deadline => tonic::Code::DeadlineExceeded,
        };
        match rmp_serde::to_vec_named(&self) {
            // The message is in the details only: headers are small.
            Ok(details) => tonic::Status::with_details(code, "", Bytes::from(details)),
            Err(_) => tonic::Status::new(code, self.message),
        }
    }

    /// The error that was sent, or what a failure of the transport means.
    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        if !status.details().is_empty()
            && let Ok(error) = rmp_serde::from_slice(status.details())
        {
            return error;
        }
        let said = || match std::error::Error::source(status) {
            Some(source) => innermost(source),
            None => status.message().to_owned(),
        };
        match status.code() {
            tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => {
                Self::new(Code::Invalid, format!("a message is too large: {}", status.message()))
            }
            tonic::Code::DeadlineExceeded => Self::new(Code::Deadline, "the deadline of the call has passed"),
            tonic::Code::Cancelled => Self::new(Code::Cancelled, "the other side gave the call up"),
            _ => Self::unavailable(format!("the connection was lost during the call: {}", said())),
        }
    }
}

/// The cause at the end of a chain, which is the one that says something.
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

/// Why an RPC server does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr} for RPC")]
    Bind {
        /// The address from the configuration.
        addr: SocketAddr,
        /// What the system said.
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
