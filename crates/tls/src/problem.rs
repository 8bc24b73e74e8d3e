//! Why two sides did not come to terms, in words for people.

use rustls::{AlertDescription, CertificateError, Error};
use std::fmt;
use std::io;

/// What kind of problem it is, for whoever can say what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The other side's certificate is signed by nobody who is trusted here.
    UnknownAuthority,
    /// The other side's certificate is for other names.
    WrongName,
    /// The other side's certificate is too old or too new.
    Expired,
    /// The other side wants a certificate of this one.
    CertificateWanted,
    /// The other side does not take this one's certificate.
    CertificateRefused,
    /// The other side does not speak TLS.
    NoTls,
    /// Anything else.
    Other,
}

/// A handshake that failed. It is the inner error of the [`io::Error`] that connections fail with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// The kind.
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
    /// The failed handshake within an error of a connection.
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
        // An authority of the same name with another key is another one.
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
                    format!("its certificate is for {}, not for {}", plain(names), expected.to_str())
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

/// Names as people write them: rustls shows where in the certificate they stand.
fn plain(names: &[String]) -> String {
    let bare = |name: &String| match name.split_once('(') {
        Some((_, rest)) => rest.trim_matches(['"', ')']).to_owned(),
        None => name.clone(),
    };
    names.iter().map(bare).collect::<Vec<_>>().join(", ")
}

fn of_alert(alert: AlertDescription) -> (Problem, String) {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => {
            (Problem::CertificateWanted, "the other side wants a certificate of this one".to_owned())
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

/// The same error, in words for people where TLS is its cause.
pub(crate) fn told(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner.map(Handshake::new) {
        Some(handshake) => io::Error::new(error.kind(), handshake),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the other side ended the connection during the handshake")
        }
        None => error,
    }
}
