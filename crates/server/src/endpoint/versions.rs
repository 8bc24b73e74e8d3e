//! Versions of jobs: marking one as stable, and reverting to one (docs/reference/http-api.md, section 3.1).

use super::jobs::{JobRegistered, JobSubmission, Jobs};
use crate::acl::Caller;
use crate::error::ServerError;
use caravan_types::JobKey;
use caravan_types::command::Change;
use caravan_types::job::Job;
use std::sync::Arc;

impl Jobs {
    /// Marks a version as stable or not stable. Returns the index.
    pub(crate) async fn set_stable(
        &self,
        key: JobKey,
        version: u64,
        stable: bool,
    ) -> Result<u64, ServerError> {
        if self.core.snapshot().job_version(&key, version).is_none() {
            return Err(no_version(&key, version));
        }
        self.core.commit(Change::JobStable { key, version, stable }).await
    }

    /// Registers an earlier version again. `prior` is the required current version. The caller needs the rights of a
    /// registration.
    pub(crate) async fn revert(
        &self,
        caller: Arc<Caller>,
        key: JobKey,
        version: u64,
        prior: Option<u64>,
    ) -> Result<JobRegistered, ServerError> {
        let root = self.core.snapshot();
        let current = root
            .job(&key)
            .ok_or_else(|| ServerError::refused(format!("job {:?} not found", key.id.as_str())))?;
        if let Some(prior) = prior.filter(|prior| *prior != current.version) {
            return Err(ServerError::refused(format!(
                "Current job has version {}; enforcing version {prior}",
                current.version
            )));
        }
        if current.version == version {
            return Err(ServerError::refused("can't revert to current version"));
        }
        let earlier = root.job_version(&key, version).ok_or_else(|| no_version(&key, version))?;
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

fn no_version(key: &JobKey, version: u64) -> ServerError {
    ServerError::refused(format!(
        "job {:?} in namespace {:?} at version {version} not found",
        key.id.as_str(),
        key.namespace.as_str()
    ))
}
