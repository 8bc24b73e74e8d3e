//! A connection that stays open, for measurements with many requests.

use anyhow::{Context, Result, ensure};
use caravan_testkit::Agent;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
}

impl Connection {
    pub(super) fn open(agent: &Agent) -> Result<Self> {
        Self::to(&agent.address())
    }

    pub(super) fn to(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let reader = BufReader::with_capacity(64 * 1024, stream.try_clone()?);
        Ok(Self { stream, reader, line: String::new(), body: Vec::new() })
    }

    /// Sends a request and reads its answer. Returns the status.
    pub(super) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<u16> {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        self.stream.write_all((head + body).as_bytes())?;
        let (mut status, mut length) = (None, None);
        loop {
            self.line.clear();
            ensure!(self.reader.read_line(&mut self.line)? > 0, "the connection ended");
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
        self.reader.read_exact(&mut self.body)?;
        status.context("an answer without a status")
    }

    /// Sends a request whose answer must be a success.
    pub(super) fn expect(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let status = self.send(method, path, body)?;
        let answer = String::from_utf8_lossy(&self.body);
        ensure!(status == 200, "{method} {path} was answered {status}: {answer}");
        Ok(())
    }

    /// Writes a variable. Fails if the write is not acknowledged.
    pub(super) fn write(&mut self, path: &str, value: &str) -> Result<()> {
        let body = format!(r#"{{"Items":{{"v":"{value}"}}}}"#);
        self.expect("PUT", &format!("/v1/var/{path}"), &body)
    }
}
