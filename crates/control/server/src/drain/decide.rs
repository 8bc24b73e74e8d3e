//! The decision about the next step of a drain. Pure.

use caravan_state::Root;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{Job, TaskGroup};
use caravan_types::node::Node;
use caravan_types::volume::{Claim, ClaimPhase};
use caravan_types::{AllocId, PluginId, UnixNanos};
use caravan_volumes::wait::{FailedTry, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The next step for a draining node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Allocations to migrate now.
    pub(crate) mark: BTreeSet<AllocId>,
    /// Whether the drain is complete: no allocation remains that the drain must stop.
    pub(crate) finished: bool,
    /// Whether the deadline has passed (or the drain was forced from the beginning).
    pub(crate) deadline_reached: bool,
    /// The time of the next check, if nothing changes before.
    pub(crate) again: Option<UnixNanos>,
    /// Volumes whose mounts keep a plugin on the node, each with its reason.
    pub(crate) held_by: BTreeMap<String, String>,
}

/// The treatment of an allocation by a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// An allocation that migrates with few others at a time, as its group's `migrate` block specifies.
    Service,
    /// An allocation that runs to its end, or until the deadline.
    Batch,
    /// An allocation that stops last.
    System,
    /// An allocation that serves volumes on this node, and stops after the last mount that needs it
    /// (docs/design/volumes.md).
    Plugin,
}

/// Decides about one node. `volume_wait` returns why a claim that is being released waits.
pub(crate) fn decide(
    root: &Root,
    node: &Node,
    now: UnixNanos,
    volume_wait: impl Fn(&Claim) -> Option<Wait>,
) -> Decision {
    let Some(drain) = &node.drain_strategy else { return Decision::default() };
    let force_at = UnixNanos(drain.force_deadline.0);
    let forced = drain.deadline.0 < 0;
    let over = forced || (drain.deadline.0 > 0 && force_at <= now);
    let mut decision = Decision { deadline_reached: over, ..Decision::default() };
    if !over && drain.deadline.0 > 0 {
        decision.again = Some(force_at);
    }
    let live: Vec<(&Arc<Allocation>, Work)> = root
        .allocs_by_node(&node.id)
        .filter(|alloc| !alloc.client_terminal())
        .filter_map(|alloc| Some((alloc, work_of(alloc)?)))
        .filter(|(alloc, _)| !(drain.ignore_system_jobs && is_system(alloc)))
        .collect();
    decision.finished = live.is_empty();
    let mut rooms: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for (alloc, work) in &live {
        match work {
            _ if is_leaving(alloc) => {}
            Work::Plugin | Work::System => {}
            Work::Batch if over => {
                decision.mark.insert(alloc.id.clone());
            }
            Work::Batch => {}
            Work::Service if over || alloc.client_status != ClientStatus::Running => {
                decision.mark.insert(alloc.id.clone());
            }
            Work::Service => {
                let key =
                    (alloc.namespace.to_string(), alloc.job_id.to_string(), alloc.task_group.to_string());
                let room = rooms.entry(key).or_insert_with(|| room(root, alloc));
                if *room > 0 {
                    *room -= 1;
                    decision.mark.insert(alloc.id.clone());
                }
            }
        }
    }
    if live.iter().any(|(_, work)| matches!(work, Work::Service | Work::Batch)) {
        return decision;
    }
    for (alloc, work) in &live {
        let held = if *work == Work::Plugin { mounts(root, node, alloc) } else { Vec::new() };
        if held.is_empty() && !is_leaving(alloc) {
            decision.mark.insert(alloc.id.clone());
        }
        for claim in held {
            decision.held_by.insert(claim.id.volume.to_string(), reason(claim, &volume_wait));
        }
    }
    decision
}

fn reason(claim: &Claim, volume_wait: &impl Fn(&Claim) -> Option<Wait>) -> String {
    let wait = volume_wait(claim).map(|wait| wait.to_string());
    let why = wait.or_else(|| FailedTry::recorded(claim).map(|failure| failure.to_string()));
    let base = format!("allocation {} is {}", claim.id.alloc.short(), claim.phase.as_str());
    match why {
        Some(why) => format!("{base}: {why}"),
        None => base,
    }
}

fn is_leaving(alloc: &Allocation) -> bool {
    alloc.server_terminal() || alloc.desired_transition.migrate == Some(true)
}

fn is_system(alloc: &Allocation) -> bool {
    alloc.job.as_ref().is_some_and(|job| job.kind.is_system())
}

fn group_of(alloc: &Allocation) -> Option<(&Arc<Job>, &TaskGroup)> {
    let job = alloc.job.as_ref()?;
    Some((job, job.group(&alloc.task_group)?))
}

fn work_of(alloc: &Allocation) -> Option<Work> {
    let (job, group) = group_of(alloc)?;
    let plugin = group.tasks.iter().any(|task| task.csi_plugin_config.is_some());
    Some(match () {
        () if plugin => Work::Plugin,
        () if job.kind.is_system() => Work::System,
        () if job.kind.is_batch() => Work::Batch,
        () => Work::Service,
    })
}

/// Returns the claims on the node whose release needs a plugin of this allocation.
fn mounts<'a>(root: &'a Root, node: &Node, alloc: &Allocation) -> Vec<&'a Arc<Claim>> {
    let Some((_, group)) = group_of(alloc) else { return Vec::new() };
    let plugins: BTreeSet<&PluginId> = group
        .tasks
        .iter()
        .filter_map(|task| task.csi_plugin_config.as_ref())
        .filter(|config| config.kind.has_node())
        .map(|config| &config.id)
        .collect();
    let needs = |claim: &&Arc<Claim>| {
        let undone = claim.phase.may_be_on_node() || is_detached_by(root, node, claim);
        undone && plugins.contains(&claim.plugin_id) && claim.id.alloc != alloc.id
    };
    root.claims_by_node(&node.id).filter(needs).collect()
}

/// Whether a volume must still be detached, and only this node's controller can detach it.
fn is_detached_by(root: &Root, node: &Node, claim: &Claim) -> bool {
    if !matches!(claim.phase, ClaimPhase::Unstaged | ClaimPhase::Detaching) {
        return false;
    }
    let Some(plugin) = root.plugin(&claim.plugin_id) else { return false };
    let elsewhere = plugin.controllers.iter().any(|(id, info)| *id != node.id && info.healthy);
    plugin.controllers.contains_key(&node.id) && !elsewhere
}

/// Whether an allocation is in service. An allocation that replaced another allocation must be healthy by its
/// `migrate` block or its deployment, if its health is checked.
fn is_well(alloc: &Allocation) -> bool {
    let judged = || {
        group_of(alloc).is_some_and(|(_, group)| match &group.update {
            Some(update) if !alloc.deployment_id.is_empty() => update.health_check != "manual",
            _ => group.migrate.is_some(),
        })
    };
    alloc.client_status == ClientStatus::Running
        && alloc.health().unwrap_or_else(|| alloc.previous_allocation.is_empty() || !judged())
}

/// Returns the number of running allocations of a group that may still stop now, on any node. The group's count,
/// minus `migrate.max_parallel`, must keep running.
fn room(root: &Root, of: &Allocation) -> usize {
    let Some(job) = root.job(&of.job_key()).cloned().or_else(|| of.job.clone()) else { return usize::MAX };
    let Some(group) = job.group(&of.task_group) else { return usize::MAX };
    let parallel = group.migrate.as_ref().map_or(1, |migrate| migrate.max_parallel.max(1));
    let running = root
        .allocs_by_job(&job.key())
        .filter(|a| a.task_group == of.task_group && is_well(a) && !is_leaving(a))
        .count();
    let stay = usize::try_from(group.count.saturating_sub(parallel)).unwrap_or(usize::MAX);
    running.saturating_sub(stay)
}

#[cfg(test)]
mod tests;
