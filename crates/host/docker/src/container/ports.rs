//! The ports of a container that its host publishes.

use crate::config::Config;
use bollard::models::{PortBinding, PortMap};
use caravan_drivers::{Error, Port, Result, TaskConfig};
use std::collections::BTreeMap;

/// The published ports of a container.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) bindings: PortMap,
    /// Ports with their protocol, as in `80/tcp`.
    pub(super) exposed: Vec<String>,
    /// Variables that name ports of the container.
    pub(super) variables: BTreeMap<String, String>,
}

impl Published {
    /// Adds a port for both protocols, because a job file does not name the protocol.
    fn add(&mut self, port: &Port, inner: u16) {
        for protocol in ["tcp", "udp"] {
            let key = format!("{inner}/{protocol}");
            let binding =
                PortBinding { host_ip: Some(port.host_ip.clone()), host_port: Some(port.value.to_string()) };
            if !self.exposed.contains(&key) {
                self.exposed.push(key.clone());
            }
            self.bindings.entry(key).or_default().get_or_insert_with(Vec::new).push(binding);
        }
    }
}

/// Returns the ports that the task's `config` names, which the host publishes.
pub(super) fn published(task: &TaskConfig, config: &Config, mode: &str) -> Result<Published> {
    let network = &config.network;
    let mut published = Published::default();
    if !network.port_map.is_empty() {
        return Err(Error::Config(if task.ports.is_empty() {
            "Trying to map ports but no network interface is available".into()
        } else {
            "'port_map' cannot map group network ports, use 'ports' instead".into()
        }));
    }
    // A container in another namespace has the ports of that namespace.
    let shares = mode == "host" || mode.starts_with("container:");
    for label in &network.ports {
        let port = task.ports.iter().find(|port| port.label == *label);
        let port =
            port.ok_or_else(|| Error::Config(format!("Port {label:?} not found, check network block")))?;
        let inner = if port.to > 0 { port.to } else { port.value };
        if !shares {
            published.add(port, inner);
            published.variables.insert(format!("NOMAD_PORT_{label}"), inner.to_string());
        }
    }
    Ok(published)
}
