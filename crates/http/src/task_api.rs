//! The same routes for tasks, over a socket of their own: whoever asks there has to say who it is
//! (docs/reference/http-api.md, section 1.1).

use crate::access;
use crate::error::ApiError;
use crate::serve::serve;
use crate::state::HttpState;
use caravan_client::TaskApi;
use http::{HeaderMap, StatusCode};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// Answers requests of tasks.
#[derive(Clone, Debug)]
pub struct TaskRoutes(HttpState);

impl TaskRoutes {
    /// With the routes of an agent.
    pub fn new(state: HttpState) -> Self {
        Self(HttpState { for_tasks: true, ..state })
    }
}

impl TaskApi for TaskRoutes {
    fn serve(&self, listener: UnixListener, stop: CancellationToken) {
        let state = self.0.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(listener, state, stop).await {
                tracing::warn!(%error, "a task's socket of the API failed");
            }
        });
    }
}

/// Refuses a request that does not say who asks, or says it wrongly.
pub(crate) fn check(state: &HttpState, headers: &HeaderMap) -> Result<(), ApiError> {
    let secret = access::secret(headers);
    if secret.is_empty() {
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized"));
    }
    // Agents without a server have one check it, when they pass the request on.
    let Some(server) = &state.server else { return Ok(()) };
    match server.admin().caller(&secret) {
        Ok(caller) if server.admin().acl_enabled() || caller.claims.is_some() => Ok(()),
        _ => Err(ApiError::new(StatusCode::FORBIDDEN, "Forbidden")),
    }
}
