//! Allocations and the facts that their nodes report (docs/reference/http-api.md, sections 3.2 and 3.4).

use crate::client::Client;
use crate::error::Error;
use crate::jobs::RegisterResponse;
use crate::logs::LogStream;
use crate::model::AllocUsage;
use crate::query::{QueryOptions, Response, path};
use bytes::Bytes;
use caravan_types::alloc::{AllocListStub, Allocation};
use http::Method;

/// An output stream of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogSource {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogSource {
    /// Returns the stream's name in the route: `stdout` or `stderr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The position, in bytes, from which a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStart {
    /// This many bytes after the start.
    Start(u64),
    /// This many bytes before the end.
    End(u64),
}

/// The log to read, its start position, and whether to follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The name of the task.
    pub task: String,
    /// The output stream to read.
    pub source: LogSource,
    /// The position of the first byte that is returned.
    pub start: LogStart,
    /// Whether the stream continues as the task writes.
    pub follow: bool,
}

/// The routes of allocations, from [`Client::allocations`].
#[derive(Clone, Copy, Debug)]
pub struct Allocations<'a>(&'a Client);

impl Client {
    /// Returns the routes of allocations.
    pub fn allocations(&self) -> Allocations<'_> {
        Allocations(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Allocations<'_> {
    /// Lists allocations.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<AllocListStub>>, Error> {
        self.0.get("/v1/allocations", query).await
    }

    /// Returns an allocation by its full id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Allocation>, Error> {
        self.0.get(&path("/v1/allocation/{}", &[id]), query).await
    }

    /// Stops an allocation; the scheduler places a replacement.
    pub async fn stop(
        &self,
        id: &str,
        no_shutdown_delay: bool,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        let query = query.clone().param("no_shutdown_delay", no_shutdown_delay.to_string());
        self.0.put(&path("/v1/allocation/{}/stop", &[id]), &query, &()).await
    }

    /// Restarts tasks in place: the named task, all running tasks (`task` empty), or all tasks.
    pub async fn restart(
        &self,
        id: &str,
        task: &str,
        all_tasks: bool,
        query: &QueryOptions,
    ) -> Result<Response<serde_json::Value>, Error> {
        let body = serde_json::json!({"TaskName": task, "AllTasks": all_tasks});
        self.0.put(&path("/v1/client/allocation/{}/restart", &[id]), query, &body).await
    }

    /// Returns the resource usage of an allocation.
    pub async fn stats(&self, id: &str, query: &QueryOptions) -> Result<Response<AllocUsage>, Error> {
        self.0.get(&path("/v1/client/allocation/{}/stats", &[id]), query).await
    }

    /// Returns the logs of a task as a stream of frames.
    ///
    /// ```no_run
    /// use caravan_sdk::{Client, LogOptions, LogSource, LogStart, QueryOptions};
    /// # async fn example(client: Client, id: &str) -> Result<(), caravan_sdk::Error> {
    /// let options = LogOptions {
    ///     task: "web".into(),
    ///     source: LogSource::Stdout,
    ///     start: LogStart::Start(0),
    ///     follow: true,
    /// };
    /// let mut logs = client.allocations().logs(id, &options, &QueryOptions::new()).await?;
    /// while let Some(frame) = logs.next().await? {
    ///     print!("{}", String::from_utf8_lossy(&frame.data));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn logs(
        &self,
        id: &str,
        options: &LogOptions,
        query: &QueryOptions,
    ) -> Result<LogStream, Error> {
        let (origin, offset) = match options.start {
            LogStart::Start(offset) => ("start", offset),
            LogStart::End(offset) => ("end", offset),
        };
        let query = query
            .clone()
            .param("follow", options.follow.to_string())
            .param("offset", offset.to_string())
            .param("origin", origin)
            .param("task", options.task.as_str())
            .param("type", options.source.as_str());
        let path = path("/v1/client/fs/logs/{}", &[id]);
        let answer = self.0.send(Method::GET, &path, &query, &[], Bytes::new()).await?;
        Ok(LogStream::new(self.0.clone(), path, answer.into_body()))
    }
}
