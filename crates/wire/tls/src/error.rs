//! Errors of files and settings.

use std::path::PathBuf;

/// The reason for which certificates or settings cannot be used. Each error names the file or the setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file or a directory cannot be read.
    #[error("the {what} {} cannot be read: {source}", path.display())]
    Read {
        /// The purpose of the file, for example `CA certificate`.
        what: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The content of a file is not usable.
    #[error("the {what} {} cannot be used: {reason}", path.display())]
    File {
        /// The purpose of the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The reason that the content is not usable.
        reason: String,
    },
    /// A certificate in a setting is not usable.
    #[error("the CA certificate cannot be used: {reason}")]
    Text {
        /// The reason that the certificate is not usable.
        reason: String,
    },
    /// The certificate and the key do not match, or the key's kind is unknown.
    #[error("the certificate {} cannot be used with the key {}: {reason}", cert.display(), key.display())]
    Pair {
        /// File of the certificate.
        cert: PathBuf,
        /// File of its key.
        key: PathBuf,
        /// The reason that the two files cannot be used together.
        reason: String,
    },
    /// Only one of two files that belong together is set.
    #[error("a {present} was given without a {missing}: both are needed")]
    Half {
        /// The setting that is present.
        present: &'static str,
        /// The setting that is missing.
        missing: &'static str,
    },
    /// The host has no certificates of public authorities.
    #[error(
        "no certificates of public authorities are found on this host ({reason}): install them, or name a file by SSL_CERT_FILE"
    )]
    NoRoots {
        /// The locations that were tried.
        reason: String,
    },
    /// The TLS version is unknown.
    #[error("tls_min_version \"{0}\" is unknown: use tls12 or tls13")]
    Version(String),
    /// A cipher suite is unknown or not secure.
    #[error("tls_cipher_suites: \"{name}\" is not supported: use some of {known}")]
    Suite {
        /// The name in the setting.
        name: String,
        /// The known suites.
        known: String,
    },
    /// The text cannot be the name of a host.
    #[error("\"{0}\" cannot be the name in a certificate")]
    Name(String),
    /// rustls refused the combination of settings.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}
