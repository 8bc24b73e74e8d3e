//! Jobs that create other jobs: periodic jobs at their times, parameterized jobs on a dispatch.

use super::{Job, Task};
use crate::id::JobId;
use serde::{Deserialize, Serialize};

/// The times at which a periodic job creates its children (docs/reference/jobspec.md, section 4.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Periodic {
    /// Whether the job creates children.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub enabled: bool,
    /// A single cron expression, the older form of `specs`.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub spec: String,
    /// Cron expressions; the earliest next time counts.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub specs: Vec<String>,
    /// The kind of the expressions, `cron`.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub spec_type: String,
    /// Whether the job creates no child while another child runs.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub prohibit_overlap: bool,
    /// The name of the time zone of the expressions.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub time_zone: String,
}

impl Periodic {
    /// Returns all expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        let one = Some(self.spec.as_str()).filter(|spec| !spec.is_empty());
        one.into_iter().chain(self.specs.iter().map(String::as_str))
    }
}

/// The input that a dispatch must and may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Parameterized {
    /// The rule for the payload: `optional`, `required` or `forbidden`.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub payload: String,
    /// The metadata keys that a dispatch must have.
    pub meta_required: Option<Vec<String>>,
    /// The metadata keys that a dispatch may have.
    pub meta_optional: Option<Vec<String>>,
}

impl Parameterized {
    /// Returns the metadata keys that a dispatch must have.
    pub fn required(&self) -> &[String] {
        self.meta_required.as_deref().unwrap_or_default()
    }

    /// Returns the metadata keys that a dispatch may have.
    pub fn optional(&self) -> &[String] {
        self.meta_optional.as_deref().unwrap_or_default()
    }
}

impl Task {
    /// Returns the path, relative to the local directory, of the file for the payload of a dispatch.
    pub fn dispatch_file(&self) -> Option<&str> {
        self.dispatch_payload.as_ref().map(|payload| payload.file.as_str()).filter(|file| !file.is_empty())
    }
}

impl Job {
    /// Returns the input that a dispatch of the job must and may have. Returns `None` for jobs that are not
    /// parameterized, and for children of a dispatch.
    pub fn dispatch_rule(&self) -> Option<&Parameterized> {
        self.parameterized_job.as_ref().filter(|_| !self.dispatched)
    }

    /// Returns whether the job only creates other jobs, and runs no allocation.
    pub fn is_template(&self) -> bool {
        self.periodic.is_some() || (self.parameterized_job.is_some() && !self.dispatched)
    }

    /// Returns whether the job creates children at its times.
    pub fn is_periodic_active(&self) -> bool {
        let waits_for_dispatch = self.parameterized_job.is_some() && !self.dispatched;
        !self.stop && !waits_for_dispatch && self.periodic.as_ref().is_some_and(|rule| rule.enabled)
    }

    /// Returns the id of the child that a periodic job creates for a time in Unix seconds.
    pub fn periodic_child_id(&self, unix: i64) -> JobId {
        JobId::new(format!("{}/periodic-{unix}", self.id))
    }

    /// Returns the id of the child that a dispatch creates; `unique` is eight hexadecimal digits.
    pub fn dispatch_child_id(&self, prefix: &str, unix: i64, unique: &str) -> JobId {
        let dash = if prefix.is_empty() { "" } else { "-" };
        JobId::new(format!("{}/dispatch-{prefix}{dash}{unix}-{unique}", self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_say_what_a_job_makes() {
        let rule = Periodic { enabled: true, specs: vec!["@daily".into()], ..Periodic::default() };
        assert_eq!(rule.expressions().collect::<Vec<_>>(), ["@daily"]);
        let mut job = Job { id: "a".into(), periodic: Some(Box::new(rule)), ..Job::default() };
        assert!(job.is_template() && job.is_periodic_active());
        job.stop = true;
        assert!(!job.is_periodic_active());
        assert_eq!(job.periodic_child_id(17).as_str(), "a/periodic-17");
    }

    #[test]
    fn a_dispatched_child_is_no_template_any_more() {
        let rule = Parameterized { meta_required: Some(vec!["input".into()]), ..Parameterized::default() };
        let mut job = Job { id: "a".into(), parameterized_job: Some(rule), ..Job::default() };
        assert_eq!(job.dispatch_rule().expect("it is parameterized").required(), ["input"]);
        assert_eq!(job.dispatch_child_id("", 1, "0a").as_str(), "a/dispatch-1-0a");
        assert_eq!(job.dispatch_child_id("x", 1, "0a").as_str(), "a/dispatch-x-1-0a");
        job.dispatched = true;
        assert!(job.dispatch_rule().is_none() && !job.is_template());
    }
}
