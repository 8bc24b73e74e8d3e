//! CSI volumes in the scheduler: claims, limits, handover, waits.

use crate::world::{World, job, node, placed, stopped, volume, with_volume};
use caravan_types::alloc::ClientStatus;
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::{JobType, MountOptions};
use caravan_types::plan::Decision;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{AccessMode, ClaimMode, ClaimPhase, Topology, VolumePhase};
use std::collections::BTreeMap;
use std::sync::Arc;

const SINGLE: AccessMode = AccessMode::SingleNodeWriter;

fn world(nodes: &[&str]) -> World {
    let mut world = World::with_nodes(nodes);
    world.install_plugin(0);
    world.set_volume(volume("data", SINGLE));
    world
}

fn filtered(decision: &Decision) -> Vec<&str> {
    decision.eval.failed_tg_allocs["g"].constraint_filtered.keys().map(String::as_str).collect()
}

fn blocked(decision: &Decision) -> &Evaluation {
    decision.follow_ups.iter().find(|e| e.status == EvalStatus::Blocked).expect("one is blocked")
}

#[test]
fn a_placement_comes_with_its_claim() {
    let mut world = world(&["n1"]);
    let mut with_options = volume("data", SINGLE);
    with_options.mount_options =
        Some(MountOptions { fs_type: "ext4".into(), mount_flags: vec!["noatime".into()] });
    world.set_volume(with_options);
    let mut writer = with_volume(job("writer", JobType::Service, 1), "data", SINGLE);
    writer.task_groups[0].volumes.get_mut("data").unwrap().mount_options =
        Some(MountOptions { fs_type: "xfs".into(), mount_flags: vec![] });
    world.register(writer);
    let decision = world.run("writer");
    let [claim] = decision.plan.claims.as_slice() else { panic!("one claim") };
    assert_eq!(claim.id.alloc, world.alloc_named("writer.g[0]").id);
    assert_eq!(
        (claim.phase, claim.mode, claim.alias.as_str()),
        (ClaimPhase::Reserved, ClaimMode::Write, "data")
    );
    assert_eq!((claim.node_id.as_str(), claim.plugin_id.as_str()), ("n1", "p"));
    assert_eq!((claim.external_volume_id.as_str(), claim.external_node_id.as_str()), ("ext-data", "csi-n1"));
    assert_eq!(claim.needs_attach, Some(true));
    let options = claim.mount_options.clone().unwrap();
    assert_eq!((options.fs_type.as_str(), options.mount_flags.len()), ("xfs", 1));
    assert_eq!((claim.job_id.as_str(), claim.task_group.as_str()), ("writer", "g"));
}

#[test]
fn a_second_writer_waits_for_the_claim() {
    let mut world = world(&["n1", "n2"]);
    world.register(with_volume(job("first", JobType::Service, 1), "data", SINGLE));
    world.register(with_volume(job("second", JobType::Service, 1), "data", SINGLE));
    world.run("first");
    let decision = world.run("second");
    assert_eq!(filtered(&decision), ["CSI volume data has exhausted its available writer claims"]);
    let waiting = blocked(&decision).clone();
    assert_eq!(waiting.missing_non_node_resources, ["csi-claim:default:data"]);
    assert!(waiting.escaped_computed_class);
    // The first job is stopped, but its claim is active until its mounts are proven removed.
    world.jobs.remove(&caravan_types::JobKey::new("default", "first"));
    world.run("first");
    assert!(world.decide(&waiting, 2).plan.is_empty());
    world.settle();
    let decision = world.decide(&waiting, 3);
    assert_eq!(placed(&decision).len(), 1);
    assert_eq!(decision.eval.status, EvalStatus::Complete);
}

#[test]
fn two_writers_in_one_plan_count_each_other() {
    let mut world = world(&["n1", "n2"]);
    world.register(with_volume(job("pair", JobType::Service, 2), "data", SINGLE));
    let decision = world.run("pair");
    assert_eq!(placed(&decision).len(), 1);
    assert_eq!(decision.plan.claims.len(), 1);
    assert_eq!(filtered(&decision), ["CSI volume data has exhausted its available writer claims"]);
}

#[test]
fn an_update_hands_the_volume_over() {
    let mut world = world(&["n1"]);
    let mut writer = with_volume(job("writer", JobType::Service, 1), "data", SINGLE);
    world.register(writer.clone());
    world.run("writer");
    let old = world.alloc_named("writer.g[0]").id.clone();
    writer.meta.insert("v".into(), "2".into());
    world.register(writer);
    // The old allocation stops first, and the new one waits for its claim.
    let decision = world.run("writer");
    assert_eq!(stopped(&world, &decision), ["writer.g[0]: alloc is being updated due to job update"]);
    assert!(decision.plan.placements.is_empty());
    let waiting = blocked(&decision).clone();
    assert_eq!(waiting.missing_non_node_resources, ["csi-claim:default:data"]);
    // Every update of an only writer waits in this way, and nothing failed.
    assert!(decision.eval.failed_tg_allocs.is_empty() && waiting.failed_tg_allocs.is_empty());
    assert_eq!(decision.eval.queued_allocations["g"], 1);
    assert!(world.run("writer").plan.is_empty());
    world.settle();
    let decision = world.decide(&waiting, 5);
    assert_eq!(placed(&decision), ["writer.g[0] on n1"]);
    assert_eq!(world.alloc_named("writer.g[0]").previous_allocation, old);
    assert!(world.run("writer").plan.is_empty());
}

#[test]
fn an_update_that_could_not_come_after_all_stops_nothing() {
    let mut world = world(&["n1"]);
    let mut writer = with_volume(job("writer", JobType::Service, 1), "data", SINGLE);
    world.register(writer.clone());
    world.run("writer");
    writer.task_groups[0].tasks[0].resources.memory_mb = 99_999;
    world.register(writer);
    assert!(world.run("writer").plan.is_empty());
    assert_eq!(world.running(), ["writer.g[0] on n1"]);
}

#[test]
fn missing_volumes_are_waited_for_and_named() {
    let mut world = world(&["n1"]);
    world.register(with_volume(job("early", JobType::Service, 1), "later", SINGLE));
    let decision = world.run("early");
    assert_eq!(filtered(&decision), ["missing CSI volume(s) later"]);
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-volume:default:later"]);

    let mut creating = volume("later", SINGLE);
    creating.phase = VolumePhase::Creating;
    world.set_volume(creating);
    let decision = world.run("early");
    assert_eq!(filtered(&decision), ["CSI volume later is being created"]);
    world.set_volume(volume("later", SINGLE));
    assert_eq!(placed(&world.run("early")), ["early.g[0] on n1"]);
}

#[test]
fn volumes_are_waited_for_also_without_nodes() {
    let mut world = World::default();
    world.register(with_volume(job("early", JobType::Service, 1), "later", SINGLE));
    let decision = world.run("early");
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-volume:default:later"]);
}

#[test]
fn per_alloc_volumes_follow_the_index() {
    let mut world = world(&["n1"]);
    world.set_volume(volume("shard[0]", SINGLE));
    world.set_volume(volume("shard[2]", SINGLE));
    let mut sharded = with_volume(job("sharded", JobType::Service, 3), "shard", SINGLE);
    sharded.task_groups[0].volumes.get_mut("data").unwrap().per_alloc = true;
    world.register(sharded);
    let decision = world.run("sharded");
    assert_eq!(placed(&decision), ["sharded.g[0] on n1", "sharded.g[2] on n1"]);
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-volume:default:shard[1]"]);
}

#[test]
fn plugins_must_be_there_and_healthy() {
    let mut world = world(&["n1", "n2"]);
    world.change_node("n1", |n| n.csi_node_plugins.get_mut("p").unwrap().healthy = false);
    world.change_node("n2", |n| n.csi_node_plugins.clear());
    world.register(with_volume(job("writer", JobType::Service, 1), "data", SINGLE));
    let decision = world.run("writer");
    assert_eq!(
        filtered(&decision),
        ["CSI plugin p is missing from client n2", "CSI plugin p is unhealthy on client n1"]
    );
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-plugin:p"]);
}

#[test]
fn an_unknown_capability_blocks() {
    let mut world = world(&["n1"]);
    let mut plugin = Plugin::clone(&world.plugins["p"]);
    plugin.controllers.clear();
    world.plugins.insert("p".into(), Arc::new(plugin));
    world.register(with_volume(job("writer", JobType::Service, 1), "data", SINGLE));
    let decision = world.run("writer");
    assert_eq!(filtered(&decision), ["CSI volume data is unschedulable or is read-only"]);
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-plugin:p"]);
}

#[test]
fn the_plugins_limit_counts_volumes_once() {
    let mut world = World::with_nodes(&["n1"]);
    world.install_plugin(1);
    let shared = AccessMode::MultiNodeMultiWriter;
    world.set_volume(volume("a", shared));
    world.set_volume(volume("b", shared));
    world.register(with_volume(job("one", JobType::Service, 2), "a", shared));
    assert_eq!(placed(&world.run("one")).len(), 2);
    world.register(with_volume(job("two", JobType::Service, 1), "b", shared));
    let decision = world.run("two");
    assert_eq!(filtered(&decision), ["CSI plugin p has the maximum number of volumes on client n1"]);
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-claim:default:a"]);
}

#[test]
fn topologies_pick_the_node() {
    let mut world = world(&["n1", "n2"]);
    let zone = |z: &str| Topology { segments: BTreeMap::from([("zone".into(), z.into())]) };
    for (id, z) in [("n1", "z1"), ("n2", "z2")] {
        world.change_node(id, |n| {
            let info = n.csi_node_plugins.get_mut("p").unwrap();
            info.node_info.as_mut().unwrap().accessible_topology = Some(zone(z));
        });
    }
    let mut zoned = volume("data", SINGLE);
    zoned.topologies = vec![zone("z2")];
    world.set_volume(zoned);
    world.register(with_volume(job("writer", JobType::Service, 1), "data", SINGLE));
    assert_eq!(placed(&world.run("writer")), ["writer.g[0] on n2"]);
    let metric = world.alloc_named("writer.g[0]").metrics.clone().unwrap();
    assert_eq!(metric.constraint_filtered["did not meet topology requirement"], 1);
}

#[test]
fn modes_that_the_volume_does_not_have_are_named_and_wait_for_its_registration() {
    let mut world = world(&["n1"]);
    world.register(with_volume(job("w", JobType::Service, 1), "data", AccessMode::MultiNodeMultiWriter));
    let decision = world.run("w");
    assert!(filtered(&decision)[0].starts_with("CSI volume \"data\" cannot be used as file-system"));
    assert_eq!(blocked(&decision).missing_non_node_resources, ["csi-volume:default:data"]);
}

#[test]
fn single_node_volumes_hold_their_users_together() {
    let mut world = world(&["n1", "n2"]);
    let mut reader = with_volume(job("reader", JobType::Service, 1), "data", SINGLE);
    reader.task_groups[0].volumes.get_mut("data").unwrap().read_only = true;
    world.register(reader);
    world.run("reader");
    let home = world.alloc_named("reader.g[0]").node_id.clone();
    world.register(with_volume(job("writer", JobType::Service, 1), "data", SINGLE));
    world.run("writer");
    assert_eq!(world.alloc_named("writer.g[0]").node_id, home);
}

#[test]
fn a_lost_node_keeps_its_claim_until_the_fence_is_through() {
    let mut world = world(&["n1"]);
    world.register(with_volume(job("writer", JobType::Service, 1), "data", SINGLE));
    world.run("writer");
    world.set_node(node("n2"));
    world.install_plugin(0);
    world.nodes.remove("n1");
    let decision = world.run("writer");
    assert_eq!(stopped(&world, &decision).len(), 1);
    assert!(decision.plan.placements.is_empty());
    let waiting = blocked(&decision).clone();
    assert_eq!(world.alloc_named("writer.g[0]").client_status, ClientStatus::Lost);
    world.settle();
    assert_eq!(placed(&world.decide(&waiting, 1)), ["writer.g[0] on n2"]);
}
