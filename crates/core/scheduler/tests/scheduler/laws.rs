//! Invariants for all kinds of jobs: cores, devices, ports, limits, spreads, distinct hosts and properties, and
//! preemption.

use crate::world::{NOW, World, job, node};
use caravan_scheduler::{Algorithm, Params, Preemption, Room, Rules, schedule};
use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use caravan_types::eval::Trigger;
use caravan_types::job::{Affinity, Constraint, Job, JobType, Network, Port, RequestedDevice, Spread};
use caravan_types::plan::Decision;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Wish {
    name: usize,
    count: u32,
    cpu: i64,
    memory: i64,
    cores: i64,
    gpus: u64,
    port: bool,
    priority: i64,
    apart: bool,
    racks: Option<u32>,
    spread: bool,
    likes: bool,
    ssd: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    let numbers =
        (0_usize..5, 0_u32..7, 1_i64..2500, 1_i64..2500, prop_oneof![3 => Just(0_i64), 1 => 1_i64..3]);
    let more = (prop_oneof![3 => Just(0_u64), 1 => 1_u64..3], any::<bool>(), 1_i64..10);
    let rules = (any::<bool>(), prop::option::of(1_u32..3), any::<bool>(), any::<bool>(), any::<bool>());
    (numbers, more, rules).prop_map(
        |((name, count, cpu, memory, cores), (gpus, port, priority), (apart, racks, spread, likes, ssd))| {
            Wish {
                name,
                count,
                cpu,
                memory,
                cores,
                gpus,
                port,
                priority: priority * 10,
                apart,
                racks,
                spread,
                likes,
                ssd,
            }
        },
    )
}

const JOBS: [&str; 5] = ["a", "b", "c", "d", "e"];
const KINDS: [JobType; 5] =
    [JobType::Service, JobType::Batch, JobType::System, JobType::Sysbatch, JobType::Service];
const RACK: &str = "${meta.rack}";

fn constraint(left: &str, operand: &str, right: &str) -> Constraint {
    Constraint { l_target: left.into(), operand: operand.into(), r_target: right.into() }
}

fn build(wish: &Wish) -> Job {
    let kind = KINDS[wish.name];
    let count = if kind == JobType::System { wish.count.min(1) } else { wish.count };
    let mut made = job(JOBS[wish.name], kind, count);
    made.priority = wish.priority;
    let resources = &mut made.task_groups[0].tasks[0].resources;
    resources.memory_mb = wish.memory;
    resources.cores = wish.cores;
    resources.cpu = if wish.cores > 0 { 0 } else { wish.cpu };
    if wish.gpus > 0 {
        resources.devices.push(RequestedDevice {
            name: "gpu".into(),
            count: wish.gpus,
            ..RequestedDevice::default()
        });
    }
    if wish.port {
        let port = Port { label: "http".into(), value: 8080, ..Port::default() };
        made.task_groups[0].networks.push(Network {
            reserved_ports: vec![port],
            dynamic_ports: vec![Port::default()],
            ..Network::default()
        });
    }
    if wish.apart && !kind.is_system() {
        made.constraints.push(constraint("", "distinct_hosts", "true"));
    }
    if let (Some(limit), false) = (wish.racks, kind.is_system()) {
        made.constraints.push(constraint(RACK, "distinct_property", &limit.to_string()));
    }
    if wish.spread && !kind.is_system() {
        made.spreads.push(Spread { attribute: RACK.into(), weight: 50, spread_target: vec![] });
    }
    if wish.likes {
        made.affinities.push(Affinity {
            l_target: RACK.into(),
            operand: "=".into(),
            r_target: "r1".into(),
            weight: -30,
        });
    }
    if wish.ssd {
        made.constraints.push(constraint("${meta.disk}", "=", "ssd"));
    }
    made
}

fn world(rules: Rules) -> World {
    let mut world = World { rules, ..World::default() };
    for n in 0..5_i64 {
        let mut made = node(&format!("n{n}"));
        made.meta.insert("rack".into(), format!("r{}", n % 3));
        if n % 2 == 0 {
            made.meta.insert("disk".into(), "ssd".into());
        }
        if n < 3 {
            let ids: Vec<_> =
                (0..2).map(|id| serde_json::json!({"ID": format!("g{id}"), "Healthy": true})).collect();
            let gpu = serde_json::json!({"Vendor": "v", "Type": "gpu", "Name": "m", "Instances": ids});
            made.node_resources.devices.push(serde_json::from_value(gpu).unwrap());
        }
        made.node_max_allocs = if n == 4 { 3 } else { 0 };
        world.set_node(made);
    }
    world
}

fn running(world: &World) -> impl Iterator<Item = &Allocation> {
    world.allocs.values().map(AsRef::as_ref).filter(|alloc| !alloc.terminal())
}

/// Checks that no resource is assigned twice and that the plan's placements break no condition of the job.
fn check(world: &World, decision: &Decision) {
    for node in world.nodes.values() {
        let here: Vec<&Allocation> = running(world).filter(|alloc| alloc.node_id == node.id).collect();
        let mut room = Room::default();
        let fit = here.iter().try_for_each(|alloc| room.add(node, alloc));
        assert_eq!(fit, Ok(()), "{} is over-committed", node.id);
    }
    let Some(job) = &decision.plan.job else { return };
    let new: Vec<&Allocation> =
        decision.plan.placements.values().flatten().filter(|alloc| alloc.create_index == 0).collect();
    let all: Vec<&Allocation> = running(world).filter(|alloc| alloc.job_id == job.id).collect();
    for alloc in new {
        let node = &world.nodes[&alloc.node_id];
        for constraint in &job.constraints {
            let rack = |id: &caravan_types::NodeId| world.nodes[id].meta["rack"].clone();
            match constraint.operand.as_str() {
                "distinct_hosts" => {
                    let here = all.iter().filter(|other| other.node_id == alloc.node_id).count();
                    assert_eq!(here, 1, "{} is not alone on {}", alloc.name, node.id);
                }
                "distinct_property" => {
                    let limit: usize = constraint.r_target.parse().unwrap();
                    let here =
                        all.iter().filter(|other| rack(&other.node_id) == rack(&alloc.node_id)).count();
                    assert!(here <= limit, "{here} of {} in one rack", job.id);
                }
                _ => assert_eq!(node.meta.get("disk").map(String::as_str), Some("ssd")),
            }
        }
    }
}

/// Checks that the priority of victims is at least ten lower and that they are evicted for an allocation of this
/// plan. Also checks that all were needed.
fn check_preemption(before: &World, decision: &Decision) {
    let mut victims: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for stop in decision.plan.stops.values().flatten().filter(|stop| !stop.preempted_by.is_empty()) {
        victims.entry(stop.preempted_by.clone()).or_default().push(stop.alloc_id.clone());
    }
    let placed: BTreeMap<_, _> =
        decision.plan.placements.values().flatten().map(|alloc| (alloc.id.clone(), alloc)).collect();
    for (by, victims) in victims {
        let job = decision.plan.job.as_ref().expect("somebody asked for it");
        assert!(before.rules.preemption.allows(job.kind), "{} may not preempt", job.kind);
        assert_eq!(placed[&by].preempted_allocations.len(), victims.len());
        for victim in &victims {
            let alloc = &before.allocs[victim];
            assert_eq!(alloc.node_id, placed[&by].node_id);
            let theirs = alloc.job.as_ref().unwrap().priority;
            assert!(theirs + 10 <= job.priority, "{theirs} went for {}", job.priority);
        }
        check_need(before, decision, placed[&by], &victims);
    }
}

/// Checks that no victim could have stayed next to all placements of the plan on its node.
fn check_need(before: &World, decision: &Decision, winner: &Allocation, victims: &[AllocId]) {
    let here: Vec<&Allocation> =
        decision.plan.placements.get(&winner.node_id).into_iter().flatten().collect();
    let stopped: Vec<&AllocId> = decision.plan.stops.values().flatten().map(|stop| &stop.alloc_id).collect();
    let node = &before.nodes[&winner.node_id];
    for victim in victims {
        let stays = |alloc: &&std::sync::Arc<Allocation>| {
            alloc.node_id == node.id
                && !alloc.client_terminal()
                && (alloc.id == *victim || !stopped.contains(&&alloc.id))
        };
        let mut room = Room::default();
        let all = before.allocs.values().filter(stays).map(AsRef::as_ref).chain(here.iter().copied());
        let fit = all.into_iter().try_for_each(|alloc| room.add(node, alloc));
        assert!(fit.is_err(), "{victim} could have stayed on {} beside {}", node.id, winner.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn laws_hold(
        wishes in prop::collection::vec(wish(), 1..14),
        spread in any::<bool>(),
        preempt in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let algorithm = if spread { Algorithm::Spread } else { Algorithm::Binpack };
        let all = Preemption { system: true, sysbatch: true, batch: true, service: true };
        let preemption = if preempt { all } else { Preemption::default() };
        let mut world = world(Rules { algorithm, preemption, ..Rules::default() });
        for (n, wish) in wishes.iter().enumerate() {
            world.register(build(wish));
            let eval = world.eval(JOBS[wish.name], Trigger::JobRegister);
            let seed = seed.wrapping_add(n as u64);
            let decision = schedule(&world, &eval, &Params::new(NOW, seed));
            prop_assert_eq!(&decision, &schedule(&world, &eval, &Params::new(NOW, seed)));
            check_preemption(&world, &decision);
            world.apply(&decision);
            check(&world, &decision);
            let again = world.eval(JOBS[wish.name], Trigger::JobRegister);
            let second = schedule(&world, &again, &Params::new(NOW, !seed));
            prop_assert!(second.plan.is_empty(), "{:?} then {:?}", decision.plan, second.plan);
            if n % 3 == 2 {
                world.settle();
            }
        }
    }
}
