//! The region that answers a request (docs/reference/cluster.md, sections 7.1 and 13).
//!
//! An agent passes a request for another region on as a whole, to any server of that region, which passes it on to
//! its leader. The rights are checked there, with the policies of that region. A request crosses regions once: a
//! server does not pass it on to a third region.

use crate::access::{Scope, field, parsed, text};
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::relay;
use caravan_rpc::{Channel, Code};
use http::{Method, Response};
use serde_json::Value;

/// The default region in job files; it stands for the region of the agent.
const GLOBAL: &str = "global";

/// The maximum number of servers to which a read is sent.
const READ_TRIES: usize = 2;

/// Returns the other region to which a request is addressed; `None` if the agent's own region answers the
/// request.
pub(crate) fn other(call: &Call) -> Option<String> {
    let asked = || call.query.text("region").to_owned();
    let is_write = !matches!(call.method, Method::GET | Method::HEAD);
    let region = match call.line.scope {
        Scope::Own => return None,
        Scope::Query => asked(),
        Scope::Job => job_region(&parsed(&call.body), call.query.text("region")),
        Scope::Authoritative if is_write => authoritative(call),
        Scope::Token if is_write && is_of_global_token(call) => authoritative(call),
        Scope::Login if is_of_global_method(call) => authoritative(call),
        Scope::Authoritative | Scope::Token | Scope::Login => asked(),
    };
    (!region.is_empty() && region != call.state.info.region).then_some(region)
}

/// Returns the region of a job: the region that the body, the query or the job names, in this order.
fn job_region(body: &Value, asked: &str) -> String {
    let job = field(body, "Job");
    let several = field(field(job, "Multiregion"), "Regions");
    let first = several.as_array().and_then(|regions| regions.first());
    let own = match text(job, "Region") {
        // A job with several regions is registered in its first region.
        "" | GLOBAL => first.map(|first| text(first, "Name")).unwrap_or_default(),
        own => own,
    };
    let places = [text(body, "Region"), asked, own];
    let region = places.into_iter().find(|region| !region.is_empty()).unwrap_or_default();
    if region == GLOBAL { String::new() } else { region.to_owned() }
}

/// Returns the authoritative region. An agent without a server forwards the request to a server, which decides.
fn authoritative(call: &Call) -> String {
    let server = call.state.server.as_ref();
    server.map(|server| server.cluster().authoritative_region().to_owned()).unwrap_or_default()
}

/// Returns whether a write is about a token that is valid in all regions, before or after the write.
fn is_of_global_token(call: &Call) -> bool {
    let body = if call.is_delete() { Value::Null } else { parsed(&call.body) };
    if field(&body, "Global") == &Value::Bool(true) {
        return true;
    }
    let Some(server) = &call.state.server else { return false };
    let root = server.store().snapshot();
    let named = [call.star(0), text(&body, "AccessorID").to_owned()];
    named.iter().any(|accessor| root.acl_token(accessor).is_some_and(|token| token.global))
}

/// Returns whether a login is by a method whose tokens are valid in all regions.
fn is_of_global_method(call: &Call) -> bool {
    let Some(server) = &call.state.server else { return false };
    let body = parsed(&call.body);
    let root = server.store().snapshot();
    let method = root.auth_method(text(&body, "AuthMethodName"));
    method.is_some_and(|method| method.token_locality == "global")
}

/// Returns a channel to a server of another region; on agents without a server, to a server of their own region.
pub(crate) async fn channel(call: &Call, region: &str) -> Result<Channel, ApiError> {
    match &call.state.server {
        Some(server) => reach(server, region).await,
        None => call.state.relay.clone().filter(|_| call.hops == 0).ok_or_else(ApiError::no_leader),
    }
}

/// Returns a channel to a server of another region.
pub(crate) async fn reach(server: &caravan_server::Handle, region: &str) -> Result<Channel, ApiError> {
    server.cluster().reach(region).await.map_err(|fault| ApiError::internal(fault.to_string()))
}

/// Returns the refusal of a request that another region has passed on already.
pub(crate) fn crossed(region: &str) -> ApiError {
    ApiError::internal(format!(
        "No path to region \"{region}\": a request is passed on to one region only; check that all servers name the same \
         authoritative_region"
    ))
}

/// Passes a request on to another region.
pub(crate) async fn pass_on(call: &Call, region: &str) -> Result<Response<Body>, ApiError> {
    let tries = if call.is_get() { READ_TRIES } else { 1 };
    let mut lost = String::new();
    for _ in 0..tries {
        let channel = channel(call, region).await?;
        match relay::to_server(call, &channel).await {
            Ok(response) => return Ok(response),
            Err(error) if matches!(error.code, Code::Unavailable | Code::Deadline | Code::Cancelled) => {
                lost = error.message;
            }
            Err(error) => return Err(ApiError::internal(error.message)),
        }
    }
    let effect = if call.is_get() { "" } else { ", and the request may or may not have taken effect" };
    Err(ApiError::internal(format!("the connection to region \"{region}\" was lost{effect}: {lost}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_region_of_a_job_comes_from_the_body_the_query_and_the_job() {
        let several = json!({"Regions": [{"Name": "west"}, {"Name": "north"}]});
        for (body, asked, region) in [
            (json!({}), "", ""),
            (json!({"Job": {"Region": "west"}}), "", "west"),
            (json!({"Job": {"Region": "west"}}), "east", "east"),
            (json!({"Region": "north", "Job": {"Region": "west"}}), "east", "north"),
            (json!({"job": {"region": "west"}}), "", "west"),
            // The default region of job files stands for the agent's own.
            (json!({"Job": {"Region": "global"}}), "", ""),
            (json!({"Job": {"Region": "west"}}), "global", ""),
            (json!({"Job": {"Region": null}}), "east", "east"),
            (json!({"Job": {"Region": "global", "Multiregion": several}}), "", "west"),
            (json!({"Job": {"Region": "south", "Multiregion": several}}), "", "south"),
            (json!({"Job": {"Multiregion": {"Regions": null}}}), "", ""),
        ] {
            assert_eq!(job_region(&body, asked), region, "{body} {asked:?}");
        }
    }

    proptest! {
        #[test]
        fn no_body_stops_the_search(text in ".*", asked in "[a-z]{0,3}") {
            let region = job_region(&parsed(text.as_bytes()), &asked);
            prop_assert!(region.is_empty() || region == asked || text.contains(&region));
        }
    }
}
