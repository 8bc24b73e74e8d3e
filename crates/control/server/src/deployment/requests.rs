//! The users' requests about deployments.

use super::fault::DeploymentFault;
use super::{decide, eval};
use crate::core::Core;
use crate::error::ServerError;
use caravan_types::command::{Change, DeploymentChange};
use caravan_types::deployment::{DeploymentStatus, Verdict, description};
use caravan_types::job::Job;
use caravan_types::{AllocId, DeploymentId, EvalId};
use std::collections::BTreeMap;

/// A change that a user requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentRequest {
    /// Failure of the deployment, with a revert of the job if a group has `auto_revert`.
    Fail,
    /// Pause (`true`) or resumption (`false`) of the deployment.
    Pause(bool),
    /// Promotion of the canaries of these groups, or of all groups.
    Promote(Option<Vec<String>>),
    /// Unblocking of a deployment that waits for another region. This request has no effect.
    Unblock,
    /// New health of allocations.
    Health {
        /// Healthy allocations.
        healthy: Vec<AllocId>,
        /// Unhealthy allocations; with any, the deployment fails.
        unhealthy: Vec<AllocId>,
    },
}

impl DeploymentRequest {
    /// Returns the verb for the refusal of a change of an ended deployment, in Nomad's words.
    fn verb(&self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Pause(true) => "pause",
            Self::Pause(false) => "resume",
            Self::Promote(_) => "promote",
            Self::Unblock => "unblock",
            Self::Health { .. } => "set health of allocations for a",
        }
    }
}

/// The result of a request about a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentUpdated {
    /// Id of the evaluation that the request creates; empty without an evaluation.
    pub eval_id: EvalId,
    /// Index of the evaluation.
    pub eval_create_index: u64,
    /// Index of the deployment.
    pub deployment_modify_index: u64,
    /// The version to which the job reverts.
    pub reverted_job_version: Option<u64>,
    /// Index of the change.
    pub index: u64,
}

/// The requests about deployments.
#[derive(Clone, Debug)]
pub struct Deployments(pub(crate) Core);

impl Deployments {
    /// Changes a deployment.
    ///
    /// # Errors
    /// If the deployment does not exist or has ended, or if too few of its canaries are healthy.
    pub async fn change(
        self,
        id: &DeploymentId,
        request: DeploymentRequest,
    ) -> Result<DeploymentUpdated, ServerError> {
        let (root, now) = (self.0.snapshot(), self.0.now());
        let row = root.deployment(id).ok_or(DeploymentFault::NotFound)?;
        if row.status.is_terminal() {
            return Err(DeploymentFault::Terminal { verb: request.verb() }.into());
        }
        let verdict = |status, description: &str| {
            Some(Verdict { id: id.clone(), status, description: description.to_owned() })
        };
        let mut change = DeploymentChange { id: id.clone(), ..DeploymentChange::default() };
        let mut fails: Option<(&str, bool)> = None;
        let mut evaluates = true;
        match request {
            DeploymentRequest::Unblock => return Ok(DeploymentUpdated::default()),
            DeploymentRequest::Pause(true) => {
                change.verdict = verdict(DeploymentStatus::Paused, description::PAUSED);
                evaluates = false;
            }
            DeploymentRequest::Pause(false) => {
                change.verdict = verdict(DeploymentStatus::Running, description::RUNNING);
            }
            DeploymentRequest::Promote(None) => change.promote = Some(Vec::new()),
            // No group is named: the only effect is an evaluation of the job.
            DeploymentRequest::Promote(Some(groups)) if groups.is_empty() => {}
            DeploymentRequest::Promote(groups) => change.promote = groups,
            DeploymentRequest::Fail => {
                let reverts = row.task_groups.values().any(|group| group.auto_revert);
                fails = Some((description::BY_USER, reverts));
            }
            DeploymentRequest::Health { healthy, unhealthy } => {
                if healthy.is_empty() && unhealthy.is_empty() {
                    return Err(DeploymentFault::NoAlloc.into());
                }
                let reverts = unhealthy
                    .iter()
                    .filter_map(|id| root.alloc(id))
                    .filter_map(|alloc| row.task_groups.get(alloc.task_group.as_str()))
                    .any(|group| group.auto_revert);
                if !unhealthy.is_empty() {
                    fails = Some((description::UNHEALTHY, reverts));
                }
                change.health = healthy
                    .into_iter()
                    .map(|id| (id, true))
                    .chain(unhealthy.into_iter().map(|id| (id, false)))
                    .collect::<BTreeMap<_, _>>();
            }
        }
        let mut reverted = None;
        if let Some((why, reverts)) = fails {
            let step = decide::failed(&root, row, why, reverts);
            reverted = step.revert.as_ref().map(|job| job.version);
            change.verdict = step.end.and_then(|(status, text)| verdict(status, &text));
            change.revert =
                step.revert.map(|job| Box::new(Job { submit_time: now, stop: false, ..(*job).clone() }));
        }
        let eval = if evaluates { eval(&root, row, now) } else { None };
        let eval_id = eval.as_ref().map(|eval| eval.id.clone()).unwrap_or_default();
        change.evals = eval.into_iter().collect();
        let index = self.0.commit(Change::Deployment(Box::new(change))).await?;
        Ok(DeploymentUpdated {
            eval_create_index: if eval_id.is_empty() { 0 } else { index },
            eval_id,
            deployment_modify_index: index,
            reverted_job_version: reverted,
            index,
        })
    }
}
