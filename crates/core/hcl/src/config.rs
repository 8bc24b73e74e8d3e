//! Parses the agent's configuration files (docs/reference/jobspec.md, section 11): HCL 1 or JSON. Later files
//! override earlier ones.
//!
//! An argument that no file sets stays unset. The agent applies the defaults.

mod client;
mod macros;
mod places;
mod server;
mod top;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::fmt;

pub use self::client::*;
pub use self::places::{PluginPlaces, plugin_places};
pub use self::server::*;
pub use self::top::*;
use crate::diag::{Diagnostic, Diagnostics};
use crate::eval::{Evaluator, Scope};
use crate::parse::hcl1;
use crate::schema::{Decoder, Header, Object};
use crate::source::{Source, Sources};

/// A secret text. `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    /// Returns the secret text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

/// A block kept as raw JSON. `Debug` shows only names, because values may be credentials.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(pub Json);

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Json::Object(map) => f.debug_set().entries(map.keys()).finish(),
            Json::Array(items) => write!(f, "[{} entries]", items.len()),
            _ => f.write_str("[REDACTED]"),
        }
    }
}

/// Parses configuration files and merges them in the given order.
///
/// Blocks merge argument by argument, labelled blocks and maps by their keys. Lists are replaced.
///
/// # Errors
/// All problems: syntax errors, unknown arguments with the nearest known one, values of the wrong type.
pub fn parse(files: &[Source]) -> Result<AgentConfig, Diagnostics> {
    let mut sources = Sources::default();
    let mut items: Vec<Diagnostic> = Vec::new();
    let evaluator = Evaluator::literals();
    let mut merged = Object::new();
    for file in files {
        let id = sources.add(file.clone());
        let body = match hcl1::parse_body(&sources, id) {
            Ok(body) => body,
            Err(errors) => {
                items.extend(errors);
                continue;
            }
        };
        let mut decoder = Decoder::literal(&evaluator);
        let header = Header { span: body.span.at_start(), labels: &[], arguments: &[] };
        let object = decoder.body(&body, &AGENT, &header, &Scope::default());
        items.append(&mut decoder.errors);
        merge(&mut merged, object);
    }
    if items.is_empty() {
        match serde_json::from_value(Json::Object(merged)) {
            Ok(config) => return Ok(config),
            Err(e) => {
                items.push(Diagnostic::error("E0601", None, "Invalid configuration", format!("{e}.")));
            }
        }
    }
    Err(Diagnostics { items, sources })
}

fn merge(into: &mut Object, from: Object) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(texts: &[&str]) -> Result<AgentConfig, Diagnostics> {
        let files: Vec<Source> =
            texts.iter().enumerate().map(|(i, t)| Source::new(format!("{i}.hcl"), *t)).collect();
        parse(&files)
    }

    #[test]
    fn usual_file() {
        let c = config(&[r#"
name       = "n1"
region     = "eu"
datacenter = "dc2"
data_dir   = "/var/lib/caravan"
bind_addr  = "0.0.0.0"
log_level  = "DEBUG"
ports { http = 5646 rpc = 5647 serf = 5648 }
advertise { rpc = "10.0.0.1:5647" }
server {
  enabled          = true
  bootstrap_expect = 1
  heartbeat_grace  = "20s"
  server_join { retry_join = ["a", "b"] retry_interval = "5s" }
  encrypt = "c2VjcmV0"
}
client {
  enabled = true
  servers = ["10.0.0.1:5647"]
  meta { "rack.row" = "r7" unit = 3 }
  options = { "driver.allowlist" = "exec" }
  reserved { cpu = 100 memory = 256 reserved_ports = "22,80" }
  host_volume "scratch" { path = "/srv/scratch" read_only = false }
  max_kill_timeout = "1m"
  min_dynamic_port = 21000
}
plugin "raw_exec" { config { enabled = true } }
plugin "docker" {
  args = ["-x"]
  config { volumes { enabled = true } }
}
acl { enabled = false token_ttl = "30s" }
telemetry { prometheus_metrics = true }
"#])
        .unwrap();
        assert_eq!(c.name.as_deref(), Some("n1"));
        assert_eq!(c.ports.as_ref().unwrap().rpc, Some(5647));
        let server = c.server.as_ref().unwrap();
        assert_eq!(server.heartbeat_grace.unwrap().0, 20_000_000_000);
        assert_eq!(server.server_join.as_ref().unwrap().retry_join.as_ref().unwrap().len(), 2);
        assert!(!format!("{c:?}").contains("c2VjcmV0"));
        let client = c.client.as_ref().unwrap();
        assert_eq!(client.meta.as_ref().unwrap()["rack.row"], "r7");
        assert_eq!(client.meta.as_ref().unwrap()["unit"], "3");
        assert_eq!(client.host_volume.as_ref().unwrap()["scratch"].path.as_deref(), Some("/srv/scratch"));
        let plugin = c.plugin.as_ref().unwrap();
        assert_eq!(plugin["raw_exec"].config.as_ref().unwrap().0["enabled"], true);
        assert_eq!(plugin["docker"].config.as_ref().unwrap().0["volumes"][0]["enabled"], true);
    }

    #[test]
    fn later_files_win() {
        let c = config(&[
            "name = \"a\"\nclient { meta { x = \"1\" y = \"1\" } servers = [\"s1\"] }\nplugin \"a\" { config { k = 1 } }",
            r#"{"name": "b", "client": {"meta": {"y": "2"}, "servers": ["s2"]}, "plugin": [{"a": {"config": [{"l": 2}]}}]}"#,
        ])
        .unwrap();
        assert_eq!(c.name.as_deref(), Some("b"));
        let client = c.client.unwrap();
        assert_eq!(client.servers.unwrap(), ["s2"]);
        let meta = client.meta.unwrap();
        assert_eq!((meta["x"].as_str(), meta["y"].as_str()), ("1", "2"));
        let plugin = c.plugin.unwrap()["a"].config.clone().unwrap().0;
        assert_eq!((plugin["k"].as_i64(), plugin["l"].as_i64()), (Some(1), Some(2)));
    }

    #[test]
    fn unknown_names_are_errors_with_a_place() {
        let error = config(&["client {\n  enable = true\n}\n"]).unwrap_err().to_string();
        assert!(error.starts_with("0.hcl:2,3-9: Unsupported argument"), "{error}");
        assert!(error.contains("Did you mean \"enabled\"?"), "{error}");
        let error = config(&["ports { http = \"many\" }"]).unwrap_err().to_string();
        assert!(error.starts_with("0.hcl:1,17-21: Unsuitable value type"), "{error}");
        assert!(config(&["serer {}"]).unwrap_err().to_string().contains("Did you mean \"server\"?"));
        let error = config(&[r#"{"clint": {"enabled": true}}"#]).unwrap_err().to_string();
        assert!(error.contains("Did you mean \"client\"?"), "{error}");
        assert!(config(&["name ="]).is_err());
    }
}
