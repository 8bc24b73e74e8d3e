//! The function `math` of address templates: calculations with each address of a list.

use super::Address;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns an address after an operation. Arithmetic wraps at the end of the address family or of the network.
pub(super) fn calculate(operation: &str, value: &str, own: &Address) -> Result<Address, String> {
    let done = match operation.to_lowercase().as_str() {
        "address" => moved(own.ip, signed(value)?),
        "network" => in_network(own, signed(value)?)?,
        "mask" => return masked(own, value),
        other => {
            return Err(format!("the operation {other:?} is unknown: address, mask and network are known"));
        }
    };
    Ok(Address { ip: done, ..own.clone() })
}

fn signed(value: &str) -> Result<i64, String> {
    let wrong = || format!("{value:?} is not a number with its sign, such as \"+1\" or \"-1\"");
    if !value.starts_with(['+', '-']) {
        return Err(wrong());
    }
    value.parse().map_err(|_| wrong())
}

fn moved(ip: IpAddr, by: i64) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            // The remainder of a division by 2^32 is the same before and after the addition.
            let sum = (i64::from(u32::from(ip)) + by % (1 << 32)).rem_euclid(1 << 32);
            IpAddr::V4(Ipv4Addr::from(u32::try_from(sum).unwrap_or_default()))
        }
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip).wrapping_add_signed(i128::from(by)))),
    }
}

/// Returns the address at a position of the network. A negative value counts from the end: -1 is the last address.
fn in_network(own: &Address, by: i64) -> Result<IpAddr, String> {
    let network = IpNet::new(own.ip, own.prefix).map_err(|error| error.to_string())?;
    let host_bits = u32::from(network.max_prefix_len() - network.prefix_len());
    let within = match host_bits {
        // A positive value is smaller than 2^63, so it stays in the network.
        63.. if by >= 0 => i128::from(by),
        128 => i128::from(by),
        bits if bits < 127 => i128::from(by).rem_euclid(1 << bits),
        _ => return Ok(moved(network.broadcast(), by + 1)),
    };
    Ok(match network.network() {
        IpAddr::V4(first) => moved(IpAddr::V4(first), i64::try_from(within).unwrap_or_default()),
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first).wrapping_add_signed(within))),
    })
}

/// Applies a network mask to an address. The result has the larger one of both networks.
fn masked(own: &Address, value: &str) -> Result<Address, String> {
    let most = if own.ip.is_ipv4() { 32 } else { 128 };
    let bits: u8 = value.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| {
        format!("{value:?} is not the length of a network mask: 0 to {most} are possible for {}", own.ip)
    })?;
    let network = IpNet::new(own.ip, bits).map_err(|error| error.to_string())?;
    Ok(Address { ip: network.network(), prefix: bits.min(own.prefix), ..own.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn result(operation: &str, value: &str, ip: &str, prefix: u8) -> Result<String, String> {
        let own = Address {
            device: String::new(),
            ip: ip.parse().unwrap(),
            prefix,
            flags: Vec::new(),
            is_default: false,
        };
        calculate(operation, value, &own).map(|own| format!("{}/{}", own.ip, own.prefix))
    }

    #[test]
    fn addresses_move_and_wrap() {
        for (operation, value, ip, prefix, expected) in [
            ("address", "+1", "127.255.255.255", 8, "128.0.0.0/8"),
            ("address", "+1", "255.255.255.255", 24, "0.0.0.0/24"),
            ("address", "-8", "10.0.0.7", 24, "9.255.255.255/24"),
            ("address", "+256", "10.0.0.7", 24, "10.0.1.7/24"),
            ("address", "+1", "2a00::ffff", 64, "2a00::1:0/64"),
            ("address", "-1", "::", 64, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/64"),
            ("network", "+2", "10.1.7.9", 16, "10.1.0.2/16"),
            ("network", "-1", "127.0.0.1", 8, "127.255.255.255/8"),
            ("network", "+256", "10.0.0.7", 24, "10.0.0.0/24"),
            ("network", "+1", "10.0.0.7", 32, "10.0.0.7/32"),
            ("network", "-1", "10.0.0.7", 0, "255.255.255.255/0"),
            ("network", "+3", "2a00::5", 64, "2a00::3/64"),
            ("network", "-1", "2a00::5", 64, "2a00::ffff:ffff:ffff:ffff/64"),
            ("network", "-2", "2a00::5", 1, "7fff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/1"),
            ("network", "-1", "2a00::5", 0, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/0"),
            ("mask", "16", "192.168.10.20", 24, "192.168.0.0/16"),
            ("mask", "28", "192.168.10.20", 24, "192.168.10.16/24"),
            ("MASK", "32", "2a00:1:2::5", 64, "2a00:1::/32"),
        ] {
            assert_eq!(
                result(operation, value, ip, prefix).as_deref(),
                Ok(expected),
                "{operation} {value} {ip}"
            );
        }
        for (operation, value, needle) in [
            ("address", "1", "with its sign"),
            ("network", "+x", "with its sign"),
            ("mask", "33", "0 to 32"),
            ("mask", "+8x", "0 to 32"),
            ("square", "+1", "\"square\" is unknown"),
        ] {
            let error = result(operation, value, "10.0.0.7", 24).unwrap_err();
            assert!(error.contains(needle), "{operation} {value}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_result_stays_in_its_network(ip: [u8; 16], prefix in 0_u8..=128, by: i64) {
            let own = Address {
                device: String::new(), ip: IpAddr::from(ip), prefix, flags: Vec::new(), is_default: false,
            };
            let done = calculate("network", &format!("{by:+}"), &own).unwrap();
            prop_assert!(IpNet::new(own.ip, prefix).unwrap().contains(&done.ip), "{own:?} {by} {done:?}");
            let there = calculate("address", &format!("{by:+}"), &own).unwrap();
            if by != i64::MIN {
                prop_assert_eq!(calculate("address", &format!("{:+}", -by), &there).unwrap(), own);
            }
        }
    }
}
