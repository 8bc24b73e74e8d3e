//! The same routes for tasks, over a separate socket on which every request must authenticate
//! (docs/reference/http-api.md, section 1.1).

use crate::access;
use crate::error::ApiError;
use crate::serve::serve;
use crate::state::HttpState;
use caravan_client::TaskApi;
use http::{HeaderMap, StatusCode};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// The handler of tasks' requests.
#[derive(Clone, Debug)]
pub struct TaskRoutes(HttpState);

impl TaskRoutes {
    /// Creates the handler from the routes of an agent.
    pub fn new(state: HttpState) -> Self {
        Self(HttpState { for_tasks: true, ..state })
    }
}

impl TaskApi for TaskRoutes {
    fn serve(&self, listener: UnixListener, stop: CancellationToken) {
        let state = self.0.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(listener, state, stop).await {
                tracing::warn!(%error, "serving the API on the socket of a task failed");
            }
        });
    }
}

/// Refuses a request without a valid token or identity.
pub(crate) fn check(state: &HttpState, headers: &HeaderMap) -> Result<(), ApiError> {
    let secret = access::secret(headers);
    if secret.is_empty() {
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized"));
    }
    // On an agent without a server, the server to which the request is forwarded checks it.
    let Some(server) = &state.server else { return Ok(()) };
    match server.admin().caller(&secret) {
        Ok(caller) if server.admin().acl_enabled() || caller.claims.is_some() => Ok(()),
        _ => Err(ApiError::new(StatusCode::FORBIDDEN, "Forbidden")),
    }
}
