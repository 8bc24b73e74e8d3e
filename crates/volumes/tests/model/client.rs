//! A client: the rules of its ledger, written down once more without its I/O.

use crate::servers::{TTL, begin, call};
use crate::state::*;
use caravan_types::volume::ClaimPhase;
use caravan_volumes::invariants::Verb;

fn entry(state: &State, a: u8) -> Option<Entry> {
    state.allocs[usize::from(a)].entry
}

/// Entries of other allocations on the same stage.
fn others<'s>(setting: &'s Setting, state: &'s State, a: u8) -> impl Iterator<Item = (&'s Alloc, Entry)> {
    let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
    (0..2_u8)
        .filter(move |b| *b != a && setting.volume(*b) == volume)
        .map(|b| &state.allocs[usize::from(b)])
        .filter(move |alloc| alloc.node == node)
        .filter_map(|alloc| Some((alloc, alloc.entry?)))
}

/// Whether an entry keeps its stage from being ended.
fn holds_stage(entry: Entry) -> bool {
    entry.phase > Mount::Granted && entry.phase < Mount::Unstaged
}

fn is_last_user(setting: &Setting, state: &State, a: u8) -> bool {
    !others(setting, state, a).any(|(_, e)| holds_stage(e))
}

/// The node's turn on the volume is free: one call of a volume at a time.
fn has_turn(setting: &Setting, state: &State, a: u8) -> bool {
    let (volume, node) = (setting.volume(a), state.allocs[usize::from(a)].node);
    (0..2_u8)
        .filter(|b| setting.volume(*b) == volume)
        .map(|b| &state.allocs[usize::from(b)])
        .all(|alloc| alloc.node != node || alloc.call.is_none())
}

fn set(state: &mut State, a: u8, phase: Mount) {
    if let Some(entry) = &mut state.allocs[usize::from(a)].entry {
        entry.phase = phase;
    }
}

fn call_now(setting: &Setting, state: &mut State, a: u8, verb: Verb) {
    let made = call(state.allocs[usize::from(a)].node, a, verb);
    begin(setting, state, setting.volume(a), made);
    state.allocs[usize::from(a)].call = Some(verb);
}

/// The client hears what the servers want of the allocation.
pub fn learn(setting: &Setting, state: &mut State, a: u8) {
    let alloc = &mut state.allocs[usize::from(a)];
    let over = alloc.claim.is_some_and(|c| !c.phase.is_live());
    if alloc.runner == Runner::None {
        alloc.heard = alloc.claim.map_or(0, |c| c.generation);
    }
    alloc.runner = match (alloc.wanted, alloc.runner) {
        (Wanted::Stop, Runner::None) if over && setting.planted == Planted::UnheardOfIgnored => Runner::None,
        (Wanted::Run, Runner::None) => Runner::Run,
        (Wanted::Stop, _) => Runner::End,
        (_, runner) => runner,
    };
}

/// The client asks for its claim, and the servers answer when it is attached. The ledger has an entry before
/// anything else happens. Answers are not delayed: one that comes after the lease ran out, the contact was
/// lost or the allocation was stopped does not count.
pub fn ask(state: &mut State, a: u8) {
    let alloc = &mut state.allocs[usize::from(a)];
    let Some(claim) = alloc.claim else { return };
    match claim.phase {
        _ if alloc.runner != Runner::Run => return,
        ClaimPhase::Attached | ClaimPhase::Mounted => {}
        ClaimPhase::Reserved | ClaimPhase::Attaching => return,
        // Refused: the allocation has failed and is ended. One whose lease never ran out has no cause to ask.
        _ => {
            if !alloc.confirmed {
                alloc.runner = Runner::End;
            }
            return;
        }
    }
    alloc.confirmed = true;
    if alloc.entry.is_none_or(|e| e.generation != claim.generation) {
        alloc.entry = Some(Entry { phase: Mount::Granted, generation: claim.generation });
    }
}

/// The next step of a mount or a release: a call begins, or the ledger moves without one.
pub fn work(setting: &Setting, state: &mut State, a: u8) {
    let Some(e) = entry(state, a) else { return };
    if !has_turn(setting, state, a) {
        return;
    }
    let alloc = &state.allocs[usize::from(a)];
    match alloc.runner {
        Runner::Run if alloc.confirmed && e.phase < Mount::Mounted => mount(setting, state, a, e),
        // Its tasks have ended first.
        Runner::End if !alloc.task => release(setting, state, a, e),
        _ => {}
    }
}

fn mount(setting: &Setting, state: &mut State, a: u8, e: Entry) {
    // The stage is there and known to be good; a retry begins at the stage again.
    if !setting.stage {
        set(state, a, Mount::Publishing);
        return call_now(setting, state, a, Verb::Publish);
    }
    let sure = |alloc: &Alloc| alloc.confirmed || setting.planted == Planted::StageOfAnybody;
    let staged = |e: Entry| matches!(e.phase, Mount::Publishing | Mount::Mounted);
    // A stage of a claim that may have ended is ended first, not used.
    if others(setting, state, a).any(|(alloc, e)| holds_stage(e) && !sure(alloc)) {
        return;
    }
    let taken_over = others(setting, state, a).any(|(alloc, e)| staged(e) && sure(alloc));
    if e.phase == Mount::Publishing || taken_over {
        set(state, a, Mount::Publishing);
        call_now(setting, state, a, Verb::Publish);
    } else {
        set(state, a, Mount::Staging);
        call_now(setting, state, a, Verb::Stage);
    }
}

fn release(setting: &Setting, state: &mut State, a: u8, e: Entry) {
    match e.phase {
        Mount::Granted => set(state, a, Mount::Unstaged),
        Mount::Unstaged => {}
        Mount::Unpublished if !setting.stage => set(state, a, Mount::Unstaged),
        Mount::Unpublished => {
            let last = is_last_user(setting, state, a) || setting.planted == Planted::UnstageUnderOthers;
            if last {
                call_now(setting, state, a, Verb::Unstage);
            } else {
                set(state, a, Mount::Unstaged);
            }
        }
        _ => {
            set(state, a, Mount::Unpublishing);
            call_now(setting, state, a, Verb::Unpublish);
        }
    }
}

/// The client's call ends. `heard`: its answer reaches the client that made it.
pub fn call_ends(setting: &Setting, state: &mut State, a: u8, effect: bool, ok: bool) {
    let Some(verb) = state.allocs[usize::from(a)].call.take() else { return };
    let volume = setting.volume(a);
    let made = call(state.allocs[usize::from(a)].node, a, verb);
    if effect {
        state.outside[volume].take_effect(&made);
    }
    state.outside[volume].end(&made);
    if !ok {
        // The whole mount is tried again from its beginning.
        if verb == Verb::Publish && setting.stage {
            set(state, a, Mount::Staging);
        }
        return;
    }
    match verb {
        Verb::Stage => set(state, a, Mount::Publishing),
        Verb::Publish => set(state, a, Mount::Mounted),
        Verb::Unpublish => set(state, a, Mount::Unpublished),
        _ => set(state, a, Mount::Unstaged),
    }
}

/// A task may start: the mount is there as the ledger says, the claim is known to hold, the lease too.
pub fn may_start(setting: &Setting, state: &State, a: u8) -> bool {
    let alloc = &state.allocs[usize::from(a)];
    let node = &state.nodes[usize::from(alloc.node)];
    let sure = alloc.confirmed || setting.planted == Planted::RestartWithoutAsking;
    node.up
        && alloc.runner == Runner::Run
        && !alloc.task
        && alloc.entry.is_some_and(|e| e.phase == Mount::Mounted)
        && sure
        && (node.age < TTL || !setting.fenced())
}

/// The lease ran out: what the servers said before counts no more.
pub fn lapse(state: &mut State, node: u8) {
    for alloc in state.allocs.iter_mut().filter(|alloc| alloc.node == node) {
        alloc.confirmed = false;
    }
}
