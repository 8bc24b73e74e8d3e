//! Scaling policies in the versions of a job.
//!
//! In Nomad, a version of a job holds the indexes of its policies only if that version created or changed them;
//! otherwise the indexes are zero. The difference between the version that created a policy and another version
//! therefore shows the policy as edited, without a changed field.

use super::Object;
use serde_json::{Value, json};

/// The key under which a policy stores the indexes of its version.
pub(super) const MARK: &str = "Told";

/// Returns the job with each of its policies marked.
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
    let reported = if Some(modified) == version { [created, modified] } else { [0, 0] };
    policy.insert(MARK.to_owned(), json!(reported));
}

/// Returns whether two versions of a policy have different indexes.
pub(super) fn moved(old: Option<&Object>, new: Option<&Object>) -> bool {
    match (old.and_then(|policy| policy.get(MARK)), new.and_then(|policy| policy.get(MARK))) {
        (Some(old), Some(new)) => old != new,
        _ => false,
    }
}
