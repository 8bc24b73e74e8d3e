//! TLS versions and cipher suites, with the names of the agent's configuration (docs/reference/jobspec.md, section
//! 11).

use crate::error::TlsError;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use std::sync::Arc;

static NEWEST: &[&SupportedProtocolVersion] = &[&TLS13];
static BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// The accepted versions and suites. The default is TLS 1.2 and 1.3 with all secure suites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Protocol {
    only_13: bool,
    /// Cipher suites of TLS 1.2; `None` means all. The suites of TLS 1.3 are all secure and always enabled.
    suites: Option<Vec<SupportedCipherSuite>>,
}

/// Returns the name of a suite in the form of Go and IANA.
fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite())
}

impl Protocol {
    /// Parses `tls_min_version` and `tls_cipher_suites` (names separated by commas); empty texts mean the defaults.
    ///
    /// `tls10` and `tls11` are accepted but mean TLS 1.2, the oldest supported version. See [`Protocol::raised`].
    ///
    /// # Errors
    /// If a name is unknown, or its suite is not secure.
    pub fn parse(min_version: &str, cipher_suites: &str) -> Result<Self, TlsError> {
        let only_13 = match min_version {
            "" | "tls10" | "tls11" | "tls12" => false,
            "tls13" => true,
            other => return Err(TlsError::Version(other.to_owned())),
        };
        let known: Vec<SupportedCipherSuite> =
            ring::ALL_CIPHER_SUITES.iter().copied().filter(|suite| suite.tls13().is_none()).collect();
        let mut suites = Vec::new();
        for name in cipher_suites.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            // Nomad's names of these suites omit the digest.
            let whole = if name.ends_with("POLY1305") { format!("{name}_SHA256") } else { name.to_owned() };
            match known.iter().find(|suite| name_of(suite) == whole) {
                Some(suite) => suites.push(*suite),
                None => {
                    let known: Vec<String> = known.iter().map(name_of).collect();
                    return Err(TlsError::Suite { name: name.to_owned(), known: known.join(", ") });
                }
            }
        }
        Ok(Self { only_13, suites: (!suites.is_empty()).then_some(suites) })
    }

    /// Returns whether a minimum version was raised because it is older than the oldest supported version.
    pub fn raised(min_version: &str) -> bool {
        matches!(min_version, "tls10" | "tls11")
    }

    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if self.only_13 { NEWEST } else { BOTH }
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        if let Some(suites) = &self.suites {
            let newest = provider.cipher_suites.iter().copied().filter(|suite| suite.tls13().is_some());
            provider.cipher_suites = newest.chain(suites.iter().copied()).collect();
        }
        Arc::new(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_suites_are_known_by_name() {
        for (version, count) in [("", 2), ("tls10", 2), ("tls12", 2), ("tls13", 1)] {
            assert_eq!(Protocol::parse(version, "").unwrap().versions().len(), count, "{version}");
        }
        let chosen = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305";
        let provider = Protocol::parse("tls12", chosen).unwrap().provider();
        let older: Vec<String> =
            provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).map(name_of).collect();
        let expected =
            ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"];
        assert_eq!(older, expected);
        assert_eq!(provider.cipher_suites.len(), 5);
        assert!(Protocol::raised("tls11") && !Protocol::raised("tls12"));
    }

    #[test]
    fn unknown_names_are_reported() {
        let reported = |version, suites| Protocol::parse(version, suites).unwrap_err().to_string();
        assert_eq!(reported("ssl3", ""), "tls_min_version \"ssl3\" is unknown: use tls12 or tls13");
        let reported = reported("", "TLS_RSA_WITH_AES_128_CBC_SHA");
        assert!(
            reported.contains("\"TLS_RSA_WITH_AES_128_CBC_SHA\" is not supported: use some of TLS_ECDHE_"),
            "{reported}"
        );
    }
}
