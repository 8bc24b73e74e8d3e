//! The part of a set-up within the namespace of an allocation.

use crate::attachment::Attachment;
use crate::config::BridgeConfig;
use crate::fault::Fault;
use caravan_sys::netlink::link::Links;
use caravan_sys::netns;
use std::io::ErrorKind;

/// Settings of a new namespace whose defaults protect other users of a host. A namespace has no other users, so tasks
/// without privileges use low ports and `ping`, as in containers.
const SETTINGS: [(&str, &str); 2] = [
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
    ("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"),
];

/// Assigns the addresses to the interface within a namespace and the routes to the namespace. May be repeated.
pub(crate) fn configure(config: &BridgeConfig, attachment: &Attachment) -> Result<(), Fault> {
    netns::within(&attachment.namespace, || -> Result<(), Fault> {
        let mut links = Links::open()?;
        let found = links.list()?.into_iter().find(|link| link.name == Attachment::INTERFACE);
        let link = found.ok_or(Fault::Vanished(Attachment::INTERFACE))?;
        for (ip, (_, prefix)) in addresses(attachment).into_iter().zip(config.gateways()) {
            match links.add_address(&link, ip, prefix) {
                Err(error) if error.io().is_none_or(|e| e.kind() != ErrorKind::AlreadyExists) => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        links.set_up(&link)?;
        for (gateway, _) in config.gateways() {
            links.set_default_route(&link, gateway)?;
        }
        for (path, value) in SETTINGS {
            if let Err(error) = std::fs::write(path, value) {
                tracing::debug!(path, %error, "a kernel setting cannot be changed within a namespace");
            }
        }
        Ok(())
    })?
}

/// Returns whether a namespace has the allocation's interface, with its addresses.
pub(crate) fn is_configured(attachment: &Attachment) -> Result<bool, Fault> {
    netns::within(&attachment.namespace, || -> Result<bool, Fault> {
        let mut links = Links::open()?;
        let found = links.list()?.into_iter().find(|link| link.name == Attachment::INTERFACE);
        let Some(link) = found.filter(|link| link.is_up && link.mac == attachment.mac()) else {
            return Ok(false);
        };
        let own = links.addresses()?;
        let has = |ip| own.iter().any(|address| address.index == link.index && address.ip == ip);
        Ok(addresses(attachment).into_iter().all(has))
    })?
}

/// Returns the addresses in the order of the gateways.
fn addresses(attachment: &Attachment) -> Vec<std::net::IpAddr> {
    let ipv6 = attachment.addresses.ipv6.map(Into::into);
    [attachment.addresses.ipv4.into()].into_iter().chain(ipv6).collect()
}
