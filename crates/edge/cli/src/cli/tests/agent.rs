//! An agent that answers from a script over HTTP/1.1, with one request per connection.

use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A map from `METHOD /path?query` to status, index and body.
type Script = Arc<dyn Fn(&str) -> (u16, u64, String) + Send + Sync>;

/// A scripted agent, which stops with the test's runtime.
pub(super) struct Agent {
    address: String,
}

impl Agent {
    pub(super) async fn start(script: impl Fn(&str) -> (u16, u64, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let script: Script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script)));
            }
        });
        Self { address }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

async fn serve(mut stream: TcpStream, script: Script) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    let head = loop {
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break String::from_utf8_lossy(&request[..end]).into_owned();
        }
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
        .map_or(0, |text| text.parse().unwrap());
    while request.len() < head.len() + 4 + length {
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    let line = head.lines().next().unwrap_or_default();
    let uri = line.rsplit_once(' ').map_or(line, |(uri, _)| uri);
    let (status, index, body) = script(uri);
    let answer = format!(
        "HTTP/1.1 {status} X\r\nX-Nomad-Index: {index}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}
