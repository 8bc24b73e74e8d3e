//! Facts about the host that settings depend on.

use crate::settings::Host;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Collects the facts about the host.
pub(crate) fn look() -> Host {
    Host {
        hostname: hostname(),
        address: default_address(),
        addresses: caravan_client::interface_addresses(),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        temporary: std::env::temp_dir().join(format!(
            "caravan-dev-{}-{}",
            std::process::id(),
            // Process ids repeat, and files that a killed agent left behind must not conflict with this directory.
            &uuid::Uuid::new_v4().simple().to_string()[..8]
        )),
        variables: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("CONSUL_HTTP_") || name.starts_with("VAULT_"))
            .collect(),
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Returns the source address that the kernel would use. Connecting a datagram socket sends nothing (udp(7)). The
/// address is reserved for documentation (RFC 5737).
fn default_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(SocketAddr::from(([192, 0, 2, 1], 9))).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then_some(address)
}
