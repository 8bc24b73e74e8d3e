//! The servers of the cluster as members, with the leader: once, or as a stream of their changes. A change of members
//! is no command, so the log has no event for it.

use super::cluster::member;
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::reply::{JSON, Reply};
use crate::state::HttpState;
use bytes::Bytes;
use caravan_members::View;
use caravan_server::Handle;
use futures::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Returns the members in the table of this server. With `follow=true`, returns a stream: a line immediately and
/// after each change, and `{}` as heartbeat.
pub(crate) fn list(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?.clone();
    let state = call.state.clone();
    if !call.query.bool("follow")?.unwrap_or(false) {
        return Ok(Reply::value(known(&state, &server)));
    }
    let stopping = state.stopping.clone();
    let changes = state.members.as_ref().map(caravan_members::Handle::changes);
    let follower = Follower { state, server, changes, sent: None };
    let lines = stream::unfold(follower, |mut follower| async move {
        let line = follower.line().await;
        Some((Ok::<_, Infallible>(line), follower))
    });
    let lines = futures::StreamExt::take_until(Box::pin(lines), stopping.cancelled_owned());
    Ok(Reply::raw(JSON, Body::from_stream(lines)).header("cache-control", "no-cache"))
}

/// Returns the members in the table of a server, and the leader.
fn known(state: &HttpState, server: &Handle) -> Value {
    let members: Vec<Value> = match &state.members {
        Some(table) => table.members().iter().map(member).collect(),
        None => Vec::new(),
    };
    json!({
        "Leader": server.cluster().leader_address().unwrap_or_default(),
        "Members": members,
    })
}

/// The reader of a stream.
struct Follower {
    state: Arc<HttpState>,
    server: Handle,
    changes: Option<watch::Receiver<Arc<View>>>,
    /// The content of the last line.
    sent: Option<Value>,
}

impl Follower {
    /// Returns the next line.
    async fn line(&mut self) -> Bytes {
        let heartbeat = Instant::now() + HEARTBEAT;
        loop {
            // The watches begin before the read, so that no change between the read and the wait is missed.
            let leader = self.server.cluster().leader_change();
            if let Some(changes) = &mut self.changes {
                changes.mark_unchanged();
            }
            let now = known(&self.state, &self.server);
            if self.sent.as_ref() != Some(&now) {
                let line = line(&now);
                self.sent = Some(now);
                return line;
            }
            tokio::select! {
                () = leader => {}
                () = changed(self.changes.as_mut()) => {}
                () = sleep_until(heartbeat) => return line(&json!({})),
            }
        }
    }
}

/// Waits for a change of members; does not return without a table.
async fn changed(changes: Option<&mut watch::Receiver<Arc<View>>>) {
    let Some(changes) = changes else { return std::future::pending().await };
    if changes.changed().await.is_err() {
        // The membership ends with the agent.
        std::future::pending::<()>().await;
    }
}

fn line(value: &Value) -> Bytes {
    let mut text = crate::encode(value, false);
    text.push(b'\n');
    Bytes::from(text)
}
