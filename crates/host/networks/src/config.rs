//! The settings of a node's bridge.

use caravan_sys::netlink::link::{Mac, is_name};
use caravan_sys::netlink::nft::{Family, Table};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The greatest number of ports of a bridge (`BR_MAX_PORTS` of Linux without the reserved one).
const MAX_PORTS: u32 = 1023;
/// The default name of the bridge.
const DEFAULT_NAME: &str = "nomad";
/// The default network of the allocations.
const DEFAULT_SUBNET: &str = "172.26.64.0/20";

/// A setting of the bridge that cannot be used. The text begins with the name of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFault {
    /// The name is no name of an interface.
    #[error("invalid bridge_network_name: {0:?} is not the name of an interface")]
    Name(String),
    /// The network is not in CIDR notation.
    #[error("invalid bridge_network_subnet: {0:?} is not an IPv4 network like 172.26.64.0/20")]
    Subnet(String),
    /// The network has no room for a gateway and an allocation.
    #[error("invalid bridge_network_subnet: {0} has no addresses for allocations")]
    Small(String),
    /// The IPv6 network is not in CIDR notation.
    #[error("invalid bridge_network_subnet_ipv6: not an IPv6 network: {0:?}")]
    Subnet6(String),
    /// The IPv6 network has no room for a gateway and an allocation.
    #[error("invalid bridge_network_subnet_ipv6: {0} has no addresses for allocations")]
    Small6(String),
}

/// The settings of a node's bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// The name of the bridge.
    pub name: String,
    /// The network of the allocations.
    pub ipv4: Ipv4Net,
    /// The IPv6 network of the allocations; absent means that they have no IPv6 addresses.
    pub ipv6: Option<Ipv6Net>,
    /// Whether an allocation reaches itself through its own port of the node.
    pub hairpin: bool,
    /// The id of the node that owns the bridge, which is part of the mark.
    pub owner: String,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            ipv4: DEFAULT_SUBNET.parse().expect("the default is a network"),
            ipv6: None,
            hairpin: false,
            owner: String::new(),
        }
    }
}

impl BridgeConfig {
    /// Reads the settings; empty texts mean the defaults.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn parse(name: &str, subnet: &str, subnet_ipv6: &str, hairpin: bool) -> Result<Self, ConfigFault> {
        let mut config = Self { hairpin, ..Self::default() };
        if !name.is_empty() {
            config.name = name.to_owned();
        }
        if !is_name(&config.name) {
            return Err(ConfigFault::Name(config.name));
        }
        if !subnet.is_empty() {
            let parsed: Ipv4Net = subnet.parse().map_err(|_| ConfigFault::Subnet(subnet.to_owned()))?;
            config.ipv4 = parsed.trunc();
        }
        if config.ipv4.prefix_len() > 29 || config.ipv4.prefix_len() == 0 {
            return Err(ConfigFault::Small(subnet.to_owned()));
        }
        if !subnet_ipv6.is_empty() {
            let parsed: Ipv6Net =
                subnet_ipv6.parse().map_err(|_| ConfigFault::Subnet6(subnet_ipv6.to_owned()))?;
            if parsed.prefix_len() > 125 || parsed.prefix_len() == 0 {
                return Err(ConfigFault::Small6(subnet_ipv6.to_owned()));
            }
            config.ipv6 = Some(parsed.trunc());
        }
        Ok(config)
    }

    /// Returns the addresses that allocations may have, counted from the start of the network. The first address is
    /// the gateway's; the last one of IPv4 is for broadcasts.
    pub(crate) fn offsets(&self) -> std::ops::RangeInclusive<u32> {
        let of_ipv4 = u32::MAX >> self.ipv4.prefix_len();
        let of_ipv6 = self
            .ipv6
            .map_or(u32::MAX, |net| u32::try_from(u128::MAX >> net.prefix_len()).unwrap_or(u32::MAX));
        2..=of_ipv4.min(of_ipv6) - 1
    }

    /// Returns the greatest number of allocations on the bridge at the same time.
    pub fn capacity(&self) -> u32 {
        let offsets = self.offsets();
        (offsets.end() - offsets.start() + 1).min(MAX_PORTS)
    }

    pub(crate) fn ipv4_at(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ipv4.network().to_bits().wrapping_add(offset))
    }

    pub(crate) fn ipv6_at(&self, offset: u32) -> Option<Ipv6Addr> {
        let net = self.ipv6?;
        Some(Ipv6Addr::from_bits(net.network().to_bits().wrapping_add(u128::from(offset))))
    }

    /// Returns the addresses of the bridge with the lengths of their prefixes.
    pub fn gateways(&self) -> Vec<(IpAddr, u8)> {
        let mut all = vec![(IpAddr::V4(self.ipv4_at(1)), self.ipv4.prefix_len())];
        if let (Some(ip), Some(net)) = (self.ipv6_at(1), self.ipv6) {
            all.push((IpAddr::V6(ip), net.prefix_len()));
        }
        all
    }

    /// Returns whether an address is in a network of the bridge.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.ipv4.contains(&ip),
            IpAddr::V6(ip) => self.ipv6.is_some_and(|net| net.contains(&ip)),
        }
    }

    /// Returns the table with the packet rules.
    pub fn table(&self) -> Table {
        Table { family: Family::Inet, name: format!("caravan-{}", self.name) }
    }

    /// Returns the text that marks the bridge as this node's.
    pub(crate) fn mark(&self) -> String {
        format!("{MARK}{}", self.owner)
    }

    /// Returns the hardware address of the bridge. Without a fixed address, the address changes with the ports, and
    /// allocations lose their gateway until their caches expire.
    pub(crate) fn mac(&self) -> Mac {
        let [_, _, _, a, b, c, d, e] = crate::digest(&self.mark()).to_be_bytes();
        // The second-lowest bit of the first byte marks a local address (RFC 7042, section 2.1).
        [0x02, a, b, c, d, e]
    }
}

/// The prefix of the mark of a bridge and of an interface.
pub(crate) const MARK: &str = "caravan:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_nomad() {
        let config = BridgeConfig::parse("", "", "", false).unwrap();
        assert_eq!((config.name.as_str(), config.ipv4.to_string().as_str()), ("nomad", "172.26.64.0/20"));
        assert_eq!(config.gateways(), [("172.26.64.1".parse().unwrap(), 20)]);
        assert_eq!(config.capacity(), 1023);
        assert_eq!(config.offsets(), 2..=4094);
    }

    #[test]
    fn a_bad_setting_is_named() {
        let fault = |name: &str, four: &str, six: &str| {
            BridgeConfig::parse(name, four, six, false).unwrap_err().to_string()
        };
        assert!(fault("a/b", "", "").starts_with("invalid bridge_network_name"));
        assert!(fault("", "10.0.0.0", "").starts_with("invalid bridge_network_subnet: "));
        assert!(fault("", "fd00::/64", "").starts_with("invalid bridge_network_subnet: "));
        assert!(fault("", "10.0.0.0/30", "").contains("no addresses"));
        assert!(fault("", "", "10.0.0.0/8").starts_with("invalid bridge_network_subnet_ipv6: not an IPv6"));
        assert!(fault("", "", "fd00::/127").contains("no addresses"));
    }

    #[test]
    fn the_smaller_network_limits_the_capacity() {
        let config = BridgeConfig::parse("", "10.1.2.0/24", "fd00::/125", false).unwrap();
        assert_eq!((config.offsets(), config.capacity()), (2..=6, 5));
        let config = BridgeConfig::parse("", "10.1.2.7/28", "fd00::/64", false).unwrap();
        assert_eq!((config.capacity(), config.ipv4_at(2).to_string().as_str()), (13, "10.1.2.2"));
    }
}
