//! The errors of requests.

use http::{StatusCode, Uri};
use std::io;
use std::net::SocketAddr;

/// The reason for which a request failed. The texts name no URL: callers have the URL, and a URL can contain a login.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL has no host.
    #[error("the URL names no host")]
    NoHost,
    /// The URL's scheme is neither `http` nor `https`.
    #[error("only http:// and https:// are supported")]
    Scheme {
        /// The requested URL, or the target of a redirect.
        url: Uri,
    },
    /// A header cannot be sent.
    #[error("the request cannot be sent")]
    Message {
        /// The reason that the header is refused.
        #[source]
        source: http::Error,
    },
    /// The host has no address.
    #[error("{host} has no address")]
    Lookup {
        /// The host's name.
        host: String,
    },
    /// The server does not accept connections.
    #[error("{address} cannot be reached")]
    Connect {
        /// The last address of the host.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The files of the authorities cannot be read.
    #[error(transparent)]
    Trust(#[from] caravan_tls::TlsError),
    /// The certificate of the server is refused, or the server does not speak TLS.
    #[error("{address} cannot be trusted")]
    Handshake {
        /// The address of the server.
        address: SocketAddr,
        /// The error of the handshake.
        #[source]
        source: io::Error,
    },
    /// The server was silent for too long.
    #[error("{address} does not answer")]
    Silent {
        /// The server's host and port.
        address: String,
    },
    /// The connection broke, or the server does not speak HTTP/1.1.
    #[error("the connection failed")]
    Http(#[from] hyper::Error),
    /// A redirect has no target.
    #[error("the server redirects with status {status}, but names no target")]
    NoTarget {
        /// The status of the redirect.
        status: StatusCode,
    },
    /// The target of a redirect is not a URL.
    #[error("the server redirects to an invalid URL")]
    BadTarget {
        /// The text of the header `Location`.
        target: String,
    },
    /// A redirect leads from HTTPS to HTTP.
    #[error("the server redirects to {to}, which is not encrypted")]
    Downgrade {
        /// The URL of the target.
        to: Uri,
    },
    /// The chain of redirects is too long.
    #[error("redirected more than {max} times")]
    TooManyRedirects {
        /// The maximum number of redirects.
        max: usize,
    },
    /// The body is larger than the limit.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
}
