//! The state of a volume and its reasons (`volume explain`).

use super::reconciler::Reconciler;
use super::usage::UsageBook;
use caravan_state::Root;
use caravan_types::volume::{
    CallInFlight, Claim, ClaimExplain, ClaimPhase, Volume, VolumeExplain, VolumePhase,
};
use caravan_types::{Nanos, UnixNanos, VolumeKey};
use caravan_volumes::reconcile::{Action, fence_left, in_the_way, unused};
use std::sync::Arc;

/// Explains a volume; `None` if neither the volume nor a claim on it exists.
pub(crate) fn explain(reconciler: &Reconciler, usage: &UsageBook, key: &VolumeKey) -> Option<VolumeExplain> {
    let root = reconciler.core.snapshot();
    let mut rows: Vec<Arc<Claim>> = root.claims_of(key).cloned().collect();
    let volume = root.volume(key);
    if volume.is_none() && rows.is_empty() {
        return None;
    }
    rows.sort_by_key(|c| (!c.phase.holds(), c.create_index, c.id.clone()));
    let claims: Vec<ClaimExplain> = rows.iter().map(|claim| of_claim(reconciler, &root, claim)).collect();
    let calls = reconciler.controllers.calls.list(key);
    let mut reported = match volume {
        Some(volume) => of_volume(reconciler, volume),
        None => VolumeExplain {
            id: key.id.clone(),
            namespace: key.namespace.clone(),
            plugin_id: rows.first().map(|c| c.plugin_id.clone()).unwrap_or_default(),
            external_id: rows.first().map(|c| c.external_volume_id.clone()).unwrap_or_default(),
            phase: VolumePhase::Deleting,
            ..VolumeExplain::default()
        },
    };
    reported.summary = match volume {
        Some(volume) if volume.phase != VolumePhase::Ready => {
            let reachable = reconciler.controllers.reach(&root, &volume.plugin_id);
            in_progress(
                volume,
                &calls,
                reachable,
                unused(rows.iter().map(|c| &**c)),
                !reported.next_try.is_zero(),
            )
        }
        Some(_) => at_work(&claims, &calls),
        None => format!("the volume is not registered any more; {}", at_work(&claims, &calls)),
    };
    reported.usage = usage.list(&root, key);
    reported.calls = calls;
    reported.claims = claims;
    Some(reported)
}

fn of_volume(reconciler: &Reconciler, volume: &Volume) -> VolumeExplain {
    VolumeExplain {
        id: volume.id.clone(),
        namespace: volume.namespace.clone(),
        plugin_id: volume.plugin_id.clone(),
        external_id: volume.external_id.clone(),
        phase: volume.phase,
        tries: volume.tries,
        last_error: volume.last_error.clone(),
        next_try: reconciler.next_try(volume),
        capacity: volume.capacity,
        history: volume.history.clone(),
        ..VolumeExplain::default()
    }
}

fn of_claim(reconciler: &Reconciler, root: &Root, claim: &Claim) -> ClaimExplain {
    let now = reconciler.core.now();
    let (waits_for, holder, next_try, left) = if claim.phase.holds() {
        reconciler.with_facts(root, claim, |facts| {
            let left = fence_left(facts).unwrap_or_default();
            let holder = in_the_way(facts).map(|other| other.id.alloc.clone()).unwrap_or_default();
            let action = reconciler.decide_with(root, facts);
            let next_try = match &action {
                Action::WaitUntil { time, .. } if !claim.next_try.is_zero() => {
                    now.plus(time.since(facts.now))
                }
                _ => claim.next_try.min(now),
            };
            let mut waits = match action {
                // A step that needs no wait is executed immediately, unless another caller holds the volume.
                Action::Nothing => String::new(),
                action => {
                    let wait = action.wait().cloned().or_else(|| reconciler.waits.get(&claim.id));
                    wait.map(|wait| wait.to_string()).unwrap_or_default()
                }
            };
            if left > Nanos::ZERO && !waits.is_empty() {
                let whole = Nanos::from_secs(left.0.div_euclid(1_000_000_000).saturating_add(1));
                waits.push_str(&format!(" (still {whole})"));
            }
            (waits, holder, next_try, left)
        })
    } else {
        Default::default()
    };
    ClaimExplain {
        alloc_id: claim.id.alloc.clone(),
        job_id: claim.job_id.clone(),
        task_group: claim.task_group.clone(),
        node_id: claim.node_id.clone(),
        external_node_id: claim.external_node_id.clone(),
        mode: claim.mode,
        access_mode: claim.access_mode,
        attachment_mode: claim.attachment_mode,
        phase: claim.phase,
        since: claim.phase_since,
        waits_for,
        holder,
        tries: claim.tries,
        last_error: claim.last_error.clone(),
        next_try,
        fence_until: match (claim.phase, left) {
            (ClaimPhase::Fencing, Nanos::ZERO) => claim.fence_until.min(now),
            (ClaimPhase::Fencing, left) => now.plus(left),
            _ => UnixNanos(0),
        },
        fence_left: left,
        node_off: claim.node_off.clone(),
        history: claim.history.clone(),
    }
}

/// Returns one sentence about a volume that is being created, expanded or deleted.
fn in_progress(
    volume: &Volume,
    calls: &[CallInFlight],
    reachable: bool,
    unused: bool,
    waits: bool,
) -> String {
    let what = volume.phase.as_str();
    let own = calls.iter().find(|call| call.alloc_id.is_empty());
    if let Some(call) = own {
        return format!("{what}: {} is under way for {}", call.call, call.running_for);
    }
    if volume.expand_offline && !unused {
        return format!("{what}: waits until nobody uses the volume ({})", volume.last_error);
    }
    if !reachable {
        let plugin = &volume.plugin_id;
        return format!("{what}: no healthy controller of plugin \"{plugin}\" is connected to the servers");
    }
    if waits {
        return format!("{what}: try {} failed: {}", volume.tries, volume.last_error);
    }
    format!("{what}: the plugin is about to be called")
}

/// Returns one sentence about a ready volume: the oldest wait, or the number of its users.
fn at_work(claims: &[ClaimExplain], calls: &[CallInFlight]) -> String {
    let held = || claims.iter().filter(|c| c.phase.holds());
    let waiting = held().filter(|c| !c.waits_for.is_empty()).min_by_key(|c| c.since);
    if let Some(claim) = waiting {
        let more = held().filter(|c| !c.waits_for.is_empty()).count() - 1;
        let others = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        return format!("claim of allocation {} {}{others}", claim.alloc_id.short(), claim.waits_for);
    }
    if let Some(call) = calls.first() {
        return format!("{} is under way for {}", call.call, call.running_for);
    }
    match (held().count(), held().filter(|c| c.phase == ClaimPhase::Mounted).count()) {
        (0, _) => "nobody uses it".to_owned(),
        (all, mounted) if all == mounted => {
            format!("in use by {all} allocation{}", if all == 1 { "" } else { "s" })
        }
        (all, mounted) => format!("{mounted} of {all} claims are mounted"),
    }
}
