//! Invariants under random events.

use crate::world::{NOW, World, job, node, volume, with_volume};
use caravan_scheduler::{Params, schedule};
use caravan_types::alloc::ClientStatus;
use caravan_types::eval::Trigger;
use caravan_types::job::{Constraint, Job, JobType, Network, Port};
use caravan_types::node::NodeStatus;
use caravan_types::volume::{AccessMode, ClaimMode};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Event {
    Register { name: usize, count: u32, cpu: i64, memory: i64, ports: usize, volume: bool, ssd: bool },
    Stop { name: usize },
    NodeDown { node: usize },
    NodeUp { node: usize },
    Client { pick: usize, status: usize },
    Settle,
    Look,
}

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const JOBS: [&str; 4] = ["a", "b", "c", "d"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0_usize..4, 0_u32..5, 1_i64..3000, 1_i64..3000, 0_usize..3, any::<bool>(), any::<bool>())
            .prop_map(|(name, count, cpu, memory, ports, volume, ssd)| Event::Register {
                name, count, cpu, memory, ports, volume, ssd
            }),
        1 => (0_usize..4).prop_map(|name| Event::Stop { name }),
        1 => (0_usize..4).prop_map(|node| Event::NodeDown { node }),
        1 => (0_usize..4).prop_map(|node| Event::NodeUp { node }),
        2 => (0_usize..20, 0_usize..3).prop_map(|(pick, status)| Event::Client { pick, status }),
        1 => Just(Event::Settle),
        1 => Just(Event::Look),
    ]
}

fn build(event: &Event) -> Option<Job> {
    let Event::Register { name, count, cpu, memory, ports, volume, ssd } = event else { return None };
    let kinds = [JobType::Service, JobType::Batch, JobType::System, JobType::Sysbatch];
    // The type of a job never changes: it is derived from the name.
    let kind = kinds[*name];
    let count = if kind == JobType::System { (*count).min(1) } else { *count };
    let mut made = job(JOBS[*name], kind, count);
    let task = &mut made.task_groups[0].tasks[0];
    task.resources.cpu = *cpu;
    task.resources.memory_mb = *memory;
    if *ports > 0 {
        let fixed = Port { label: "fixed".into(), value: 8080, ..Port::default() };
        let free = Port { label: "free".into(), ..Port::default() };
        made.task_groups[0].networks.push(Network {
            reserved_ports: if *ports > 1 { vec![fixed] } else { vec![] },
            dynamic_ports: vec![free],
            ..Network::default()
        });
    }
    if *ssd {
        made.constraints.push(Constraint {
            l_target: "${meta.disk}".into(),
            operand: "=".into(),
            r_target: "ssd".into(),
        });
    }
    Some(if *volume { with_volume(made, "data", AccessMode::SingleNodeWriter) } else { made })
}

fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Register { .. } => world.register(build(event).expect("it is a registration")),
        Event::Stop { name } => {
            world.jobs.remove(&caravan_types::JobKey::new("default", JOBS[*name]));
        }
        Event::NodeDown { node } => world.change_node(NODES[*node], |n| n.status = NodeStatus::Down),
        Event::NodeUp { node } => world.change_node(NODES[*node], |n| n.status = NodeStatus::Ready),
        Event::Client { pick, status } => {
            let statuses = [ClientStatus::Running, ClientStatus::Complete, ClientStatus::Failed];
            let id = world.allocs.values().filter(|a| !a.client_terminal()).nth(*pick).map(|a| a.id.clone());
            if let Some(id) = id {
                world.change_alloc(&id, |a| a.client_status = statuses[*status]);
            }
        }
        Event::Settle => world.settle(),
        Event::Look => {}
    }
}

/// Checks the invariants of all desired allocations.
fn check(world: &World) {
    for node in world.nodes.values() {
        let expected: Vec<_> =
            world.allocs.values().filter(|a| a.node_id == node.id && !a.terminal()).collect();
        let (mut cpu, mut memory, mut disk) = (0, 0, 0);
        let mut ports = BTreeSet::new();
        for alloc in &expected {
            let supplied = alloc.allocated_resources.as_ref().expect("it was given something");
            cpu += supplied.tasks.values().map(|t| t.cpu.cpu_shares).sum::<i64>();
            memory += supplied.tasks.values().map(|t| t.memory.memory_mb).sum::<i64>();
            disk += supplied.shared.disk_mb;
            for port in &supplied.shared.ports {
                assert!(ports.insert((port.host_ip.clone(), port.value)), "port {} twice", port.value);
            }
        }
        assert!(cpu <= 4000 && memory <= 4000 && disk <= 10_000, "{} is over-committed", node.id);
    }
    let mut names = BTreeSet::new();
    for alloc in world.allocs.values().filter(|a| !a.terminal()) {
        let place =
            (alloc.name.clone(), alloc.namespace.clone(), alloc.job.as_ref().map(|j| j.kind.is_system()));
        let per_node = place.2 == Some(true);
        let node = if per_node { alloc.node_id.clone() } else { "".into() };
        assert!(names.insert((place, node)), "{} twice", alloc.name);
    }
    let writers = world.claims.iter().filter(|c| c.phase.holds() && c.mode == ClaimMode::Write).count();
    assert!(writers <= 1, "two writers");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn plans_never_over_commit_and_settle(events in prop::collection::vec(event(), 1..25), seed in any::<u64>()) {
        let mut world = World::default();
        for (n, id) in NODES.iter().enumerate() {
            let mut made = node(id);
            if n % 2 == 0 {
                made.meta.insert("disk".into(), "ssd".into());
            }
            world.set_node(made);
        }
        world.install_plugin(0);
        world.set_volume(volume("data", AccessMode::SingleNodeWriter));
        for (n, event) in events.iter().enumerate() {
            happen(&mut world, event);
            for name in JOBS {
                let seed = seed.wrapping_add(n as u64);
                let eval = world.eval(name, Trigger::JobRegister);
                let decision = schedule(&world, &eval, &Params::new(NOW, seed));
                // The same seed gives the same decision.
                prop_assert_eq!(&decision, &schedule(&world, &eval, &Params::new(NOW, seed)));
                // New placements meet the constraints and are on ready nodes.
                let placements: Vec<_> = decision.plan.placements.values().flatten().collect();
                let job = decision.plan.job.clone();
                for alloc in placements.iter().filter(|a| a.create_index == 0) {
                    let node = &world.nodes[&alloc.node_id];
                    prop_assert!(node.is_schedulable());
                    let ssd = job.as_ref().is_some_and(|j| !j.constraints.is_empty());
                    prop_assert!(!ssd || node.meta.contains_key("disk"));
                }
                world.apply(&decision);
                check(&world);
                // A second evaluation changes nothing, for any order of equal scores.
                let again = world.eval(name, Trigger::JobRegister);
                let second = schedule(&world, &again, &Params::new(NOW, !seed));
                prop_assert!(second.plan.is_empty(), "{:?} then {:?}", decision.plan, second.plan);
                prop_assert_eq!(&second.eval.queued_allocations, &decision.eval.queued_allocations);
            }
        }
    }
}
