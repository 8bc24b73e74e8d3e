//! What an agent is: defaults, under configuration files, under the command line. Pure.

use crate::error::AgentError;
use crate::flags::Flags;
use crate::log_file::LogFileSettings;
use crate::reserved;
use crate::tls::TlsSettings;
use caravan_hcl::config::AgentConfig;
use caravan_server::{AclConfig, Ages, GcConfig, RejectionConfig};
use caravan_types::Nanos;
use caravan_types::node::ReservedResources;
use caravan_volumes::lease::Lease;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Facts about the host that defaults depend on.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Name as the kernel has it.
    pub(crate) hostname: String,
    /// Address of the default route's interface, if there is one.
    pub(crate) address: Option<IpAddr>,
    /// Processors.
    pub(crate) cores: usize,
    /// Where a `-dev` agent keeps what must be on disk while it runs.
    pub(crate) temporary: PathBuf,
}

/// A resolved configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) dev: bool,
    pub(crate) region: String,
    pub(crate) datacenter: String,
    pub(crate) name: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) log_level: String,
    pub(crate) log_json: bool,
    pub(crate) log_file: Option<LogFileSettings>,
    /// Whether profiles of the process may be asked for.
    pub(crate) enable_debug: bool,
    pub(crate) http: SocketAddr,
    pub(crate) rpc: SocketAddr,
    pub(crate) advertise_http: String,
    pub(crate) advertise_rpc: String,
    pub(crate) server: Option<ServerSettings>,
    pub(crate) client: Option<ClientSettings>,
    pub(crate) transport: caravan_http::Transport,
    pub(crate) metrics: caravan_http::MetricsConfig,
    pub(crate) tls: TlsSettings,
    pub(crate) plugins: BTreeMap<String, serde_json::Value>,
    pub(crate) files: Vec<String>,
    pub(crate) acl: AclConfig,
}

/// Most calls of one kind that a plugin can be given at a time.
const MOST_CALLS: usize = 1000;

/// The server part.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    pub(crate) data_dir: PathBuf,
    pub(crate) workers: usize,
    pub(crate) min_heartbeat_ttl: Duration,
    pub(crate) heartbeat_grace: Duration,
    pub(crate) failover_heartbeat_ttl: Option<Duration>,
    pub(crate) lease: Lease,
    pub(crate) volume_calls_per_plugin: usize,
    pub(crate) issuer: Option<String>,
    pub(crate) gc: GcConfig,
    /// Indexes whose events are remembered, where the configuration says.
    pub(crate) event_buffer: Option<usize>,
    pub(crate) rejections: RejectionConfig,
}

/// The client part.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) servers: Vec<String>,
    pub(crate) state_dir: PathBuf,
    pub(crate) alloc_dir: PathBuf,
    pub(crate) host_volumes_dir: PathBuf,
    pub(crate) host_volume_plugin_dir: PathBuf,
    pub(crate) file: caravan_hcl::config::ClientConfig,
    pub(crate) node_class: String,
    pub(crate) node_pool: String,
    pub(crate) meta: BTreeMap<String, String>,
    pub(crate) network_interface: Option<String>,
    /// First and last port that jobs get when they name none.
    pub(crate) dynamic_ports: (u16, u16),
    /// Parent of the tasks' control groups, if it is not the usual one.
    pub(crate) cgroup_parent: Option<String>,
    /// Kept for the host.
    pub(crate) reserved: ReservedResources,
    /// Processors that jobs may reserve; all but those kept when absent.
    pub(crate) reservable_cores: Option<BTreeSet<u16>>,
}

const HTTP_PORT: u16 = 4646;
const RPC_PORT: u16 = 4647;
/// More indexes would keep too much of the past in memory.
const MOST_EVENTS: usize = 100_000;
const DYNAMIC_PORTS: (u16, u16) = (20_000, 32_000);

fn bad(field: &'static str, reason: impl Into<String>) -> AgentError {
    AgentError::Setting { field, reason: reason.into() }
}

fn port(field: &'static str, given: Option<i64>, default: u16) -> Result<u16, AgentError> {
    match given {
        None => Ok(default),
        Some(n) => u16::try_from(n).map_err(|_| bad(field, format!("{n} is not a port (0 to 65535)"))),
    }
}

fn ip(field: &'static str, text: &str) -> Result<IpAddr, AgentError> {
    text.parse().map_err(|_| bad(field, format!("{text:?} is not an IP address")))
}

/// A path that means the same wherever the agent is started.
fn absolute(field: &'static str, dir: String) -> Result<PathBuf, AgentError> {
    let dir = PathBuf::from(dir);
    if dir.is_absolute() {
        Ok(dir)
    } else {
        Err(bad(field, format!("{} is not an absolute path", dir.display())))
    }
}

/// A word of a file; the empty one says nothing.
fn said(word: &Option<String>) -> Option<String> {
    word.clone().filter(|word| !word.is_empty())
}

/// Puts defaults, files and flags together.
pub(crate) fn resolve(flags: &Flags, file: AgentConfig, host: &Host) -> Result<Settings, AgentError> {
    let dev = flags.dev;
    let flag = |name: &'static str| flags.values.get(name).cloned();
    let data_dir = flag("data-dir").or(file.data_dir.clone());
    let data_dir = data_dir.map(|dir| absolute("data_dir", dir)).transpose()?;
    let server_file = file.server.clone().unwrap_or_default();
    let client_file = file.client.clone().unwrap_or_default();
    let is_server = dev || flags.server || server_file.enabled.unwrap_or(false);
    let is_client = dev || flags.client || client_file.enabled.unwrap_or(false);
    if !is_server && !is_client {
        return Err(bad(
            "server, client",
            "the agent must be a server, a client or both: enable one, or use -dev",
        ));
    }
    let data_dir = match (dev, data_dir) {
        // As the reference: -dev keeps nothing where a later agent would find it.
        (true, _) => host.temporary.clone(),
        (false, Some(dir)) => dir,
        (false, None) => return Err(bad("data_dir", "it must be set, unless -dev is given")),
    };
    let log_level = flag("log-level")
        .or(file.log_level.clone())
        .unwrap_or_else(|| if dev { "DEBUG" } else { "INFO" }.into());
    if !crate::logging::is_level(&log_level) {
        return Err(bad("log_level", format!("{log_level:?} is not TRACE, DEBUG, INFO, WARN, ERROR or OFF")));
    }
    let default_bind = if dev { "127.0.0.1" } else { "0.0.0.0" };
    let bind = flag("bind").or(file.bind_addr.clone()).unwrap_or_else(|| default_bind.into());
    let bind = ip("bind_addr", &bind)?;
    let addresses = file.addresses.clone().unwrap_or_default();
    let ports = file.ports.clone().unwrap_or_default();
    let listen = |field, own: Option<&String>, port| -> Result<SocketAddr, AgentError> {
        let address = own.map_or(Ok(bind), |text| ip(field, text))?;
        Ok(SocketAddr::new(address, port))
    };
    let http = listen("addresses.http", addresses.http.as_ref(), port("ports.http", ports.http, HTTP_PORT)?)?;
    let rpc = listen("addresses.rpc", addresses.rpc.as_ref(), port("ports.rpc", ports.rpc, RPC_PORT)?)?;
    let advertise = file.advertise.clone().unwrap_or_default();
    let advertise_http = advertised("advertise.http", advertise.http.as_deref(), http, host, dev)?;
    let advertise_rpc = advertised("advertise.rpc", advertise.rpc.as_deref(), rpc, host, dev || !is_server)?;
    let expected = match flag("bootstrap-expect") {
        Some(text) => {
            text.parse().map_err(|_| bad("bootstrap_expect", format!("{text:?} is not a number")))?
        }
        None => server_file.bootstrap_expect.unwrap_or(1),
    };
    if is_server && expected != 1 {
        return Err(bad(
            "bootstrap_expect",
            format!("{expected} servers were asked for; only one is supported yet"),
        ));
    }
    let server_dir = match server_file.data_dir.clone() {
        Some(dir) => absolute("server.data_dir", dir)?,
        None => data_dir.join("server"),
    };
    let lease = lease(&server_file)?;
    let volume_calls_per_plugin = calls_per_plugin(server_file.volume_calls_per_plugin)?;
    let event_buffer = event_buffer(server_file.event_buffer_size)?;
    let server = is_server.then(|| ServerSettings {
        data_dir: server_dir,
        workers: workers(server_file.num_schedulers, host.cores),
        min_heartbeat_ttl: server_file.min_heartbeat_ttl.map_or(Duration::from_secs(10), |d| d.to_std()),
        heartbeat_grace: server_file.heartbeat_grace.map_or(Duration::from_secs(10), |d| d.to_std()),
        failover_heartbeat_ttl: server_file.failover_heartbeat_ttl.map(|d| d.to_std()),
        lease,
        volume_calls_per_plugin,
        issuer: server_file.oidc_issuer.clone().filter(|issuer| !issuer.is_empty()),
        gc: gc(&server_file),
        event_buffer,
        rejections: rejections(&server_file),
    });
    let client = if is_client { Some(client(flags, client_file, &data_dir, is_server)?) } else { None };
    let plugins = file
        .plugin
        .clone()
        .unwrap_or_default()
        .into_iter()
        .map(|(name, plugin)| (name, plugin.config.map(|raw| raw.0).unwrap_or_default()))
        .collect();
    Ok(Settings {
        dev,
        region: flag("region").or(said(&file.region)).unwrap_or_else(|| "global".into()),
        datacenter: flag("dc").or(said(&file.datacenter)).unwrap_or_else(|| "dc1".into()),
        name: flag("node").or(said(&file.name)).unwrap_or_else(|| host.hostname.clone()),
        data_dir,
        log_level,
        log_file: LogFileSettings::of(&file)?,
        log_json: flags.log_json || file.log_json.unwrap_or(false),
        enable_debug: file.enable_debug.unwrap_or(dev),
        http,
        rpc,
        advertise_http,
        advertise_rpc,
        server,
        client,
        transport: transport(&file)?,
        metrics: metrics(&file, dev),
        tls: TlsSettings::of(&file)?,
        plugins,
        files: flags.config.clone(),
        acl: acl(file.acl.as_ref())?,
    })
}

/// Settings of the API's listener.
/// All of them for those who try things out, as in the reference.
fn metrics(file: &AgentConfig, dev: bool) -> caravan_http::MetricsConfig {
    let told = file.telemetry.clone().unwrap_or_default();
    caravan_http::MetricsConfig {
        allocations: told.publish_allocation_metrics.unwrap_or(dev),
        node: told.publish_node_metrics.unwrap_or(dev),
        prometheus: told.prometheus_metrics.unwrap_or(dev),
    }
}

fn transport(file: &AgentConfig) -> Result<caravan_http::Transport, AgentError> {
    let mut transport = caravan_http::Transport::default();
    if let Some(most) = file.limits.as_ref().and_then(|limits| limits.http_max_conns_per_client) {
        transport.connections_per_client = usize::try_from(most).map_err(|_| {
            bad("limits.http_max_conns_per_client", format!("{most} is below 0, which stands for no limit"))
        })?;
    }
    let headers = file.http_api_response_headers.iter().flatten();
    transport.headers = caravan_http::Transport::read_headers(headers)
        .map_err(|reason| bad("http_api_response_headers", reason))?;
    Ok(transport)
}

fn calls_per_plugin(configured: Option<i64>) -> Result<usize, AgentError> {
    let Some(given) = configured else { return Ok(caravan_server::CALLS_PER_PLUGIN) };
    match usize::try_from(given) {
        Ok(calls) if (1..=MOST_CALLS).contains(&calls) => Ok(calls),
        _ => Err(bad("server.volume_calls_per_plugin", format!("{given} is not between 1 and {MOST_CALLS}"))),
    }
}

/// When nodes are taken out that refuse placements (`jobspec` section 11.2).
fn rejections(file: &caravan_hcl::config::ServerConfig) -> RejectionConfig {
    let defaults = RejectionConfig::default();
    let Some(tracker) = &file.plan_rejection_tracker else { return defaults };
    RejectionConfig {
        enabled: tracker.enabled.unwrap_or(defaults.enabled),
        threshold: tracker.node_threshold.and_then(|n| usize::try_from(n).ok()).unwrap_or(defaults.threshold),
        window: tracker.node_window.unwrap_or(defaults.window),
    }
}

/// When what is over is forgotten (`jobspec` section 11.2).
fn gc(file: &caravan_hcl::config::ServerConfig) -> GcConfig {
    let GcConfig { interval, ages } = GcConfig::default();
    GcConfig {
        interval: file.job_gc_interval.unwrap_or(interval),
        ages: Ages {
            evals: file.eval_gc_threshold.unwrap_or(ages.evals),
            batch_evals: file.batch_eval_gc_threshold.unwrap_or(ages.batch_evals),
            jobs: file.job_gc_threshold.unwrap_or(ages.jobs),
            deployments: file.deployment_gc_threshold.unwrap_or(ages.deployments),
            nodes: file.node_gc_threshold.unwrap_or(ages.nodes),
        },
    }
}

fn event_buffer(configured: Option<i64>) -> Result<Option<usize>, AgentError> {
    let Some(given) = configured else { return Ok(None) };
    match usize::try_from(given) {
        Ok(indexes) if (1..=MOST_EVENTS).contains(&indexes) => Ok(Some(indexes)),
        _ => Err(bad("server.event_buffer_size", format!("{given} is not between 1 and {MOST_EVENTS}"))),
    }
}

/// The spans of the fence. A lease must last longer than ordinary hiccups of the network, a kill takes its time, and
/// clocks differ.
fn lease(file: &caravan_hcl::config::ServerConfig) -> Result<Lease, AgentError> {
    let default = Lease::default();
    let span = |field, given: Option<Nanos>, default: Nanos, least: Nanos| match given {
        Some(given) if given < least => Err(bad(field, format!("{given} is too short: at least {least}"))),
        given => Ok(given.unwrap_or(default)),
    };
    let tenth = Nanos::from_millis(100);
    Ok(Lease {
        ttl: span("server.lease_ttl", file.lease_ttl, default.ttl, Nanos::from_secs(1))?,
        kill_grace: span("server.lease_kill_grace", file.lease_kill_grace, default.kill_grace, tenth)?,
        margin: span("server.lease_margin", file.lease_margin, default.margin, tenth)?,
    })
}

/// Access control.
fn acl(file: Option<&caravan_hcl::config::AclConfig>) -> Result<AclConfig, AgentError> {
    let default = AclConfig::default();
    let Some(file) = file else { return Ok(default) };
    let min_expiration = file.token_min_expiration_ttl.unwrap_or(default.min_expiration);
    let max_expiration = file.token_max_expiration_ttl.unwrap_or(default.max_expiration);
    if min_expiration > max_expiration {
        return Err(bad(
            "acl.token_min_expiration_ttl",
            format!("{min_expiration} is longer than acl.token_max_expiration_ttl, {max_expiration}"),
        ));
    }
    Ok(AclConfig { enabled: file.enabled.unwrap_or(false), min_expiration, max_expiration })
}

fn workers(configured: Option<i64>, cores: usize) -> usize {
    configured.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(cores).min(64)
}

fn client(
    flags: &Flags,
    file: caravan_hcl::config::ClientConfig,
    data_dir: &std::path::Path,
    is_server: bool,
) -> Result<ClientSettings, AgentError> {
    let flag = |name: &'static str| flags.values.get(name).cloned();
    let mut servers = flags.servers.clone();
    servers.extend(file.servers.clone().unwrap_or_default());
    if let Some(join) = &file.server_join {
        servers.extend(join.start_join.clone().unwrap_or_default());
        servers.extend(join.retry_join.clone().unwrap_or_default());
    }
    let servers: Vec<String> = servers.into_iter().map(|s| with_port(&s, RPC_PORT)).collect();
    if servers.is_empty() && !is_server {
        return Err(bad("client.servers", "a client without a server of its own needs the address of one"));
    }
    let mut meta = file.meta.clone().unwrap_or_default();
    meta.extend(flags.meta.clone());
    let dir = |field, given: Option<String>, default: &str| match given {
        Some(dir) => absolute(field, dir),
        None => Ok(data_dir.join(default)),
    };
    let dynamic_ports = (
        port("client.min_dynamic_port", file.min_dynamic_port, DYNAMIC_PORTS.0)?,
        port("client.max_dynamic_port", file.max_dynamic_port, DYNAMIC_PORTS.1)?,
    );
    if dynamic_ports.0 > dynamic_ports.1 {
        return Err(bad(
            "client.min_dynamic_port",
            format!("{} is above client.max_dynamic_port, {}", dynamic_ports.0, dynamic_ports.1),
        ));
    }
    Ok(ClientSettings {
        servers,
        state_dir: dir("client.state_dir", flag("state-dir").or(file.state_dir.clone()), "client")?,
        alloc_dir: dir("client.alloc_dir", flag("alloc-dir").or(file.alloc_dir.clone()), "alloc")?,
        host_volumes_dir: dir("client.host_volumes_dir", file.host_volumes_dir.clone(), "host_volumes")?,
        host_volume_plugin_dir: dir(
            "client.host_volume_plugin_dir",
            file.host_volume_plugin_dir.clone(),
            "host_volume_plugins",
        )?,
        dynamic_ports,
        cgroup_parent: reserved::cgroup_parent(file.cgroup_parent.as_deref())?,
        reserved: reserved::of(&file)?,
        reservable_cores: reserved::cores("client.reservable_cores", file.reservable_cores.as_deref())?,
        node_class: flag("node-class").or(file.node_class.clone()).unwrap_or_default(),
        node_pool: flag("node-pool").or(file.node_pool.clone()).unwrap_or_else(|| "default".into()),
        network_interface: flag("network-interface").or(file.network_interface.clone()),
        meta,
        file,
    })
}

fn with_port(address: &str, port: u16) -> String {
    let has_port = match address.rsplit_once(':') {
        Some((host, tail)) => (!host.contains(':') || host.ends_with(']')) && tail.parse::<u16>().is_ok(),
        None => false,
    };
    if has_port { address.to_owned() } else { format!("{address}:{port}") }
}

fn advertised(
    field: &'static str,
    given: Option<&str>,
    listen: SocketAddr,
    host: &Host,
    loopback_ok: bool,
) -> Result<String, AgentError> {
    if let Some(given) = given {
        return Ok(with_port(given, listen.port()));
    }
    let address = if listen.ip().is_unspecified() {
        host.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    } else {
        listen.ip()
    };
    if address.is_loopback() && !loopback_ok {
        return Err(bad(
            field,
            format!(
                "Defaulting advertise to localhost is unsafe: others cannot reach {address}; set {field} to an address that they can"
            ),
        ));
    }
    Ok(SocketAddr::new(address, listen.port()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            hostname: "box".into(),
            address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7))),
            cores: 4,
            temporary: PathBuf::from("/tmp/dev"),
        }
    }

    #[test]
    fn the_number_of_calls_to_a_plugin_has_bounds() {
        assert_eq!(calls_per_plugin(None).unwrap(), caravan_server::CALLS_PER_PLUGIN);
        assert_eq!(calls_per_plugin(Some(3)).unwrap(), 3);
        for bad in [0, -1, 1001] {
            assert!(calls_per_plugin(Some(bad)).unwrap_err().to_string().contains("volume_calls_per_plugin"));
        }
    }

    fn flags(args: &[&str]) -> Flags {
        crate::flags::parse(args.iter().map(|a| (*a).to_owned())).unwrap()
    }

    #[test]
    fn dev_needs_nothing() {
        let settings = resolve(&flags(&["-dev"]), AgentConfig::default(), &host()).unwrap();
        assert!(settings.server.is_some() && settings.client.is_some());
        assert_eq!(settings.http.to_string(), "127.0.0.1:4646");
        assert_eq!(settings.advertise_rpc, "127.0.0.1:4647");
        assert_eq!(settings.name, "box");
    }

    #[test]
    fn flags_win_over_files() {
        let file = AgentConfig {
            region: Some("east".into()),
            datacenter: Some("d".into()),
            data_dir: Some("/var/lib/c".into()),
            ..Default::default()
        };
        let settings = resolve(&flags(&["-server", "-region", "west"]), file, &host()).unwrap();
        assert_eq!((settings.region.as_str(), settings.datacenter.as_str()), ("west", "d"));
        assert_eq!(settings.server.unwrap().data_dir, PathBuf::from("/var/lib/c/server"));
        assert_eq!(settings.advertise_rpc, "10.0.0.7:4647");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |args: &[&str], file| resolve(&flags(args), file, &host()).unwrap_err().to_string();
        assert!(error(&[], AgentConfig::default()).contains("-dev"));
        assert!(error(&["-server"], AgentConfig::default()).contains("data_dir"));
        let file = AgentConfig { data_dir: Some("/d".into()), ..Default::default() };
        assert!(error(&["-client"], file.clone()).contains("client.servers"));
        assert!(error(&["-server", "-bind", "nowhere"], file.clone()).contains("bind_addr"));
        assert!(error(&["-server", "-bind", "127.0.0.1"], file).contains("advertise.http"));
    }

    fn files(texts: &[(&str, &str)]) -> AgentConfig {
        let sources: Vec<_> =
            texts.iter().map(|(name, text)| caravan_hcl::Source::new((*name).to_owned(), *text)).collect();
        caravan_hcl::config::parse(&sources).unwrap()
    }

    #[test]
    fn addresses_and_what_is_advertised() {
        let file = files(&[(
            "a.hcl",
            "data_dir = \"/d\"\nbind_addr = \"10.0.0.9\"\nports { http = 5646 rpc = 5647 }\n\
             addresses { http = \"127.0.0.1\" }\nadvertise { http = \"api.example\" rpc = \"203.0.113.5:99\" }\n\
             server { enabled = true min_heartbeat_ttl = \"2s\" }",
        )]);
        let settings = resolve(&flags(&[]), file, &host()).unwrap();
        assert_eq!(settings.http.to_string(), "127.0.0.1:5646");
        assert_eq!(settings.rpc.to_string(), "10.0.0.9:5647");
        assert_eq!(
            (settings.advertise_http.as_str(), settings.advertise_rpc.as_str()),
            ("api.example:5646", "203.0.113.5:99")
        );
        assert_eq!(settings.server.unwrap().min_heartbeat_ttl, Duration::from_secs(2));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, field, reason) in [
            ("ports { http = 70000 }", "ports.http", "70000 is not a port"),
            ("ports { rpc = -1 }", "ports.rpc", "-1 is not a port"),
            ("client { min_dynamic_port = 99999 }", "client.min_dynamic_port", "99999 is not a port"),
            (
                "client { max_dynamic_port = 100 }",
                "client.min_dynamic_port",
                "above client.max_dynamic_port, 100",
            ),
            ("client { state_dir = \"s\" }", "client.state_dir", "s is not an absolute path"),
            ("client { alloc_dir = \"./a\" }", "client.alloc_dir", "not an absolute path"),
            ("server { lease_ttl = \"200ms\" }", "server.lease_ttl", "too short: at least 1s"),
            ("server { lease_margin = \"0s\" }", "server.lease_margin", "too short: at least 100ms"),
            ("server { data_dir = \"x\" }", "server.data_dir", "not an absolute path"),
            ("data_dir = \"x\"", "data_dir", "not an absolute path"),
            ("server { bootstrap_expect = 3 }", "bootstrap_expect", "only one is supported yet"),
            ("log_level = \"LOUD\"", "log_level", "\"LOUD\" is not TRACE"),
            ("bind_addr = \"host.example\"", "bind_addr", "is not an IP address"),
            ("addresses { rpc = \"x\" }", "addresses.rpc", "is not an IP address"),
            (
                "acl { token_min_expiration_ttl = \"2h\" token_max_expiration_ttl = \"1h\" }",
                "acl.token_min_expiration_ttl",
                "longer than",
            ),
            ("tls { rpc = true }", "tls", "cert_file and key_file must be set"),
        ] {
            let error =
                resolve(&flags(&["-dev"]), files(&[("a.hcl", text)]), &host()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("configuration: {field}: ")), "{text}: {error}");
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn later_files_and_flags_add_to_what_is_there() {
        let file = files(&[
            ("a.hcl", "client { meta { rack = \"1\" row = \"1\" } servers = [\"s1\"] }"),
            ("b.json", r#"{"client": {"meta": {"row": "2"}, "node_class": "json"}}"#),
        ]);
        let given = flags(&["-dev", "-meta", "unit=3", "-meta", "rack=9", "-servers", "s2,s3:1"]);
        let client = resolve(&given, file, &host()).unwrap().client.unwrap();
        let meta: Vec<_> = client.meta.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(meta, [("rack", "9"), ("row", "2"), ("unit", "3")]);
        assert_eq!(client.node_class, "json");
        assert_eq!(client.servers, ["s2:4647", "s3:1", "s1:4647"]);
    }

    #[test]
    fn servers_get_the_default_port() {
        assert_eq!(with_port("10.1.1.1", 4647), "10.1.1.1:4647");
        assert_eq!(with_port("10.1.1.1:99", 4647), "10.1.1.1:99");
        assert_eq!(with_port("[::1]:99", 4647), "[::1]:99");
    }
}
