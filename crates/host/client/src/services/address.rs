//! Addresses of services (docs/reference/jobspec.md, section 4.6): by a port's label or by a number. Pure.

use caravan_types::alloc::{Allocation, NetworkStatus};

/// An address and a port; the port is 0 for a service without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The address, without brackets.
    pub(crate) address: String,
    /// The port number.
    pub(crate) port: i64,
}

impl Endpoint {
    /// Returns `host:port`, with brackets around an IPv6 address.
    pub(crate) fn authority(&self) -> String {
        if self.address.contains(':') {
            format!("[{}]:{}", self.address, self.port)
        } else {
            format!("{}:{}", self.address, self.port)
        }
    }
}

/// Returns the endpoint of a service or a check. `node` is the node's own address.
///
/// # Errors
/// Returns one sentence if the label names no port or the mode needs a network that the allocation does not have.
pub(crate) fn endpoint(
    alloc: &Allocation,
    node: &str,
    mode: &str,
    label: &str,
    custom: &str,
) -> Result<Endpoint, String> {
    let ports = alloc
        .allocated_resources
        .as_ref()
        .map(|allocated| allocated.shared.ports.as_slice())
        .unwrap_or_default();
    let found = ports.iter().find(|port| port.label == label && !label.is_empty());
    let number = label.parse::<u16>().ok().map(i64::from);
    let port = match (found, number) {
        (Some(port), _) if matches!(mode, "alloc" | "alloc_ipv6") && port.to > 0 => port.to,
        (Some(port), _) => port.value,
        (None, Some(number)) => number,
        (None, None) if label.is_empty() => 0,
        (None, None) => return Err(format!("port label \"{label}\" is not a port of the group")),
    };
    if mode == "driver" {
        return Err("cannot use address_mode=\"driver\": no driver network exists".to_owned());
    }
    let network = alloc.network_status.as_deref();
    let own = |address: fn(&NetworkStatus) -> &str| {
        let found = network.map(address).filter(|address| !address.is_empty());
        found.ok_or_else(|| {
            format!("cannot use address_mode=\"{mode}\": no allocation network status reported")
        })
    };
    let host = found.map(|port| port.host_ip.as_str()).filter(|ip| !ip.is_empty()).unwrap_or(node);
    let address = match mode {
        _ if !custom.is_empty() => custom,
        "alloc" => own(|network| &network.address)?,
        "alloc_ipv6" => own(|network| &network.address_ipv6)?,
        _ => host,
    };
    Ok(Endpoint { address: address.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedPort, AllocatedResources, AllocatedSharedResources};

    fn alloc() -> Allocation {
        let port = AllocatedPort {
            label: "http".into(),
            value: 25_000,
            to: 8080,
            host_ip: "10.0.0.1".into(),
            ..Default::default()
        };
        let shared = AllocatedSharedResources { ports: vec![port], ..Default::default() };
        Allocation {
            allocated_resources: Some(AllocatedResources { shared, ..Default::default() }.into()),
            ..Default::default()
        }
    }

    #[test]
    fn labels_numbers_and_modes() {
        let at = |mode: &str, label: &str, custom: &str| {
            endpoint(&alloc(), "10.9.9.9", mode, label, custom).map(|e| e.authority())
        };
        assert_eq!(at("auto", "http", "").unwrap(), "10.0.0.1:25000");
        assert_eq!(at("host", "9000", "").unwrap(), "10.9.9.9:9000");
        let missing = at("alloc", "http", "").unwrap_err();
        assert_eq!(missing, "cannot use address_mode=\"alloc\": no allocation network status reported");
        let status = NetworkStatus {
            interface_name: "eth0".into(),
            address: "172.26.64.2".into(),
            address_ipv6: "fd00::2".into(),
            dns: None,
        };
        let bridged = Allocation { network_status: Some(std::sync::Arc::new(status)), ..alloc() };
        let inside =
            |mode: &str, label: &str| endpoint(&bridged, "10.9.9.9", mode, label, "").unwrap().authority();
        assert_eq!(inside("alloc", "http"), "172.26.64.2:8080");
        assert_eq!(inside("alloc", "9000"), "172.26.64.2:9000");
        assert_eq!(inside("alloc_ipv6", "http"), "[fd00::2]:8080");
        assert_eq!(inside("auto", "http"), "10.0.0.1:25000");
        assert_eq!(at("auto", "http", "example.org").unwrap(), "example.org:25000");
        assert_eq!(at("auto", "", "").unwrap(), "10.9.9.9:0");
        assert!(at("auto", "nope", "").unwrap_err().contains("\"nope\""));
        assert!(at("driver", "http", "").is_err());
        let six = Endpoint { address: "::1".into(), port: 1 };
        assert_eq!(six.authority(), "[::1]:1");
    }
}
