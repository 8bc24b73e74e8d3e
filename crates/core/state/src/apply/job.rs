//! Commands about jobs.

use super::Done;
use crate::changes::Changed;
use crate::tx::Tx;
use caravan_types::command::{JobSource, Refusal};
use caravan_types::eval::Evaluation;
use caravan_types::job::{Job, JobStatus};
use caravan_types::{JobKey, UnixNanos, scaling};

impl Tx {
    pub(super) fn job_register(
        &mut self,
        submitted: &Job,
        expect: Option<u64>,
        eval: Option<&Evaluation>,
        source: Option<&JobSource>,
    ) -> Done {
        super::admin::homes(&self.root, submitted)?;
        let key = submitted.key();
        let old = self.root.job(&key).cloned();
        let actual = old.as_ref().map_or(0, |job| job.job_modify_index);
        if let Some(expected) = expect.filter(|expected| *expected != actual) {
            return Err(Refusal::JobModifyIndex { expected, actual });
        }
        let mut submitted = submitted.clone();
        let rescaled = scaling::succeed(&mut submitted, old.as_deref(), self.index);
        if rescaled {
            self.changed(Changed::ScalingPolicies(key.clone()));
        }
        let version = match &old {
            // The specification is unchanged: only the evaluation is new.
            Some(old) if old.same_spec(&submitted) => {
                if let Some(source) = source.filter(|_| self.root.submission(&key, old.version).is_none()) {
                    self.put_submission(key.clone(), old.version, source.clone());
                }
                // The specification is unchanged, but the submitter has more rights.
                if let Some(widened) = old.widened(&submitted) {
                    self.put_job(widened);
                }
                self.job_eval(&key, eval, old.job_modify_index);
                return Ok(());
            }
            Some(old) => old.version + 1,
            None => 0,
        };
        let job = Job {
            version,
            stable: false,
            status: old.as_ref().map_or(JobStatus::Pending, |job| job.status),
            status_description: String::new(),
            create_index: old.as_ref().map_or(self.index, |job| job.create_index),
            job_modify_index: self.index,
            ..submitted
        };
        self.put_job(job);
        self.registered.insert(key.clone());
        if let Some(source) = source {
            self.put_submission(key.clone(), version, source.clone());
        }
        self.job_eval(&key, eval, self.index);
        Ok(())
    }

    pub(super) fn job_child(
        &mut self,
        child: &Job,
        eval: Option<&Evaluation>,
        launched: Option<UnixNanos>,
    ) -> Done {
        let parent = JobKey { namespace: child.namespace.clone(), id: child.parent_id.clone() };
        let runs = |parent: &Job| match launched {
            Some(_) => parent.is_periodic_active(),
            None => !parent.stop,
        };
        if self.root.job(&parent).is_none_or(|parent| !runs(parent)) {
            return Err(Refusal::NotFound { what: format!("running job \"{}\"", parent.id) });
        }
        let token = &child.dispatch_idempotency_token;
        if self.root.dispatched_with(&parent, token).is_some() {
            return Err(Refusal::Changed { what: format!("job \"{}\"", parent.id) });
        }
        self.job_register(child, Some(0), eval, None)?;
        if let Some(at) = launched {
            self.put_launch(&parent, at);
        }
        Ok(())
    }

    /// Completes the evaluation of a job's command. Its proposer could not know the index yet.
    fn job_eval(&mut self, key: &JobKey, eval: Option<&Evaluation>, job_modify_index: u64) {
        let Some(eval) = eval else { return };
        debug_assert_eq!(eval.job_key(), *key, "the evaluation of a job's command is about that job");
        let mut eval = eval.clone();
        if eval.job_modify_index == 0 {
            eval.job_modify_index = job_modify_index;
        }
        self.evals(&[eval]);
    }

    pub(super) fn job_deregister(&mut self, key: &JobKey, purge: bool, eval: Option<&Evaluation>) -> Done {
        let Some(old) = self.root.job(key).cloned() else {
            return Err(Refusal::NotFound {
                what: format!("job \"{}\" in namespace \"{}\"", key.id, key.namespace),
            });
        };
        if purge {
            self.remove_job(key);
        } else if !old.stop {
            if scaling::policies(&old).next().is_some() {
                self.changed(Changed::ScalingPolicies(key.clone()));
            }
            self.put_job(Job {
                stop: true,
                stable: false,
                version: old.version + 1,
                job_modify_index: self.index,
                submit_time: self.now,
                version_tag: None,
                ..(*old).clone()
            });
            self.registered.insert(key.clone());
        }
        self.job_eval(key, eval, self.index);
        Ok(())
    }
}
