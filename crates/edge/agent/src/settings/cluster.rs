//! The settings of a server as a part of a cluster.

use super::net::{SERF_PORT, advertised, ip, port, with_port};
use super::{Host, bad, non_empty};
use crate::error::AgentError;
use caravan_hcl::config::{AgentConfig, ServerConfig, ServerJoin};
use caravan_members::{JoinEntry, Key, RetryPlan};
use caravan_server::ReplicationConfig;
use caravan_types::Nanos;
use caravan_types::acl::Secret;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The largest accepted number of founders.
const MAX_EXPECT: i64 = 100;
/// The version of the Raft protocol that the reference has had since 1.4.
const RAFT_PROTOCOL: i64 = 3;
/// The default of `raft_snapshot_threshold`.
const SNAPSHOT_THRESHOLD: u64 = 8192;
/// The default of `raft_trailing_logs`.
const TRAILING_LOGS: u64 = 10_240;

/// The settings of a server as a part of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSettings {
    /// The number of servers that found the cluster: 0 waits for an admission.
    pub(crate) expect: usize,
    /// Whether the configuration names the number.
    pub(crate) is_expect_configured: bool,
    pub(crate) serf: SocketAddr,
    /// Whether the configuration names the gossip port.
    pub(crate) is_serf_configured: bool,
    /// The advertised gossip address, `host:port`.
    pub(crate) advertise_serf: String,
    pub(crate) encrypt: Option<Key>,
    pub(crate) accept_plain: bool,
    pub(crate) rejoin_after_leave: bool,
    pub(crate) start_join: Vec<JoinEntry>,
    pub(crate) retry_join: Vec<JoinEntry>,
    pub(crate) retry: RetryPlan,
    pub(crate) raft_multiplier: u32,
    pub(crate) snapshot_threshold: u64,
    pub(crate) trailing_logs: u64,
    pub(crate) non_voting: bool,
    pub(crate) redundancy_zone: Option<String>,
    pub(crate) upgrade_version: Option<String>,
    pub(crate) replication: ReplicationConfig,
}

impl ClusterSettings {
    /// Reads the settings from the `server` block and the addresses of the agent.
    pub(super) fn from_config(
        file: &AgentConfig,
        server: &ServerConfig,
        bind: IpAddr,
        host: &Host,
        dev: bool,
        region: &str,
    ) -> Result<Self, AgentError> {
        let addresses = file.addresses.clone().unwrap_or_default();
        let ports = file.ports.clone().unwrap_or_default();
        let advertise = file.advertise.clone().unwrap_or_default();
        if let Some(version) = server.raft_protocol.filter(|version| ![0, RAFT_PROTOCOL].contains(version)) {
            let reason = format!("{version} is not supported: the only version is {RAFT_PROTOCOL}");
            return Err(bad("server.raft_protocol", reason));
        }
        let address = addresses.serf.as_deref().map_or(Ok(bind), |text| ip("addresses.serf", text))?;
        let serf = SocketAddr::new(address, port("ports.serf", ports.serf, SERF_PORT)?);
        let join = joins(server)?;
        let (start_join, retry_join) = (
            entries("server_join.start_join", join.start_join.as_deref())?,
            entries("server_join.retry_join", join.retry_join.as_deref())?,
        );
        let joins_others = !start_join.is_empty() || !retry_join.is_empty();
        Ok(Self {
            expect: expect(server.bootstrap_expect, joins_others)?,
            is_expect_configured: server.bootstrap_expect.is_some(),
            serf,
            is_serf_configured: ports.serf.is_some(),
            advertise_serf: match advertise.serf.as_deref() {
                Some(address) => with_port(address, serf.port()),
                None => match (advertise.rpc.as_deref(), has_no_outside_address(serf.ip())) {
                    // Agents that reach the RPC port of this address usually reach its gossip port too.
                    (Some(rpc), true) => with_port(host_of(rpc), serf.port()),
                    _ => advertised("advertise.serf", None, serf, host, dev)?,
                },
            },
            encrypt: key(server)?,
            accept_plain: server.encrypt_accept_plain.unwrap_or(false),
            rejoin_after_leave: server.rejoin_after_leave.unwrap_or(false),
            start_join,
            retry_join,
            retry: retry(&join, ["server_join.retry_max", "server_join.retry_interval"])?,
            raft_multiplier: multiplier(server.raft_multiplier)?,
            snapshot_threshold: at_least_one(
                "server.raft_snapshot_threshold",
                server.raft_snapshot_threshold,
                SNAPSHOT_THRESHOLD,
            )?,
            trailing_logs: at_least_one(
                "server.raft_trailing_logs",
                server.raft_trailing_logs,
                TRAILING_LOGS,
            )?,
            non_voting: server.non_voting_server.unwrap_or(false),
            redundancy_zone: non_empty(&server.redundancy_zone),
            upgrade_version: non_empty(&server.upgrade_version),
            replication: ReplicationConfig {
                authoritative: authoritative(server, region)?,
                token: replication_token(file),
            },
        })
    }

    /// Returns the warnings about the settings.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.expect > 1 && self.expect.is_multiple_of(2) {
            warnings.push(format!(
                "bootstrap_expect = {}: an even number of servers tolerates no more failures than one server less",
                self.expect
            ));
        }
        if !self.is_expect_configured && self.expect == 0 {
            warnings.push(
                "bootstrap_expect is not set and the configuration names servers to join: this server founds no cluster \
                 and waits to be admitted"
                    .to_owned(),
            );
        }
        if self.accept_plain {
            warnings.push(
                "encrypt_accept_plain is set: gossip without encryption is accepted; remove the setting once all servers \
                 encrypt"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// Returns the authoritative region; by default the server's own.
fn authoritative(server: &ServerConfig, region: &str) -> Result<String, AgentError> {
    match non_empty(&server.authoritative_region) {
        Some(name) if name.contains('\0') => {
            Err(bad("server.authoritative_region", "the name of a region has no NUL"))
        }
        Some(name) => Ok(name),
        None => Ok(region.to_owned()),
    }
}

fn replication_token(file: &AgentConfig) -> Secret {
    let token = file.acl.as_ref().and_then(|acl| acl.replication_token.as_ref());
    token.map(|token| Secret::new(token.expose())).unwrap_or_default()
}

/// Returns whether a listening address does not identify this machine to other machines.
fn has_no_outside_address(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// Returns the part of an address before the port.
fn host_of(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) => {
            host
        }
        _ => address,
    }
}

/// Reads `bootstrap_expect`. A server that names servers to join would otherwise found a second cluster next to
/// theirs.
fn expect(configured: Option<i64>, joins_others: bool) -> Result<usize, AgentError> {
    match configured {
        None => Ok(usize::from(!joins_others)),
        Some(number) => match usize::try_from(number) {
            Ok(count) if number <= MAX_EXPECT => Ok(count),
            _ => Err(bad("server.bootstrap_expect", format!("{number} is not between 0 and {MAX_EXPECT}"))),
        },
    }
}

/// Returns the settings for joining, from `server_join` or from their deprecated names in `server`.
fn joins(server: &ServerConfig) -> Result<ServerJoin, AgentError> {
    let old = ServerJoin {
        start_join: server.start_join.clone(),
        retry_join: server.retry_join.clone(),
        retry_max: server.retry_max,
        retry_interval: server.retry_interval,
    };
    match &server.server_join {
        None => Ok(old),
        Some(join) if old == ServerJoin::default() => Ok(join.clone()),
        Some(_) => Err(bad(
            "server.server_join",
            "start_join, retry_join, retry_max and retry_interval are set in server as well; set them here only",
        )),
    }
}

pub(super) fn entries(field: &'static str, texts: Option<&[String]>) -> Result<Vec<JoinEntry>, AgentError> {
    let parse = |text: &String| JoinEntry::parse(text).map_err(|error| bad(field, error.to_string()));
    texts.unwrap_or_default().iter().map(parse).collect()
}

fn key(server: &ServerConfig) -> Result<Option<Key>, AgentError> {
    let Some(text) =
        server.encrypt.as_ref().map(caravan_hcl::config::Hidden::expose).filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    Key::parse(text).map(Some).map_err(|error| bad("server.encrypt", error.to_string()))
}

/// Reads the plan by which joining is retried. The fields are the names of `retry_max` and `retry_interval` in
/// errors.
pub(super) fn retry(join: &ServerJoin, fields: [&'static str; 2]) -> Result<RetryPlan, AgentError> {
    let default = RetryPlan::default();
    let max = match join.retry_max.unwrap_or(0) {
        max @ 0.. => u32::try_from(max).unwrap_or(u32::MAX),
        max => return Err(bad(fields[0], format!("{max} is below 0"))),
    };
    let interval = match join.retry_interval {
        None | Some(Nanos::ZERO) => default.interval,
        Some(interval) if interval > Nanos::ZERO => interval.to_std().max(Duration::from_millis(10)),
        Some(interval) => return Err(bad(fields[1], format!("{interval} is below 0"))),
    };
    Ok(RetryPlan { interval, max, ..default })
}

fn multiplier(configured: Option<i64>) -> Result<u32, AgentError> {
    match configured {
        None | Some(0) => Ok(1),
        Some(factor) => match u32::try_from(factor) {
            Ok(factor @ 1..=10) => Ok(factor),
            _ => Err(bad("server.raft_multiplier", format!("{factor} is not between 1 and 10"))),
        },
    }
}

fn at_least_one(field: &'static str, configured: Option<i64>, default: u64) -> Result<u64, AgentError> {
    match configured {
        None | Some(0) => Ok(default),
        Some(number) => u64::try_from(number).map_err(|_| bad(field, format!("{number} is below 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_joins_others_founds_nothing_by_default() {
        assert_eq!(expect(None, false).unwrap(), 1);
        assert_eq!(expect(None, true).unwrap(), 0);
        assert_eq!(expect(Some(0), false).unwrap(), 0);
        assert_eq!(expect(Some(3), true).unwrap(), 3);
        assert!(expect(Some(-1), false).unwrap_err().to_string().contains("-1 is not between 0 and 100"));
    }

    #[test]
    fn the_host_of_an_address_is_found() {
        for (address, host) in
            [("a", "a"), ("a:1", "a"), ("10.0.0.1:4647", "10.0.0.1"), ("[::1]:4647", "[::1]"), ("::1", "::1")]
        {
            assert_eq!(host_of(address), host);
        }
    }
}
