//! The connecting side of TLS.

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

/// The checks of a server's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Checked {
    /// The authority, and the name of the host of the connection.
    #[default]
    Host,
    /// The authority, and the given name, independent of the host's name.
    Name(String),
    /// Only the authority.
    Authority,
    /// No check: every server is accepted.
    Nothing,
}

/// The authorities to trust, and the certificate to present.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientSettings {
    /// File of the authorities that sign servers. If neither this nor `ca_path` is set, the host's public authorities
    /// are used.
    pub ca_file: Option<PathBuf>,
    /// Directory of such files; `ca_file` takes precedence.
    pub ca_path: Option<PathBuf>,
    /// The certificates of the authorities, as PEM; if not empty, `ca_file` and `ca_path` are not read.
    pub ca_pem: Vec<String>,
    /// Certificate of this side, for servers that require one.
    pub cert_file: Option<PathBuf>,
    /// Private key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// The checks of a server's certificate.
    pub checked: Checked,
    /// TLS versions and cipher suites.
    pub protocol: Protocol,
    /// Whether to offer HTTP/2 (ALPN), which many gRPC servers require.
    pub http2: bool,
}

/// The connecting side, which encrypts connections. Clones share their settings.
#[derive(Clone, Debug)]
pub struct Connector {
    inner: Arc<ArcSwap<Inner>>,
    /// The name to check instead of the name in the settings.
    name: Option<ServerName<'static>>,
}

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
                return Err(TlsError::Half { present: "client certificate", missing: "client key" });
            }
            (None, Some(_)) => {
                return Err(TlsError::Half { present: "client key", missing: "client certificate" });
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
    /// Creates a connector and reads its files.
    ///
    /// # Errors
    /// A file or setting that cannot be used.
    pub fn new(settings: &ClientSettings) -> Result<Self, TlsError> {
        Ok(Self { inner: Arc::new(ArcSwap::from_pointee(Inner::read(settings)?)), name: None })
    }

    /// Returns a connector with the same settings, also later ones, that checks another name. The name has no effect
    /// while the settings check no name ([`Checked::Name`]).
    ///
    /// # Errors
    /// If the text cannot be a name in a certificate.
    pub fn named(&self, name: &str) -> Result<Self, TlsError> {
        let checked = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        Ok(Self { inner: self.inner.clone(), name: Some(checked) })
    }

    /// Creates a connector for web servers: the host's public authorities, and no certificate of this side.
    ///
    /// # Errors
    /// If the host has no public authorities.
    pub fn public() -> Result<Self, TlsError> {
        Self::new(&ClientSettings::default())
    }

    /// Connects to a port of a host and completes the handshake.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    pub async fn dial(&self, host: &str, port: u16) -> io::Result<Stream> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let stream = TcpStream::connect((bare, port)).await?;
        stream.set_nodelay(true)?;
        self.connect(bare, stream).await
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// As [`Connector::new`]; the previous settings then stay in use.
    pub fn replace(&self, settings: &ClientSettings) -> Result<(), TlsError> {
        self.inner.store(Arc::new(Inner::read(settings)?));
        Ok(())
    }

    /// Completes the handshake with `host`, a name or an address with or without brackets, over a connection to it.
    ///
    /// # Errors
    /// The network's error, or a [`crate::Handshake`].
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let inner = self.inner.load_full();
        let name = match &inner.name {
            Some(name) => self.name.as_ref().unwrap_or(name).clone(),
            None => {
                let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
                ServerName::try_from(bare.to_owned()).map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidInput, TlsError::Name(host.to_owned()))
                })?
            }
        };
        let connected = TlsConnector::from(Arc::clone(&inner.config)).connect(name, stream).await;
        Ok(Stream::Tls(Box::new(TlsStream::Client(connected.map_err(problem::describe)?))))
    }
}
