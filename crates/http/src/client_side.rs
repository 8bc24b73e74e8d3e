//! What the routes below `/v1/client` need of the client in this agent. A trait, so that routes are
//! tested without one.

use async_trait::async_trait;
use bytes::Bytes;
use caravan_meters::Meters;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::node::Node;
use caravan_types::wire::{ExecIn, ExecOpen, ExecOut};
use caravan_types::{AllocId, NodeId, Time};
use futures::stream::BoxStream;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A file of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FileInfo {
    /// Last segment of its path.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes.
    pub size: u64,
    /// As in `ls -l`: `-rw-r--r--`.
    pub file_mode: String,
    /// Last change.
    pub mod_time: Time,
    /// Media type by content; told for single files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// A piece of a file that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Content.
    pub data: Bytes,
    /// Path within the allocation.
    pub file: String,
    /// Position after the content.
    pub offset: u64,
    /// `file deleted` or `file truncated`, where that happened.
    pub event: String,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// `offset` bytes after the start.
    #[default]
    Start,
    /// `offset` bytes before the end.
    End,
}

/// Which of a task's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogKind {
    /// The word in file names and parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Where and how long to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Bytes from the origin, never negative.
    pub offset: u64,
    /// Origin.
    pub origin: Origin,
    /// Wait for more at the end.
    pub follow: bool,
}

/// A refusal of the client: the status and the text of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientSideError {
    /// HTTP status.
    pub status: StatusCode,
    /// One sentence.
    pub message: String,
}

impl ClientSideError {
    /// A refusal.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl From<crate::ApiError> for ClientSideError {
    fn from(error: crate::ApiError) -> Self {
        Self::new(error.status, error.message)
    }
}

impl From<ClientSideError> for crate::ApiError {
    fn from(error: ClientSideError) -> Self {
        Self::new(error.status, error.message)
    }
}

/// Frames as they come; ends at the end of the file unless followed.
pub type Frames = BoxStream<'static, Result<Frame, ClientSideError>>;

/// Raw content as it is read.
pub type Content = BoxStream<'static, Result<Bytes, ClientSideError>>;

/// A program that runs in a task. Dropping the output ends it.
pub struct ExecSession {
    /// To the program.
    pub input: mpsc::Sender<ExecIn>,
    /// From the program; an error is the last item.
    pub output: BoxStream<'static, Result<ExecOut, ClientSideError>>,
}

impl fmt::Debug for ExecSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExecSession")
    }
}

/// The client of this agent. Every path is confined to the allocation's directory; errors are worded as
/// in docs/reference/http-api.md, section 3.4.
#[async_trait]
pub trait ClientSide: fmt::Debug + Send + Sync + 'static {
    /// Its node.
    fn node_id(&self) -> NodeId;
    /// Whether the allocation's directory is here.
    fn has_alloc(&self, alloc: &AllocId) -> bool;
    /// Allocations here, for the agent's own figures.
    fn alloc_count(&self) -> usize;
    /// The node as it describes itself.
    fn node(&self) -> Arc<Node>;
    /// The allocations here and how they are.
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)>;
    /// What was counted and timed.
    fn meters(&self) -> Meters;
    /// How long ago the servers answered a sign of life, and for how long they took it.
    fn last_heartbeat(&self) -> Option<(Duration, Duration)>;
    /// Why it cannot work at the moment.
    ///
    /// # Errors
    /// With the reason.
    fn health(&self) -> Result<(), String>;
    /// Waits until it knows its allocations again after a start; not for ever.
    async fn ready(&self);
    /// Files of a directory.
    async fn list(&self, alloc: &AllocId, path: &str) -> Result<Vec<FileInfo>, ClientSideError>;
    /// A file, with its content type.
    async fn stat(&self, alloc: &AllocId, path: &str) -> Result<FileInfo, ClientSideError>;
    /// Content from `offset` on, at most `limit` bytes.
    async fn read(
        &self,
        alloc: &AllocId,
        path: &str,
        offset: i64,
        limit: Option<u64>,
    ) -> Result<Content, ClientSideError>;
    /// A file in frames.
    async fn stream(&self, alloc: &AllocId, path: &str, range: Range) -> Result<Frames, ClientSideError>;
    /// A task's log in frames, across rotation.
    async fn logs(
        &self,
        alloc: &AllocId,
        task: &str,
        kind: LogKind,
        range: Range,
    ) -> Result<Frames, ClientSideError>;
    /// The allocation's data and the local directories of its tasks, as a tar archive.
    async fn snapshot(&self, alloc: &AllocId) -> Result<Content, ClientSideError>;
    /// What the node's signed identity says.
    async fn identity(&self) -> Result<Value, ClientSideError>;
    /// Has the node's identity signed anew.
    async fn renew_identity(&self) -> Result<(), ClientSideError>;
    /// What the allocation (or one task of it) uses, in the shape of `AllocResourceUsage`.
    async fn alloc_stats(&self, alloc: &AllocId, task: Option<&str>) -> Result<Value, ClientSideError>;
    /// What the host uses, in the shape of `HostStats`.
    async fn host_stats(&self) -> Result<Value, ClientSideError>;
    /// Restarts one task, or those that run, or all of them.
    async fn restart(&self, alloc: &AllocId, task: Option<&str>, all: bool) -> Result<(), ClientSideError>;
    /// Runs a program in a task.
    async fn exec(&self, open: &ExecOpen) -> Result<ExecSession, ClientSideError>;
    /// What the checks of the allocation's services said last, by id, in the shape of `CheckQueryResult`.
    async fn checks(&self, alloc: &AllocId) -> Result<Value, ClientSideError>;
    /// Removes the files of an allocation that is over.
    async fn collect(&self, alloc: &AllocId) -> Result<(), ClientSideError>;
    /// The same of all that are over.
    async fn collect_all(&self) -> Result<(), ClientSideError>;
    /// The node's free pairs: `Meta`, `Dynamic`, `Static`.
    async fn metadata(&self) -> Result<Value, ClientSideError>;
    /// Changes the node's free pairs; none takes one away.
    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Value, ClientSideError>;
    /// Signals one task, or all of them.
    async fn signal(&self, alloc: &AllocId, task: Option<&str>, signal: &str) -> Result<(), ClientSideError>;
}
