//! Reserved cores of a node: which cores are free, and which share a NUMA node.

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
    pub fn of(group: &TaskGroup) -> Self {
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

/// Picks free cores of a node, from one NUMA node if possible: the one that has the fewest cores left afterwards. The
/// error is the exhausted dimension.
pub(crate) fn pick(
    node: &Node,
    used: &BTreeSet<u16>,
    desired: usize,
    numa: Numa,
) -> Result<Vec<u16>, &'static str> {
    if desired == 0 {
        return Ok(Vec::new());
    }
    let kept = &node.reserved_resources.cpu.reserved_cpu_cores;
    let reservable = node.node_resources.cpu.reservable_cpu_cores.iter().copied();
    let free: Vec<u16> = reservable.filter(|core| !used.contains(core) && !kept.contains(core)).collect();
    if free.len() < desired {
        return Err("cores");
    }
    let places = places(node);
    let mut by_place: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for core in &free {
        by_place.entry(places.get(core).copied().unwrap_or(0)).or_default().push(*core);
    }
    let together = by_place.into_values().filter(|cores| cores.len() >= desired).min_by_key(Vec::len);
    match (together, numa) {
        (Some(mut cores), _) => {
            cores.truncate(desired);
            Ok(cores)
        }
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
