//! Deployments: their creation by a plan, the counts derived from their allocations, promotion, and their end
//! (docs/reference/http-api.md, sections 5.5 and 6.3).

use super::Done;
use crate::tx::{By, Tx};
use caravan_types::alloc::{AllocDeploymentStatus, Allocation, DesiredTransition};
use caravan_types::command::{DeploymentChange, Refusal};
use caravan_types::deployment::{Deployment, DeploymentState, DeploymentStatus, Verdict, description};
use caravan_types::job::Job;
use caravan_types::{AllocId, DeploymentId, JobKey, Nanos, UnixNanos};
use std::collections::BTreeMap;

/// Extends the progress deadline of a group, if it has one. The deadline never becomes shorter.
fn prolong(group: &mut DeploymentState, from: UnixNanos) {
    if group.progress_deadline > Nanos::ZERO {
        let by = from.plus(group.progress_deadline).to_time();
        group.require_progress_by = group.require_progress_by.max(by);
    }
}

impl Tx {
    /// Writes a deployment of a plan. The derived counts of an existing deployment are kept.
    pub(super) fn deployment_begins(&mut self, desired: &Deployment) {
        let row = match self.root.deployment(&desired.id).cloned() {
            None => desired.clone(),
            Some(old) if old.status.is_terminal() => return,
            Some(old) => {
                let mut row = (*old).clone();
                for (name, group) in &desired.task_groups {
                    let known = row.task_groups.entry(name.clone()).or_insert_with(|| group.clone());
                    known.desired_total = group.desired_total;
                    known.desired_canaries = group.desired_canaries;
                }
                row.status_description.clone_from(&desired.status_description);
                row
            }
        };
        self.put_deployment(row);
    }

    /// Ends a deployment that has not ended. Success marks the version of its job as stable.
    pub(super) fn deployment_verdict(&mut self, verdict: &Verdict) {
        let Some(old) = self.root.deployment(&verdict.id).filter(|d| !d.status.is_terminal()).cloned() else {
            return;
        };
        let mut row = (*old).clone();
        row.status = verdict.status;
        row.status_description.clone_from(&verdict.description);
        if verdict.status == DeploymentStatus::Running {
            for group in row.task_groups.values_mut().filter(|g| !g.require_progress_by.is_zero()) {
                // The paused time does not count.
                prolong(group, self.now);
            }
        }
        let key = row.job_key();
        self.put_deployment(row);
        if verdict.status == DeploymentStatus::Successful {
            // The version may have been removed. In this case, no row changes.
            let _ = self.job_stable(&key, old.job_version, true);
        }
    }

    /// Adds an allocation to the counts of its deployment.
    pub(crate) fn tally_deployment(&mut self, old: Option<&Allocation>, new: &Allocation) {
        if new.deployment_id.is_empty() {
            return;
        }
        let known = old.filter(|old| old.deployment_id == new.deployment_id);
        let (before, after) = (known.and_then(Allocation::health), new.health());
        if known.is_some() && before == after {
            return;
        }
        let Some(mut row) = self.root.deployment(&new.deployment_id).map(|row| Deployment::clone(row)) else {
            return;
        };
        let Some(group) = row.task_groups.get_mut(new.task_group.as_str()) else { return };
        if known.is_none() {
            group.placed_allocs += 1;
            if new.is_canary() && !group.placed_canaries.contains(&new.id) {
                group.placed_canaries.push(new.id.clone());
            }
            if group.require_progress_by.is_zero() {
                prolong(group, self.now);
            }
        }
        let mut count = |health: Option<bool>, up: bool| {
            let slot = match health {
                None => return,
                Some(true) => &mut group.healthy_allocs,
                Some(false) => &mut group.unhealthy_allocs,
            };
            *slot = if up { slot.saturating_add(1) } else { slot.saturating_sub(1) };
        };
        count(before, false);
        count(after, true);
        if after == Some(true)
            && let Some(status) = &new.deployment_status
        {
            prolong(group, UnixNanos(status.timestamp.0));
        }
        self.put_deployment(row);
    }

    pub(super) fn deployment(&mut self, change: &DeploymentChange) -> Done {
        let row = self.root.deployment(&change.id).cloned();
        let row = row.ok_or_else(|| Refusal::NotFound { what: "deployment".into() })?;
        if row.status.is_terminal() {
            return Err(Refusal::Invalid(format!("deployment {} is over", change.id)));
        }
        self.say_health(&row, &change.health)?;
        if let Some(groups) = &change.promote {
            self.promote(&change.id, groups)?;
        }
        let asked = DesiredTransition { reschedule: Some(true), ..DesiredTransition::default() };
        let allowed = change.reschedule.iter().map(|id| (id.clone(), asked.clone())).collect();
        self.alloc_transitions(&allowed);
        if let Some(verdict) = &change.verdict {
            self.deployment_verdict(verdict);
        }
        if let Some(job) = &change.revert {
            let source = self.root.job_versions(&job.key()).find(|old| old.same_spec(job));
            let source = source.and_then(|old| self.root.submission(&job.key(), old.version)).cloned();
            self.job_register(job, None, None, source.as_deref())?;
        }
        self.evals(&change.evals);
        Ok(())
    }

    /// Sets the health of allocations at a user's request.
    fn say_health(&mut self, row: &Deployment, reported: &BTreeMap<AllocId, bool>) -> Done {
        for (id, healthy) in reported {
            let alloc = self.root.alloc(id).filter(|alloc| row.holds(alloc)).cloned();
            let Some(alloc) = alloc else {
                return Err(Refusal::Invalid(format!(
                    "allocation \"{id}\" not part of deployment \"{}\"",
                    row.id
                )));
            };
            let mut alloc = (*alloc).clone();
            alloc.deployment_status = Some(AllocDeploymentStatus {
                healthy: Some(*healthy),
                timestamp: self.now.to_time(),
                modify_index: self.index,
                canary: alloc.is_canary(),
            });
            self.put_alloc(alloc, By::Servers);
        }
        Ok(())
    }

    /// Promotes canaries, which are ordinary allocations from now on. Groups without canaries and unknown groups are
    /// skipped.
    fn promote(&mut self, id: &DeploymentId, groups: &[String]) -> Done {
        let Some(row) = self.root.deployment(id).cloned() else { return Ok(()) };
        let mut row = (*row).clone();
        let asked = |name: &String| groups.is_empty() || groups.contains(name);
        let mut problems = Vec::new();
        let mut canaries = Vec::new();
        for (name, group) in row.task_groups.iter_mut().filter(|(name, _)| asked(name)) {
            if !group.is_canarying() {
                continue;
            }
            let healthy = |id: &&AllocId| {
                self.root.alloc(id).is_some_and(|a| a.health() == Some(true) && !a.terminal())
            };
            let ready = group.placed_canaries.iter().filter(healthy).count();
            if ready < usize::try_from(group.desired_canaries).unwrap_or(usize::MAX) {
                problems.push(format!(
                    "Task group {name:?} has {ready}/{} healthy allocations",
                    group.desired_canaries
                ));
            }
            group.promoted = true;
            if !group.require_progress_by.is_zero() {
                prolong(group, self.now);
            }
            canaries.extend(group.placed_canaries.iter().cloned());
        }
        if !problems.is_empty() {
            let plural = if problems.len() == 1 { "error" } else { "errors" };
            let list: String = problems.iter().map(|text| format!("\t* {text}\n")).collect();
            return Err(Refusal::Invalid(format!("{} {plural} occurred:\n{list}\n", problems.len())));
        }
        if !row.needs_promotion() {
            description::RUNNING.clone_into(&mut row.status_description);
        }
        self.put_deployment(row);
        for id in canaries {
            let Some(alloc) = self.root.alloc(&id).cloned() else { continue };
            let mut alloc = (*alloc).clone();
            if let Some(status) = &mut alloc.deployment_status {
                status.canary = false;
            }
            self.put_alloc(alloc, By::Servers);
        }
        Ok(())
    }

    pub(super) fn job_stable(&mut self, key: &JobKey, version: u64, stable: bool) -> Done {
        let Some(old) = self.root.job_version(key, version).cloned() else {
            return Err(Refusal::NotFound {
                what: format!("job {:?} at version {version}", key.id.as_str()),
            });
        };
        if old.stable == stable {
            return Ok(());
        }
        if self.root.job(key).is_some_and(|newest| newest.version == version) {
            self.put_job(Job { stable, ..(*old).clone() });
        } else {
            self.put_version(Job { stable, modify_index: self.index, ..(*old).clone() });
        }
        Ok(())
    }

    /// Removes deployments that have ended.
    pub(super) fn deployments_collect(&mut self, ids: &[DeploymentId]) {
        for id in ids {
            if self.root.deployment(id).is_some_and(|row| row.status.is_terminal()) {
                self.remove_deployment(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Time;

    #[test]
    fn progress_prolongs_and_never_shortens() {
        let mut group = DeploymentState { progress_deadline: Nanos(10), ..DeploymentState::default() };
        prolong(&mut group, UnixNanos(100));
        assert_eq!(group.require_progress_by, Time(110));
        prolong(&mut group, UnixNanos(50));
        assert_eq!(group.require_progress_by, Time(110));
        let mut without = DeploymentState::default();
        prolong(&mut without, UnixNanos(100));
        assert!(without.require_progress_by.is_zero());
    }
}
