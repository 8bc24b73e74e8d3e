//! Status of the servers, their maintenance, and the built-in objects
//! (docs/reference/http-api.md, sections 3.7 and 5.8).

use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use http::{Method, StatusCode};

pub(crate) async fn collect_garbage(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::PUT)?;
    call.server()?.collect_garbage().await.map_err(|e| ApiError::of_change(&e))?;
    Ok(Reply::empty())
}

/// Waits for the changes so far. Summaries are computed on each read, so they are always consistent.
pub(crate) async fn reconcile_summaries(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::PUT)?;
    call.server()?.barrier().await.map_err(|e| ApiError::of_change(&e))?;
    Ok(Reply::empty())
}

/// Refuses a route of Nomad's Enterprise edition.
pub(crate) fn enterprise_only(_: &Call) -> Result<Reply, ApiError> {
    Err(enterprise())
}

/// Returns the error for routes of Nomad's Enterprise edition.
pub(super) fn enterprise() -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "Nomad Enterprise only endpoint")
}
