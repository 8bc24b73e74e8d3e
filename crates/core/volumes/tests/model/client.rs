//! The model of a client: the real decisions of `caravan_volumes::node`, on entries of the model.

use crate::servers::{TTL, begin, call};
use crate::state::*;
use caravan_types::volume::ClaimPhase;
use caravan_volumes::invariants::Verb;
use caravan_volumes::node::{
    self, Answer, Because, Goal, NodeAction, NodeCall, NodeWait, Observed, Place, Proof, Reach, Spot, Tries,
};

fn entry(state: &State, a: u8) -> Option<Entry> {
    state.allocs[usize::from(a)].entry
}

/// Returns the entries of other allocations on the same stage.
fn others<'s>(setting: &'s Setting, state: &'s State, a: u8) -> impl Iterator<Item = (&'s Alloc, Entry)> {
    let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
    (0..2_u8)
        .filter(move |b| *b != a && setting.volume(*b) == volume)
        .map(|b| &state.allocs[usize::from(b)])
        .filter(move |alloc| alloc.node == node)
        .filter_map(|alloc| Some((alloc, alloc.entry?)))
}

/// Returns whether the node's lock of the volume is free. One attempt at a time may use a volume.
fn has_turn(setting: &Setting, state: &State, a: u8) -> bool {
    let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
    (0..2_u8)
        .filter(|b| *b != a && setting.volume(*b) == volume)
        .map(|b| &state.allocs[usize::from(b)])
        .all(|alloc| alloc.node != node || (alloc.call.is_none() && alloc.trying.is_none()))
}

fn set(state: &mut State, a: u8, node: node::Entry) {
    if let Some(entry) = &mut state.allocs[usize::from(a)].entry {
        entry.node = node;
    }
}

fn call_now(setting: &Setting, state: &mut State, a: u8, verb: Verb) {
    let made = call(state.allocs[usize::from(a)].node, a, verb);
    begin(setting, state, setting.volume(a), made);
    state.allocs[usize::from(a)].call = Some(verb);
}

/// Lets the client receive the servers' state of the allocation.
pub fn learn(setting: &Setting, state: &mut State, a: u8) {
    let alloc = &mut state.allocs[usize::from(a)];
    let over = alloc.claim.is_some_and(|c| !c.phase.is_live());
    if alloc.runner == Runner::None {
        alloc.received_generation = alloc.claim.map_or(0, |c| c.generation);
    }
    alloc.runner = match (alloc.desired, alloc.runner) {
        (Desired::Stop, Runner::None) if over && setting.planted == Planted::UnknownIgnored => Runner::None,
        (Desired::Run, Runner::None) => Runner::Run,
        (Desired::Stop, _) => Runner::End,
        (_, runner) => runner,
    };
}

/// Lets the client request its claim, which the servers confirm when it is attached. The ledger has an entry before
/// any other step. Responses are not delayed. A response does not count if the lease ran out, the contact was lost or
/// the allocation was stopped before it arrived.
pub fn ask(setting: &Setting, state: &mut State, a: u8) {
    let alloc = &mut state.allocs[usize::from(a)];
    let Some(claim) = alloc.claim else { return };
    match claim.phase {
        _ if alloc.runner != Runner::Run => return,
        ClaimPhase::Attached | ClaimPhase::Mounted => {}
        ClaimPhase::Reserved | ClaimPhase::Attaching => return,
        // The servers refused: the allocation has failed and is stopped. A client whose lease never ran out has no
        // reason to request the claim again.
        _ => {
            if !alloc.confirmed {
                alloc.runner = Runner::End;
            }
            return;
        }
    }
    alloc.confirmed = true;
    if alloc.entry.is_none_or(|e| e.generation != claim.generation) {
        let stages = setting.stage;
        let node = node::Entry { stages, ..node::Entry::default() };
        alloc.entry = Some(Entry { node, generation: claim.generation });
    }
}

/// Takes the next steps of a mount or a release, until a call begins or the attempt ends.
pub fn work(setting: &Setting, state: &mut State, a: u8) {
    let Some(e) = entry(state, a) else { return };
    if !has_turn(setting, state, a) {
        return;
    }
    let alloc = &state.allocs[usize::from(a)];
    let goal = match (alloc.trying, alloc.runner) {
        (Some(goal), _) => goal,
        (None, Runner::Run) if alloc.confirmed && e.phase() < Mount::Mounted => Goal::Mount,
        // The tasks of the allocation have ended first.
        (None, Runner::End) if !alloc.task => Goal::Release,
        _ => return,
    };
    if alloc.trying.is_none() && goal == Goal::Mount {
        state.allocs[usize::from(a)].tries = Tries::default();
    }
    state.allocs[usize::from(a)].trying = Some(goal);
    // The limit is far more than the steps between two calls.
    for _ in 0..20 {
        let Some(e) = entry(state, a) else { return };
        match decide(setting, state, a, goal, e) {
            NodeAction::Call(made) => {
                set(state, a, e.node.intend(goal, made));
                return call_now(setting, state, a, verb(made));
            }
            NodeAction::Unmount(spot, _) => {
                let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
                match spot {
                    Spot::Stage => drop(state.outside[volume].staged.remove(&(node, STAGE))),
                    Spot::Target => drop(state.outside[volume].published.remove(&(node, target(a)))),
                }
                revive(state, volume, node);
                state.allocs[usize::from(a)].tries.note_unmount(spot);
            }
            NodeAction::Record(proof) => {
                set(state, a, e.node.record(goal, proof));
                let b = 1 - a;
                if others(setting, state, a).next().is_some()
                    && let Some(other) = entry(state, b)
                {
                    set(state, b, other.node.beside(proof));
                }
                state.allocs[usize::from(a)].tries.note_proof(proof);
            }
            NodeAction::Wait(_) => {
                state.allocs[usize::from(a)].tries.rest();
                return end_try(state, a, goal);
            }
            NodeAction::GiveUp => return end_try(state, a, goal),
            NodeAction::Finished => {
                if goal == Goal::Mount && e.phase() < Mount::Mounted {
                    set(state, a, node::Entry { phase: Mount::Mounted, ..e.node });
                }
                state.allocs[usize::from(a)].tries = Tries::default();
                return end_try(state, a, goal);
            }
        }
    }
    unreachable!("a try without an end: {state:?}");
}

fn end_try(state: &mut State, a: u8, goal: Goal) {
    let alloc = &mut state.allocs[usize::from(a)];
    alloc.trying = None;
    // The refusals of a release are counted over all its attempts.
    if goal == Goal::Mount {
        alloc.tries = Tries::default();
    }
}

/// Removes the marks of dead mounts from places without a mount.
fn revive(state: &mut State, volume: usize, node: u8) {
    let there = |place: u8| state.place(volume, node, place) != Place::Empty;
    let gone: Vec<u8> = [STAGE, target(0), target(1)].into_iter().filter(|place| !there(*place)).collect();
    state.dead.retain(|(v, n, place)| (*v, *n) != (volume, node) || !gone.contains(place));
}

fn verb(call: NodeCall) -> Verb {
    match call {
        NodeCall::Stage => Verb::Stage,
        NodeCall::Publish => Verb::Publish,
        NodeCall::Unpublish => Verb::Unpublish,
        NodeCall::Unstage => Verb::Unstage,
    }
}

fn node_call(verb: Verb) -> NodeCall {
    match verb {
        Verb::Stage => NodeCall::Stage,
        Verb::Publish => NodeCall::Publish,
        Verb::Unpublish => NodeCall::Unpublish,
        _ => NodeCall::Unstage,
    }
}

/// Returns the real decision on the model's state, changed by planted faults.
fn decide(setting: &Setting, state: &State, a: u8, goal: Goal, e: Entry) -> NodeAction {
    let planted = setting.planted;
    let (volume, alloc) = (setting.volume(a), &state.allocs[usize::from(a)]);
    let on_way = |e: Entry| e.phase() > Mount::Granted && e.phase() < Mount::Unstaged;
    // The client first releases a claim that may have ended.
    let unsure = |alloc: &Alloc| !alloc.confirmed && planted != Planted::StageOfAnybody;
    let is_stale = setting.stage
        && goal == Goal::Mount
        && others(setting, state, a).any(|(alloc, e)| on_way(e) && unsure(alloc));
    let target = state.place(volume, alloc.node, target(a));
    let stage = state.place(volume, alloc.node, STAGE);
    // A missing stage is staged again in spite of its users.
    let stages_again = goal == Goal::Mount && stage == Place::Empty;
    let seen_as = |other: node::Entry| match planted {
        Planted::NewcomerIsUser if other.phase < Mount::Unstaged && !stages_again => {
            node::Entry { stage: Reach::Made, ..other }
        }
        Planted::DeadStageUnderUsers if goal == Goal::Mount => node::Entry { stage: Reach::Never, ..other },
        Planted::UnstageUnderOthers if goal == Goal::Release => node::Entry { stage: Reach::Never, ..other },
        _ => other,
    };
    let others: Vec<node::Entry> = others(setting, state, a).map(|(_, e)| seen_as(e.node)).collect();
    let observed = Observed {
        target,
        stage,
        is_proven: e.phase() == Mount::Mounted && target == Place::Mounted,
        is_stale,
        is_abandoned: goal == Goal::Mount && (alloc.runner != Runner::Run || !alloc.confirmed),
        others: &others,
        tries: alloc.tries,
        ..Observed::default()
    };
    match (planted, node::next(goal, &e.node, &observed)) {
        (Planted::RefusalIsProof, NodeAction::Wait(NodeWait::Refused(NodeCall::Unpublish))) => {
            NodeAction::Record(Proof::TargetGone(Because::Absent))
        }
        (Planted::WordIsTheOnlyProof, NodeAction::Record(Proof::TargetGone(Because::Absent))) => {
            NodeAction::Wait(NodeWait::Refused(NodeCall::Unpublish))
        }
        (Planted::WordIsTheOnlyProof, NodeAction::Record(Proof::StageGone(Because::Absent))) => {
            NodeAction::Wait(NodeWait::Refused(NodeCall::Unstage))
        }
        (Planted::StageInTheWay, NodeAction::Call(NodeCall::Unstage)) if goal == Goal::Mount => {
            NodeAction::GiveUp
        }
        (_, action) => action,
    }
}

/// Returns the plugin's behaviour without errors: whether the call takes effect, and the response.
fn habit(setting: &Setting, state: &State, a: u8, verb: Verb) -> (bool, Answer) {
    let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
    let place = match verb {
        Verb::Stage | Verb::Unstage => state.place(volume, node, STAGE),
        _ => state.place(volume, node, target(a)),
    };
    let makes = matches!(verb, Verb::Stage | Verb::Publish);
    let on_dead = verb == Verb::Publish && state.place(volume, node, STAGE) == Place::Dead;
    match place {
        // The plugin returns "File exists", or "Transport endpoint is not connected".
        Place::Dead if makes => (false, Answer::Refused),
        _ if on_dead => (false, Answer::Refused),
        Place::Mounted if makes && setting.strict => (false, Answer::Refused),
        Place::Empty if !makes && setting.strict => (false, Answer::Refused),
        _ => (true, Answer::Done),
    }
}

/// Ends the client's call, with the plugin's normal behaviour or with an error. The erroneous call may have its
/// effect or not.
pub fn call_ends(setting: &Setting, state: &mut State, a: u8, error: Option<(bool, Answer)>) {
    let Some(verb) = state.allocs[usize::from(a)].call.take() else { return };
    let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
    let usual = habit(setting, state, a, verb);
    let (effect, answer) = match error {
        None => usual,
        Some((effect, answer)) => (effect && usual.0, answer),
    };
    let made = call(node, a, verb);
    if effect {
        state.outside[volume].take_effect(&made);
        revive(state, volume, node);
    }
    state.outside[volume].end(&made);
    let alloc = &mut state.allocs[usize::from(a)];
    alloc.tries.note(node_call(verb), answer);
    let Some(entry) = &mut alloc.entry else { return };
    entry.node = entry.node.learn(node_call(verb), answer);
    if setting.planted == Planted::FailedIsNever && answer == Answer::Refused {
        match verb {
            Verb::Stage => entry.node.stage = Reach::Never,
            Verb::Publish => entry.node.publish = Reach::Never,
            _ => {}
        }
    }
}

/// Ends the agent: no process receives the response to its call.
pub fn crash(setting: &Setting, state: &mut State, a: u8, effect: bool) {
    call_ends(setting, state, a, Some((effect, Answer::Unclear)));
    let alloc = &mut state.allocs[usize::from(a)];
    (alloc.confirmed, alloc.reported) = (false, false);
    (alloc.trying, alloc.tries) = (None, Tries::default());
}

/// Ends the daemon of a volume's file system: its mounts on the node are dead, and tasks that use them fail.
pub fn daemon_dies(setting: &Setting, state: &mut State, volume: usize, node: u8) {
    for place in [STAGE, target(0), target(1)] {
        if state.place(volume, node, place) == Place::Mounted {
            state.dead.insert((volume, node, place));
        }
    }
    for a in (0..2_u8).filter(|a| setting.volume(*a) == volume) {
        let alloc = &mut state.allocs[usize::from(a)];
        if alloc.node == node && alloc.entry.is_some_and(|e| e.node.publish != Reach::Never) {
            (alloc.task, alloc.desired) = (false, Desired::Stop);
        }
    }
}

/// Returns whether a task may start: the mount matches the ledger, and the claim and the lease are known to hold.
pub fn may_start(setting: &Setting, state: &State, a: u8) -> bool {
    let alloc = &state.allocs[usize::from(a)];
    let node = &state.nodes[usize::from(alloc.node)];
    let sure = alloc.confirmed || setting.planted == Planted::RestartWithoutAsking;
    node.up
        && alloc.runner == Runner::Run
        && !alloc.task
        && alloc.entry.is_some_and(|e| e.phase() == Mount::Mounted)
        && state.place(setting.volume(a), alloc.node, target(a)) == Place::Mounted
        && sure
        && (node.age < TTL || !setting.fenced())
}

/// Ends the lease of a node: earlier responses of the servers do not count any more.
pub fn lapse(state: &mut State, node: u8) {
    for alloc in state.allocs.iter_mut().filter(|alloc| alloc.node == node) {
        alloc.confirmed = false;
    }
}
