//! The reserved cores of a node: the free cores, and the cores that share a NUMA node.

use caravan_types::job::TaskGroup;
use caravan_types::node::Node;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The NUMA affinity of a group's reserved cores (docs/reference/jobspec.md, section 4.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numa {
    /// Prefers cores of one NUMA node.
    Prefer,
    /// Requires cores of one NUMA node.
    Require,
}

impl Numa {
    pub fn from_group(group: &TaskGroup) -> Self {
        let mut wishes = group.tasks.iter().filter_map(|task| task.resources.numa_wish());
        if wishes.any(|wish| wish == "require") { Self::Require } else { Self::Prefer }
    }
}

/// Returns the NUMA node of each core, as far as the node reports it.
fn places(node: &Node) -> BTreeMap<u16, u64> {
    let topology = node.node_resources.processors.topology.as_ref();
    let cores = topology.and_then(|t| t.0.get("Cores")).and_then(Value::as_array);
    let number = |core: &Value, key: &str| core.get(key).and_then(Value::as_u64);
    let place = |core: &Value| Some((u16::try_from(number(core, "ID")?).ok()?, number(core, "NodeID")?));
    cores.into_iter().flatten().filter_map(place).collect()
}

/// Returns the NUMA node of a device on the PCI bus. A machine with a single NUMA node needs no `bus`.
pub(crate) fn place_of_bus(node: &Node, bus: Option<&str>) -> Option<u64> {
    let topology = &node.node_resources.processors.topology.as_ref()?.0;
    let known = topology.get("BusAssociativity").and_then(|buses| buses.get(bus?)).and_then(Value::as_u64);
    known.or_else(|| match topology.get("Nodes").and_then(Value::as_array)?.as_slice() {
        [only] => only.as_u64(),
        _ => None,
    })
}

/// Returns the free cores of a node by their NUMA node, in ascending order of the number of free cores. NUMA nodes
/// with too few free cores are omitted.
pub(crate) fn together(node: &Node, used: &BTreeSet<u16>, desired: usize) -> Vec<(u64, Vec<u16>)> {
    let places = places(node);
    let mut by_place: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for core in free(node, used) {
        by_place.entry(places.get(&core).copied().unwrap_or(0)).or_default().push(core);
    }
    let mut enough: Vec<_> = by_place.into_iter().filter(|(_, cores)| cores.len() >= desired).collect();
    enough.sort_by_key(|(_, cores)| cores.len());
    enough.iter_mut().for_each(|(_, cores)| cores.truncate(desired));
    enough
}

fn free(node: &Node, used: &BTreeSet<u16>) -> Vec<u16> {
    let kept = &node.reserved_resources.cpu.reserved_cpu_cores;
    let reservable = node.node_resources.cpu.reservable_cpu_cores.iter().copied();
    reservable.filter(|core| !used.contains(core) && !kept.contains(core)).collect()
}

/// Picks free cores of a node, from one NUMA node if possible. It chooses the NUMA node that has the fewest cores
/// left afterwards. The error is the exhausted dimension.
pub(crate) fn pick(
    node: &Node,
    used: &BTreeSet<u16>,
    desired: usize,
    numa: Numa,
) -> Result<Vec<u16>, &'static str> {
    if desired == 0 {
        return Ok(Vec::new());
    }
    let free = free(node, used);
    if free.len() < desired {
        return Err("cores");
    }
    match (together(node, used, desired).into_iter().next(), numa) {
        (Some((_, cores)), _) => Ok(cores),
        (None, Numa::Prefer) => Ok(free.into_iter().take(desired).collect()),
        (None, Numa::Require) => Err("numa-cores"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::node::Hardware;
    use serde_json::json;

    fn node() -> Node {
        let mut node = Node::default();
        node.node_resources.cpu.reservable_cpu_cores = (0..6).collect();
        let core = |id: u16| json!({"ID": id, "NodeID": id / 3});
        let cores: Vec<Value> = (0..6).map(core).collect();
        node.node_resources.processors.topology = Some(Hardware(json!({ "Cores": cores })));
        node
    }

    #[test]
    fn cores_of_one_numa_node_go_together() {
        let used = BTreeSet::from([0, 5]);
        assert_eq!(pick(&node(), &BTreeSet::from([0]), 2, Numa::Prefer), Ok(vec![1, 2]));
        assert_eq!(pick(&node(), &BTreeSet::from([0]), 3, Numa::Prefer), Ok(vec![3, 4, 5]));
        assert_eq!(pick(&node(), &used, 3, Numa::Prefer), Ok(vec![1, 2, 3]));
        assert_eq!(pick(&node(), &used, 3, Numa::Require), Err("numa-cores"));
        assert_eq!(pick(&node(), &used, 5, Numa::Prefer), Err("cores"));
    }
}
