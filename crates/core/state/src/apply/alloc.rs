//! Commands about existing allocations (docs/reference/http-api.md, section 6.1).

use crate::tx::{By, Tx};
use caravan_types::alloc::{
    AllocDeploymentStatus, AllocStateChange, AllocUpdate, Allocation, ClientStatus, DesiredTransition,
};
use caravan_types::node::Node;
use caravan_types::{AllocId, UnixNanos};
use std::collections::BTreeMap;

/// Returns the status after a report. An end is final: a delayed report must not revive an allocation whose claims
/// are already being released. An allocation declared lost has ended as well, but its client may still report its
/// result.
fn status_after(old: ClientStatus, reported: ClientStatus) -> ClientStatus {
    match (old, reported) {
        (ClientStatus::Lost, end) if end.is_terminal() => end,
        (old, _) if old.is_terminal() => old,
        (_, reported) => reported,
    }
}

/// Returns the client's report of its health, with the index of the last change.
fn health(
    old: Option<&AllocDeploymentStatus>,
    reported: Option<&AllocDeploymentStatus>,
    index: u64,
) -> Option<AllocDeploymentStatus> {
    let Some(reported) = reported else { return old.cloned() };
    if old.is_some_and(|old| old.healthy == reported.healthy) {
        return old.cloned();
    }
    Some(AllocDeploymentStatus {
        modify_index: index,
        // The servers decide which allocations are canaries.
        canary: old.map_or(reported.canary, |old| old.canary),
        ..reported.clone()
    })
}

fn merged(old: &Allocation, update: &AllocUpdate, index: u64, now: UnixNanos) -> Allocation {
    let status = status_after(old.client_status, update.client_status);
    let description = if status == update.client_status {
        update.client_description.clone()
    } else {
        old.client_description.clone()
    };
    let network = update.network_status.clone().or_else(|| old.network_status.clone());
    let mut history = old.alloc_states.clone();
    if old.client_status == ClientStatus::Unknown && status != ClientStatus::Unknown {
        let value = status.as_str().to_owned();
        history.push(AllocStateChange { field: 0, value, time: now.to_time() });
    }
    // Health from another deployment does not apply to this one.
    let seen = update.deployment_status.as_ref().filter(|_| update.deployment_id == old.deployment_id);
    let states = if update.task_states.is_empty() { &old.task_states } else { &update.task_states };
    Allocation {
        client_status: status,
        client_description: description,
        alloc_states: history,
        task_states: states.clone(),
        deployment_status: health(old.deployment_status.as_ref(), seen, index),
        network_status: network,
        ..old.clone()
    }
}

/// Returns whether a report changed any field that reports can change.
fn says_more(old: &Allocation, new: &Allocation) -> bool {
    old.client_status != new.client_status
        || old.client_description != new.client_description
        || old.alloc_states != new.alloc_states
        || old.task_states != new.task_states
        || old.deployment_status != new.deployment_status
        || old.network_status != new.network_status
}

fn set(slot: &mut Option<bool>, asked: Option<bool>) {
    if asked.is_some() {
        *slot = asked;
    }
}

impl Tx {
    pub(super) fn alloc_updates(&mut self, updates: &[AllocUpdate]) {
        for update in updates {
            let Some(old) = self.root.alloc(&update.alloc_id).cloned() else { continue };
            let alloc = merged(&old, update, self.index, self.now);
            let node = alloc.node_id.clone();
            if says_more(&old, &alloc) {
                self.put_alloc(alloc, By::Client);
            }
            // The first report after missed heartbeats: from now on the node's allocations are up to date.
            let stale = |n: &Node| n.last_missed_heartbeat_index > n.last_alloc_update_index;
            if let Some(node) = self.root.node(&node).filter(|n| stale(n)).cloned() {
                self.put_node(Node { last_alloc_update_index: self.index, ..(*node).clone() });
            }
        }
    }

    pub(super) fn alloc_transitions(&mut self, transitions: &BTreeMap<AllocId, DesiredTransition>) {
        for (id, asked) in transitions {
            let Some(old) = self.root.alloc(id).cloned() else { continue };
            let mut alloc = (*old).clone();
            let desired = &mut alloc.desired_transition;
            set(&mut desired.migrate, asked.migrate);
            set(&mut desired.reschedule, asked.reschedule);
            set(&mut desired.force_reschedule, asked.force_reschedule);
            set(&mut desired.no_shutdown_delay, asked.no_shutdown_delay);
            set(&mut desired.migrate_disable_placement, asked.migrate_disable_placement);
            self.put_alloc(alloc, By::Servers);
        }
    }
}
