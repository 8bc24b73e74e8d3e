//! Every resource is assigned once, within the capacity, and only where the job's conditions hold. The checks do not
//! use the scheduler's own arithmetic and languages.

use crate::world::{NOW, World, job, node, volume, with_volume};
use caravan_scheduler::{Params, schedule};
use caravan_types::alloc::Allocation;
use caravan_types::eval::Trigger;
use caravan_types::job::{Constraint, Job, JobType, Network, Numa, Port, RequestedDevice, VolumeRequest};
use caravan_types::node::{Hardware, Node};
use caravan_types::volume::{AccessMode, AttachmentMode};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];
const JOBS: [&str; 4] = ["a", "b", "c", "d"];
const KINDS: [JobType; 4] = [JobType::Service, JobType::Batch, JobType::System, JobType::Service];
/// The volumes with writers on one node, except the last, which all nodes may write to.
const VOLUMES: [&str; 4] = ["v0", "v1", "v2", "shared"];
/// The maximum number of volumes of the plugin on a node.
const MAX_VOLUMES: usize = 2;

/// The conditions, and the nodes that meet each of them.
const CONDITIONS: [(&str, &str, &str, &[usize]); 14] = [
    ("${attr.v}", "version", ">= 1.3, < 2", &[1]),
    ("${attr.v}", "semver", "> 1.9.0", &[1, 2]),
    ("${attr.v}", "regexp", "^[12]\\.[0-9]\\.", &[0, 2]),
    ("${attr.v}", "is_set", "", &[0, 1, 2]),
    ("${attr.v}", "is_not_set", "", &[3]),
    ("${attr.v}", "!=", "2.0.0", &[0, 1, 3]),
    ("${attr.v}", "=", "2.0.0", &[2]),
    ("${meta.tags}", "set_contains", "a,b", &[0, 2]),
    ("${meta.tags}", "set_contains_any", "c,z", &[0]),
    ("${meta.weight}", "<", "10", &[0, 2]),
    ("${meta.weight}", ">=", "10", &[1]),
    ("${node.unique.name}", "=", "host-n2", &[2]),
    ("${node.class}", "is", "small", &[0, 1, 2, 3]),
    ("${node.datacenter}", "not", "dc1", &[]),
];

fn cluster() -> World {
    let mut world = World::default();
    for (n, id) in NODES.iter().enumerate() {
        let mut made = node(id);
        let mut set = |key: &str, values: [&str; 4]| {
            if !values[n].is_empty() {
                made.meta.insert(key.into(), values[n].into());
            }
        };
        set("tags", ["a,b,c", "a", "b,a", ""]);
        set("weight", ["9", "10", "2", ""]);
        if n < 3 {
            made.attributes.insert("v".into(), ["1.2.3", "1.10.0", "2.0.0"][n].into());
        }
        let core = |id: u16| json!({"ID": id, "NodeID": id / 2});
        made.node_resources.processors.topology =
            Some(Hardware(json!({"Cores": (0..4).map(core).collect::<Vec<Value>>()})));
        match n {
            0 => {
                made.reserved_resources.cpu.cpu_shares = 1000;
                made.reserved_resources.cpu.reserved_cpu_cores = vec![0];
                made.reserved_resources.memory.memory_mb = 500;
                made.reserved_resources.networks.reserved_host_ports = "8080,20000-20004".into();
            }
            1 => made.node_max_allocs = 2,
            2 => {
                let one = |id: u32| json!({"ID": format!("g{id}"), "Healthy": id != 1});
                let instances: Vec<Value> = (0..3).map(one).collect();
                let gpu = json!({"Vendor": "v", "Type": "gpu", "Name": "m", "Instances": instances});
                made.node_resources.devices.push(serde_json::from_value(gpu).unwrap());
            }
            _ => made.node_resources.cpu.reservable_cpu_cores = vec![2, 3],
        }
        world.set_node(made);
    }
    world.install_plugin(i64::try_from(MAX_VOLUMES).unwrap());
    for id in VOLUMES {
        let mode =
            if id == "shared" { AccessMode::MultiNodeMultiWriter } else { AccessMode::SingleNodeWriter };
        world.set_volume(volume(id, mode));
    }
    world
}

#[derive(Clone, Debug)]
struct Wish {
    job: usize,
    count: u32,
    cpu: i64,
    cores: i64,
    numa: usize,
    gpus: u64,
    ports: usize,
    volumes: BTreeSet<usize>,
    conditions: Vec<usize>,
    apart: Option<u32>,
    settle: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    let numbers =
        (0_usize..4, 0_u32..5, 1_i64..1500, prop_oneof![2 => Just(0_i64), 1 => 1_i64..4], 0_usize..3);
    let supplied = (
        prop_oneof![4 => Just(0_u64), 1 => 1_u64..3],
        0_usize..3,
        prop::collection::btree_set(0_usize..4, 0..3),
    );
    let rules = (
        prop::collection::vec(0_usize..CONDITIONS.len(), 0..2),
        prop::option::weighted(0.3, 1_u32..3),
        any::<bool>(),
    );
    (numbers, supplied, rules).prop_map(
        |((job, count, cpu, cores, numa), (gpus, ports, volumes), (conditions, apart, settle))| Wish {
            job,
            count,
            cpu,
            cores,
            numa,
            gpus,
            ports,
            volumes,
            conditions,
            apart,
            settle,
        },
    )
}

fn condition(at: usize) -> Constraint {
    let (left, operand, right, _) = CONDITIONS[at];
    Constraint { l_target: left.into(), operand: operand.into(), r_target: right.into() }
}

fn build(wish: &Wish) -> Job {
    let kind = KINDS[wish.job];
    let count = if kind == JobType::System { wish.count.min(1) } else { wish.count };
    let mut made = job(JOBS[wish.job], kind, count);
    for (n, at) in wish.volumes.iter().enumerate() {
        let mode = if *at == 3 { AccessMode::MultiNodeMultiWriter } else { AccessMode::SingleNodeWriter };
        if n == 0 {
            made = with_volume(made, VOLUMES[*at], mode);
        } else {
            let request = VolumeRequest {
                name: "more".into(),
                source: VOLUMES[*at].into(),
                access_mode: mode,
                attachment_mode: AttachmentMode::FileSystem,
                ..VolumeRequest::default()
            };
            made.task_groups[0].volumes.insert("more".into(), request);
        }
    }
    let group = &mut made.task_groups[0];
    let resources = &mut group.tasks[0].resources;
    (resources.cpu, resources.cores) = if wish.cores > 0 { (0, wish.cores) } else { (wish.cpu, 0) };
    if wish.cores > 0 && wish.numa > 0 {
        let affinity = ["none", "prefer", "require"][wish.numa];
        resources.numa = Some(Numa { affinity: affinity.into(), devices: None }.into());
    }
    if wish.gpus > 0 {
        resources.devices.push(RequestedDevice {
            name: "v/gpu".into(),
            count: wish.gpus,
            ..RequestedDevice::default()
        });
    }
    if wish.ports > 0 {
        let fixed = Port { label: "fixed".into(), value: 8080, ..Port::default() };
        let free = |n: usize| Port { label: format!("free{n}"), ..Port::default() };
        group.networks.push(Network {
            reserved_ports: if wish.ports > 1 { vec![fixed] } else { Vec::new() },
            dynamic_ports: (0..3).map(free).collect(),
            ..Network::default()
        });
    }
    made.constraints.extend(wish.conditions.iter().map(|at| condition(*at)));
    if let (Some(limit), false) = (wish.apart, kind.is_system()) {
        made.constraints.push(Constraint {
            l_target: "${attr.v}".into(),
            operand: "distinct_property".into(),
            r_target: limit.to_string(),
        });
    }
    made
}

/// Checks the resources that a node assigned against its capacity.
fn check_node(world: &World, node: &Node) {
    let here: Vec<&Allocation> =
        world.allocs.values().map(AsRef::as_ref).filter(|a| a.node_id == node.id && !a.terminal()).collect();
    let (kept, has) = (&node.reserved_resources, &node.node_resources);
    let (mut cpu, mut memory, mut disk) = (kept.cpu.cpu_shares, kept.memory.memory_mb, 0);
    let mut cores: BTreeSet<u16> = kept.cpu.reserved_cpu_cores.iter().copied().collect();
    let mut devices = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for alloc in &here {
        let supplied = alloc.allocated_resources.as_ref().expect("it was given something");
        disk += supplied.shared.disk_mb;
        for task in supplied.tasks.values() {
            cpu += task.cpu.cpu_shares;
            memory += task.memory.memory_mb;
            for core in &task.cpu.reserved_cores {
                assert!(
                    has.cpu.reservable_cpu_cores.contains(core),
                    "core {core} of {} is not for jobs",
                    node.id
                );
                assert!(cores.insert(*core), "core {core} of {} is given twice", node.id);
            }
            for id in task.devices.iter().flat_map(|device| &device.device_ids) {
                assert!(matches!(id.as_str(), "g0" | "g2"), "device {id} is not well");
                assert!(devices.insert(id.clone()), "device {id} is given twice");
            }
        }
        for port in &supplied.shared.ports {
            assert!(ports.insert(port.value), "port {} of {} is given twice", port.value, node.id);
            let of_host = node.id == *"n0" && (port.value == 8080 || (20_000..=20_004).contains(&port.value));
            assert!(!of_host, "port {} is the host's", port.value);
        }
    }
    assert!(cpu <= has.cpu.cpu_shares, "{cpu} MHz of {}", node.id);
    assert!(memory <= has.memory.memory_mb, "{memory} MB of {}", node.id);
    assert!(disk <= has.disk.disk_mb, "{disk} MB of disk of {}", node.id);
    assert!(node.node_max_allocs == 0 || here.len() <= 2, "{} allocations on {}", here.len(), node.id);
    let volumes: BTreeSet<&str> = world
        .claims
        .iter()
        .filter(|claim| claim.node_id == node.id && claim.phase.holds())
        .map(|claim| claim.id.volume.id.as_str())
        .collect();
    assert!(volumes.len() <= MAX_VOLUMES, "{} has {volumes:?}", node.id);
}

/// Checks that a plan's placements meet the job's requests.
fn check_new(world: &World, wish: &Wish, new: &[Allocation]) {
    for alloc in new {
        let at = NODES.iter().position(|id| alloc.node_id == *id).expect("a node of ours");
        for condition in &wish.conditions {
            let (left, operand, right, nodes) = CONDITIONS[*condition];
            assert!(nodes.contains(&at), "{} is on n{at} in spite of {left} {operand} {right}", alloc.name);
        }
        let supplied = &alloc.allocated_resources.as_ref().unwrap().tasks["t"];
        assert_eq!(supplied.cpu.reserved_cores.len(), usize::try_from(wish.cores).unwrap());
        if wish.cores > 0 {
            // A core is a quarter of the node, for any reservation of the host.
            assert_eq!(supplied.cpu.cpu_shares, wish.cores * 1000);
            let places: BTreeSet<u16> = supplied.cpu.reserved_cores.iter().map(|core| core / 2).collect();
            assert!(wish.numa < 2 || places.len() == 1, "{:?} are apart", supplied.cpu.reserved_cores);
        }
        let ids: usize = supplied.devices.iter().map(|device| device.device_ids.len()).sum();
        assert_eq!(ids as u64, wish.gpus);
        let claims = world.claims.iter().filter(|claim| claim.id.alloc == alloc.id && claim.phase.holds());
        assert_eq!(claims.count(), wish.volumes.len(), "{} lacks volumes", alloc.name);
    }
    let limit = wish.apart.filter(|_| !KINDS[wish.job].is_system());
    if let (Some(limit), false) = (limit, new.is_empty()) {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for alloc in world.allocs.values().filter(|a| a.job_id == *JOBS[wish.job] && !a.terminal()) {
            let value = world.nodes[&alloc.node_id].attributes.get("v").map_or("", String::as_str);
            *counts.entry(value).or_default() += 1;
        }
        for alloc in new {
            let value = world.nodes[&alloc.node_id].attributes.get("v").map_or("", String::as_str);
            assert!(!value.is_empty(), "{} is where the property is not", alloc.name);
            assert!(counts[value] <= limit, "{counts:?} with a limit of {limit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_assigned_twice_and_every_condition_holds(
        wishes in prop::collection::vec(wish(), 1..14),
        seed in any::<u64>(),
    ) {
        let mut world = cluster();
        for (n, wish) in wishes.iter().enumerate() {
            world.register(build(wish));
            let eval = world.eval(JOBS[wish.job], Trigger::JobRegister);
            let params = Params::new(NOW, seed.wrapping_add(n as u64));
            let decision = schedule(&world, &eval, &params);
            prop_assert_eq!(&decision, &schedule(&world, &eval, &params), "the same seed, the same decision");
            let placed = decision.plan.placements.values().flatten();
            let new: Vec<Allocation> = placed.filter(|alloc| alloc.create_index == 0).cloned().collect();
            world.apply(&decision);
            world.nodes.values().for_each(|node| check_node(&world, node));
            check_new(&world, wish, &new);
            let again = world.eval(JOBS[wish.job], Trigger::JobRegister);
            let second = schedule(&world, &again, &Params::new(NOW, !seed));
            prop_assert!(second.plan.is_empty(), "{:?} then {:?}", decision.plan, second.plan);
            if wish.settle {
                world.settle();
            }
        }
    }
}
