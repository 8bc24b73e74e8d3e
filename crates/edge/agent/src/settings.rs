//! The settings of an agent. The command line overrides configuration files, which override defaults. Pure.

mod client;
mod cluster;
mod limits;
mod neighbours;
mod net;
mod server;
mod templates;
#[cfg(test)]
mod tests;
mod ui;

pub(crate) use client::ClientSettings;
pub(crate) use cluster::ClusterSettings;
pub(crate) use limits::Limits;
pub(crate) use server::ServerSettings;

use crate::error::AgentError;
use crate::flags::Flags;
use crate::log_file::LogFileSettings;
use crate::tls::TlsSettings;
use caravan_base::Build;
use caravan_client::Neighbours;
use caravan_hcl::config::AgentConfig;
use caravan_server::{AclConfig, FEATURE_LEVEL};
use caravan_templates::sockaddr::Address;
pub(crate) use net::RPC_PORT;
use net::{HTTP_PORT, advertised, ip, port};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Facts about the host that defaults depend on.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The host name of the kernel.
    pub(crate) hostname: String,
    /// The address of the default route's interface, if there is one.
    pub(crate) address: Option<IpAddr>,
    /// The addresses of its interfaces, for templates.
    pub(crate) addresses: Vec<Address>,
    /// The number of CPUs.
    pub(crate) cores: usize,
    /// The temporary data directory of a `-dev` agent.
    pub(crate) temporary: PathBuf,
    /// The environment variables that configure Consul and Vault.
    pub(crate) variables: BTreeMap<String, String>,
}

/// The resolved settings of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The build of the program. The caller of `resolve` sets it.
    pub(crate) build: Build,
    /// The feature level of the program. The caller of `resolve` sets it.
    pub(crate) level: u32,
    pub(crate) dev: bool,
    pub(crate) region: String,
    pub(crate) datacenter: String,
    pub(crate) name: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) log_level: String,
    pub(crate) log_json: bool,
    pub(crate) log_file: Option<LogFileSettings>,
    /// Whether profiles of the process are available without access control.
    pub(crate) enable_debug: bool,
    pub(crate) http: SocketAddr,
    pub(crate) rpc: SocketAddr,
    pub(crate) advertise_http: String,
    pub(crate) advertise_rpc: String,
    pub(crate) server: Option<ServerSettings>,
    pub(crate) client: Option<ClientSettings>,
    pub(crate) transport: caravan_http::Transport,
    pub(crate) metrics: caravan_http::MetricsConfig,
    /// The web page.
    pub(crate) ui: caravan_ui::Settings,
    pub(crate) tls: TlsSettings,
    /// The `plugin` blocks by label.
    pub(crate) plugins: BTreeMap<String, caravan_plugins::Block>,
    /// The directory of external plugins; `None` for a development agent without `plugin_dir`.
    pub(crate) plugin_dir: Option<PluginDir>,
    pub(crate) files: Vec<String>,
    pub(crate) acl: AclConfig,
    pub(crate) limits: Limits,
    /// The signals after which a server leaves its cluster for good.
    pub(crate) leaves: Leaves,
    /// The Consul and Vault agents that the node fingerprints.
    pub(crate) neighbours: Neighbours,
    /// The parsed configuration files, to compare with a later reload.
    pub(crate) file: Arc<AgentConfig>,
}

impl Settings {
    /// Records the places of the `plugin` blocks: the schema of a plugin is available only after the plugin has
    /// started.
    pub(crate) fn place_plugins(&mut self, sources: &[caravan_hcl::Source]) {
        for (label, places) in caravan_hcl::config::plugin_places(sources) {
            if let Some(block) = self.plugins.get_mut(&label) {
                block.places = places;
            }
        }
    }
}

/// The signals after which a server leaves its cluster for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaves {
    /// `leave_on_interrupt`: SIGINT.
    pub(crate) on_interrupt: bool,
    /// `leave_on_terminate`: SIGTERM.
    pub(crate) on_terminate: bool,
}

/// The directory of external plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginDir {
    pub(crate) path: PathBuf,
    /// Whether the configuration names the directory. If not, the directory need not exist.
    pub(crate) is_configured: bool,
}

pub(crate) fn bad(field: &'static str, reason: impl Into<String>) -> AgentError {
    AgentError::Setting { field, reason: reason.into() }
}

/// Returns an absolute path, which does not depend on the agent's working directory.
fn absolute(field: &'static str, dir: String) -> Result<PathBuf, AgentError> {
    let dir = PathBuf::from(dir);
    if dir.is_absolute() {
        Ok(dir)
    } else {
        Err(bad(field, format!("{} is not an absolute path", dir.display())))
    }
}

/// Returns a text of a file; an empty one counts as absent.
fn non_empty(word: &Option<String>) -> Option<String> {
    word.clone().filter(|word| !word.is_empty())
}

/// Resolves defaults, files and flags.
pub(crate) fn resolve(flags: &Flags, file: AgentConfig, host: &Host) -> Result<Settings, AgentError> {
    let mut file = flags.over(file)?;
    templates::expand(&mut file, &host.addresses)?;
    let dev = flags.dev;
    let data_dir = file.data_dir.clone().map(|dir| absolute("data_dir", dir)).transpose()?;
    let server_file = file.server.clone().unwrap_or_default();
    let client_file = file.client.clone().unwrap_or_default();
    let is_server = dev || server_file.enabled.unwrap_or(false);
    let is_client = dev || client_file.enabled.unwrap_or(false);
    if !is_server && !is_client {
        return Err(bad(
            "server, client",
            "the agent must be a server, a client or both: enable one, or use -dev",
        ));
    }
    let data_dir = match (dev, data_dir) {
        // As in Nomad, -dev keeps nothing that a later agent would find.
        (true, _) => host.temporary.clone(),
        (false, Some(dir)) => dir,
        (false, None) => return Err(bad("data_dir", "it must be set, unless -dev is given")),
    };
    let log_level = file.log_level.clone().unwrap_or_else(|| if dev { "DEBUG" } else { "INFO" }.into());
    if !crate::logging::is_level(&log_level) {
        return Err(bad("log_level", format!("{log_level:?} is not TRACE, DEBUG, INFO, WARN, ERROR or OFF")));
    }
    let default_bind = if dev { "127.0.0.1" } else { "0.0.0.0" };
    let bind = file.bind_addr.clone().unwrap_or_else(|| default_bind.into());
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
    let server = match is_server {
        true => {
            let region = non_empty(&file.region).unwrap_or_else(|| "global".into());
            let cluster = ClusterSettings::from_config(&file, &server_file, bind, host, dev, &region)?;
            Some(ServerSettings::from_config(&server_file, &data_dir, host, cluster)?)
        }
        false => None,
    };
    let client = if is_client { Some(client::client(client_file, &data_dir, is_server)?) } else { None };
    let limits = Limits::from_config(&file)?;
    let plugins = file
        .plugin
        .clone()
        .unwrap_or_default()
        .into_iter()
        .map(|(name, plugin)| {
            let config = plugin.config.map(|raw| raw.0).unwrap_or_default();
            (
                name,
                caravan_plugins::Block {
                    args: plugin.args.unwrap_or_default(),
                    config,
                    ..Default::default()
                },
            )
        })
        .collect();
    let plugin_dir = match non_empty(&file.plugin_dir) {
        Some(dir) if !Path::new(&dir).is_absolute() => {
            return Err(bad("plugin_dir", format!("{dir:?} is not an absolute path")));
        }
        Some(dir) => Some(PluginDir { path: dir.into(), is_configured: true }),
        None if dev => None,
        None => Some(PluginDir { path: data_dir.join("plugins"), is_configured: false }),
    };
    Ok(Settings {
        build: Build { version: env!("CARGO_PKG_VERSION"), commit: "", date: "" },
        level: FEATURE_LEVEL,
        dev,
        region: non_empty(&file.region).unwrap_or_else(|| "global".into()),
        datacenter: datacenter(&file)?,
        name: non_empty(&file.name).unwrap_or_else(|| host.hostname.clone()),
        data_dir,
        log_level,
        log_file: LogFileSettings::from_config(&file)?,
        log_json: file.log_json.unwrap_or(false),
        enable_debug: file.enable_debug.unwrap_or(dev),
        http,
        rpc,
        advertise_http,
        advertise_rpc,
        server,
        client,
        transport: transport(&file, limits)?,
        metrics: metrics(&file, dev),
        ui: ui::from_config(&file)?,
        tls: TlsSettings::from_config(&file)?,
        plugins,
        plugin_dir,
        files: flags.config.clone(),
        acl: acl(file.acl.as_ref())?,
        limits,
        leaves: Leaves {
            on_interrupt: file.leave_on_interrupt.unwrap_or(false),
            on_terminate: file.leave_on_terminate.unwrap_or(false),
        },
        neighbours: neighbours::from_config(&file, &host.variables)?,
        file: Arc::new(file),
    })
}

/// Reads the name of the datacenter, without characters that jobs use as wildcards.
fn datacenter(file: &AgentConfig) -> Result<String, AgentError> {
    match non_empty(&file.datacenter) {
        Some(name) if name.contains(['\0', '*']) => {
            Err(bad("datacenter", format!("{name:?} contains NUL or *, which is the wildcard of jobs")))
        }
        Some(name) => Ok(name),
        None => Ok("dc1".into()),
    }
}

/// Reads the metrics settings; development mode enables all of them, as in Nomad.
fn metrics(file: &AgentConfig, dev: bool) -> caravan_http::MetricsConfig {
    let reported = file.telemetry.clone().unwrap_or_default();
    caravan_http::MetricsConfig {
        allocations: reported.publish_allocation_metrics.unwrap_or(dev),
        node: reported.publish_node_metrics.unwrap_or(dev),
        prometheus: reported.prometheus_metrics.unwrap_or(dev),
    }
}

/// Reads the settings of the API's listener.
fn transport(file: &AgentConfig, limits: Limits) -> Result<caravan_http::Transport, AgentError> {
    let headers = file.http_api_response_headers.iter().flatten();
    Ok(caravan_http::Transport {
        connections_per_client: limits.http_connections,
        headers: caravan_http::Transport::read_headers(headers)
            .map_err(|reason| bad("http_api_response_headers", reason))?,
    })
}

/// Reads the `acl` block.
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
