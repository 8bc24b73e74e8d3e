//! Ports and addresses on which the agent listens, and the addresses that it advertises.

use super::{Host, bad};
use crate::error::AgentError;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub(super) const HTTP_PORT: u16 = 4646;
pub(crate) const RPC_PORT: u16 = 4647;
pub(super) const SERF_PORT: u16 = 4648;

pub(super) fn port(field: &'static str, supplied: Option<i64>, default: u16) -> Result<u16, AgentError> {
    match supplied {
        None => Ok(default),
        Some(n) => u16::try_from(n).map_err(|_| bad(field, format!("{n} is not a port (0 to 65535)"))),
    }
}

pub(super) fn ip(field: &'static str, text: &str) -> Result<IpAddr, AgentError> {
    text.parse().map_err(|_| bad(field, format!("{text:?} is not an IP address")))
}

pub(super) fn with_port(address: &str, port: u16) -> String {
    if let Ok(IpAddr::V6(ip)) = address.parse() {
        return format!("[{ip}]:{port}");
    }
    let has_port = match address.rsplit_once(':') {
        Some((host, tail)) => (!host.contains(':') || host.ends_with(']')) && tail.parse::<u16>().is_ok(),
        None => false,
    };
    if has_port { address.to_owned() } else { format!("{address}:{port}") }
}

pub(super) fn advertised(
    field: &'static str,
    supplied: Option<&str>,
    listen: SocketAddr,
    host: &Host,
    loopback_ok: bool,
) -> Result<String, AgentError> {
    if let Some(supplied) = supplied {
        return Ok(with_port(supplied, listen.port()));
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
