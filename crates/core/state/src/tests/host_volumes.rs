//! Host volumes and the holds of groups on them.

use super::build::{World, job, key, node, shared};
use crate::{decode, encode};
use caravan_types::alloc::ClientStatus;
use caravan_types::command::{Change, Outcome, Refusal};
use caravan_types::host_volume::{HostVolume, HostVolumeClaim, HostVolumeIntent, HostVolumeState};
use caravan_types::job::{Job, JobType, VolumeRequest, VolumeType};
use caravan_types::node::{HostVolumeInfo, Node, NodeStatus};

fn row(id: &str, name: &str, node: &str) -> HostVolume {
    HostVolume {
        namespace: "default".into(),
        id: id.into(),
        name: name.into(),
        node_id: node.into(),
        ..HostVolume::default()
    }
}

fn write(world: &mut World, volume: HostVolume) -> Outcome {
    let expect_modify_index = world.root.host_volume(&volume.id).map_or(0, |row| row.modify_index);
    world.try_apply(Change::HostVolumeWrite { volume: Box::new(volume), expect_modify_index })
}

fn offering(name: &str, id: &str) -> Node {
    let info = HostVolumeInfo { name: name.into(), id: id.into(), ..HostVolumeInfo::default() };
    let mut node = node("n1");
    node.host_volumes.insert(name.into(), info);
    node
}

fn user_job() -> Job {
    let mut job = job("web", JobType::Service, 1);
    let request = VolumeRequest { kind: VolumeType::Host, source: "data".into(), ..VolumeRequest::default() };
    job.task_groups[0].volumes.insert("d".into(), request);
    job
}

fn claim(id: &str, alloc: &str) -> HostVolumeClaim {
    HostVolumeClaim {
        id: id.into(),
        namespace: "default".into(),
        job_id: "web".into(),
        task_group_name: "g".into(),
        alloc_id: alloc.into(),
        volume_id: "v1".into(),
        volume_name: "data".into(),
        ..HostVolumeClaim::default()
    }
}

/// Returns a world with a ready volume, and an allocation that uses and holds it.
fn world() -> World {
    let mut world = World::default();
    world.node(offering("data", "v1"));
    assert_eq!(write(&mut world, row("v1", "data", "n1")).refused, None);
    world.register(&user_job(), "e1");
    let mut commit = world.commit("a1", &key("web"), "n1", vec![]);
    commit.host_claims.push(claim("c1", "a1"));
    world.apply(Change::Plan(Box::new(commit)));
    world
}

fn state(world: &World) -> HostVolumeState {
    shared(world.root.host_volume(&"v1".into())).state
}

/// docs/design/rough-edges.md, 43 and 44: the state follows the node's reports in any order, even after its last
/// volume vanishes or the node is down.
#[test]
fn the_state_follows_the_node_whatever_comes_first() {
    let mut world = World::default();
    world.node(node("n1"));
    write(&mut world, row("v1", "data", "n1"));
    assert_eq!(state(&world), HostVolumeState::Pending);
    world.node(offering("data", "v1"));
    assert_eq!(state(&world), HostVolumeState::Ready);
    world.node(node("n1"));
    assert_eq!(state(&world), HostVolumeState::Unavailable);
    world.node(offering("data", "v1"));
    let down = Change::NodeStatus { node: "n1".into(), status: NodeStatus::Down, event: None, evals: vec![] };
    world.apply(down);
    assert_eq!(state(&world), HostVolumeState::Unavailable);
    world.node(offering("data", "v1"));
    assert_eq!(state(&world), HostVolumeState::Ready);
    // The node reported the volume before the row was written.
    world.apply(Change::HostVolumeDelete { namespace: "default".into(), id: "v1".into(), force: false });
    write(&mut world, row("v1", "data", "n1"));
    assert_eq!(state(&world), HostVolumeState::Ready);
    world.apply(Change::NodeDelete { node: "n1".into(), evals: vec![] });
    assert_eq!(state(&world), HostVolumeState::Unavailable);
}

/// docs/design/rough-edges.md, 40: two creations of one name on one node cannot both succeed.
#[test]
fn a_name_is_on_a_node_once() {
    let mut world = world();
    let refused = write(&mut world, row("v2", "data", "n1")).refused;
    assert!(matches!(refused, Some(Refusal::Changed { .. })), "{refused:?}");
    assert_eq!(write(&mut world, row("v2", "data", "n2")).refused, None);
    assert_eq!(write(&mut world, row("v3", "other", "n1")).refused, None);
}

#[test]
fn nothing_that_is_used_or_held_is_deleted() {
    let mut world = world();
    let volume = shared(world.root.host_volume(&"v1".into())).clone();
    let delete = |force| Change::HostVolumeDelete { namespace: "default".into(), id: "v1".into(), force };
    let intended = HostVolume { intent: HostVolumeIntent::Delete, ..volume.clone() };
    let in_use = Some(Refusal::VolumeInUse { volume: "v1".into() });
    assert_eq!(world.try_apply(delete(false)).refused, in_use);
    assert_eq!(write(&mut world, intended.clone()).refused, in_use);
    world.report("a1", ClientStatus::Complete);
    assert_eq!(world.root.host_volume_users(&volume).count(), 0);
    // The hold stays with the job until it is purged or removed by a user.
    assert_eq!(write(&mut world, intended.clone()).refused, in_use);
    world.apply(Change::HostClaimDelete { id: "c1".into() });
    assert_eq!(write(&mut world, intended).refused, None);
    // A plan from before the decision to delete does not get the volume.
    let commit = world.commit("a2", &key("web"), "n1", vec![]);
    let refused = world.try_apply(Change::Plan(Box::new(commit))).refused;
    assert!(matches!(refused, Some(Refusal::ClaimRefused(_))), "{refused:?}");
    world.apply(delete(false));
    assert!(world.root.host_volume(&"v1".into()).is_none());
}

/// docs/design/rough-edges.md, 39: the command contains the ids of holds, and snapshots keep them.
#[test]
fn holds_keep_their_id_through_replacement_snapshot_and_stop_until_the_purge() {
    let mut world = world();
    let before = shared(world.root.host_claim("c1")).clone();
    world.stop("a1", None);
    world.report("a1", ClientStatus::Complete);
    let mut commit = world.commit("a2", &key("web"), "n1", vec![]);
    commit.host_claims.push(claim("c1", "a2"));
    world.apply(Change::Plan(Box::new(commit)));
    let after = shared(world.root.host_claim("c1")).clone();
    assert_eq!((after.alloc_id.as_str(), after.create_index), ("a2", before.create_index));
    assert!(after.modify_index > before.modify_index);
    let restored = decode(&encode(&world.root)).unwrap();
    assert_eq!(restored, world.root);
    assert_eq!(restored.host_claims_by_job(&key("web")).count(), 1);
    world.apply(Change::JobDeregister { key: key("web"), purge: false, eval: None });
    assert_eq!(world.root.host_claims().count(), 1);
    world.apply(Change::JobDeregister { key: key("web"), purge: true, eval: None });
    assert_eq!(world.root.host_claims().count(), 0);
}

#[test]
fn volumes_outlive_the_collection_of_their_node_unless_it_says_otherwise() {
    let mut world = world();
    world.node(Node { gc_volumes_on_node_gc: true, ..offering("data", "v1") });
    world.apply(Change::NodeDelete { node: "n1".into(), evals: vec![] });
    assert_eq!((world.root.host_volumes().count(), world.root.host_claims().count()), (0, 0));
}
