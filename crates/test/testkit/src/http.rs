//! A minimal HTTP client for tests, independent of the code under test.

use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers; names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Returns the body as JSON.
    ///
    /// # Errors
    /// Fails if the status is not 200 or the body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        if self.status != 200 {
            bail!("status {}: {}", self.status, self.text());
        }
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    /// Returns a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Sends one request on a new connection.
///
/// # Errors
/// Fails without a response in HTTP.
pub fn request(address: &str, method: &str, path: &str, body: Option<&serde_json::Value>) -> Result<Reply> {
    let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    request_over(stream, address, method, path, body)
}

/// A request with headers and a body.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The method.
    pub method: String,
    /// The path and query, escaped.
    pub path: String,
    /// The headers in addition to host, length and the end of the connection.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The time for which an endless response is read; the bytes until then are the response.
    pub patience: Option<Duration>,
}

/// Sends one request on an existing connection.
///
/// # Errors
/// Fails without a response in HTTP.
pub fn request_over(
    stream: TcpStream,
    address: &str,
    method: &str,
    path: &str,
    body: Option<&serde_json::Value>,
) -> Result<Reply> {
    let body = body.map(ToString::to_string).unwrap_or_default().into_bytes();
    send(stream, address, &Call { method: method.to_owned(), path: path.to_owned(), body, ..Call::default() })
}

/// Sends one request on an existing connection.
///
/// # Errors
/// Fails without a response in HTTP.
pub fn send(stream: TcpStream, address: &str, call: &Call) -> Result<Reply> {
    send_and(stream, address, call, || ())
}

/// Sends a request on a connection, and calls a function after the request and before the response.
///
/// # Errors
/// Fails without a response in HTTP.
pub fn send_and(
    mut stream: TcpStream,
    address: &str,
    call: &Call,
    meanwhile: impl FnOnce(),
) -> Result<Reply> {
    let deadline = call.patience.map(|patience| Instant::now() + patience);
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        call.method,
        call.path,
        call.body.len()
    );
    for (name, value) in &call.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    // A server that refuses a body may respond before the whole body was sent.
    let sent = stream.write_all(&call.body);
    meanwhile();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).or_else(|error| if sent.is_err() { Ok(0) } else { Err(error) })?;
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
    let mut body = Vec::new();
    let bodiless = call.method == "HEAD" || matches!(status, 204 | 304);
    let read = if bodiless {
        Ok(())
    } else if find("transfer-encoding") == Some("chunked") {
        chunks(&mut reader, &mut body, deadline)
    } else if let Some(length) = find("content-length").and_then(|v| v.parse().ok()) {
        body.resize(length, 0);
        reader.read_exact(&mut body).map_err(Into::into)
    } else {
        rest(&mut reader, &mut body, deadline)
    };
    match read {
        Err(error) if deadline.is_none_or(|deadline| Instant::now() < deadline) => Err(error),
        _ => Ok(Reply { status, headers, body }),
    }
}

/// Waits for the next bytes until the deadline. Returns whether bytes arrived.
fn wait(reader: &mut BufReader<TcpStream>, deadline: Option<Instant>) -> Result<bool> {
    if let Some(deadline) = deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        reader.get_ref().set_read_timeout(Some(left))?;
    }
    match reader.fill_buf() {
        Ok(bytes) => Ok(!bytes.is_empty()),
        Err(error)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) && deadline.is_some() =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn rest(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>, deadline: Option<Instant>) -> Result<()> {
    while wait(reader, deadline)? {
        let bytes = reader.buffer().len();
        body.extend_from_slice(reader.buffer());
        reader.consume(bytes);
    }
    Ok(())
}

fn chunks(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>, deadline: Option<Instant>) -> Result<()> {
    while wait(reader, deadline)? {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length =
            usize::from_str_radix(line.trim(), 16).with_context(|| format!("chunk length {line:?}"))?;
        let start = body.len();
        body.resize(start + length, 0);
        reader.read_exact(&mut body[start..])?;
        reader.read_line(&mut String::new())?;
        if length == 0 {
            break;
        }
    }
    Ok(())
}

/// Parses a response that ends with its connection and is not in chunks, like a response to HTTP/1.0.
pub(crate) fn parse(bytes: &[u8]) -> Result<Reply> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.with_context(|| format!("not an HTTP answer: {:?}", String::from_utf8_lossy(bytes)))?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.split_whitespace().nth(1)).and_then(|code| code.parse().ok());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    Ok(Reply {
        status: status.with_context(|| format!("no status in {head:?}"))?,
        headers: headers.collect(),
        body: bytes[end + 4..].to_vec(),
    })
}
