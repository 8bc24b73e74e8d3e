//! The few lines of HTTP that tests need, independent of the code under test.

use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Errors
    /// If the status is not 200 or the body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        if self.status != 200 {
            bail!("status {}: {}", self.status, self.text());
        }
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Makes one request on a connection of its own.
///
/// # Errors
/// If nobody answers at the address, or not in HTTP.
pub fn request(address: &str, method: &str, path: &str, body: Option<&serde_json::Value>) -> Result<Reply> {
    let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    request_over(stream, address, method, path, body)
}

/// Makes one request on a connection that is there.
///
/// # Errors
/// If nobody answers on it, or not in HTTP.
pub fn request_over(
    mut stream: TcpStream,
    address: &str,
    method: &str,
    path: &str,
    body: Option<&serde_json::Value>,
) -> Result<Reply> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let body = body.map(ToString::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split_whitespace()
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| anyhow!("not an HTTP answer: {line:?}"))?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let body = if find("transfer-encoding") == Some("chunked") {
        chunks(&mut reader)?
    } else if let Some(length) = find("content-length").and_then(|v| v.parse().ok()) {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        body
    } else {
        let mut body = Vec::new();
        reader.read_to_end(&mut body)?;
        body
    };
    Ok(Reply { status, headers, body })
}

fn chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length =
            usize::from_str_radix(line.trim(), 16).with_context(|| format!("chunk length {line:?}"))?;
        let start = body.len();
        body.resize(start + length, 0);
        reader.read_exact(&mut body[start..])?;
        reader.read_line(&mut String::new())?;
        if length == 0 {
            return Ok(body);
        }
    }
}
