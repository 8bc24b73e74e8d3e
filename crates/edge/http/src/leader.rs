//! Requests that the leader answers, on servers that do not lead.
//!
//! A server that does not lead passes a request on as a whole. The leader checks the rights, so that the creation or
//! deletion of a token takes effect at all servers immediately.
//!
//! A server that does not lead answers a read of the replicated state alone ([`Line::follows`](crate::access::Line))
//! itself, once its state contains everything that was acknowledged before. Reads that arrive together share one
//! request to the leader.

use crate::access::Place;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::relay;
use crate::reply::{HELD, KNOWN_LEADER, LAST_CONTACT};
use caravan_api::{ErrorReason, REASON_HEADER};
use caravan_rpc::{Channel, Code};
use caravan_server::{Handle, LeaderPlace};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode};
use std::time::Duration;
use tokio::time::Instant;

/// The longest pause before a request is sent again. Pauses are random, so that thousands of waiting queries do not
/// return to the new leader at the same moment.
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// The time in which a request looks for a leader before it fails, at all servers together
/// (docs/reference/cluster.md, section 7.1).
pub(crate) const LOST_TIMEOUT: Duration = Duration::from_secs(5);

/// The route of the public keys. Other services verify identities with them, so every server answers the route
/// without a leader too (docs/reference/cluster.md, section 12.1).
const PUBLIC_KEYS: &str = "/.well-known/*";

/// The least duration of an attempt that counts as held by a leader, for a waiting query whose connection was lost.
const HELD_AFTER: Duration = Duration::from_secs(1);

/// The time in which a request may look for a leader: one deadline for the search, the proof of leadership, and
/// repetitions at other servers.
///
/// Example: three servers, of which two are killed. A follower still has server 1 as the leader and passes a read on,
/// with 5 s. Server 1 finds no quorum for 5 s and refuses. The follower has no time left, and answers the user with
/// the refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    until: Instant,
}

impl Patience {
    /// Starts the time of a request: the time that another server left for the request, or the whole time.
    pub(crate) fn begin(call: &Call, is_from_server: bool) -> Self {
        let left = relay::millis(&call.headers, &relay::HOLD).filter(|_| is_from_server);
        Self { until: call.arrived + left.unwrap_or(LOST_TIMEOUT).min(LOST_TIMEOUT) }
    }

    /// Returns the end of the time.
    pub(crate) fn until(self) -> Instant {
        self.until
    }

    /// Returns the rest of the time.
    pub(crate) fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Restarts the time after a leader held a query, unless the wait of the query has ended. A query that waits for
    /// minutes may need several leaders.
    pub(crate) fn renew(&mut self, call: &Call) {
        let is_waiting = call.query.wait().is_ok_and(|wait| call.waited() < blocking::longest(wait.limit));
        if is_waiting {
            self.until = Instant::now() + LOST_TIMEOUT;
        }
    }
}

/// The server that answers a request.
pub(crate) enum Found {
    /// This server, which leads, or whose state may be stale.
    Here,
    /// This server, which does not lead, but whose state contains everything acknowledged before.
    Current,
    /// Another server.
    There {
        channel: Channel,
        /// A future that completes when this server sees another leader or an election.
        moved: BoxFuture<'static, ()>,
    },
}

/// The result of passing a request on.
pub(crate) enum Passed {
    Answer(Result<Response<Body>, ApiError>),
    /// The leader was lost, and the request may be sent again. `held`: the request is a query, and the leader held
    /// it.
    LeaderLost {
        held: bool,
    },
}

/// The wait before a request whose leader was lost is sent again.
pub(crate) struct Again {
    pause: Duration,
    /// A future that ends the pause early; `None` for queries that wait for a change.
    change: Option<BoxFuture<'static, ()>>,
}

impl Again {
    /// Returns the wait of a request. `change` is [`leader_change`](caravan_server::ClusterRequests::leader_change)
    /// from before the request was sent; `None` on an agent without a server.
    pub(crate) fn after(call: &Call, change: Option<BoxFuture<'static, ()>>) -> Self {
        Self { pause: MAX_PAUSE.mul_f64(rand::random::<f64>()), change: change.filter(|_| !is_waiting(call)) }
    }

    /// Waits until the request may be sent again, at the latest until the end of its patience.
    pub(crate) async fn wait(self, patience: Patience) {
        let pause = self.pause.min(patience.left());
        match self.change {
            None => tokio::time::sleep(pause).await,
            Some(change) => {
                let _ = tokio::time::timeout(pause, change).await;
            }
        }
    }
}

/// Returns whether the next leader may execute a write that this server did not execute because it no longer leads. A
/// transfer of leadership concerns only the leader that received it.
pub(crate) fn repeats(call: &Call) -> bool {
    call.line.place == Place::Server && call.line.path != "operator/raft/transfer-leadership"
}

/// Returns whether a query waits for a change of the state.
fn is_waiting(call: &Call) -> bool {
    ["index", "wait"].iter().any(|name| call.query.get(name).is_some())
}

/// Finds the leader for a request; a stale read is answered by any server.
pub(crate) async fn find(
    call: &Call,
    server: &Handle,
    is_forwarded: bool,
    patience: Patience,
) -> Result<Found, ApiError> {
    let is_public = call.line.path == PUBLIC_KEYS && call.is_get();
    if is_stale(call) || (is_public && server.cluster().is_member() && !server.cluster().knows_leader()) {
        if !is_about_log(call) && server.cluster().is_member() {
            // Without a leader, the state remains that of the restart. The headers then name no leader.
            let recovered = tokio::time::timeout_at(patience.until(), server.cluster().recovered()).await;
            if let Ok(Err(error)) = recovered {
                return Err(ApiError::internal(error.to_string()));
            }
        }
        return Ok(Found::Here);
    }
    let found = place(call, server, is_forwarded, patience).await?;
    if matches!(found, Found::There { .. }) && stays(call) {
        if server.cluster().catches_up().await {
            return Ok(Found::Current);
        }
        // Another server may lead meanwhile. For example, the leader was frozen, and its answer was awaited for a
        // second.
        return place(call, server, is_forwarded, patience).await;
    }
    Ok(found)
}

/// Finds the leader.
async fn place(
    call: &Call,
    server: &Handle,
    is_forwarded: bool,
    patience: Patience,
) -> Result<Found, ApiError> {
    loop {
        let mut moved = server.cluster().leader_change().boxed();
        match server.cluster().place(is_forwarded, call.is_get(), patience.until()).await {
            Ok(LeaderPlace::Here) => return Ok(Found::Here),
            // A change during the search may concern the leader that was found, so the search is repeated.
            Ok(LeaderPlace::There(_)) if (&mut moved).now_or_never().is_some() => {}
            Ok(LeaderPlace::There(channel)) => return Ok(Found::There { channel, moved }),
            Err(_) => return Err(no_leader(call)),
        }
    }
}

/// Decides about a request by this server's state. A refusal by a follower may come from a state that lags behind, so
/// the follower catches up and decides again. For example, a token that the leader has just created is valid at all
/// servers.
pub(crate) async fn surely<T>(
    server: &Handle,
    decide: impl Fn() -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    match decide() {
        Err(error) if lags(&error, server) && server.cluster().catches_up().await => decide(),
        decided => decided,
    }
}

/// As [`surely`]; an agent without a server decides by itself.
pub(crate) async fn surely_at<T>(
    server: Option<&Handle>,
    decide: impl Fn() -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    match server {
        Some(server) => surely(server, decide).await,
        None => decide(),
    }
}

/// Returns whether a refusal may come from a state that lags behind.
fn lags(error: &ApiError, server: &Handle) -> bool {
    let is_refusal = matches!(error.status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    is_refusal && !server.is_leader()
}

/// Creates the error for a request without a leader. A transfer of leadership is answered with 503
/// (docs/reference/cluster.md, section 9).
pub(crate) fn no_leader(call: &Call) -> ApiError {
    let error = ApiError::no_leader();
    match call.line.path {
        "operator/raft/transfer-leadership" => ApiError { status: StatusCode::SERVICE_UNAVAILABLE, ..error },
        _ => error,
    }
}

/// Returns whether the receiving server answers a read, without a proof of leadership.
pub(crate) fn is_stale(call: &Call) -> bool {
    call.is_get() && call.query.is_stale()
}

/// Returns whether a request reads facts about the log, which need no recovered state.
fn is_about_log(call: &Call) -> bool {
    matches!(call.line.path, "status/leader" | "status/peers" | "operator/raft/configuration")
}

/// Returns whether a follower with a current state may answer. Reads that wait for a change go to the leader, because
/// they must end with its term.
fn stays(call: &Call) -> bool {
    call.line.follows && call.is_get() && !is_waiting(call) && call.query.get("consistent").is_none()
}

/// Passes a request on to the leader. `change` completes when this server sees another leader or an election; a read
/// is then sent to the next leader. Otherwise a leader whose processes are frozen would hold the read, because it
/// answers nothing and closes no connection.
pub(crate) async fn pass_on(
    call: &Call,
    leader: &Channel,
    patience: Patience,
    change: impl Future<Output = ()>,
) -> Passed {
    if !matches!(tokio::time::timeout_at(patience.until(), leader.ready()).await, Ok(Ok(()))) {
        // Nothing was sent.
        return Passed::LeaderLost { held: false };
    }
    let sent = Instant::now();
    let was_held = || is_waiting(call) && sent.elapsed() >= HELD_AFTER;
    let passed = relay::to_leader(call, leader, patience.left());
    let answer = if call.is_get() {
        tokio::select! {
            biased;
            answer = passed => answer,
            () = change => return Passed::LeaderLost { held: was_held() },
        }
    } else {
        passed.await
    };
    match answer {
        Ok(response) => {
            let held = response.headers().contains_key(HELD);
            let reason = response.headers().get(REASON_HEADER).and_then(|value| value.to_str().ok());
            match reason.and_then(ErrorReason::from_name) {
                // The other server does not lead, and did nothing.
                Some(ErrorReason::NoLeader) => Passed::LeaderLost { held },
                _ => Passed::Answer(Ok(response)),
            }
        }
        Err(error) => match error.code {
            Code::Unavailable | Code::Deadline | Code::Cancelled if call.is_get() => {
                Passed::LeaderLost { held: was_held() }
            }
            // The connection was refused: nothing was sent.
            Code::NoPath | Code::NotLeader => Passed::LeaderLost { held: false },
            Code::Unavailable | Code::Deadline | Code::Cancelled => Passed::Answer(Err(ApiError::internal(
                "the leader was lost while it carried out the request, which may or may not have taken effect",
            ))),
            _ => Passed::Answer(Err(error.into())),
        },
    }
}

/// Corrects the headers about the leader in the answer of a server that has not proved its leadership: the server
/// does not lead, or the read is stale. An answer from a current state has the headers of an answer of the leader.
pub(crate) fn described(
    mut response: Response<Body>,
    server: Option<&Handle>,
    is_current: bool,
    is_stale: bool,
) -> Response<Body> {
    let Some(server) = server.filter(|server| is_stale || !server.is_leader()) else { return response };
    let headers = response.headers_mut();
    if is_current && headers.contains_key(&LAST_CONTACT) {
        headers.insert(LAST_CONTACT, HeaderValue::from_static("0"));
        headers.insert(KNOWN_LEADER, HeaderValue::from_static("true"));
    } else if headers.contains_key(&LAST_CONTACT) {
        let age = server.cluster().leader_silence().as_millis();
        headers.insert(LAST_CONTACT, HeaderValue::from(u64::try_from(age).unwrap_or(u64::MAX)));
        let known = if server.cluster().knows_leader() { "true" } else { "false" };
        headers.insert(KNOWN_LEADER, HeaderValue::from_static(known));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_leader_ends_the_pause_of_a_request() {
        let (changes, changed) = tokio::sync::oneshot::channel();
        let change = async move { changed.await.unwrap() }.boxed();
        let patience = Patience { until: Instant::now() + Duration::from_secs(3600) };
        let waiting =
            tokio::spawn(Again { pause: Duration::from_secs(3600), change: Some(change) }.wait(patience));
        changes.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
    }
}
