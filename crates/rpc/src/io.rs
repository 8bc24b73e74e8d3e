//! Where bytes come from: TCP now, TLS over it through the same two traits later.

use std::fmt;
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection that carries bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Any connection.
pub type BoxIo = Box<dyn Io>;

/// Opens connections to `host:port`.
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Connects to `target`.
    ///
    /// # Errors
    /// What the system or the handshake said.
    fn connect<'a>(&'a self, target: &'a str) -> BoxFuture<'a, io::Result<BoxIo>>;
}

/// Turns an accepted TCP connection into one to talk over.
pub trait Acceptor: fmt::Debug + Send + Sync + 'static {
    /// Takes `stream` over.
    ///
    /// # Errors
    /// What the handshake said.
    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<BoxIo>>;
}

/// Plain TCP, outgoing.
#[derive(Debug, Clone, Copy)]
pub struct TcpConnector {
    /// How long to try one target.
    pub timeout: Duration,
}

impl Default for TcpConnector {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5) }
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, target: &'a str) -> BoxFuture<'a, io::Result<BoxIo>> {
        Box::pin(async move {
            let stream = tokio::time::timeout(self.timeout, TcpStream::connect(target))
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"))??;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxIo)
        })
    }
}

/// Plain TCP, incoming.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpAcceptor;

impl Acceptor for TcpAcceptor {
    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<BoxIo>> {
        Box::pin(async move {
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxIo)
        })
    }
}
