//! Connections that stay open, for measurements with many requests.

use anyhow::{Context, Result, ensure};
use caravan_testkit::Agent;
use futures::future::try_join_all;
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// The timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `one` for each number below `count` at the same time, on this thread, and returns the results. The servers
/// share the processors with the bench: a thread for each connection would cost them a switch for each request.
pub(super) fn concurrently<T, F>(count: usize, one: impl Fn(usize) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    alone(try_join_all((0..count).map(one)))
}

/// Runs a single future on this thread.
pub(super) fn alone<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    Builder::new_current_thread().enable_all().build()?.block_on(future)
}

pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(agent: &Agent) -> Result<Self> {
        Self::to(&agent.address()).await
    }

    pub(super) async fn to(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        let stream = BufReader::with_capacity(64 * 1024, stream);
        Ok(Self { stream, line: String::new(), body: Vec::new() })
    }

    /// Sends a request and reads its answer. Returns the status.
    pub(super) async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<u16> {
        timeout(ANSWER_TIMEOUT, self.exchange(method, path, body))
            .await
            .with_context(|| format!("{method} {path}"))?
    }

    async fn exchange(&mut self, method: &str, path: &str, body: &str) -> Result<u16> {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        self.stream.write_all((head + body).as_bytes()).await?;
        let (mut status, mut length) = (None, None);
        loop {
            self.line.clear();
            ensure!(self.stream.read_line(&mut self.line).await? > 0, "the connection ended");
            let text = self.line.trim_end();
            if text.is_empty() {
                break;
            }
            if status.is_none() {
                status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
            } else if let Some((name, value)) = text.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.parse()?);
            }
        }
        self.body.resize(length.context("an answer without a length")?, 0);
        self.stream.read_exact(&mut self.body).await?;
        status.context("an answer without a status")
    }

    /// Sends a request whose answer must be a success.
    pub(super) async fn expect(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let status = self.send(method, path, body).await?;
        let answer = String::from_utf8_lossy(&self.body);
        ensure!(status == 200, "{method} {path} was answered {status}: {answer}");
        Ok(())
    }

    /// Writes a variable. Fails if the write is not acknowledged.
    pub(super) async fn write(&mut self, path: &str, value: &str) -> Result<()> {
        let body = format!(r#"{{"Items":{{"v":"{value}"}}}}"#);
        self.expect("PUT", &format!("/v1/var/{path}"), &body).await
    }
}
