//! Certificates and keys in PEM files.

use crate::error::TlsError;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};

const CERTIFICATE: &str = "certificate";
const AUTHORITY: &str = "CA certificate";
const KEY: &str = "private key";

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { what, path: path.to_owned(), source })
}

fn unusable(what: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File { what, path: path.to_owned(), reason: reason.to_string() }
}

fn chain_of(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| unusable(what, path, error))?;
    if certificates.is_empty() {
        return Err(unusable(what, path, "there is no certificate in it (PEM, \"BEGIN CERTIFICATE\")"));
    }
    Ok(certificates)
}

/// A certificate with its chain, and its key.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Reads a certificate and its key.
pub(crate) fn pair(cert: &Path, key: &Path) -> Result<Pair, TlsError> {
    let chain = chain_of(CERTIFICATE, cert)?;
    let text = read(KEY, key)?;
    // The error must not contain parts of the file.
    let private = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        unusable(KEY, key, "there is no key in it that is understood (PEM, PKCS #8, SEC1 or PKCS #1)")
    })?;
    Ok(Pair { chain, key: private })
}

/// Returns the error for a certificate and key that do not match.
pub(crate) fn mismatch(cert: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    let reason = match error {
        rustls::Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
        other => other.to_string(),
    };
    TlsError::Pair { cert: cert.to_owned(), key: key.to_owned(), reason }
}

/// Adds the authorities in a file.
pub(crate) fn authorities(path: &Path, roots: &mut RootCertStore) -> Result<(), TlsError> {
    for certificate in chain_of(AUTHORITY, path)? {
        roots.add(certificate).map_err(|error| unusable(AUTHORITY, path, error))?;
    }
    Ok(())
}

/// Adds the authorities in a text.
pub(crate) fn authorities_in(text: &str, roots: &mut RootCertStore) -> Result<(), TlsError> {
    let unusable = |reason: String| TlsError::Text { reason };
    let mut found = false;
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        found = true;
    }
    if found { Ok(()) } else { Err(unusable("there is no certificate in it".to_owned())) }
}

/// Adds the authorities in all files of a directory.
pub(crate) fn authorities_below(dir: &Path, roots: &mut RootCertStore) -> Result<(), TlsError> {
    let fail = |source| TlsError::Read { what: "directory of CA certificates", path: dir.to_owned(), source };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(unusable("directory of CA certificates", dir, "there is no file in it"));
    }
    files.iter().try_for_each(|file| authorities(file, roots))
}

/// Returns the host's public authorities: from SSL_CERT_FILE, SSL_CERT_DIR, or the usual locations of distributions.
pub(crate) fn public() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(TlsError::NoRoots { reason });
    }
    Ok(roots)
}
