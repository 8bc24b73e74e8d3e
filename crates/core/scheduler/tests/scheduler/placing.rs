//! The choice of a node, and the resources that an allocation gets there.

use crate::world::{World, job, node, placed};
use caravan_types::job::{Affinity, Constraint, Job, JobType, Network, Port, VolumeRequest, VolumeType};
use caravan_types::node::HostVolumeInfo;

fn constraint(left: &str, operand: &str, right: &str) -> Constraint {
    Constraint { l_target: left.into(), operand: operand.into(), r_target: right.into() }
}

fn with_port(mut job: Job, value: i64) -> Job {
    let port = Port { label: "http".into(), value, ..Port::default() };
    let mut network = Network { mode: "host".into(), ..Network::default() };
    if value == 0 {
        network.dynamic_ports.push(port);
    } else {
        network.reserved_ports.push(port);
    }
    job.task_groups[0].networks.push(network);
    job
}

#[test]
fn constraints_datacenters_and_pools_pick_the_node() {
    let mut world = World::with_nodes(&["n1", "n2", "n3", "n4"]);
    world.change_node("n2", |n| drop(n.meta.insert("rack".into(), "r2".into())));
    world.change_node("n3", |n| n.datacenter = "dc2".into());
    world.change_node("n4", |n| n.node_pool = "gpu".into());
    let mut racked = job("racked", JobType::Service, 1);
    racked.task_groups[0].constraints.push(constraint("${meta.rack}", "regexp", "^r"));
    world.register(racked);
    assert_eq!(placed(&world.run("racked")), ["racked.g[0] on n2"]);
    let metric = world.alloc_named("racked.g[0]").metrics.clone().unwrap();
    assert_eq!(metric.constraint_filtered["${meta.rack} regexp ^r"], 1);
    assert_eq!(metric.class_filtered["small"], 1);

    let mut far = job("far", JobType::Service, 1);
    far.datacenters = vec!["*2".into()];
    world.register(far);
    assert_eq!(placed(&world.run("far")), ["far.g[0] on n3"]);

    let mut pooled = job("pooled", JobType::Service, 1);
    pooled.node_pool = "gpu".into();
    world.register(pooled);
    assert_eq!(placed(&world.run("pooled")), ["pooled.g[0] on n4"]);

    let mut anywhere = job("anywhere", JobType::System, 1);
    anywhere.node_pool = "all".into();
    anywhere.datacenters = vec!["dc*".into()];
    world.register(anywhere);
    assert_eq!(placed(&world.run("anywhere")).len(), 4);
}

#[test]
fn affinities_attract() {
    let mut world = World::with_nodes(&["n1", "n2", "n3"]);
    world.change_node("n2", |n| drop(n.meta.insert("disk".into(), "ssd".into())));
    let mut wish = job("wish", JobType::Service, 1);
    wish.affinities.push(Affinity {
        l_target: "${meta.disk}".into(),
        operand: "=".into(),
        r_target: "ssd".into(),
        weight: 80,
    });
    world.register(wish);
    assert_eq!(placed(&world.run("wish")), ["wish.g[0] on n2"]);
}

#[test]
fn fuller_nodes_are_filled_first() {
    let mut world = World::with_nodes(&["n1", "n2", "n3"]);
    world.register(job("a", JobType::Service, 1));
    let first = placed(&world.run("a"));
    world.register(job("b", JobType::Service, 1));
    assert_eq!(placed(&world.run_seeded("b", 99))[0].split(' ').next_back(), first[0].split(' ').next_back());
}

#[test]
fn distinct_hosts_and_properties_keep_allocations_apart() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    let mut apart = job("apart", JobType::Service, 3);
    apart.constraints.push(constraint("", "distinct_hosts", "true"));
    world.register(apart);
    let decision = world.run("apart");
    assert_eq!(placed(&decision).len(), 2);
    assert_eq!(decision.eval.failed_tg_allocs["g"].constraint_filtered["distinct_hosts"], 2);

    let mut racks = job("racks", JobType::Service, 3);
    racks.constraints.push(constraint("${node.datacenter}", "distinct_property", "2"));
    world.register(racks);
    let decision = world.run("racks");
    assert_eq!(placed(&decision).len(), 2);
    let reason = "distinct_property: ${node.datacenter}=dc1 used by 2 allocs";
    assert_eq!(decision.eval.failed_tg_allocs["g"].constraint_filtered[reason], 2);
}

#[test]
fn ports_are_assigned_once() {
    let mut world = World::with_nodes(&["n1"]);
    world.register(with_port(job("fixed", JobType::Service, 2), 8080));
    let decision = world.run("fixed");
    assert_eq!(placed(&decision), ["fixed.g[0] on n1"]);
    let exhausted = &decision.eval.failed_tg_allocs["g"].dimension_exhausted;
    assert_eq!(exhausted["network: reserved port collision http=8080"], 1);

    world.register(with_port(job("dynamic", JobType::Service, 3), 0));
    world.run("dynamic");
    let mut numbers: Vec<i64> = (0..3)
        .map(|n| {
            let alloc = world.alloc_named(&format!("dynamic.g[{n}]"));
            let shared = &alloc.allocated_resources.as_ref().unwrap().shared;
            assert_eq!(shared.ports[0].host_ip, "10.0.0.1");
            assert_eq!(shared.networks[0].dynamic_ports[0].value, shared.ports[0].value);
            shared.ports[0].value
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
    assert!(numbers.iter().all(|n| (20_000..20_010).contains(n)));
}

#[test]
fn networks_that_no_node_makes_are_missing() {
    let mut world = World::with_nodes(&["n1"]);
    let mut bridged = with_port(job("bridged", JobType::Service, 1), 0);
    bridged.task_groups[0].networks[0].mode = "bridge".into();
    world.register(bridged);
    let decision = world.run("bridged");
    assert_eq!(decision.eval.failed_tg_allocs["g"].constraint_filtered["missing network"], 1);
}

#[test]
fn whole_cores_are_handed_out_once() {
    let mut world = World::with_nodes(&["n1"]);
    let mut pinned = job("pinned", JobType::Service, 3);
    pinned.task_groups[0].tasks[0].resources.cores = 2;
    world.register(pinned);
    let decision = world.run("pinned");
    assert_eq!(placed(&decision).len(), 2);
    assert_eq!(decision.eval.failed_tg_allocs["g"].dimension_exhausted["cores"], 1);
    let cores: Vec<u16> = world
        .allocs
        .values()
        .flat_map(|a| a.allocated_resources.as_ref().unwrap().tasks["t"].cpu.reserved_cores.clone())
        .collect();
    assert_eq!(cores.len(), 4);
    assert_eq!(
        world.alloc_named("pinned.g[0]").allocated_resources.as_ref().unwrap().tasks["t"].cpu.cpu_shares,
        2000
    );
}

#[test]
fn host_volumes_are_found_by_name() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    let info = HostVolumeInfo { name: "certs".into(), read_only: true, ..HostVolumeInfo::default() };
    world.change_node("n2", |n| drop(n.host_volumes.insert("certs".into(), info)));
    let request = VolumeRequest {
        kind: VolumeType::Host,
        source: "certs".into(),
        read_only: true,
        ..VolumeRequest::default()
    };
    let mut reader = job("reader", JobType::Service, 1);
    reader.task_groups[0].volumes.insert("certs".into(), request.clone());
    world.register(reader.clone());
    assert_eq!(placed(&world.run("reader")), ["reader.g[0] on n2"]);
    reader.id = "writer".into();
    reader.task_groups[0].volumes.insert("certs".into(), VolumeRequest { read_only: false, ..request });
    world.register(reader);
    let decision = world.run("writer");
    let metric = &decision.eval.failed_tg_allocs["g"];
    assert_eq!(metric.constraint_filtered["missing compatible host volumes"], 2);
}

#[test]
fn reserved_resources_are_not_assigned() {
    let mut world = World::default();
    let mut small = node("n1");
    small.reserved_resources.cpu.cpu_shares = 3_600;
    world.set_node(small);
    world.register(job("web", JobType::Service, 1));
    let metric = world.run("web").eval.failed_tg_allocs["g"].clone();
    assert_eq!(metric.dimension_exhausted["cpu"], 1);
    assert_eq!(metric.resources_exhausted["t"].cpu, 500);
}
