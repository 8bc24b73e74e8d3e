//! Errors of plugins, and their form on the wire.

use caravan_proto::plugins::structs::RecoverableError;
use prost::Message;
use prost_types::Any;
use std::error::Error as StdError;
use tonic::{Code, Status};

/// Any error as the cause of another one.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// The type of [`RecoverableError`] as the detail of a status.
const RECOVERABLE: &str = "type.googleapis.com/hashicorp.nomad.plugins.shared.structs.RecoverableError";

/// An error of a driver.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The driver has no task with this id. Agents compare the text.
    #[error("task not found for given id")]
    NotFound,
    /// A failure that may pass. The agent retries by the restart policy of the task.
    #[error("the operation failed and may succeed later")]
    Recoverable(#[source] Cause),
    /// A failure that a retry does not change. The task fails.
    #[error("the operation failed")]
    Failed(#[source] Cause),
}

impl TaskError {
    /// Returns a failure that may pass, from a text or an error.
    pub fn recoverable(cause: impl Into<Cause>) -> Self {
        Self::Recoverable(cause.into())
    }

    /// Returns a lasting failure, from a text or an error.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self::Failed(cause.into())
    }

    /// Converts to a status. Users see only the causes, because the agent names the failed call.
    pub(crate) fn into_status(self) -> Status {
        match self {
            Self::NotFound => Status::unknown(self.to_string()),
            Self::Recoverable(cause) => with_detail(&chain(cause.as_ref()), true),
            Self::Failed(cause) => Status::unknown(chain(cause.as_ref())),
        }
    }

    /// Converts an error of statistics. A lasting error has a detail, without which the agent calls again.
    pub(crate) fn into_stats_status(self) -> Status {
        match self {
            Self::Failed(cause) => with_detail(&chain(cause.as_ref()), false),
            other => other.into_status(),
        }
    }
}

/// An error of a device plugin.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No instance has these ids.
    #[error("unknown device IDs: {}", .0.join(","))]
    Unknown(Vec<String>),
    /// Another failure.
    #[error("the operation failed")]
    Failed(#[source] Cause),
}

impl DeviceError {
    /// Returns a failure, from a text or an error.
    pub fn failed(cause: impl Into<Cause>) -> Self {
        Self::Failed(cause.into())
    }

    pub(crate) fn into_status(self) -> Status {
        match self {
            Self::Unknown(_) => Status::unknown(self.to_string()),
            Self::Failed(cause) => Status::unknown(chain(cause.as_ref())),
        }
    }
}

/// Returns the texts of an error and its sources in one line.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// The message `google.rpc.Status`, which gRPC carries in `grpc-status-details-bin`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

fn with_detail(text: &str, recoverable: bool) -> Status {
    let detail = RecoverableError { recoverable };
    let status = RpcStatus {
        code: Code::FailedPrecondition.into(),
        message: text.to_owned(),
        details: vec![Any { type_url: RECOVERABLE.to_owned(), value: detail.encode_to_vec() }],
    };
    Status::with_details(Code::FailedPrecondition, text, status.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_know_the_text_of_an_unknown_task() {
        assert_eq!(TaskError::NotFound.into_status().message(), "task not found for given id");
    }

    #[test]
    fn a_failure_shows_all_causes() {
        let inner = std::io::Error::other("disk is full");
        let status = TaskError::failed(inner).into_status();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "disk is full"));
        assert!(status.details().is_empty());
    }

    #[test]
    fn a_passing_failure_carries_the_detail() {
        for (status, recoverable) in [
            (TaskError::recoverable("busy").into_status(), true),
            (TaskError::failed("busy").into_stats_status(), false),
        ] {
            assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "busy"));
            let decoded = RpcStatus::decode(status.details()).unwrap();
            assert_eq!((decoded.code, decoded.message.as_str()), (9, "busy"));
            assert_eq!(decoded.details[0].type_url, RECOVERABLE);
            let detail = RecoverableError::decode(decoded.details[0].value.as_slice()).unwrap();
            assert_eq!(detail.recoverable, recoverable);
        }
    }

    #[test]
    fn unknown_devices_are_named() {
        let status = DeviceError::Unknown(vec!["a".into(), "b".into()]).into_status();
        assert_eq!(status.message(), "unknown device IDs: a,b");
    }
}
