//! The `limits` block: limits of connections. Pure.

use super::bad;
use crate::error::AgentError;
use caravan_hcl::config::AgentConfig;
use caravan_types::Nanos;
use std::time::Duration;

/// Nomad's default timeout of a handshake (docs/reference/jobspec.md, section 11.1).
const HANDSHAKE: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 100;

/// The limits of connections; zero means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The timeout of a TLS handshake of the HTTP API.
    pub(crate) https_handshake: Duration,
    /// The maximum number of HTTP connections of one address.
    pub(crate) http_connections: usize,
    /// The timeout for another agent's introduction, and before that for its TLS handshake.
    pub(crate) rpc_handshake: Duration,
    /// The maximum number of RPC connections of one address.
    pub(crate) rpc_connections: usize,
}

impl Limits {
    /// Reads the `limits` block.
    pub(super) fn from_config(file: &AgentConfig) -> Result<Self, AgentError> {
        let limits = file.limits.clone().unwrap_or_default();
        Ok(Self {
            https_handshake: time("limits.https_handshake_timeout", limits.https_handshake_timeout)?,
            http_connections: count("limits.http_max_conns_per_client", limits.http_max_conns_per_client)?,
            rpc_handshake: time("limits.rpc_handshake_timeout", limits.rpc_handshake_timeout)?,
            rpc_connections: count("limits.rpc_max_conns_per_client", limits.rpc_max_conns_per_client)?,
        })
    }
}

fn time(field: &'static str, supplied: Option<Nanos>) -> Result<Duration, AgentError> {
    match supplied {
        None => Ok(HANDSHAKE),
        Some(time) if time < Nanos(0) => {
            Err(bad(field, format!("{time} is below 0, which stands for no limit")))
        }
        Some(time) => Ok(time.to_std()),
    }
}

fn count(field: &'static str, supplied: Option<i64>) -> Result<usize, AgentError> {
    match supplied {
        None => Ok(CONNECTIONS),
        Some(most) => usize::try_from(most)
            .map_err(|_| bad(field, format!("{most} is below 0, which stands for no limit"))),
    }
}
