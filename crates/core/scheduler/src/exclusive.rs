//! The cores and devices of a node that one allocation uses alone, and their common NUMA node.

use crate::cores::{self, Numa};
use crate::device::{self, Offer, Taken};
use caravan_lang::constraint::Matcher;
use caravan_types::job::TaskGroup;
use caravan_types::node::Node;
use std::collections::BTreeSet;

/// The dimension of a node that has the cores and the devices, but on different NUMA nodes.
pub(crate) const APART: &str = "numa-devices";

/// Picks free cores and devices of a node for a group. Devices in the list of `numa` belong to the NUMA node of the
/// cores. If no NUMA node has both, the affinity `prefer` permits several NUMA nodes. The error is the exhausted
/// dimension.
pub(crate) fn pick(
    matcher: &mut Matcher,
    node: &Node,
    (used, taken): (&BTreeSet<u16>, &Taken),
    group: &TaskGroup,
    (desired, numa): (usize, Numa),
) -> Result<(Vec<u16>, Offer), String> {
    if device::near_cores(group) && desired > 0 {
        for (place, cores) in cores::together(node, used, desired) {
            if let Ok(offer) = device::offer(matcher, node, taken, group, Some(place)) {
                return Ok((cores, offer));
            }
        }
    }
    let cores = cores::pick(node, used, desired, numa).map_err(str::to_owned)?;
    let offer = match device::requested(group).next() {
        Some(_) => device::offer(matcher, node, taken, group, None)?,
        None => Offer::default(),
    };
    match numa {
        Numa::Require if device::near_cores(group) => Err(APART.to_owned()),
        _ => Ok((cores, offer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::device::{DeviceGroup, DeviceInstance, DeviceLocality};
    use caravan_types::job::{RequestedDevice, Task};
    use caravan_types::node::Hardware;
    use serde_json::json;

    /// Returns a node with four cores, two per NUMA node, whose only device is near the second NUMA node.
    fn node() -> Node {
        let mut node = Node::default();
        node.node_resources.cpu.reservable_cpu_cores = (0..4).collect();
        let core = |id: u16| json!({"ID": id, "NodeID": id / 2});
        node.node_resources.processors.topology = Some(Hardware(json!({
            "Nodes": [0, 1], "Cores": (0..4).map(core).collect::<Vec<_>>(), "BusAssociativity": {"b": 1},
        })));
        node.node_resources.devices.push(DeviceGroup {
            kind: "gpu".into(),
            instances: vec![DeviceInstance {
                id: "g".into(),
                healthy: true,
                locality: Some(DeviceLocality { pci_bus_id: "b".into() }),
                ..DeviceInstance::default()
            }],
            ..DeviceGroup::default()
        });
        node
    }

    fn group(affinity: &str) -> TaskGroup {
        let mut task = Task { name: "t".into(), ..Task::default() };
        task.resources.devices =
            vec![RequestedDevice { name: "gpu".into(), count: 1, ..RequestedDevice::default() }];
        task.resources.numa = Some(Box::new(caravan_types::job::Numa {
            affinity: affinity.into(),
            devices: Some(vec!["gpu".into()]),
        }));
        TaskGroup { tasks: vec![task], ..TaskGroup::default() }
    }

    fn picked(affinity: &str, used: &[u16], desired: usize) -> Result<Vec<u16>, String> {
        let (group, used) = (group(affinity), used.iter().copied().collect());
        let both = (desired, Numa::from_group(&group));
        pick(&mut Matcher::new(), &node(), (&used, &Taken::new()), &group, both).map(|(cores, _)| cores)
    }

    #[test]
    fn cores_are_picked_near_the_devices() {
        for affinity in ["prefer", "require"] {
            assert_eq!(picked(affinity, &[], 1), Ok(vec![2]));
            assert_eq!(picked(affinity, &[2], 1), Ok(vec![3]));
        }
        assert_eq!(picked("none", &[], 1), Ok(vec![0]));
        assert_eq!(picked("prefer", &[2], 2), Ok(vec![0, 1]));
        assert_eq!(picked("require", &[2], 2), Err(APART.to_owned()));
        assert_eq!(picked("require", &[1, 2], 2), Err("numa-cores".to_owned()));
    }
}
