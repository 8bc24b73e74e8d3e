//! What can go wrong with a call, sorted by what a caller can do about it.

use std::{error::Error as _, fmt, path::PathBuf, time::Duration};

use crate::Call;

/// How a plugin (or the connection to it) refused a call. The names are those of the gRPC status codes;
/// the meaning is the one the CSI specification gives them ("Error Scheme").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// `CANCELLED`: the call was given up; it may have happened.
    Cancelled,
    /// `UNKNOWN`: no more is known; it may have happened.
    Unknown,
    /// `INVALID_ARGUMENT`: the request itself is wrong; sending it again cannot help.
    InvalidArgument,
    /// `DEADLINE_EXCEEDED`, said by the plugin: it may have happened.
    DeadlineExceeded,
    /// `NOT_FOUND`: the volume, snapshot or node does not exist.
    NotFound,
    /// `ALREADY_EXISTS`: it exists, and not as asked for.
    AlreadyExists,
    /// `PERMISSION_DENIED`: the plugin may not do this.
    PermissionDenied,
    /// `RESOURCE_EXHAUSTED`: no room, or the node's volume limit is reached.
    ResourceExhausted,
    /// `FAILED_PRECONDITION`: the volume is in use, or another call has to come first.
    FailedPrecondition,
    /// `ABORTED`: another operation on the same volume is under way; try later.
    Aborted,
    /// `OUT_OF_RANGE`: the size asked for is not possible.
    OutOfRange,
    /// `UNIMPLEMENTED`: the plugin does not have this call.
    Unimplemented,
    /// `INTERNAL`: the plugin failed.
    Internal,
    /// `UNAVAILABLE`: the plugin cannot serve now, or the connection broke; it may have happened.
    Unavailable,
    /// `DATA_LOSS`.
    DataLoss,
    /// `UNAUTHENTICATED`: the secrets are missing or wrong.
    Unauthenticated,
}

impl Class {
    /// The gRPC name, for example `NOT_FOUND`.
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

    fn of(code: tonic::Code) -> Self {
        match code {
            tonic::Code::Cancelled => Self::Cancelled,
            // `Ok` as an error is a broken answer: nothing is known then either.
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

/// Why a call did not give an answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsiError {
    /// No connection: the call never reached the plugin.
    #[error("{call} did not reach the plugin at {}: {message}", socket.display())]
    Unreachable {
        /// The call that was to be made.
        call: Call,
        /// The plugin's socket.
        socket: PathBuf,
        /// Why there is no connection.
        message: String,
    },
    /// The plugin answered with a status other than OK, or the connection broke during the call.
    #[error("{call} failed with {class}: {message}")]
    Status {
        /// The call.
        call: Call,
        /// What the status code means.
        class: Class,
        /// The plugin's own words, without the secrets that were sent.
        message: String,
    },
    /// No answer within the deadline of the call's class.
    #[error("{call} had no answer within {after:?}")]
    Deadline {
        /// The call.
        call: Call,
        /// How long was waited.
        after: Duration,
    },
    /// The answer lacks what the specification requires in it.
    #[error("{call} was answered without a usable {field}")]
    Malformed {
        /// The call.
        call: Call,
        /// The field of the answer, as the specification names it.
        field: &'static str,
    },
    /// The request cannot be put on the wire; nothing was sent.
    #[error("{call} cannot be sent: {problem}")]
    Request {
        /// The call.
        call: Call,
        /// What is wrong with the request.
        problem: String,
    },
}

impl CsiError {
    /// The call that failed.
    pub const fn call(&self) -> Call {
        match self {
            Self::Unreachable { call, .. }
            | Self::Status { call, .. }
            | Self::Deadline { call, .. }
            | Self::Malformed { call, .. }
            | Self::Request { call, .. } => *call,
        }
    }

    /// What the plugin's status means, when the plugin (or a broken connection) gave one.
    pub const fn class(&self) -> Option<Class> {
        match self {
            Self::Status { class, .. } => Some(*class),
            _ => None,
        }
    }

    /// Whether the same call, sent again later, may succeed without anyone changing anything.
    /// `ABORTED` (another operation is under way) is among these.
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

    /// Whether the call may have taken effect although it failed: the caller must assume neither, and
    /// repeat the call or its opposite until one of them answers.
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

    /// Whether the plugin says that the object of the call does not exist.
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { class: Class::NotFound, .. })
    }

    /// Whether the plugin does not have this call.
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
            // A request that hyper cancelled was never sent: the connection had gone.
            let unsent = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
            if unsent || error.is::<tonic::ConnectError>() {
                return Self::Unreachable { call, socket: socket.to_owned(), message: innermost(error) };
            }
            if error.is::<tonic::TimeoutExpired>() {
                return Self::Deadline { call, after };
            }
            source = error.source();
        }
        // What the plugin says comes without a source; with one, it is the connection that failed.
        if let Some(source) = status.source() {
            return Self::Status { call, class: Class::Unavailable, message: scrub(&innermost(source)) };
        }
        let message = match status.message() {
            "" => "the plugin gave no reason".to_owned(),
            words => scrub(words),
        };
        Self::Status { call, class: Class::of(status.code()), message }
    }
}

/// The text of the last error in the chain, which is the one that says what happened.
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
