//! What is wrong with files and settings.

use std::path::PathBuf;

/// Why certificates or settings cannot be used. Each names the file or the setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file or a directory cannot be read.
    #[error("the {what} {} cannot be read: {source}", path.display())]
    Read {
        /// What it is for, `CA certificate`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("the {what} {} cannot be used: {reason}", path.display())]
    File {
        /// What it is for.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A certificate of a setting is not what it should be.
    #[error("the CA certificate cannot be used: {reason}")]
    Text {
        /// Why.
        reason: String,
    },
    /// Certificate and key are from different pairs, or of an unknown kind.
    #[error("the certificate {} cannot be used with the key {}: {reason}", cert.display(), key.display())]
    Pair {
        /// File of the certificate.
        cert: PathBuf,
        /// File of its key.
        key: PathBuf,
        /// Why.
        reason: String,
    },
    /// One of two files that belong together.
    #[error("a {given} was given without a {missing}: both are needed")]
    Half {
        /// What there is.
        given: &'static str,
        /// What there is not.
        missing: &'static str,
    },
    /// The host has no certificates of public authorities.
    #[error(
        "no certificates of public authorities are found on this host ({reason}): install them, or name a file by SSL_CERT_FILE"
    )]
    NoRoots {
        /// What was tried.
        reason: String,
    },
    /// An unknown version.
    #[error("tls_min_version \"{0}\" is unknown: use tls12 or tls13")]
    Version(String),
    /// A suite that is unknown or not safe.
    #[error("tls_cipher_suites: \"{name}\" is not supported: use some of {known}")]
    Suite {
        /// As it was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// Something that cannot be the name of a host.
    #[error("\"{0}\" cannot be the name in a certificate")]
    Name(String),
    /// What rustls says about the settings as a whole.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}
