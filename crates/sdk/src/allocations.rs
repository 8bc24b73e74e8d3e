//! Allocations and what their nodes tell of them (docs/reference/http-api.md, sections 3.2 and 3.4).

use crate::client::Client;
use crate::error::Error;
use crate::jobs::RegisterResponse;
use crate::logs::LogStream;
use crate::model::AllocUsage;
use crate::query::{QueryOptions, Response, path};
use bytes::Bytes;
use caravan_types::alloc::{AllocListStub, Allocation};
use http::Method;

/// Which output of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogSource {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogSource {
    /// The word of the route.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Where reading starts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStart {
    /// That far behind the beginning.
    Start(u64),
    /// That far before the end.
    End(u64),
}

/// Which logs, from where, and whether to wait for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Task.
    pub task: String,
    /// Output.
    pub source: LogSource,
    /// Start.
    pub start: LogStart,
    /// Goes on as the task writes.
    pub follow: bool,
}

/// Routes of allocations.
#[derive(Clone, Copy, Debug)]
pub struct Allocations<'a>(&'a Client);

impl Client {
    /// Routes of allocations.
    pub fn allocations(&self) -> Allocations<'_> {
        Allocations(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Allocations<'_> {
    /// Lists allocations.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<AllocListStub>>, Error> {
        self.0.get("/v1/allocations", query).await
    }

    /// An allocation, by its whole id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Allocation>, Error> {
        self.0.get(&path("/v1/allocation/{}", &[id]), query).await
    }

    /// Stops an allocation; the scheduler replaces it.
    pub async fn stop(
        &self,
        id: &str,
        no_shutdown_delay: bool,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        let query = query.clone().param("no_shutdown_delay", no_shutdown_delay.to_string());
        self.0.put(&path("/v1/allocation/{}/stop", &[id]), &query, &()).await
    }

    /// Restarts tasks where they are: one, the running ones (`task` empty), or all.
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

    /// What an allocation uses.
    pub async fn stats(&self, id: &str, query: &QueryOptions) -> Result<Response<AllocUsage>, Error> {
        self.0.get(&path("/v1/client/allocation/{}/stats", &[id]), query).await
    }

    /// The logs of a task as a stream of frames.
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
