//! The check whether the kernel has the features that a bridge requires, in a separate namespace.

use crate::attachment::{Addresses, Attachment, Forward};
use crate::config::BridgeConfig;
use crate::desired::build_table;
use crate::fault::Fault;
use caravan_sys::netlink::link::Links;
use caravan_sys::netlink::nft::{Rules, Transaction};
use caravan_sys::netns;

/// Creates a bridge, a pair of interfaces and the packet rules in a namespace that ends with the probe.
///
/// # Errors
/// Returns the first step that the kernel refused, for a lack of a feature or of the privilege.
pub fn probe(config: &BridgeConfig) -> Result<(), Fault> {
    netns::in_new(|| -> Result<(), Fault> {
        let mut links = Links::open()?;
        links.add_bridge(&config.name, config.mac(), 1500)?;
        links.add_loose_pair("probe0", "probe1")?;
        let attachment = Attachment {
            alloc: "probe".into(),
            namespace: "/".into(),
            addresses: Addresses { ipv4: config.ipv4_at(2), ipv6: config.ipv6_at(2) },
            forwards: vec![Forward { address: None, port: 1, to: 1 }],
        };
        let mut transaction = Transaction::default();
        build_table(config, [&attachment].into_iter(), &mut transaction);
        Ok(Rules::open()?.commit(transaction)?)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_what_a_bridge_needs() {
        probe(&BridgeConfig::default()).unwrap();
        probe(&BridgeConfig::parse("b", "10.0.0.0/24", "fd00::/64", true).unwrap()).unwrap();
    }
}
