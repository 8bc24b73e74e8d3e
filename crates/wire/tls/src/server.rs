//! The listening side of TLS.

use crate::error::TlsError;
use crate::files;
use crate::problem;
use crate::protocol::Protocol;
use crate::stream::{HTTP1, HTTP2, Stream};
use arc_swap::ArcSwap;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

/// First byte of every TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 0x16;
/// The time in which the other side can read a refusal.
const LINGER: Duration = Duration::from_secs(1);

/// The certificate to present, and the clients to accept.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Certificate of this side, with its chain.
    pub cert_file: PathBuf,
    /// Private key of `cert_file`.
    pub key_file: PathBuf,
    /// File of the authorities that sign clients; if set, clients must present a certificate.
    pub client_ca: Option<PathBuf>,
    /// TLS versions and cipher suites.
    pub protocol: Protocol,
    /// Whether to offer HTTP/2 to clients that support it (ALPN).
    pub http2: bool,
}

/// The listening side, which encrypts accepted connections. Clones share their settings.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<ArcSwap<ServerConfig>>);

fn read(settings: &ServerSettings) -> Result<ServerConfig, TlsError> {
    let ServerSettings { cert_file, key_file, client_ca, protocol, http2 } = settings;
    let provider = protocol.provider();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(protocol.versions())
        .map_err(|error| TlsError::Setup(error.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            files::authorities(file, &mut roots)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| TlsError::Setup(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let pair = files::pair(cert_file, key_file)?;
    let mut config = builder
        .with_single_cert(pair.chain, pair.key)
        .map_err(|error| files::mismatch(cert_file, key_file, &error))?;
    if *http2 {
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    }
    Ok(config)
}

impl Acceptor {
    /// Creates an acceptor and reads its files.
    ///
    /// # Errors
    /// A file or setting that cannot be used.
    pub fn new(settings: &ServerSettings) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(read(settings)?))))
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// As [`Acceptor::new`]; the previous settings then stay in use.
    pub fn replace(&self, settings: &ServerSettings) -> Result<(), TlsError> {
        self.0.store(Arc::new(read(settings)?));
        Ok(())
    }

    /// Completes the handshake of an accepted connection. A connection whose first byte is not TLS is returned
    /// unencrypted and unread, and the caller decides about it. A refused client receives the reason.
    ///
    /// # Errors
    /// The network's error, or a [`crate::Handshake`].
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] != HANDSHAKE {
            return Ok(Stream::Plain(stream));
        }
        let config = self.0.load_full();
        match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(stream) => Ok(Stream::Tls(Box::new(TlsStream::Server(stream)))),
            Err((error, stream)) => {
                tokio::spawn(linger(stream));
                Err(problem::describe(error))
            }
        }
    }
}

/// Closes a connection so that the other side receives the last message: closing with unread received bytes would
/// discard it.
async fn linger(mut stream: TcpStream) {
    let talk = async {
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The other side may have disconnected already, which has no effect.
    let _ = tokio::time::timeout(LINGER, talk).await;
}
