//! Volumes and claims.

use super::build::{World, claim_id, job, key, node, shared, volume, writer};
use crate::{check, check_volumes, encode};
use caravan_types::alloc::ClientStatus;
use caravan_types::command::{Change, ClaimStep, LetGo, Refusal};
use caravan_types::job::{JobType, VolumeRequest, VolumeType};
use caravan_types::node::NodeStatus;
use caravan_types::volume::{Claim, ClaimPhase, ConfirmedOff, MountProof};
use caravan_types::{NodeId, UnixNanos, VolumeKey};
use std::collections::BTreeMap;

fn data() -> VolumeKey {
    VolumeKey::new("default", "data")
}

/// Returns a world with a volume, a node and an allocation that writes the volume.
fn world() -> World {
    let mut world = World::default();
    world.node(node("n1"));
    world.register(&job("web", JobType::Service, 1), "e1");
    world.apply(Change::VolumeWrite {
        volume: Box::new(volume("data", "p")),
        expect_modify_index: 0,
        exclusive: true,
    });
    let commit = world.commit("a1", &key("web"), "n1", vec![writer("data", "a1", &key("web"))]);
    world.apply(Change::Plan(Box::new(commit)));
    world
}

fn claim<'w>(world: &'w World, alloc: &str) -> &'w Claim {
    shared(world.root.claim(&claim_id("data", alloc)))
}

fn step(world: &mut World, alloc: &str, step: ClaimStep) {
    let expect_modify_index = claim(world, alloc).modify_index;
    world.apply(Change::ClaimStep { id: claim_id("data", alloc), expect_modify_index, step });
}

/// Returns a world whose volume is attached by the plugin's controller and mounted by the client.
fn mounted() -> World {
    let mut world = world();
    step(&mut world, "a1", ClaimStep::IntendAttach { external_node_id: "x1".into() });
    let (publish_context, external_node_id) = (Default::default(), "x1".into());
    step(&mut world, "a1", ClaimStep::Attached { publish_context, needs_attach: true, external_node_id });
    step(&mut world, "a1", ClaimStep::Mounted { proof: MountProof::default() });
    world
}

#[test]
fn a_claim_is_granted_with_all_that_its_release_needs() {
    let world = world();
    let claim = claim(&world, "a1");
    assert_eq!((claim.phase, claim.node_id.as_str()), (ClaimPhase::Reserved, "n1"));
    assert_eq!((claim.plugin_id.as_str(), claim.external_volume_id.as_str()), ("p", "ext-data"));
    assert_eq!((claim.create_index, claim.modify_index), (world.root.index(), world.root.index()));
    assert_eq!(world.root.claims_of(&data()).count(), 1);
    assert_eq!(world.root.claims_by_node(&"n1".into()).count(), 1);
    assert_eq!(world.root.claims_by_alloc(&"a1".into()).count(), 1);
}

#[test]
fn a_second_writer_refuses_the_whole_plan() {
    let mut world = world();
    let commit = world.commit("a2", &key("web"), "n1", vec![writer("data", "a2", &key("web"))]);
    let outcome = world.try_apply(Change::Plan(Box::new(commit)));
    assert!(matches!(outcome.refused, Some(Refusal::ClaimRefused(_))), "{outcome:?}");
    assert!(world.root.alloc(&"a2".into()).is_none());
    let missing = world.commit("a3", &key("web"), "n1", vec![writer("none", "a3", &key("web"))]);
    let outcome = world.try_apply(Change::Plan(Box::new(missing)));
    assert_eq!(outcome.refused, Some(Refusal::ClaimRefused("volume not found: none".into())));
}

#[test]
fn the_end_of_an_allocation_begins_the_release() {
    let mut world = mounted();
    world.stop("a1", None);
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Mounted, "it still runs");
    world.report("a1", ClientStatus::Complete);
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Releasing);
    for next in [ClaimStep::Unpublished, ClaimStep::Unstaged, ClaimStep::IntendDetach, ClaimStep::Freed] {
        step(&mut world, "a1", next);
    }
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Gone);
    let commit = world.commit("a2", &key("web"), "n1", vec![writer("data", "a2", &key("web"))]);
    world.apply(Change::Plan(Box::new(commit)));
    world.apply(Change::Collect { evals: vec![], allocs: vec!["a1".into()] });
    assert_eq!(world.root.claims_of(&data()).count(), 1, "history goes with the allocation");
}

#[test]
fn a_lost_or_removed_allocation_releases_its_claim() {
    let mut world = mounted();
    world.stop("a1", Some(ClientStatus::Lost));
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Releasing);

    let mut world = mounted();
    world.stop("a1", None);
    world.apply(Change::NodeDelete { node: "n1".into(), evals: vec![] });
    world.apply(Change::Collect { evals: vec![], allocs: vec!["a1".into()] });
    assert!(world.root.alloc(&"a1".into()).is_none());
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Releasing);
}

#[test]
fn steps_are_refused_when_stale_or_illegal() {
    let mut world = world();
    let id = claim_id("data", "a1");
    let at = claim(&world, "a1").modify_index;
    let stale = Change::ClaimStep { id: id.clone(), expect_modify_index: at - 1, step: ClaimStep::Release };
    assert!(matches!(world.try_apply(stale).refused, Some(Refusal::Changed { .. })));
    let wrong = Change::ClaimStep { id, expect_modify_index: at, step: ClaimStep::Unstaged };
    assert!(matches!(world.try_apply(wrong).refused, Some(Refusal::IllegalStep { .. })));
    let nobody = Change::ClaimStep {
        id: claim_id("data", "a9"),
        expect_modify_index: 1,
        step: ClaimStep::Fence { until: UnixNanos(1), silence: Some(1) },
    };
    assert!(matches!(world.try_apply(nobody).refused, Some(Refusal::NotFound { .. })));
}

#[test]
fn volumes_are_written_by_those_who_saw_the_newest_row_only() {
    let mut world = world();
    let at = shared(world.root.volume(&data())).modify_index;
    let write = |expect| Change::VolumeWrite {
        volume: Box::new(volume("data", "q")),
        expect_modify_index: expect,
        exclusive: true,
    };
    assert!(matches!(world.try_apply(write(0)).refused, Some(Refusal::Changed { .. })));
    let now = world.apply(write(at));
    let row = shared(world.root.volume(&data()));
    assert_eq!((row.create_index, row.modify_index), (at, now));
    assert_eq!(world.root.volumes_by_plugin(&"p".into()).count(), 0);
    assert_eq!(world.root.volumes_by_plugin(&"q".into()).count(), 1);
}

#[test]
fn a_volume_in_use_is_not_removed() {
    let mut world = mounted();
    let delete = |force| Change::VolumeDelete { key: data(), force };
    let refused = world.try_apply(delete(false)).refused.unwrap();
    assert_eq!(refused.to_string(), "volume in use: data");
    assert!(world.try_apply(delete(true)).refused.is_some(), "the allocation still runs");
    world.report("a1", ClientStatus::Failed);
    assert!(world.try_apply(delete(false)).refused.is_some());
    world.apply(delete(true));
    assert_eq!(world.root.volumes().count(), 0);
    // The claim is released without the row of the volume, and is then removed.
    let id = claim_id("data", "a1");
    assert!(shared(world.root.claim(&id)).forsaken && check(&world.root).is_empty());
    for step in [ClaimStep::Unpublished, ClaimStep::Unstaged, ClaimStep::IntendDetach, ClaimStep::Freed] {
        let expect_modify_index = shared(world.root.claim(&id)).modify_index;
        world.apply(Change::ClaimStep { id: id.clone(), expect_modify_index, step });
    }
    assert_eq!(world.root.claims().count(), 0);
    assert!(matches!(world.try_apply(delete(false)).refused, Some(Refusal::NotFound { .. })));
}

#[test]
fn the_check_of_volumes_names_what_dangles() {
    let world = mounted();
    let unknown = "volume default/data has 1 claims, and its plugin p is not known";
    assert_eq!(check_volumes(&world.root), [unknown]);

    let mut root = world.root.clone();
    root.nodes.remove(&NodeId::from("n1"));
    let text = "the claim of allocation a1 on volume default/data is mounted on node n1 that is not there";
    assert_eq!(check_volumes(&root), [text, unknown]);

    // The allocation was placed with a claim and lacks it now.
    let mut root = world.root.clone();
    let mut alloc = (**root.alloc(&"a1".into()).unwrap()).clone();
    let mut job = (**alloc.job.as_ref().unwrap()).clone();
    let request = VolumeRequest { kind: VolumeType::Csi, source: "other".into(), ..Default::default() };
    for group in &mut job.task_groups {
        group.volumes.insert("files".into(), request.clone());
    }
    alloc.job = Some(job.into());
    root.allocs.insert(alloc.id.clone(), alloc.into());
    let found = check_volumes(&root);
    let text = "allocation a1 of job web runs without a claim on volume default/other (files)";
    assert!(found.iter().any(|finding| finding == text), "{found:?}");
}

#[test]
fn the_check_asks_the_rules_of_volumes() {
    let world = mounted();
    let mut root = world.root.clone();
    let claim = Claim { needs_attach: None, ..claim(&world, "a1").clone() };
    root.claims.insert(claim.id.clone(), claim.into());
    let found = check(&root);
    assert!(
        found.iter().any(|finding| finding.ends_with("whether its plugin attaches (rule 6)")),
        "{found:?}"
    );
}

/// An attached claim, on a node whose status a test changes.
struct Fenced {
    world: World,
    node: NodeId,
}

impl Fenced {
    fn new() -> Self {
        let world = world();
        let node = claim(&world, "a1").node_id.clone();
        let mut this = Self { world, node };
        let attached = ClaimStep::Attached {
            publish_context: BTreeMap::new(),
            needs_attach: false,
            external_node_id: String::new(),
        };
        this.take(attached);
        this
    }
    fn claim(&self) -> &Claim {
        claim(&self.world, "a1")
    }
    fn change(&self, step: ClaimStep) -> Change {
        let expect_modify_index = self.claim().modify_index;
        Change::ClaimStep { id: claim_id("data", "a1"), expect_modify_index, step }
    }
    fn take(&mut self, step: ClaimStep) -> u64 {
        let change = self.change(step);
        self.world.apply(change)
    }
    /// Returns whether a step is refused because the node has changed since the step was decided.
    fn is_stale(&mut self, step: ClaimStep) -> bool {
        let change = self.change(step);
        let refused = self.world.try_apply(change).refused;
        matches!(refused, Some(Refusal::Changed { what }) if what.starts_with("node "))
    }
    fn node_is(&mut self, status: NodeStatus) -> u64 {
        let node = self.node.clone();
        self.world.apply(Change::NodeStatus { node, status, event: None, evals: vec![] })
    }
    fn remove_node(&mut self) {
        self.world.apply(Change::NodeDelete { node: self.node.clone(), evals: vec![] });
    }
}

fn fence(silence: u64) -> ClaimStep {
    ClaimStep::Fence { until: UnixNanos(1), silence: Some(silence) }
}

fn freed(fence: u64) -> ClaimStep {
    ClaimStep::Waited { fence, then: LetGo::Freed }
}

#[test]
fn a_node_that_came_back_is_not_fenced_by_what_was_decided_before() {
    let mut w = Fenced::new();
    assert!(w.is_stale(fence(0)));
    let silence = w.node_is(NodeStatus::Down);
    assert!(w.is_stale(fence(silence - 1)), "decided in an earlier silence");
    w.take(fence(silence));
    assert_eq!(w.claim().fence_index, Some(silence));
    for back in [NodeStatus::Initializing, NodeStatus::Ready] {
        w.node_is(back);
        assert_eq!(w.claim().fence_index, Some(0), "what was waited out counts no more");
        assert!(w.is_stale(freed(silence)), "its own word is needed now");
    }
    // The node is silent again: the wait for the first silence does not end the second silence.
    let again = w.node_is(NodeStatus::Disconnected);
    assert!(w.is_stale(freed(silence)));
    w.take(fence(again));
    assert_eq!(w.node_is(NodeStatus::Down), w.world.root.index());
    w.take(freed(again));
    assert_eq!(w.claim().phase, ClaimPhase::Gone);
}

#[test]
fn a_node_that_was_removed_is_waited_for_from_its_silence_on_or_anew() {
    let mut w = Fenced::new();
    let silence = w.node_is(NodeStatus::Down);
    w.take(fence(silence));
    w.remove_node();
    assert_eq!(w.claim().fence_index, Some(silence), "the silence goes on");

    // The node is removed while it is in contact: the state does not have the time of its last contact.
    let mut w = Fenced::new();
    let silence = w.node_is(NodeStatus::Down);
    w.take(fence(silence));
    w.node_is(NodeStatus::Ready);
    w.remove_node();
    let refused = w.change(freed(silence));
    assert!(w.world.try_apply(refused).refused.is_some());
    let begun = w.take(fence(0));
    assert_eq!(w.claim().fence_index, Some(begun));
    w.take(freed(begun));
    assert_eq!(w.claim().phase, ClaimPhase::Gone);
}

#[test]
fn logs_of_earlier_versions_replay_as_they_were() {
    let mut w = Fenced::new();
    let old = ClaimStep::Fence { until: UnixNanos(1), silence: None };
    assert!(w.is_stale(old.clone()));
    w.node_is(NodeStatus::Down);
    w.take(old);
    let at = w.claim().modify_index;
    w.node_is(NodeStatus::Ready);
    assert_eq!(w.claim().modify_index, at, "later commands of the log expect this index");
    assert!(w.is_stale(ClaimStep::Freed));
    w.node_is(NodeStatus::Down);
    w.take(ClaimStep::Freed);
    assert_eq!(w.claim().phase, ClaimPhase::Gone);
    // The command in the form of such a log.
    let named =
        rmp_serde::to_vec_named(&BTreeMap::from([("Fence", BTreeMap::from([("until", 5)]))])).unwrap();
    let read: ClaimStep = rmp_serde::from_slice(&named).unwrap();
    assert_eq!(read, ClaimStep::Fence { until: UnixNanos(5), silence: None });
}

#[test]
fn the_word_that_a_node_is_off_holds_until_the_node_is_back() {
    let mut w = Fenced::new();
    let off = ConfirmedOff { accessor_id: "abc".into(), name: "ops".into(), at: UnixNanos(3) };
    let confirm = Change::NodeFence { node: w.node.clone(), off: off.clone() };
    for status in [NodeStatus::Ready, NodeStatus::Initializing] {
        w.node_is(status);
        let refused = w.world.try_apply(confirm.clone()).refused.unwrap().to_string();
        let word = format!("is {} and answers: only a node that is down", status.as_str());
        assert!(refused.contains(&word), "{refused}");
    }
    w.node_is(NodeStatus::Down);
    w.world.apply(confirm.clone());
    assert_eq!(w.claim().node_off.as_ref(), Some(&off));
    let reported = &w.claim().history.last().unwrap().note;
    assert_eq!(reported, "\"ops\" (token abc) confirmed that the node is off");
    let event = shared(w.world.root.node(&w.node)).events.last().unwrap().clone();
    assert!(event.message.contains("confirmed to be off") && event.details["accessor_id"] == "abc");
    w.node_is(NodeStatus::Ready);
    assert_eq!(w.claim().node_off, None);
    assert!(w.claim().history.last().unwrap().note.contains("in contact again"));

    // A node without a record can be confirmed as off, as long as it has claims.
    w.node_is(NodeStatus::Down);
    w.remove_node();
    w.world.apply(confirm);
    assert!(w.claim().node_off.is_some());
    let nobody = Change::NodeFence { node: "n9".into(), off };
    assert!(matches!(w.world.try_apply(nobody).refused, Some(Refusal::NotFound { .. })));
}

#[test]
fn what_is_sealed_with_a_key_that_is_gone_is_refused() {
    use caravan_types::admin::AdminChange;
    use caravan_types::command::Outcome;
    use caravan_types::operator::{RootKeyMeta, RootKeyState};
    use caravan_types::sealed::SealedSecrets;
    use caravan_types::variable::{LockUse, Variable, VariableKey};
    use caravan_types::volume::Volume;
    let key = |id: &str, state| {
        let key = RootKeyMeta { key_id: id.into(), state, ..RootKeyMeta::default() };
        Change::Admin(AdminChange::RootKeyWrite { key: Box::new(key), full: false, material: None })
    };
    let sealed = |key: &str| SealedSecrets { key: key.into(), text: "c2VhbGVk".into() };
    let variable = |key: &str| {
        let key_of = VariableKey::new("default", "a");
        let row = Variable { key: key_of, items: sealed(key), ..Variable::default() };
        Change::VariableWrite { variable: Box::new(row), check_index: None, lock: LockUse::None }
    };
    let own = VolumeKey::new("default", "v");
    let volume = |key: &str, expect: u64| {
        let (namespace, id) = (own.namespace.clone(), own.id.clone());
        let row = Volume { namespace, id, secrets: sealed(key), ..Volume::default() };
        Change::VolumeWrite { volume: Box::new(row), expect_modify_index: expect, exclusive: false }
    };
    let gone = |outcome: Outcome| matches!(outcome.refused, Some(Refusal::UnknownKey { .. }));
    let mut world = World::default();
    // A log from before the rows of keys can be read.
    world.apply(variable("ancient"));
    world.apply(key("k1", RootKeyState::Active));
    world.apply(variable("k1"));
    world.apply(key("k2", RootKeyState::Active));
    world.apply(variable("k2"));
    world.apply(volume("k1", 0));
    let at = world.root.volume(&own).unwrap().modify_index;
    world.apply(Change::Admin(AdminChange::RootKeyDelete { id: "k1".into(), force: true }));
    assert!(gone(world.try_apply(variable("k1"))));
    assert!(gone(world.try_apply(volume("k3", at))));
    // An existing row may be written again, for example when the phase of a volume changes.
    world.apply(volume("k1", at));
    world.apply(variable("k2"));
}

/// Replaces the state by a snapshot.
fn restore(world: &mut World, snapshot: Vec<u8>) {
    world.apply(Change::Restore { snapshot });
}

/// Ends a claim whose node has unmounted the volume.
fn end(world: &mut World, alloc: &str) {
    for next in [ClaimStep::Unpublished, ClaimStep::Unstaged, ClaimStep::IntendDetach, ClaimStep::Freed] {
        step(world, alloc, next);
    }
}

#[test]
fn a_restore_takes_no_volume_from_a_node_that_uses_it() {
    let mut world = World::default();
    world.node(node("n1"));
    world.node(node("n2"));
    world.register(&job("web", JobType::Service, 1), "e1");
    let row = Box::new(volume("data", "p"));
    world.apply(Change::VolumeWrite { volume: row, expect_modify_index: 0, exclusive: true });
    let snapshot = encode(&world.root);
    let commit = world.commit("a1", &key("web"), "n1", vec![writer("data", "a1", &key("web"))]);
    world.apply(Change::Plan(Box::new(commit)));
    step(&mut world, "a1", ClaimStep::IntendAttach { external_node_id: "x1".into() });
    let (publish_context, external_node_id) = (Default::default(), "x1".into());
    step(&mut world, "a1", ClaimStep::Attached { publish_context, needs_attach: true, external_node_id });

    restore(&mut world, snapshot);
    assert!(world.root.alloc(&"a1".into()).is_none());
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Releasing);
    assert!(check(&world.root).is_empty(), "{:?}", check(&world.root));
    let next = |world: &World| {
        Change::Plan(Box::new(world.commit("a2", &key("web"), "n2", vec![writer("data", "a2", &key("web"))])))
    };
    let refused = world.try_apply(next(&world)).refused;
    assert!(matches!(refused, Some(Refusal::ClaimRefused(_))), "{refused:?}");
    end(&mut world, "a1");
    world.apply(next(&world));
}

#[test]
fn a_restore_brings_no_ended_claim_back() {
    let mut world = mounted();
    let snapshot = encode(&world.root);
    world.report("a1", ClientStatus::Complete);
    end(&mut world, "a1");
    let commit = world.commit("a2", &key("web"), "n1", vec![writer("data", "a2", &key("web"))]);
    world.apply(Change::Plan(Box::new(commit)));
    step(&mut world, "a2", ClaimStep::IntendAttach { external_node_id: "x1".into() });
    restore(&mut world, snapshot.clone());
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Gone);
    // The outcome of the call is unknown, so it is undone.
    assert_eq!(claim(&world, "a2").phase, ClaimPhase::Unstaged);
    assert!(check(&world.root).is_empty(), "{:?}", check(&world.root));

    // The history of the first claim was removed with its allocation.
    let mut world = mounted();
    world.report("a1", ClientStatus::Complete);
    end(&mut world, "a1");
    world.apply(Change::Collect { evals: vec![], allocs: vec!["a1".into()] });
    let commit = world.commit("a2", &key("web"), "n1", vec![writer("data", "a2", &key("web"))]);
    world.apply(Change::Plan(Box::new(commit)));
    step(&mut world, "a2", ClaimStep::IntendAttach { external_node_id: "x1".into() });
    restore(&mut world, snapshot);
    assert!(world.root.claim(&claim_id("data", "a1")).is_none());
    assert_eq!(claim(&world, "a2").phase, ClaimPhase::Unstaged);
}

#[test]
fn a_restore_without_the_volume_keeps_what_its_release_needs() {
    let mut world = World::default();
    world.node(node("n1"));
    let snapshot = encode(&world.root);
    let mut world = mounted();
    restore(&mut world, snapshot);
    let kept = claim(&world, "a1");
    assert!(kept.forsaken && kept.phase == ClaimPhase::Releasing, "{kept:?}");
    assert!(check(&world.root).is_empty(), "{:?}", check(&world.root));
    end_forsaken(&mut world);
    assert_eq!(world.root.claims().count(), 0);
}

fn end_forsaken(world: &mut World) {
    for step in [ClaimStep::Unpublished, ClaimStep::Unstaged, ClaimStep::IntendDetach, ClaimStep::Freed] {
        let id = claim_id("data", "a1");
        let expect_modify_index = shared(world.root.claim(&id)).modify_index;
        world.apply(Change::ClaimStep { id, expect_modify_index, step });
    }
}

#[test]
fn a_new_cluster_takes_the_claims_of_the_snapshot() {
    let snapshot = encode(&mounted().root);
    let mut world = World::default();
    restore(&mut world, snapshot);
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Mounted);
    end_after_release(&mut world);
    assert_eq!(claim(&world, "a1").phase, ClaimPhase::Gone);
}

fn end_after_release(world: &mut World) {
    world.report("a1", ClientStatus::Complete);
    end(world, "a1");
}

#[test]
fn a_restored_claim_waits_out_no_silence_that_the_state_does_not_have() {
    let mut world = mounted();
    let before = encode(&world.root);
    let (event, evals) = (None, Vec::new());
    world.apply(Change::NodeStatus { node: "n1".into(), status: NodeStatus::Down, event, evals });
    let silence = world.root.index();
    world.report("a1", ClientStatus::Lost);
    step(&mut world, "a1", ClaimStep::Fence { until: UnixNanos(9), silence: Some(silence) });
    restore(&mut world, before);
    let kept = claim(&world, "a1");
    assert_eq!((kept.phase, kept.fence_index), (ClaimPhase::Fencing, Some(0)));
    assert!(check(&world.root).is_empty(), "{:?}", check(&world.root));
}
