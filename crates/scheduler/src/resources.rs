//! Amounts of CPU, memory and disk: what nodes have, groups ask for, and allocations use.

use caravan_types::alloc::{AllocatedResources, Allocation};
use caravan_types::job::{Lifecycle, TaskGroup};
use caravan_types::node::Node;

/// MHz, MB of memory and MB of disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub cpu: i64,
    pub memory: i64,
    pub disk: i64,
}

impl Amount {
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            disk: self.disk.saturating_add(other.disk),
        }
    }

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

    /// What a node has to give: its resources without those that it keeps.
    pub fn capacity(node: &Node) -> Self {
        let (has, keeps) = (&node.node_resources, &node.reserved_resources);
        Self {
            cpu: has.cpu.cpu_shares.saturating_sub(keeps.cpu.cpu_shares),
            memory: has.memory.memory_mb.saturating_sub(keeps.memory.memory_mb),
            disk: has.disk.disk_mb.saturating_sub(keeps.disk.disk_mb),
        }
    }

    /// What an allocation uses.
    pub fn of_alloc(alloc: &Allocation) -> Self {
        alloc.allocated_resources.as_ref().map(Self::of_given).unwrap_or_default()
    }

    fn of_given(given: &AllocatedResources) -> Self {
        let disk = given.shared.disk_mb;
        if let (1, Some(task)) = (given.tasks.len(), given.tasks.values().next()) {
            return Self { cpu: task.cpu.cpu_shares, memory: task.memory.memory_mb, disk };
        }
        let mut phases = Phases::default();
        for (name, task) in &given.tasks {
            let lifecycle = given.task_lifecycles.get(name).and_then(Option::as_ref);
            phases.add(lifecycle, task.cpu.cpu_shares, task.memory.memory_mb);
        }
        Self { disk, ..phases.most() }
    }

    /// The first dimension in which `self` on top of `used` exceeds `all`.
    pub fn lacking(self, used: Self, all: Self) -> Option<&'static str> {
        let over = |wanted: i64, used: i64, all: i64| wanted > 0 && used.saturating_add(wanted) > all;
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

/// Tasks sorted by when they run: what never runs at the same time shares its room.
#[derive(Clone, Copy, Debug, Default)]
struct Phases {
    before: Amount,
    along: Amount,
    main: Amount,
    after: Amount,
}

impl Phases {
    fn add(&mut self, lifecycle: Option<&Lifecycle>, cpu: i64, memory: i64) {
        let phase = match lifecycle.map(|l| (l.hook.as_str(), l.sidecar)) {
            Some(("prestart", true)) => &mut self.along,
            Some(("prestart", false)) => &mut self.before,
            Some(("poststop", _)) => &mut self.after,
            _ => &mut self.main,
        };
        *phase = phase.plus(Amount { cpu, memory, disk: 0 });
    }

    fn most(self) -> Amount {
        self.along.plus(self.before.max(self.main).max(self.after))
    }
}

/// What a group asks for of any node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Without the CPU of tasks that have whole cores.
    pub amount: Amount,
    /// Whole cores of all tasks.
    pub cores: usize,
}

impl Ask {
    pub fn of(group: &TaskGroup) -> Self {
        let mut phases = Phases::default();
        let mut cores = 0_i64;
        for task in &group.tasks {
            let wanted = &task.resources;
            // A task with whole cores gets their share instead.
            let cpu = if wanted.cores > 0 { 0 } else { wanted.cpu };
            phases.add(task.lifecycle.as_ref(), cpu, wanted.memory_mb);
            cores = cores.saturating_add(wanted.cores.max(0));
        }
        let amount = Amount { disk: group.disk_mb(), ..phases.most() };
        Self { amount, cores: usize::try_from(cores).unwrap_or(usize::MAX) }
    }

    /// What it comes to on a node, where whole cores bring their share of the CPU.
    pub fn on(&self, node: &Node) -> Amount {
        if self.cores == 0 {
            return self.amount;
        }
        Amount { cpu: self.amount.cpu.saturating_add(core_shares(node, self.cores)), ..self.amount }
    }
}

/// The CPU shares that go with whole cores.
pub(crate) fn core_shares(node: &Node, cores: usize) -> i64 {
    let cpu = &node.node_resources.cpu;
    let all = i64::from(cpu.total_cpu_cores).max(1);
    (cpu.cpu_shares / all).saturating_mul(i64::try_from(cores).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::Task;

    fn task(name: &str, hook: &str, sidecar: bool, cpu: i64) -> Task {
        let mut task = Task { name: name.into(), ..Task::default() };
        task.resources.cpu = cpu;
        task.resources.memory_mb = cpu;
        if !hook.is_empty() {
            task.lifecycle = Some(Lifecycle { hook: hook.into(), sidecar });
        }
        task
    }

    #[test]
    fn tasks_that_never_run_together_share_their_room() {
        let group = TaskGroup {
            tasks: vec![
                task("init", "prestart", false, 700),
                task("proxy", "prestart", true, 100),
                task("web", "", false, 400),
                task("watch", "poststart", false, 50),
                task("sweep", "poststop", false, 200),
            ],
            ..TaskGroup::default()
        };
        assert_eq!(Ask::of(&group).amount.cpu, 800);
        let mut alloc = Allocation::default();
        let given = alloc.allocated_resources.get_or_insert_default();
        for task in &group.tasks {
            let own = given.tasks.entry(task.name.clone()).or_default();
            own.cpu.cpu_shares = task.resources.cpu;
            given.task_lifecycles.insert(task.name.clone(), task.lifecycle.clone());
        }
        assert_eq!(Amount::of_alloc(&alloc).cpu, 800);
    }

    #[test]
    fn the_first_lacking_dimension_is_named() {
        let all = Amount { cpu: 10, memory: 10, disk: 10 };
        let ask = Amount { cpu: 5, memory: 5, disk: 0 };
        assert_eq!(ask.lacking(Amount::default(), all), None);
        assert_eq!(ask.lacking(Amount { cpu: 6, memory: 6, disk: 0 }, all), Some("cpu"));
        assert_eq!(ask.lacking(Amount { cpu: 0, memory: 6, disk: 99 }, all), Some("memory"));
    }
}
