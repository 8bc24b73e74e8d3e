//! The client's settings: the agent's address, the caller's credentials and defaults.

use crate::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// Plain HTTP over TCP.
    Tcp {
        /// The host name or IP address, without brackets.
        host: String,
        /// The TCP port.
        port: u16,
    },
    /// HTTP over TLS over TCP.
    Tls {
        /// The host name or IP address, without brackets.
        host: String,
        /// The TCP port.
        port: u16,
    },
    /// Plain HTTP over the Unix socket at this path.
    Unix(PathBuf),
}

impl Address {
    /// The port of an agent when the address has none.
    pub const DEFAULT_PORT: u16 = 4646;
}

impl Default for Address {
    fn default() -> Self {
        Self::Tcp { host: "127.0.0.1".into(), port: Self::DEFAULT_PORT }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Tls { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Tls { host, port } => write!(f, "https://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Parses `http://host[:port]`, `https://host[:port]` or `unix:///path`; ignores a path after the port.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |reason| Error::Address { address: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("unix://") {
            return match path {
                "" => Err(bad("the path of the socket is missing")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let (rest, tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(bad("it must start with http://, https:// or unix://")),
        };
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| bad("a bracket is not closed"))?;
                (host, port.strip_prefix(':'))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        if host.is_empty() {
            return Err(bad("the host is missing"));
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| bad("the port is not a number from 0 to 65535"))?,
            None => Self::DEFAULT_PORT,
        };
        let host = host.to_owned();
        Ok(if tls { Self::Tls { host, port } } else { Self::Tcp { host, port } })
    }
}

/// A secret that is sent in a header. `Debug` hides the secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

/// The certificates for `https` addresses. The files are read at the first connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The file of the authorities that sign agents. Without this file and `ca_path`, the host's public authorities
    /// apply.
    pub ca_file: Option<PathBuf>,
    /// The directory of authority files; `ca_file` takes precedence.
    pub ca_path: Option<PathBuf>,
    /// The file of the client certificate, for agents that require one.
    pub cert_file: Option<PathBuf>,
    /// The file of the private key of the client certificate.
    pub key_file: Option<PathBuf>,
    /// The name that the agent's certificate must have; absent means the host of the address.
    pub server_name: Option<String>,
    /// Whether any certificate is accepted. A machine between client and agent can then read all traffic, including
    /// the token.
    pub skip_verify: bool,
}

impl Tls {
    pub(crate) fn settings(&self) -> caravan_tls::ClientSettings {
        use caravan_tls::Checked;
        caravan_tls::ClientSettings {
            ca_file: self.ca_file.clone(),
            ca_path: self.ca_path.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            checked: match &self.server_name {
                _ if self.skip_verify => Checked::Nothing,
                Some(name) => Checked::Name(name.clone()),
                None => Checked::Host,
            },
            ..caravan_tls::ClientSettings::default()
        }
    }
}

/// The settings by which a [`crate::Client`] reaches its agent, and the defaults of its calls.
///
/// Every call sends the region, namespace and token unless its options override them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// The address of the agent.
    pub address: Address,
    /// The trusted authorities and the client certificate for an `https` address.
    pub tls: Tls,
    /// The region; absent means the agent's own.
    pub region: Option<String>,
    /// The namespace; absent means `default`.
    pub namespace: Option<String>,
    /// The policy for retries of reads after a transient failure; by default, reads are not retried.
    pub retry: crate::retry::Retry,
    /// The ACL token; absent for anonymous calls.
    pub token: Option<Token>,
    /// `user:password` for a proxy in front of the agent.
    pub http_auth: Option<Token>,
}

impl Config {
    /// Returns the settings of this process's environment: `CARAVAN_ADDR`, `CARAVAN_REGION`,
    /// `CARAVAN_NAMESPACE`, `CARAVAN_TOKEN` and `CARAVAN_HTTP_AUTH`, for TLS `CARAVAN_CACERT`, `CARAVAN_CAPATH`,
    /// `CARAVAN_CLIENT_CERT`, `CARAVAN_CLIENT_KEY`, `CARAVAN_TLS_SERVER_NAME` and `CARAVAN_SKIP_VERIFY`. If one
    /// is not set, the variable with the prefix `NOMAD_` applies (docs/reference/http-api.md, section 7).
    ///
    /// # Errors
    /// Fails if the address is not valid.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    /// Returns the settings as [`Config::from_env`] does, with `lookup` as the source of variables.
    ///
    /// # Errors
    /// Fails if the address is not valid.
    pub fn from_vars(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let get = |name: &str| {
            ["CARAVAN", "NOMAD"]
                .iter()
                .find_map(|prefix| lookup(&format!("{prefix}_{name}")).filter(|value| !value.is_empty()))
        };
        Ok(Self {
            address: get("ADDR").map(|text| text.parse()).transpose()?.unwrap_or_default(),
            tls: Tls {
                ca_file: get("CACERT").map(PathBuf::from),
                ca_path: get("CAPATH").map(PathBuf::from),
                cert_file: get("CLIENT_CERT").map(PathBuf::from),
                key_file: get("CLIENT_KEY").map(PathBuf::from),
                server_name: get("TLS_SERVER_NAME"),
                // A value that is not a boolean is ignored, as in Nomad.
                skip_verify: get("SKIP_VERIFY")
                    .is_some_and(|text| matches!(text.as_str(), "1" | "t" | "T" | "TRUE" | "true" | "True")),
            },
            region: get("REGION"),
            namespace: get("NAMESPACE"),
            retry: crate::retry::Retry::default(),
            token: get("TOKEN").map(Token::new),
            http_auth: get("HTTP_AUTH").map(Token::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:4646", "http://127.0.0.1:4646"),
            ("http://box", "http://box:4646"),
            ("http://[::1]:80/x", "http://[::1]:80"),
            ("https://box:1/x", "https://box:1"),
            ("https://[::1]", "https://[::1]:4646"),
            ("unix:///run/api.sock", "unix:///run/api.sock"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn bad_addresses_are_reported_in_a_sentence() {
        for (text, part) in [
            ("not a url", "must start with"),
            ("https://x:y", "port"),
            ("http://:1", "host"),
            ("http://x:99999", "port"),
            ("unix://", "path"),
            ("http://[::1", "bracket"),
        ] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(text), "{message}");
        }
    }

    #[test]
    fn own_variables_win_over_the_older_names() {
        let vars = |name: &str| match name {
            "CARAVAN_ADDR" => Some("http://a:1".to_owned()),
            "NOMAD_ADDR" => Some("http://b:2".to_owned()),
            "NOMAD_REGION" => Some("mars".to_owned()),
            "NOMAD_TOKEN" => Some("hunter2".to_owned()),
            "NOMAD_CACERT" => Some("/ca.pem".to_owned()),
            "NOMAD_SKIP_VERIFY" => Some("true".to_owned()),
            "CARAVAN_TLS_SERVER_NAME" => Some("server.mars.nomad".to_owned()),
            _ => None,
        };
        let config = Config::from_vars(vars).unwrap();
        assert_eq!(config.address.to_string(), "http://a:1");
        assert_eq!(config.region.as_deref(), Some("mars"));
        assert!(!format!("{config:?}").contains("hunter2"));
        assert_eq!(config.tls.ca_file.as_deref(), Some(std::path::Path::new("/ca.pem")));
        assert_eq!(config.tls.server_name.as_deref(), Some("server.mars.nomad"));
        assert!(config.tls.skip_verify);
    }
}
