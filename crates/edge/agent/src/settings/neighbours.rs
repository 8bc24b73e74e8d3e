//! The `consul` and `vault` blocks, as far as the node reports the services behind them
//! (docs/reference/jobspec.md, section 11.1). Pure.

use super::bad;
use crate::error::AgentError;
use caravan_client::{Neighbour, NeighbourKind, Neighbours};
use caravan_hcl::config::{AgentConfig, Raw};
use caravan_rpc::Secret;
use caravan_tls::{Checked, ClientSettings};
use serde_json::Value;
use std::collections::BTreeMap;

const CONSUL: &str = "127.0.0.1:8500";
const VAULT: &str = "https://vault.service.consul:8200";

/// Returns the services to fingerprint. Consul is probed at its default address even without a block; Vault is off
/// until it is enabled.
pub(super) fn from_config(
    file: &AgentConfig,
    variables: &BTreeMap<String, String>,
) -> Result<Neighbours, AgentError> {
    let mut out = Neighbours::new();
    let usual = [Raw(Value::Null)];
    let supplied = file.consul.as_deref().unwrap_or_default();
    for block in merged(if supplied.is_empty() { &usual } else { supplied }) {
        out.push(consul(&block, variables)?);
    }
    for block in merged(file.vault.as_deref().unwrap_or_default()) {
        if block.flag("enabled") == Some(true) {
            out.push(vault(&block, variables)?);
        }
    }
    Ok(out)
}

/// A block, read by keys.
struct Block {
    name: String,
    values: BTreeMap<String, Value>,
}

/// Merges blocks of the same name; later ones override earlier ones.
fn merged(blocks: &[Raw]) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    for Raw(block) in blocks {
        let values: BTreeMap<String, Value> = block
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let name = match values.get("name") {
            Some(Value::String(name)) if !name.is_empty() => name.clone(),
            _ => "default".to_owned(),
        };
        match out.iter_mut().find(|known| known.name == name) {
            Some(known) => known.values.extend(values),
            None => out.push(Block { name, values }),
        }
    }
    out
}

impl Block {
    fn text(&self, key: &str) -> Option<String> {
        self.values.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.values.get(key)? {
            Value::Bool(on) => Some(*on),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn tls(&self, checked: Checked) -> ClientSettings {
        let path = |key| self.text(key).map(Into::into);
        ClientSettings {
            ca_file: path("ca_file"),
            ca_path: path("ca_path"),
            cert_file: path("cert_file"),
            key_file: path("key_file"),
            checked,
            ..ClientSettings::default()
        }
    }
}

fn consul(block: &Block, variables: &BTreeMap<String, String>) -> Result<Neighbour, AgentError> {
    let usual = block.name == "default";
    let variable = |name: &str| variables.get(name).cloned().filter(|text| !text.is_empty());
    let address = block.text("address").or_else(|| variable("CONSUL_HTTP_ADDR").filter(|_| usual));
    let address = address.unwrap_or_else(|| CONSUL.to_owned());
    let (scheme, host, port) = parts("consul.address", &address, 8500)?;
    let encrypted = scheme == Some("https") || block.flag("ssl") == Some(true);
    let checked = if block.flag("verify_ssl") == Some(false) { Checked::Nothing } else { Checked::Host };
    let own =
        if usual { "CONSUL_HTTP_TOKEN".to_owned() } else { format!("CONSUL_HTTP_TOKEN_{}", block.name) };
    Ok(Neighbour {
        kind: NeighbourKind::Consul,
        name: block.name.clone(),
        host,
        port,
        tls: encrypted.then(|| block.tls(checked)),
        token: Secret::new(block.text("token").or_else(|| variable(&own)).unwrap_or_default()),
    })
}

fn vault(block: &Block, variables: &BTreeMap<String, String>) -> Result<Neighbour, AgentError> {
    let variable =
        variables.get("VAULT_ADDR").filter(|text| !text.is_empty() && block.name == "default").cloned();
    let address = block.text("address").or(variable).unwrap_or_else(|| VAULT.to_owned());
    let (scheme, host, port) = parts("vault.address", &address, 8200)?;
    let checked = match (block.flag("tls_skip_verify"), block.text("tls_server_name")) {
        (Some(true), _) => Checked::Nothing,
        (_, Some(name)) => Checked::Name(name),
        (_, None) => Checked::Host,
    };
    Ok(Neighbour {
        kind: NeighbourKind::Vault,
        name: block.name.clone(),
        host,
        port,
        tls: (scheme == Some("https")).then(|| block.tls(checked)),
        token: Secret::new(""),
    })
}

/// Splits an address into scheme, host and port.
fn parts<'a>(
    field: &'static str,
    address: &'a str,
    usual: u16,
) -> Result<(Option<&'a str>, String, u16), AgentError> {
    let no = |reason: &str| bad(field, format!("{address:?} {reason}"));
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, address),
    };
    if !matches!(scheme, None | Some("http" | "https")) {
        return Err(no("is neither http:// nor https://, which is all that is supported"));
    }
    let place = rest.trim_end_matches('/');
    if place.contains(['/', '@', '?', ' ']) {
        return Err(no("is not host:port"));
    }
    let (host, port) = match place.rsplit_once(':') {
        // An IPv6 address without a port.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (place, usual),
        Some((host, port)) => (host, port.parse().map_err(|_| no("has no port that is one"))?),
        None => (place, usual),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(no("names no host"));
    }
    Ok((scheme, host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::Source;

    fn read(text: &str, variables: &[(&str, &str)]) -> Result<Neighbours, AgentError> {
        let file = caravan_hcl::config::parse(&[Source::new("a.hcl", text)]).unwrap();
        from_config(&file, &variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    fn place(neighbour: &Neighbour) -> String {
        let scheme = if neighbour.tls.is_some() { "https" } else { "http" };
        format!("{:?} {} {scheme}://{}:{}", neighbour.kind, neighbour.name, neighbour.host, neighbour.port)
    }

    fn places(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
        read(text, variables).unwrap().iter().map(place).collect()
    }

    #[test]
    fn consul_is_tried_and_vault_is_enabled() {
        assert_eq!(places("", &[]), ["Consul default http://127.0.0.1:8500"]);
        assert_eq!(places("", &[("CONSUL_HTTP_ADDR", "http://c:1")]), ["Consul default http://c:1"]);
        let unset = places("vault {\n enabled = true\n}", &[("VAULT_ADDR", ""), ("CONSUL_HTTP_ADDR", "")]);
        assert_eq!(unset, places("vault {\n enabled = true\n}", &[]));
        assert_eq!(places("vault {\n address = \"http://v:1\"\n}", &[]).len(), 1);
        let text = "consul {\n address = \"https://[::1]:8501\"\n token = \"hush\"\n}\n\
                    consul {\n name = \"east\"\n address = \"e\"\n ssl = true\n verify_ssl = false\n}\n\
                    vault {\n enabled = true\n}";
        let all = [
            "Consul default https://::1:8501",
            "Consul east https://e:8500",
            "Vault default https://vault.service.consul:8200",
        ];
        assert_eq!(places(text, &[("CONSUL_HTTP_ADDR", "ignored:1")]), all);
        let found = read(text, &[("CONSUL_HTTP_TOKEN_east", "hush2")]).unwrap();
        assert_eq!((found[0].token.expose(), found[1].token.expose()), ("hush", "hush2"));
        assert_eq!(found[1].tls.as_ref().unwrap().checked, Checked::Nothing);
        assert!(!format!("{found:?}").contains("hush"));
    }

    #[test]
    fn later_blocks_of_a_name_lie_over_earlier_ones() {
        let text = "consul {\n address = \"a:1\"\n ssl = true\n}\nconsul {\n address = \"b:2\"\n}";
        assert_eq!(places(text, &[]), ["Consul default https://b:2"]);
    }

    #[test]
    fn what_is_no_address_is_named() {
        for bad in ["unix:///run/c.sock", "a:b", "h/path", ":1", "http://u@h:1"] {
            let error = read(&format!("consul {{\n address = \"{bad}\"\n}}"), &[]).unwrap_err().to_string();
            assert!(error.contains("consul.address") && error.contains(bad), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_address_is_read_or_named(address in "\\PC{0,40}") {
            if let Ok((_, host, _)) = parts("consul.address", &address, 1) {
                proptest::prop_assert!(!host.is_empty());
            }
        }
    }
}
