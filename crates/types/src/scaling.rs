//! Scaling: the policies that a job's groups and tasks carry for an autoscaler, and the scaling events
//! (docs/reference/http-api.md, section 5.1).

use crate::id::{EvalId, JobKey};
use crate::job::{Carried, Job};
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Events of a group that are kept, the newest first.
pub const KEPT_EVENTS: usize = 20;

/// The kind of a policy that says nothing else: the count of a group.
pub const HORIZONTAL: &str = "horizontal";

/// Something that happened to the count of a group, or that an autoscaler wants to be known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvent {
    /// When.
    pub time: UnixNanos,
    /// The new count; none when nothing was changed.
    pub count: Option<u32>,
    /// The count before.
    pub previous_count: u32,
    /// The message of the caller that scaled.
    pub message: String,
    /// Something went wrong.
    pub error: bool,
    /// Metadata of the caller that scaled; an object or null.
    pub meta: Value,
    /// The evaluation that followed.
    #[serde(rename = "EvalID")]
    pub eval_id: Option<EvalId>,
    /// Index of the event.
    pub create_index: u64,
}

/// Go keeps free JSON numbers as floats, and clients see them so.
pub fn floats(value: &Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(items) => items.iter().map(floats).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), floats(value))).collect(),
        other => other.clone(),
    }
}

/// Calls for each policy of a job: its group, its task if it is one's, and the policy.
fn each(job: &mut Job, mut visit: impl FnMut(&str, Option<&str>, &mut Map<String, Value>)) {
    for group in &mut job.task_groups {
        if let Some(Value::Object(policy)) = group.scaling.as_mut().map(|carried| &mut carried.0) {
            visit(&group.name, None, policy);
        }
        for task in &mut group.tasks {
            for Carried(policy) in &mut task.scaling_policies {
                if let Value::Object(policy) = policy {
                    visit(&group.name, Some(&task.name), policy);
                }
            }
        }
    }
}

/// Fills what only the servers know of the policies of a submitted job: kind, target, and an id.
pub fn complete(job: &mut Job, mut new_id: impl FnMut() -> String) {
    let key = job.key();
    each(job, |group, task, policy| {
        let kind = policy.get("Type").and_then(Value::as_str).filter(|kind| !kind.is_empty());
        let kind = kind.unwrap_or(HORIZONTAL).to_owned();
        let mut target = json!({"Namespace": key.namespace, "Job": key.id, "Group": group});
        if let Some(task) = task {
            target["Task"] = json!(task);
        }
        policy.remove("Namespace");
        policy.insert("Type".into(), json!(kind));
        policy.insert("Target".into(), target);
        policy.insert("ID".into(), json!(new_id()));
        for bound in ["Min", "Max"] {
            if policy.get(bound).is_none_or(Value::is_null) {
                policy.insert(bound.into(), json!(0));
            }
        }
        if let Some(free) = policy.get("Policy").map(floats) {
            policy.insert("Policy".into(), free);
        }
    });
}

/// Gives the policies of a new version the ids and indexes of those before. Answers whether any policy is
/// new, changed or gone.
pub fn succeed(job: &mut Job, old: Option<&Job>, index: u64) -> bool {
    let before = old.map(policies).unwrap_or_default();
    let (mut kept, mut moved) = (0, false);
    each(job, |_, _, policy| {
        let is_same = |old: &&Value| old["Target"] == policy["Target"] && old["Type"] == policy["Type"];
        let Some(old) = before.iter().find(is_same) else {
            policy.insert("CreateIndex".into(), json!(index));
            policy.insert("ModifyIndex".into(), json!(index));
            moved = true;
            return;
        };
        kept += 1;
        for key in ["ID", "CreateIndex", "ModifyIndex"] {
            policy.insert(key.into(), old[key].clone());
        }
        if Value::Object(policy.clone()) != *old {
            policy.insert("ModifyIndex".into(), json!(index));
            moved = true;
        }
    });
    moved || kept < before.len()
}

/// The policies of a job. One that was stopped has none any more.
pub fn policies(job: &Job) -> Vec<Value> {
    if job.stop {
        return Vec::new();
    }
    let of_groups = job.task_groups.iter().flat_map(|group| {
        let of_tasks = group.tasks.iter().flat_map(|task| &task.scaling_policies);
        group.scaling.iter().chain(of_tasks)
    });
    of_groups.map(|Carried(policy)| policy.clone()).filter(Value::is_object).collect()
}

/// The bounds of a group, if it has a policy that holds.
pub fn bounds(job: &Job, group: &str) -> Option<(i64, i64)> {
    let policy = &job.group(group)?.scaling.as_ref()?.0;
    Some((policy["Min"].as_i64()?, policy["Max"].as_i64()?))
}

/// The name of a version of a job, which keeps the version from being forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VersionTag {
    /// Name, unique in the job.
    pub name: String,
    /// Words about it.
    pub description: String,
    /// When it was given.
    pub tagged_time: UnixNanos,
}

impl VersionTag {
    /// The tag of a version.
    pub fn of(job: &Job) -> Option<Self> {
        let Carried(tag) = job.version_tag.as_ref()?;
        serde_json::from_value(tag.clone()).ok()
    }

    /// As versions carry it.
    pub fn carried(&self) -> Carried {
        Carried(json!({
            "Name": self.name, "Description": self.description, "TaggedTime": self.tagged_time,
        }))
    }
}

/// A change of a group's count, or only an event of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// The job.
    pub key: JobKey,
    /// The group.
    pub group: String,
    /// The new count.
    pub count: Option<u32>,
    /// Refuse unless the job's `JobModifyIndex` is this.
    pub expect_modify_index: Option<u64>,
    /// What is kept about it; its counts, its evaluation and its index are set by apply.
    pub event: ScalingEvent,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::TaskGroup;

    fn job(max: i64) -> Job {
        let scaling =
            json!({"Min": 1, "Max": max, "Policy": {"a": [{"b": 70}]}, "Namespace": "", "Type": ""});
        let group = TaskGroup { name: "g".into(), scaling: Some(Carried(scaling)), ..TaskGroup::default() };
        let mut job =
            Job { id: "j".into(), namespace: "default".into(), task_groups: vec![group], ..Job::default() };
        complete(&mut job, || "new".to_owned());
        job
    }

    #[test]
    fn a_policy_is_completed_and_keeps_what_it_is_known_by() {
        let mut first = job(5);
        assert!(succeed(&mut first, None, 7));
        let policy = &policies(&first)[0];
        assert_eq!(policy["Target"], json!({"Namespace": "default", "Job": "j", "Group": "g"}));
        assert_eq!((policy["Type"].as_str(), policy["ID"].as_str()), (Some("horizontal"), Some("new")));
        assert!(policy["Policy"]["a"][0]["b"].is_f64() && policy.get("Namespace").is_none());
        assert_eq!(bounds(&first, "g"), Some((1, 5)));

        let mut same = job(5);
        complete(&mut same, || "other".to_owned());
        assert!(!succeed(&mut same, Some(&first), 8));
        assert_eq!(policies(&same), policies(&first));

        let mut wider = job(9);
        assert!(succeed(&mut wider, Some(&first), 9));
        let policy = &policies(&wider)[0];
        assert_eq!((policy["CreateIndex"].as_u64(), policy["ModifyIndex"].as_u64()), (Some(7), Some(9)));
        let mut none = Job { task_groups: Vec::new(), ..first.clone() };
        assert!(succeed(&mut none, Some(&first), 10));
        none.stop = true;
        assert!(policies(&none).is_empty());
    }
}
