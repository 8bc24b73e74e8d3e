//! Programs that run in tasks, over a websocket (docs/reference/http-api.md, section 4.2).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, path};
use crate::transport;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::future::{Either, select};
use futures::stream::{SplitSink, SplitStream};
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::pin::pin;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

/// The program to run and the task to run it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// The name of the task.
    pub task: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the program has a terminal, which also receives its standard error.
    pub tty: bool,
}

/// A message to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for the program's standard input.
    Data(Vec<u8>),
    /// The end of the program's standard input.
    Close,
    /// A new size of the program's terminal.
    Resize {
        /// The number of lines.
        height: u16,
        /// The number of columns.
        width: u16,
    },
    /// A heartbeat of the client, without effect on the program.
    Alive,
}

/// A message from the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutput {
    /// Bytes of the program's standard output.
    Stdout(Vec<u8>),
    /// Bytes of the program's standard error.
    Stderr(Vec<u8>),
    /// The program ended with this exit code. This is the last message.
    Exited(i32),
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The sending half of a session with a program.
#[derive(Debug)]
pub struct ExecSender(SplitSink<Socket, Message>);

/// The receiving half of a session with a program.
#[derive(Debug)]
pub struct ExecReceiver(SplitStream<Socket>);

impl ExecSender {
    /// Sends a message to the program.
    ///
    /// # Errors
    /// Fails if the connection is closed.
    pub async fn send(&mut self, input: ExecInput) -> Result<(), Error> {
        let message = match input {
            ExecInput::Data(data) => json!({"stdin": {"data": BASE64.encode(data)}}),
            ExecInput::Close => json!({"stdin": {"close": true}}),
            ExecInput::Resize { height, width } => json!({"tty_size": {"height": height, "width": width}}),
            ExecInput::Alive => json!({}),
        };
        let sent = self.0.send(Message::text(message.to_string())).await;
        sent.map_err(|error| Error::Session {
            reason: format!("the connection to the program broke: {error}"),
        })
    }
}

impl ExecReceiver {
    /// Receives the next message of the program. [`ExecOutput::Exited`] is the last one.
    ///
    /// # Errors
    /// Fails with the agent's message if the program cannot be run, or if the connection breaks.
    pub async fn next(&mut self) -> Result<ExecOutput, Error> {
        loop {
            let text = match self.0.next().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| frame.reason.to_string()).unwrap_or_default();
                    return Err(Error::Session { reason });
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => {
                    let reason = format!("the connection to the program broke: {error}");
                    return Err(Error::Session { reason });
                }
                None => {
                    let reason = "the connection ended before the program did".to_owned();
                    return Err(Error::Session { reason });
                }
            };
            if let Some(output) = read(&text)? {
                return Ok(output);
            }
        }
    }
}

fn read(text: &str) -> Result<Option<ExecOutput>, Error> {
    let odd = || Error::Session { reason: "the agent sent something that is no message".to_owned() };
    let message: Value = serde_json::from_str(text).map_err(|_| odd())?;
    if message["exited"] == json!(true) {
        let code = message["result"]["exit_code"].as_i64().unwrap_or(0);
        return Ok(Some(ExecOutput::Exited(i32::try_from(code).unwrap_or(1))));
    }
    for (name, make) in [
        ("stdout", ExecOutput::Stdout as fn(Vec<u8>) -> ExecOutput),
        ("stderr", ExecOutput::Stderr as fn(Vec<u8>) -> ExecOutput),
    ] {
        if let Some(data) = message[name]["data"].as_str() {
            return BASE64.decode(data).map(|data| Some(make(data))).map_err(|_| odd());
        }
    }
    Ok(None)
}

impl Client {
    /// Runs a program in a task and exchanges messages with it while it runs.
    ///
    /// ```no_run
    /// use caravan_sdk::{Client, ExecInput, ExecOptions, ExecOutput, QueryOptions};
    /// # async fn example(client: Client, alloc: &str) -> Result<(), caravan_sdk::Error> {
    /// let options =
    ///     ExecOptions { task: "web".into(), command: vec!["uname".into(), "-a".into()], tty: false };
    /// let (mut to, mut from) = client.exec(alloc, &options, &QueryOptions::new()).await?;
    /// to.send(ExecInput::Close).await?;
    /// let code = loop {
    ///     match from.next().await? {
    ///         ExecOutput::Stdout(data) => print!("{}", String::from_utf8_lossy(&data)),
    ///         ExecOutput::Stderr(data) => eprint!("{}", String::from_utf8_lossy(&data)),
    ///         ExecOutput::Exited(code) => break code,
    ///     }
    /// };
    /// # let _ = code;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the agent cannot be reached or refuses the session. The receiver returns the error if the program
    /// cannot be run.
    pub async fn exec(
        &self,
        alloc: &str,
        options: &ExecOptions,
        query: &QueryOptions,
    ) -> Result<(ExecSender, ExecReceiver), Error> {
        let query = query
            .clone()
            .param("task", options.task.as_str())
            .param("tty", options.tty.to_string())
            .param("command", json!(options.command).to_string());
        self.socket(&path("/v1/client/allocation/{}/exec", &[alloc]), &query).await
    }

    /// Runs an action that the job file defines for a task, as [`Client::exec`] runs a program.
    ///
    /// # Errors
    /// As [`Client::exec`].
    pub async fn action(
        &self,
        job: &str,
        alloc: &str,
        (group, task, action): (&str, &str, &str),
        tty: bool,
        query: &QueryOptions,
    ) -> Result<(ExecSender, ExecReceiver), Error> {
        let query = query
            .clone()
            .param("allocID", alloc)
            .param("group", group)
            .param("task", task)
            .param("action", action)
            .param("tty", tty.to_string());
        self.socket(&path("/v1/job/{}/action", &[job]), &query).await
    }

    async fn socket(&self, path: &str, query: &QueryOptions) -> Result<(ExecSender, ExecReceiver), Error> {
        let mut request = self.request(Method::GET, path, query, &[], Bytes::new())?;
        // A websocket needs a connection outside the pool, whose request has only the path, not the whole URI.
        if let Some(target) = request.uri().path_and_query().cloned() {
            *request.uri_mut() = target.into();
        }
        let key = HeaderValue::from_str(&generate_key())
            .map_err(|source| Error::Request { path: path.to_owned(), source: source.into() })?;
        let headers = request.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, key);
        let broken = |source| self.broken(path, source);
        let io = self.target().connect().await.map_err(|error| Error::Session {
            reason: format!("cannot reach the agent at {}: {}", self.address(), transport::describe(&error)),
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
        // The task ends with the connection. The users of the connection report its failures.
        let connection = tokio::spawn(async move { drop(connection.with_upgrades().await) });
        // A request that is queued at the moment when the connection ends may be neither sent nor canceled: its
        // sender keeps the queue, and would wait forever.
        let answer = match select(pin!(sender.send_request(request)), connection).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right((_, sent)) => sent.now_or_never(),
        };
        let closed = || Error::Session { reason: "the agent closed the connection".to_owned() };
        let answer = answer.ok_or_else(closed)?.map_err(broken)?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = answer.status().as_u16();
            let body = answer.into_body().collect().await.map_err(broken)?.to_bytes();
            let body = String::from_utf8_lossy(&body).trim_end().to_owned();
            return Err(Error::Status { code, body, reason: None, problems: Vec::new() });
        }
        let upgraded = hyper::upgrade::on(answer).await.map_err(broken)?;
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
        let (to, from) = socket.split();
        Ok((ExecSender(to), ExecReceiver(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let read = |text| super::read(text).unwrap();
        assert_eq!(read(r#"{"stdout":{"data":"b3V0Cg=="}}"#), Some(ExecOutput::Stdout(b"out\n".to_vec())));
        assert_eq!(read(r#"{"stderr":{"data":"ZXJyCg=="}}"#), Some(ExecOutput::Stderr(b"err\n".to_vec())));
        assert_eq!(read(r#"{"stderr":{"close":true}}"#), None);
        assert_eq!(read(r#"{"exited":true,"result":{"exit_code":3}}"#), Some(ExecOutput::Exited(3)));
        assert_eq!(read(r#"{"exited":true,"result":{}}"#), Some(ExecOutput::Exited(0)));
        assert_eq!(read("{}"), None);
        assert!(super::read("x").is_err());
    }
}
