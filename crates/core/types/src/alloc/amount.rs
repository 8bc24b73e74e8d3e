//! Amounts of CPU, memory and disk: the capacity of nodes, and the use by allocations.

use super::{AllocatedResources, Allocation};
use crate::job::Lifecycle;
use crate::node::Node;

/// An amount of CPU, memory and disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// CPU in MHz.
    pub cpu: i64,
    /// Memory in MB.
    pub memory: i64,
    /// Disk in MB.
    pub disk: i64,
}

/// The use of a node by all its allocations whose client status is not terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The sum of the amounts of these allocations.
    pub amount: Amount,
    /// The number of these allocations.
    pub allocs: u32,
}

impl Amount {
    /// Returns the sum; it saturates instead of overflowing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            disk: self.disk.saturating_add(other.disk),
        }
    }

    /// Returns the difference, which may be negative.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            disk: self.disk.saturating_sub(other.disk),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            disk: self.disk.max(other.disk),
        }
    }

    /// Returns the capacity of a node: its resources without its reserved resources.
    pub fn capacity(node: &Node) -> Self {
        let (has, keeps) = (&node.node_resources, &node.reserved_resources);
        Self {
            cpu: has.cpu.cpu_shares.saturating_sub(keeps.cpu.cpu_shares),
            memory: has.memory.memory_mb.saturating_sub(keeps.memory.memory_mb),
            disk: has.disk.disk_mb.saturating_sub(keeps.disk.disk_mb),
        }
    }

    /// Returns the resources that the plan reserved for an allocation.
    pub fn of_alloc(alloc: &Allocation) -> Self {
        alloc.allocated_resources.as_deref().map(Self::of_allocated).unwrap_or_default()
    }

    fn of_allocated(supplied: &AllocatedResources) -> Self {
        let disk = supplied.shared.disk_mb;
        if let (1, Some(task)) = (supplied.tasks.len(), supplied.tasks.values().next()) {
            return Self { cpu: task.cpu.cpu_shares, memory: task.memory.memory_mb, disk };
        }
        let mut phases = Phases::default();
        for (name, task) in &supplied.tasks {
            let lifecycle = supplied.task_lifecycles.get(name).and_then(Option::as_ref);
            phases.add(lifecycle, task.cpu.cpu_shares, task.memory.memory_mb);
        }
        Self { disk, ..phases.most() }
    }

    /// Returns the first dimension in which `self` in addition to `used` exceeds `all`.
    pub fn lacking(self, used: Self, all: Self) -> Option<&'static str> {
        let over = |desired: i64, used: i64, all: i64| desired > 0 && used.saturating_add(desired) > all;
        if over(self.cpu, used.cpu, all.cpu) {
            Some("cpu")
        } else if over(self.memory, used.memory, all.memory) {
            Some("memory")
        } else if over(self.disk, used.disk, all.disk) {
            Some("disk")
        } else {
            None
        }
    }
}

/// The resources of a group's tasks by the phase in which they run. Phases that never overlap share their room. For
/// example, a `prestart` task of 500 MB and a main task of 500 MB need 500 MB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phases {
    before: Amount,
    along: Amount,
    main: Amount,
    after: Amount,
}

impl Phases {
    /// Adds a task with its CPU in MHz and its memory in MB.
    pub fn add(&mut self, lifecycle: Option<&Lifecycle>, cpu: i64, memory: i64) {
        let phase = match lifecycle.map(|l| (l.hook.as_str(), l.sidecar)) {
            Some(("prestart", true)) => &mut self.along,
            Some(("prestart", false)) => &mut self.before,
            Some(("poststop", _)) => &mut self.after,
            _ => &mut self.main,
        };
        *phase = phase.plus(Amount { cpu, memory, disk: 0 });
    }

    /// Returns the largest amount that the tasks use at any time.
    pub fn most(self) -> Amount {
        self.along.plus(self.before.max(self.main).max(self.after))
    }
}
