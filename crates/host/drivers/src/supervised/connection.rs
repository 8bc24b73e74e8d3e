//! A connection to a shim, with a check that the shim is still the expected process.

use caravan_shim::protocol::{FrameBuffer, ProcessRef, Reply, Request, encode};
use caravan_shim::{Opening, SOCKET_FILE, VERSION};
use caravan_sys::socket::ShortPath;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A connection to a shim's control socket, after the handshake.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    buffer: FrameBuffer,
    shim: ProcessRef,
}

impl Connection {
    /// Connects to the shim that serves this directory, without a check of its identity.
    pub(super) async fn open(state_dir: &Path) -> io::Result<Self> {
        let path = ShortPath::new(&state_dir.join(SOCKET_FILE)).map_err(other)?;
        let stream = UnixStream::connect(path.path()).await?;
        let nobody = ProcessRef { pid: 0, start_time: 0 };
        let mut connection = Self { stream, buffer: FrameBuffer::default(), shim: nobody };
        connection.send(&Opening { version: VERSION }).await?;
        match connection.receive().await? {
            Reply::Welcome { shim, .. } => connection.shim = shim,
            Reply::Failed { message } => return Err(io::Error::new(io::ErrorKind::Unsupported, message)),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the shim's first answer is not a welcome",
                ));
            }
        }
        Ok(connection)
    }

    /// Connects to the shim of this directory, and fails if it is another process than `shim`.
    pub(super) async fn open_to(state_dir: &Path, shim: ProcessRef) -> io::Result<Self> {
        let connection = Self::open(state_dir).await?;
        if connection.shim == shim {
            Ok(connection)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "another shim serves the socket"))
        }
    }

    pub(super) fn shim(&self) -> ProcessRef {
        self.shim
    }

    pub(super) async fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let frame = encode(message).map_err(other)?;
        self.stream.write_all(&frame).await
    }

    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        receive(&mut self.stream, &mut self.buffer).await
    }

    pub(super) async fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.send(request).await?;
        self.receive().await
    }
}

/// Reads one message.
pub(super) async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncReadExt + Unpin),
    buffer: &mut FrameBuffer,
) -> io::Result<T> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(message) = buffer.take().map_err(other)? {
            return Ok(message);
        }
        match stream.read(&mut bytes).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => buffer.push(&bytes[..n]),
        }
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
