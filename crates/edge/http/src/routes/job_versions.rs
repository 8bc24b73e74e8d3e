//! Versions of a job: stability and reversion (docs/reference/http-api.md, section 3.1).

use super::jobs::{named, registered};
use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Meta, Next, Reply};
use serde_json::json;

bodies! {
    /// A version to mark as stable or unstable.
    StableBody("JobStabilityRequest") {
        id: String = "JobID";
        version: u64 = "JobVersion";
        stable: bool = "Stable";
    }
    /// A version to revert to.
    RevertBody("JobRevertRequest") {
        id: String = "JobID";
        version: u64 = "JobVersion";
        prior: Option<u64> = "EnforcePriorVersion";
    }
}

/// Marks a version of a job as stable or unstable.
pub(crate) async fn stable(call: &Call) -> Result<Reply, ApiError> {
    let key = named(call);
    let body: StableBody = required(&call.body)?;
    same(&body.id, key.id.as_str())?;
    let done = call.server()?.jobs().set_stable(key, body.version, body.stable).await;
    let index = done.map_err(|e| ApiError::of_change(&e))?;
    Ok(Reply::value(json!({"Index": index})).index(index))
}

/// Reverts a job to an earlier version.
pub(crate) async fn revert(call: &Call) -> Result<Reply, ApiError> {
    let key = named(call);
    let body: RevertBody = required(&call.body)?;
    same(&body.id, key.id.as_str())?;
    let done = call.server()?.jobs().revert(call.caller(), key, body.version, body.prior).await;
    let done = done.map_err(|e| ApiError::of_change(&e))?;
    // Nomad answers this change with the headers of a read.
    let meta = Meta { index: done.index, known_leader: false, next: Next::default() };
    Ok(registered(&done).meta(meta))
}

fn same(reported: &str, id: &str) -> Result<(), ApiError> {
    match reported {
        "" => Err(ApiError::bad_request("JobID must be specified")),
        _ if reported == id => Ok(()),
        _ => Err(ApiError::bad_request("Job ID does not match")),
    }
}
