use super::*;
use proptest::prelude::*;

const MADE: Entry = Entry {
    phase: MountPhase::Mounted,
    stages: true,
    stage: Reach::Made,
    publish: Reach::Made,
    renewing: false,
    stage_lost: false,
};

fn entry(phase: MountPhase, stage: Reach, publish: Reach) -> Entry {
    Entry { phase, stage, publish, ..MADE }
}

fn fresh() -> Entry {
    Entry { stages: true, ..Entry::default() }
}

/// Returns the observed state of the target and of the stage.
fn seen(target: Place, stage: Place) -> Observed<'static> {
    Observed { target, stage, ..Observed::default() }
}

fn tried(calls: &[(NodeCall, Answer)]) -> Tries {
    let mut tries = Tries::default();
    calls.iter().for_each(|(call, answer)| tries.note(*call, *answer));
    tries
}

use NodeAction::{Call, Finished, GiveUp, Record, Unmount, Wait};
use NodeCall::{Publish, Stage, Unpublish, Unstage};

#[test]
fn what_was_never_called_is_not_undone() {
    let granted = fresh();
    let never = Record(Proof::TargetGone(Because::NeverCalled));
    assert_eq!(next(Goal::Release, &granted, &seen(Place::Empty, Place::Empty)), never);
    let failed = entry(MountPhase::Staging, Reach::Unclear, Reach::Never);
    assert_eq!(next(Goal::Release, &failed, &seen(Place::Empty, Place::Empty)), never, "the stage failed");
    let after = failed.record(Goal::Release, Proof::TargetGone(Because::NeverCalled));
    assert_eq!(after.phase, MountPhase::Unpublished);
    let now = |tries| Observed { tries, ..seen(Place::Empty, Place::Empty) };
    assert_eq!(
        next(Goal::Release, &after, &now(Tries::default())),
        Call(Unstage),
        "its outcome is not known"
    );
    for refusal in [Answer::Refused, Answer::OutOfOrder] {
        let absent = Record(Proof::StageGone(Because::Absent));
        assert_eq!(next(Goal::Release, &after, &now(tried(&[(Unstage, refusal)]))), absent);
    }
    let unclear = now(tried(&[(Unstage, Answer::Unclear)]));
    assert_eq!(next(Goal::Release, &after, &unclear), Wait(NodeWait::Unanswered(Unstage)));
    let bare = Entry { stages: false, phase: MountPhase::Unpublished, ..Entry::default() };
    assert_eq!(next(Goal::Release, &bare, &seen(Place::Empty, Place::Empty)), Record(Proof::StageLeft));
}

/// Each row has the mount's progress, the kernel's state, the plugin's response, and the expected result.
#[test]
fn a_target_is_gone_with_proof_only() {
    use Answer as A;
    let gone = |because| Record(Proof::TargetGone(because));
    let (refused, target) = (Wait(NodeWait::Refused(Unpublish)), Spot::Target);
    let patient: Vec<_> = vec![(Unpublish, A::Refused); usize::from(undo::MAX_REFUSALS)];
    let restarted = {
        let mut calls = patient.clone();
        calls.insert(2, (Unpublish, A::Unclear));
        calls
    };
    let table = [
        (Reach::Made, Place::Empty, restarted, gone(Because::Absent)),
        (Reach::Unclear, Place::Empty, vec![], Call(Unpublish)),
        (Reach::Unclear, Place::Empty, vec![(Unpublish, A::Refused)], gone(Because::Absent)),
        (Reach::Unclear, Place::Empty, vec![(Unpublish, A::Unclear)], Wait(NodeWait::Unanswered(Unpublish))),
        (Reach::Unclear, Place::Mounted, vec![(Unpublish, A::Refused)], refused),
        (Reach::Unclear, Place::Mounted, patient.clone(), Unmount(target, How::Now)),
        (Reach::Made, Place::Empty, vec![(Unpublish, A::Done)], gone(Because::Undone)),
        (Reach::Made, Place::Empty, vec![(Unpublish, A::NotFound)], gone(Because::Undone)),
        (Reach::Made, Place::Empty, vec![(Unpublish, A::Refused)], refused),
        (Reach::Made, Place::Empty, patient.clone(), gone(Because::Absent)),
        (Reach::Made, Place::Mounted, patient.clone(), refused),
        (Reach::Made, Place::Mounted, vec![(Unpublish, A::Done)], Unmount(target, How::Now)),
        (Reach::Made, Place::Dead, vec![(Unpublish, A::Refused)], Unmount(target, How::Lazily)),
        (Reach::Made, Place::Dead, vec![(Unpublish, A::Unclear)], Wait(NodeWait::Unanswered(Unpublish))),
        (Reach::Made, Place::Silent, vec![(Unpublish, A::Refused)], Wait(NodeWait::Silent(target))),
        (Reach::Never, Place::Mounted, vec![], Unmount(target, How::Now)),
    ];
    for (reach, place, calls, then) in table {
        let releasing = entry(MountPhase::Unpublishing, Reach::Made, reach);
        let observed = Observed { tries: tried(&calls), ..seen(place, Place::Mounted) };
        assert_eq!(next(Goal::Release, &releasing, &observed), then, "{reach:?} {place:?} {calls:?}");
    }
    // More cases of a mount that succeeded.
    let releasing = entry(MountPhase::Unpublishing, Reach::Made, Reach::Made);
    let observed = Observed { tries: tried(&patient), ..seen(Place::Empty, Place::Mounted) };
    let lingers = Observed { lingers: true, ..observed };
    assert_eq!(next(Goal::Release, &releasing, &lingers), Wait(NodeWait::Lingers(target)));
    let replaced = Observed { target: Place::Mounted, is_replaced: true, ..observed };
    assert_eq!(next(Goal::Release, &releasing, &replaced), Unmount(target, How::Now));
    let mut tries = observed.tries;
    tries.note_unmount(target);
    let again = Observed { tries, ..observed };
    assert_eq!(next(Goal::Release, &releasing, &again), Call(Unpublish), "it is asked once more");
}

#[test]
fn a_dead_stage_is_ended_unless_a_live_user_holds_it() {
    let dead = seen(Place::Empty, Place::Dead);
    assert_eq!(next(Goal::Mount, &fresh(), &dead), Call(Unstage));
    let refused = Observed { tries: tried(&[(Unstage, Answer::Refused)]), ..dead };
    assert_eq!(next(Goal::Mount, &fresh(), &refused), Unmount(Spot::Stage, How::Lazily));
    let ended = Observed { stage: Place::Empty, ..refused };
    let gone = Proof::StageGone(Because::Absent);
    assert_eq!(next(Goal::Mount, &fresh(), &ended), Record(gone));
    let mut tries = ended.tries;
    tries.note_proof(gone);
    assert_eq!(next(Goal::Mount, &fresh(), &Observed { tries, ..ended }), Call(Stage));

    let others = [MADE];
    let held = Observed { others: &others, ..dead };
    assert_eq!(next(Goal::Mount, &fresh(), &held), Wait(NodeWait::DeadStage));
    let leaving = [entry(MountPhase::Unpublished, Reach::Made, Reach::Never)];
    let held = Observed { others: &leaving, ..dead };
    assert_eq!(next(Goal::Mount, &fresh(), &held), Wait(NodeWait::DeadStage), "its end ends the stage");
    let silent = seen(Place::Empty, Place::Silent);
    assert_eq!(next(Goal::Mount, &fresh(), &silent), Wait(NodeWait::Silent(Spot::Stage)));
}

#[test]
fn a_newcomer_that_never_staged_is_no_user() {
    let leaving = entry(MountPhase::Unpublished, Reach::Made, Reach::Never);
    for (newcomer, then) in [
        (fresh(), Call(Unstage)),
        (entry(MountPhase::Staging, Reach::Unclear, Reach::Never), Call(Unstage)),
        (entry(MountPhase::Publishing, Reach::Made, Reach::Unclear), Record(Proof::StageLeft)),
        (MADE, Record(Proof::StageLeft)),
        (entry(MountPhase::Unstaged, Reach::Never, Reach::Never), Call(Unstage)),
    ] {
        let others = [newcomer];
        let observed = Observed { others: &others, ..seen(Place::Empty, Place::Mounted) };
        assert_eq!(next(Goal::Release, &leaving, &observed), then, "{newcomer:?}");
    }
}

#[test]
fn a_stage_is_shared_made_again_or_ended_first() {
    let others = [MADE];
    let shared = Observed { others: &others, ..seen(Place::Empty, Place::Mounted) };
    assert_eq!(next(Goal::Mount, &fresh(), &shared), Record(Proof::StageShared));
    let sharing = fresh().record(Goal::Mount, Proof::StageShared);
    assert_eq!(next(Goal::Mount, &sharing, &shared), Call(Publish));
    let unknown = Observed { tries: tried(&[(Publish, Answer::OutOfOrder)]), ..shared };
    assert_eq!(next(Goal::Mount, &sharing, &unknown), Call(Stage), "the plugin has forgotten it");
    let known = Observed { tries: tried(&[(Publish, Answer::OutOfOrder), (Stage, Answer::Done)]), ..shared };
    assert_eq!(next(Goal::Mount, &sharing, &known), Call(Publish));

    let half = entry(MountPhase::Staging, Reach::Unclear, Reach::Never);
    let there = seen(Place::Empty, Place::Mounted);
    assert_eq!(next(Goal::Mount, &half, &there), Call(Stage), "staging is idempotent");
    let refused = Observed { tries: tried(&[(Stage, Answer::Refused)]), ..there };
    assert_eq!(next(Goal::Mount, &half, &refused), Call(Unstage), "with this plugin it is not");
    let held = Observed { others: &others, ..refused };
    assert_eq!(next(Goal::Mount, &half, &held), Record(Proof::StageShared));
    let leaving = [entry(MountPhase::Unpublishing, Reach::Made, Reach::Made)];
    let held = Observed { others: &leaving, ..refused };
    assert_eq!(next(Goal::Mount, &half, &held), Wait(NodeWait::LeavingStage));
    let mut tries = refused.tries;
    tries.note(Unstage, Answer::Done);
    tries.note_proof(Proof::StageGone(Because::Undone));
    tries.note(Stage, Answer::Refused);
    assert_eq!(next(Goal::Mount, &half, &Observed { tries, ..there }), GiveUp, "once in a try");
    let nothing = Observed { tries: tried(&[(Stage, Answer::Refused)]), ..seen(Place::Empty, Place::Empty) };
    assert_eq!(next(Goal::Mount, &half, &nothing), GiveUp);
    let noted = Observed { tries: tried(&[(Stage, Answer::Done)]), ..seen(Place::Empty, Place::Empty) };
    let noting = entry(MountPhase::Staging, Reach::Made, Reach::Never);
    assert_eq!(next(Goal::Mount, &noting, &noted), Call(Publish), "a plugin that only takes note of stages");
    let device = Observed { is_device: true, others: &others, ..seen(Place::Empty, Place::Empty) };
    assert_eq!(
        next(Goal::Mount, &fresh(), &device),
        Record(Proof::StageShared),
        "a device has no mount there"
    );
}

#[test]
fn what_is_half_published_is_published_again_or_ended_first() {
    let half = entry(MountPhase::Publishing, Reach::Made, Reach::Unclear);
    let there = seen(Place::Mounted, Place::Mounted);
    assert_eq!(next(Goal::Mount, &half, &there), Call(Publish));
    let refused = Observed { tries: tried(&[(Publish, Answer::Refused)]), ..there };
    assert_eq!(next(Goal::Mount, &half, &refused), Call(Unpublish));
    let dead = seen(Place::Dead, Place::Mounted);
    assert_eq!(next(Goal::Mount, &half, &dead), Call(Unpublish));
    let dead_stage = seen(Place::Mounted, Place::Dead);
    assert_eq!(next(Goal::Mount, &half, &dead_stage), Call(Unpublish), "the target goes before its stage");
    let done = Observed { tries: tried(&[(Publish, Answer::Done)]), ..there };
    assert_eq!(next(Goal::Mount, &half, &done), Finished);
    assert_eq!(next(Goal::Mount, &MADE, &Observed { is_proven: true, ..there }), Finished);
    assert_eq!(next(Goal::Mount, &half, &Observed { is_abandoned: true, ..there }), GiveUp);
    assert_eq!(next(Goal::Mount, &entry(MountPhase::Unpublishing, Reach::Made, Reach::Made), &there), GiveUp);
}

#[test]
fn users_of_a_dead_stage_that_mount_anew_do_not_wait_for_each_other() {
    let renewing = Entry { renewing: true, phase: MountPhase::Publishing, ..MADE };
    let others = [renewing];
    let dead = Observed { others: &others, ..seen(Place::Dead, Place::Dead) };
    assert_eq!(next(Goal::Mount, &renewing, &dead), Unmount(Spot::Target, How::Lazily));
    let ended = Observed { target: Place::Empty, ..dead };
    assert_eq!(next(Goal::Mount, &renewing, &ended), Call(Unpublish));
    let unanswered = Observed { tries: tried(&[(Unpublish, Answer::Unclear)]), ..ended };
    assert_eq!(next(Goal::Mount, &renewing, &unanswered), GiveUp, "the call may still take effect");
    let refused = Observed { tries: tried(&[(Unpublish, Answer::Refused)]), ..ended };
    assert_eq!(next(Goal::Mount, &renewing, &refused), Record(Proof::TargetGone(Because::Absent)));
    let after = Entry { publish: Reach::Never, ..renewing };
    assert_eq!(next(Goal::Mount, &after, &ended), Unmount(Spot::Stage, How::Lazily), "its stage is held");
    let both = [after];
    let alone = Observed { others: &both, ..ended };
    assert_eq!(next(Goal::Mount, &after, &alone), Call(Unstage));
}

#[test]
fn a_stage_that_is_gone_proves_nothing_for_other_claims() {
    let lost = Proof::StageLost;
    let renewing = Entry { renewing: true, phase: MountPhase::Publishing, publish: Reach::Never, ..MADE };
    let both = [MADE];
    let empty = Observed { others: &both, ..seen(Place::Empty, Place::Empty) };
    assert_eq!(next(Goal::Mount, &renewing, &empty), Record(lost));
    let (first, other) = (renewing.record(Goal::Mount, lost), [MADE.beside(lost)]);
    assert_eq!(next(Goal::Mount, &first, &Observed { others: &other, ..empty }), Call(Stage));
    // The call fails, and leaves a mount.
    let half = Observed { others: &other, ..seen(Place::Empty, Place::Mounted) };
    assert_eq!(next(Goal::Mount, &first.intend(Goal::Mount, Stage), &half), Call(Stage));
    let next_one = Entry { renewing: true, publish: Reach::Never, ..other[0] };
    let others = [first];
    assert_eq!(next(Goal::Mount, &next_one, &Observed { others: &others, ..half }), Call(Stage));
    // The plugin confirms the stage for one of the claims.
    let good = [first.learn(Stage, Answer::Done)];
    let shared = Observed { others: &good, ..half };
    assert_eq!(next(Goal::Mount, &next_one, &shared), Record(Proof::StageShared));
    assert!(!next_one.record(Goal::Mount, Proof::StageShared).stage_lost);
}

#[test]
fn entries_of_earlier_releases_keep_what_their_phase_proves() {
    use MountPhase as P;
    let old = |phase| {
        let entry = Entry::restored(phase, true, None, None, false);
        (entry.stage, entry.publish)
    };
    assert_eq!(old(P::Granted), (Reach::Never, Reach::Never));
    assert_eq!(old(P::Staging), (Reach::Unclear, Reach::Unclear));
    assert_eq!(old(P::Publishing), (Reach::Made, Reach::Unclear));
    assert_eq!(old(P::Mounted), (Reach::Made, Reach::Made));
    assert_eq!(old(P::Unpublishing), (Reach::Made, Reach::Made));
    assert_eq!(old(P::Unpublished), (Reach::Made, Reach::Never));
    assert_eq!(old(P::Unstaged), (Reach::Never, Reach::Never));
}

/// A node with two claims on one stage, and a plugin with random behaviour: the effect and the response of each call
/// are random.
#[derive(Clone, Debug, Default)]
struct World {
    entries: [Entry; 2],
    targets: [Place; 2],
    stage: Place,
    /// Whether the plugin confirmed the stage since its place was empty.
    confirmed: bool,
    tries: [Tries; 2],
}

/// The behaviour of the plugin for one call.
#[derive(Clone, Copy, Debug)]
struct Habit {
    effect: bool,
    answer: Answer,
}

impl World {
    /// Takes one step of a claim towards its goal, and returns the action.
    fn step(&mut self, a: usize, goal: Goal, habit: Habit, replaced: bool) -> NodeAction {
        let others = [self.entries[1 - a]];
        let action = next(goal, &self.entries[a], &self.look(a, &others, replaced));
        let entry = self.entries[a];
        match action {
            Call(call) => {
                let entry = entry.intend(goal, call);
                // A plugin returns OK only if the call had its effect. It may also refuse a mounting call because the
                // mount exists.
                let place = match call {
                    Stage | Unstage => &mut self.stage,
                    Publish | Unpublish => &mut self.targets[a],
                };
                let makes = matches!(call, Stage | Publish);
                let dead_end = makes && *place == Place::Dead;
                let effect = (habit.effect || habit.answer == Answer::Done) && !dead_end;
                let answer = if dead_end { Answer::Refused } else { habit.answer };
                if call == Stage && *place != Place::Mounted {
                    self.confirmed = answer == Answer::Done;
                } else if call == Stage && answer == Answer::Done {
                    self.confirmed = true;
                }
                if effect {
                    *place = if makes { Place::Mounted } else { Place::Empty };
                }
                self.tries[a].note(call, answer);
                self.entries[a] = entry.learn(call, answer);
            }
            Unmount(spot, _) => {
                match spot {
                    Spot::Target => self.targets[a] = Place::Empty,
                    Spot::Stage => self.stage = Place::Empty,
                }
                self.tries[a].note_unmount(spot);
            }
            Record(proof) => {
                self.entries[a] = entry.record(goal, proof);
                self.entries[1 - a] = self.entries[1 - a].beside(proof);
                self.tries[a].note_proof(proof);
            }
            Wait(_) => self.tries[a].rest(),
            GiveUp => self.tries[a] = Tries::default(),
            Finished => {
                if goal == Goal::Mount && entry.phase < MountPhase::Mounted {
                    self.entries[a].phase = MountPhase::Mounted;
                }
                self.tries[a] = Tries::default();
            }
        }
        action
    }

    /// Begins to mount a broken mount again, as the client does.
    fn renew(&mut self, a: usize, goal: Goal) {
        let entry = &mut self.entries[a];
        if goal == Goal::Mount && entry.phase == MountPhase::Mounted && self.targets[a] != Place::Mounted {
            (entry.phase, entry.renewing) = (MountPhase::Publishing, true);
        }
    }

    fn look<'o>(&self, a: usize, others: &'o [Entry; 1], is_replaced: bool) -> Observed<'o> {
        let is_proven = self.entries[a].phase == MountPhase::Mounted && self.targets[a] == Place::Mounted;
        Observed {
            target: self.targets[a],
            stage: self.stage,
            is_proven,
            is_replaced,
            others,
            tries: self.tries[a],
            ..Observed::default()
        }
    }
}

fn habit() -> impl Strategy<Value = Habit> {
    const ANSWERS: [Answer; 5] =
        [Answer::Done, Answer::NotFound, Answer::OutOfOrder, Answer::Refused, Answer::Unclear];
    (any::<bool>(), prop::sample::select(&ANSWERS[..])).prop_map(|(effect, answer)| Habit { effect, answer })
}

/// The events of a history.
#[derive(Clone, Debug)]
enum Turn {
    /// A claim makes one attempt on the volume. The agent ends if the random behaviours end earlier.
    Try {
        a: usize,
        habits: Vec<Habit>,
    },
    Release {
        a: usize,
    },
    DaemonDies,
    /// The node loses its power: every mount is gone, and the ledger is kept.
    PowerLoss,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        5 => (0usize..2, prop::collection::vec(habit(), 1..12)).prop_map(|(a, habits)| Turn::Try { a, habits }),
        1 => (0usize..2).prop_map(|a| Turn::Release { a }),
        1 => Just(Turn::DaemonDies),
        1 => Just(Turn::PowerLoss),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Three invariants hold for every behaviour of plugin and daemon. No stage is ended under a user, no call is
    /// undone that was never made, and no claim ends while it is mounted. With a plugin that responds, all claims
    /// end, even if it refuses to undo nonexistent mounts.
    #[test]
    fn no_habit_of_a_plugin_breaks_the_order_or_keeps_a_claim(
        stages in any::<bool>(),
        turns in prop::collection::vec(turn(), 0..20),
        refusal in prop::sample::select(&[Answer::Refused, Answer::OutOfOrder, Answer::NotFound][..]),
    ) {
        let entry = Entry { stages, ..Entry::default() };
        let mut world = World { entries: [entry; 2], ..World::default() };
        let mut goals = [Goal::Mount; 2];
        for turn in turns {
            match turn {
                Turn::Try { a, habits } => {
                    world.renew(a, goals[a]);
                    let mut over = false;
                    for habit in habits {
                        let action = check(&mut world, a, goals[a], habit)?;
                        over = matches!(action, Wait(_) | GiveUp | Finished);
                        if over {
                            break;
                        }
                    }
                    if !over {
                        world.tries = Default::default();
                    }
                }
                Turn::Release { a } => {
                    goals[a] = Goal::Release;
                    world.tries[a] = Tries::default();
                }
                Turn::DaemonDies => {
                    let die = |place: &mut Place| if *place == Place::Mounted { *place = Place::Dead };
                    die(&mut world.stage);
                    world.targets.iter_mut().for_each(die);
                }
                Turn::PowerLoss => {
                    (world.stage, world.targets) = (Place::Empty, [Place::Empty; 2]);
                    (world.confirmed, world.tries) = (false, Default::default());
                }
            }
        }
        // Quiet phase: the plugin undoes existing mounts and refuses other calls. The claims end one after the other.
        for a in 0..2 {
            for _ in 0..60 {
                let place = if world.entries[a].phase < MountPhase::Unpublished { world.targets[a] } else { world.stage };
                let holds = place != Place::Empty;
                let habit = Habit { effect: holds, answer: if holds { Answer::Done } else { refusal } };
                if check(&mut world, a, Goal::Release, habit)? == Finished {
                    break;
                }
            }
            prop_assert_eq!(world.entries[a].phase, MountPhase::Unstaged, "{:?}", world);
            prop_assert_eq!(world.targets[a], Place::Empty);
        }
        prop_assert_eq!(world.stage, Place::Empty);
    }
}

fn check(world: &mut World, a: usize, goal: Goal, habit: Habit) -> Result<NodeAction, TestCaseError> {
    let before = world.clone();
    let action = world.step(a, goal, habit, false);
    let (mine, other) = (before.entries[a], before.entries[1 - a]);
    match action {
        Call(Unstage) => {
            prop_assert!(!is_live_user(&other), "unstaged under {other:?}");
            prop_assert_eq!(mine.publish, Reach::Never, "its own target goes first");
        }
        Call(Unpublish) => prop_assert!(mine.publish != Reach::Never || before.targets[a] != Place::Empty),
        Call(Publish) => {
            prop_assert!(!mine.stages || mine.stage == Reach::Made, "not staged");
            let is_good = before.confirmed || before.stage != Place::Mounted;
            prop_assert!(!mine.stages || is_good, "published from a stage that the plugin did not confirm");
        }
        Record(Proof::TargetGone(_)) => prop_assert_eq!(before.targets[a], Place::Empty),
        Record(Proof::StageGone(_)) => prop_assert_eq!(before.stage, Place::Empty),
        _ => {}
    }
    Ok(action)
}
