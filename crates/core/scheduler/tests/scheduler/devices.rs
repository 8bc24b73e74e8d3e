//! Instances of devices are assigned once, during all events of nodes and servers.

use crate::world::{World, job, node};
use caravan_types::alloc::Allocation;
use caravan_types::device::{DeviceAttribute, DeviceGroup, DeviceInstance};
use caravan_types::job::{Constraint, JobType, RequestedDevice};
use caravan_types::node::Node;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const NODES: [&str; 3] = ["n0", "n1", "n2"];
const JOBS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// A job is submitted: its number of allocations, devices of each, and whether these must have the large model.
    Submit(usize, u32, u64, bool),
    /// An instance changes its health.
    Flip(usize, usize, usize),
    /// An agent restarts: its node has no devices until its plugins report.
    Vanish(usize),
    /// The plugins of all nodes report.
    Report,
    /// The servers restart from their stored state.
    Reload,
    /// Stopping allocations end.
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..JOBS.len(), 0_u32..4, 1_u64..3, any::<bool>()).prop_map(|(j, n, d, l)| Step::Submit(j, n, d, l)),
        2 => (0..NODES.len(), 0_usize..2, 0_usize..3).prop_map(|(n, g, i)| Step::Flip(n, g, i)),
        1 => (0..NODES.len()).prop_map(Step::Vanish),
        1 => Just(Step::Report),
        1 => Just(Step::Reload),
        1 => Just(Step::Settle),
    ]
}

fn devices() -> Vec<DeviceGroup> {
    let group = |name: &str, memory, count: usize| DeviceGroup {
        vendor: "v".into(),
        kind: "gpu".into(),
        name: name.into(),
        instances: (0..count)
            .map(|n| DeviceInstance { id: n.to_string(), healthy: true, ..DeviceInstance::default() })
            .collect(),
        attributes: [("memory".to_owned(), DeviceAttribute::int(memory, "MiB"))].into(),
    };
    vec![group("small", 4096, 3), group("large", 16384, 2)]
}

fn assigned(alloc: &Allocation) -> impl Iterator<Item = (String, String)> + '_ {
    let tasks = alloc.allocated_resources.iter().flat_map(|resources| resources.tasks.values());
    let devices = tasks.flat_map(|task| &task.devices);
    devices.flat_map(|device| device.device_ids.iter().map(|id| (device.name.clone(), id.clone())))
}

fn offers(node: &Node, (name, id): &(String, String)) -> bool {
    let groups = node.node_resources.devices.iter().filter(|group| group.name == *name);
    groups.flat_map(|group| &group.instances).any(|one| one.id == *id && one.healthy)
}

fn reload<T: serde::Serialize + serde::de::DeserializeOwned>(value: &Arc<T>) -> Arc<T> {
    Arc::new(serde_json::from_value(serde_json::to_value(&**value).unwrap()).unwrap())
}

fn submit(world: &mut World, name: &str, count: u32, gpus: u64, large: bool) {
    let mut job = job(name, JobType::Service, count);
    let resources = &mut job.task_groups[0].tasks[0].resources;
    (resources.cpu, resources.memory_mb) = (10, 10);
    let memory = Constraint {
        l_target: "${device.attr.memory}".into(),
        operand: ">=".into(),
        r_target: "8 GiB".into(),
    };
    resources.devices.push(RequestedDevice {
        name: "gpu".into(),
        count: gpus,
        constraints: large.then_some(memory).into_iter().collect(),
        ..RequestedDevice::default()
    });
    world.register(job);
    let known: BTreeSet<_> = world.allocs.keys().cloned().collect();
    world.run(name);
    for alloc in world.allocs.values().filter(|alloc| !known.contains(&alloc.id)) {
        let all: Vec<_> = assigned(alloc).collect();
        assert_eq!(all.len() as u64, gpus);
        assert!(all.iter().all(|one| offers(&world.nodes[&alloc.node_id], one)), "{all:?}");
        assert!(
            all.iter().all(|(name, _)| *name == all[0].0),
            "one request has devices of one kind: {all:?}"
        );
        assert!(!large || all.iter().all(|(name, _)| name == "large"));
    }
}

fn take(world: &mut World, step: &Step) {
    match step {
        Step::Submit(job, count, gpus, large) => submit(world, JOBS[*job], *count, *gpus, *large),
        Step::Flip(node, group, instance) => world.change_node(NODES[*node], |node| {
            let group = node.node_resources.devices.get_mut(*group);
            if let Some(one) = group.and_then(|group| group.instances.get_mut(*instance)) {
                one.healthy = !one.healthy;
            }
        }),
        Step::Vanish(node) => world.change_node(NODES[*node], |node| node.node_resources.devices.clear()),
        Step::Report => {
            for node in NODES {
                world.change_node(node, |node| node.node_resources.devices = devices());
            }
        }
        Step::Reload => {
            world.nodes.values_mut().for_each(|node| *node = reload(node));
            world.allocs.values_mut().for_each(|alloc| *alloc = reload(alloc));
        }
        Step::Settle => world.settle(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn no_instance_is_assigned_twice(steps in prop::collection::vec(step(), 1..20)) {
        let mut world = World::default();
        for id in NODES {
            let mut made = node(id);
            made.node_resources.devices = devices();
            world.set_node(made);
        }
        for step in &steps {
            take(&mut world, step);
            let mut used = BTreeSet::new();
            for alloc in world.allocs.values().filter(|alloc| !alloc.terminal()) {
                for one in assigned(alloc) {
                    let again = !used.insert((alloc.node_id.clone(), one.clone()));
                    prop_assert!(!again, "{one:?} on {} is assigned twice", alloc.node_id);
                }
            }
        }
    }
}

/// Nodes of one class have the same kinds of devices, but not the same number of instances.
#[test]
fn a_node_with_more_instances_is_found_behind_one_with_fewer() {
    let mut world = World::default();
    for (id, count) in [("n0", 1), ("n1", 3), ("n2", 1)] {
        let mut made = node(id);
        made.node_resources.devices = devices();
        made.node_resources.devices[0].instances.truncate(count);
        made.node_resources.devices.truncate(1);
        world.set_node(made);
    }
    assert_eq!(world.nodes["n0"].computed_class, world.nodes["n1"].computed_class);
    submit(&mut world, "a", 1, 3, false);
    assert_eq!(world.running(), ["a.g[0] on n1"]);
}
