//! Counts and durations of runners, for metrics.

use super::AllocState;
use std::time::Instant;

impl AllocState {
    /// Counts an event of a task.
    pub(in crate::runner) fn count_of_task(&self, what: &'static str, task: &str) {
        let alloc = self.alloc();
        let labels = [
            ("job", alloc.job_id.as_str()),
            ("task_group", &*alloc.task_group),
            ("task", task),
            ("namespace", alloc.namespace.as_str()),
        ];
        self.inner.outlets.meters.count(what, &labels);
    }

    /// Counts an event of the allocation.
    pub(in crate::runner) fn count(&self, what: &'static str) {
        let alloc = self.alloc();
        let labels = [
            ("job", alloc.job_id.as_str()),
            ("task_group", &*alloc.task_group),
            ("namespace", alloc.namespace.as_str()),
        ];
        self.inner.outlets.meters.count(what, &labels);
    }

    /// Runs a hook before the tasks and records its outcome and duration. The errors of the hook are in Nomad's
    /// words.
    pub(in crate::runner) async fn hook<E: ToString>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<(), E>>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let done = work.await;
        let alloc = self.alloc();
        let labels = [("namespace", alloc.namespace.as_str()), ("hook_name", name)];
        let meters = &self.inner.outlets.meters;
        meters.time("alloc_hook.prerun.elapsed", begun.elapsed(), &labels);
        let went = if done.is_ok() { "alloc_hook.prerun.success" } else { "alloc_hook.prerun.failed" };
        meters.count(went, &labels);
        done.map_err(|why| {
            format!("failed to setup alloc: pre-run hook \"{name}\" failed: {}", why.to_string())
        })
    }
}
