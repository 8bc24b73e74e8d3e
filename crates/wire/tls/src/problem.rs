//! The causes of failed handshakes, in plain words for users.

use rustls::{AlertDescription, CertificateError, Error};
use std::fmt;
use std::io;

/// The kind of problem, for callers that suggest a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// No trusted authority has signed the other side's certificate.
    UnknownAuthority,
    /// The other side's certificate is for other names.
    WrongName,
    /// The other side's certificate has expired or is not valid yet.
    Expired,
    /// The other side requires a certificate of this side.
    CertificateRequired,
    /// The other side refuses this side's certificate.
    CertificateRefused,
    /// The other side does not use TLS.
    NoTls,
    /// Another problem; the error's text describes it.
    Other,
}

/// A failed handshake: the inner error of the [`io::Error`] that a connection returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The kind of problem.
    pub problem: Problem,
    words: String,
}

impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Handshake {}

impl Handshake {
    /// Returns the failed handshake within an error of a connection, if there is one.
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    pub(crate) fn new(error: &Error) -> Self {
        let (problem, words) = match error {
            Error::InvalidCertificate(error) => of_certificate(error),
            Error::NoCertificatesPresented => {
                (Problem::Other, "the other side showed no certificate".to_owned())
            }
            Error::AlertReceived(alert) => of_alert(*alert),
            Error::InvalidMessage(_) => {
                (Problem::NoTls, "the other side does not speak TLS there".to_owned())
            }
            other => (Problem::Other, other.to_string()),
        };
        Self { problem, words }
    }
}

fn of_certificate(error: &CertificateError) -> (Problem, String) {
    use CertificateError as E;
    match error {
        // An authority with the same name but another key counts as another authority.
        E::UnknownIssuer | E::BadSignature => (
            Problem::UnknownAuthority,
            "its certificate is signed by an authority that is not trusted here".to_owned(),
        ),
        E::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
            (Problem::Other, "it shows the certificate of an authority as its own".to_owned())
        }
        E::NotValidForName => (Problem::WrongName, "its certificate is for another name".to_owned()),
        E::NotValidForNameContext { expected, presented } => {
            let words = match presented.as_slice() {
                [] => format!("its certificate has no names, not even {}", expected.to_str()),
                names => {
                    let found: Vec<String> = names.iter().map(|name| plain(name)).collect();
                    format!("its certificate is for {}, not for {}", found.join(", "), expected.to_str())
                }
            };
            (Problem::WrongName, words)
        }
        E::Expired | E::ExpiredContext { .. } => (Problem::Expired, "its certificate has expired".to_owned()),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            (Problem::Expired, "its certificate is not valid yet".to_owned())
        }
        other => (Problem::Other, format!("its certificate cannot be trusted: {other}")),
    }
}

/// Returns a name without the kind of the name, which rustls adds.
pub(crate) fn plain(name: &str) -> String {
    match name.split_once('(') {
        Some((_, rest)) => rest.trim_matches(['"', ')']).to_owned(),
        None => name.to_owned(),
    }
}

fn of_alert(alert: AlertDescription) -> (Problem, String) {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => {
            (Problem::CertificateRequired, "the other side wants a certificate of this one".to_owned())
        }
        A::BadCertificate
        | A::UnknownCA
        | A::CertificateUnknown
        | A::UnsupportedCertificate
        | A::CertificateExpired
        | A::CertificateRevoked
        | A::AccessDenied => (
            Problem::CertificateRefused,
            format!("the other side does not take this one's certificate ({alert:?})"),
        ),
        A::ProtocolVersion => (Problem::Other, "there is no version of TLS that both sides speak".to_owned()),
        A::HandshakeFailure => (Problem::Other, "there is no cipher suite that both sides know".to_owned()),
        other => (Problem::Other, format!("the other side ends the handshake: {other:?}")),
    }
}

/// Converts an error caused by TLS to a [`Handshake`] with plain words; other errors stay unchanged.
pub(crate) fn describe(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner.map(Handshake::new) {
        Some(handshake) => io::Error::new(error.kind(), handshake),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the other side ended the connection during the handshake")
        }
        None => error,
    }
}
