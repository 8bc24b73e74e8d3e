//! Commands about counts of groups, and tags of versions.

use super::Done;
use crate::changes::Changed;
use crate::tx::Tx;
use caravan_types::JobKey;
use caravan_types::command::Refusal;
use caravan_types::eval::Evaluation;
use caravan_types::job::Job;
use caravan_types::scaling::{KEPT_EVENTS, Scale, ScalingEvent, VersionTag};
use std::sync::Arc;

impl Tx {
    /// Changes a count and records the event, in one step.
    pub(super) fn job_scale(&mut self, scale: &Scale, eval: Option<&Evaluation>) -> Done {
        let Scale { key, group, count, expect_modify_index, event } = scale;
        let not_found = || Refusal::NotFound { what: format!("job \"{}\"", key.id) };
        let old = self.root.job(key).cloned().ok_or_else(not_found)?;
        let Some(before) = old.group(group).map(|group| group.count) else {
            return Err(Refusal::Invalid(format!(
                "task group \"{group}\" specified for scaling does not exist in job"
            )));
        };
        let mut event = ScalingEvent {
            count: *count,
            previous_count: before,
            create_index: self.index,
            eval_id: None,
            ..event.clone()
        };
        if let Some(count) = *count {
            let mut job = (*old).clone();
            if let Some(group) = job.task_groups.iter_mut().find(|own| own.name == *group) {
                group.count = count;
            }
            job.submit_time = self.now;
            job.version_tag = None;
            self.job_register(&job, *expect_modify_index, eval, None)?;
            event.eval_id = eval.map(|eval| eval.id.clone());
        }
        let mut all = self.root.scaling_events(key).map(|row| (**row).clone()).unwrap_or_default();
        let of_group = all.entry(group.clone()).or_default();
        of_group.insert(0, event);
        of_group.truncate(KEPT_EVENTS);
        self.root.scaling_events.insert(key.clone(), Arc::new(all));
        self.changed(Changed::ScalingEvents(key.clone()));
        Ok(())
    }

    /// Tags a version of a job, or removes the tag. Without a version, the newest version is tagged.
    pub(super) fn job_tag(
        &mut self,
        key: &JobKey,
        version: Option<u64>,
        name: &str,
        tag: Option<&VersionTag>,
    ) -> Done {
        let has_it = |job: &Job| job.version_tag.as_ref().is_some_and(|tag| tag.name == name);
        let holder = self.root.job_versions(key).find(|job| has_it(job)).cloned();
        let Some(tag) = tag else {
            let Some(job) = holder else {
                return Err(Refusal::Invalid(format!("tag \"{name}\" not found on job \"{}\"", key.id)));
            };
            self.put_version(Job { version_tag: None, ..(*job).clone() });
            self.trim_versions(key);
            return Ok(());
        };
        let desired = match version {
            Some(version) => self.root.job_version(key, version).cloned(),
            None => self.root.job(key).cloned(),
        };
        let Some(job) = desired else {
            let version = version.unwrap_or_default();
            return Err(Refusal::Invalid(format!("job \"{}\" version {version} not found", key.id)));
        };
        if holder.is_some_and(|holder| holder.version != job.version) {
            return Err(Refusal::Invalid(format!(
                "tag \"{name}\" already exists on a different version of job \"{}\"",
                key.id
            )));
        }
        self.put_version(Job { version_tag: Some(tag.clone().into()), ..(*job).clone() });
        Ok(())
    }
}
