//! Status of the servers, their maintenance, and the built-in objects
//! (docs/reference/http-api.md, sections 3.7 and 5.8).

use super::{acl, namespaces, operator};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use http::{Method, StatusCode};

pub(crate) async fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    let get = || call.only(&Method::GET);
    match rest {
        ["status", "leader"] => {
            get()?;
            let leads = call.server()?.is_leader();
            Reply::json(if leads { call.state.info.rpc_addr.as_str() } else { "" })
        }
        ["status", "peers"] => {
            get()?;
            Reply::json(call.server()?.addresses())
        }
        ["regions"] => {
            get()?;
            Reply::json([&call.state.info.region])
        }
        ["system", "gc"] => {
            call.only(&Method::PUT)?;
            call.server()?.collect_garbage().await.map_err(|e| ApiError::of_change(&e))?;
            Ok(Reply::empty())
        }
        // Summaries are computed on each read, so they are always consistent.
        ["system", "reconcile", "summaries"] => {
            call.only(&Method::PUT)?;
            call.server()?.barrier().await.map_err(|e| ApiError::of_change(&e))?;
            Ok(Reply::empty())
        }
        ["namespaces"] => namespaces::list(call).await,
        ["namespace"] => namespaces::route(call, None).await,
        ["namespace", name @ ..] => namespaces::route(call, Some(&name.join("/"))).await,
        ["acl", rest @ ..] => acl::route(call, rest).await,
        ["operator", rest @ ..] => operator::route(call, rest).await,
        ["quotas" | "quota" | "quota-usages" | "recommendations" | "recommendation" | "sentinel", ..] => {
            Err(enterprise())
        }
        _ => Err(ApiError::unknown_path()),
    }
}

/// Returns the error for routes of Nomad's Enterprise edition.
pub(crate) fn enterprise() -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "Nomad Enterprise only endpoint")
}
