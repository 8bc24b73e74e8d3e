//! Errors of the servers, in the form that users see.

use caravan_admission::Problem;
use caravan_rpc::{Code, RpcError};
use caravan_types::api::{ErrorReason, JobProblem, Severity};
use caravan_types::command::Refusal;
use caravan_types::{Namespace, VolumeKey};

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The object does not exist: HTTP 404.
    NotFound,
    /// The request is invalid: HTTP 400.
    BadRequest,
    /// The caller is not authenticated: HTTP 401.
    Unauthorized,
    /// The caller lacks the right: HTTP 403.
    Forbidden,
    /// The current state refuses the request: HTTP 500, as in Nomad.
    Refused,
    /// No leader, node or plugin is available at the moment: HTTP 500.
    Unavailable,
    /// The request was not executed and may be retried unchanged: HTTP 500.
    Retry,
    /// Another agent failed, or this agent has a defect: HTTP 500.
    Internal,
}

/// A failure with one readable sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServerError {
    /// Determines the HTTP status.
    pub kind: Kind,
    /// One sentence for the user, without secrets.
    pub message: String,
    /// Volumes that the failure concerns and that the sentence does not name. [`ServerError::message_for`] names them
    /// to callers who may see their namespaces.
    pub about: Vec<VolumeKey>,
    /// Problems of the job that was refused; the sentence contains all of them.
    pub problems: Vec<JobProblem>,
    /// Reason, where clients act on it.
    pub reason: Option<ErrorReason>,
}

impl ServerError {
    /// Returns a failure of the given kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), about: Vec::new(), problems: Vec::new(), reason: None }
    }
    /// Prepends text to the sentence of the failure.
    pub(crate) fn after(self, words: &str) -> Self {
        Self { message: format!("{words}{}", self.message), ..self }
    }
    /// Returns the sentence, with the names of the volumes whose namespaces `sees` accepts.
    pub fn message_for(&self, sees: impl Fn(&Namespace) -> bool) -> String {
        let mut text = self.message.clone();
        for key in self.about.iter().filter(|key| sees(&key.namespace)) {
            text.push_str(&format!(" (volume \"{}\" in namespace \"{}\")", key.id, key.namespace));
        }
        text
    }
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }
    /// Returns the status of the HTTP response.
    pub fn http_status(&self) -> u16 {
        match self.kind {
            Kind::NotFound => 404,
            Kind::BadRequest => 400,
            Kind::Unauthorized => 401,
            Kind::Forbidden => 403,
            Kind::Refused | Kind::Unavailable | Kind::Retry | Kind::Internal => 500,
        }
    }
}

impl From<Refusal> for ServerError {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::NotFound { .. } => Kind::NotFound,
            Refusal::UnknownKey { .. } => Kind::Retry,
            Refusal::NodeSecret { .. } => Kind::Forbidden,
            _ => Kind::Refused,
        };
        let reason = match &refusal {
            Refusal::JobModifyIndex { .. } => Some(ErrorReason::ModifyIndex),
            Refusal::VolumeInUse { .. } => Some(ErrorReason::VolumeInUse),
            _ => None,
        };
        let error = Self { reason, ..Self::new(kind, refusal.to_string()) };
        match refusal {
            Refusal::StorageTaken { other, .. } | Refusal::NameTaken { other, .. } => {
                Self { about: vec![other], ..error }
            }
            _ => error,
        }
    }
}

/// The single problem is the whole sentence.
impl From<Problem> for ServerError {
    fn from(problem: Problem) -> Self {
        let problems = vec![problem.to_api(Severity::Error)];
        Self { problems, ..Self::refused(problem.text) }
    }
}

impl From<caravan_consensus::Error> for ServerError {
    fn from(error: caravan_consensus::Error) -> Self {
        Self::unavailable(format!("the change could not be made durable: {error}"))
    }
}

impl From<RpcError> for ServerError {
    fn from(error: RpcError) -> Self {
        let kind = match error.code {
            Code::NotFound | Code::NoPath => Kind::NotFound,
            Code::Invalid => Kind::BadRequest,
            Code::Permission => Kind::Forbidden,
            Code::Conflict => Kind::Refused,
            Code::Unavailable | Code::Retryable | Code::Deadline | Code::Cancelled => Kind::Unavailable,
            _ => Kind::Internal,
        };
        Self::new(kind, error.message)
    }
}

impl From<ServerError> for RpcError {
    fn from(error: ServerError) -> Self {
        let code = match error.kind {
            Kind::NotFound => Code::NotFound,
            Kind::BadRequest => Code::Invalid,
            Kind::Unauthorized | Kind::Forbidden => Code::Permission,
            Kind::Refused => Code::Conflict,
            Kind::Unavailable => Code::Unavailable,
            Kind::Retry => Code::Retryable,
            Kind::Internal => Code::Internal,
        };
        let status = error.http_status();
        Self::new(code, error.message).with_http_status(status)
    }
}
