//! Where the processors are: sockets and NUMA nodes, as the kernel tells (`http-api` section 5.4).

use super::cpu::Cpu;
use super::text;
use caravan_types::job::Carried;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The topology of this machine; `total` is what all processors can do together, in MHz.
pub(super) fn read(cpu: &Cpu, total: i64) -> Carried {
    let mut nodes = BTreeMap::new();
    for node in 0..u32::try_from(list(&text("/sys/devices/system/node/online")).len()).unwrap_or(0).max(1) {
        for core in list(&text(format!("/sys/devices/system/node/node{node}/cpulist"))) {
            nodes.insert(core, node);
        }
    }
    let socket = |core: u32| {
        let path = format!("/sys/devices/system/cpu/cpu{core}/topology/physical_package_id");
        text(path).trim().parse::<u32>().unwrap_or(0)
    };
    described(cpu, total, &nodes, socket)
}

fn described(cpu: &Cpu, total: i64, nodes: &BTreeMap<u32, u32>, socket: impl Fn(u32) -> u32) -> Carried {
    let cores: Vec<Value> = (0..cpu.cores)
        .map(|id| {
            json!({
                "ID": id,
                "NodeID": nodes.get(&id).copied().unwrap_or(0),
                "SocketID": socket(id),
                "Grade": true,
                "Disable": false,
                "BaseSpeed": cpu.mhz,
                "MaxSpeed": 0,
                "GuessSpeed": 0,
            })
        })
        .collect();
    let mut known: Vec<u32> = nodes.values().copied().collect();
    known.push(0);
    known.sort_unstable();
    known.dedup();
    Carried(json!({
        "Nodes": known,
        "Distances": null,
        "Cores": cores,
        "OverrideTotalCompute": total,
        "OverrideWitholdCompute": 0,
    }))
}

/// The numbers of a list such as `0-3,8`.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?.min(u32::from(u16::MAX)))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_told_with_their_places() {
        let cpu = super::super::cpu::parse("processor: 0\ncpu MHz: 2000\n\nprocessor: 1\n", "");
        let nodes = BTreeMap::from([(0, 0), (1, 1)]);
        let told = described(&cpu, 4000, &nodes, |core| core).0;
        assert_eq!((&told["Nodes"], &told["OverrideTotalCompute"]), (&json!([0, 1]), &json!(4000)));
        assert_eq!((&told["Cores"][1]["NodeID"], &told["Cores"][1]["SocketID"]), (&json!(1), &json!(1)));
        assert_eq!(list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(list(""), [0; 0]);
    }

    proptest::proptest! {
        #[test]
        fn any_list_is_read(text in "[0-9,-]{0,12}") {
            let _ = list(&text);
        }
    }
}
