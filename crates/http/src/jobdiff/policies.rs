//! Scaling policies as versions of a job tell them.
//!
//! Clients know a version of a job to hold the indexes of its policies only where it made or changed them, and zeros
//! where they are as they were. A policy is therefore told as changed, without a field, between the version that made
//! it and others, although nothing that users wrote changed.

use super::Object;
use serde_json::{Value, json};

/// The key under which a policy notes the indexes that its version tells.
pub(super) const MARK: &str = "Told";

/// The job with each of its policies marked.
pub(super) fn marked(mut job: Object) -> Object {
    let version = job.get("JobModifyIndex").and_then(Value::as_u64);
    let groups = job.get_mut("TaskGroups").and_then(Value::as_array_mut).into_iter().flatten();
    for group in groups {
        mark(group.get_mut("Scaling"), version);
        for task in group.get_mut("Tasks").and_then(Value::as_array_mut).into_iter().flatten() {
            let policies = task.get_mut("ScalingPolicies").and_then(Value::as_array_mut);
            policies.into_iter().flatten().for_each(|policy| mark(Some(policy), version));
        }
    }
    job
}

fn mark(policy: Option<&mut Value>, version: Option<u64>) {
    let Some(Value::Object(policy)) = policy else { return };
    let index = |key: &str| policy.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (created, modified) = (index("CreateIndex"), index("ModifyIndex"));
    let told = if Some(modified) == version { [created, modified] } else { [0, 0] };
    policy.insert(MARK.to_owned(), json!(told));
}

/// Whether two versions of a policy tell different indexes.
pub(super) fn moved(old: Option<&Object>, new: Option<&Object>) -> bool {
    match (old.and_then(|policy| policy.get(MARK)), new.and_then(|policy| policy.get(MARK))) {
        (Some(old), Some(new)) => old != new,
        _ => false,
    }
}
