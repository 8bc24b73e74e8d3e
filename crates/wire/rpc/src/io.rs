//! The connections below RPC: TCP, or TLS over it.

use caravan_tls::Certificate;
use futures::future::BoxFuture;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection that carries bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A boxed connection of any kind.
pub type BoxIo = Box<dyn Io>;

/// An accepted connection.
pub struct Accepted {
    /// The connection.
    pub io: BoxIo,
    /// The certificate that the other side has proved; `None` without encryption or without a certificate.
    pub certificate: Option<Certificate>,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("certificate", &self.certificate.is_some()).finish_non_exhaustive()
    }
}

/// A part that opens connections to `host:port`.
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Connects to `target`.
    ///
    /// # Errors
    /// The error of the system or of the handshake.
    fn connect<'a>(&'a self, target: &'a str) -> BoxFuture<'a, io::Result<BoxIo>>;
}

/// A part that prepares an accepted TCP connection for RPC.
pub trait Acceptor: fmt::Debug + Send + Sync + 'static {
    /// Completes the handshake of `stream`, which the acceptor then owns.
    ///
    /// # Errors
    /// The error of the handshake.
    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<Accepted>>;
}

/// Plain TCP, outgoing.
#[derive(Clone, Copy, Debug)]
pub struct TcpConnector {
    /// The timeout of connecting to one target.
    pub timeout: Duration,
}

impl Default for TcpConnector {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5) }
    }
}

impl TcpConnector {
    async fn open(self, target: &str) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(self.timeout, TcpStream::connect(target)).await.map_err(late)??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, target: &'a str) -> BoxFuture<'a, io::Result<BoxIo>> {
        Box::pin(async move { Ok(Box::new(self.open(target).await?) as BoxIo) })
    }
}

/// TLS over TCP, outgoing. The handshake has the same timeout as connecting.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    /// The TCP connector.
    pub tcp: TcpConnector,
    /// Authorities to trust and the certificate to present.
    pub tls: caravan_tls::Connector,
}

impl Connector for TlsConnector {
    fn connect<'a>(&'a self, target: &'a str) -> BoxFuture<'a, io::Result<BoxIo>> {
        Box::pin(async move {
            let stream = self.tcp.open(target).await?;
            let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
            let shaking = tokio::time::timeout(self.tcp.timeout, self.tls.connect(host, stream));
            Ok(Box::new(shaking.await.map_err(late)??) as BoxIo)
        })
    }
}

/// TLS over TCP, incoming. A peer that does not use TLS is accepted too, without a certificate. The
/// [`Authenticator`](crate::Authenticator) then refuses it with a message that such a peer can read.
#[derive(Clone, Debug)]
pub struct TlsAcceptor(pub caravan_tls::Acceptor);

impl Acceptor for TlsAcceptor {
    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<Accepted>> {
        let tls = self.0.clone();
        Box::pin(async move {
            stream.set_nodelay(true)?;
            let stream = tls.accept(stream).await?;
            let certificate = stream.certificate();
            Ok(Accepted { io: Box::new(stream), certificate })
        })
    }
}

/// Plain TCP, incoming.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpAcceptor;

impl Acceptor for TcpAcceptor {
    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<Accepted>> {
        Box::pin(async move {
            stream.set_nodelay(true)?;
            Ok(Accepted { io: Box::new(stream), certificate: None })
        })
    }
}
