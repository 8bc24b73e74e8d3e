//! Errors as HTTP answers: a status and one plain sentence (docs/reference/http-api.md, section 1.8).

use crate::reply::{Indexed, Meta};
use caravan_api::{DecodeError, ErrorReason, JobProblem};
use caravan_client::fs::FsError;
use caravan_client::{ClientError, DriverError};
use caravan_rpc::{Code, RpcError};
use caravan_server::{Kind, NoPath, ServerError};
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
    /// The reason, which is sent in a header, where clients act on it.
    pub(crate) reason: Option<ErrorReason>,
    /// Whether a leader held the request, a query that waits for a change, until the leader's term ended.
    pub(crate) held: bool,
    /// The problems of a refused job, for clients that request them.
    pub(crate) problems: Vec<JobProblem>,
}

/// The kind of a request to a client, which determines the error if the allocation has no such task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCall {
    /// The execution of a program in a task.
    Exec,
    /// A restart of tasks.
    Restart,
    /// A signal to tasks.
    Signal,
    /// A measurement of tasks.
    Stats,
    /// A request that names no task.
    Other,
}

impl ApiError {
    /// Creates an error with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            indexed: Indexed::None,
            reason: None,
            held: false,
            problems: Vec::new(),
        }
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
    /// Creates the error for a query that waited for a change when the term of the leader ended.
    pub(crate) fn leader_lost() -> Self {
        Self { held: true, ..Self::no_leader() }
    }
    /// Creates the error for an allocation whose files cannot be removed on demand: 500.
    pub(crate) fn not_collected() -> Self {
        Self::internal("No such allocation on client, or allocation not eligible for GC")
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
        Self { reason: error.reason(), ..Self::new(status, error.to_string()) }
    }

    /// Converts a refused change. Nomad has status codes for few refusals: a missing object is 500 here, and 404 for
    /// a read.
    pub(crate) fn of_change(error: &ServerError) -> Self {
        let status = match error.kind() {
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::BadRequest
            | Kind::NotFound
            | Kind::Refused
            | Kind::Unavailable
            | Kind::Retry
            | Kind::NotLeader
            | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { reason: error.reason(), problems: error.problems(), ..Self::new(status, error.to_string()) }
    }
}

/// Errors of this agent's client (docs/reference/http-api.md, section 3.4).
impl ApiError {
    /// Converts the error of a client's operation.
    pub(crate) fn of_client(call: ClientCall, error: &ClientError) -> Self {
        match error {
            ClientError::UnknownAlloc(id) => Self::not_found(format!("Unknown allocation \"{id}\"")),
            ClientError::UnknownTask(task) => match call {
                ClientCall::Exec => Self::internal("task not found"),
                ClientCall::Restart => Self::internal(format!("Could not find task runner for task: {task}")),
                ClientCall::Signal => Self::internal("Task not found"),
                ClientCall::Stats => Self::bad_request(error.to_string()),
                ClientCall::Other => Self::internal(error.to_string()),
            },
            ClientError::UnknownAction { .. } => Self::not_found(error.to_string()),
            ClientError::Metadata(_) => Self::bad_request(error.to_string()),
            other => Self::internal(other.to_string()),
        }
    }

    /// Converts the error of a file operation.
    pub(crate) fn of_fs(error: &FsError) -> Self {
        let status = match error {
            FsError::NotFound(_) | FsError::NoDirectory(_) | FsError::NoLogs(_) => StatusCode::NOT_FOUND,
            FsError::UnknownTask(_) | FsError::IsDirectory(_) | FsError::NotDirectory(_) => {
                StatusCode::BAD_REQUEST
            }
            FsError::Escapes | FsError::Secret(_) | FsError::Private(_) | FsError::Io { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, error.to_string())
    }

    /// Converts the error of opening a file to stream. A missing file is a bad request here, unlike in
    /// [`ApiError::of_fs`].
    pub(crate) fn of_stream(error: &FsError) -> Self {
        match error {
            FsError::NotFound(_) => Self::bad_request(error.to_string()),
            other => Self::of_fs(other),
        }
    }

    /// Converts the reason why a node cannot be called. Clients recognise the first words.
    pub(crate) fn no_path(reason: NoPath) -> Self {
        Self::not_found(format!("No path to node: {reason}"))
    }

    /// Converts the error that ends a program in a task. Clients recognise driver errors by the prefix.
    pub(crate) fn of_program(error: &DriverError) -> Self {
        Self::internal(format!("rpc error: code = Unknown desc = {error}"))
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        Self::of_client(ClientCall::Other, &error)
    }
}

impl From<FsError> for ApiError {
    fn from(error: FsError) -> Self {
        Self::of_fs(&error)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn errors_of_the_client_have_their_status_and_text() {
        use ClientCall::{Exec, Other, Restart, Signal, Stats};
        let every = [Exec, Restart, Signal, Stats, Other];
        let task = || ClientError::UnknownTask("web".into());
        let action = ClientError::UnknownAction { action: "dump".into(), task: "web".into() };
        let driver = ClientError::Driver(DriverError::Config("no command".into()));
        let table: [(&[ClientCall], ClientError, u16, &str); 12] = [
            (&every, ClientError::UnknownAlloc("a1".into()), 404, "Unknown allocation \"a1\""),
            (&[Exec], task(), 500, "task not found"),
            (&[Restart], task(), 500, "Could not find task runner for task: web"),
            (&[Signal], task(), 500, "Task not found"),
            (&[Stats], task(), 400, "unknown task name \"web\""),
            (&[Other], task(), 500, "unknown task name \"web\""),
            (&every, action, 404, "action dump not found in task web"),
            (
                &every,
                ClientError::Metadata("metadata key \"a b\" is invalid".into()),
                400,
                "metadata key \"a b\" is invalid",
            ),
            (&every, ClientError::TaskNotRunning("web".into()), 500, "task \"web\" is not running."),
            (
                &every,
                ClientError::Unsigned("no leader".into()),
                500,
                "the node's identity cannot be signed: no leader",
            ),
            (&every, ClientError::ShuttingDown, 500, "the client is shutting down"),
            (&every, driver, 500, "no command"),
        ];
        for (calls, error, status, text) in table {
            for call in calls {
                let answer = ApiError::of_client(*call, &error);
                assert_eq!((answer.status.as_u16(), answer.message.as_str()), (status, text), "{call:?}");
            }
        }
    }

    #[test]
    fn errors_of_files_have_their_status_and_text() {
        let table = [
            (FsError::NotFound("/a/x".into()), 404, 400, "stat /a/x: no such file or directory"),
            (FsError::NoDirectory("/a/x".into()), 404, 404, "open /a/x: no such file or directory"),
            (FsError::NoLogs("web".into()), 404, 404, "task \"web\" not started yet. No logs available"),
            (FsError::UnknownTask("web".into()), 400, 400, "unknown task name \"web\""),
            (FsError::IsDirectory("x".into()), 400, 400, "file \"x\" is a directory"),
            (FsError::NotDirectory("x".into()), 400, 400, "\"x\" is not a directory"),
            (FsError::Escapes, 500, 500, "Path escapes the alloc directory"),
            (FsError::Secret("s".into()), 500, 500, "Reading secret file prohibited: s"),
            (FsError::Private("p".into()), 500, 500, "Reading private file prohibited: p"),
            (FsError::Io { path: "x".into(), source: io::Error::other("gone") }, 500, 500, "x: gone"),
        ];
        for (error, status, of_stream, text) in table {
            for (answer, status) in
                [(ApiError::of_fs(&error), status), (ApiError::of_stream(&error), of_stream)]
            {
                assert_eq!((answer.status.as_u16(), answer.message.as_str()), (status, text));
            }
        }
    }

    #[test]
    fn errors_of_programs_have_the_prefix_of_remote_errors() {
        let answer = ApiError::of_program(&DriverError::Config("lost".into()));
        assert_eq!(answer, ApiError::internal("rpc error: code = Unknown desc = lost"));
    }
}
