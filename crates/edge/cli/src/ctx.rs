//! The context of every command: the agent, the outputs and the clock.

use crate::error::CliError;
use crate::format::Clock;
use crate::local::Local;
use crate::out::Out;
use caravan_sdk::{Client, Config, QueryOptions, Token};
use std::path::PathBuf;

/// Flags of every command that connects to an agent. They override the environment.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct General {
    /// Address of the agent, http://host:port, https://host:port or unix:///path [env: CARAVAN_ADDR, NOMAD_ADDR]
    #[arg(long, global = true, value_name = "ADDR", help_heading = "General options")]
    address: Option<String>,
    /// Region that the request is for [env: CARAVAN_REGION, NOMAD_REGION]
    #[arg(long, global = true, value_name = "REGION", help_heading = "General options")]
    region: Option<String>,
    /// Namespace; * for all namespaces in lists [env: CARAVAN_NAMESPACE, NOMAD_NAMESPACE]
    #[arg(long, global = true, value_name = "NAMESPACE", help_heading = "General options")]
    namespace: Option<String>,
    /// ACL token [env: CARAVAN_TOKEN, NOMAD_TOKEN]
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        help_heading = "General options",
        hide_env_values = true
    )]
    token: Option<String>,
    /// CA certificate file that verifies the agent's https certificate [env: CARAVAN_CACERT, NOMAD_CACERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = "General options")]
    ca_cert: Option<PathBuf>,
    /// Directory of CA certificate files, used without -ca-cert [env: CARAVAN_CAPATH, NOMAD_CAPATH]
    #[arg(long, global = true, value_name = "DIR", help_heading = "General options")]
    ca_path: Option<PathBuf>,
    /// Client certificate for the TLS connection to the agent [env: CARAVAN_CLIENT_CERT, NOMAD_CLIENT_CERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = "General options")]
    client_cert: Option<PathBuf>,
    /// Key of the client certificate [env: CARAVAN_CLIENT_KEY, NOMAD_CLIENT_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "General options")]
    client_key: Option<PathBuf>,
    /// Name that the agent's certificate must have [env: CARAVAN_TLS_SERVER_NAME, NOMAD_TLS_SERVER_NAME]
    #[arg(long, global = true, value_name = "NAME", help_heading = "General options")]
    tls_server_name: Option<String>,
    /// Do not verify the agent's certificate [env: CARAVAN_SKIP_VERIFY, NOMAD_SKIP_VERIFY]
    #[arg(long, global = true, help_heading = "General options")]
    tls_skip_verify: bool,
    /// Disable colours in the output
    #[arg(long, global = true, help_heading = "General options")]
    no_color: bool,
    /// Colour the output even if it is not a terminal
    #[arg(long, global = true, help_heading = "General options")]
    force_color: bool,
}

/// The agent that a command queries, and the outputs for its results.
#[derive(Clone, Debug)]
pub(crate) struct Ctx {
    /// The client of the agent's HTTP API.
    pub(crate) client: Client,
    /// The outputs of the command.
    pub(crate) out: Out,
    /// Readers of an agent's files, which the `caravan` binary supplies.
    pub(crate) local: Local,
}

impl Ctx {
    /// Creates the context from the flags and the environment.
    pub(crate) fn new(general: &General, out: &Out, local: Local) -> Result<Self, CliError> {
        let reported = |error: caravan_sdk::Error| CliError::failed(error.to_string());
        // An invalid address in the environment does not matter if a flag overrides it.
        let lookup = |name: &str| {
            if name.ends_with("_ADDR") { general.address.clone() } else { None }
                .or_else(|| std::env::var(name).ok())
        };
        let mut config = Config::from_vars(lookup).map_err(reported)?;
        if general.region.is_some() {
            config.region.clone_from(&general.region);
        }
        if general.namespace.is_some() {
            config.namespace.clone_from(&general.namespace);
        }
        if let Some(token) = &general.token {
            config.token = Some(Token::new(token));
        }
        let over = |to: &mut Option<PathBuf>, from: &Option<PathBuf>| {
            if from.is_some() {
                to.clone_from(from);
            }
        };
        over(&mut config.tls.ca_file, &general.ca_cert);
        over(&mut config.tls.ca_path, &general.ca_path);
        over(&mut config.tls.cert_file, &general.client_cert);
        over(&mut config.tls.key_file, &general.client_key);
        if general.tls_server_name.is_some() {
            config.tls.server_name.clone_from(&general.tls_server_name);
        }
        config.tls.skip_verify |= general.tls_skip_verify;
        let out = out.coloured(general.no_color, general.force_color);
        Ok(Self { client: Client::new(config), out, local })
    }

    /// Returns the current time and the zone.
    pub(crate) fn clock(&self) -> Clock {
        Clock::read()
    }

    /// Returns a query without options.
    pub(crate) fn query(&self) -> QueryOptions {
        QueryOptions::new()
    }

    /// Returns whether the request is for objects of all namespaces.
    pub(crate) fn all_namespaces(&self) -> bool {
        self.client.namespace() == "*"
    }
}
