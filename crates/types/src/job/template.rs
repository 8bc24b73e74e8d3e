//! Jobs that make other jobs: periodic ones at their times, parameterized ones when they are dispatched.

use super::{Job, Task};
use crate::id::JobId;
use crate::ser::nil;
use serde::{Deserialize, Serialize};

/// When a periodic job makes its children (docs/reference/jobspec.md, section 4.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Periodic {
    /// It does.
    pub enabled: bool,
    /// The old way to give one expression.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub spec: String,
    /// Cron expressions; the earliest counts.
    #[serde(with = "nil")]
    pub specs: Vec<String>,
    /// Kind of the expressions, `cron`.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub spec_type: String,
    /// No child while another one lives.
    pub prohibit_overlap: bool,
    /// Name of the time zone of the expressions.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub time_zone: String,
}

impl Periodic {
    /// All expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        let one = Some(self.spec.as_str()).filter(|spec| !spec.is_empty());
        one.into_iter().chain(self.specs.iter().map(String::as_str))
    }
}

/// What a dispatch must and may give.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Parameterized {
    /// `optional`, `required` or `forbidden`.
    #[serde(deserialize_with = "crate::ser::null_default")]
    pub payload: String,
    /// Keys that must be given.
    #[serde(with = "nil")]
    pub meta_required: Vec<String>,
    /// Keys that may be given.
    #[serde(with = "nil")]
    pub meta_optional: Vec<String>,
}

impl Task {
    /// The file below its local directory that the payload of a dispatch is for.
    pub fn dispatch_file(&self) -> Option<String> {
        let file = self.dispatch_payload.as_ref()?.0.get("File")?.as_str()?;
        (!file.is_empty()).then(|| file.to_owned())
    }
}

impl Job {
    /// When it makes children. `None` for other jobs, and for one that is to be dispatched first.
    pub fn periodic_rule(&self) -> Option<Periodic> {
        self.periodic.as_ref().and_then(|carried| serde_json::from_value(carried.0.clone()).ok())
    }

    /// What a dispatch of it must and may give. `None` for other jobs, and for what a dispatch made.
    pub fn dispatch_rule(&self) -> Option<Parameterized> {
        self.parameters().filter(|_| !self.dispatched)
    }

    /// The same for both, the job that is dispatched and what a dispatch made.
    pub fn parameters(&self) -> Option<Parameterized> {
        self.parameterized_job.as_ref().and_then(|carried| serde_json::from_value(carried.0.clone()).ok())
    }

    /// Whether it only makes other jobs, and runs nothing itself.
    pub fn is_template(&self) -> bool {
        self.periodic.is_some() || (self.parameterized_job.is_some() && !self.dispatched)
    }

    /// Whether it makes children by itself when their time has come.
    pub fn is_periodic_active(&self) -> bool {
        let waits_for_dispatch = self.parameterized_job.is_some() && !self.dispatched;
        !self.stop && !waits_for_dispatch && self.periodic_rule().is_some_and(|rule| rule.enabled)
    }

    /// The id of the child that a periodic job makes for a time in Unix seconds.
    pub fn periodic_child_id(&self, unix: i64) -> JobId {
        JobId::new(format!("{}/periodic-{unix}", self.id))
    }

    /// The id of the child that a dispatch makes; `unique` are eight hexadecimal digits.
    pub fn dispatch_child_id(&self, prefix: &str, unix: i64, unique: &str) -> JobId {
        let dash = if prefix.is_empty() { "" } else { "-" };
        JobId::new(format!("{}/dispatch-{prefix}{dash}{unix}-{unique}", self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Carried;
    use serde_json::json;

    #[test]
    fn rules_are_read_from_what_is_carried() {
        let periodic = json!({"Enabled": true, "Spec": "", "Specs": ["@daily"], "SpecType": "cron",
            "ProhibitOverlap": true, "TimeZone": "UTC"});
        let mut job = Job { id: "a".into(), periodic: Some(Carried(periodic)), ..Job::default() };
        let rule = job.periodic_rule().expect("it is periodic");
        assert_eq!(rule.expressions().collect::<Vec<_>>(), ["@daily"]);
        assert!(rule.prohibit_overlap && job.is_template() && job.is_periodic_active());
        job.stop = true;
        assert!(!job.is_periodic_active());
        assert_eq!(job.periodic_child_id(17).as_str(), "a/periodic-17");
    }

    #[test]
    fn a_dispatched_child_is_no_template_any_more() {
        let rule = json!({"Payload": "optional", "MetaRequired": ["input"], "MetaOptional": null});
        let mut job = Job { id: "a".into(), parameterized_job: Some(Carried(rule)), ..Job::default() };
        assert_eq!(job.dispatch_rule().expect("it is parameterized").meta_required, ["input"]);
        assert_eq!(job.dispatch_child_id("", 1, "0a").as_str(), "a/dispatch-1-0a");
        assert_eq!(job.dispatch_child_id("x", 1, "0a").as_str(), "a/dispatch-x-1-0a");
        job.dispatched = true;
        assert!(job.dispatch_rule().is_none() && !job.is_template());
    }
}
