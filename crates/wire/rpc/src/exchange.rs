//! A connection for short messages of the log: one request and one response at a time, as frames without HTTP/2.
//!
//! Streams, headers and windows are most of the work of a short call. For example, a follower with 16
//! readers sends thousands of requests a second to the leader. Such a server opens this connection in
//! addition to its channel. Rare calls use the channel, whose keep-alive detects a server that no longer
//! responds.

use crate::codec::{decode_response, encode};
use crate::io::BoxIo;
use crate::method::Method as _;
use crate::methods::LogCall;
use crate::{Code, ConnectOptions, PeerIdentity, Role, Router, RpcError};
use bytes::{BufMut, Bytes, BytesMut};
use caravan_messages::cluster::LogMessage;
use futures::{SinkExt as _, StreamExt as _};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

/// The longest interval of calls that justifies a connection.
const FREQUENT_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after which a connection is not used, because its loss may be undetected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause after which the serving side closes a connection. By then, the calling side no longer uses it.
const SERVED_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failed attempt to connect. For example, the other server has an older version.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of a request and of a response in bytes. Larger messages fail.
const MAX_FRAME: usize = 64 * 1024;

/// First byte of a response: the result of the handler follows.
const ANSWERED: u8 = 0;
/// First byte of a response: an encoded error follows.
const FAILED: u8 = 1;

type Frames = Framed<BoxIo, LengthDelimitedCodec>;

fn frames(io: BoxIo) -> Frames {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME).new_framed(io)
}

/// The calling side. One call at a time uses the connection; concurrent calls use a channel.
pub struct Exchange {
    options: ConnectOptions,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// `None` during a call, so that a call that is dropped or fails closes the connection.
    connection: Option<Connection>,
    /// The time at which the last call began.
    called: Option<Instant>,
    /// The time at which the last attempt to connect failed.
    failed: Option<Instant>,
}

struct Connection {
    frames: Frames,
    target: String,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("targets", &self.options.targets).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Creates the calling side for the first server in `options`. The connection is opened once calls are frequent.
    pub fn new(options: ConnectOptions) -> Self {
        Self { options: ConnectOptions { role: Role::Exchange, ..options }, state: Arc::default() }
    }

    /// Sends a message, and waits for the response for at most `limit`. Returns `None` if there is no
    /// connection, or it was lost: the caller then uses a channel, and the message may arrive twice.
    pub async fn call(&self, message: &LogMessage, limit: Duration) -> Option<Result<LogMessage, RpcError>> {
        let mut state = Arc::clone(&self.state).try_lock_owned().ok()?;
        let now = Instant::now();
        let pause = state.called.replace(now).map(|called| now - called);
        let is_current = |connection: &Connection| self.options.targets.has(&connection.target);
        let connection = state.connection.take().filter(is_current);
        let Some(mut connection) = connection.filter(|_| pause.is_some_and(|pause| pause < IDLE_TIMEOUT))
        else {
            let may_retry = state.failed.is_none_or(|failed| now - failed >= RETRY_INTERVAL);
            if may_retry && pause.is_some_and(|pause| pause < FREQUENT_INTERVAL) {
                tokio::spawn(connect(self.options.clone(), state));
            }
            return None;
        };
        let request = match encode(LogCall::NAME, message) {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        match timeout(limit, exchange(&mut connection.frames, request)).await {
            Ok(Ok(answer)) => {
                state.connection = Some(connection);
                Some(answer)
            }
            Ok(Err(error)) => {
                tracing::debug!(target_server = %connection.target, %error, "a connection for short messages is lost");
                None
            }
            Err(_) => {
                let reason = format!("{} did not answer within {limit:?}", LogCall::NAME);
                Some(Err(RpcError::new(Code::Deadline, reason)))
            }
        }
    }
}

/// Connects to a server. Concurrent calls find the state locked and use a channel.
async fn connect(options: ConnectOptions, mut state: OwnedMutexGuard<State>) {
    let Some(target) = options.targets.list().into_iter().next() else { return };
    match options.dial(&target, options.role).await {
        Ok((io, _)) => {
            tracing::debug!(target_server = %target, "connected for short messages");
            state.connection = Some(Connection { frames: frames(io), target });
        }
        Err(error) => {
            tracing::debug!(target_server = %target, %error, "connecting for short messages failed");
            state.failed = Some(Instant::now());
        }
    }
}

/// Sends a request and reads the response. The outer error is an error of the connection.
async fn exchange(frames: &mut Frames, request: Bytes) -> io::Result<Result<LogMessage, RpcError>> {
    frames.send(request).await?;
    let response = frames.next().await.ok_or(io::ErrorKind::UnexpectedEof)??;
    match response.split_first() {
        Some((&ANSWERED, answer)) => Ok(decode_response(LogCall::NAME, answer)),
        Some((&FAILED, error)) => Ok(Err(rmp_serde::from_slice(error).map_err(io::Error::other)?)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a response has no known form")),
    }
}

/// Responds to the messages of a peer in order, until the connection ends, is idle for a long time, or `cancel`.
pub(crate) async fn serve(
    io: BoxIo,
    router: &Router,
    peer: &PeerIdentity,
    cancel: &CancellationToken,
) -> io::Result<()> {
    let mut frames = frames(io);
    loop {
        let request = tokio::select! {
            request = timeout(SERVED_IDLE_TIMEOUT, frames.next()) => request,
            () = cancel.cancelled() => return Ok(()),
        };
        let Ok(Some(request)) = request else { return Ok(()) };
        let call = router.call_bytes(LogCall::NAME, peer.clone(), cancel, request?.freeze());
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            // The peer has dropped the call, or sends a second request before the first response.
            _ = frames.next() => return Ok(()),
            () = cancel.cancelled() => return Ok(()),
        };
        frames.send(response(answer)?).await?;
    }
}

fn response(answer: Result<Bytes, RpcError>) -> io::Result<Bytes> {
    let (first, rest) = match answer {
        Ok(answer) => (ANSWERED, answer),
        Err(error) => (FAILED, rmp_serde::to_vec_named(&error).map_err(io::Error::other)?.into()),
    };
    let mut response = BytesMut::with_capacity(1 + rest.len());
    response.put_u8(first);
    response.extend_from_slice(&rest);
    Ok(response.freeze())
}
