//! The node as it is reported: one value with many writers and one watching reporter.

use crate::{clock, fingerprint};
use caravan_types::device::DeviceGroup;
use caravan_types::job::Network;
use caravan_types::node::{DriverInfo, HostVolumeInfo, Node, NodeEvent, NodeNetwork};
use caravan_types::plugin::{CsiInfo, LeftMount, PluginRole};
use caravan_types::{PluginId, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The prefix of the mode of a network by CNI plugins.
pub(crate) const CNI_MODE: &str = "cni/";

/// The networks of CNI plugins that a node offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CniOffer {
    /// The names of the networks.
    pub(crate) networks: Vec<String>,
    /// The versions of the installed plugins, by name.
    pub(crate) versions: BTreeMap<String, String>,
}

/// The node and its unsent events. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    node: Arc<watch::Sender<Arc<Node>>>,
    events: Arc<Events>,
    /// The attributes outside of `driver.` that each driver added to the node.
    added: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
}

#[derive(Debug, Default)]
struct Events {
    unsent: Mutex<Vec<NodeEvent>>,
    ready: Notify,
}

impl NodeState {
    /// Creates the state with a first node.
    pub(crate) fn new(node: Node) -> Self {
        Self {
            node: Arc::new(watch::Sender::new(Arc::new(node))),
            events: Arc::default(),
            added: Arc::default(),
        }
    }
    /// Returns the current node.
    pub(crate) fn get(&self) -> Arc<Node> {
        Arc::clone(&self.node.borrow())
    }
    /// Returns a receiver of the node's changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Node>> {
        self.node.subscribe()
    }

    fn update(&self, change: impl FnOnce(&mut Node)) {
        self.node.send_if_modified(|node| {
            let before = Arc::clone(node);
            change(Arc::make_mut(node));
            *before != **node
        });
    }

    /// Writes the fingerprint of a driver.
    pub(crate) fn put_driver(&self, name: &str, info: DriverInfo) {
        let before = self.get().drivers.get(name).cloned();
        if before.as_ref().is_some_and(|b| same_driver(b, &info)) {
            return;
        }
        if before.as_ref().is_some_and(|b| b.detected) || !info.detected {
            // A first report is not an event; a change is.
            let was_known = self.get().drivers.contains_key(name);
            if was_known {
                let details = BTreeMap::from([("driver".to_owned(), name.to_owned())]);
                self.event("Driver", &info.health_description, details);
            }
        }
        self.update(|node| {
            let prefix = format!("driver.{name}");
            let mut added = self.added.lock();
            let own = added.entry(name.to_owned()).or_default();
            node.attributes.retain(|key, _| {
                *key != prefix && !key.starts_with(&format!("{prefix}.")) && !own.contains(key)
            });
            own.clear();
            if info.detected {
                for (key, value) in &info.attributes {
                    // A driver may describe the node, but must not replace attributes of the client or of another
                    // driver.
                    let is_other = !key.starts_with("driver.");
                    if is_other && node.attributes.contains_key(key) {
                        continue;
                    }
                    node.attributes.insert(key.clone(), value.clone());
                    if is_other {
                        own.insert(key.clone());
                    }
                }
                node.attributes.insert(prefix, "1".to_owned());
            }
            node.drivers.insert(name.to_owned(), info);
        });
    }

    /// Writes the fingerprint of a plugin.
    pub(crate) fn put_plugin(&self, role: PluginRole, info: CsiInfo) {
        let node = self.get();
        let known = plugins(&node, role).get(&info.plugin_id);
        let says_new = known
            .is_some_and(|k| k.healthy != info.healthy || k.health_description != info.health_description);
        if says_new {
            let kind = match role {
                PluginRole::Controller => "controller",
                PluginRole::Node => "node",
            };
            let details = BTreeMap::from([
                ("plugin".to_owned(), info.plugin_id.to_string()),
                ("type".to_owned(), kind.to_owned()),
            ]);
            self.event("CSI", &info.health_description, details);
        }
        self.update(|node| {
            let map = match role {
                PluginRole::Controller => &mut node.csi_controller_plugins,
                PluginRole::Node => &mut node.csi_node_plugins,
            };
            map.insert(info.plugin_id.clone(), info);
        });
    }

    /// Removes a plugin that no allocation serves any more.
    pub(crate) fn remove_plugin(&self, role: PluginRole, plugin: &PluginId) {
        self.update(|node| {
            match role {
                PluginRole::Controller => node.csi_controller_plugins.remove(plugin),
                PluginRole::Node => node.csi_node_plugins.remove(plugin),
            };
        });
    }

    /// Writes the mounts that plugins left when they ended.
    pub(crate) fn put_left_mounts(&self, mounts: Vec<LeftMount>) {
        self.update(|node| node.left_mounts = mounts);
    }

    /// Writes the host volumes that the node offers.
    pub(crate) fn put_host_volumes(&self, volumes: BTreeMap<String, HostVolumeInfo>) {
        self.update(|node| node.host_volumes = volumes);
    }

    /// Writes the devices of the node, and the NUMA nodes of PCI buses that devices are on.
    pub(crate) fn put_devices(&self, devices: Vec<DeviceGroup>, places: &BTreeMap<String, u64>) {
        self.update(|node| {
            node.node_resources.devices = devices;
            let topology = node.node_resources.processors.topology.as_mut();
            if let Some(topology) = topology.and_then(|topology| topology.0.as_object_mut()) {
                topology.remove("BusAssociativity");
                if !places.is_empty() {
                    topology.insert("BusAssociativity".to_owned(), serde_json::json!(places));
                }
            }
        });
    }

    /// Writes the networks of CNI plugins that the node offers, and the versions of the plugins. The built-in bridge
    /// provides the versions of the plugins that are not installed.
    pub(crate) fn put_cni(&self, offer: CniOffer) {
        self.update(|node| {
            let resources = &mut node.node_resources;
            resources.networks.retain(|network| !network.mode.starts_with(CNI_MODE));
            resources.node_networks.retain(|network| !network.mode.starts_with(CNI_MODE));
            for name in &offer.networks {
                let mode = format!("{CNI_MODE}{name}");
                resources.networks.push(Network { mode: mode.clone(), ..Network::default() });
                resources.node_networks.push(NodeNetwork { mode, ..NodeNetwork::default() });
            }
            let has_bridge = node.attributes.contains_key(fingerprint::BUILT_IN);
            node.attributes.retain(|key, _| !key.starts_with(fingerprint::PLUGIN_VERSIONS));
            if has_bridge {
                fingerprint::stand_for_plugins(&mut node.attributes);
            }
            for (name, version) in offer.versions {
                node.attributes.insert(format!("{}{name}", fingerprint::PLUGIN_VERSIONS), version);
            }
        });
    }

    /// Writes the node metadata.
    pub(crate) fn put_meta(&self, meta: BTreeMap<String, String>) {
        self.update(|node| node.meta = meta);
    }

    /// Writes one attribute.
    pub(crate) fn put_attribute(&self, key: &str, value: String) {
        self.update(|node| drop(node.attributes.insert(key.to_owned(), value)));
    }

    /// Writes all attributes of a group; attributes of the group that were not found are removed.
    pub(crate) fn put_attributes(
        &self,
        group: impl IntoIterator<Item = String>,
        found: BTreeMap<String, String>,
    ) {
        self.update(|node| {
            for key in group {
                node.attributes.remove(&key);
            }
            node.attributes.extend(found);
        });
    }

    /// Records a node event.
    pub(crate) fn event(&self, subsystem: &str, message: &str, details: BTreeMap<String, String>) {
        let event = NodeEvent {
            message: message.to_owned(),
            subsystem: subsystem.to_owned(),
            details,
            timestamp: Time(clock::now().0),
            create_index: 0,
        };
        self.events.unsent.lock().push(event);
        self.events.ready.notify_one();
    }

    /// Waits for events, and removes and returns all of them.
    pub(crate) async fn take_events(&self) -> Vec<NodeEvent> {
        loop {
            let events = std::mem::take(&mut *self.events.unsent.lock());
            if !events.is_empty() {
                return events;
            }
            self.events.ready.notified().await;
        }
    }

    /// Queues events again that could not be sent; only the newest are kept, as on the servers.
    pub(crate) fn give_back(&self, mut events: Vec<NodeEvent>) {
        let mut unsent = self.events.unsent.lock();
        events.append(&mut unsent);
        let surplus = events.len().saturating_sub(Node::MAX_EVENTS);
        events.drain(..surplus);
        *unsent = events;
        self.events.ready.notify_one();
    }
}

fn plugins(node: &Node, role: PluginRole) -> &BTreeMap<PluginId, CsiInfo> {
    match role {
        PluginRole::Controller => &node.csi_controller_plugins,
        PluginRole::Node => &node.csi_node_plugins,
    }
}

fn same_driver(a: &DriverInfo, b: &DriverInfo) -> bool {
    DriverInfo { update_time: Time(0), ..a.clone() } == DriverInfo { update_time: Time(0), ..b.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csi(healthy: bool, words: &str, at: i64) -> CsiInfo {
        CsiInfo {
            plugin_id: "p".into(),
            healthy,
            health_description: words.into(),
            update_time: Time(at),
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn a_change_of_health_is_an_event_and_a_first_report_is_not() {
        let state = NodeState::new(Node::default());
        state.put_plugin(PluginRole::Node, csi(false, "initial fingerprint not completed", 1));
        state.put_plugin(PluginRole::Node, csi(true, "healthy", 2));
        let events = state.take_events().await;
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].subsystem.as_str(), events[0].message.as_str()), ("CSI", "healthy"));
        assert_eq!(events[0].details["type"], "node");
        state.remove_plugin(PluginRole::Node, &"p".into());
        assert!(state.get().csi_node_plugins.is_empty());
    }

    #[test]
    fn a_driver_shows_in_the_attributes_while_detected() {
        let state = NodeState::new(Node::default());
        let info = DriverInfo {
            detected: true,
            healthy: true,
            attributes: BTreeMap::from([("driver.exec".to_owned(), "true".to_owned())]),
            ..Default::default()
        };
        state.put_driver("exec", info);
        assert_eq!(state.get().attributes["driver.exec"], "1");
        state.put_driver("exec", DriverInfo::default());
        assert!(!state.get().attributes.contains_key("driver.exec"));
    }

    #[test]
    fn a_driver_adds_attributes_and_replaces_none() {
        let node =
            Node { attributes: BTreeMap::from([("kernel.name".into(), "linux".into())]), ..Node::default() };
        let state = NodeState::new(node);
        let report = |pairs: &[(&str, &str)]| DriverInfo {
            detected: true,
            attributes: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Default::default()
        };
        state.put_driver("x", report(&[("kernel.name", "none"), ("disk.kind", "ssd")]));
        assert_eq!(state.get().attributes["kernel.name"], "linux");
        assert_eq!(state.get().attributes["disk.kind"], "ssd");
        state.put_driver("x", report(&[("driver.x.y", "1")]));
        assert_eq!(state.get().attributes["kernel.name"], "linux");
        assert!(!state.get().attributes.contains_key("disk.kind"));
    }

    #[tokio::test]
    async fn unsent_events_come_back_in_order() {
        let state = NodeState::new(Node::default());
        for n in 0..12 {
            state.event("Storage", &n.to_string(), BTreeMap::new());
        }
        let events = state.take_events().await;
        state.event("Storage", "last", BTreeMap::new());
        state.give_back(events);
        let events = state.take_events().await;
        assert_eq!(events.len(), Node::MAX_EVENTS);
        assert_eq!(events.last().map(|e| e.message.as_str()), Some("last"));
    }
}
