//! Connections, encrypted or not, behind one type.

use crate::error::TlsError;
use crate::problem;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// What both sides call HTTP/2 while they shake hands.
pub(crate) const HTTP2: &[u8] = b"h2";

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// As the network has it.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
    /// A socket of this machine, which nobody can listen to on the way.
    Unix(UnixStream),
}

/// What the other side of a connection proved to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    /// Whether it is for a name, `server.global.nomad`.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub fn is_for(&self, name: &str) -> Result<bool, TlsError> {
        let wanted = ServerName::try_from(name).map_err(|_| TlsError::Name(name.to_owned()))?;
        // The handshake has read it before.
        let Ok(parsed) = ParsedCertificate::try_from(&self.0) else { return Ok(false) };
        Ok(verify_server_name(&parsed, &wanted).is_ok())
    }
}

impl Stream {
    /// Whether it is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether both sides agreed on HTTP/2 while they shook hands.
    pub fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(HTTP2),
        }
    }

    /// The certificate that the other side showed and proved to have.
    pub fn certificate(&self) -> Option<Certificate> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::Tls(stream) => {
                let shown = stream.get_ref().1.peer_certificates()?.first()?;
                Some(Certificate(shown.clone().into_owned()))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            // With TLS 1.3 what the other side thinks of our certificate comes only now.
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf).map_err(|error| {
                if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
                    problem::told(error)
                } else {
                    error
                }
            }),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
