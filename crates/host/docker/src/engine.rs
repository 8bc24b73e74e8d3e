//! The connection to the engine, and the meaning of its errors.

use crate::connection::{Address, transport};
use crate::container::Facts;
use crate::options::{DockerOptions, Tls};
use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, SystemInfoCgroupVersionEnum};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use caravan_drivers::TaskId;
use caravan_tls::{Checked, ClientSettings, Connector};
use parking_lot::Mutex;
use serde_json::Value;
use std::error::Error as _;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The oldest version of the API with all calls of the driver.
const OLDEST: ClientVersion = ClientVersion { major_version: 1, minor_version: 40 };
/// The address on which engines listen by default.
const DEFAULT_ENDPOINT: &str = "unix:///var/run/docker.sock";
/// The ports of engines without and with TLS.
const DEFAULT_PORTS: [u16; 2] = [2375, 2376];
/// The longest time until an answer begins.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// The component that podman's service names in its version.
const PODMAN: &str = "Podman Engine";
/// Attempts after the first, when the engine is in trouble.
pub(crate) const RETRIES: u32 = 5;

/// Result of a call of the engine.
pub(crate) type Answer<T> = Result<T, Error>;

/// The connection to the engine. Each request opens a separate connection, so the engine may restart in between.
#[derive(Debug)]
pub(crate) struct Engine {
    endpoint: String,
    /// The checks and files of a connection over TLS; absent if the connection has none.
    tls: Option<ClientSettings>,
    client: Mutex<Option<Docker>>,
    facts: Mutex<Option<Facts>>,
}

/// The reason that there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    /// No engine listens.
    #[error("nothing listens at {0}")]
    Absent(String),
    /// The agent may not connect.
    #[error("this user may not connect to {0}")]
    Forbidden(String),
    /// The engine is too old.
    #[error("its API {found} is older than {}.{}", OLDEST.major_version, OLDEST.minor_version)]
    TooOld {
        /// The engine's newest version.
        found: String,
    },
    /// The address cannot be used.
    #[error(
        "the endpoint {0:?} cannot be used: it must be unix:// with a path or tcp:// with a host and port"
    )]
    Endpoint(String),
    /// The certificates of the connection cannot be used.
    #[error("the tls block of the plugin: {0}")]
    Tls(String),
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

impl Engine {
    pub(crate) fn new(options: &DockerOptions) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (endpoint, tls) = match options.endpoint.as_str() {
            "" => (variable("DOCKER_HOST"), tls_of_environment(variable)),
            set => (Some(set.to_owned()), tls_of_options(&options.tls)),
        };
        Self {
            endpoint: endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.into()),
            tls,
            client: Mutex::new(None),
            facts: Mutex::new(None),
        }
    }

    /// Returns whether the engine's processes are those of this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.endpoint.starts_with("unix://")
    }

    /// Returns the path of the engine's socket, if the engine runs on this machine.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.endpoint.strip_prefix("unix://").map(Path::new)
    }

    /// Returns whether the engine's socket belongs to root, so that the engine may name files that root reads.
    pub(crate) fn is_of_root(&self) -> bool {
        self.socket().and_then(|path| std::fs::metadata(path).ok()).is_some_and(|found| found.uid() == 0)
    }

    /// Returns the client, and agrees with the engine on a version of the API at the first call.
    pub(crate) async fn client(&self) -> Result<Docker, Unreachable> {
        if let Some(client) = self.client.lock().clone() {
            return Ok(client);
        }
        let client = self.connect()?.with_timeout(ANSWER_LIMIT);
        let client = client.negotiate_version().await.map_err(|error| self.explain(&error))?;
        let found = client.client_version();
        if found < OLDEST {
            return Err(Unreachable::TooOld { found: found.to_string() });
        }
        self.client.lock().clone_from(&Some(client.clone()));
        Ok(client)
    }

    /// Drops the agreed version, since another engine may answer next.
    pub(crate) fn reset(&self) {
        *self.client.lock() = None;
        *self.facts.lock() = None;
    }

    /// Returns the facts that decide which settings the engine accepts; requested once for each connection.
    pub(crate) async fn facts(&self, client: &Docker) -> Answer<Facts> {
        if let Some(facts) = *self.facts.lock() {
            return Ok(facts);
        }
        let info = client.info().await?;
        let parts = client.version().await?.components.unwrap_or_default();
        let facts = Facts {
            cgroup_v2: info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2),
            processors: info.ncpu.unwrap_or(1),
            is_podman: parts.iter().any(|part| part.name == PODMAN),
        };
        *self.facts.lock() = Some(facts);
        Ok(facts)
    }

    fn connect(&self) -> Result<Docker, Unreachable> {
        let client = Docker::connect_with_custom_transport(
            transport(self.address()?),
            Some("http://engine"),
            ANSWER_LIMIT.as_secs(),
            API_DEFAULT_VERSION,
        );
        client.map(url_safe_auth).map_err(|error| self.explain(&error))
    }

    /// Returns the address on which the engine listens. Files with certificates are read again, because they may have
    /// been renewed.
    fn address(&self) -> Result<Address, Unreachable> {
        let bad = || Unreachable::Endpoint(self.endpoint.clone());
        let (scheme, rest) = self.endpoint.split_once("://").ok_or_else(bad)?;
        if scheme == "unix" {
            let path = Path::new(rest);
            return if path.is_absolute() { Ok(Address::Unix(path.to_owned())) } else { Err(bad()) };
        }
        let has_tls = match (scheme, &self.tls) {
            ("tcp" | "http", None) => false,
            ("tcp" | "https", Some(_)) => true,
            _ => return Err(bad()),
        };
        let authority: http::uri::Authority = rest.trim_end_matches('/').parse().map_err(|_| bad())?;
        let host = authority.host().to_owned();
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(bad());
        }
        let port = authority.port_u16().unwrap_or(DEFAULT_PORTS[usize::from(has_tls)]);
        Ok(match self.tls.as_ref().filter(|_| has_tls) {
            None => Address::Tcp { host, port },
            Some(settings) => {
                let connector =
                    Connector::new(settings).map_err(|error| Unreachable::Tls(error.to_string()))?;
                Address::Tls { host, port, connector }
            }
        })
    }

    pub(crate) fn explain(&self, error: &Error) -> Unreachable {
        match io_kind(error) {
            Some(io::ErrorKind::PermissionDenied) => Unreachable::Forbidden(self.endpoint.clone()),
            Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Unreachable::Absent(self.endpoint.clone())
            }
            _ => Unreachable::Other(text(error)),
        }
    }
}

/// Returns the settings of the `tls` block; `None` if the block names no file.
fn tls_of_options(tls: &Tls) -> Option<ClientSettings> {
    let file = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
    let (ca_file, cert_file, key_file) = (file(&tls.ca), file(&tls.cert), file(&tls.key));
    let is_set = ca_file.is_some() || cert_file.is_some() || key_file.is_some();
    is_set.then(|| ClientSettings { ca_file, cert_file, key_file, ..ClientSettings::default() })
}

/// Returns the settings of the variables of the `docker` command; `None` if they request no TLS.
fn tls_of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<ClientSettings> {
    let dir = PathBuf::from(variable("DOCKER_CERT_PATH")?);
    let checked = if variable("DOCKER_TLS_VERIFY").is_some() { Checked::Host } else { Checked::Nothing };
    Some(ClientSettings {
        ca_file: Some(dir.join("ca.pem")),
        cert_file: Some(dir.join("cert.pem")),
        key_file: Some(dir.join("key.pem")),
        checked,
        ..ClientSettings::default()
    })
}

/// Returns the engine's description of a container.
pub(crate) async fn inspect(client: &Docker, container: &str) -> Answer<ContainerInspectResponse> {
    match client.inspect_container(container, None).await {
        // podman has states that the library does not have.
        Err(Error::JsonDataError { message, contents, column }) => {
            used_part(&contents).ok_or(Error::JsonDataError { message, contents: String::new(), column })
        }
        answer => answer,
    }
}

/// Reads the part of an inspection that the driver uses.
fn used_part(text: &str) -> Option<ContainerInspectResponse> {
    const USED: [(&str, &[&str]); 4] = [
        (
            "State",
            &["Running", "Paused", "Restarting", "OOMKilled", "Pid", "ExitCode", "StartedAt", "FinishedAt"],
        ),
        ("Config", &["Labels", "StopSignal"]),
        ("HostConfig", &["CpusetCpus"]),
        ("NetworkSettings", &["Networks", "SandboxKey"]),
    ];
    let all: Value = serde_json::from_str(text).ok()?;
    let mut used = serde_json::Map::new();
    used.insert("Id".to_owned(), all.get("Id")?.clone());
    if let Some(path) = all.get("LogPath") {
        used.insert("LogPath".to_owned(), path.clone());
    }
    for (block, keys) in USED {
        let inner =
            keys.iter().filter_map(|key| Some(((*key).to_owned(), all.get(block)?.get(key)?.clone())));
        used.insert(block.to_owned(), Value::Object(inner.collect()));
    }
    serde_json::from_value(Value::Object(used)).ok()
}

/// Writes credentials in the URL-safe alphabet that the engine reads, in place of the library's alphabet.
fn url_safe_auth(client: Docker) -> Docker {
    client.with_request_modifier(|mut request| {
        let header = request.headers_mut().get_mut("X-Registry-Auth");
        if let Some(value) = header
            && let Ok(text) = value.to_str()
            && let Ok(mut safe) = text.replace('+', "-").replace('/', "_").parse::<http::HeaderValue>()
        {
            safe.set_sensitive(true);
            *value = safe;
        }
        request
    })
}

/// Returns the kind of the input or output error that caused an error.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = next {
        if let Some(error) = current.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = current.source();
    }
    match error {
        // Transparent errors skip themselves as sources.
        Error::IOError { err } => Some(err.kind()),
        _ => None,
    }
}

/// Returns the status of the engine's answer, if the answer is a refusal.
pub(crate) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Returns whether the engine has no such object.
pub(crate) fn is_absent(error: &Error) -> bool {
    status(error) == Some(404)
}

/// Returns whether the same request may succeed later: the engine ends, starts, or cannot answer.
pub(crate) fn is_trouble(error: &Error) -> bool {
    match status(error) {
        Some(status) => status >= 500 && has_trouble_words(&text(error)),
        None => !matches!(error, Error::DockerStreamError { .. } | Error::JsonDataError { .. }),
    }
}

/// Returns whether a text has the words of a temporary failure. A status of 500 alone may mean any failure, also a
/// program that does not exist.
fn has_trouble_words(text: &str) -> bool {
    ["EOF", "timeout", "Timeout", "connection re", "shutting down"].iter().any(|word| text.contains(word))
}

/// Returns an error as one sentence, in the engine's own words if the error has any.
pub(crate) fn text(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } => error.trim().to_owned(),
        Error::RequestTimeoutError => "the engine does not answer".to_owned(),
        other => {
            let mut words = other.to_string();
            let mut next = other.source();
            while let Some(cause) = next {
                let cause_words = cause.to_string();
                if !words.contains(&cause_words) {
                    words = format!("{words}: {cause_words}");
                }
                next = cause.source();
            }
            words
        }
    }
}

/// Returns the driver's error for a request about a task that failed.
pub(crate) fn failed(id: &TaskId, error: &Error) -> caravan_drivers::Error {
    match status(error) {
        Some(_) => caravan_drivers::Error::Refused(text(error)),
        None => caravan_drivers::Error::Supervisor { id: id.clone(), source: io::Error::other(text(error)) },
    }
}

/// Returns the driver's error for a request about a task that found no engine.
pub(crate) fn unreachable(id: &TaskId, error: &Unreachable) -> caravan_drivers::Error {
    caravan_drivers::Error::Supervisor { id: id.clone(), source: io::Error::other(error.to_string()) }
}

/// Returns the pause before an attempt: 50 ms, doubled each time, at most a minute.
pub(crate) fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(50)
        .saturating_mul(2_u32.saturating_pow(attempt.min(16)))
        .min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_distinguished() {
        let engine = Engine::new(&DockerOptions { endpoint: "unix:///x".into(), ..DockerOptions::default() });
        let denied = Error::IOError { err: io::ErrorKind::PermissionDenied.into() };
        assert!(matches!(engine.explain(&denied), Unreachable::Forbidden(_)));
        let refused = Error::IOError { err: io::ErrorKind::ConnectionRefused.into() };
        assert!(matches!(engine.explain(&refused), Unreachable::Absent(_)));
        let server = |status_code, message: &str| Error::DockerResponseServerError {
            status_code,
            message: message.to_owned(),
        };
        assert!(is_absent(&server(404, "x")) && !is_trouble(&server(404, "EOF")));
        assert!(is_trouble(&server(500, "unexpected EOF")) && !is_trouble(&server(500, "no such file")));
        assert!(is_trouble(&Error::RequestTimeoutError));
        assert_eq!(text(&server(500, "a\n")), "a");
    }

    #[test]
    fn states_of_other_engines_are_read() {
        let text = r#"{"Id": "c1", "State": {"Status": "stopped", "Running": false, "ExitCode": 3, "Pid": 0},
            "Config": {"Labels": {"a": "b"}, "StopSignal": "15", "StopTimeout": "odd"}, "Created": "now"}"#;
        let found = used_part(text).unwrap();
        let state = found.state.unwrap();
        assert_eq!((found.id.as_deref(), state.running, state.exit_code), (Some("c1"), Some(false), Some(3)));
        assert_eq!(found.config.unwrap().labels.unwrap()["a"], "b");
        assert!(used_part("[]").is_none());
    }

    #[test]
    fn wrong_endpoints_are_refused() {
        for endpoint in ["x", "unix://relative", "ssh://h", "tcp://"] {
            let engine =
                Engine::new(&DockerOptions { endpoint: endpoint.into(), ..DockerOptions::default() });
            assert!(matches!(engine.connect(), Err(Unreachable::Endpoint(_))), "{endpoint}");
        }
        let tls = Tls { ca: "/no/ca.pem".into(), ..Tls::default() };
        let options = DockerOptions { endpoint: "tcp://h".into(), tls, ..DockerOptions::default() };
        let error = Engine::new(&options).connect().unwrap_err().to_string();
        assert!(error.contains("tls block") && error.contains("/no/ca.pem"), "{error}");
        // Certificates without encryption are a mistake.
        let http = DockerOptions { endpoint: "http://h:1".into(), ..options };
        assert!(matches!(Engine::new(&http).connect(), Err(Unreachable::Endpoint(_))));
    }

    #[test]
    fn ports_have_defaults() {
        let address = |endpoint: &str| {
            let options = DockerOptions { endpoint: endpoint.into(), ..DockerOptions::default() };
            Engine::new(&options).address().unwrap()
        };
        assert!(matches!(address("tcp://h"), Address::Tcp { port: 2375, .. }));
        assert!(matches!(address("tcp://[::1]:7"), Address::Tcp { host, port: 7 } if host == "[::1]"));
    }

    #[test]
    fn the_variables_of_the_docker_command_are_read() {
        let of = |values: &[(&str, &str)]| {
            tls_of_environment(|name| {
                let found = values.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[("DOCKER_TLS_VERIFY", "1")]), None);
        let found = of(&[("DOCKER_CERT_PATH", "/c"), ("DOCKER_TLS_VERIFY", "1")]).unwrap();
        assert_eq!((found.ca_file, found.checked), (Some("/c/ca.pem".into()), Checked::Host));
        assert_eq!(of(&[("DOCKER_CERT_PATH", "/c")]).unwrap().checked, Checked::Nothing);
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        assert_eq!(backoff(0), Duration::from_millis(50));
        assert_eq!(backoff(3), Duration::from_millis(400));
        assert_eq!(backoff(99), Duration::from_secs(60));
    }
}
