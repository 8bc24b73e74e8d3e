//! The reconciliation of the desired with the existing allocations of a job: which allocations are stopped, updated
//! or placed.

mod group;
pub(crate) mod reschedule;
pub(crate) mod rollout;

use crate::diff::{self, Update};
use crate::disconnect::{self, Clock};
use crate::feasible;
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::{Allocation, ClientStatus, LEASE_EXPIRED};
use caravan_types::deployment::Verdict;
use caravan_types::eval::Evaluation;
use caravan_types::job::{Job, JobType, TaskGroup};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::plan::DesiredUpdates;
use caravan_types::{DeploymentId, JobKey, NodeId, UnixNanos};
use rollout::Rollout;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The reasons of stops, with texts that clients recognize (docs/reference/http-api.md, section 6.1).
pub(crate) const NOT_NEEDED: &str = "alloc not needed due to job update";
pub(crate) const UPDATING: &str = "alloc is being updated due to job update";
pub(crate) const MIGRATING: &str = "alloc is being migrated";
pub(crate) const TAINTED: &str = "alloc not needed as node is tainted";
pub(crate) const LOST: &str = "alloc is lost since its node is down";
pub(crate) const RESCHEDULED: &str = "alloc was rescheduled because it failed";

/// An allocation that the plan stops.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub alloc: Arc<Allocation>,
    pub description: &'static str,
    pub lost: bool,
}

/// An allocation that the plan places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The position of the group in the job.
    pub group: usize,
    /// The name of the allocation: `job.group[index]`.
    pub name: String,
    /// The allocation that this allocation replaces.
    pub previous: Previous,
    /// The only permitted node, for allocations of system jobs.
    pub only_on: Option<NodeId>,
    /// The nodes on which the group failed before.
    pub penalties: BTreeSet<NodeId>,
    /// Whether this allocation is a canary.
    pub canary: bool,
    /// The deployment of the allocation.
    pub deployment: DeploymentId,
    /// The earlier version of the job that the allocation runs, if not the newest.
    pub version: Option<Arc<Job>>,
}

/// The earlier allocation of a placement, by the effect of the placement on that allocation.
#[derive(Clone, Debug, Default)]
pub(crate) enum Previous {
    /// The placement succeeds no allocation.
    #[default]
    None,
    /// The allocation has ended, is lost or is stopped in any case. The new allocation only names it.
    Left(Arc<Allocation>),
    /// The allocation runs, and stops only if the new allocation is placed.
    Running(Arc<Allocation>),
    /// The allocation failed. It is stopped only if the new allocation, which records the attempt, is placed.
    Failed(Arc<Allocation>),
}

impl Previous {
    /// Returns the earlier allocation, if there is one.
    pub(crate) fn alloc(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::None => None,
            Self::Left(alloc) | Self::Running(alloc) | Self::Failed(alloc) => Some(alloc),
        }
    }

    /// Returns the earlier allocation if it runs until the new one is placed.
    pub(crate) fn running(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::Running(alloc) => Some(alloc),
            Self::None | Self::Left(_) | Self::Failed(_) => None,
        }
    }

    /// Returns the earlier allocation if the placement is another attempt after its failure.
    pub(crate) fn failed(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::Failed(alloc) => Some(alloc),
            Self::None | Self::Left(_) | Self::Running(_) => None,
        }
    }
}

/// All changes of a reconciliation.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub stops: Vec<Stop>,
    /// The allocations that are updated in place, each with its new deployment.
    pub in_place: Vec<(Arc<Allocation>, DeploymentId)>,
    pub places: Vec<Place>,
    pub updates: BTreeMap<String, DesiredUpdates>,
    /// The allocations that become unknown, and the time until which each may return.
    pub unknown: Vec<(Arc<Allocation>, UnixNanos)>,
    /// The allocations that stay unknown, and the time until which each may return.
    pub still_unknown: Vec<(Arc<Allocation>, UnixNanos)>,
    /// The times of later evaluations, because an allocation may not be replaced earlier.
    pub later: BTreeSet<UnixNanos>,
    /// The failed allocations, and the time at which each is rescheduled.
    pub failed_until: Vec<(Arc<Allocation>, UnixNanos)>,
    /// The time at which the next batch of an update is due.
    pub next_batch: Option<UnixNanos>,
    /// The deployment of the current version.
    pub rollout: Rollout,
    /// The deployments that end.
    pub ended: Vec<Verdict>,
}

impl Changes {
    pub fn group_mut(&mut self, group: &str) -> &mut DesiredUpdates {
        self.updates.entry(group.to_owned()).or_default()
    }

    pub fn stop(&mut self, alloc: &Arc<Allocation>, description: &'static str) {
        self.stops.push(Stop { alloc: Arc::clone(alloc), description, lost: false });
    }
}

/// The effect of the state of an allocation's node on the allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The node does not require any change.
    Firm,
    /// A drain or a user requests that the allocation moves.
    Leaving,
    /// The node is disconnected and may return with the allocation.
    Silent,
    /// The node is down or does not exist.
    Lost,
}

/// Classifies an allocation by the state of its node and by the users' requests.
pub(crate) fn ground(node: Option<&Node>, alloc: &Allocation, clock: Clock<'_>) -> Ground {
    let silent = || match disconnect::kept_for(alloc, clock) {
        Some(_) => Ground::Silent,
        None => Ground::Lost,
    };
    match node {
        None => Ground::Lost,
        Some(node) if node.status == NodeStatus::Down => Ground::Lost,
        Some(node) if node.status == NodeStatus::Disconnected => silent(),
        // The node is in contact again and has not yet reported the allocation's state.
        _ if alloc.client_status == ClientStatus::Unknown => silent(),
        _ if alloc.desired_transition.migrate == Some(true) => Ground::Leaving,
        Some(_) => Ground::Firm,
    }
}

/// Returns the allocations that are neither stopped nor terminal. Allocations whose node is lost are declared lost,
/// even if they were stopping, because their clients will never report the end.
pub(crate) fn live<V: View>(
    view: &V,
    key: &JobKey,
    clock: Clock<'_>,
    changes: &mut Changes,
) -> Vec<Arc<Allocation>> {
    let mut live = Vec::new();
    for alloc in view.allocs_by_job(key).filter(|a| !a.client_terminal()) {
        let node = view.node(&alloc.node_id).map(AsRef::as_ref);
        if ground(node, alloc, clock) == Ground::Lost {
            changes.group_mut(&alloc.task_group).stop += 1;
            changes.stops.push(Stop { alloc: Arc::clone(alloc), description: LOST, lost: true });
        } else if !alloc.server_terminal() {
            live.push(Arc::clone(alloc));
        }
    }
    live
}

/// Returns the changes for a stopped or deregistered job: every allocation stops.
pub(crate) fn stop_all<V: View>(view: &V, key: &JobKey, clock: Clock<'_>) -> Changes {
    let mut changes = Changes::default();
    for alloc in live(view, key, clock, &mut changes) {
        changes.group_mut(&alloc.task_group).stop += 1;
        changes.stop(&alloc, NOT_NEEDED);
    }
    changes.ended = rollout::end_all(view, key);
    changes
}

/// Returns whether the allocation runs the newest specification.
pub(crate) fn is_current(alloc: &Allocation, job: &Job) -> bool {
    alloc.job.as_ref().is_some_and(|old| old.create_index == job.create_index && old.version == job.version)
}

/// Returns whether a terminal allocation of a system job is replaced. A completed allocation of a batch job is never
/// replaced.
pub(crate) fn gives_way(alloc: &Allocation, job: &Job) -> bool {
    if !is_current(alloc, job) || alloc.server_terminal() {
        return true;
    }
    let forced = alloc.desired_transition.force_reschedule == Some(true);
    match alloc.client_status {
        // The node stopped the allocation because the lease expired, which is not the allocation's failure.
        ClientStatus::Failed => {
            job.kind == JobType::System || forced || alloc.client_description == LEASE_EXPIRED
        }
        ClientStatus::Complete => !job.kind.is_batch(),
        _ => true,
    }
}

/// Returns the newest allocation of a name that had to stop and has no successor yet.
pub(crate) fn to_succeed<'a>(gone: impl Iterator<Item = &'a Arc<Allocation>>) -> Option<&'a Arc<Allocation>> {
    gone.filter(|a| a.next_allocation.is_empty())
        .filter(|a| {
            a.client_status == ClientStatus::Failed
                || matches!(a.desired_description.as_str(), UPDATING | MIGRATING | LOST | TAINTED)
        })
        .max_by_key(|a| a.create_index)
}

/// Returns the way in which a running allocation moves to the newest version on its node.
pub(crate) fn update_of(
    matcher: &mut Matcher,
    job: &Job,
    group: &TaskGroup,
    alloc: &Allocation,
    node: Option<&Node>,
) -> Update {
    let update = diff::update(alloc.job.as_deref(), job, group);
    if update != Update::InPlace {
        return update;
    }
    let stays = node.is_some_and(|node| {
        feasible::in_pool(job, node)
            && feasible::in_datacenters(job, node)
            && feasible::check(matcher, job, group, node).is_ok()
    });
    if stays { Update::InPlace } else { Update::Destructive }
}

/// Returns the changes that a service or batch job needs. `id` is for a new deployment.
pub(crate) fn changes<V: View>(
    view: &V,
    job: &Job,
    matcher: &mut Matcher,
    eval: &Evaluation,
    id: DeploymentId,
    clock: Clock<'_>,
) -> Changes {
    let mut changes = Changes { rollout: Rollout::new(view, job, eval, id), ..Changes::default() };
    changes.ended = std::mem::take(&mut changes.rollout.ended);
    let key = job.key();
    let mut by_group: BTreeMap<String, Vec<Arc<Allocation>>> = BTreeMap::new();
    for alloc in live(view, &key, clock, &mut changes) {
        by_group.entry(alloc.task_group.to_string()).or_default().push(alloc);
    }
    for (name, allocs) in &by_group {
        if job.group(name).is_none() {
            for alloc in allocs {
                changes.group_mut(name).stop += 1;
                changes.stop(alloc, NOT_NEEDED);
            }
        }
    }
    let mut over: BTreeMap<String, Vec<Arc<Allocation>>> = BTreeMap::new();
    let lost: BTreeSet<_> = changes.stops.iter().filter(|s| s.lost).map(|s| s.alloc.id.clone()).collect();
    for alloc in view.allocs_by_job(&key) {
        if alloc.terminal() || lost.contains(&alloc.id) {
            over.entry(alloc.task_group.to_string()).or_default().push(Arc::clone(alloc));
        }
    }
    let mut pass = group::Pass { view, job, matcher, eval: &eval.id, clock, changes: &mut changes };
    for (at, group) in job.task_groups.iter().enumerate() {
        let live = by_group.remove(&group.name).unwrap_or_default();
        pass.group(at, group, live, over.remove(&group.name).unwrap_or_default());
    }
    // Updates come first, because they free the room that they need.
    changes.places.sort_by_key(|place| place.previous.running().is_none());
    changes
}
