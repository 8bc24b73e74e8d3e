use super::*;
use crate::claim;
use caravan_types::command::{ClaimStep, LetGo};
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo, Reports};
use caravan_types::volume::{AccessMode, AttachmentMode, ClaimId, MountProof};
use caravan_types::{NodeId, UnixNanos, VolumeKey};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000_000);
/// The recorded time of steps, on which no decision depends.
const WALL: UnixNanos = UnixNanos(1);
/// The presence of a node that fell silent.
const SILENT: Presence = Presence::Silent { index: 7 };

fn plugin(attaches: Option<bool>) -> Plugin {
    let node = CsiInfo {
        healthy: true,
        node_info: Some(CsiNodeInfo { id: "ext-n1".into(), ..Default::default() }),
        ..Default::default()
    };
    let other = CsiInfo {
        healthy: true,
        node_info: Some(CsiNodeInfo { id: "ext-n2".into(), ..Default::default() }),
        ..Default::default()
    };
    let mut plugin = Plugin {
        id: "p".into(),
        controller_required: true,
        nodes: Reports::unit("n1".into(), node.into()).update("n2".into(), other.into()),
        ..Default::default()
    };
    if let Some(supports_attach_detach) = attaches {
        let info = CsiControllerInfo { supports_attach_detach, ..Default::default() };
        let report = CsiInfo { healthy: true, controller_info: Some(info), ..Default::default() };
        plugin.controllers.insert("n1".into(), report.into());
    }
    plugin
}

fn held(alloc: &str, node: &str, phase: ClaimPhase) -> Claim {
    Claim {
        id: ClaimId { volume: VolumeKey::new("default", "data"), alloc: alloc.into() },
        node_id: node.into(),
        plugin_id: "p".into(),
        mode: ClaimMode::Write,
        access_mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        needs_attach: if phase == ClaimPhase::Reserved { None } else { Some(true) },
        external_node_id: if phase == ClaimPhase::Reserved { String::new() } else { "ext-n1".into() },
        phase,
        ..Claim::default()
    }
}

fn decide(claim: &Claim, others: &[&Claim], plugin: Option<&Plugin>, node: Presence) -> Action {
    decide_after(claim, others, plugin, node, Nanos::ZERO)
}

/// Returns the decision for a server that has waited for `waited` since it first saw the reason for its wait.
fn decide_after(
    claim: &Claim,
    others: &[&Claim],
    plugin: Option<&Plugin>,
    node: Presence,
    waited: Nanos,
) -> Action {
    let volume = Volume::default();
    next(&Facts {
        volume: Some(&volume),
        claim,
        others,
        plugin,
        node,
        lease: Lease::default(),
        seen: Seen::at(NOW),
        now: NOW.plus(waited),
    })
}

#[test]
fn a_reserved_claim_is_attached_marked_or_waits_but_never_skips() {
    let claim = held("a", "n1", ClaimPhase::Reserved);
    let attach = decide(&claim, &[], Some(&plugin(Some(true))), Presence::Here);
    assert_eq!(attach, Action::Attach { external_node_id: "ext-n1".into() });
    let mark = decide(&claim, &[], Some(&plugin(Some(false))), Presence::Here);
    assert_eq!(mark, Action::MarkAttached { external_node_id: "ext-n1".into() });
    let unknown = decide(&claim, &[], Some(&plugin(None)), Presence::Here);
    assert_eq!(unknown.reason(), Some(&WaitReason::AttachSupportUnknown { plugin: "p".into() }));
    assert!(matches!(decide(&claim, &[], None, Presence::Here), Action::WaitForPlugin(_)));
    let silent = decide(&claim, &[], Some(&plugin(Some(true))), SILENT);
    assert!(matches!(silent, Action::WaitForClient(_)));
}

#[test]
fn attaching_waits_for_the_plugins_id_of_the_node() {
    let claim = held("a", "n9", ClaimPhase::Reserved);
    let action = decide(&claim, &[], Some(&plugin(Some(true))), Presence::Here);
    let reason = WaitReason::NodeIdUnknown { plugin: "p".into(), node: "n9".into() };
    assert_eq!(action.reason(), Some(&reason));
}

#[test]
fn failed_tries_wait_with_the_plugins_words() {
    let mut claim = held("a", "n1", ClaimPhase::Attaching);
    claim.tries = 2;
    claim.last_error = "out of targets".into();
    let (plugin, delay) = (plugin(Some(true)), crate::retry::delay(2));
    // The result is the same for every recorded wall time.
    for next_try in [1, i64::MAX] {
        claim.next_try = UnixNanos(next_try);
        let failure = Some(FailedTry { tries: 2, error: "out of targets".into() });
        let wait = Wait { reason: WaitReason::Retry, failure };
        assert_eq!(
            decide(&claim, &[], Some(&plugin), Presence::Here),
            Action::WaitUntil { time: NOW.plus(delay), wait }
        );
        let due = decide_after(&claim, &[], Some(&plugin), Presence::Here, delay);
        assert!(matches!(due, Action::Attach { .. }));
    }
    claim.next_try = UnixNanos(0);
    assert!(matches!(decide(&claim, &[], Some(&plugin), Presence::Here), Action::Attach { .. }));
}

#[test]
fn a_single_node_volume_waits_for_its_claims_on_other_nodes() {
    let claim = held("b", "n2", ClaimPhase::Reserved);
    for attaches in [true, false] {
        let plugin = plugin(Some(attaches));
        for phase in [ClaimPhase::Mounted, ClaimPhase::Unstaged, ClaimPhase::Detaching, ClaimPhase::Fencing] {
            let old = held("a", "n1", phase);
            let action = decide(&claim, &[&old], Some(&plugin), Presence::Here);
            let reason = WaitReason::OtherClaim { alloc: "a".into(), node: "n1".into(), phase };
            assert_eq!(action.reason(), Some(&reason));
        }
        let gone = held("a", "n1", ClaimPhase::Gone);
        assert_eq!(decide(&claim, &[&gone], Some(&plugin), Presence::Here).reason(), None);
    }
}

#[test]
fn of_two_reserved_claims_only_the_later_waits() {
    let first = Claim { create_index: 1, ..held("a", "n1", ClaimPhase::Reserved) };
    let second = Claim { create_index: 2, ..held("b", "n2", ClaimPhase::Reserved) };
    let plugin = plugin(Some(true));
    assert!(matches!(decide(&first, &[&second], Some(&plugin), Presence::Here), Action::Attach { .. }));
    assert!(decide(&second, &[&first], Some(&plugin), Presence::Here).reason().is_some());
}

#[test]
fn the_attachment_is_left_to_a_claim_that_still_uses_it() {
    let claim = held("a", "n1", ClaimPhase::Unstaged);
    let plugin = plugin(Some(true));
    let user = held("b", "n1", ClaimPhase::Mounted);
    assert_eq!(decide(&claim, &[&user], Some(&plugin), Presence::Here), Action::LeaveAttached);
    // The release of a claim whose calls were all refused detaches nothing.
    let refused = Claim { attach_calls: AttachCalls::Refused, ..held("b", "n1", ClaimPhase::Attaching) };
    assert_eq!(decide(&claim, &[&refused], Some(&plugin), Presence::Here), Action::Detach);
    let unclear = Claim { attach_calls: AttachCalls::Unclear, ..refused };
    assert_eq!(decide(&claim, &[&unclear], Some(&plugin), Presence::Here), Action::LeaveAttached);
    let reserved = held("b", "n1", ClaimPhase::Reserved);
    assert_eq!(decide(&claim, &[&reserved], Some(&plugin), Presence::Here), Action::Detach);
    let elsewhere = held("b", "n2", ClaimPhase::Mounted);
    assert_eq!(decide(&claim, &[&elsewhere], Some(&plugin), Presence::Here), Action::Detach);
    let twin = held("b", "n1", ClaimPhase::Unstaged);
    assert_eq!(decide(&claim, &[&twin], Some(&plugin), Presence::Here), Action::Detach);
}

/// A claim whose calls were all refused ends without a detach: an attachment left to it would never be detached.
#[test]
fn no_attachment_is_left_to_a_claim_that_attached_nothing() {
    let claim = held("a", "n1", ClaimPhase::Unstaged);
    let plugin = plugin(Some(true));
    let other = |attach_calls| Claim { attach_calls, ..held("b", "n1", ClaimPhase::Attaching) };
    let action = |other| decide(&claim, &[&other], Some(&plugin), Presence::Here);
    assert_eq!(action(other(AttachCalls::Unclear)), Action::LeaveAttached);
    assert_eq!(action(other(AttachCalls::Refused)), Action::Detach);
    let reason = WaitReason::AttachBeside { alloc: "b".into() };
    assert_eq!(action(other(AttachCalls::Intended)), Action::WaitForClient(reason.into()));
}

#[test]
fn a_new_claim_waits_for_a_detach_under_way_on_its_node() {
    let detaching = held("a", "n1", ClaimPhase::Detaching);
    let claim = held("b", "n1", ClaimPhase::Reserved);
    let action = decide(&claim, &[&detaching], Some(&plugin(Some(true))), Presence::Here);
    assert!(matches!(action, Action::WaitForClient(_)));
}

#[test]
fn detaching_needs_a_healthy_controller_and_says_so() {
    let claim = held("a", "n1", ClaimPhase::Detaching);
    let mut plugin = plugin(Some(true));
    assert_eq!(decide(&claim, &[], Some(&plugin), Presence::Here), Action::Detach);
    plugin.controllers.insert("n1".into(), CsiInfo::default().into());
    let action = decide(&claim, &[], Some(&plugin), Presence::Here);
    let reason = WaitReason::NoHealthyController { plugin: "p".into(), step: ControllerStep::Detach };
    assert_eq!(action, Action::WaitForPlugin(reason.into()));
    let free = Claim { needs_attach: Some(false), phase: ClaimPhase::Unstaged, ..claim };
    assert_eq!(decide(&free, &[], None, Presence::Here), Action::Free);
}

#[test]
fn a_vanished_node_is_fenced_and_then_let_go() {
    let (grace, plugin) = (Lease::default().grace(), plugin(Some(true)));
    let almost = Nanos(grace.0 - 1);
    let releasing = held("a", "n1", ClaimPhase::Releasing);
    let begun = decide_after(&releasing, &[], Some(&plugin), SILENT, Nanos::from_secs(1));
    assert_eq!(begun, Action::Fence { silence: 7, wait: Nanos(grace.0 - 1_000_000_000) });
    assert!(matches!(decide(&releasing, &[], Some(&plugin), Presence::Here), Action::WaitForClient(_)));

    // No decision depends on the wall times in the record.
    for fence_until in [UnixNanos(0), UnixNanos(i64::MAX)] {
        let mut fencing = Claim { fence_until, fence_index: Some(7), ..held("a", "n1", ClaimPhase::Fencing) };
        for node in [SILENT, Presence::Unknown] {
            let waits = decide_after(&fencing, &[], Some(&plugin), node, almost);
            assert!(matches!(waits, Action::WaitUntil { time, .. } if time == NOW.plus(grace)), "{waits:?}");
            assert_eq!(decide_after(&fencing, &[], Some(&plugin), node, grace), Action::Detach);
        }
        // The node is in contact again: the elapsed time proves nothing, and the client must report.
        let back = decide_after(&fencing, &[], Some(&plugin), Presence::Here, grace);
        assert!(matches!(back, Action::WaitForClient(_)));
        // The node is silent again, and the wait starts again.
        let again = Presence::Silent { index: 9 };
        let anew = decide(&fencing, &[], Some(&plugin), again);
        assert_eq!(anew, Action::Fence { silence: 9, wait: grace });
        fencing.needs_attach = Some(false);
        assert_eq!(decide_after(&fencing, &[], None, Presence::Unknown, grace), Action::Free);
    }
}

/// A fence starts again if an earlier version began it, or if it began before the node was in contact again.
#[test]
fn a_fence_without_a_silence_begins_anew() {
    let grace = Lease::default().grace();
    for fence_index in [None, Some(0)] {
        let fencing = Claim { fence_index, ..held("a", "n1", ClaimPhase::Fencing) };
        let unknown = decide_after(&fencing, &[], None, Presence::Unknown, grace);
        assert_eq!(unknown, Action::Fence { silence: 0, wait: grace });
        let silent = decide(&fencing, &[], None, SILENT);
        assert_eq!(silent, Action::Fence { silence: 7, wait: grace });
    }
}

#[test]
fn a_node_that_is_confirmed_to_be_off_is_not_waited_for() {
    let plugin = plugin(Some(true));
    let off = |phase| Claim { node_off: Some(Default::default()), ..held("a", "n1", phase) };
    let now = Action::Fence { silence: 7, wait: Nanos::ZERO };
    for phase in [ClaimPhase::Attached, ClaimPhase::Mounted, ClaimPhase::Releasing] {
        assert_eq!(decide(&off(phase), &[], Some(&plugin), SILENT), now, "{phase:?}");
    }
    let fencing = Claim { fence_index: Some(7), ..off(ClaimPhase::Fencing) };
    assert_eq!(decide(&fencing, &[], Some(&plugin), SILENT), Action::Detach);
    assert_eq!(decide(&fencing, &[], Some(&plugin), Presence::Unknown), Action::Detach);
    // With a node in contact, the node's own report is needed all the same.
    assert!(matches!(decide(&fencing, &[], Some(&plugin), Presence::Here), Action::WaitForClient(_)));
}

#[test]
fn the_rest_of_a_wait_is_reported() {
    let volume = Volume::default();
    let left = |claim: &Claim, node, waited| {
        fence_left(&Facts {
            volume: Some(&volume),
            claim,
            others: &[],
            plugin: None,
            node,
            lease: Lease::default(),
            seen: Seen::at(NOW),
            now: NOW.plus(waited),
        })
    };
    let (ten, grace) = (Nanos::from_secs(10), Lease::default().grace());
    let rest = Some(Nanos(grace.0 - ten.0));
    for phase in [ClaimPhase::Mounted, ClaimPhase::Releasing, ClaimPhase::Fencing] {
        let claim = Claim { fence_index: Some(7), ..held("a", "n1", phase) };
        assert_eq!(left(&claim, SILENT, ten), rest, "{phase:?}");
        assert_eq!(left(&claim, SILENT, grace), None);
        assert_eq!(left(&claim, Presence::Here, ten), None);
        assert_eq!(left(&Claim { node_off: Some(Default::default()), ..claim }, SILENT, ten), None);
    }
    let reader = Claim { mode: ClaimMode::Read, ..held("a", "n1", ClaimPhase::Mounted) };
    assert_eq!(left(&reader, SILENT, ten), None, "it stays for as long as its allocation does");
    assert_eq!(left(&held("a", "n1", ClaimPhase::Detaching), SILENT, ten), None);
}

/// A node whose record was removed registers again, and its task continues. A fence that began meanwhile would wait
/// permanently for the node to unmount a volume in use. Found by the model.
#[test]
fn a_claim_in_use_on_a_node_that_is_not_known_waits_for_its_allocation() {
    let plugin = plugin(Some(true));
    for phase in [ClaimPhase::Attached, ClaimPhase::Mounted] {
        let action = decide(&held("a", "n1", phase), &[], Some(&plugin), Presence::Unknown);
        assert_eq!(action.reason(), Some(&WaitReason::NodeUnknown { node: "n1".into() }));
    }
    let lost = held("a", "n1", ClaimPhase::Releasing);
    assert!(matches!(decide(&lost, &[], Some(&plugin), Presence::Unknown), Action::Fence { .. }));
}

#[test]
fn the_only_writer_of_a_silent_node_is_fenced_after_its_lease_and_others_are_not() {
    let grace = Lease::default().grace();
    for phase in [ClaimPhase::Attached, ClaimPhase::Mounted] {
        let writer = held("a", "n1", phase);
        let waits = decide_after(&writer, &[], None, SILENT, Nanos(grace.0 - 1));
        let reason = WaitReason::LeaseOfSilentNode { node: "n1".into() };
        assert_eq!(waits, Action::WaitUntil { time: NOW.plus(grace), wait: reason.into() });
        let fenced = decide_after(&writer, &[], None, SILENT, grace);
        assert_eq!(fenced, Action::Fence { silence: 7, wait: Nanos::ZERO });
        // The allocation may still use a volume that several nodes may write.
        let shared = Claim { access_mode: AccessMode::MultiNodeMultiWriter, ..writer.clone() };
        let reader = Claim { mode: ClaimMode::Read, ..writer.clone() };
        for claim in [shared, reader] {
            let action = decide_after(&claim, &[], None, SILENT, grace);
            assert!(matches!(action, Action::Nothing | Action::WaitForClient(_)), "{action:?}");
        }
    }
}

/// Executes an action as a server does: intent, successful call, outcome.
fn carry_out(c: &Claim, action: &Action) -> Option<Claim> {
    let steps = match action {
        Action::Attach { external_node_id } => vec![
            ClaimStep::IntendAttach { external_node_id: external_node_id.clone() },
            ClaimStep::Attached {
                publish_context: BTreeMap::new(),
                needs_attach: true,
                external_node_id: external_node_id.clone(),
            },
        ],
        Action::MarkAttached { external_node_id } => vec![ClaimStep::Attached {
            publish_context: BTreeMap::new(),
            needs_attach: false,
            external_node_id: external_node_id.clone(),
        }],
        Action::Detach => vec![claim::let_go(c, LetGo::IntendDetach), ClaimStep::Freed],
        Action::LeaveAttached => vec![claim::let_go(c, LetGo::LeftAttached)],
        Action::Free => vec![claim::let_go(c, LetGo::Freed)],
        Action::Fence { silence, .. } => vec![ClaimStep::Fence { until: WALL, silence: Some(*silence) }],
        _ => return None,
    };
    Some(steps.iter().fold(c.clone(), |c, s| claim::step(&c, s, WALL).expect("actions are legal steps")))
}

proptest! {
    /// Several claims of one volume end at random, and nodes are lost at random. Every action is a legal step, and an
    /// attachment is never removed from a node where another claim is attached or mounted. In the end, with all
    /// claims released, every claim is gone and every attachment undone.
    #[test]
    fn all_claims_end_and_no_attachment_is_lost(
        nodes in prop::collection::vec(0_usize..2, 1..5),
        events in prop::collection::vec((0_usize..5, 0_usize..5), 0..60),
        attaches in any::<bool>(),
    ) {
        let plugin = plugin(Some(attaches));
        let volume = Volume::default();
        let mut now = NOW;
        let mut silent: BTreeMap<NodeId, (u64, BootInstant)> = BTreeMap::new();
        let mut index = 0;
        let mut attached: std::collections::BTreeSet<NodeId> = Default::default();
        let mut claims: Vec<Claim> = nodes
            .iter()
            .enumerate()
            .map(|(n, node)| Claim {
                access_mode: AccessMode::MultiNodeMultiWriter,
                create_index: n as u64,
                ..held(&format!("a{n}"), &format!("n{}", node + 1), ClaimPhase::Reserved)
            })
            .collect();
        let drain = (0..200).map(|n| (n % 5, 4)).chain((0..200).map(|n| (n % 5, [0, 1, 2][n / 5 % 3])));
        for (who, what) in events.into_iter().chain(drain) {
            let Some(c) = claims.get(who).cloned() else { continue };
            let here = !silent.contains_key(&c.node_id);
            now = now.plus(Nanos::from_secs(1));
            index += 1;
            let proof = ClaimStep::Mounted { proof: MountProof::default() };
            let mut changed = None;
            match what {
                // The servers act.
                0 => {
                    let others: Vec<&Claim> = claims.iter().filter(|o| o.id != c.id).collect();
                    let (node, silence) = match silent.get(&c.node_id) {
                        Some((index, since)) => (Presence::Silent { index: *index }, *since),
                        None => (Presence::Here, now),
                    };
                    let action = next(&Facts {
                        volume: Some(&volume),
                        claim: &c,
                        others: &others,
                        plugin: Some(&plugin),
                        node,
                        lease: Lease::default(),
                        seen: Seen { silence, failure: now, earlier_tries: 0 },
                        now,
                    });
                    match &action {
                        Action::Attach { .. } => { attached.insert(c.node_id.clone()); }
                        Action::Detach => {
                            let robbed = others.iter().any(|o| {
                                o.node_id == c.node_id
                                    && matches!(o.phase, ClaimPhase::Attached | ClaimPhase::Mounted)
                            });
                            prop_assert!(!robbed);
                            attached.remove(&c.node_id);
                        }
                        _ => {}
                    }
                    changed = carry_out(&c, &action);
                }
                // The client acts.
                1 if here => changed = [proof, ClaimStep::Unpublished, ClaimStep::Unstaged]
                    .iter()
                    .find_map(|s| claim::step(&c, s, WALL).ok()),
                2 => changed = claim::step(&c, &ClaimStep::Release, WALL).ok(),
                3 => { silent.insert(c.node_id.clone(), (index, now)); }
                _ => { silent.remove(&c.node_id); }
            }
            if let Some(changed) = changed {
                claims[who] = changed;
            }
        }
        prop_assert!(claims.iter().all(|c| c.phase == ClaimPhase::Gone), "{:?}", claims.iter().map(|c| c.phase).collect::<Vec<_>>());
        prop_assert!(attached.is_empty());
    }
}

#[test]
fn what_is_mounted_grows_once_the_plugin_asked_for_it() {
    let plugin = plugin(Some(true));
    let volume = Volume { node_expand_to: 5, ..Volume::default() };
    let mut claim = held("a", "n1", ClaimPhase::Mounted);
    let ask = |claim: &Claim, node| {
        let plugin = Some(&plugin);
        next(&Facts {
            volume: Some(&volume),
            claim,
            others: &[],
            plugin,
            node,
            lease: Lease::default(),
            seen: Seen::at(NOW),
            now: NOW,
        })
    };
    assert_eq!(ask(&claim, Presence::Here), Action::ExpandNode { to: 5 });
    // A claim that needs the node's lease waits for the end of the lease. Other claims still have to expand.
    let reader = Claim { mode: ClaimMode::Read, ..claim.clone() };
    let reason = WaitReason::NodeSilentForGrowth { node: "n1".into() };
    assert_eq!(ask(&reader, SILENT).reason(), Some(&reason));
    claim.last_error = "no room".into();
    (claim.tries, claim.next_try) = (1, WALL);
    assert!(matches!(ask(&claim, Presence::Here), Action::WaitUntil { .. }));
    let done = claim::step(&claim, &ClaimStep::Expanded { capacity: 5 }, WALL).unwrap();
    assert_eq!(ask(&done, Presence::Here), Action::Nothing);
    // Before the mount, no expansion is needed yet, and during the release none is needed any more.
    for phase in [ClaimPhase::Attached, ClaimPhase::Releasing] {
        assert!(!owes_growth(&volume, &held("a", "n1", phase)));
    }
}

#[test]
fn a_volume_is_unused_while_its_claims_are_only_reserved() {
    let with = |phase| unused([&held("a", "n1", phase)]);
    assert!(unused([]) && with(ClaimPhase::Reserved) && with(ClaimPhase::Gone));
    assert!(!with(ClaimPhase::Attaching) && !with(ClaimPhase::Mounted) && !with(ClaimPhase::Fencing));
}
