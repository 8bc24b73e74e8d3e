//! A minimal websocket client (RFC 6455) for replays: text messages in both directions.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// The messages of a server on a websocket, or its refusal.
#[derive(Debug)]
pub struct Replies {
    pub status: u16,
    /// The headers; names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body of a refusal.
    pub body: String,
    /// The messages as the recordings store them.
    pub frames: Vec<Value>,
}

/// Opens a websocket, sends the messages, and reads until the server ends it.
pub fn talk(address: &str, path: &str, headers: &[(String, String)], messages: &[Value]) -> Result<Replies> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut head =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let first = lines.first().context("no answer")?;
    let status: u16 = first.split_whitespace().nth(1).context("no status")?.parse()?;
    let headers: Vec<(String, String)> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    if status != 101 {
        let length =
            headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, v)| v.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        return Ok(Replies { status, headers, body, frames: Vec::new() });
    }
    for message in messages {
        send(&mut stream, TEXT, message.to_string().as_bytes())?;
    }
    let mut frames = Vec::new();
    while let Some((code, payload)) = read(&mut reader)? {
        match code {
            TEXT => {
                let message: Value = serde_json::from_slice(&payload)?;
                if message != json!({}) {
                    frames.push(json!({"from": "server", "message": message}));
                }
            }
            PING => send(&mut stream, PING + 1, &payload)?,
            CLOSE => {
                let (code, reason) = payload.split_at_checked(2).unwrap_or((&[3, 237], &[]));
                let reason = String::from_utf8_lossy(reason);
                let code = u16::from_be_bytes([code[0], code[1]]);
                frames.push(json!({"from": "server", "close_code": code, "reason": reason}));
                break;
            }
            _ => {}
        }
    }
    Ok(Replies { status, headers, body: String::new(), frames })
}

/// Sends a frame. Clients must mask their frames; a mask of zeros keeps them readable.
fn send(stream: &mut TcpStream, code: u8, payload: &[u8]) -> Result<()> {
    let mut frame = vec![0x80 | code];
    match u8::try_from(payload.len()) {
        Ok(length) if length < 126 => frame.push(0x80 | length),
        _ => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(payload.len())?.to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    // The server may have closed the connection already; its earlier messages count.
    let _ = stream.write_all(&frame);
    Ok(())
}

/// Reads one frame; `None` at the end of the connection.
fn read(reader: &mut impl Read) -> Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 2];
    if reader.read_exact(&mut head).is_err() {
        return Ok(None);
    }
    if head[1] & 0x80 != 0 {
        bail!("a server does not mask");
    }
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            reader.read_exact(&mut length)?;
            u64::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            reader.read_exact(&mut length)?;
            u64::from_be_bytes(length)
        }
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length)?];
    reader.read_exact(&mut payload)?;
    Ok(Some((head[0] & 0x0f, payload)))
}
