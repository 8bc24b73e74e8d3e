//! Whether allocations fit a node together: the planner's check against the newest state.

use crate::device;
use crate::ports::{self, TakenPorts};
use crate::resources::Amount;
use caravan_types::alloc::Allocation;
use caravan_types::node::Node;
use std::collections::BTreeSet;

/// Whether a node can hold all these allocations at once. The error names what is not enough: `cpu`,
/// `memory`, `disk`, `cores`, `devices`, the number of allocations or the port that two of them have.
pub fn fits<'a>(node: &Node, allocs: impl IntoIterator<Item = &'a Allocation>) -> Result<(), String> {
    let (mut amount, mut count) = (Amount::default(), 0_i64);
    let (mut ports, mut cores, mut devices) = (TakenPorts::default(), BTreeSet::new(), device::Taken::new());
    for alloc in allocs {
        // Two ports of one allocation may not collide either, unless it says so.
        for (address, port) in ports::of_alloc(alloc) {
            if !ports.insert(address, port) {
                return Err(format!("ports (network: port collision {port})"));
            }
        }
        let tasks = alloc.allocated_resources.iter().flat_map(|given| given.tasks.values());
        if !tasks.flat_map(|task| &task.cpu.reserved_cores).all(|core| cores.insert(*core)) {
            return Err("cores".to_owned());
        }
        if !device::of_alloc(alloc).all(|instance| devices.insert(instance)) {
            return Err("devices".to_owned());
        }
        amount = amount.plus(Amount::of_alloc(alloc));
        count += 1;
    }
    if node.node_max_allocs > 0 && count > node.node_max_allocs {
        return Err(TOO_MANY.to_owned());
    }
    match amount.lacking(Amount::default(), Amount::capacity(node)) {
        Some(dimension) => Err(dimension.to_owned()),
        None => Ok(()),
    }
}

/// The dimension of a node that has as many allocations as it may (`node_max_allocs`).
pub(crate) const TOO_MANY: &str = "max allocation exceeded";

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedPort, AllocatedResources, AllocatedTaskResources};

    fn alloc(cpu: i64, cores: &[u16], port: i64) -> Allocation {
        let mut task = AllocatedTaskResources::default();
        task.cpu.cpu_shares = cpu;
        task.cpu.reserved_cores = cores.to_vec();
        let mut given = AllocatedResources::default();
        given.tasks.insert("t".into(), task);
        given.shared.ports.push(AllocatedPort {
            value: port,
            host_ip: "10.0.0.1".into(),
            ..AllocatedPort::default()
        });
        Allocation { allocated_resources: Some(given), ..Allocation::default() }
    }

    #[test]
    fn what_is_not_enough_is_named() {
        let mut node = Node::default();
        node.node_resources.cpu.cpu_shares = 1000;
        let check = |allocs: &[Allocation]| fits(&node, allocs);
        assert_eq!(check(&[alloc(500, &[0], 80), alloc(500, &[1], 81)]), Ok(()));
        assert_eq!(check(&[alloc(500, &[], 80), alloc(501, &[], 81)]), Err("cpu".into()));
        assert_eq!(check(&[alloc(1, &[0], 80), alloc(1, &[0], 81)]), Err("cores".into()));
        assert_eq!(
            check(&[alloc(1, &[], 80), alloc(1, &[], 80)]),
            Err("ports (network: port collision 80)".into())
        );
    }
}
