//! The inputs of an allocation's services.

use super::alloc_state::AllocState;
use super::plan::Planner;
use crate::env::{Inputs as EnvInputs, SeenDirs, TaskEnv};
use crate::services::{Desired, Inputs, desired};
use caravan_types::alloc::Allocation;
use caravan_types::job::Task;
use caravan_types::small::Map;
use std::collections::{BTreeMap, BTreeSet};

impl Planner {
    /// Returns the services and checks that should exist now.
    pub(crate) fn desired_services(&self, state: &AllocState) -> Desired {
        let node = self.node.get();
        let (alloc, tasks, ending, stopping) = {
            let state = state.lock();
            let tasks = state.tasks.iter().map(|(name, slot)| (name.clone(), slot.record.state.clone()));
            let ending =
                state.tasks.iter().filter(|(_, slot)| slot.record.stopping).map(|(name, _)| name.clone());
            (
                state.alloc.clone(),
                tasks.collect::<Map<_, _>>(),
                ending.collect::<BTreeSet<_>>(),
                state.stopping,
            )
        };
        let inputs = Inputs {
            alloc: &alloc,
            tasks: &tasks,
            ending: &ending,
            stopping,
            node: &node.id,
            datacenter: &node.datacenter,
            address: node.attributes.get("unique.network.ip-address").map_or("127.0.0.1", String::as_str),
        };
        desired(&inputs, |task| self.service_env(&alloc, task))
    }

    /// Returns the environment for texts of an allocation's group.
    pub(super) fn group_env(&self, alloc: &Allocation) -> TaskEnv {
        self.service_env(alloc, None)
    }

    /// Returns the environment for texts of services: the environment of the task, or of the group as a whole.
    fn service_env(&self, alloc: &Allocation, task: Option<&str>) -> TaskEnv {
        let (Some(job), Some(group)) = (&alloc.job, alloc.group()) else { return TaskEnv::default() };
        let nobody = Task::default();
        let own = task.and_then(|name| group.task(name)).unwrap_or(&nobody);
        let dirs = SeenDirs { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        TaskEnv::build(&EnvInputs {
            node: &self.node.get(),
            region: &self.region,
            alloc,
            job,
            group,
            task: own,
            dirs: &dirs,
            cgroup_parent: &self.cgroup_parent,
            host: &BTreeMap::new(),
            hooks: &BTreeMap::new(),
        })
    }
}
