//! The errors of a call, classified by the possible reactions of a caller.

use crate::Call;
use std::{error::Error as _, fmt, path::PathBuf, time::Duration};

/// The reason for which a plugin (or the connection to it) refused a call. The names are the gRPC status
/// codes, with the meaning that the CSI specification defines ("Error Scheme").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `CANCELLED`: the call was cancelled; it may have taken effect.
    Cancelled,
    /// `UNKNOWN`: the reason is unknown; the call may have taken effect.
    Unknown,
    /// `INVALID_ARGUMENT`: the request is wrong; a retry cannot succeed.
    InvalidArgument,
    /// `DEADLINE_EXCEEDED`, reported by the plugin: the call may have taken effect.
    DeadlineExceeded,
    /// `NOT_FOUND`: the volume, snapshot or node does not exist.
    NotFound,
    /// `ALREADY_EXISTS`: the object exists with other properties than requested.
    AlreadyExists,
    /// `PERMISSION_DENIED`: the plugin may not do this.
    PermissionDenied,
    /// `RESOURCE_EXHAUSTED`: no capacity is left, or the node's volume limit is reached.
    ResourceExhausted,
    /// `FAILED_PRECONDITION`: the volume is in use, or another call must succeed first.
    FailedPrecondition,
    /// `ABORTED`: another operation on the same volume is in progress; retry later.
    Aborted,
    /// `OUT_OF_RANGE`: the requested size is not possible.
    OutOfRange,
    /// `UNIMPLEMENTED`: the plugin does not have this call.
    Unimplemented,
    /// `INTERNAL`: the plugin failed.
    Internal,
    /// `UNAVAILABLE`: the plugin cannot serve now, or the connection broke; the call may have taken effect.
    Unavailable,
    /// `DATA_LOSS`: data is lost or corrupt and cannot be recovered.
    DataLoss,
    /// `UNAUTHENTICATED`: the secrets are missing or wrong.
    Unauthenticated,
}

impl Class {
    /// Returns the gRPC name, for example `NOT_FOUND`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    fn from_code(code: tonic::Code) -> Self {
        match code {
            tonic::Code::Cancelled => Self::Cancelled,
            // `Ok` as an error is an invalid response, so the reason is unknown.
            tonic::Code::Ok | tonic::Code::Unknown => Self::Unknown,
            tonic::Code::InvalidArgument => Self::InvalidArgument,
            tonic::Code::DeadlineExceeded => Self::DeadlineExceeded,
            tonic::Code::NotFound => Self::NotFound,
            tonic::Code::AlreadyExists => Self::AlreadyExists,
            tonic::Code::PermissionDenied => Self::PermissionDenied,
            tonic::Code::ResourceExhausted => Self::ResourceExhausted,
            tonic::Code::FailedPrecondition => Self::FailedPrecondition,
            tonic::Code::Aborted => Self::Aborted,
            tonic::Code::OutOfRange => Self::OutOfRange,
            tonic::Code::Unimplemented => Self::Unimplemented,
            tonic::Code::Internal => Self::Internal,
            tonic::Code::Unavailable => Self::Unavailable,
            tonic::Code::DataLoss => Self::DataLoss,
            tonic::Code::Unauthenticated => Self::Unauthenticated,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason for which a call returned no usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsiError {
    /// There is no connection: the call never reached the plugin.
    #[error("{call} did not reach the plugin at {}: {message}", socket.display())]
    Unreachable {
        /// The call that was attempted.
        call: Call,
        /// The path of the plugin's socket.
        socket: PathBuf,
        /// The reason that the connection failed.
        message: String,
    },
    /// The plugin returned a status other than OK, or the connection broke during the call.
    #[error("{call} failed with {class}: {message}")]
    Status {
        /// The failed call.
        call: Call,
        /// The meaning of the status code.
        class: Class,
        /// The plugin's message, without the secrets of the call.
        message: String,
    },
    /// No response arrived within the deadline of the call's class.
    #[error("{call} had no answer within {after:?}")]
    Deadline {
        /// The failed call.
        call: Call,
        /// The deadline that passed.
        after: Duration,
    },
    /// The response lacks a field that the specification requires.
    #[error("{call} was answered without a usable {field}")]
    Malformed {
        /// The failed call.
        call: Call,
        /// The response's field, as the specification names it.
        field: &'static str,
    },
    /// The request cannot be encoded; nothing was sent.
    #[error("{call} cannot be sent: {problem}")]
    Request {
        /// The failed call.
        call: Call,
        /// The reason that the request cannot be encoded.
        problem: String,
    },
}

impl CsiError {
    /// Returns the call that failed.
    pub const fn call(&self) -> Call {
        match self {
            Self::Unreachable { call, .. }
            | Self::Status { call, .. }
            | Self::Deadline { call, .. }
            | Self::Malformed { call, .. }
            | Self::Request { call, .. } => *call,
        }
    }

    /// Returns the meaning of the status, if the plugin (or a broken connection) returned one.
    pub const fn class(&self) -> Option<Class> {
        match self {
            Self::Status { class, .. } => Some(*class),
            _ => None,
        }
    }

    /// Returns whether the same call may succeed later without a change by an operator. This includes `ABORTED`
    /// (another operation is in progress).
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } => true,
            Self::Status { class, .. } => matches!(
                class,
                Class::Cancelled
                    | Class::Unknown
                    | Class::DeadlineExceeded
                    | Class::Aborted
                    | Class::Internal
                    | Class::Unavailable
                    | Class::ResourceExhausted
            ),
            Self::Malformed { .. } | Self::Request { .. } => false,
        }
    }

    /// Returns whether the failed call may have taken effect. The caller must then repeat the call or its
    /// opposite until one of them returns a definite result.
    pub const fn outcome_unknown(&self) -> bool {
        match self {
            Self::Deadline { .. } | Self::Malformed { .. } => true,
            Self::Status { class, .. } => matches!(
                class,
                Class::Cancelled
                    | Class::Unknown
                    | Class::DeadlineExceeded
                    | Class::Aborted
                    | Class::Internal
                    | Class::Unavailable
            ),
            Self::Unreachable { .. } | Self::Request { .. } => false,
        }
    }

    /// Returns whether the plugin reports that the object of the call does not exist.
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { class: Class::NotFound, .. })
    }

    /// Returns whether the plugin does not implement this call.
    pub const fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Status { class: Class::Unimplemented, .. })
    }

    pub(crate) fn from_status(
        call: Call,
        socket: &std::path::Path,
        after: Duration,
        status: &tonic::Status,
        scrub: impl Fn(&str) -> String,
    ) -> Self {
        let mut source = status.source();
        while let Some(error) = source {
            // hyper cancels a request before sending it if the connection was closed.
            let unsent = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
            if unsent || error.is::<tonic::ConnectError>() {
                return Self::Unreachable { call, socket: socket.to_owned(), message: innermost(error) };
            }
            if error.is::<tonic::TimeoutExpired>() {
                return Self::Deadline { call, after };
            }
            source = error.source();
        }
        // A status from the plugin has no source; with a source, the connection failed.
        if let Some(source) = status.source() {
            return Self::Status { call, class: Class::Unavailable, message: scrub(&innermost(source)) };
        }
        let message = match status.message() {
            "" => "the plugin gave no reason".to_owned(),
            words => scrub(words),
        };
        Self::Status { call, class: Class::from_code(status.code()), message }
    }
}

/// Returns the text of the last error in the chain, which names the cause.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(class: Class) -> CsiError {
        CsiError::Status { call: Call::NodeStageVolume, class, message: "busy".to_owned() }
    }

    #[test]
    fn predicates_follow_the_error_scheme() {
        assert!(status(Class::Aborted).is_retryable());
        assert!(status(Class::Unavailable).outcome_unknown());
        assert!(!status(Class::InvalidArgument).is_retryable());
        assert!(!status(Class::NotFound).outcome_unknown());
        let unreachable = CsiError::Unreachable {
            call: Call::Probe,
            socket: PathBuf::from("/run/csi.sock"),
            message: "no such file".to_owned(),
        };
        assert!(unreachable.is_retryable() && !unreachable.outcome_unknown());
        let deadline = CsiError::Deadline { call: Call::Probe, after: Duration::from_secs(5) };
        assert!(deadline.is_retryable() && deadline.outcome_unknown());
    }

    #[test]
    fn messages_are_one_sentence_with_the_call() {
        assert_eq!(status(Class::Aborted).to_string(), "NodeStageVolume failed with ABORTED: busy");
        let deadline = CsiError::Deadline { call: Call::Probe, after: Duration::from_secs(5) };
        assert_eq!(deadline.to_string(), "Probe had no answer within 5s");
    }

    #[test]
    fn words_of_the_plugin_are_scrubbed() {
        let error = CsiError::from_status(
            Call::CreateVolume,
            std::path::Path::new("/s"),
            Duration::from_secs(1),
            &tonic::Status::internal("login hunter2 refused"),
            |text| text.replace("hunter2", "***"),
        );
        assert_eq!(error.to_string(), "CreateVolume failed with INTERNAL: login *** refused");
    }
}
