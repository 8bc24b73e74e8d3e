//! The resources that groups request.

pub(crate) use caravan_types::alloc::{Amount, Phases};
use caravan_types::job::TaskGroup;
use caravan_types::node::Node;

/// The resources that a group requests on any node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// The amount without the CPU of tasks with reserved cores.
    pub amount: Amount,
    /// The number of reserved cores of all tasks.
    pub cores: usize,
}

impl Ask {
    pub fn from_group(group: &TaskGroup) -> Self {
        let mut phases = Phases::default();
        let mut cores = 0_i64;
        for task in &group.tasks {
            let desired = &task.resources;
            // A task with reserved cores gets the CPU shares of its cores instead of the requested CPU.
            let cpu = if desired.cores > 0 { 0 } else { desired.cpu };
            phases.add(task.lifecycle.as_ref(), cpu, desired.memory_mb);
            cores = cores.saturating_add(desired.cores.max(0));
        }
        let amount = Amount { disk: group.disk_mb(), ..phases.most() };
        Self { amount, cores: usize::try_from(cores).unwrap_or(usize::MAX) }
    }

    /// Returns the requested amount on a node, where reserved cores add their CPU shares.
    pub fn on(&self, node: &Node) -> Amount {
        if self.cores == 0 {
            return self.amount;
        }
        Amount { cpu: self.amount.cpu.saturating_add(core_shares(node, self.cores)), ..self.amount }
    }
}

/// Returns the CPU shares of reserved cores.
pub(crate) fn core_shares(node: &Node, cores: usize) -> i64 {
    let cpu = &node.node_resources.cpu;
    let all = i64::from(cpu.total_cpu_cores).max(1);
    (cpu.cpu_shares / all).saturating_mul(i64::try_from(cores).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::AllocatedResources;
    use caravan_types::alloc::Allocation;
    use caravan_types::job::{Lifecycle, Task};
    use std::sync::Arc;

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
        assert_eq!(Ask::from_group(&group).amount.cpu, 800);
        let mut alloc = Allocation::default();
        let mut supplied = AllocatedResources::default();
        for task in &group.tasks {
            let own = supplied.tasks.or_default(task.name.clone());
            own.cpu.cpu_shares = task.resources.cpu;
            supplied.task_lifecycles.insert(task.name.clone(), task.lifecycle.clone());
        }
        alloc.allocated_resources = Some(Arc::new(supplied));
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
