//! Encrypted and unencrypted connections behind one type.

use crate::error::TlsError;
use crate::problem;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// The name of HTTP/2 in the handshake (ALPN).
pub(crate) const HTTP2: &[u8] = b"h2";
/// The name of HTTP/1.1 in the handshake.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// An unencrypted TCP connection.
    Plain(TcpStream),
    /// An encrypted TCP connection.
    Tls(Box<TlsStream<TcpStream>>),
    /// A unix socket of this machine, which needs no encryption.
    Unix(UnixStream),
}

/// The certificate that the other side of a connection has proved to own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    /// Returns whether the certificate is valid for a name such as `server.global.nomad`.
    ///
    /// # Errors
    /// If the text cannot be a name.
    pub fn is_for(&self, name: &str) -> Result<bool, TlsError> {
        let desired = ServerName::try_from(name).map_err(|_| TlsError::Name(name.to_owned()))?;
        // The handshake has already parsed it successfully.
        let Ok(parsed) = ParsedCertificate::try_from(&self.0) else { return Ok(false) };
        Ok(verify_server_name(&parsed, &desired).is_ok())
    }

    /// Returns the names for which the certificate is valid, for messages.
    pub fn names(&self) -> Vec<String> {
        // rustls reports the names of a certificate that lacks the expected one. No certificate has this name
        // (RFC 6761, section 6.4).
        let Ok(absent) = ServerName::try_from("name.invalid") else { return Vec::new() };
        let Ok(parsed) = ParsedCertificate::try_from(&self.0) else { return Vec::new() };
        match verify_server_name(&parsed, &absent) {
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented, ..
            })) => presented.iter().map(|name| problem::plain(name)).collect(),
            _ => Vec::new(),
        }
    }
}

impl Stream {
    /// Returns whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Returns whether both sides agreed on HTTP/2 in the handshake.
    pub fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(HTTP2),
        }
    }

    /// Returns the certificate that the other side presented and proved to own.
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
            // With TLS 1.3, the other side's refusal of this side's certificate arrives only with the first read.
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf).map_err(|error| {
                if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
                    problem::describe(error)
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
