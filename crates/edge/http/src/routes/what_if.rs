//! The consequences of imagined events on nodes, without a job: the allocations that a drain moves, and the causes
//! that block it.

use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;

/// Returns the consequences if all events happen: `node=<id, its beginning, or name>:drain`, or `down`, `ineligible`,
/// `up`. Lines about jobs that the caller may not read are omitted and counted.
pub(crate) async fn answer(call: &Call) -> Result<Reply, ApiError> {
    let imagined: Vec<String> = call.query.all("node").map(|event| format!("node={event}")).collect();
    if imagined.is_empty() {
        return Err(ApiError::bad_request("the query must name at least one event, such as node=<id>:drain"));
    }
    let consequences = call
        .server()?
        .jobs()
        .what_if(call.caller(), None, &imagined)
        .await
        .map_err(|error| ApiError::of_change(&error))?;
    Reply::parsed(consequences)
}
