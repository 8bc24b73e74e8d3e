//! The requests about the counts of groups, and about the tags of versions.

use super::approve;
use super::fault::{JobFault, ScaleFault};
use super::jobs::{JobRegistered, Jobs};
use crate::acl::Caller;
use crate::error::ServerError;
use crate::node_evals::evaluation;
use caravan_state::Root;
use caravan_types::JobKey;
use caravan_types::command::Change;
use caravan_types::deployment::DeploymentStatus;
use caravan_types::eval::Trigger;
use caravan_types::job::Job;
use caravan_types::scaling::{self, Scale, ScalingEvent, VersionTag};
use serde_json::Value;

/// A scaling request (docs/reference/http-api.md, section 3.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScaleRequest {
    /// The name of the group; empty if the request has none.
    pub group: String,
    /// The new count; `None`: only the event is recorded.
    pub count: Option<i64>,
    /// Message of the event.
    pub message: String,
    /// Whether the event reports an error.
    pub error: bool,
    /// Metadata of the event.
    pub meta: Value,
    /// The required `JobModifyIndex` of the job; 0 requires nothing.
    pub job_modify_index: u64,
}

/// Checks the request without its job.
fn check(request: &ScaleRequest) -> Result<(), ScaleFault> {
    if request.group.is_empty() {
        return Err(ScaleFault::NoGroupName);
    }
    match request.count {
        Some(_) if request.error => Err(ScaleFault::CountOfError),
        Some(count) if count < 0 => Err(ScaleFault::Negative),
        Some(count) if u32::try_from(count).is_err() => Err(ScaleFault::Large(count)),
        _ => Ok(()),
    }
}

/// Checks the request against the job.
fn check_job(root: &Root, job: &Job, request: &ScaleRequest) -> Result<(), ScaleFault> {
    if job.group(&request.group).is_none() {
        return Err(ScaleFault::NoGroup(request.group.clone()));
    }
    let Some(count) = request.count else { return Ok(()) };
    if job.kind.is_system() && count > 1 {
        return Err(ScaleFault::System(job.kind));
    }
    if let Some((min, max)) = scaling::bounds(job, &request.group) {
        if count < min {
            return Err(ScaleFault::BelowMin { count, min });
        }
        if count > max {
            return Err(ScaleFault::AboveMax { count, max });
        }
    }
    let newest = root.deployments_by_job(&job.key()).max_by_key(|row| row.create_index);
    if newest.is_some_and(|row| row.status == DeploymentStatus::Running) {
        return Err(ScaleFault::ActiveDeployment);
    }
    Ok(())
}

impl Jobs {
    /// Changes the count of a group, or records a scaling event about it.
    ///
    /// # Errors
    /// If the job or group does not exist, or the count is out of bounds.
    pub async fn scale(
        &self,
        caller: &Caller,
        key: JobKey,
        request: ScaleRequest,
    ) -> Result<JobRegistered, ServerError> {
        check(&request).map_err(JobFault::from)?;
        let (root, now) = (self.core.snapshot(), self.core.now());
        let job = root.job(&key).ok_or_else(|| JobFault::NothingToScale(key.id.clone()))?;
        let count = request.count.and_then(|count| u32::try_from(count).ok());
        if let (Some(group), Some(count)) = (job.group(&request.group), count) {
            approve::scale(caller, group, count)?;
        }
        check_job(&root, job, &request).map_err(JobFault::from)?;
        // Periodic and parameterized jobs are parent jobs: they have nothing to place.
        let eval = (request.count.is_some() && !job.is_template())
            .then(|| evaluation(job, Trigger::JobScaling, now));
        let eval = eval.map(|eval| caravan_types::eval::Evaluation { job_modify_index: 0, ..eval });
        let eval_id = eval.as_ref().map(|eval| eval.id.clone());
        let scale = Scale {
            key: key.clone(),
            group: request.group,
            count,
            expect_modify_index: Some(request.job_modify_index).filter(|index| *index > 0),
            event: ScalingEvent {
                time: now,
                message: request.message,
                error: request.error,
                meta: scaling::floats(&request.meta),
                ..ScalingEvent::default()
            },
        };
        let outcome = self.core.commit_known(Change::JobScale { scale: Box::new(scale), eval }).await?;
        let index = outcome.index;
        Ok(JobRegistered {
            eval_create_index: if eval_id.is_some() { index } else { 0 },
            eval_id: eval_id.unwrap_or_default(),
            job_modify_index: outcome.job_modify_index.unwrap_or(index),
            warnings: crate::admission::Problems::default(),
            index,
        })
    }

    /// Tags a version of a job, or the newest version. Returns the tag and the index.
    ///
    /// # Errors
    /// If the version does not exist, or another version has the tag.
    pub async fn tag(
        &self,
        key: JobKey,
        name: &str,
        version: Option<u64>,
        description: &str,
    ) -> Result<(VersionTag, u64), ServerError> {
        if name.is_empty() {
            return Err(JobFault::NoTagName.into());
        }
        let tag = VersionTag {
            name: name.to_owned(),
            description: description.to_owned(),
            tagged_time: self.core.now(),
        };
        let change = Change::JobTag { key, version, name: name.to_owned(), tag: Some(tag.clone()) };
        Ok((tag, self.core.commit(change).await?))
    }

    /// Removes a tag from its version. Returns the index.
    ///
    /// # Errors
    /// If no version has the tag.
    pub async fn untag(&self, key: JobKey, name: &str) -> Result<u64, ServerError> {
        self.core.commit(Change::JobTag { key, version: None, name: name.to_owned(), tag: None }).await
    }

    /// Creates an evaluation for a job that reschedules its failed allocations immediately.
    ///
    /// # Errors
    /// If the job does not exist.
    pub async fn force_reschedule(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        use caravan_types::alloc::{ClientStatus, DesiredTransition};
        let (root, now) = (self.core.snapshot(), self.core.now());
        let job = root.job(&key).ok_or(JobFault::NotFound)?;
        let eval = evaluation(job, Trigger::JobRegister, now);
        let eval_id = eval.id.clone();
        let job_modify_index = job.modify_index;
        let reschedules = |name: &str| {
            let policy = job.group(name).and_then(|group| group.reschedule_policy.as_ref());
            policy.is_some_and(|policy| policy.unlimited || policy.attempts > 0)
        };
        let transition = DesiredTransition { force_reschedule: Some(true), ..Default::default() };
        let transitions = root
            .allocs_by_job(&key)
            .filter(|alloc| alloc.client_status == ClientStatus::Failed && alloc.next_allocation.is_empty())
            .filter(|alloc| !alloc.server_terminal() && reschedules(&alloc.task_group))
            .map(|alloc| (alloc.id.clone(), transition.clone()))
            .collect();
        let index = self.core.commit(Change::AllocTransitions { transitions, evals: vec![eval] }).await?;
        Ok(JobRegistered {
            eval_id,
            eval_create_index: index,
            job_modify_index,
            warnings: crate::admission::Problems::default(),
            index,
        })
    }

    /// Lets a job's allocations skip their shutdown delays when they are stopped.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn skip_shutdown_delay(&self, key: &JobKey) -> Result<(), ServerError> {
        use caravan_types::alloc::DesiredTransition;
        let root = self.core.snapshot();
        let transition = DesiredTransition { no_shutdown_delay: Some(true), ..Default::default() };
        let transitions: std::collections::BTreeMap<_, _> = root
            .allocs_by_job(key)
            .filter(|alloc| !alloc.terminal())
            .map(|alloc| (alloc.id.clone(), transition.clone()))
            .collect();
        if transitions.is_empty() {
            return Ok(());
        }
        self.core.commit(Change::AllocTransitions { transitions, evals: Vec::new() }).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::{JobType, TaskGroup};
    use caravan_types::scaling::ScalingPolicy;

    fn job() -> Job {
        let scaling = ScalingPolicy { min: Some(1), max: Some(5), ..ScalingPolicy::default() };
        let group = TaskGroup { name: "web".into(), scaling: Some(scaling.into()), ..TaskGroup::default() };
        Job { id: "web".into(), task_groups: vec![group], ..Job::default() }
    }

    fn refusal(request: &ScaleRequest, job: &Job) -> String {
        let verdict = check(request).and_then(|()| check_job(&Root::default(), job, request));
        verdict.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn counts_stay_within_their_bounds() {
        let to = |count: i64| ScaleRequest { group: "web".into(), count: Some(count), ..Default::default() };
        assert_eq!(refusal(&to(5), &job()), "");
        assert_eq!(refusal(&to(9), &job()), "group count was greater than scaling policy maximum: 9 > 5");
        assert_eq!(refusal(&to(0), &job()), "group count was less than scaling policy minimum: 0 < 1");
        assert_eq!(refusal(&to(-1), &job()), "scaling action count can't be negative");
        let error = ScaleRequest { error: true, ..to(2) };
        assert_eq!(refusal(&error, &job()), "scaling action should not contain count if error is true");
        let other = ScaleRequest { group: "nope".into(), ..to(1) };
        assert_eq!(
            refusal(&other, &job()),
            "task group \"nope\" specified for scaling does not exist in job"
        );
        let nobody = ScaleRequest { group: String::new(), ..to(1) };
        assert_eq!(refusal(&nobody, &job()), "missing task group name for scaling action");
        let system = Job { kind: JobType::System, ..job() };
        assert_eq!(refusal(&to(2), &system), "jobs of type \"system\" can only be scaled between 0 and 1");
        let event = ScaleRequest { count: None, error: true, ..to(1) };
        assert_eq!(refusal(&event, &job()), "");
    }
}
