//! Children on demand: dispatches of parameterized jobs, and forced launches of periodic jobs.

use super::fault::{DispatchFault, JobFault};
use super::jobs::Jobs;
use crate::core::new_id;
use crate::error::ServerError;
use crate::node_evals::evaluation;
use crate::periodic;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use caravan_types::command::Change;
use caravan_types::eval::Trigger;
use caravan_types::job::{Job, JobStatus, Parameterized};
use caravan_types::{EvalId, JobId, JobKey};
use std::collections::BTreeMap;

/// Maximum size of a payload in bytes.
const MAX_PAYLOAD: usize = 16 * 1024;

/// A dispatch request.
#[derive(Clone, Debug, Default)]
pub struct Dispatch {
    /// The payload for the tasks.
    pub payload: Vec<u8>,
    /// Metadata that overrides the job's.
    pub meta: BTreeMap<String, String>,
    /// Prefix of the child's id; empty for none.
    pub id_prefix: String,
    /// Priority of the child; 0: the job's.
    pub priority: i64,
    /// Idempotency token: of all dispatches with the same token, only the first creates a child. Empty: none.
    pub idempotency_token: String,
}

/// The child that this dispatch or an earlier one created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Id of the child.
    pub job_id: JobId,
    /// Id of the child's evaluation; empty for a child that existed before.
    pub eval_id: EvalId,
    /// Index of the evaluation, or 0.
    pub eval_create_index: u64,
    /// Index of the child's creation.
    pub job_create_index: u64,
    /// Index of the change.
    pub index: u64,
}

impl Jobs {
    /// Creates a child of a parameterized job.
    ///
    /// # Errors
    /// If the job does not exist, cannot be dispatched, or does not accept the payload or metadata.
    pub async fn dispatch(&self, key: JobKey, dispatch: Dispatch) -> Result<Dispatched, ServerError> {
        let root = self.core.snapshot();
        let parent = root.job(&key).ok_or(JobFault::NothingToDispatch)?;
        let Some(rule) = parent.dispatch_rule() else {
            return Err(JobFault::NotParameterized(parent.id.clone()).into());
        };
        if parent.stop {
            return Err(JobFault::Stopped(parent.id.clone()).into());
        }
        check(rule, &dispatch).map_err(JobFault::from)?;
        if let Some(found) = root.dispatched_with(&key, &dispatch.idempotency_token) {
            return Ok(existing(found));
        }
        let now = self.core.now();
        let unique = new_id().get(..8).unwrap_or_default().to_owned();
        let id = parent.dispatch_child_id(&dispatch.id_prefix, now.as_secs(), &unique);
        let mut job = Job {
            name: id.to_string(),
            id: id.clone(),
            parent_id: parent.id.clone(),
            dispatched: true,
            dispatch_idempotency_token: dispatch.idempotency_token.clone(),
            payload: STANDARD.encode(&dispatch.payload),
            stop: false,
            status: JobStatus::Pending,
            status_description: String::new(),
            stable: false,
            version: 0,
            version_tag: None,
            submit_time: now,
            job_modify_index: 0,
            ..(**parent).clone()
        };
        job.meta.extend(dispatch.meta);
        if dispatch.priority != 0 {
            job.priority = dispatch.priority;
        }
        // A periodic child waits for its launch times.
        let eval = (!job.is_template()).then(|| evaluation(&job, Trigger::JobRegister, now));
        let eval_id = eval.as_ref().map(|eval| eval.id.clone()).unwrap_or_default();
        let change = Change::JobChild { job: Box::new(job), eval, launched: None };
        let outcome = self.core.propose(change).await?;
        if let Some(refusal) = outcome.refused {
            // Two concurrent dispatches have the same token, and the other dispatch was first.
            return match self.core.snapshot().dispatched_with(&key, &dispatch.idempotency_token) {
                Some(found) => Ok(existing(found)),
                None => Err(refusal.into()),
            };
        }
        let index = outcome.index;
        let eval_create_index = if eval_id.is_empty() { 0 } else { index };
        Ok(Dispatched { job_id: id, eval_id, eval_create_index, job_create_index: index, index })
    }

    /// Creates a child of a periodic job now.
    ///
    /// # Errors
    /// If the job does not exist, is not periodic, or is stopped or disabled.
    pub async fn force_periodic(&self, key: JobKey) -> Result<Dispatched, ServerError> {
        let root = self.core.snapshot();
        let Some(parent) = root.job(&key) else { return Err(JobFault::NothingToLaunch.into()) };
        if parent.periodic.is_none() {
            return Err(JobFault::NotPeriodic.into());
        }
        if !parent.is_periodic_active() {
            return Err(JobFault::NotTracked(key).into());
        }
        let now = self.core.now();
        let mut unix = now.as_secs();
        loop {
            let (job, eval) = periodic::child(parent, unix, now);
            let (job_id, eval_id) = (job.id.clone(), eval.id.clone());
            let change = Change::JobChild { job: Box::new(job), eval: Some(eval), launched: Some(now) };
            let outcome = self.core.propose(change).await?;
            match outcome.refused {
                None => {
                    let index = outcome.index;
                    return Ok(Dispatched {
                        job_id,
                        eval_id,
                        eval_create_index: index,
                        job_create_index: index,
                        index,
                    });
                }
                // Ids contain the time in seconds: a second child in the same second receives the next second.
                Some(refusal) if periodic::is_there(&refusal) => unix += 1,
                Some(refusal) => return Err(refusal.into()),
            }
        }
    }
}

fn existing(child: &Job) -> Dispatched {
    Dispatched {
        job_id: child.id.clone(),
        eval_id: EvalId::default(),
        eval_create_index: 0,
        job_create_index: child.create_index,
        index: child.modify_index,
    }
}

/// Checks a dispatch against the rule of the job.
fn check(rule: &Parameterized, dispatch: &Dispatch) -> Result<(), DispatchFault> {
    match rule.payload.as_str() {
        "required" if dispatch.payload.is_empty() => {
            return Err(DispatchFault::NoPayload);
        }
        "forbidden" if !dispatch.payload.is_empty() => {
            return Err(DispatchFault::ForbiddenPayload);
        }
        _ => {}
    }
    if dispatch.payload.len() > MAX_PAYLOAD {
        return Err(DispatchFault::LargePayload { size: dispatch.payload.len(), max: MAX_PAYLOAD });
    }
    let allowed = |key: &&String| rule.required().contains(*key) || rule.optional().contains(*key);
    let others: Vec<String> = dispatch.meta.keys().filter(|key| !allowed(key)).cloned().collect();
    if !others.is_empty() {
        return Err(DispatchFault::UnpermittedMeta(others));
    }
    let mut missing: Vec<String> =
        rule.required().iter().filter(|key| !dispatch.meta.contains_key(*key)).cloned().collect();
    missing.sort_unstable();
    if !missing.is_empty() {
        return Err(DispatchFault::MissingMeta(missing));
    }
    if dispatch.id_prefix.contains([' ', '\0']) {
        return Err(DispatchFault::IdPrefix);
    }
    if dispatch.priority != 0 && !(1..=100).contains(&dispatch.priority) {
        return Err(DispatchFault::Priority);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Parameterized {
        Parameterized {
            payload: "optional".into(),
            meta_required: Some(vec!["input".into(), "form".into()]),
            meta_optional: Some(vec!["profile".into()]),
        }
    }

    fn request(meta: &[&str], payload: usize) -> Dispatch {
        let meta = meta.iter().map(|key| ((*key).to_owned(), String::new())).collect();
        Dispatch { meta, payload: vec![7; payload], ..Dispatch::default() }
    }

    #[test]
    fn a_dispatch_gives_what_the_job_wants_and_nothing_else() {
        let all = ["input", "form", "profile"];
        assert_eq!(check(&rule(), &request(&all, MAX_PAYLOAD)), Ok(()));
        for (dispatch, words) in [
            (request(&[], 0), "Dispatch did not provide required meta keys: [form input]"),
            (request(&["input", "form", "y", "x"], 0), "unpermitted metadata keys: [x y]"),
            (request(&all, MAX_PAYLOAD + 1), "Payload exceeds maximum size; 16385 > 16384"),
            (Dispatch { priority: 101, ..request(&all, 0) }, "Job priority must be between [1, 100]"),
            (Dispatch { id_prefix: "a b".into(), ..request(&all, 0) }, "contains a space"),
        ] {
            let error = check(&rule(), &dispatch).expect_err("it is refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        let required = Parameterized { payload: "required".into(), ..rule() };
        assert!(check(&required, &request(&all, 0)).is_err());
        let forbidden = Parameterized { payload: "forbidden".into(), ..rule() };
        assert!(check(&forbidden, &request(&all, 1)).is_err());
    }
}
