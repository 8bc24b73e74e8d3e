//! Versions of jobs: marking a version as stable, and reverting to a version (docs/reference/http-api.md, section
//! 3.1).

use super::fault::JobFault;
use super::jobs::{JobRegistered, JobSubmission, Jobs};
use crate::acl::Caller;
use crate::error::ServerError;
use caravan_types::JobKey;
use caravan_types::command::Change;
use caravan_types::job::Job;
use std::sync::Arc;

impl Jobs {
    /// Marks a version of a job as stable or not stable. Returns the index.
    ///
    /// # Errors
    /// If the version does not exist.
    pub async fn set_stable(&self, key: JobKey, version: u64, stable: bool) -> Result<u64, ServerError> {
        if self.core.snapshot().job_version(&key, version).is_none() {
            return Err(JobFault::NoVersion { key, version }.into());
        }
        self.core.commit(Change::JobStable { key, version, stable }).await
    }

    /// Registers an earlier version of a job again. With `prior`, reverts only if `prior` is the current version.
    ///
    /// # Errors
    /// If the version does not exist or is the current version, or if the job has problems by now.
    pub async fn revert(
        &self,
        caller: Arc<Caller>,
        key: JobKey,
        version: u64,
        prior: Option<u64>,
    ) -> Result<JobRegistered, ServerError> {
        let root = self.core.snapshot();
        let current = root.job(&key).ok_or_else(|| JobFault::NothingToRevert(key.id.clone()))?;
        if let Some(expected) = prior.filter(|prior| *prior != current.version) {
            return Err(JobFault::OtherVersion { current: current.version, expected }.into());
        }
        if current.version == version {
            return Err(JobFault::CurrentVersion.into());
        }
        let earlier = root
            .job_version(&key, version)
            .ok_or_else(|| JobFault::NoVersion { key: key.clone(), version })?;
        self.register(JobSubmission {
            draft: Job { stable: false, version_tag: None, ..(**earlier).clone() }.into(),
            // The versions that were compared must not change before the write.
            enforce_index: Some(current.job_modify_index),
            source: root.submission(&key, version).map(|source| (**source).clone()),
            caller: Some(caller),
            ..JobSubmission::default()
        })
        .await
    }
}
