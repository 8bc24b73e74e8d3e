//! The side that connects.

use crate::error::TlsError;
use crate::files;
use crate::problem;
use crate::protocol::Protocol;
use crate::stream::{HTTP2, Stream};
use crate::verify::AnyName;
use arc_swap::ArcSwap;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

/// What is checked of a server's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Checked {
    /// Authority and the name of the host that is connected to.
    #[default]
    Host,
    /// Authority and this name, whatever the host is called.
    Name(String),
    /// The authority only.
    Authority,
    /// Nothing: whoever answers is believed.
    Nothing,
}

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSettings {
    /// File of the authorities that sign servers; the host's public ones where neither this nor `ca_path` is given.
    pub ca_file: Option<PathBuf>,
    /// Directory of such files; a `ca_file` wins.
    pub ca_path: Option<PathBuf>,
    /// The authorities themselves, as PEM; both others are not read then.
    pub ca_pem: Vec<String>,
    /// Certificate of this side, for servers that want one.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// What is checked.
    pub checked: Checked,
    /// Versions and suites.
    pub protocol: Protocol,
    /// Says that HTTP/2 will be spoken (ALPN), without which many servers of gRPC refuse.
    pub http2: bool,
}

/// Turns connections into encrypted ones, as the side that connected. Clones share their settings.
#[derive(Clone, Debug)]
pub struct Connector(Arc<ArcSwap<Inner>>);

#[derive(Debug)]
struct Inner {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Inner {
    fn read(settings: &ClientSettings) -> Result<Self, TlsError> {
        let provider = settings.protocol.provider();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(settings.protocol.versions())
            .map_err(|error| TlsError::Setup(error.to_string()))?;
        let any = |roots| Arc::new(AnyName { roots, provider });
        let builder = match &settings.checked {
            Checked::Host | Checked::Name(_) => builder.with_root_certificates(roots(settings)?),
            Checked::Authority => {
                builder.dangerous().with_custom_certificate_verifier(any(Some(roots(settings)?)))
            }
            Checked::Nothing => builder.dangerous().with_custom_certificate_verifier(any(None)),
        };
        let mut config = match (&settings.cert_file, &settings.key_file) {
            (Some(cert), Some(key)) => {
                let pair = files::pair(cert, key)?;
                builder
                    .with_client_auth_cert(pair.chain, pair.key)
                    .map_err(|error| files::mismatch(cert, key, &error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) => {
                return Err(TlsError::Half { given: "client certificate", missing: "client key" });
            }
            (None, Some(_)) => {
                return Err(TlsError::Half { given: "client key", missing: "client certificate" });
            }
        };
        if settings.http2 {
            config.alpn_protocols = vec![HTTP2.to_vec()];
        }
        let name = match &settings.checked {
            Checked::Name(name) => {
                Some(ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name.clone()))?)
            }
            _ => None,
        };
        Ok(Self { config: Arc::new(config), name })
    }
}

fn roots(settings: &ClientSettings) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if !settings.ca_pem.is_empty() {
        settings.ca_pem.iter().try_for_each(|text| files::authorities_in(text, &mut roots))?;
        return Ok(roots);
    }
    match (&settings.ca_file, &settings.ca_path) {
        (Some(file), _) => files::authorities(file, &mut roots)?,
        (None, Some(dir)) => files::authorities_below(dir, &mut roots)?,
        (None, None) => return files::public(),
    }
    Ok(roots)
}

impl Connector {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with which file or setting.
    pub fn new(settings: &ClientSettings) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(Inner::read(settings)?))))
    }

    /// For web servers: the host's public authorities, no certificate of our own.
    ///
    /// # Errors
    /// When the host knows no authorities.
    pub fn public() -> Result<Self, TlsError> {
        Self::new(&ClientSettings::default())
    }

    /// Opens a connection to a port of a host and comes to terms with it.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    pub async fn dial(&self, host: &str, port: u16) -> io::Result<Stream> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        self.connect(bare, stream).await
    }

    /// Reads the files again, for connections from now on.
    ///
    /// # Errors
    /// As [`Connector::new`]; then everything stays as it was.
    pub fn replace(&self, settings: &ClientSettings) -> Result<(), TlsError> {
        self.0.store(Arc::new(Inner::read(settings)?));
        Ok(())
    }

    /// Comes to terms with `host`, a name or an address with or without brackets, over a connection to it.
    ///
    /// # Errors
    /// What the network said, or a [`crate::Handshake`].
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let inner = self.0.load_full();
        let name = match &inner.name {
            Some(name) => name.clone(),
            None => {
                let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
                ServerName::try_from(bare.to_owned()).map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidInput, TlsError::Name(host.to_owned()))
                })?
            }
        };
        let connected = TlsConnector::from(Arc::clone(&inner.config)).connect(name, stream).await;
        Ok(Stream::Tls(Box::new(TlsStream::Client(connected.map_err(problem::told)?))))
    }
}
