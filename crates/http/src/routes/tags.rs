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

pub(crate) async fn route(call: &Call, id: &str, name: &str) -> Result<Reply, ApiError> {
    let key = jobs::key(call.namespace.clone(), id);
    let server = call.server()?;
    let (tag, index) = if call.is_delete() {
        let done = server.untag_version(key, name).await;
        (VersionTag::default(), done.map_err(|e| ApiError::of_change(&e))?)
    } else {
        call.put()?;
        let body: TagBody = optional(&call.body)?;
        let version = body.version.filter(|_| !body.latest);
        let done = server.tag_version(key, name, version, &body.description).await;
        done.map_err(|e| ApiError::coded(&e))?
    };
    Ok(Reply::value(json!({
        "Name": tag.name,
        "Description": tag.description,
        "TaggedTime": tag.tagged_time,
        "Index": index,
        "LastContact": 0,
        "KnownLeader": false,
        "NextToken": "",
    })))
}
