//! Functions for IP networks.

use super::{Function, P, Result, blame, f, text, v, whole};
use crate::value::{Type, Value};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of bits by which one call may extend a prefix, as in Nomad.
const MAX_BITS: u8 = 32;

pub(super) const TABLE: &[Function] = &[
    f("cidrhost", &[("prefix", P::Str), ("hostnum", P::Num)], |_, a| {
        let number = whole(&a[1])?;
        host(network(&text(&a[0]))?, number).map(|ip| Value::str(ip.to_string()))
    }),
    f("cidrnetmask", &[("prefix", P::Str)], |_, a| {
        Ok(Value::str(network(&text(&a[0]))?.netmask().to_string()))
    }),
    f("cidrsubnet", &[("prefix", P::Str), ("newbits", P::Num), ("netnum", P::Num)], |_, a| {
        let (bits, number) = (whole(&a[1])?, whole(&a[2])?);
        subnet(network(&text(&a[0]))?, bits, number).map(|net| Value::str(shown(net)))
    }),
    v("cidrsubnets", &[("prefix", P::Str)], ("newbits", P::Num), |_, a| subnets(&a)),
];

/// Parses an address in CIDR notation and returns its network.
fn network(s: &str) -> Result<IpNet> {
    let wrong = || format!("invalid CIDR expression: {s}");
    let (address, length) = s.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length = Some(length).filter(|l| l.bytes().all(|b| b.is_ascii_digit()));
    let length = length.and_then(|l| l.parse().ok()).ok_or_else(wrong)?;
    IpNet::new(address, length).map(|net| net.trunc()).map_err(|_| wrong().into())
}

/// Returns the first address as a number.
fn first(net: IpNet) -> u128 {
    match net.network() {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// Returns the number of addresses, or `None` for the whole IPv6 space.
fn size(net: IpNet) -> Option<u128> {
    1_u128.checked_shl(u32::from(net.max_prefix_len() - net.prefix_len()))
}

/// Returns the address with this number, in the IP version of `net`.
fn address(net: IpNet, number: u128) -> IpAddr {
    match net {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

/// Formats a network in CIDR notation; an IPv4-mapped network is shown as IPv4.
fn shown(net: IpNet) -> String {
    match net {
        IpNet::V6(six)
            if six.prefix_len() >= 96
                && let Some(four) = six.network().to_ipv4_mapped() =>
        {
            format!("{four}/{}", six.prefix_len() - 96)
        }
        _ => net.to_string(),
    }
}

/// Returns an address of the network by its number. Negative numbers count from the end.
fn host(net: IpNet, number: i64) -> Result<IpAddr> {
    let offset = u128::from(number.unsigned_abs());
    let size = size(net);
    if size.is_some_and(|s| if number < 0 { offset > s } else { offset >= s }) {
        let length = net.prefix_len();
        return Err(format!("prefix of {length} does not accommodate a host numbered {number}").into());
    }
    let offset = if number < 0 { size.unwrap_or(0).wrapping_sub(offset) } else { offset };
    Ok(address(net, first(net).wrapping_add(offset)))
}

fn subnet(net: IpNet, bits: i64, number: i64) -> Result<IpNet> {
    let length = net.prefix_len();
    let bits = u8::try_from(bits).map_err(|_| format!("a prefix cannot be extended by {bits} bits"))?;
    if bits > MAX_BITS {
        return Err(format!("may not extend prefix by more than {MAX_BITS} bits").into());
    }
    let longer = length + bits;
    if longer > net.max_prefix_len() {
        return Err(format!("insufficient address space to extend prefix of {length} by {bits}").into());
    }
    let number = u128::try_from(number).ok().filter(|n| *n < 1 << bits).ok_or_else(|| {
        format!("prefix extension of {bits} does not accommodate a subnet numbered {number}")
    })?;
    let shifted = number.checked_shl(u32::from(net.max_prefix_len() - longer)).unwrap_or(0);
    IpNet::new(address(net, first(net) | shifted), longer).map_err(|e| e.to_string().into())
}

/// Returns consecutive networks, each aligned to its own size.
fn subnets(a: &[Value]) -> Result<Value> {
    let net = network(&text(&a[0])).map_err(|e| blame(0, e.text))?;
    let end = first(net).wrapping_add(size(net).unwrap_or(0).wrapping_sub(1));
    // The address after the last network; `None` after the end of the address space.
    let mut next = Some(first(net));
    let mut out = Vec::new();
    for (i, bits) in a.iter().enumerate().skip(1) {
        let bits = whole(bits).map_err(|e| blame(i, e.text))?;
        if bits < 1 {
            return Err(blame(i, "must extend prefix by at least one bit"));
        }
        let bits = u8::try_from(bits).ok().filter(|b| *b <= MAX_BITS);
        let too_many = || blame(i, format!("may not extend prefix by more than {MAX_BITS} bits"));
        let length = net.prefix_len() + bits.ok_or_else(too_many)?;
        if length > net.max_prefix_len() {
            let why =
                format!("would extend prefix to {length} bits, which is too long for this version of IP");
            return Err(blame(i, why));
        }
        // The prefix is longer than that of the network, so the size fits.
        let size = 1_u128 << (net.max_prefix_len() - length);
        let start = next
            .and_then(|n| n.checked_add(size - 1))
            .map(|n| n & !(size - 1))
            .filter(|start| *start <= end && start.saturating_add(size - 1) <= end);
        let full = || {
            let why =
                format!("not enough remaining address space for a subnet with a prefix of {length} bits");
            blame(i, why)
        };
        let start = start.ok_or_else(full)?;
        let found = IpNet::new(address(net, start), length).map_err(|e| e.to_string())?;
        out.push(Value::str(shown(found)));
        next = start.checked_add(size);
    }
    Ok(Value::list(Type::Str, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &[Value]) -> std::result::Result<String, String> {
        let function = TABLE.iter().find(|f| f.name == name).unwrap();
        (function.run)(&super::super::Files::Off, arguments.to_vec())
            .map(|v| v.to_json().to_string())
            .map_err(|e| e.text)
    }

    #[test]
    fn networks_of_both_versions() {
        for (name, prefix, numbers, want) in [
            ("cidrhost", "10.1.2.3/8", &[5][..], "\"10.0.0.5\""),
            ("cidrhost", "10.0.0.0/30", &[-4], "\"10.0.0.0\""),
            ("cidrhost", "::/0", &[-1], "\"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\""),
            ("cidrnetmask", "10.0.0.0/0", &[], "\"0.0.0.0\""),
            ("cidrnetmask", "2001:db8::/61", &[], "\"ffff:ffff:ffff:fff8::\""),
            ("cidrsubnet", "10.0.0.0/08", &[24, 16_777_215], "\"10.255.255.255/32\""),
            ("cidrsubnet", "::ffff:192.168.0.0/112", &[8, 6], "\"192.168.6.0/24\""),
            ("cidrsubnets", "10.0.0.0/24", &[2, 4, 8], r#"["10.0.0.0/26","10.0.0.64/28","10.0.0.80/32"]"#),
            ("cidrsubnets", "0.0.0.0/0", &[1, 1], r#"["0.0.0.0/1","128.0.0.0/1"]"#),
            ("cidrsubnets", "::/0", &[1, 1], r#"["::/1","8000::/1"]"#),
            ("cidrsubnets", "::/0", &[], "[]"),
        ] {
            let arguments: Vec<Value> =
                std::iter::once(Value::str(prefix)).chain(numbers.iter().map(|n| Value::int(*n))).collect();
            assert_eq!(call(name, &arguments).as_deref(), Ok(want), "{name} {prefix}");
        }
        for (name, prefix, numbers, want) in [
            ("cidrhost", "10.0.0.0/30", &[4][..], "does not accommodate"),
            ("cidrhost", "10.0.0.0/30", &[-5], "does not accommodate"),
            ("cidrhost", "10.0.0.0/+8", &[1], "invalid CIDR expression"),
            ("cidrhost", "010.0.0.0/8", &[1], "invalid CIDR expression"),
            ("cidrsubnet", "10.0.0.0/8", &[25, 0], "insufficient address space"),
            ("cidrsubnet", "10.0.0.0/8", &[8, 256], "does not accommodate"),
            ("cidrsubnet", "2001:db8::/32", &[33, 0], "more than 32 bits"),
            ("cidrsubnets", "fe80::/48", &[1, 33], "more than 32 bits"),
            ("cidrsubnets", "10.0.0.0/8", &[1, 1, 1], "not enough remaining"),
            ("cidrsubnets", "10.0.0.0/8", &[0], "at least one bit"),
        ] {
            let arguments: Vec<Value> =
                std::iter::once(Value::str(prefix)).chain(numbers.iter().map(|n| Value::int(*n))).collect();
            let error = call(name, &arguments).unwrap_err();
            assert!(error.contains(want), "{name} {prefix}: {error}");
        }
    }
}
