//! Tags of a job's versions (docs/reference/http-api.md, section 3.1).

use super::jobs;
use crate::body::{bodies, optional};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_types::scaling::VersionTag;
use serde_json::json;

bodies! {
    /// The version to tag.
    TagBody("JobVersionApplyTagRequest") {
        version: Option<u64> = "Version";
        latest: bool = "Latest";
        description: String = "Description";
    }
}

pub(crate) async fn tag(call: &Call) -> Result<Reply, ApiError> {
    let body: TagBody = optional(&call.body)?;
    let version = body.version.filter(|_| !body.latest);
    let done = call.server()?.jobs().tag(jobs::named(call), &call.star(1), version, &body.description).await;
    let (tag, index) = done.map_err(|e| ApiError::coded(&e))?;
    Ok(answer(&tag, index))
}

pub(crate) async fn untag(call: &Call) -> Result<Reply, ApiError> {
    let done = call.server()?.jobs().untag(jobs::named(call), &call.star(1)).await;
    Ok(answer(&VersionTag::default(), done.map_err(|e| ApiError::of_change(&e))?))
}

fn answer(tag: &VersionTag, index: u64) -> Reply {
    Reply::value(json!({
        "Name": tag.name,
        "Description": tag.description,
        "TaggedTime": tag.tagged_time,
        "Index": index,
        "LastContact": 0,
        "KnownLeader": false,
        "NextToken": "",
    }))
}
