//! The trait by which the routes below `/v1/client` use the client of this agent. Tests replace the client by their
//! own implementation.

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
    /// The last segment of the path.
    pub name: String,
    /// Whether this is a directory.
    pub is_dir: bool,
    /// The size in bytes.
    pub size: u64,
    /// The mode as `ls -l` prints it: `-rw-r--r--`.
    pub file_mode: String,
    /// The time of the last change.
    pub mod_time: Time,
    /// The media type, detected from the content; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// A piece of a followed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The content.
    pub data: Bytes,
    /// The path within the allocation.
    pub file: String,
    /// The position after the content.
    pub offset: u64,
    /// `file deleted` or `file truncated` if that happened, otherwise empty.
    pub event: String,
}

/// The reference point of an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The start of the file; offsets count forward.
    #[default]
    Start,
    /// The end of the file; offsets count backward.
    End,
}

/// An output stream of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogKind {
    /// Returns the name in file names and parameters: `stdout` or `stderr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The range of a file to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The distance from the origin in bytes, never negative.
    pub offset: u64,
    /// The reference point of the offset.
    pub origin: Origin,
    /// Whether to wait for more content at the end.
    pub follow: bool,
}

/// A refusal of the client: the status and text of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientSideError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The text of the answer, one sentence.
    pub message: String,
}

impl ClientSideError {
    /// Creates a refusal.
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

/// A stream of frames; it ends at the end of the file unless the file is followed.
pub type Frames = BoxStream<'static, Result<Frame, ClientSideError>>;

/// A stream of raw content.
pub type Content = BoxStream<'static, Result<Bytes, ClientSideError>>;

/// A program that runs in a task. Dropping the output ends the program.
pub struct ExecSession {
    /// Messages to the program.
    pub input: mpsc::Sender<ExecIn>,
    /// Messages from the program; an error is the last item.
    pub output: BoxStream<'static, Result<ExecOut, ClientSideError>>,
}

impl fmt::Debug for ExecSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExecSession")
    }
}

/// The client of this agent. Every path is confined to the allocation's directory. Error texts follow
/// docs/reference/http-api.md, section 3.4.
#[async_trait]
pub trait ClientSide: fmt::Debug + Send + Sync + 'static {
    /// Returns the id of the client's node.
    fn node_id(&self) -> NodeId;
    /// Returns whether the client has the allocation's directory.
    fn has_alloc(&self, alloc: &AllocId) -> bool;
    /// Returns the number of allocations, for the agent's own figures.
    fn alloc_count(&self) -> usize;
    /// Returns the node as its client describes it.
    fn node(&self) -> Arc<Node>;
    /// Returns the client's allocations and their status.
    fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)>;
    /// Returns the counters and timers of the client.
    fn meters(&self) -> Meters;
    /// Returns the time since the servers answered a heartbeat, and the TTL that they granted.
    fn last_heartbeat(&self) -> Option<(Duration, Duration)>;
    /// Checks whether the client is healthy.
    ///
    /// # Errors
    /// Returns the reason if the client cannot work at the moment.
    fn health(&self) -> Result<(), String>;
    /// Waits, for a limited time, until the client has restored its allocations after a start.
    async fn ready(&self);
    /// Lists a directory.
    async fn list(&self, alloc: &AllocId, path: &str) -> Result<Vec<FileInfo>, ClientSideError>;
    /// Returns the facts about a file, with its content type.
    async fn stat(&self, alloc: &AllocId, path: &str) -> Result<FileInfo, ClientSideError>;
    /// Reads at most `limit` bytes of content from `offset`.
    async fn read(
        &self,
        alloc: &AllocId,
        path: &str,
        offset: i64,
        limit: Option<u64>,
    ) -> Result<Content, ClientSideError>;
    /// Streams a file in frames.
    async fn stream(&self, alloc: &AllocId, path: &str, range: Range) -> Result<Frames, ClientSideError>;
    /// Streams a task's log in frames, across rotations.
    async fn logs(
        &self,
        alloc: &AllocId,
        task: &str,
        kind: LogKind,
        range: Range,
    ) -> Result<Frames, ClientSideError>;
    /// Streams the allocation's data and the local directories of its tasks as a tar archive.
    async fn snapshot(&self, alloc: &AllocId) -> Result<Content, ClientSideError>;
    /// Returns the claims of the node's signed identity.
    async fn identity(&self) -> Result<Value, ClientSideError>;
    /// Requests a new signature of the node's identity.
    async fn renew_identity(&self) -> Result<(), ClientSideError>;
    /// Returns the resource usage of the allocation, or of one of its tasks, in the shape of `AllocResourceUsage`.
    async fn alloc_stats(&self, alloc: &AllocId, task: Option<&str>) -> Result<Value, ClientSideError>;
    /// Returns the resource usage of the host, in the shape of `HostStats`.
    async fn host_stats(&self) -> Result<Value, ClientSideError>;
    /// Restarts the named task, all running tasks, or all tasks (`all`).
    async fn restart(&self, alloc: &AllocId, task: Option<&str>, all: bool) -> Result<(), ClientSideError>;
    /// Runs a program in a task.
    async fn exec(&self, open: &ExecOpen) -> Result<ExecSession, ClientSideError>;
    /// Returns the latest results of the allocation's service checks by id, in the shape of `CheckQueryResult`.
    async fn checks(&self, alloc: &AllocId) -> Result<Value, ClientSideError>;
    /// Removes the files of a terminal allocation.
    async fn collect(&self, alloc: &AllocId) -> Result<(), ClientSideError>;
    /// Removes the files of all terminal allocations.
    async fn collect_all(&self) -> Result<(), ClientSideError>;
    /// Returns the node's metadata: `Meta`, `Dynamic`, `Static`.
    async fn metadata(&self) -> Result<Value, ClientSideError>;
    /// Changes the node's metadata; `None` removes a key.
    async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Value, ClientSideError>;
    /// Sends a signal to one task or to all tasks.
    async fn signal(&self, alloc: &AllocId, task: Option<&str>, signal: &str) -> Result<(), ClientSideError>;
}
