//! The accepted part of a plan: allocations, stops and claims in one step.

use super::Done;
use crate::claim;
use crate::share::Sharing;
use crate::tx::{By, Tx};
use caravan_types::alloc::{AllocStateChange, Allocation, ClientStatus, DesiredStatus};
use caravan_types::command::{PlanCommit, Refusal};
use caravan_types::job::Job;
use caravan_types::plan::StopAlloc;
use caravan_types::volume::{Claim, Volume};
use std::sync::Arc;

impl Tx {
    pub(super) fn plan(&mut self, commit: &PlanCommit) -> Done {
        let job = commit.job.as_ref().map(|job| self.shared_job(job));
        for verdict in &commit.deployment_updates {
            self.deployment_verdict(verdict);
        }
        if let Some(deployment) = &commit.deployment {
            self.deployment_begins(deployment);
        }
        for stop in &commit.stops {
            self.stop(stop);
        }
        let mut sharing = Sharing::default();
        for placement in &commit.placements {
            self.place(placement, job.as_ref(), &mut sharing)?;
        }
        for claim in &commit.claims {
            self.grant(claim)?;
        }
        for claim in &commit.host_claims {
            self.host_claim(claim)?;
        }
        self.evals(&commit.evals);
        Ok(())
    }

    /// Returns the stored row of the same version, if it is equal. All allocations of a version then share one job in
    /// memory.
    fn shared_job(&self, job: &Arc<Job>) -> Arc<Job> {
        let stored = self.root.job_version(&job.key(), job.version);
        let same =
            |s: &&Arc<Job>| s.create_index == job.create_index && s.job_modify_index == job.job_modify_index;
        stored.filter(same).unwrap_or(job).clone()
    }

    fn place(&mut self, placement: &Allocation, job: Option<&Arc<Job>>, sharing: &mut Sharing) -> Done {
        let id = &placement.id;
        let old = self.root.alloc(id).cloned();
        let mut alloc = placement.clone();
        if alloc.job.is_none() {
            alloc.job = job.cloned().or_else(|| old.as_ref().and_then(|old| old.job.clone()));
        }
        let Some(job) = &alloc.job else {
            return Err(Refusal::Invalid(format!("the plan does not say which job allocation {id} runs")));
        };
        if alloc.job_id.is_empty() {
            alloc.job_id = job.id.clone();
            alloc.namespace = job.namespace.clone();
        }
        match &old {
            None => {
                let what = || format!("node {}", alloc.node_id);
                let Some(node) = self.root.node(&alloc.node_id) else {
                    return Err(Refusal::NotFound { what: what() });
                };
                // The command that made the node ineligible did not consider the allocations of this plan.
                if !node.is_schedulable() {
                    return Err(Refusal::Changed { what: what() });
                }
                self.host_volumes_stay(&alloc)?;
            }
            // The client's report is kept, unless the servers have a newer status.
            Some(old) => {
                if !matches!(alloc.client_status, ClientStatus::Lost | ClientStatus::Unknown)
                    || old.client_terminal()
                {
                    alloc.client_status = old.client_status;
                    alloc.client_description = old.client_description.clone();
                }
                // An allocation never moves: another node requires another allocation.
                alloc.node_id = old.node_id.clone();
                alloc.task_states = old.task_states.clone();
                alloc.network_status = old.network_status.clone();
                if alloc.next_allocation.is_empty() {
                    alloc.next_allocation = old.next_allocation.clone();
                }
            }
        }
        sharing.share(&self.root, &mut alloc, old.as_deref());
        let (id, previous) = (alloc.id.clone(), alloc.previous_allocation.clone());
        self.put_alloc(alloc, By::Servers);
        if old.is_none()
            && let Some(previous) = self.root.alloc(&previous).cloned()
        {
            // The client has no task for the successor, so it is not notified.
            self.put_alloc(Allocation { next_allocation: id, ..(*previous).clone() }, By::Client);
        }
        Ok(())
    }

    fn stop(&mut self, stop: &StopAlloc) {
        let Some(old) = self.root.alloc(&stop.alloc_id).cloned() else { return };
        let mut alloc = (*old).clone();
        alloc.desired_status = DesiredStatus::Stop;
        if !stop.preempted_by.is_empty() {
            alloc.desired_status = DesiredStatus::Evict;
            alloc.preempted_by_allocation = stop.preempted_by.clone();
        }
        alloc.desired_description = stop.description.as_str().into();
        if !stop.followup_eval_id.is_empty() {
            alloc.followup_eval_id = stop.followup_eval_id.clone();
        }
        let decided = stop.client_status.filter(|s| *s != alloc.client_status && !alloc.client_terminal());
        if let Some(status) = decided {
            alloc.client_status = status;
            alloc.client_description = stop.description.as_str().into();
            alloc.alloc_states.push(AllocStateChange {
                field: 0,
                value: status.as_str().to_owned(),
                time: self.now.to_time(),
            });
        }
        self.put_alloc(alloc, By::Servers);
    }

    /// Grants a claim after another check that it fits. Of two plans from the same snapshot, only the first succeeds.
    fn grant(&mut self, desired: &Claim) -> Done {
        let id = &desired.id;
        let Some(alloc) = self.root.alloc(&id.alloc).cloned() else {
            let text =
                format!("the plan claims volume {} for allocation {} that is not there", id.volume, id.alloc);
            return Err(Refusal::Invalid(text));
        };
        if alloc.terminal() {
            let text = format!("allocation {} is over and cannot claim volume {}", id.alloc, id.volume);
            return Err(Refusal::ClaimRefused(text));
        }
        let old = self.root.claim(id).cloned();
        // An in-place update does not change the claim.
        if old.as_ref().is_some_and(|old| old.phase.is_live()) {
            return Ok(());
        }
        let Some(volume) = self.root.volume(&id.volume).cloned() else {
            return Err(Refusal::ClaimRefused(format!("volume not found: {}", id.volume.id)));
        };
        let desired = Claim {
            node_id: alloc.node_id.clone(),
            plugin_id: volume.plugin_id.clone(),
            external_volume_id: volume.remote_id().to_owned(),
            create_index: self.index,
            ..desired.clone()
        };
        let holding: Vec<Arc<Claim>> =
            self.root.claims_beside(&id.volume).filter(|c| c.phase.holds() && c.id != *id).cloned().collect();
        let holding: Vec<&Claim> = holding.iter().map(Arc::as_ref).collect();
        let twins: Vec<&Volume> = self.root.twins(&volume).map(Arc::as_ref).collect();
        let granted = claim::grant(&volume, &twins, &holding, old.as_deref(), desired, self.now)?;
        self.put_claim(granted);
        Ok(())
    }
}
