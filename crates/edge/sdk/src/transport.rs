//! Connections to an agent: TCP with or without TLS, or a unix socket, behind one type.

use crate::config::{Address, Tls};
use bytes::Bytes;
use caravan_tls::{Handshake, Problem, Stream};
use http_body_util::Full;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pool of connections to one agent.
pub(crate) type Pool = Client<Connector, Full<Bytes>>;

/// Creates the connection pool for an agent.
pub(crate) fn pool(target: Arc<Target>) -> Pool {
    Client::builder(TokioExecutor::new()).build(Connector(target))
}

/// The address of an agent and its TLS settings.
#[derive(Debug)]
pub(crate) struct Target {
    address: Address,
    tls: Tls,
    connector: OnceLock<caravan_tls::Connector>,
}

impl Target {
    pub(crate) fn new(address: Address, tls: Tls) -> Arc<Self> {
        Arc::new(Self { address, tls, connector: OnceLock::new() })
    }

    /// Reads the certificates at the first use.
    fn tls(&self) -> io::Result<caravan_tls::Connector> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector.clone());
        }
        let made = caravan_tls::Connector::new(&self.tls.settings()).map_err(io::Error::other)?;
        Ok(self.connector.get_or_init(|| made).clone())
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> io::Result<Io> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.open()).await {
            Ok(connected) => Ok(Io(TokioIo::new(connected?))),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer within 10s")),
        }
    }

    async fn open(&self) -> io::Result<Stream> {
        let tcp = async |host: &str, port| {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(stream)
        };
        match &self.address {
            Address::Tcp { host, port } => Ok(Stream::Plain(tcp(host, *port).await?)),
            Address::Tls { host, port } => self.tls()?.connect(host, tcp(host, *port).await?).await,
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        }
    }
}

/// Describes a connection error, with advice on how to fix it.
pub(crate) fn describe(error: &io::Error) -> String {
    let advice = match Handshake::within(error).map(|handshake| handshake.problem) {
        Some(Problem::UnknownAuthority) => {
            "name the file of its CA's certificate by CARAVAN_CACERT or -ca-cert"
        }
        Some(Problem::WrongName) => {
            "name the name that is expected in it by CARAVAN_TLS_SERVER_NAME or -tls-server-name"
        }
        Some(Problem::CertificateRequired) => {
            "name the files of one and of its key by CARAVAN_CLIENT_CERT and CARAVAN_CLIENT_KEY, or -client-cert and \
             -client-key"
        }
        Some(Problem::NoTls) => "use an address with http://",
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

/// A connector to one agent, independent of the URI of the request.
#[derive(Clone, Debug)]
pub(crate) struct Connector(Arc<Target>);

impl tower_service::Service<Uri> for Connector {
    type Response = Io;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Io>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let target = Arc::clone(&self.0);
        Box::pin(async move { target.connect().await })
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Io(TokioIo<Stream>);

impl Connection for Io {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
