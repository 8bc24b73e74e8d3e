//! Fingerprint of the built-in bridge (docs/reference/network.md, sections 1.2 and 3.2).

use caravan_networks::BridgeConfig;
use caravan_types::job::Network;
use caravan_types::node::{NodeNetwork, NodeResources};
use std::collections::BTreeMap;

/// The attribute of a node whose bridge is built in.
pub(crate) const BUILT_IN: &str = "caravan.bridge";
/// The prefix of the attributes with the versions of CNI plugins.
pub(crate) const PLUGIN_VERSIONS: &str = "plugins.cni.version.";
/// The CNI plugins whose versions jobs of mode `bridge` require. The built-in bridge does their work.
const PLUGINS: [&str; 5] = ["bridge", "firewall", "host-local", "loopback", "portmap"];
/// The version of the plugins whose behaviour the built-in bridge has.
const PLUGIN_VERSION: &str = "v1.6.0";

/// Adds the bridge to the resources and attributes of the node.
pub(super) fn add(
    config: &BridgeConfig,
    resources: &mut NodeResources,
    attributes: &mut BTreeMap<String, String>,
) {
    let is_default = config.name == BridgeConfig::default().name;
    resources.networks.push(Network { mode: "bridge".to_owned(), ..Default::default() });
    resources.node_networks.push(NodeNetwork {
        mode: "bridge".to_owned(),
        // As Nomad reports a bridge whose name is not configured.
        device: if is_default { String::new() } else { config.name.clone() },
        capacity: config.capacity(),
        ..Default::default()
    });
    attributes.insert("nomad.bridge.hairpin_mode".to_owned(), config.hairpin.to_string());
    attributes.insert(BUILT_IN.to_owned(), "built-in".to_owned());
    stand_for_plugins(attributes);
}

/// Adds the versions of the plugins whose work the bridge does.
pub(crate) fn stand_for_plugins(attributes: &mut BTreeMap<String, String>) {
    for plugin in PLUGINS {
        attributes.insert(format!("{PLUGIN_VERSIONS}{plugin}"), PLUGIN_VERSION.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constraints_of_bridge_jobs_hold() {
        let (mut resources, mut attributes) = (NodeResources::default(), BTreeMap::new());
        add(&BridgeConfig::default(), &mut resources, &mut attributes);
        assert_eq!(attributes["plugins.cni.version.host-local"], "v1.6.0");
        assert_eq!(attributes["nomad.bridge.hairpin_mode"], "false");
        assert_eq!(
            (resources.networks[0].mode.as_str(), resources.node_networks[0].capacity),
            ("bridge", 1023)
        );
    }
}
