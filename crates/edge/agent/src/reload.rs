//! Configuration reload: applies some changes immediately and reports the changes that need a restart.

use crate::error::AgentError;
use crate::flags::Flags;
use crate::logging::Levels;
use crate::settings::{Settings, resolve};
use crate::tls::Live;
use arc_swap::ArcSwap;
use caravan_client::Handle;
use caravan_hcl::config::AgentConfig;
use caravan_http::Reload;
use caravan_rpc::Limits;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The settings that a running agent applies (docs/reference/jobspec.md, section 11). The two settings of `tls` in
/// [`NOT_LIVE`], which turn encryption on, need a restart.
const LIVE: [&str; 6] = [
    "log_level",
    "tls",
    "limits.rpc_handshake_timeout",
    "limits.rpc_max_conns_per_client",
    "consul",
    "vault",
];
const NOT_LIVE: [&str; 2] = ["tls.http", "tls.rpc"];

/// Returns whether development mode determines a field. Flags override both compared configurations.
fn is_flagged(field: &str, flags: &Flags) -> bool {
    flags.dev && ["server.enabled", "client.enabled", "data_dir"].contains(&field)
}

/// Returns the fields that differ and that a running agent cannot change. Omits values, because they may be secrets.
fn waiting(before: &AgentConfig, after: &AgentConfig, flags: &Flags) -> Vec<String> {
    let tree = |config: &AgentConfig| serde_json::to_value(config).unwrap_or_default();
    let mut differ = Vec::new();
    compare("", &tree(before), &tree(after), &mut differ);
    differ.retain(|field| {
        let is_in = |names: &[&str]| {
            names.iter().any(|name| {
                field.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let lives = is_in(&LIVE) && !is_in(&NOT_LIVE);
        !lives && !is_flagged(field, flags)
    });
    differ
}

/// Collects the paths at which two configurations differ.
fn compare(path: &str, before: &Value, after: &Value, differ: &mut Vec<String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let none = serde_json::Map::new();
    let fields = |value: &Value| match value {
        Value::Object(map) => Some(map.clone()),
        Value::Null => Some(none.clone()),
        _ => None,
    };
    match (fields(before), fields(after)) {
        _ if before == after => {}
        (Some(old), Some(new)) if !(old.is_empty() && new.is_empty()) => {
            let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(&below(key), &at(&old), &at(&new), differ);
            }
        }
        // An empty block was added or removed.
        (Some(_), Some(_)) => {}
        _ => differ.push(path.to_owned()),
    }
}

/// Reloads the configuration and distributes the changes.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) flags: Flags,
    /// Serializes reloads. Otherwise an older state of the files could be applied last.
    pub(crate) turn: Mutex<()>,
    pub(crate) tls: Live,
    pub(crate) levels: Levels,
    pub(crate) limits: Limits,
    pub(crate) client: Option<Handle>,
    /// The configuration that `/v1/agent/self` shows.
    pub(crate) shown: Arc<ArcSwap<Value>>,
    /// The configuration of each external plugin with its defaults.
    pub(crate) plugins: BTreeMap<String, Value>,
    /// The settings with which the agent was started.
    pub(crate) started: Settings,
}

impl Reloader {
    /// Applies the whole configuration or none of it: if a file cannot be read, nothing changes.
    pub(crate) fn now(&self) -> Result<(), AgentError> {
        let _turn = self.turn.lock();
        let settings = resolve(&self.flags, crate::read_files(&self.flags.config)?, &crate::host::look())?;
        self.tls.reload(&settings.tls, &settings.region)?;
        let limits = &settings.limits;
        self.limits.set(limits.rpc_handshake, limits.rpc_connections);
        if let Some(client) = &self.client {
            client.set_neighbours(settings.neighbours.clone());
        }
        self.levels.set(&settings.log_level);
        let wait = waiting(&self.started.file, &settings.file, &self.flags);
        if !wait.is_empty() {
            tracing::warn!(
                fields = wait.join(", "),
                "these fields were changed and take effect at the next start of the agent"
            );
        }
        let mut started = self.started.clone();
        started.tls.take(&settings.tls);
        started.log_level = settings.log_level;
        started.limits.rpc_handshake = limits.rpc_handshake;
        started.limits.rpc_connections = limits.rpc_connections;
        self.shown.store(Arc::new(crate::shown::config(&started, &self.plugins)));
        tracing::info!("the configuration and the certificates were reloaded");
        Ok(())
    }
}

impl Reload for Reloader {
    fn reload(&self) -> Result<(), String> {
        self.now().map_err(|error| {
            let words = caravan_sys::describe(&error);
            tracing::error!(
                error = words,
                "the configuration could not be reloaded; the previous one stays in use"
            );
            words
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::Source;

    fn differences(before: &str, after: &str, args: &[&str]) -> Vec<String> {
        let read = |text: &str| caravan_hcl::config::parse(&[Source::new("a.hcl", text)]).unwrap();
        let flags = crate::flags::parse(args.iter().map(|arg| (*arg).to_owned())).unwrap();
        let read = |text| flags.over(read(text)).unwrap();
        waiting(&read(before), &read(after), &flags)
    }

    #[test]
    fn what_a_running_agent_takes_up_does_not_wait() {
        let live = "log_level = \"WARN\"\ntls {\n ca_file = \"/b\"\n verify_server_hostname = true\n}\n\
                    limits {\n rpc_handshake_timeout = \"1s\"\n rpc_max_conns_per_client = 7\n}\n\
                    consul {\n address = \"c\"\n}\nvault {\n enabled = true\n}\n";
        assert!(differences("", live, &[]).is_empty(), "{:?}", differences("", live, &[]));
        assert!(differences("tls {}", "", &[]).is_empty());
    }

    #[test]
    fn what_waits_is_named_without_its_value() {
        let before = "region = \"a\"\nclient {\n meta {\n rack = \"1\"\n}\n}\nplugin \"raw_exec\" {}\n";
        let after = "region = \"b\"\ntls {\n http = true\n ca_file = \"/b\"\n}\nclient {\n meta {\n rack = \"2\"\n}\n\
                     node_class = \"c\"\n}\nlimits {\n http_max_conns_per_client = 1\n}\n\
                     plugin \"raw_exec\" {\n config {\n enabled = true\n}\n}\n";
        let all = [
            "client.meta.rack",
            "client.node_class",
            "limits.http_max_conns_per_client",
            "plugin.raw_exec.config.enabled",
            "region",
            "tls.http",
        ];
        assert_eq!(differences(before, after, &[]), all);
        assert_eq!(differences(before, before, &[]), [""; 0]);
        // A flag overrides the file, as at the agent's start.
        assert!(!differences(before, after, &["-region", "x"]).contains(&"region".to_owned()));
    }
}
