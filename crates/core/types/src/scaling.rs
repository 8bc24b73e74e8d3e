//! Scaling: the autoscaler policies of a job's groups and tasks, and the scaling events (docs/reference/http-api.md,
//! section 5.1).

use crate::id::{EvalId, JobKey};
use crate::job::{Job, blocks};
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The number of events of a group that are kept, the newest first.
pub const KEPT_EVENTS: usize = 20;

/// The default kind of a policy, which scales the count of a group.
pub const HORIZONTAL: &str = "horizontal";

blocks! {
    /// The bounds of a group's count or of a task's resources, and the policy for an autoscaler.
    ScalingPolicy {
        min: Option<i64> = "Min";
        /// The upper bound. A policy without this field is refused.
        max: Option<i64> = "Max";
        /// The configuration that only the autoscaler interprets.
        policy: Option<Map<String, Value>> = "Policy";
        enabled: Option<bool> = "Enabled";
        /// The kind: [`HORIZONTAL`], `vertical_cpu` or `vertical_mem`.
        kind: String = "Type";
        id: String = "ID";
        /// The scaled object: `Namespace`, `Job`, `Group`, and `Task` for a policy of a task.
        target: Option<BTreeMap<String, String>> = "Target";
        create_index: u64 = "CreateIndex";
        modify_index: u64 = "ModifyIndex";
    }
}

/// A change of a group's count, or a message of an autoscaler about the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvent {
    /// The time of the event.
    pub time: UnixNanos,
    /// The new count; `None` if the event changes nothing.
    pub count: Option<u32>,
    /// The count before the event.
    pub previous_count: u32,
    /// The message of the caller that scaled.
    pub message: String,
    /// Whether the event reports an error.
    pub error: bool,
    /// Metadata of the caller that scaled; an object or null.
    pub meta: Value,
    /// The evaluation that follows from the event.
    #[serde(rename = "EvalID")]
    pub eval_id: Option<EvalId>,
    /// The Raft index of the event.
    pub create_index: u64,
}

/// Returns the value with its numbers as floats, because Go stores untyped JSON numbers as floats.
pub fn floats(value: &Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(items) => items.iter().map(floats).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), floats(value))).collect(),
        other => other.clone(),
    }
}

/// Calls `visit` for each policy of a job, with the group, the task if the policy is of a task, and the policy.
fn each(job: &mut Job, mut visit: impl FnMut(&str, Option<&str>, &mut ScalingPolicy)) {
    for group in &mut job.task_groups {
        if let Some(policy) = &mut group.scaling {
            visit(&group.name, None, policy);
        }
        for task in &mut group.tasks {
            for policy in &mut task.scaling_policies {
                visit(&group.name, Some(&task.name), policy);
            }
        }
    }
}

/// Sets the kind, the target and the id of a submitted job's policies, which only the servers determine.
pub fn complete(job: &mut Job, mut new_id: impl FnMut() -> String) {
    let key = job.key();
    each(job, |group, task, policy| {
        if policy.kind.is_empty() {
            HORIZONTAL.clone_into(&mut policy.kind);
        }
        let place = [("Namespace", key.namespace.as_str()), ("Job", key.id.as_str()), ("Group", group)];
        let place = place.into_iter().chain(task.map(|task| ("Task", task)));
        policy.target = Some(place.map(|(part, name)| (part.to_owned(), name.to_owned())).collect());
        policy.id = new_id();
        policy.min.get_or_insert(0);
        for free in policy.policy.iter_mut().flat_map(Map::values_mut) {
            *free = floats(free);
        }
    });
}

/// Copies the ids and indexes of the earlier version's policies to policies of the new version with the same target and
/// kind. Returns whether any policy was added, changed or removed.
pub fn succeed(job: &mut Job, old: Option<&Job>, index: u64) -> bool {
    let before: Vec<&ScalingPolicy> = old.map(|old| policies(old).collect()).unwrap_or_default();
    let (mut kept, mut moved) = (0, false);
    each(job, |_, _, policy| {
        let is_same = |old: &&&ScalingPolicy| old.target == policy.target && old.kind == policy.kind;
        let Some(old) = before.iter().find(is_same) else {
            policy.create_index = index;
            policy.modify_index = index;
            moved = true;
            return;
        };
        kept += 1;
        policy.id.clone_from(&old.id);
        policy.create_index = old.create_index;
        policy.modify_index = old.modify_index;
        if *policy != **old {
            policy.modify_index = index;
            moved = true;
        }
    });
    moved || kept < before.len()
}

/// Returns the policies of a job. A stopped job has none.
pub fn policies(job: &Job) -> impl Iterator<Item = &ScalingPolicy> {
    let groups = job.task_groups.iter().filter(|_| !job.stop);
    groups.flat_map(|group| {
        let of_tasks = group.tasks.iter().flat_map(|task| &task.scaling_policies);
        group.scaling.as_deref().into_iter().chain(of_tasks)
    })
}

/// Returns the bounds of a group's count, if the group has a policy with bounds.
pub fn bounds(job: &Job, group: &str) -> Option<(i64, i64)> {
    let policy = job.group(group)?.scaling.as_ref()?;
    Some((policy.min?, policy.max?))
}

/// The tag of a version of a job. The collection of old versions keeps a version with a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VersionTag {
    /// The name, unique in the job.
    pub name: String,
    /// The description for users.
    pub description: String,
    /// The time at which the tag was set.
    pub tagged_time: UnixNanos,
}

/// A change of a group's count, or a scaling event without a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// The key of the job.
    pub key: JobKey,
    /// The name of the group.
    pub group: String,
    /// The new count, or `None` for an event without a change.
    pub count: Option<u32>,
    /// The `JobModifyIndex` that the job must have, or the change is refused.
    pub expect_modify_index: Option<u64>,
    /// The event to store; its counts, evaluation and index are set when the command is applied.
    pub event: ScalingEvent,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::TaskGroup;
    use serde_json::json;

    fn job(max: i64) -> Job {
        let scaling =
            json!({"Min": 1, "Max": max, "Policy": {"a": [{"b": 70}]}, "Namespace": "", "Type": ""});
        let scaling = serde_json::from_value(scaling).unwrap();
        let group = TaskGroup { name: "g".into(), scaling: Some(scaling), ..TaskGroup::default() };
        let mut job =
            Job { id: "j".into(), namespace: "default".into(), task_groups: vec![group], ..Job::default() };
        complete(&mut job, || "new".to_owned());
        job
    }

    #[test]
    fn a_policy_is_completed_and_keeps_what_it_is_known_by() {
        let mut first = job(5);
        assert!(succeed(&mut first, None, 7));
        let policy = policies(&first).next().unwrap();
        let target = serde_json::to_value(&policy.target).unwrap();
        assert_eq!(target, json!({"Namespace": "default", "Job": "j", "Group": "g"}));
        assert_eq!((policy.kind.as_str(), policy.id.as_str()), ("horizontal", "new"));
        assert!(policy.policy.as_ref().unwrap()["a"][0]["b"].is_f64());
        assert_eq!(bounds(&first, "g"), Some((1, 5)));

        let mut same = job(5);
        complete(&mut same, || "other".to_owned());
        assert!(!succeed(&mut same, Some(&first), 8));
        assert!(policies(&same).eq(policies(&first)));

        let mut wider = job(9);
        assert!(succeed(&mut wider, Some(&first), 9));
        let policy = policies(&wider).next().unwrap();
        assert_eq!((policy.create_index, policy.modify_index), (7, 9));
        let mut none = Job { task_groups: Vec::new(), ..first.clone() };
        assert!(succeed(&mut none, Some(&first), 10));
        none.stop = true;
        assert!(policies(&none).next().is_none());
    }
}
