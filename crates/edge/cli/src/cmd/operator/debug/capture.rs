//! The requests of a debug bundle, and the files that hold the answers.

use super::bundle::{Bundle, segment};
use caravan_base::percent;
use caravan_sdk::{Client, Error, ExportOptions, LogStream, MonitorOptions, QueryOptions};
use caravan_types::redact::redact;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An agent whose data a debug bundle contains.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A server, by its name.
    Server(String),
    /// A node, by its id.
    Node(String),
}

impl Target {
    /// Returns the agent's directory in the bundle.
    fn dir(&self) -> String {
        match self {
            Self::Server(name) => format!("server/{}", segment(name)),
            Self::Node(id) => format!("client/{}", segment(id)),
        }
    }

    fn query(&self, query: &QueryOptions) -> QueryOptions {
        match self {
            Self::Server(name) => query.clone().param("server_id", name),
            Self::Node(id) => query.clone().param("node_id", id),
        }
    }

    fn ids(&self) -> (String, String) {
        match self {
            Self::Server(name) => (String::new(), name.clone()),
            Self::Node(id) => (id.clone(), String::new()),
        }
    }
}

/// The agents' logs to collect.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    /// The lowest level of log entries.
    pub(super) level: String,
    /// Whether to include the source location of each log entry.
    pub(super) location: bool,
    /// Whether to collect the agents' own log files too.
    pub(super) files: bool,
    /// The age up to which to collect the journals of the agents' service. `None`: no journals.
    pub(super) lookback: Option<String>,
}

/// A collection in progress, which sends requests and writes the answers into the bundle.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) client: Client,
    pub(super) bundle: Bundle,
    /// The options of every request; they select all namespaces.
    pub(super) query: QueryOptions,
    pub(super) asked: AtomicUsize,
    pub(super) failed: AtomicUsize,
}

/// Lists that are collected in each interval: name and route.
const LISTS: [(&str, &str); 15] = [
    ("allocations", "/v1/allocations"),
    ("csi-plugins", "/v1/plugins?type=csi"),
    ("csi-volumes", "/v1/volumes?type=csi"),
    ("deployments", "/v1/deployments"),
    ("evaluations", "/v1/evaluations"),
    ("host-volumes", "/v1/volumes?type=host"),
    ("jobs", "/v1/jobs"),
    ("metrics", "/v1/metrics"),
    ("node-pools", "/v1/node/pools"),
    ("nodes", "/v1/nodes?resources=true&os=true"),
    ("operator-autopilot-health", "/v1/operator/autopilot/health"),
    ("operator-raft", "/v1/operator/raft/configuration"),
    ("operator-scheduler", "/v1/operator/scheduler/configuration"),
    ("scaling-policies", "/v1/scaling/policies"),
    ("services", "/v1/services"),
];

/// Data that is collected once: name and route.
const CLUSTER: [(&str, &str); 9] = [
    ("agent-self", "/v1/agent/self"),
    ("members", "/v1/agent/members"),
    ("regions", "/v1/regions"),
    ("leader", "/v1/status/leader"),
    ("peers", "/v1/status/peers"),
    ("namespaces", "/v1/namespaces"),
    ("operator-autopilot", "/v1/operator/autopilot/configuration"),
    ("operator-keyring", "/v1/operator/keyring/keys"),
    ("schedulers", "/v1/agent/schedulers"),
];

/// Profiles of an agent's process: route, file name, whether the route takes a duration.
const PROFILES: [(&str, &str, bool); 4] = [
    ("goroutine?debug=1", "goroutine-debug1.txt", false),
    ("cmdline", "cmdline.txt", false),
    ("profile", "profile.prof", true),
    ("trace", "trace.prof", true),
];

impl Capture {
    /// Requests JSON. An error is written in place of the answer, so that the bundle names the missing data.
    async fn ask(&self, path: &str, query: &QueryOptions) -> Value {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (path, supplied) = path.split_once('?').unwrap_or((path, ""));
        let query = supplied
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .fold(query.clone(), |query, (name, value)| query.param(name, value));
        match self.client.get::<Value>(path, &query).await {
            Ok(answer) => answer.value,
            Err(error) => {
                // An unhealthy cluster answers with an error status, but the body is still complete.
                if let Error::Status { body, .. } = &error
                    && let Ok(reported @ Value::Object(_)) = serde_json::from_str(body)
                {
                    return reported;
                }
                self.failed.fetch_add(1, Ordering::Relaxed);
                json!({"Error": error.to_string()})
            }
        }
    }

    /// Collects the data of the cluster as a whole.
    pub(super) async fn cluster(&self) -> io::Result<()> {
        for (name, path) in CLUSTER {
            let reported = self.ask(path, &self.query).await;
            self.bundle.json(&format!("cluster/{name}.json"), reported)?;
        }
        Ok(())
    }

    /// Collects the data of an agent that is collected once.
    pub(super) async fn agent(&self, target: &Target, profile_seconds: u64) -> io::Result<()> {
        let (dir, query) = (target.dir(), target.query(&self.query));
        let host = self.ask("/v1/agent/host", &query).await;
        self.bundle.json(&format!("{dir}/agent-host.json"), host)?;
        if let Target::Node(id) = target {
            let node = self.ask(&format!("/v1/node/{}", segment(id)), &self.query).await;
            self.bundle.json(&format!("{dir}/node.json"), node)?;
            let stats = self.ask("/v1/client/stats", &query).await;
            self.bundle.json(&format!("{dir}/client-stats.json"), stats)?;
        }
        if profile_seconds > 0 {
            self.profiles(target, profile_seconds).await?;
        }
        Ok(())
    }

    async fn profiles(&self, target: &Target, seconds: u64) -> io::Result<()> {
        let dir = target.dir();
        let mut refused = serde_json::Map::new();
        for (route, file, lasts) in PROFILES {
            let (route, supplied) = route.split_once('?').unwrap_or((route, ""));
            let mut query = target.query(&self.query);
            if let Some((name, value)) = supplied.split_once('=') {
                query = query.param(name, value);
            }
            if lasts {
                query = query.param("seconds", seconds.to_string());
            }
            let path = format!("/v1/agent/pprof/{route}");
            match self.client.raw(http::Method::GET, &path, &query, bytes::Bytes::new()).await {
                Ok(content) => self.bundle.bytes(&format!("{dir}/{file}"), &content)?,
                Err(error) => drop(refused.insert(file.to_owned(), json!(error.to_string()))),
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        // Not a failure: an agent refuses to be profiled unless its configuration enables it.
        self.bundle.json(&format!("{dir}/pprof-refused.json"), Value::Object(refused))
    }

    /// Collects the data that changes, once per interval.
    pub(super) async fn interval(&self, number: u32) -> io::Result<()> {
        let dir = format!("interval/{number:04}");
        for (name, path) in LISTS {
            let reported = self.ask(path, &self.query).await;
            let rows: Vec<Value> = reported.as_array().cloned().unwrap_or_default();
            self.bundle.json(&format!("{dir}/{name}.json"), reported)?;
            for row in rows {
                let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
                let id = text("ID");
                match name {
                    "csi-plugins" => {
                        let one =
                            self.ask(&format!("/v1/plugin/csi/{}", percent::encode(&id)), &self.query).await;
                        self.bundle.json(&format!("{dir}/csi-plugin-{}.json", segment(&id)), one)?;
                    }
                    "csi-volumes" => {
                        let namespace = text("Namespace");
                        let query = self.query.clone().namespace(&namespace);
                        let one = self.ask(&format!("/v1/volume/csi/{}", percent::encode(&id)), &query).await;
                        let file = format!("csi-volume-{}-{}.json", segment(&namespace), segment(&id));
                        self.bundle.json(&format!("{dir}/{file}"), one)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Follows an agent's log until the log ends or the collection drops this future.
    pub(super) async fn monitor(&self, target: &Target, logs: &Logs) -> io::Result<()> {
        let (node, server) = target.ids();
        let options =
            MonitorOptions { level: logs.level.clone(), node, server, json: false, location: logs.location };
        let opened = self.client.monitor(&options, &self.query).await;
        self.keep_log(&format!("{}/monitor.log", target.dir()), opened).await
    }

    /// Exports an agent's past log entries.
    pub(super) async fn export(&self, target: &Target, logs: &Logs) -> io::Result<()> {
        let (node, server) = target.ids();
        let own = ExportOptions { node, server, ..ExportOptions::default() };
        let mut desired = Vec::new();
        if logs.files {
            desired.push(("monitor_export_file.log", ExportOptions { on_disk: true, ..own.clone() }));
        }
        if let Some(since) = &logs.lookback {
            let (service, since) = ("caravan".to_owned(), since.clone());
            desired.push(("monitor_export_journal.log", ExportOptions { service, since, ..own }));
        }
        for (file, options) in desired {
            let opened = self.client.monitor_export(&options, &self.query).await;
            self.keep_log(&format!("{}/{file}", target.dir()), opened).await?;
        }
        Ok(())
    }

    async fn keep_log(&self, name: &str, opened: Result<LogStream, Error>) -> io::Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut file = self.bundle.file(name)?;
        let mut failed = |error: Error| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            writeln!(file, "Error: {error}")
        };
        let mut log = match opened {
            Ok(log) => log,
            Err(error) => return failed(error),
        };
        loop {
            match log.next().await {
                Ok(Some(frame)) => file.write_all(&frame.data)?,
                Ok(None) => return Ok(()),
                Err(error) => return writeln!(file, "Error: {error}"),
            }
        }
    }

    /// Follows events until they end or the collection drops this future. Each line of the file is one batch.
    pub(super) async fn events(&self, topics: &[String], index: u64) -> io::Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut file = self.bundle.file("cluster/eventstream.json")?;
        let mut events = match self.client.events(topics, index, &self.query).await {
            Ok(events) => events,
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                return writeln!(file, "{}", json!({"Error": error.to_string()}));
            }
        };
        loop {
            let line = match events.next().await {
                Ok(Some(batch)) if batch.events.is_empty() => continue,
                Ok(Some(batch)) => {
                    let mut line = json!({"Index": batch.index, "Events": batch.events});
                    redact(&mut line);
                    line
                }
                Ok(None) => return Ok(()),
                Err(error) => return writeln!(file, "{}", json!({"Error": error.to_string()})),
            };
            writeln!(file, "{line}")?;
        }
    }
}
