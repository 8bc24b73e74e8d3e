//! Files of allocations, the agent's log, and other facts that nodes report (docs/reference/http-api.md, sections 3.4
//! and 3.7).

use crate::client::Client;
use crate::error::Error;
use crate::logs::LogStream;
use crate::query::{QueryOptions, Response, path};
use bytes::Bytes;
use caravan_types::service::{CheckResult, ServiceRegistration};
use caravan_types::time::Time;
use http::Method;
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A file or directory of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocFile {
    /// The last segment of the path.
    pub name: String,
    /// Whether this is a directory.
    pub is_dir: bool,
    /// The size in bytes.
    pub size: u64,
    /// The mode as `ls -l` prints it.
    pub file_mode: String,
    /// The time of the last change.
    pub mod_time: Time,
    /// The media type; empty in lists.
    pub content_type: String,
}

/// The metadata of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeMetadata {
    /// The effective metadata: configuration and changes combined.
    pub meta: BTreeMap<String, String>,
    /// The changes of users. `None` removes a key that the configuration sets.
    pub dynamic: BTreeMap<String, Option<String>>,
    /// The metadata of the node's configuration.
    #[serde(rename = "Static")]
    pub fixed: BTreeMap<String, String>,
}

/// The names of the services of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceNames {
    /// The namespace of the services.
    pub namespace: String,
    /// The names with their tags.
    pub services: Vec<ServiceName>,
}

/// A service name and the tags of all its registrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceName {
    /// The name of the service.
    pub service_name: String,
    /// The tags of all registrations of this name.
    pub tags: Vec<String>,
}

/// The records of an agent's log to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorOptions {
    /// The least level: `trace`, `debug`, `info`, `warn` or `error`; empty means `info`.
    pub level: String,
    /// The id of a node whose log is followed; empty means the agent that receives the request.
    pub node: String,
    /// The name of a server whose log is followed; empty means the agent that receives the request.
    pub server: String,
    /// Whether records are JSON objects.
    pub json: bool,
    /// Whether records have their source location.
    pub location: bool,
}

/// The part of an agent's stored log to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// The unit of the service manager whose journal is read; empty with `on_disk`.
    pub service: String,
    /// Whether to read the agent's own log file instead of a journal.
    pub on_disk: bool,
    /// The age of the oldest record of the journal that is read, as a Go duration; empty means 72 hours.
    pub since: String,
    /// Whether the stream continues with new records.
    pub follow: bool,
    /// The id of a node whose log is read; empty means the agent that receives the request.
    pub node: String,
    /// The name of a server whose log is read; empty means the agent that receives the request.
    pub server: String,
}

/// The routes of services, from [`Client::services`].
#[derive(Clone, Copy, Debug)]
pub struct Services<'a>(&'a Client);

/// The routes of files, checks and signals that an allocation's node answers, from [`Client::on_node`].
#[derive(Clone, Copy, Debug)]
pub struct OnNode<'a>(&'a Client);

impl Client {
    /// Returns the routes of services.
    pub fn services(&self) -> Services<'_> {
        Services(self)
    }

    /// Returns the routes that an allocation's node answers.
    pub fn on_node(&self) -> OnNode<'_> {
        OnNode(self)
    }

    /// Follows an agent's log.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn monitor(&self, options: &MonitorOptions, query: &QueryOptions) -> Result<LogStream, Error> {
        let mut query = query.clone();
        for (name, value) in
            [("log_level", &options.level), ("node_id", &options.node), ("server_id", &options.server)]
        {
            if !value.is_empty() {
                query = query.param(name, value.as_str());
            }
        }
        for (name, value) in [("log_json", options.json), ("log_include_location", options.location)] {
            query = query.param(name, value.to_string());
        }
        let path = "/v1/agent/monitor";
        let answer = self.send(Method::GET, path, &query, &[], Bytes::new()).await?;
        Ok(LogStream::new(self.clone(), path.to_owned(), answer.into_body()))
    }

    /// Reads the stored log of an agent.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn monitor_export(
        &self,
        options: &ExportOptions,
        query: &QueryOptions,
    ) -> Result<LogStream, Error> {
        let mut query = query.clone();
        for (name, value) in [
            ("service_name", &options.service),
            ("logs_since", &options.since),
            ("node_id", &options.node),
            ("server_id", &options.server),
        ] {
            if !value.is_empty() {
                query = query.param(name, value.as_str());
            }
        }
        for (name, value) in [("on_disk", options.on_disk), ("follow", options.follow)] {
            if value {
                query = query.param(name, "true");
            }
        }
        let path = "/v1/agent/monitor/export";
        let answer = self.send(Method::GET, path, &query, &[], Bytes::new()).await?;
        Ok(LogStream::new(self.clone(), path.to_owned(), answer.into_body()))
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Services<'_> {
    /// Lists the names of services.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<ServiceNames>>, Error> {
        self.0.get("/v1/services", query).await
    }

    /// Lists the registrations of a service.
    pub async fn get(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<ServiceRegistration>>, Error> {
        self.0.get(&path("/v1/service/{}", &[name]), query).await
    }

    /// Deregisters a service instance.
    pub async fn delete(&self, name: &str, id: &str, query: &QueryOptions) -> Result<Response<Value>, Error> {
        self.0.delete(&path("/v1/service/{}/{}", &[name, id]), query).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl OnNode<'_> {
    /// Lists a directory of an allocation.
    pub async fn list(
        &self,
        alloc: &str,
        dir: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocFile>>, Error> {
        self.0.get(&path("/v1/client/fs/ls/{}", &[alloc]), &query.clone().param("path", dir)).await
    }

    /// Returns the facts about one file of an allocation.
    pub async fn stat(
        &self,
        alloc: &str,
        file: &str,
        query: &QueryOptions,
    ) -> Result<Response<AllocFile>, Error> {
        self.0.get(&path("/v1/client/fs/stat/{}", &[alloc]), &query.clone().param("path", file)).await
    }

    /// Streams the content of a file.
    pub async fn cat(
        &self,
        alloc: &str,
        file: &str,
        query: &QueryOptions,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let route = path("/v1/client/fs/cat/{}", &[alloc]);
        let query = query.clone().param("path", file);
        let mut body = self.0.send(Method::GET, &route, &query, &[], Bytes::new()).await?.into_body();
        while let Some(piece) = body.frame().await {
            if let Ok(data) = piece.map_err(|source| self.0.broken(&route, source))?.into_data() {
                each(&data);
            }
        }
        Ok(())
    }

    /// Streams a file in frames, from `offset` bytes before its end (`from_end`) or after its start.
    pub async fn stream(
        &self,
        alloc: &str,
        file: &str,
        (from_end, offset): (bool, u64),
        follow: bool,
        query: &QueryOptions,
    ) -> Result<LogStream, Error> {
        let route = path("/v1/client/fs/stream/{}", &[alloc]);
        let query = query
            .clone()
            .param("path", file)
            .param("origin", if from_end { "end" } else { "start" })
            .param("offset", offset.to_string())
            .param("follow", follow.to_string());
        let answer = self.0.send(Method::GET, &route, &query, &[], Bytes::new()).await?;
        Ok(LogStream::new(self.0.clone(), route, answer.into_body()))
    }

    /// Returns the latest result of each check of an allocation, by check id.
    pub async fn checks(
        &self,
        alloc: &str,
        query: &QueryOptions,
    ) -> Result<Response<BTreeMap<String, CheckResult>>, Error> {
        self.0.get(&path("/v1/client/allocation/{}/checks", &[alloc]), query).await
    }

    /// Sends a signal to a task, or to all tasks if the name is empty.
    pub async fn signal(
        &self,
        alloc: &str,
        task: &str,
        signal: &str,
        query: &QueryOptions,
    ) -> Result<Response<Value>, Error> {
        let body = json!({"Task": task, "Signal": signal});
        self.0.put(&path("/v1/client/allocation/{}/signal", &[alloc]), query, &body).await
    }

    /// Sets whether a task with a schedule runs: `pause`, `run` or `scheduled`.
    pub async fn pause(
        &self,
        alloc: &str,
        task: &str,
        state: &str,
        query: &QueryOptions,
    ) -> Result<Response<Value>, Error> {
        let body = json!({"Task": task, "ScheduleState": state});
        self.0.put(&path("/v1/client/allocation/{}/pause", &[alloc]), query, &body).await
    }

    /// Returns the metadata of a node. With an empty id, the agent that receives the request answers for its own
    /// node.
    pub async fn metadata(&self, node: &str, query: &QueryOptions) -> Result<Response<NodeMetadata>, Error> {
        self.0.get("/v1/client/metadata", &named(node, query)).await
    }

    /// Changes the metadata of a node; `None` removes a key.
    pub async fn change_metadata(
        &self,
        node: &str,
        changes: &BTreeMap<String, Option<String>>,
        query: &QueryOptions,
    ) -> Result<Response<NodeMetadata>, Error> {
        let body = json!({"NodeID": node, "Meta": changes});
        self.0.put("/v1/client/metadata", &named(node, query), &body).await
    }

    /// Removes the files of terminal allocations from a node.
    pub async fn collect(&self, node: &str, query: &QueryOptions) -> Result<Response<Value>, Error> {
        self.0.put("/v1/client/gc", &named(node, query), &()).await
    }
}

fn named(node: &str, query: &QueryOptions) -> QueryOptions {
    if node.is_empty() { query.clone() } else { query.clone().param("node_id", node) }
}
