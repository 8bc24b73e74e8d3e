//! Files of allocations, the agent's log, and more that nodes tell (docs/reference/http-api.md, sections 3.4 and 3.7).

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

/// A file of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocFile {
    /// Last segment of its path.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes.
    pub size: u64,
    /// As in `ls -l`.
    pub file_mode: String,
    /// Last change.
    pub mod_time: Time,
    /// Media type; told for single files only.
    pub content_type: String,
}

/// The free pairs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeMetadata {
    /// In force.
    pub meta: BTreeMap<String, String>,
    /// Changed by users; none takes one of the configuration away.
    pub dynamic: BTreeMap<String, Option<String>>,
    /// Of the configuration.
    #[serde(rename = "Static")]
    pub fixed: BTreeMap<String, String>,
}

/// Names of services, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceNames {
    /// Namespace.
    pub namespace: String,
    /// Names and tags.
    pub services: Vec<ServiceName>,
}

/// A name and the tags of all that bear it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceName {
    /// Name.
    pub service_name: String,
    /// Tags.
    pub tags: Vec<String>,
}

/// Which records of an agent's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorOptions {
    /// `trace`, `debug`, `info`, `warn` or `error`; empty for `info`.
    pub level: String,
    /// A node instead of the agent that is asked.
    pub node: String,
    /// A server instead of the agent that is asked.
    pub server: String,
    /// Records as JSON.
    pub json: bool,
    /// With their place in the program.
    pub location: bool,
}

/// Which part of the log that an agent has kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Unit of the agent's service manager whose journal is read; empty with `on_disk`.
    pub service: String,
    /// The agent's own log file.
    pub on_disk: bool,
    /// How far back in the journal, as Go writes durations; empty: 72 hours.
    pub since: String,
    /// Go on with what comes.
    pub follow: bool,
    /// A node instead of the agent that is asked.
    pub node: String,
    /// A server instead of the agent that is asked.
    pub server: String,
}

/// Routes of services.
#[derive(Clone, Copy, Debug)]
pub struct Services<'a>(&'a Client);

/// Routes of files and other things that the node of an allocation tells.
#[derive(Clone, Copy, Debug)]
pub struct OnNode<'a>(&'a Client);

impl Client {
    /// Routes of services.
    pub fn services(&self) -> Services<'_> {
        Services(self)
    }

    /// Routes of files and other things that the node of an allocation tells.
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

    /// Reads what has been kept of an agent's log.
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
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Services<'_> {
    /// Names of services.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<ServiceNames>>, Error> {
        self.0.get("/v1/services", query).await
    }

    /// Registrations of a name.
    pub async fn get(
        &self,
        name: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<ServiceRegistration>>, Error> {
        self.0.get(&path("/v1/service/{}", &[name]), query).await
    }

    /// Strikes a registration out.
    pub async fn delete(&self, name: &str, id: &str, query: &QueryOptions) -> Result<Response<Value>, Error> {
        self.0.delete(&path("/v1/service/{}/{}", &[name, id]), query).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl OnNode<'_> {
    /// Files of a directory of an allocation.
    pub async fn list(
        &self,
        alloc: &str,
        dir: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocFile>>, Error> {
        self.0.get(&path("/v1/client/fs/ls/{}", &[alloc]), &query.clone().param("path", dir)).await
    }

    /// A file of an allocation.
    pub async fn stat(
        &self,
        alloc: &str,
        file: &str,
        query: &QueryOptions,
    ) -> Result<Response<AllocFile>, Error> {
        self.0.get(&path("/v1/client/fs/stat/{}", &[alloc]), &query.clone().param("path", file)).await
    }

    /// Content of a file, piece by piece.
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

    /// A file in frames, `offset` bytes before its end (`from_end`) or after its start.
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

    /// What the checks of an allocation said last, by id.
    pub async fn checks(
        &self,
        alloc: &str,
        query: &QueryOptions,
    ) -> Result<Response<BTreeMap<String, CheckResult>>, Error> {
        self.0.get(&path("/v1/client/allocation/{}/checks", &[alloc]), query).await
    }

    /// Sends a signal to a task, to all of them without a name.
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

    /// The free pairs of a node; of the agent that is asked without an id.
    pub async fn metadata(&self, node: &str, query: &QueryOptions) -> Result<Response<NodeMetadata>, Error> {
        self.0.get("/v1/client/metadata", &named(node, query)).await
    }

    /// Changes the free pairs of a node; none takes one away.
    pub async fn change_metadata(
        &self,
        node: &str,
        changes: &BTreeMap<String, Option<String>>,
        query: &QueryOptions,
    ) -> Result<Response<NodeMetadata>, Error> {
        let body = json!({"NodeID": node, "Meta": changes});
        self.0.put("/v1/client/metadata", &named(node, query), &body).await
    }

    /// Has a node remove the files of allocations that are over.
    pub async fn collect(&self, node: &str, query: &QueryOptions) -> Result<Response<Value>, Error> {
        self.0.put("/v1/client/gc", &named(node, query), &()).await
    }
}

fn named(node: &str, query: &QueryOptions) -> QueryOptions {
    if node.is_empty() { query.clone() } else { query.clone().param("node_id", node) }
}
