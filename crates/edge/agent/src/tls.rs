//! The agent's certificates: the configured files, and the certificates in use.

use crate::error::AgentError;
use arc_swap::ArcSwap;
use caravan_hcl::config::AgentConfig;
use caravan_rpc::{
    Certificate, Code, Hello, PeerIdentity, RpcError, TcpConnector, TlsAcceptor, TlsConnector,
};
use caravan_tls::{Acceptor, Checked, ClientSettings, Connector, Protocol, ServerSettings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// The `tls` block.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    pub(crate) http: bool,
    pub(crate) rpc: bool,
    verify_server_hostname: bool,
    verify_https_client: bool,
    rpc_upgrade_mode: bool,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    cipher_suites: String,
    min_version: String,
    protocol: Protocol,
}

fn bad(field: &'static str, reason: impl Into<String>) -> AgentError {
    AgentError::Setting { field, reason: reason.into() }
}

impl TlsSettings {
    /// Reads the `tls` block. The files are read later.
    pub(crate) fn from_config(file: &AgentConfig) -> Result<Self, AgentError> {
        let Some(tls) = &file.tls else { return Ok(Self::default()) };
        let path =
            |supplied: &Option<String>| supplied.clone().filter(|path| !path.is_empty()).map(PathBuf::from);
        let min_version = tls.tls_min_version.clone().unwrap_or_default();
        let cipher_suites = tls.tls_cipher_suites.clone().unwrap_or_default();
        let settings = Self {
            http: tls.http.unwrap_or(false),
            rpc: tls.rpc.unwrap_or(false),
            verify_server_hostname: tls.verify_server_hostname.unwrap_or(false),
            verify_https_client: tls.verify_https_client.unwrap_or(false),
            rpc_upgrade_mode: tls.rpc_upgrade_mode.unwrap_or(false),
            ca_file: path(&tls.ca_file),
            cert_file: path(&tls.cert_file),
            key_file: path(&tls.key_file),
            protocol: Protocol::parse(&min_version, &cipher_suites)?,
            cipher_suites,
            min_version,
        };
        let both = settings.cert_file.is_some() && settings.key_file.is_some();
        if (settings.http || settings.rpc) && !both {
            return Err(bad("tls", "cert_file and key_file must be set where http or rpc is on"));
        }
        if settings.rpc && settings.ca_file.is_none() {
            return Err(bad(
                "tls.ca_file",
                "it must be set where rpc is on: agents prove to each other who they are",
            ));
        }
        if settings.http && settings.verify_https_client && settings.ca_file.is_none() {
            return Err(bad("tls.ca_file", "it must be set where verify_https_client is on"));
        }
        Ok(settings)
    }

    fn listening(&self, client_ca: Option<PathBuf>) -> ServerSettings {
        ServerSettings {
            // The block's reader has checked that the file is set.
            cert_file: self.cert_file.clone().unwrap_or_default(),
            key_file: self.key_file.clone().unwrap_or_default(),
            client_ca,
            protocol: self.protocol.clone(),
            http2: false,
        }
    }

    fn for_http(&self) -> ServerSettings {
        let settings = self.listening(self.ca_file.clone().filter(|_| self.verify_https_client));
        // A browser opens six HTTP/1.1 connections to an origin, for all tabs together.
        ServerSettings { http2: true, ..settings }
    }

    fn for_rpc(&self) -> ServerSettings {
        self.listening(self.ca_file.clone())
    }

    fn calling(&self, region: &str) -> ClientSettings {
        ClientSettings {
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            checked: match self.verify_server_hostname {
                true => Checked::Name(name("server", region)),
                false => Checked::Authority,
            },
            protocol: self.protocol.clone(),
            ..ClientSettings::default()
        }
    }

    /// Returns the requirements for peers that connect to the RPC port.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            encrypted: self.rpc && !self.rpc_upgrade_mode,
            names: self.rpc && self.verify_server_hostname,
        }
    }

    /// Adopts the settings that a running agent can change.
    pub(crate) fn take(&mut self, new: &Self) {
        *self = Self { http: self.http, rpc: self.rpc, ..new.clone() };
    }

    /// Returns the settings in the displayed form.
    pub(crate) fn shown(&self) -> Value {
        json!({
            "EnableHTTP": self.http,
            "EnableRPC": self.rpc,
            "VerifyServerHostname": self.verify_server_hostname,
            "VerifyHTTPSClient": self.verify_https_client,
            "RPCUpgradeMode": self.rpc_upgrade_mode,
            "CAFile": self.ca_file.clone().unwrap_or_default(),
            "CertFile": self.cert_file.clone().unwrap_or_default(),
            "KeyFile": self.key_file.clone().unwrap_or_default(),
            "TLSCipherSuites": self.cipher_suites,
            "TLSMinVersion": self.min_version,
        })
    }
}

/// Returns the name in an agent's certificate (docs/reference/jobspec.md, section 11.1).
fn name(role: &str, region: &str) -> String {
    format!("{role}.{region}.nomad")
}

/// The requirements for peers that connect to the RPC port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    encrypted: bool,
    names: bool,
}

impl Rules {
    /// Checks whether a certificate allows the claimed identity.
    pub(crate) fn check(
        self,
        hello: &Hello,
        region: &str,
        certificate: Option<&Certificate>,
    ) -> Result<(), RpcError> {
        let no = |reason: String| Err(RpcError::new(Code::Permission, reason));
        let Some(certificate) = certificate else {
            if self.encrypted {
                return no("this server takes encrypted calls only: set tls { rpc = true } with a certificate of its CA"
                    .to_owned());
            }
            return Ok(());
        };
        if !self.names {
            return Ok(());
        }
        let is_for = |role, region| certificate.is_for(&name(role, region)).unwrap_or(false);
        let is = |role| is_for(role, region);
        let found = || match certificate.names() {
            names if names.is_empty() => "the certificate has no names".to_owned(),
            names => format!("the certificate is for {}", names.join(", ")),
        };
        match &hello.identity {
            // Servers of other regions pass requests on; each has the name of its own region.
            PeerIdentity::Server(_) if !is_for("server", &hello.region) => {
                let expected = name("server", &hello.region);
                no(format!("{}: only a certificate for {expected} makes a server", found()))
            }
            // The agent of a server may be a client as well.
            PeerIdentity::Client { .. } if !is("client") && !is("server") => no(format!(
                "{}: it is neither for {} nor for {}",
                found(),
                name("client", region),
                name("server", region)
            )),
            _ => Ok(()),
        }
    }
}

/// The certificates and rules in use. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    http: Option<Acceptor>,
    rpc: Option<(Acceptor, Connector)>,
    rules: Arc<ArcSwap<Rules>>,
}

impl Live {
    /// Reads the files that the settings name.
    pub(crate) fn read(settings: &TlsSettings, region: &str) -> Result<Self, AgentError> {
        if Protocol::raised(&settings.min_version) {
            tracing::warn!(asked = settings.min_version, "the minimum TLS version is raised to TLS 1.2");
        }
        let http = settings.http.then(|| Acceptor::new(&settings.for_http())).transpose()?;
        let rpc = match settings.rpc {
            true => Some((Acceptor::new(&settings.for_rpc())?, Connector::new(&settings.calling(region))?)),
            false => None,
        };
        Ok(Self { http, rpc, rules: Arc::new(ArcSwap::from_pointee(settings.rules())) })
    }

    /// Reloads the files for new connections. On an error nothing changes.
    pub(crate) fn reload(&self, settings: &TlsSettings, region: &str) -> Result<(), AgentError> {
        // All files are read before any is used, so that an unreadable file does not leave a mixture.
        Self::read(settings, region)?;
        if let (Some(http), true) = (&self.http, settings.http) {
            http.replace(&settings.for_http())?;
        }
        if let (Some((accepting, connecting)), true) = (&self.rpc, settings.rpc) {
            accepting.replace(&settings.for_rpc())?;
            connecting.replace(&settings.calling(region))?;
            self.rules.store(Arc::new(settings.rules()));
        }
        Ok(())
    }

    /// Returns the current requirements for peers that connect to the RPC port.
    pub(crate) fn rules(&self) -> Rules {
        **self.rules.load()
    }

    /// Returns the acceptor of the HTTP API, if it is encrypted.
    pub(crate) fn http(&self) -> Option<Acceptor> {
        self.http.clone()
    }

    /// Returns the acceptor of incoming RPC connections, if they are encrypted.
    pub(crate) fn accepting(&self) -> Option<TlsAcceptor> {
        self.rpc.as_ref().map(|(acceptor, _)| TlsAcceptor(acceptor.clone()))
    }

    /// Returns the connector of RPC connections to servers of another region, if they are encrypted.
    pub(crate) fn connecting_to(&self, region: &str) -> Option<TlsConnector> {
        let connector = self.connecting()?;
        // The region of a member may be no name; then no certificate fits, as with the name of the own region.
        match connector.tls.named(&name("server", region)) {
            Ok(tls) => Some(TlsConnector { tls, ..connector }),
            Err(error) => {
                tracing::warn!(region, %error, "no certificate can name this region; using the own region's");
                Some(connector)
            }
        }
    }

    /// Returns the connector of outgoing RPC connections, if they are encrypted.
    pub(crate) fn connecting(&self) -> Option<TlsConnector> {
        self.rpc
            .as_ref()
            .map(|(_, connector)| TlsConnector { tcp: TcpConnector::default(), tls: connector.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::Source;

    fn read(text: &str) -> Result<TlsSettings, AgentError> {
        TlsSettings::from_config(&caravan_hcl::config::parse(&[Source::new("a.hcl", text)]).unwrap())
    }

    #[test]
    fn a_block_is_read_and_shown() {
        let text = "tls {\n http = true\n rpc = true\n ca_file = \"/ca\"\n cert_file = \"/c\"\n key_file = \"/k\"\n \
                    verify_https_client = true\n verify_server_hostname = true\n tls_min_version = \"tls13\"\n}\n";
        let settings = read(text).unwrap();
        assert_eq!(settings.for_http().client_ca, Some("/ca".into()));
        assert_eq!(settings.calling("mars").checked, Checked::Name("server.mars.nomad".into()));
        let shown = settings.shown();
        assert_eq!((&shown["EnableHTTP"], &shown["CAFile"]), (&json!(true), &json!("/ca")));
        assert_eq!(shown["TLSMinVersion"], "tls13");
        let open = read(&text.replace("verify_https_client = true", "")).unwrap();
        assert_eq!(open.for_http().client_ca, None);
        assert_eq!(open.for_rpc().client_ca, Some("/ca".into()));
    }

    #[test]
    fn what_is_missing_is_told() {
        let reported = |text: &str| read(text).unwrap_err().to_string();
        assert!(reported("tls {\n http = true\n}").contains("cert_file and key_file must be set"));
        let pair = "cert_file = \"/c\"\n key_file = \"/k\"\n";
        assert!(reported(&format!("tls {{\n rpc = true\n {pair}}}")).contains("tls.ca_file"));
        let verify = format!("tls {{\n http = true\n verify_https_client = true\n {pair}}}");
        assert!(reported(&verify).contains("verify_https_client"));
        assert!(reported("tls {\n tls_min_version = \"ssl\"\n}").contains("\"ssl\" is unknown"));
    }

    #[test]
    fn only_the_upgrade_mode_lets_plain_calls_in() {
        let hello =
            Hello { version: 1, region: "global".into(), identity: PeerIdentity::server("x"), server: None };
        let files = "ca_file = \"/ca\"\n cert_file = \"/c\"\n key_file = \"/k\"\n";
        let rules = |more: &str| read(&format!("tls {{\n {files} {more}\n}}")).unwrap().rules();
        let refused = rules("rpc = true").check(&hello, "global", None).unwrap_err();
        assert!(refused.message.contains("encrypted calls only"));
        rules("rpc = true\n rpc_upgrade_mode = true").check(&hello, "global", None).unwrap();
        rules("http = true").check(&hello, "global", None).unwrap();
    }
}
