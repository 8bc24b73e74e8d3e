//! One storage, one volume: rows that stand for the same storage of a plugin.

use super::build::{World, claim_id, job, key, node, shared, volume, writer};
use crate::check::storages;
use crate::{decode, encode};
use caravan_types::VolumeKey;
use caravan_types::alloc::ClientStatus;
use caravan_types::command::{Change, ClaimStep, Refusal};
use caravan_types::job::JobType;
use caravan_types::volume::{AccessMode, ClaimMode, ClaimPhase, MountProof, Volume, VolumePhase};

/// Returns a row of plugin `p` on a storage. The storage is empty as long as the plugin has not responded.
fn row(id: &str, storage: &str, phase: VolumePhase) -> Volume {
    Volume { name: id.into(), external_id: storage.into(), phase, ..volume(id, "p") }
}

/// Returns a row for reading only that shares its storage.
fn reads(id: &str, storage: &str) -> Volume {
    let mut row = Volume { shared_storage: true, ..row(id, storage, VolumePhase::Ready) };
    row.requested_capabilities[0].access_mode = AccessMode::MultiNodeReaderOnly;
    row
}

fn write(world: &mut World, volume: Volume, exclusive: bool) -> Option<Refusal> {
    let expect_modify_index = world.root.volume(&volume.key()).map_or(0, |row| row.modify_index);
    world.try_apply(Change::VolumeWrite { volume: Box::new(volume), expect_modify_index, exclusive }).refused
}

/// Returns the row because of which a write was refused.
fn taken_by(refused: Option<Refusal>) -> String {
    match refused {
        Some(Refusal::StorageTaken { other, .. } | Refusal::NameTaken { other, .. }) => other.id.to_string(),
        other => panic!("{other:?}"),
    }
}

const PHASES: [VolumePhase; 4] =
    [VolumePhase::Ready, VolumePhase::Expanding, VolumePhase::Creating, VolumePhase::Deleting];

#[test]
fn a_second_row_is_refused_whatever_the_phases_are() {
    for first in PHASES {
        for second in PHASES {
            let mut world = World::default();
            assert_eq!(write(&mut world, row("a", "s", first), true), None);
            assert_eq!(taken_by(write(&mut world, row("b", "s", second), true)), "a", "{first:?} {second:?}");
            // Another storage is accepted, and so is the same id of another plugin.
            assert_eq!(write(&mut world, row("b", "t", second), true), None);
            let other = Volume { plugin_id: "q".into(), ..row("c", "s", second) };
            assert_eq!(write(&mut world, other, true), None);
            // The storage stays the row's own, and is free again after the row is deleted.
            assert_eq!(write(&mut world, row("a", "s", second), true), None);
            world.apply(Change::VolumeDelete { key: VolumeKey::new("default", "a"), force: false });
            assert_eq!(write(&mut world, row("d", "s", second), true), None);
        }
    }
    let refused = Refusal::StorageTaken {
        plugin: "p".into(),
        storage: "s".into(),
        other: VolumeKey::new("secret", "plans"),
    };
    assert!(!refused.to_string().contains("plans"), "not everybody may hear of it");
}

#[test]
fn of_two_creations_with_one_name_only_one_is_under_way() {
    let mut world = World::default();
    let creating = |id: &str| Volume { name: "same".into(), ..row(id, "", VolumePhase::Creating) };
    assert_eq!(write(&mut world, creating("a"), true), None);
    assert_eq!(taken_by(write(&mut world, creating("b"), true)), "a");
    // The same creation is accepted again, and so is its deletion before the plugin responded.
    assert_eq!(write(&mut world, creating("a"), true), None);
    assert_eq!(write(&mut world, Volume { phase: VolumePhase::Deleting, ..creating("a") }, true), None);
    assert_eq!(taken_by(write(&mut world, creating("b"), true)), "a");
    // The plugin responded. From now on, its storage decides.
    assert_eq!(write(&mut world, Volume { external_id: "s".into(), ..creating("a") }, true), None);
    assert_eq!(write(&mut world, creating("b"), true), None);
    let answered = Volume { external_id: "s".into(), phase: VolumePhase::Ready, ..creating("b") };
    assert_eq!(taken_by(write(&mut world, answered, true)), "a");
}

#[test]
fn storage_is_shared_knowingly_and_for_reading_only() {
    let mut world = World::default();
    assert_eq!(write(&mut world, reads("a", "s"), true), None);
    assert_eq!(write(&mut world, reads("b", "s"), true), None);
    assert!(storages(&world.root).is_empty());
    assert_eq!(taken_by(write(&mut world, row("c", "s", VolumePhase::Ready), true)), "a");
    // Neither row may cease to share, be written, or be deleted while the other exists.
    let apart = Volume { shared_storage: false, ..reads("a", "s") };
    let mut writes = reads("a", "s");
    writes.requested_capabilities[0].access_mode = AccessMode::SingleNodeWriter;
    let deleting = Volume { phase: VolumePhase::Deleting, ..reads("a", "s") };
    for changed in [&apart, &writes, &deleting] {
        assert_eq!(taken_by(write(&mut world, changed.clone(), true)), "b");
    }
    world.apply(Change::VolumeDelete { key: VolumeKey::new("default", "b"), force: false });
    assert_eq!(write(&mut world, deleting, true), None);
    assert_eq!(taken_by(write(&mut world, reads("b", "s"), true)), "a");
}

/// Returns a world in which an earlier version registered one storage twice, with an allocation that waits for each
/// row.
fn twice() -> World {
    let mut world = World::default();
    world.node(node("n1"));
    for id in ["a", "b"] {
        assert_eq!(write(&mut world, row(id, "s", VolumePhase::Ready), false), None);
        world.register(&job(id, JobType::Service, 1), &format!("e-{id}"));
    }
    world
}

fn place(world: &mut World, name: &str) -> Option<String> {
    let claim = writer(name, &format!("alloc-{name}"), &key(name));
    let commit = world.commit(&format!("alloc-{name}"), &key(name), "n1", vec![claim]);
    world.try_apply(Change::Plan(Box::new(commit))).refused.map(|refusal| refusal.to_string())
}

#[test]
fn what_an_earlier_version_let_happen_is_loaded_reported_and_not_used_twice() {
    let mut world = twice();
    world.root = decode(&encode(&world.root)).unwrap();
    let found = storages(&world.root);
    let text = "volume default/b stands for the same storage as volume default/a: \"s\" of plugin p";
    assert_eq!(found, [text]);
    // The rows can still change, and neither deletes the storage of both.
    for id in ["a", "b"] {
        assert_eq!(write(&mut world, row(id, "s", VolumePhase::Expanding), true), None);
        assert!(write(&mut world, row(id, "s", VolumePhase::Deleting), true).is_some());
        assert_eq!(write(&mut world, row(id, "s", VolumePhase::Ready), true), None);
    }
    assert!(place(&mut world, "b").unwrap().contains("same storage as another volume"));
    assert_eq!(place(&mut world, "a"), None);
    // Once one of the rows is deregistered, the state is sound.
    world.apply(Change::VolumeDelete { key: VolumeKey::new("default", "b"), force: false });
    assert!(storages(&world.root).is_empty());
}

#[test]
fn claims_of_a_second_row_that_were_granted_before_keep_others_away() {
    let mut world = twice();
    world.apply(Change::VolumeDelete { key: VolumeKey::new("default", "a"), force: false });
    assert_eq!(place(&mut world, "b"), None);
    // The older row is written again in the state in which an earlier version may have left it.
    assert_eq!(write(&mut world, row("a", "s", VolumePhase::Ready), false), None);
    let refused = place(&mut world, "a").unwrap();
    assert!(refused.contains("same storage"), "{refused}");
    let claim = shared(world.root.claim(&claim_id("b", "alloc-b")));
    assert_eq!((claim.mode, claim.phase), (ClaimMode::Write, ClaimPhase::Reserved));
}

/// A row that was removed by force leaves claims that still hold the storage. The storage is not free before they
/// end.
#[test]
fn a_storage_is_not_free_while_claims_of_a_removed_row_hold_it() {
    let mut world = twice();
    world.apply(Change::VolumeDelete { key: VolumeKey::new("default", "b"), force: false });
    assert_eq!(place(&mut world, "a"), None);
    let id = claim_id("a", "alloc-a");
    let take = |world: &mut World, step| {
        let expect_modify_index = shared(world.root.claim(&id)).modify_index;
        world.apply(Change::ClaimStep { id: id.clone(), expect_modify_index, step });
    };
    take(
        &mut world,
        ClaimStep::Attached {
            publish_context: Default::default(),
            needs_attach: false,
            external_node_id: String::new(),
        },
    );
    take(&mut world, ClaimStep::Mounted { proof: MountProof::default() });
    world.report("alloc-a", ClientStatus::Failed);
    world.apply(Change::VolumeDelete { key: VolumeKey::new("default", "a"), force: true });
    // Under another id, the row may exist, but no allocation can use it yet.
    assert_eq!(write(&mut world, row("b", "s", VolumePhase::Ready), true), None);
    let refused = place(&mut world, "b").unwrap();
    assert!(refused.contains("is held by allocation alloc-a"), "{refused}");
    for step in [ClaimStep::Unpublished, ClaimStep::Unstaged, ClaimStep::Freed] {
        take(&mut world, step);
    }
    assert_eq!(place(&mut world, "b"), None);
}
