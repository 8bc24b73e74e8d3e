//! Calls of a driver plugin: deadlines, the end of the process, and the plugin's errors.

use crate::error::describe;
use crate::process::Process;
use caravan_drivers::{Error, TaskId};
use caravan_proto::plugins::structs::RecoverableError;
use prost::Message;
use std::time::Duration;
use tonic::{Code, Response, Status};

/// The error of a plugin that does not have a task; clients compare this text.
const NOT_FOUND: &str = "task not found for given id";
/// The timeout for the end of a process after its connection broke.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason that a call has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The process ended before the answer.
    Ended,
    /// The plugin does not have the task.
    UnknownTask,
    /// The plugin answered with an error.
    Refused(Box<Status>),
}

/// Waits for an answer. A call ends with the process.
pub(crate) async fn call<T>(
    process: &Process,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failed> {
    let status = tokio::select! {
        answer = call => match answer {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => status,
        },
        () = process.ended() => return Err(Failed::Ended),
    };
    if status.message().contains(NOT_FOUND) {
        return Err(Failed::UnknownTask);
    }
    let is_transport = matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown);
    if is_transport && tokio::time::timeout(patience(&status), process.ended()).await.is_ok() {
        return Err(Failed::Ended);
    }
    Err(Failed::Refused(Box::new(status)))
}

/// Returns the wait for the end of the process. Plugins in Go answer ordinary errors with the code Unknown, so only a
/// broken connection is worth a wait.
fn patience(status: &Status) -> Duration {
    if std::error::Error::source(status).is_some() || status.code() != Code::Unknown {
        END_TIMEOUT
    } else {
        Duration::ZERO
    }
}

/// The message that carries the details of a status (`google.rpc.Status`).
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// Returns whether a status contains the detail that another attempt may succeed.
pub(crate) fn is_recoverable(status: &Status) -> bool {
    let Ok(details) = Details::decode(status.details()) else { return false };
    let mut read = details.details.iter().filter(|any| any.type_url.ends_with(".RecoverableError"));
    status.code() == Code::FailedPrecondition
        && read.any(|any| RecoverableError::decode(any.value.as_slice()).is_ok_and(|found| found.recoverable))
}

/// Returns the error of a call about a task.
pub(crate) fn refused(driver: &str, id: &TaskId, failed: Failed) -> Error {
    match failed {
        Failed::Ended => {
            Error::Supervisor { id: id.clone(), source: std::io::ErrorKind::ConnectionAborted.into() }
        }
        Failed::UnknownTask => Error::UnknownTask(id.clone()),
        Failed::Refused(status) => Error::Refused(format!("driver {driver}: {}", describe(&status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_detail_makes_an_error_recoverable() {
        let status = |recoverable| {
            let any = prost_types::Any {
                type_url: "type.googleapis.com/hashicorp.nomad.plugins.shared.structs.RecoverableError"
                    .into(),
                value: RecoverableError { recoverable }.encode_to_vec(),
            };
            let details = Details { details: vec![any] }.encode_to_vec();
            Status::with_details(Code::FailedPrecondition, "busy", details.into())
        };
        assert!(is_recoverable(&status(true)));
        assert!(!is_recoverable(&status(false)));
        assert!(!is_recoverable(&Status::failed_precondition("busy")));
        assert!(!is_recoverable(&Status::with_details(Code::Unknown, "x", b"\xff\xff".to_vec().into())));
    }
}
