//! The check whether allocations fit a node together, by the planner and against the newest state.

use crate::device;
use crate::ports::{self, TakenPorts};
use crate::resources::Amount;
use caravan_types::alloc::{Allocation, Used};
use caravan_types::node::Node;
use std::collections::BTreeSet;

/// The resources of a node that its allocations use, to which allocations are added one by one.
#[derive(Clone, Debug, Default)]
pub struct Room {
    amount: Amount,
    count: i64,
    ports: TakenPorts,
    /// The number of allocations that are connected with the bridge of the node.
    bridged: u32,
    cores: BTreeSet<u16>,
    devices: device::Taken,
    /// The first resource that two of the existing allocations both use.
    broken: Option<String>,
}

fn cores_of(alloc: &Allocation) -> impl Iterator<Item = u16> {
    let tasks = alloc.allocated_resources.iter().flat_map(|supplied| supplied.tasks.values());
    tasks.flat_map(|task| task.cpu.reserved_cores.iter().copied())
}

impl Room {
    /// Returns the room of a node from a sum of resources. The result is valid only if all added allocations have no
    /// ports, cores or devices ([`Room::is_plain`]).
    pub fn of_used(used: Used) -> Self {
        Self { amount: used.amount, count: i64::from(used.allocs), ..Self::default() }
    }

    /// Returns whether an allocation needs only CPU, memory and disk.
    pub fn is_plain(alloc: &Allocation) -> bool {
        ports::of_alloc(alloc).next().is_none()
            && !ports::uses_bridge(alloc)
            && cores_of(alloc).next().is_none()
            && device::of_alloc(alloc).next().is_none()
    }

    /// Subtracts an allocation from the amounts.
    pub fn free(&mut self, alloc: &Allocation) {
        self.amount = self.amount.minus(Amount::of_alloc(alloc));
        self.count -= 1;
    }

    /// Adds an existing allocation, even if the node has no room for it.
    pub fn put(&mut self, alloc: &Allocation) {
        if let Some(conflict) = self.conflict(alloc) {
            self.broken.get_or_insert(conflict);
        }
        self.take(alloc);
    }

    /// Returns an exclusive resource of the allocation that another allocation already has, or that the allocation
    /// has twice.
    fn conflict(&self, alloc: &Allocation) -> Option<String> {
        // Two ports of one allocation must not collide either, unless the port ignores collisions.
        let mut own = TakenPorts::default();
        let taken = |(address, port): &(&str, u16)| {
            self.ports.contains(address, *port) || !own.insert(address, *port)
        };
        if let Some((_, port)) = ports::of_alloc(alloc).find(taken) {
            return Some(format!("ports (network: port collision {port})"));
        }
        let mut own = BTreeSet::new();
        if cores_of(alloc).any(|core| self.cores.contains(&core) || !own.insert(core)) {
            return Some("cores".to_owned());
        }
        let mut own = device::Taken::new();
        let taken = |instance| self.devices.contains(&instance) || !own.insert(instance);
        device::of_alloc(alloc).any(taken).then(|| "devices".to_owned())
    }

    fn take(&mut self, alloc: &Allocation) {
        for (address, port) in ports::of_alloc(alloc) {
            self.ports.insert(address, port);
        }
        self.bridged += u32::from(ports::uses_bridge(alloc));
        self.cores.extend(cores_of(alloc));
        self.devices.extend(device::of_alloc(alloc));
        self.amount = self.amount.plus(Amount::of_alloc(alloc));
        self.count += 1;
    }

    /// Adds an allocation if the node has room for all of them together. The error names the exhausted dimension:
    /// `cpu`, `memory`, `disk`, `cores`, `devices`, the number of allocations or the port that two allocations use.
    ///
    /// # Errors
    /// Returns the first exhausted dimension. In this case, nothing is added.
    pub fn add(&mut self, node: &Node, alloc: &Allocation) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let amount = self.amount.plus(Amount::of_alloc(alloc));
        if node.node_max_allocs > 0 && self.count >= node.node_max_allocs {
            return Err(TOO_MANY.to_owned());
        }
        if let Some(dimension) = amount.lacking(Amount::default(), Amount::capacity(node)) {
            return Err(dimension.to_owned());
        }
        if ports::uses_bridge(alloc) {
            ports::bridge_has_room(node, self.bridged)?;
        }
        if let Some(conflict) = self.conflict(alloc) {
            return Err(conflict);
        }
        self.take(alloc);
        Ok(())
    }
}

/// The dimension of a node that already has `node_max_allocs` allocations.
pub(crate) const TOO_MANY: &str = "max allocation exceeded";

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedPort, AllocatedResources, AllocatedTaskResources};

    fn alloc(cpu: i64, cores: &[u16], port: i64) -> Allocation {
        let mut task = AllocatedTaskResources::default();
        task.cpu.cpu_shares = cpu;
        task.cpu.reserved_cores = cores.to_vec();
        let mut supplied = AllocatedResources::default();
        supplied.tasks.insert("t".into(), task);
        supplied.shared.ports.push(AllocatedPort {
            value: port,
            host_ip: "10.0.0.1".into(),
            ..AllocatedPort::default()
        });
        Allocation { allocated_resources: Some(supplied.into()), ..Allocation::default() }
    }

    #[test]
    fn what_is_not_enough_is_named() {
        let mut node = Node::default();
        node.node_resources.cpu.cpu_shares = 1000;
        let check = |allocs: &[Allocation]| {
            let mut room = Room::default();
            allocs.iter().try_for_each(|alloc| room.add(&node, alloc))
        };
        assert_eq!(check(&[alloc(500, &[0], 80), alloc(500, &[1], 81)]), Ok(()));
        assert_eq!(check(&[alloc(500, &[], 80), alloc(501, &[], 81)]), Err("cpu".into()));
        assert_eq!(check(&[alloc(1, &[0], 80), alloc(1, &[0], 81)]), Err("cores".into()));
        assert_eq!(
            check(&[alloc(1, &[], 80), alloc(1, &[], 80)]),
            Err("ports (network: port collision 80)".into())
        );
        // The allocation that did not fit left no resources in use.
        let mut room = Room::default();
        room.put(&alloc(400, &[0], 80));
        assert_eq!(room.add(&node, &alloc(1, &[1, 0], 81)), Err("cores".into()));
        assert_eq!(room.add(&node, &alloc(600, &[1], 81)), Ok(()));
        room.free(&alloc(400, &[], 0));
        assert_eq!(room.add(&node, &alloc(401, &[], 82)), Err("cpu".into()));
        // Two existing allocations have the same port: no further allocation fits.
        room.put(&alloc(1, &[], 81));
        assert_eq!(room.add(&node, &alloc(1, &[], 90)), Err("ports (network: port collision 81)".into()));
    }
}
