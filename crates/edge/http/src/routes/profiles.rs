//! Profiles of the agent's process: `/v1/agent/pprof/...`.

use crate::call::Call;
use crate::error::ApiError;
use crate::profiler::ProfileError;
use crate::reply::{Reply, TEXT};
use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use std::time::Duration;

/// Profiles of a Go runtime, which a Rust program does not have.
const OF_GO: [&str; 8] =
    ["allocs", "block", "goroutine", "goroutineleak", "heap", "mutex", "threadcreate", "trace"];

/// The maximum duration of a profile.
const MAX_SECONDS: u64 = 300;

/// Returns a profile. The route table has checked `agent:write`.
pub(crate) async fn profile(call: &Call) -> Result<Reply, ApiError> {
    if !is_allowed(call) {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "Permission denied"));
    }
    match call.star(0).as_str() {
        "cmdline" => {
            let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
            let text = Bytes::from(text.strip_suffix(b"\0").unwrap_or(&text).to_vec());
            Ok(Reply::raw(TEXT, text).header("x-content-type-options", "nosniff"))
        }
        "profile" => cpu(call).await,
        "" => Err(ApiError::not_found("Invalid method")),
        kind if OF_GO.contains(&kind) => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            format!("this agent has no profile \"{kind}\": it is not written in Go; use perf or a debugger"),
        )),
        kind => Err(ApiError::not_found(format!("Unknown profile: {kind}"))),
    }
}

/// Returns whether profiles are allowed: with access control, callers that passed the check; without it, if
/// `enable_debug` is set.
fn is_allowed(call: &Call) -> bool {
    let controlled = match &call.state.server {
        Some(server) => server.admin().acl_enabled(),
        None => call.state.acl,
    };
    controlled || call.state.info.config.now()["EnableDebug"] == json!(true)
}

async fn cpu(call: &Call) -> Result<Reply, ApiError> {
    let seconds = seconds(call.query.text("seconds"))?;
    let profiler = call.state.profiler.as_ref();
    let profiler =
        profiler.ok_or_else(|| ApiError::new(StatusCode::NOT_IMPLEMENTED, "this agent takes no profiles"))?;
    let profile = tokio::select! {
        profile = profiler.cpu(Duration::from_secs(seconds)) => profile,
        () = call.state.stopping.cancelled() => return Err(ApiError::internal("the agent ends")),
    };
    let profile = profile.map_err(|error| match error {
        ProfileError::Busy | ProfileError::Failed(_) => ApiError::internal(error.to_string()),
    })?;
    Ok(Reply::raw("application/octet-stream", profile)
        .header("content-disposition", "attachment; filename=\"profile\"")
        .header("x-content-type-options", "nosniff"))
}

/// Parses the duration of a profile in seconds; an absent or invalid value means one second.
fn seconds(text: &str) -> Result<u64, ApiError> {
    match text.parse::<i64>().ok().and_then(|seconds| u64::try_from(seconds).ok()) {
        None | Some(0) => Ok(1),
        Some(seconds) if seconds <= MAX_SECONDS => Ok(seconds),
        Some(seconds) => Err(ApiError::bad_request(format!(
            "a profile of {seconds} seconds is too long: at most {MAX_SECONDS}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_profile_is_bounded() {
        for (text, want) in [("", 1), ("0", 1), ("-3", 1), ("soon", 1), ("30", 30), ("300", 300)] {
            assert_eq!(seconds(text).unwrap(), want, "{text}");
        }
        let error = seconds("301").unwrap_err();
        assert_eq!((error.status, error.message.contains("at most 300")), (StatusCode::BAD_REQUEST, true));
    }
}
