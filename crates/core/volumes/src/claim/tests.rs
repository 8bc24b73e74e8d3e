use super::*;
use caravan_types::volume::MountProof;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: UnixNanos = UnixNanos(1_000);
/// The index of the node's silence.
const SILENCE: u64 = 7;
const PHASES: [ClaimPhase; 10] = [
    ClaimPhase::Reserved,
    ClaimPhase::Attaching,
    ClaimPhase::Attached,
    ClaimPhase::Mounted,
    ClaimPhase::Releasing,
    ClaimPhase::Unpublished,
    ClaimPhase::Unstaged,
    ClaimPhase::Detaching,
    ClaimPhase::Fencing,
    ClaimPhase::Gone,
];

fn claim(phase: ClaimPhase, needs_attach: Option<bool>) -> Claim {
    Claim {
        phase,
        needs_attach,
        external_node_id: if phase == ClaimPhase::Reserved { String::new() } else { "n".into() },
        tries: 3,
        last_error: "boom".into(),
        next_try: UnixNanos(7),
        fence_index: (phase == ClaimPhase::Fencing).then_some(SILENCE),
        ..Claim::default()
    }
}

fn attached(needs_attach: bool) -> ClaimStep {
    ClaimStep::Attached { publish_context: BTreeMap::new(), needs_attach, external_node_id: "n".into() }
}

fn steps() -> Vec<ClaimStep> {
    vec![
        ClaimStep::IntendAttach { external_node_id: "n".into() },
        attached(true),
        attached(false),
        ClaimStep::Mounted { proof: MountProof::default() },
        ClaimStep::Release,
        ClaimStep::Unpublished,
        ClaimStep::Unstaged,
        ClaimStep::IntendDetach,
        ClaimStep::LeftAttached,
        ClaimStep::Freed,
        fence(8),
        waited(LetGo::IntendDetach),
        waited(LetGo::LeftAttached),
        waited(LetGo::Freed),
        ClaimStep::Failed { error: "no".into(), next_try: UnixNanos(9) },
    ]
}

fn fence(silence: u64) -> ClaimStep {
    ClaimStep::Fence { until: UnixNanos(2_000), silence: Some(silence) }
}

fn waited(then: LetGo) -> ClaimStep {
    ClaimStep::Waited { fence: SILENCE, then }
}

/// Returns the next phase for each legal combination of phase, step and whether the plugin attaches. All other
/// combinations must be refused.
fn legal(phase: ClaimPhase, step: &ClaimStep, needs: bool) -> Option<ClaimPhase> {
    use ClaimPhase as P;
    use ClaimStep as S;
    Some(match (phase, step) {
        (P::Gone, _) => return None,
        (phase, S::Failed { .. }) => phase,
        (P::Reserved | P::Attaching, S::IntendAttach { .. }) => P::Attaching,
        (P::Reserved, S::Attached { needs_attach: false, .. }) => P::Attached,
        (P::Attaching, S::Attached { needs_attach: true, .. }) => P::Attached,
        (P::Attached | P::Mounted, S::Mounted { .. }) => P::Mounted,
        (P::Reserved, S::Release) => P::Gone,
        (P::Attaching, S::Release) => P::Unstaged,
        (P::Attached | P::Mounted, S::Release) => P::Releasing,
        (P::Releasing | P::Fencing, S::Unpublished) => P::Unpublished,
        (P::Unpublished, S::Unstaged) => P::Unstaged,
        (P::Unstaged, S::IntendDetach) if needs => P::Detaching,
        (P::Detaching, S::IntendDetach) => P::Detaching,
        (P::Unstaged, S::LeftAttached) if needs => P::Gone,
        (P::Unstaged, S::Freed) if !needs => P::Gone,
        (P::Fencing, S::Waited { then: LetGo::IntendDetach, .. }) if needs => P::Detaching,
        (P::Fencing, S::Waited { then: LetGo::LeftAttached, .. }) if needs => P::Gone,
        (P::Fencing, S::Waited { then: LetGo::Freed, .. }) if !needs => P::Gone,
        (P::Detaching, S::Freed) => P::Gone,
        (P::Attached | P::Mounted | P::Releasing | P::Unpublished | P::Fencing, S::Fence { .. }) => {
            P::Fencing
        }
        _ => return None,
    })
}

#[test]
fn every_pair_of_phase_and_step_is_as_in_the_table() {
    for phase in PHASES {
        for needs in [true, false] {
            for s in steps() {
                let before = claim(phase, Some(needs));
                let after = step(&before, &s, NOW);
                assert_eq!(
                    after.as_ref().ok().map(|c| c.phase),
                    legal(phase, &s, needs),
                    "{phase:?} {s:?} attaches: {needs}"
                );
                if let Ok(after) = after {
                    assert_eq!(after.modify_time, NOW);
                    if after.phase != phase {
                        assert_eq!((after.tries, after.last_error.as_str(), after.next_try.0), (0, "", 0));
                    }
                }
            }
        }
    }
}

#[test]
fn repeated_intents_keep_the_failure_count() {
    let s = ClaimStep::Failed { error: "disk on fire".into(), next_try: UnixNanos(99) };
    let failed = step(&claim(ClaimPhase::Attaching, Some(true)), &s, NOW).unwrap();
    assert_eq!(
        (failed.tries, failed.last_error.as_str(), failed.next_try),
        (4, "disk on fire", UnixNanos(99))
    );
    let again = step(&failed, &ClaimStep::IntendAttach { external_node_id: "n".into() }, NOW).unwrap();
    assert_eq!(again.tries, 4);
    assert_eq!(step(&again, &attached(true), NOW).unwrap().tries, 0);
}

#[test]
fn an_attachment_to_another_node_id_is_refused() {
    let attaching = claim(ClaimPhase::Attaching, Some(true));
    assert!(step(&attaching, &ClaimStep::IntendAttach { external_node_id: "other".into() }, NOW).is_err());
    let reserved = claim(ClaimPhase::Reserved, None);
    assert!(step(&reserved, &ClaimStep::IntendAttach { external_node_id: String::new() }, NOW).is_err());
}

#[test]
fn an_unknown_capability_counts_as_attached_when_freeing() {
    let unknown = claim(ClaimPhase::Unstaged, None);
    assert!(step(&unknown, &ClaimStep::Freed, NOW).is_err());
    assert!(step(&unknown, &ClaimStep::IntendDetach, NOW).is_ok());
}

#[test]
fn a_fence_ends_by_the_word_of_the_server_that_waited_whatever_the_wall_clock_says() {
    let mounted = claim(ClaimPhase::Mounted, Some(false));
    let fenced = step(&mounted, &fence(SILENCE), NOW).unwrap();
    assert_eq!((fenced.fence_index, fenced.fence_until), (Some(SILENCE), UnixNanos(2_000)));
    let freed = waited(LetGo::Freed);
    for wall in [0, 1_999, 2_000, i64::MAX] {
        let early = step(&fenced, &ClaimStep::Freed, UnixNanos(wall)).unwrap_err();
        assert_eq!(early.why, "nothing says that the node's lease was waited out");
        assert_eq!(step(&fenced, &freed, UnixNanos(wall)).unwrap().phase, ClaimPhase::Gone);
    }
}

#[test]
fn a_wait_for_an_earlier_silence_does_not_count() {
    let fenced = claim(ClaimPhase::Fencing, Some(false));
    assert!(step(&fenced, &fence(SILENCE), NOW).is_err(), "fenced for it already");
    let anew = step(&fenced, &fence(9), NOW).unwrap();
    let late = step(&anew, &waited(LetGo::Freed), NOW).unwrap_err();
    assert_eq!(late.why, "it was not this silence of the node that was waited out");
    // The node was in contact: no wait is complete, so no step with a complete wait is legal.
    let void = Claim { fence_index: Some(0), ..fenced.clone() };
    for fence in [0, SILENCE] {
        assert!(step(&void, &ClaimStep::Waited { fence, then: LetGo::Freed }, NOW).is_err());
    }
    let earlier = Claim { fence_index: None, ..fenced };
    assert!(step(&earlier, &waited(LetGo::Freed), NOW).is_err());
    assert_eq!(let_go(&earlier, LetGo::Freed), ClaimStep::Waited { fence: 0, then: LetGo::Freed });
}

#[test]
fn steps_of_earlier_versions_end_the_fences_of_earlier_versions() {
    let fenced = step(
        &claim(ClaimPhase::Mounted, Some(false)),
        &ClaimStep::Fence { until: UnixNanos(2_000), silence: None },
        NOW,
    );
    assert_eq!(step(&fenced.unwrap(), &ClaimStep::Freed, NOW).unwrap().phase, ClaimPhase::Gone);
}

#[test]
fn the_word_of_an_operator_stays_with_the_claim() {
    let off = caravan_types::volume::ConfirmedOff { name: "ops".into(), ..Default::default() };
    let fenced = Claim { node_off: Some(off), ..claim(ClaimPhase::Fencing, Some(false)) };
    let gone = step(&fenced, &waited(LetGo::Freed), NOW).unwrap();
    let note = &gone.history.last().unwrap().note;
    assert_eq!(note, "without a wait for the node's lease: \"ops\" confirmed that the node is off");
}

#[test]
fn a_new_grant_counts_generations_and_waits_for_the_old_one() {
    let old = Claim { generation: 4, ..claim(ClaimPhase::Gone, Some(true)) };
    let new = reserve(Some(&old), claim(ClaimPhase::Mounted, None), NOW).unwrap();
    assert_eq!((new.generation, new.phase, new.tries), (5, ClaimPhase::Reserved, 0));
    assert_eq!(reserve(None, Claim::default(), NOW).unwrap().generation, 0);
    let held = claim(ClaimPhase::Detaching, Some(true));
    assert!(reserve(Some(&held), Claim::default(), NOW).is_err());
}

#[test]
fn refusals_name_volume_allocation_step_and_phase() {
    let mut c = claim(ClaimPhase::Mounted, Some(true));
    c.id.volume = caravan_types::VolumeKey::new("default", "data");
    c.id.alloc = "a1".into();
    let e = step(&c, &ClaimStep::Freed, NOW).unwrap_err();
    assert!(e.to_string().starts_with(
        "claim of allocation a1 on volume default/data cannot take step freed in phase mounted"
    ));
}

#[test]
fn no_two_phases_leave_an_attachment_to_each_other() {
    for a in [ClaimPhase::Unstaged, ClaimPhase::Fencing] {
        for b in [ClaimPhase::Unstaged, ClaimPhase::Fencing] {
            assert!(!(owes_detach(a, b) && owes_detach(b, a)), "{a:?} {b:?}");
        }
    }
}

proptest! {
    /// Events occur in every order, and with every wall clock. A claim that was on a node is gone only after the
    /// client's proofs or a complete fence. A claim that may be attached is gone only after the plugin's response, or
    /// after the attachment was left to another claim.
    #[test]
    fn no_path_skips_a_proof(walk in prop::collection::vec((0_usize..15, any::<i64>()), 1..60)) {
        let all = steps();
        let mut c = Claim::default();
        let (mut on_node, mut attached_maybe) = (false, false);
        for (index, wall) in walk {
            let mut s = all[index].clone();
            if let ClaimStep::Fence { silence, .. } = &mut s {
                *silence = Some(SILENCE);
            }
            let before = c.clone();
            let Ok(after) = step(&before, &s, UnixNanos(wall)) else { continue };
            match &s {
                ClaimStep::IntendAttach { .. } => attached_maybe = true,
                ClaimStep::Attached { .. } => on_node = true,
                ClaimStep::Unstaged => {
                    prop_assert_eq!(before.phase, ClaimPhase::Unpublished);
                    on_node = false;
                }
                ClaimStep::Waited { .. } => {
                    prop_assert_eq!(before.phase, ClaimPhase::Fencing);
                    on_node = false;
                }
                _ => {}
            }
            match &s {
                ClaimStep::LeftAttached | ClaimStep::Waited { then: LetGo::LeftAttached, .. } => {
                    attached_maybe = false;
                }
                ClaimStep::Freed if before.phase == ClaimPhase::Detaching => attached_maybe = false,
                _ => {}
            }
            if after.phase == ClaimPhase::Gone || after.phase == ClaimPhase::Detaching {
                prop_assert!(!on_node, "{:?} -> {:?} by {:?}", before.phase, after.phase, s);
            }
            if after.phase == ClaimPhase::Gone {
                prop_assert!(!attached_maybe, "{:?} by {:?}", before.phase, s);
                break;
            }
            c = after;
        }
    }
}

/// A client that never received its claim reports that once. The claim must end in every phase, because no second
/// report follows.
#[test]
fn a_client_that_holds_nothing_ends_its_claim_in_every_phase() {
    for phase in PHASES.into_iter().filter(|phase| phase.holds()) {
        for needs in [true, false] {
            let mut claim = claim(phase, Some(needs));
            while let Some(next) = reported(&claim, &ClaimReportStep::Unstaged, NOW) {
                claim = step(&claim, &next, NOW).unwrap();
            }
            let rest = matches!(claim.phase, ClaimPhase::Unstaged | ClaimPhase::Detaching | ClaimPhase::Gone);
            assert!(rest, "{phase:?} comes to {:?}", claim.phase);
        }
    }
}

/// A certain refusal proves that nothing is attached. A call with an open outcome proves nothing, even if later calls
/// are refused.
#[test]
fn an_attach_that_was_refused_for_certain_owes_no_detach() {
    let (now, next_try) = (UnixNanos(1), UnixNanos(2));
    let intend = ClaimStep::IntendAttach { external_node_id: "n".into() };
    let refused = ClaimStep::AttachRefused { error: "no".into(), next_try };
    let failed = ClaimStep::Failed { error: "who knows".into(), next_try };
    let after = |steps: &[&ClaimStep]| {
        let reserved = Claim { phase: ClaimPhase::Reserved, ..Claim::default() };
        steps.iter().fold(reserved, |claim, taken| step(&claim, taken, now).unwrap()).phase
    };
    let release = &ClaimStep::Release;
    assert_eq!(after(&[&intend, &refused, release]), ClaimPhase::Gone);
    assert_eq!(after(&[&intend, &refused, &intend, &refused, release]), ClaimPhase::Gone);
    assert_eq!(after(&[&intend, release]), ClaimPhase::Unstaged);
    assert_eq!(after(&[&intend, &refused, &intend, release]), ClaimPhase::Unstaged, "a call is under way");
    assert_eq!(after(&[&intend, &failed, &intend, &refused, release]), ClaimPhase::Unstaged);
    assert_eq!(
        after(&[&intend, &intend, &refused, release]),
        ClaimPhase::Unstaged,
        "a leader's call was lost"
    );
    let attached = Claim { phase: ClaimPhase::Attached, ..Claim::default() };
    assert!(step(&attached, &refused, now).is_err());
}
