//! Arithmetic on IP networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Function, P, Result, f, num, text, v, whole};
use crate::value::Value;

pub(super) const TABLE: &[Function] = &[
    f("cidrhost", &[("prefix", P::Str), ("hostnum", P::Num)], |_, a| {
        let net = Net::parse(&text(&a[0]))?;
        let number = num(&a[1]).to_i128().ok_or("a whole number is required")?;
        net.host(number).map(|ip| Value::str(ip.to_string()))
    }),
    f("cidrnetmask", &[("prefix", P::Str)], |_, a| {
        let net = Net::parse(&text(&a[0]))?;
        if net.six {
            return Err("only IPv4 networks are supported".to_owned());
        }
        let mask = u32::MAX.checked_shl(32 - net.length).unwrap_or(0);
        Ok(Value::str(Ipv4Addr::from(mask).to_string()))
    }),
    f("cidrsubnet", &[("prefix", P::Str), ("newbits", P::Num), ("netnum", P::Num)], |_, a| {
        let net = Net::parse(&text(&a[0]))?;
        let bits = u32::try_from(whole(&a[1])?).map_err(|_| "newbits must not be negative".to_owned())?;
        let number = num(&a[2])
            .to_i128()
            .and_then(|n| u128::try_from(n).ok())
            .ok_or("netnum must be a whole number")?;
        net.subnet(bits, number).map(|n| Value::str(n.to_string()))
    }),
    v("cidrsubnets", &[("prefix", P::Str)], ("newbits", P::Num), |_, a| subnets(&a)),
];

#[derive(Debug, Clone, Copy)]
struct Net {
    address: u128,
    length: u32,
    six: bool,
}

impl Net {
    fn width(self) -> u32 {
        if self.six { 128 } else { 32 }
    }

    fn size(self) -> Option<u128> {
        1_u128.checked_shl(self.width() - self.length)
    }

    fn ip(self, address: u128) -> IpAddr {
        if self.six {
            IpAddr::V6(Ipv6Addr::from(address))
        } else {
            IpAddr::V4(Ipv4Addr::from(u32::try_from(address).unwrap_or(u32::MAX)))
        }
    }

    fn parse(s: &str) -> Result<Self> {
        let wrong = || format!("invalid CIDR expression: {s:?}");
        let (ip, length) = s.split_once('/').ok_or_else(wrong)?;
        let length: u32 = length.parse().map_err(|_| wrong())?;
        let (address, six) = match ip.parse().map_err(|_| wrong())? {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), false),
            IpAddr::V6(ip) => (u128::from(ip), true),
        };
        let net = Self { address, length, six };
        if length > net.width() {
            return Err(wrong());
        }
        let address = net.size().map_or(0, |size| address & !(size - 1));
        Ok(Self { address, ..net })
    }

    fn host(self, number: i128) -> Result<IpAddr> {
        let too_large = || format!("prefix of {} does not accommodate a host numbered {number}", self.length);
        let offset = number.unsigned_abs();
        let size = self.size();
        if size.is_some_and(|s| if number < 0 { offset > s } else { offset >= s }) {
            return Err(too_large());
        }
        let offset = if number < 0 { size.unwrap_or(0).wrapping_sub(offset) } else { offset };
        Ok(self.ip(self.address.wrapping_add(offset)))
    }

    fn subnet(self, bits: u32, number: u128) -> Result<Self> {
        let length = self.length.saturating_add(bits);
        if length > self.width() {
            return Err(format!("insufficient address space to extend prefix of {} by {bits}", self.length));
        }
        if bits < 128 && number >= 1 << bits {
            return Err(format!(
                "prefix extension of {bits} does not accommodate a subnet numbered {number}"
            ));
        }
        let shifted = number.checked_shl(self.width() - length).unwrap_or(0);
        Ok(Self { address: self.address | shifted, length, ..self })
    }
}

impl std::fmt::Display for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip(self.address), self.length)
    }
}

/// One network after the other, each aligned to its own size.
fn subnets(a: &[Value]) -> Result<Value> {
    let net = Net::parse(&text(&a[0]))?;
    let mut next = net.address;
    let mut full = false;
    let mut out = Vec::new();
    let end = net.size().and_then(|s| net.address.checked_add(s - 1)).unwrap_or(u128::MAX);
    for bits in &a[1..] {
        let bits = u32::try_from(whole(bits)?)
            .ok()
            .filter(|b| *b > 0)
            .ok_or("must extend prefix by at least one bit")?;
        let length = net.length.saturating_add(bits);
        if length > net.width() {
            return Err(format!(
                "would extend prefix to {length} bits, which is too long for this address family"
            ));
        }
        let size = 1_u128.checked_shl(net.width() - length).ok_or("the subnet is too large")?;
        let start = next
            .checked_add(size - 1)
            .map(|n| n & !(size - 1))
            .filter(|s| !full && s.saturating_add(size - 1) <= end);
        let start = start.ok_or_else(|| {
            format!("not enough remaining address space for a subnet with a prefix of {length} bits")
        })?;
        out.push(Net { address: start, length, ..net }.to_string());
        match start.checked_add(size) {
            Some(n) => next = n,
            None => full = true,
        }
    }
    Ok(Value::strings(out))
}
