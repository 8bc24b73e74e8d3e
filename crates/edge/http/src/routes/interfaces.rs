//! The machine's own addresses, each in all notations that readers of `agent/host` expect.

use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Describes an address with the length of its network's prefix, in bits.
pub(super) fn described(address: IpAddr, prefix: u8) -> Value {
    match address {
        IpAddr::V4(v4) => of_v4(v4, prefix.min(32)),
        IpAddr::V6(v6) => of_v6(v6, prefix.min(128)),
    }
}

/// Returns the addresses to connect to or to listen on; a network without a host has none.
fn endpoints(protocol: u8, host: Option<String>) -> (String, String, String) {
    let listen = host.unwrap_or_default();
    (
        format!("\"udp{protocol}\" \"{listen}\""),
        format!("\"tcp{protocol}\" \"{listen}\""),
        // Without a port there is no address to connect to.
        format!("\"{{}}{protocol}\" \"\""),
    )
}

fn octets(bytes: &[u8]) -> String {
    bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
}

fn of_v4(address: Ipv4Addr, prefix: u8) -> Value {
    let bits = address.to_bits();
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    let (network, broadcast) = (bits & mask, bits | !mask);
    let is_host = prefix == 32;
    let (first, last) = match prefix {
        31 | 32 => (network, broadcast),
        _ => (network + 1, broadcast - 1),
    };
    let (packet, stream, dial) = endpoints(4, is_host.then(|| format!("{address}:0")));
    json!({
        "type": "IPv4",
        "string": if is_host { address.to_string() } else { format!("{address}/{prefix}") },
        "address": address,
        "host": address,
        "port": "0",
        "mask_bits": prefix.to_string(),
        "netmask": Ipv4Addr::from_bits(mask),
        "network": Ipv4Addr::from_bits(network),
        "broadcast": Ipv4Addr::from_bits(broadcast),
        "first_usable": Ipv4Addr::from_bits(first),
        "last_usable": Ipv4Addr::from_bits(last),
        "size": (1_u64 << (32 - prefix)).to_string(),
        "uint32": bits.to_string(),
        "hex": format!("{bits:08x}"),
        "binary": format!("{bits:032b}"),
        "octets": octets(&address.octets()),
        "ListenPacket": packet,
        "ListenStream": stream,
        "DialPacket": dial.replace("{}", "udp"),
        "DialStream": dial.replace("{}", "tcp"),
    })
}

fn of_v6(address: Ipv6Addr, prefix: u8) -> Value {
    let bits = address.to_bits();
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    let (network, last) = (bits & mask, bits | !mask);
    let is_host = prefix == 128;
    // Only the size of a zero-length prefix does not fit.
    let size = 1_u128.checked_shl(128 - u32::from(prefix));
    let size = size.map_or_else(|| "340282366920938463463374607431768211456".to_owned(), |n| n.to_string());
    let (packet, stream, dial) = endpoints(6, is_host.then(|| format!("[{address}]:0")));
    json!({
        "type": "IPv6",
        "string": if is_host { address.to_string() } else { format!("{address}/{prefix}") },
        "address": address,
        "host": address,
        "port": "0",
        "mask_bits": prefix.to_string(),
        "netmask": Ipv6Addr::from_bits(mask),
        "network": Ipv6Addr::from_bits(network),
        "first_usable": Ipv6Addr::from_bits(network),
        "last_usable": Ipv6Addr::from_bits(last),
        "size": size,
        "uint128": bits.to_string(),
        "hex": format!("{bits:032x}"),
        "binary": format!("{bits:0128b}"),
        "octets": octets(&address.octets()),
        "ListenPacket": packet,
        "ListenStream": stream,
        "DialPacket": dial.replace("{}", "udp"),
        "DialStream": dial.replace("{}", "tcp"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares descriptions with recorded ones.
    #[test]
    fn addresses_are_described_as_recorded() {
        let text = include_str!("../../../../../fixtures/http/agent.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let host = all.as_array().unwrap().iter().find(|e| e["path"] == "/v1/agent/host").unwrap();
        let networks = host["body"]["Network"].as_array().unwrap();
        assert!(networks.len() > 3);
        for recorded in networks {
            let address: IpAddr = recorded["address"].as_str().unwrap().parse().unwrap();
            let prefix = recorded["mask_bits"].as_str().unwrap().parse().unwrap();
            assert_eq!(&described(address, prefix), recorded);
        }
    }

    #[test]
    fn the_edges_of_prefixes_hold() {
        for prefix in [0, 1, 31, 32] {
            assert_eq!(described(Ipv4Addr::new(10, 0, 0, 1).into(), prefix)["mask_bits"], prefix.to_string());
        }
        for prefix in [0, 1, 127, 128] {
            assert_eq!(described(Ipv6Addr::LOCALHOST.into(), prefix)["mask_bits"], prefix.to_string());
        }
    }
}
