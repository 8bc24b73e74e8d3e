//! The client's side of the fence: tasks that use a single-writer volume end with the node's lease term, and never
//! continue under another term. The shims kill the processes; this module stops the allocation, which unmounts its
//! volumes.

use super::alloc_state::{AllocState, Kill};
use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::clock;
use crate::csi::VolumeManager;
use crate::lease::NodeLease;
use async_trait::async_trait;
use caravan_types::alloc::{Allocation, TaskEvent, event};
use caravan_types::job::{Task, VolumeRequest};
use std::time::Duration;

/// The reason that a task was stopped or is not started, for users.
pub(super) const LEASE_EXPIRED: &str = "the node was out of contact with the servers for longer than its lease: \
     what writes to a volume that only one node may write ended before another node can get the volume";

/// Returns whether a volume request needs the fence.
fn is_fenced(request: &VolumeRequest) -> bool {
    let mode = if request.read_only {
        caravan_types::volume::ClaimMode::Read
    } else {
        caravan_types::volume::ClaimMode::Write
    };
    caravan_volumes::lease::needs_fence(request.access_mode, mode)
}

/// The lease requirement of a task's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Footing {
    /// The task needs no lease.
    Free,
    /// The task runs as long as this term holds.
    Under(u64),
    /// The term under which the task's volumes were mounted has ended.
    Lost,
}

/// Returns whether the group of an allocation uses a single-writer volume.
pub(super) fn is_fenced_alloc(alloc: &Allocation) -> bool {
    alloc.group().is_some_and(|g| g.csi_volumes().any(|(_, request)| is_fenced(request)))
}

/// Returns whether a task mounts a single-writer volume.
fn uses_fenced(alloc: &Allocation, task: &Task) -> bool {
    let fenced = |alias: &str| {
        let mut volumes = alloc.group().into_iter().flat_map(|g| g.csi_volumes());
        volumes.any(|(name, request)| name.as_str() == alias && is_fenced(request))
    };
    task.volume_mounts.iter().any(|mount| fenced(&mount.volume))
}

/// The fence of the node's allocations.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    pub(crate) lease: NodeLease,
    pub(crate) volumes: VolumeManager,
}

impl Fence {
    /// Returns the lease requirement of a task that would start now.
    pub(super) fn footing(&self, alloc: &Allocation, task: &Task) -> Footing {
        if !uses_fenced(alloc, task) {
            return Footing::Free;
        }
        let terms = self.volumes.lease_terms(&alloc.id);
        match self.lease.term() {
            // Unmounted volumes are refused by the mount check, not here.
            Some(now) if terms.iter().all(|term| *term == now) => Footing::Under(now),
            _ => Footing::Lost,
        }
    }

    /// Stops the allocation when the lease term of its mounts ends, or after `disconnect.stop_on_client_after` without
    /// contact.
    pub(super) async fn mind_contact(&self, state: &AllocState) {
        let patience = state
            .alloc()
            .group()
            .and_then(|g| g.disconnect.as_ref())
            .and_then(|d| d.stop_on_client_after)
            .map(|span| span.to_std());
        tokio::join!(self.mind_lease(state), self.mind_silence(state, patience));
    }

    async fn mind_lease(&self, state: &AllocState) {
        if !is_fenced_alloc(&state.alloc()) {
            return;
        }
        let id = state.alloc().id.clone();
        let mut ledger = self.volumes.changes();
        let term = loop {
            ledger.borrow_and_update();
            if let Some(term) = self.volumes.lease_terms(&id).into_iter().min() {
                break term;
            }
            if ledger.changed().await.is_err() {
                return;
            }
        };
        self.lease.over(term).await;
        tracing::warn!(alloc = %id, "the node's lease ran out: the allocation is ended");
        state.end(&Kill { no_delay: true, fenced: true, ..Kill::default() });
    }

    async fn mind_silence(&self, state: &AllocState, patience: Option<Duration>) {
        let Some(patience) = patience else { return };
        self.lease.silent_for(patience).await;
        if !state.status().is_terminal() {
            let words = format!(
                "no contact with the servers for {}: stopped as the job's disconnect block asks",
                caravan_types::Nanos::from_std(patience)
            );
            for task in state.task_names() {
                state.emit(
                    &task,
                    TaskEvent::new(event::DRIVER, clock::now()).detail("driver_message", words.clone()),
                );
            }
            state.stop(true);
        }
    }
}

/// The hook that checks the lease of a task's single-writer volumes.
#[derive(Debug)]
pub(super) struct LeaseHook {
    pub(super) fence: Fence,
}

#[async_trait]
impl TaskHook for LeaseHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        match self.fence.footing(&cx.alloc.alloc(), plan.task()) {
            Footing::Free => {}
            Footing::Under(term) => prepared.lease = Some(self.fence.lease.for_shim(term)),
            Footing::Lost => return Err(StartFault::Lease),
        }
        Ok(())
    }
}
