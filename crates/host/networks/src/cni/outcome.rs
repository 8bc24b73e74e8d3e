//! The result of a plugin (CNI specification 1.1, section 5, and the forms of earlier versions).

use super::fault::CniFault;
use super::version::SpecVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// The result of a plugin, unchanged: the next plugin and later commands receive the same result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CniResult {
    object: Map<String, Value>,
}

impl CniResult {
    /// Reads a result. A result that names no version has the version of the list.
    ///
    /// # Errors
    /// Returns one sentence.
    pub(crate) fn parse(text: &str, version: SpecVersion) -> Result<Self, String> {
        let mut object: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("it is no JSON object: {error}"))?;
        let named = object.get("cniVersion").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !named {
            object.insert("cniVersion".to_owned(), Value::String(version.to_string()));
        }
        let result = Self { object };
        result.content()?;
        Ok(result)
    }

    pub(crate) fn value(&self) -> Value {
        Value::Object(self.object.clone())
    }

    fn content(&self) -> Result<Content, String> {
        serde_json::from_value(self.value()).map_err(|error| error.to_string())
    }

    /// Returns the addresses of the allocation: those of the first interface by name within the namespace, or else of
    /// the first interface with an address.
    ///
    /// # Errors
    /// If the result has no address.
    pub fn reached(&self) -> Result<Reached, CniFault> {
        let content = self.content().map_err(|_| CniFault::NoAddress)?;
        let mut found: Vec<(bool, String, IpAddr)> = Vec::new();
        for ip in content.ips.iter().flatten() {
            let interface =
                ip.interface.and_then(|at| content.interfaces.as_ref()?.get(usize::try_from(at).ok()?));
            let is_inside = interface.is_none_or(|interface| !interface.sandbox.is_empty());
            let name = interface.map_or(super::INTERFACE, |interface| interface.name.as_str());
            if let Some(address) = address_of(&ip.address) {
                found.push((!is_inside, name.to_owned(), address));
            }
        }
        for old in [&content.ip4, &content.ip6].into_iter().flatten() {
            if let Some(address) = address_of(&old.ip) {
                found.push((false, super::INTERFACE.to_owned(), address));
            }
        }
        found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let (_, interface, _) = found.first().cloned().ok_or(CniFault::NoAddress)?;
        let own = || found.iter().filter(|(_, name, _)| *name == interface).map(|(.., address)| *address);
        let (ipv4, ipv6) = (own().find(IpAddr::is_ipv4), own().find(IpAddr::is_ipv6));
        let dns = content.dns.unwrap_or_default();
        let address = ipv4.or(ipv6).ok_or(CniFault::NoAddress)?;
        let names = Names {
            servers: dns.nameservers.unwrap_or_default(),
            searches: dns.search.unwrap_or_default(),
            options: dns.options.unwrap_or_default(),
        };
        Ok(Reached { interface, address, ipv6, names: (!names.servers.is_empty()).then_some(names) })
    }
}

impl From<CniResult> for String {
    fn from(result: CniResult) -> Self {
        Value::Object(result.object).to_string()
    }
}

impl TryFrom<String> for CniResult {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text, SpecVersion::V0_1_0)
    }
}

/// The interface, the addresses and the resolver of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The name of the allocation's interface.
    pub interface: String,
    /// The IPv4 address, or the IPv6 address if the allocation has no other.
    pub address: IpAddr,
    /// The IPv6 address of the allocation.
    pub ipv6: Option<IpAddr>,
    /// The resolver that the plugins reported.
    pub names: Option<Names>,
}

/// The resolver of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The name servers.
    pub servers: Vec<String>,
    /// The domains in which names are looked up.
    pub searches: Vec<String>,
    /// The options of the resolver.
    pub options: Vec<String>,
}

/// Returns the address of a text with or without the length of a prefix.
fn address_of(text: &str) -> Option<IpAddr> {
    text.split('/').next()?.parse().ok()
}

/// The parts of a result that the client reads.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Content {
    interfaces: Option<Vec<Interface>>,
    ips: Option<Vec<Ip>>,
    /// The IPv4 address of versions until 0.2.0.
    ip4: Option<OldIp>,
    ip6: Option<OldIp>,
    dns: Option<Resolver>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    name: String,
    sandbox: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ip {
    address: String,
    interface: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldIp {
    ip: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resolver {
    nameservers: Option<Vec<String>>,
    search: Option<Vec<String>>,
    options: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(text: &str) -> Result<Reached, CniFault> {
        CniResult::parse(text, SpecVersion::V1_0_0).unwrap().reached()
    }

    #[test]
    fn the_interface_in_the_namespace_counts() {
        let found = reached(
            r#"{"cniVersion":"1.0.0","interfaces":[{"name":"br"},{"name":"veth1"},{"name":"eth1","sandbox":"/n"},
                {"name":"eth0","sandbox":"/n"}],
                "ips":[{"address":"10.9.0.1/24","interface":0},{"address":"10.1.0.2/24","interface":2},
                {"address":"fd00::2/64","interface":3},{"address":"10.88.0.2/16","interface":3}],
                "dns":{"nameservers":["10.88.0.53"],"search":["cni.test"]}}"#,
        )
        .unwrap();
        assert_eq!((found.interface.as_str(), found.address.to_string().as_str()), ("eth0", "10.88.0.2"));
        assert_eq!(found.ipv6.unwrap().to_string(), "fd00::2");
        assert_eq!(found.names.unwrap().searches, ["cni.test"]);
    }

    #[test]
    fn old_forms_and_results_without_interfaces_are_read() {
        let found = reached(r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.2.3/24"},"ip6":{"ip":"fd00::3/64"}}"#)
            .unwrap();
        assert_eq!((found.interface.as_str(), found.address.to_string().as_str()), ("eth0", "10.1.2.3"));
        assert!(found.ipv6.is_some() && found.names.is_none());
        let found =
            reached(r#"{"ips":[{"version":"6","address":"fd00::9/64"}],"dns":{"search":["x"]}}"#).unwrap();
        assert_eq!((found.address.to_string().as_str(), found.names), ("fd00::9", None));
        assert!(matches!(reached("{}"), Err(CniFault::NoAddress)));
        assert!(matches!(reached(r#"{"ips":[{"address":"x"}]}"#), Err(CniFault::NoAddress)));
        assert!(CniResult::parse("[]", SpecVersion::V1_0_0).is_err());
        assert!(CniResult::parse(r#"{"ips":3}"#, SpecVersion::V1_0_0).is_err());
    }

    #[test]
    fn a_result_is_kept_whole() {
        let text =
            r#"{"cniVersion":"1.1.0","ips":[],"routes":[{"dst":"0.0.0.0/0","mtu":1400}],"own":{"a":1}}"#;
        let result = CniResult::parse(text, SpecVersion::V1_0_0).unwrap();
        assert_eq!(String::from(result), text);
        let unnamed = CniResult::parse("{}", SpecVersion::V0_4_0).unwrap();
        assert_eq!(String::from(unnamed), r#"{"cniVersion":"0.4.0"}"#);
    }
}
