//! Host volumes that users created: states, modes, and claims of sticky groups.

use crate::world::{World, job, placed, stopped};
use caravan_types::alloc::ClientStatus;
use caravan_types::eval::Trigger;
use caravan_types::host_volume::{HostVolume, HostVolumeIntent, HostVolumeState};
use caravan_types::job::{Job, JobType, VolumeRequest, VolumeType};
use caravan_types::node::{Eligibility, HostVolumeInfo};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability};
use std::sync::Arc;

const MODES: [AccessMode; 4] = [
    AccessMode::SingleNodeReaderOnly,
    AccessMode::SingleNodeWriter,
    AccessMode::SingleNodeSingleWriter,
    AccessMode::SingleNodeMultiWriter,
];

fn add(world: &mut World, id: &str, name: &str, node: &str, modes: &[AccessMode]) {
    let capability =
        |mode: &AccessMode| Capability { attachment_mode: AttachmentMode::FileSystem, access_mode: *mode };
    let row = HostVolume {
        namespace: "default".into(),
        id: id.into(),
        name: name.into(),
        node_id: node.into(),
        state: HostVolumeState::Ready,
        requested_capabilities: modes.iter().map(capability).collect(),
        ..HostVolume::default()
    };
    world.host_volumes.insert(id.into(), Arc::new(row));
    let info = HostVolumeInfo { name: name.into(), id: id.into(), ..HostVolumeInfo::default() };
    world.change_node(node, |n| drop(n.host_volumes.insert(name.into(), info)));
}

fn change(world: &mut World, id: &str, change: impl FnOnce(&mut HostVolume)) {
    let mut row = HostVolume::clone(&world.host_volumes[id]);
    change(&mut row);
    world.host_volumes.insert(row.id.clone(), Arc::new(row));
}

fn using(id: &str, count: u32, request: VolumeRequest) -> Job {
    let mut job = job(id, JobType::Service, count);
    let request = VolumeRequest { kind: VolumeType::Host, source: "data".into(), ..request };
    job.task_groups[0].volumes.insert("d".into(), request);
    job
}

fn mode(access_mode: AccessMode) -> VolumeRequest {
    let read_only = access_mode == AccessMode::SingleNodeReaderOnly;
    VolumeRequest { access_mode, read_only, ..VolumeRequest::default() }
}

fn sticky() -> VolumeRequest {
    VolumeRequest { sticky: true, ..VolumeRequest::default() }
}

#[test]
fn only_a_ready_volume_of_the_namespace_that_stays_will_do() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    add(&mut world, "v1", "data", "n2", &MODES);
    world.register(using("web", 1, VolumeRequest::default()));
    let reason = |world: &mut World| {
        let decision = world.run("web");
        let metric = decision.eval.failed_tg_allocs["g"].clone();
        let waits = decision.follow_ups[0].missing_non_node_resources.clone();
        assert_eq!(waits, ["host-volume:default:data"]);
        metric.constraint_filtered.keys().cloned().collect::<Vec<_>>()
    };
    for state in [HostVolumeState::Pending, HostVolumeState::Unavailable] {
        change(&mut world, "v1", |row| row.state = state);
        let expected = format!("host volume data is {}", state.as_str());
        assert_eq!(reason(&mut world), [expected, "missing compatible host volumes".into()]);
    }
    change(&mut world, "v1", |row| {
        row.state = HostVolumeState::Ready;
        row.intent = HostVolumeIntent::Delete;
    });
    assert_eq!(reason(&mut world).len(), 2);
    change(&mut world, "v1", |row| {
        row.intent = HostVolumeIntent::None;
        row.namespace = "other".into();
    });
    assert_eq!(reason(&mut world), ["missing compatible host volumes"]);
    change(&mut world, "v1", |row| row.namespace = "default".into());
    assert_eq!(placed(&world.run("web")), ["web.g[0] on n2"]);
}

#[test]
fn the_use_must_be_one_that_the_volume_was_made_for() {
    for made in MODES {
        for expected in MODES {
            let mut world = World::with_nodes(&["n1"]);
            add(&mut world, "v1", "data", "n1", &[made]);
            world.register(using("web", 1, mode(expected)));
            assert_eq!(placed(&world.run("web")).len(), usize::from(made == expected), "{made} {expected}");
        }
    }
    // A request without modes matches by whether it is read-only.
    let mut world = World::with_nodes(&["n1"]);
    add(&mut world, "v1", "data", "n1", &[AccessMode::SingleNodeReaderOnly]);
    world.register(using("reader", 1, VolumeRequest { read_only: true, ..VolumeRequest::default() }));
    assert_eq!(placed(&world.run("reader")).len(), 1);
    world.register(using("writer", 1, VolumeRequest::default()));
    assert!(placed(&world.run("writer")).is_empty());
}

/// The other writer may belong to this plan or to another job, or may be stopping.
#[test]
fn an_only_writer_is_the_only_one() {
    let mut world = World::with_nodes(&["n1"]);
    add(&mut world, "v1", "data", "n1", &MODES);
    world.register(using("one", 2, mode(AccessMode::SingleNodeSingleWriter)));
    assert_eq!(placed(&world.run("one")).len(), 1);
    world.register(using("two", 1, mode(AccessMode::SingleNodeSingleWriter)));
    assert!(placed(&world.run("two")).is_empty());
    world.register(using("reader", 1, mode(AccessMode::SingleNodeReaderOnly)));
    assert_eq!(placed(&world.run("reader")).len(), 1);
    world.register(using("one", 0, mode(AccessMode::SingleNodeSingleWriter)));
    world.run("one");
    assert!(placed(&world.run("two")).is_empty(), "its tasks may still run");
    world.settle();
    assert_eq!(placed(&world.run("two")).len(), 1);
}

#[test]
fn an_update_of_the_only_writer_stops_the_old_one_first() {
    let mut world = World::with_nodes(&["n1"]);
    add(&mut world, "v1", "data", "n1", &MODES);
    let mut job = using("web", 1, mode(AccessMode::SingleNodeSingleWriter));
    world.register(job.clone());
    world.run("web");
    world.client("web.g[0]", ClientStatus::Running);
    job.task_groups[0].tasks[0].env.insert("V".into(), "2".into());
    world.register(job);
    let decision = world.run("web");
    assert!(placed(&decision).is_empty() && decision.eval.failed_tg_allocs.is_empty());
    assert_eq!(stopped(&world, &decision).len(), 1);
    world.settle();
    let eval = world.eval("web", Trigger::QueuedAllocs);
    assert_eq!(placed(&world.decide(&eval, 1)), ["web.g[0] on n1"]);
}

#[test]
fn a_volume_for_each_allocation_is_found_by_its_number() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    add(&mut world, "v0", "data[0]", "n2", &MODES);
    add(&mut world, "v1", "data[1]", "n1", &MODES);
    world.register(using("web", 3, VolumeRequest { per_alloc: true, ..VolumeRequest::default() }));
    let decision = world.run("web");
    assert_eq!(placed(&decision), ["web.g[0] on n2", "web.g[1] on n1"]);
    assert_eq!(decision.eval.queued_allocations["g"], 1);
}

/// docs/design/rough-edges.md, 44: claims of another group of the job do not count.
#[test]
fn a_sticky_group_comes_back_to_its_volumes() {
    let mut world = World::with_nodes(&["n1", "n2", "n3"]);
    add(&mut world, "v1", "data", "n1", &MODES);
    add(&mut world, "v2", "data", "n2", &MODES);
    let mut job = using("web", 1, sticky());
    world.register(job.clone());
    let decision = world.run("web");
    assert_eq!(decision.plan.host_claims.len(), 1);
    let first = decision.plan.host_claims[0].clone();
    assert_eq!(first.alloc_id, world.alloc_named("web.g[0]").id);
    let home = world.alloc_named("web.g[0]").node_id.clone();

    // For every seed, the replacement runs on the same node with the same claim.
    for seed in 0..8 {
        job.task_groups[0].tasks[0].env.insert("V".into(), seed.to_string());
        world.register(job.clone());
        let decision = world.run_seeded("web", seed);
        assert_eq!(placed(&decision), [format!("web.g[0] on {home}")]);
        assert_eq!(world.host_claims.len(), 1);
        let held = world.host_claims.values().next().unwrap();
        assert_eq!((&held.volume_id, &held.alloc_id), (&first.volume_id, &world.alloc_named("web.g[0]").id));
        world.settle();
    }

    // No other node suits as long as the claim exists; another group is not affected.
    world.change_node(home.as_str(), |node| node.scheduling_eligibility = Eligibility::Ineligible);
    let id = world.alloc_named("web.g[0]").id.clone();
    world.change_alloc(&id, |alloc| alloc.desired_transition.migrate = Some(true));
    let mut other = job.task_groups[0].clone();
    other.name = "other".into();
    job.task_groups.push(other);
    world.register(job);
    let decision = world.run("web");
    let names = placed(&decision);
    assert!(names.len() == 1 && names[0].starts_with("web.other[0]"), "{names:?}");
    let reasons = &decision.eval.failed_tg_allocs["g"].constraint_filtered;
    assert!(reasons.contains_key("host volume data is claimed on another node"), "{reasons:?}");
    // After the claim is removed, any volume suits.
    world.settle();
    world.host_claims.retain(|_, claim| claim.task_group_name == "other");
    let decision = world.run("web");
    assert_eq!(placed(&decision).len(), 1);
    assert_ne!(world.alloc_named("web.g[0]").node_id, home);
}

#[test]
fn each_allocation_of_a_sticky_group_has_a_hold_of_its_own() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    add(&mut world, "v1", "data", "n1", &[AccessMode::SingleNodeSingleWriter]);
    add(&mut world, "v2", "data", "n2", &[AccessMode::SingleNodeSingleWriter]);
    let request = VolumeRequest { sticky: true, ..mode(AccessMode::SingleNodeSingleWriter) };
    world.register(using("web", 2, request));
    assert_eq!(placed(&world.run("web")).len(), 2);
    let nodes = |world: &World| ["web.g[0]", "web.g[1]"].map(|name| world.alloc_named(name).node_id.clone());
    let before = nodes(&world);
    for name in ["web.g[0]", "web.g[1]"] {
        world.client(name, ClientStatus::Lost);
    }
    assert_eq!(placed(&world.run("web")).len(), 2);
    let mut volumes: Vec<_> = world.host_claims.values().map(|c| c.volume_id.to_string()).collect();
    volumes.sort();
    assert_eq!(volumes, ["v1", "v2"]);
    assert_eq!(nodes(&world).iter().collect::<std::collections::BTreeSet<_>>(), before.iter().collect());
}

#[test]
fn a_static_volume_cannot_be_sticky() {
    let mut world = World::with_nodes(&["n1"]);
    let info = HostVolumeInfo { name: "data".into(), ..HostVolumeInfo::default() };
    world.change_node("n1", |n| drop(n.host_volumes.insert("data".into(), info)));
    world.register(using("web", 1, sticky()));
    assert!(placed(&world.run("web")).is_empty());
    world.register(using("plain", 1, VolumeRequest::default()));
    assert_eq!(placed(&world.run("plain")).len(), 1);
}

#[test]
fn a_system_job_runs_where_the_volume_is_and_complains_of_nothing() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    add(&mut world, "v1", "data", "n2", &MODES);
    let mut job = using("sys", 1, VolumeRequest::default());
    job.kind = JobType::System;
    world.register(job);
    let decision = world.run("sys");
    assert_eq!(placed(&decision), ["sys.g[0] on n2"]);
    assert!(decision.eval.failed_tg_allocs.is_empty() && world.blocked().is_empty());
}
