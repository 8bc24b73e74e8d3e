//! Connections to an engine: one for each request, so that the engine may restart in between. The buffers are small,
//! because each running container has a connection for its output.

use bollard::BollardRequest;
use bollard::errors::Error;
use caravan_tls::Connector;
use http::header::HOST;
use http::{HeaderValue, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Bytes of the buffer for answers.
const READ_BUFFER: usize = 16 << 10;
/// The host of requests over a socket of this machine, which engines do not read.
const LOCAL_HOST: &str = "localhost";

/// Where an engine listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A port of a host, without encryption.
    Tcp {
        /// The name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A port of a host, over TLS.
    Tls {
        /// The name or address, which the engine's certificate must have.
        host: String,
        /// The port.
        port: u16,
        /// The certificates.
        connector: Connector,
    },
}

impl Address {
    /// Sends one request over a new connection.
    async fn send(self: Arc<Self>, mut request: BollardRequest) -> Result<Response<Incoming>, Error> {
        let host = match &*self {
            Self::Unix(_) => LOCAL_HOST.to_owned(),
            Self::Tcp { host, port } | Self::Tls { host, port, .. } => format!("{host}:{port}"),
        };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri = path.parse().map_err(|_| invalid("the path of a request"))?;
        *request.uri_mut() = uri;
        let host = HeaderValue::from_str(&host).map_err(|_| invalid("the name of the engine's host"))?;
        request.headers_mut().insert(HOST, host);
        match &*self {
            Self::Unix(path) => exchange(UnixStream::connect(path).await?, request).await,
            Self::Tcp { host, port } => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                let stream = TcpStream::connect((bare, *port)).await?;
                stream.set_nodelay(true)?;
                exchange(stream, request).await
            }
            Self::Tls { host, port, connector } => {
                exchange(connector.dial(host, *port).await?, request).await
            }
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::IOError { err: io::Error::new(io::ErrorKind::InvalidInput, format!("{what} cannot be sent")) }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: BollardRequest,
) -> Result<Response<Incoming>, Error> {
    let mut builder = http1::Builder::new();
    builder.read_buf_exact_size(Some(READ_BUFFER));
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // Ends with the answer, or when its reader is dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::trace!(%error, "a connection to the engine ended");
        }
    });
    Ok(sender.send_request(request).await?)
}

/// Returns the function that sends the requests of a client.
pub(crate) fn transport(
    address: Address,
) -> impl Fn(BollardRequest) -> futures::future::BoxFuture<'static, Result<Response<Incoming>, Error>>
+ Send
+ Sync
+ 'static {
    let address = Arc::new(address);
    move |request| Box::pin(Arc::clone(&address).send(request))
}
