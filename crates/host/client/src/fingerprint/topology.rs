//! Topology of the processors: sockets and NUMA nodes, as the kernel reports them (docs/reference/http-api.md, section
//! 5.4).

use super::cpu::Cpu;
use super::text;
use caravan_types::cores::{format, parse};
use caravan_types::node::Hardware;
use caravan_types::node::ReservedCpu;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Sockets and NUMA nodes by processor, and the distances between NUMA nodes.
#[derive(Debug, Default)]
pub(super) struct Topology {
    /// NUMA node by processor.
    nodes: BTreeMap<u16, u16>,
    sockets: BTreeMap<u16, u16>,
    /// The distances of each NUMA node to all NUMA nodes.
    distances: Vec<Vec<u32>>,
}

/// Reads the topology of this machine.
pub(super) fn read() -> Topology {
    let mut out = Topology::default();
    let list = |path: String| parse(&text(path)).unwrap_or_default();
    for node in list("/sys/devices/system/node/online".to_owned()) {
        for core in list(format!("/sys/devices/system/node/node{node}/cpulist")) {
            out.nodes.insert(core, node);
            let path = format!("/sys/devices/system/cpu/cpu{core}/topology/physical_package_id");
            out.sockets.insert(core, text(path).trim().parse().unwrap_or(0));
        }
        let distances = text(format!("/sys/devices/system/node/node{node}/distance"));
        out.distances.push(distances.split_whitespace().filter_map(|number| number.parse().ok()).collect());
    }
    out
}

impl Topology {
    fn node(&self, core: u16) -> u16 {
        self.nodes.get(&core).copied().unwrap_or(0)
    }

    fn by_node(&self, cpu: &Cpu) -> BTreeMap<u16, BTreeSet<u16>> {
        let mut out: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
        for core in &cpu.cores {
            out.entry(self.node(*core)).or_default().insert(*core);
        }
        out
    }

    /// Adds `numa.node.count` and `numa.node<n>.cores`.
    pub(super) fn add_attributes(&self, cpu: &Cpu, to: &mut BTreeMap<String, String>) {
        let nodes = self.by_node(cpu);
        to.insert("numa.node.count".to_owned(), nodes.len().to_string());
        to.extend(nodes.into_iter().map(|(node, cores)| (format!("numa.node{node}.cores"), format(cores))));
    }

    /// Returns the topology in the form that clients expect. `total` is the capacity of all processors in MHz, `kept`
    /// the processors and the capacity that the host reserves.
    pub(super) fn describe(&self, cpu: &Cpu, total: i64, kept: &ReservedCpu) -> Hardware {
        let core = |id: &u16| {
            json!({
                "ID": id,
                "NodeID": self.node(*id),
                "SocketID": self.sockets.get(id).copied().unwrap_or(0),
                "Grade": true,
                "Disable": kept.reserved_cpu_cores.contains(id),
                "BaseSpeed": cpu.mhz,
                "MaxSpeed": 0,
                "GuessSpeed": 0,
            })
        };
        let nodes: Vec<u16> = self.by_node(cpu).into_keys().collect();
        // A single NUMA node has no distances.
        let distances = if nodes.len() > 1 { json!(self.distances) } else { Value::Null };
        Hardware(json!({
            "Nodes": nodes,
            "Distances": distances,
            "Cores": cpu.cores.iter().map(core).collect::<Vec<Value>>(),
            "OverrideTotalCompute": total,
            "OverrideWitholdCompute": 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_reported_with_their_places() {
        let cpu = super::super::cpu::parse("processor: 0\ncpu MHz: 2000\n\nprocessor: 3\n", "");
        let places = [(0, 0), (3, 1)].into();
        let topology =
            Topology { nodes: places, sockets: [(3, 1)].into(), distances: vec![vec![10, 21], vec![21, 10]] };
        let kept = ReservedCpu { reserved_cpu_cores: vec![3], ..ReservedCpu::default() };
        let described = topology.describe(&cpu, 4000, &kept).0;
        assert_eq!((&described["Nodes"], &described["OverrideTotalCompute"]), (&json!([0, 1]), &json!(4000)));
        let last = &described["Cores"][1];
        assert_eq!((&last["ID"], &last["NodeID"], &last["SocketID"]), (&json!(3), &json!(1), &json!(1)));
        assert_eq!((&described["Cores"][0]["Disable"], &last["Disable"]), (&json!(false), &json!(true)));
        assert_eq!(described["Distances"], json!([[10, 21], [21, 10]]));
        let mut attributes = BTreeMap::new();
        topology.add_attributes(&cpu, &mut attributes);
        let described: Vec<(&str, &str)> = attributes.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            described,
            [("numa.node.count", "2"), ("numa.node0.cores", "0"), ("numa.node1.cores", "3")]
        );
        let described = Topology::default().describe(&cpu, 1, &ReservedCpu::default()).0;
        assert_eq!((&described["Nodes"], &described["Distances"]), (&json!([0]), &Value::Null));
    }
}
