//! Programs that run in tasks, over a websocket (docs/reference/http-api.md, section 4.2).

use crate::access::{self, Parse};
use crate::call::Call;
use crate::error::ApiError;
use crate::exec::{self, ExecSession};
use crate::leader;
use crate::query::go_bool;
use crate::region;
use crate::relay;
use crate::reply::Reply;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use caravan_api::decode::decode;
use caravan_messages::{ExecIn, ExecOpen, ExecOut};
use caravan_types::acl::Secret;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, HOST, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

/// Timeout for the first message, which holds the token because browsers cannot send headers with a websocket.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The time in which the peer may read after the last message before the connection is dropped.
const LINGER: Duration = Duration::from_secs(1);

/// Maximum size of a message; terminals send little.
const MAX_MESSAGE: usize = 4 << 20;

/// Maximum length of the reason in a close frame.
const MAX_REASON: usize = 123;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Switches protocols. All later errors are sent over the websocket.
pub(crate) fn upgrade(call: Arc<Call>, parse: Parse, upgrade: Option<OnUpgrade>) -> Result<Reply, ApiError> {
    let key = accept(&call)?;
    let upgrade = upgrade.ok_or_else(|| ApiError::internal("this connection cannot become a websocket"))?;
    let asked = parse(&call);
    let handshake = call.query.get("ws_handshake").is_some_and(|text| go_bool(text) == Some(true));
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let config = WebSocketConfig::default()
                    .max_message_size(Some(MAX_MESSAGE))
                    .max_frame_size(Some(MAX_MESSAGE));
                let io = TokioIo::new(upgraded);
                let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
                run(socket, &call, asked, handshake).await;
            }
            Err(error) => tracing::debug!(%error, "a websocket could not be opened"),
        }
    });
    let mut reply = Reply::empty().status(StatusCode::SWITCHING_PROTOCOLS);
    reply.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    reply.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    reply.headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    Ok(reply)
}

/// Computes the answer to the client's key, if the request is a valid websocket handshake.
fn accept(call: &Call) -> Result<HeaderValue, ApiError> {
    let header = |name: &HeaderName| call.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let has = |name: &HeaderName, token: &str| {
        call.headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(token))
    };
    for (name, token) in [(CONNECTION, "upgrade"), (UPGRADE, "websocket")] {
        if !has(&name, token) {
            return Err(ApiError::internal("websocket connection not found in context"));
        }
    }
    if !has(&HeaderName::from_static("sec-websocket-version"), "13") {
        return Err(ApiError::internal(
            "websocket: unsupported version: 13 not found in 'Sec-Websocket-Version' header",
        ));
    }
    let origin = header(&ORIGIN);
    let from = origin.split_once("://").map_or("", |(_, host)| host);
    if !origin.is_empty() && !from.eq_ignore_ascii_case(header(&HOST)) {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "websocket: request origin not allowed"));
    }
    match header(&SEC_WEBSOCKET_KEY) {
        "" => Err(ApiError::internal(
            "websocket: not a websocket handshake: 'Sec-WebSocket-Key' header is missing",
        )),
        key => HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
            .map_err(|_| ApiError::internal("websocket: the key of the handshake cannot be answered")),
    }
}

/// Parses the parameters that all sessions have.
fn common(call: &Call) -> Result<ExecOpen, ApiError> {
    let tty = match call.query.text("tty") {
        "" => false,
        text => go_bool(text).ok_or_else(|| {
            ApiError::internal(format!(
                "tty value is not a boolean: strconv.ParseBool: parsing \"{text}\": invalid syntax"
            ))
        })?,
    };
    let task = call.query.text("task").to_owned();
    Ok(ExecOpen { task, tty, hops: call.hops, ..ExecOpen::default() })
}

/// Parses the request for a command in the allocation that the path names.
pub(crate) fn command(call: &Call) -> Result<ExecOpen, ApiError> {
    let open = common(call)?;
    let command: Vec<String> = decode(call.query.text("command").as_bytes())
        .map_err(|error| ApiError::internal(format!("failed to marshal command into json: {error}")))?;
    if open.task.is_empty() {
        return Err(ApiError::bad_request("must provide task name"));
    }
    if command.is_empty() {
        return Err(ApiError::bad_request("command is not present"));
    }
    Ok(ExecOpen { alloc: call.star(0).as_str().into(), command, ..open })
}

/// Parses the request for an action of the job that the path names.
pub(crate) fn action(call: &Call) -> Result<ExecOpen, ApiError> {
    let open = common(call)?;
    let (alloc, action) = (call.query.text("allocID"), call.query.text("action"));
    if alloc.is_empty() {
        return Err(ApiError::bad_request("must provide a valid alloc id"));
    }
    if action.is_empty() {
        return Err(ApiError::bad_request("must provide an action name"));
    }
    if open.task.is_empty() {
        return Err(ApiError::bad_request("must provide task name"));
    }
    Ok(ExecOpen { alloc: alloc.into(), action: action.to_owned(), job: call.star(0), ..open })
}

async fn run(mut socket: Socket, call: &Call, asked: Result<ExecOpen, ApiError>, handshake: bool) {
    let mut call = call.duplicate();
    let begun = match handshake {
        true => shake(&mut socket).await.and_then(|token| identify(&mut call, &token)),
        false => Ok(()),
    };
    let region = region::other(&call);
    let opened = async {
        begun?;
        let secret = Secret::new(access::secret(&call.headers));
        let open = ExecOpen { secret, region: region.clone().unwrap_or_default(), ..asked? };
        // The servers of another region check the caller's right.
        if region.is_none() {
            allowed(&call).await?;
        }
        exec::open(&call.state, open).await
    };
    match opened.await {
        Ok(session) => {
            let judged = region.is_none().then_some(&call);
            carry(socket, session, judged, &call.state.stopping).await;
        }
        Err(error) => refuse(socket, &error).await,
    }
}

/// Uses the token of a handshake for the request. Refuses a token that differs from the headers.
fn identify(call: &mut Call, token: &str) -> Result<(), ApiError> {
    match access::secret(&call.headers).as_str() {
        "" => {
            let token = HeaderValue::from_str(token).map_err(|_| access::denied())?;
            call.headers.insert(access::TOKEN, token);
            Ok(())
        }
        supplied if supplied == token || token.is_empty() => Ok(()),
        _ => Err(access::denied()),
    }
}

/// Checks whether the caller may run a command in the task.
async fn allowed(call: &Call) -> Result<(), ApiError> {
    match (&call.state.server, &call.state.relay) {
        (Some(server), _) => {
            let caller = leader::surely(server, || access::check(call, server)).await?;
            call.caller.store(Arc::new(caller));
            Ok(())
        }
        (None, Some(channel)) if call.state.acl => relay::authorized(call, channel).await,
        _ => Ok(()),
    }
}

/// Reads the first message of a browser: `{"version":1,"auth_token":"..."}`. Returns the token.
async fn shake(socket: &mut Socket) -> Result<String, ApiError> {
    let first = tokio::time::timeout(HANDSHAKE, socket.next()).await;
    let text = match first {
        Ok(Some(Ok(Message::Text(text)))) => text,
        _ => return Err(ApiError::bad_request("failed to read the handshake message")),
    };
    let message: Value = serde_json::from_str(&text)
        .map_err(|_| ApiError::bad_request("failed to parse the handshake message"))?;
    match message["version"].as_u64() {
        Some(1) => Ok(message["auth_token"].as_str().unwrap_or_default().trim().to_owned()),
        other => {
            Err(ApiError::bad_request(format!("unexpected handshake value: {}", other.unwrap_or_default())))
        }
    }
}

/// The end of a session.
enum End {
    /// The program ended, and all its output was sent.
    Reported,
    Failed(ApiError),
    /// The client disconnected.
    Gone,
}

/// Carries a session until it ends, `stopping` is cancelled, or the caller of `judged` may no longer run it.
async fn carry(
    mut socket: Socket,
    session: ExecSession,
    judged: Option<&Call>,
    stopping: &CancellationToken,
) {
    let mut lost = std::pin::pin!(async {
        match judged {
            Some(call) => relay::lost(call).await,
            None => std::future::pending().await,
        }
    });
    let ExecSession { input, mut output } = session;
    let mut input = Some(input);
    let end = loop {
        tokio::select! {
            () = stopping.cancelled() => {
                break End::Failed(ApiError::internal("the agent is shutting down"));
            }
            error = &mut lost => break End::Failed(error),
            item = output.next() => match item {
                Some(Ok(event)) => {
                    let over = matches!(event, ExecOut::Exited(_));
                    let text = shown(&event).to_string();
                    if socket.send(Message::text(text)).await.is_err() {
                        break End::Gone;
                    }
                    if over {
                        break End::Reported;
                    }
                }
                Some(Err(error)) => break End::Failed(error),
                None => {
                    break End::Failed(ApiError::internal("the program's session broke off"));
                }
            },
            message = async {
                exec::room(input.as_ref()).await;
                socket.next().await
            } => {
                let text = match message {
                    Some(Ok(Message::Text(text))) => text,
                    Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break End::Gone,
                };
                match read(&text) {
                    Ok(Some(message)) => if let Some(to) = &input && to.try_send(message).is_err() {
                        // The program closed its input; its result arrives as an answer.
                        input = None;
                    },
                    Ok(None) => {}
                    Err(text) => break End::Failed(ApiError::bad_request(text)),
                }
            }
        }
    };
    match end {
        End::Reported => linger(socket).await,
        End::Failed(error) => refuse(socket, &error).await,
        End::Gone => {}
    }
}

/// Parses a message of the client; `{}` is a heartbeat.
fn read(text: &str) -> Result<Option<ExecIn>, String> {
    let message: Value =
        serde_json::from_str(text).map_err(|error| format!("a message is not JSON: {error}"))?;
    if let Some(size) = message.get("tty_size").filter(|size| !size.is_null()) {
        let side = |name: &str| size[name].as_u64().and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
        return Ok(Some(ExecIn::Resize { rows: side("height"), columns: side("width") }));
    }
    let Some(stdin) = message.get("stdin").filter(|stdin| !stdin.is_null()) else { return Ok(None) };
    if let Some(data) = stdin["data"].as_str().filter(|data| !data.is_empty()) {
        let data = STANDARD.decode(data).map_err(|_| "stdin is not base64".to_owned())?;
        return Ok(Some(ExecIn::Data(data)));
    }
    Ok((stdin["close"] == json!(true)).then_some(ExecIn::Close))
}

fn shown(event: &ExecOut) -> Value {
    match event {
        ExecOut::Stdout(data) => json!({"stdout": {"data": STANDARD.encode(data)}}),
        ExecOut::Stderr(data) => json!({"stderr": {"data": STANDARD.encode(data)}}),
        ExecOut::StdoutClosed => json!({"stdout": {"close": true}}),
        ExecOut::StderrClosed => json!({"stderr": {"close": true}}),
        ExecOut::Exited(0) => json!({"exited": true, "result": {}}),
        ExecOut::Exited(code) => json!({"exited": true, "result": {"exit_code": code}}),
    }
}

/// Closes the connection with a reason.
async fn refuse(mut socket: Socket, error: &ApiError) {
    let code =
        if error.status == StatusCode::INTERNAL_SERVER_ERROR { CloseCode::Error } else { CloseCode::Policy };
    let mut reason = error.message.clone();
    if reason.len() > MAX_REASON {
        let end = (0..=MAX_REASON).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        reason.truncate(end);
    }
    let frame = CloseFrame { code, reason: reason.into() };
    if socket.send(Message::Close(Some(frame))).await.is_ok() {
        linger(socket).await;
    }
}

/// Ends the connection without a close frame, as clients expect. Waits so that data in transit still arrives.
async fn linger(mut socket: Socket) {
    if socket.flush().await.is_err() {
        return;
    }
    let io = socket.get_mut();
    if io.shutdown().await.is_err() {
        return;
    }
    let drained = async {
        let mut rest = [0; 1024];
        while matches!(io.read(&mut rest).await, Ok(n) if n > 0) {}
    };
    // A peer that does not close is disconnected.
    let _ = tokio::time::timeout(LINGER, drained).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_client_are_read() {
        assert_eq!(read(r#"{"stdin":{"data":"aGkK"}}"#), Ok(Some(ExecIn::Data(b"hi\n".to_vec()))));
        assert_eq!(read(r#"{"stdin":{"close":true}}"#), Ok(Some(ExecIn::Close)));
        let size = r#"{"tty_size":{"height":24,"width":80}}"#;
        assert_eq!(read(size), Ok(Some(ExecIn::Resize { rows: 24, columns: 80 })));
        assert_eq!(read("{}"), Ok(None));
        assert!(read("nonsense").is_err() && read(r#"{"stdin":{"data":"%%"}}"#).is_err());
    }

    #[test]
    fn answers_are_those_of_the_record() {
        assert_eq!(
            shown(&ExecOut::Stdout(b"out\n".to_vec())).to_string(),
            r#"{"stdout":{"data":"b3V0Cg=="}}"#
        );
        assert_eq!(shown(&ExecOut::StderrClosed).to_string(), r#"{"stderr":{"close":true}}"#);
        assert_eq!(shown(&ExecOut::Exited(3)).to_string(), r#"{"exited":true,"result":{"exit_code":3}}"#);
        assert_eq!(shown(&ExecOut::Exited(0)).to_string(), r#"{"exited":true,"result":{}}"#);
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_sent_breaks_the_reader(text in ".*") {
            let _ = read(&text);
        }
    }
}
