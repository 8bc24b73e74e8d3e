//! The first line that a plugin prints: `1|2|unix|<socket>|grpc|` (docs/reference/wire-plugins.md).

use std::net::SocketAddr;
use std::path::PathBuf;

/// The version of the handshake itself.
const CORE_VERSION: &str = "1";
/// The version of the plugins' protocol.
pub(crate) const PROTOCOL_VERSION: &str = "2";
/// The longest certificate field that counts as empty; go-plugin has the same limit.
const MAX_IGNORED_CERTIFICATE: usize = 50;

/// The address at which a plugin serves its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

/// The error in the first line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The line is not a handshake: the program is probably no plugin.
    #[error("the program is not a plugin: its first line is {0:?}")]
    NotAPlugin(String),
    /// The version of the handshake differs.
    #[error("the plugin speaks version {0:?} of the handshake, the agent speaks version 1")]
    Core(String),
    /// The version of the protocol differs.
    #[error("the plugin speaks version {0:?} of the protocol, the agent speaks version 2")]
    Version(String),
    /// The kind of address is unknown.
    #[error("the plugin listens on a network of kind {0:?}, which is neither unix nor tcp")]
    Network(String),
    /// The address is invalid, or belongs to another machine.
    #[error("the plugin's address {0:?} is not usable")]
    Address(String),
    /// The plugin does not use gRPC.
    #[error("the plugin speaks {0:?}, the agent speaks grpc")]
    Protocol(String),
    /// The plugin requires TLS, which the agent did not offer.
    #[error("the plugin requires TLS, which the agent does not offer")]
    Tls,
}

/// Reads the first line of a plugin, without its line end.
pub(crate) fn parse(line: &str) -> Result<Address, HandshakeError> {
    let fields: Vec<&str> = line.trim().split('|').collect();
    let [core, version, network, address, rest @ ..] = fields.as_slice() else {
        return Err(HandshakeError::NotAPlugin(shorten(line)));
    };
    if *core != CORE_VERSION {
        return Err(HandshakeError::Core(shorten(core)));
    }
    if *version != PROTOCOL_VERSION {
        return Err(HandshakeError::Version(shorten(version)));
    }
    // Without the fifth field, the plugin uses the protocol that preceded gRPC.
    let protocol = rest.first().copied().unwrap_or("netrpc");
    if protocol != "grpc" {
        return Err(HandshakeError::Protocol(shorten(protocol)));
    }
    if rest.get(1).is_some_and(|certificate| certificate.len() > MAX_IGNORED_CERTIFICATE) {
        return Err(HandshakeError::Tls);
    }
    let unusable = || HandshakeError::Address(shorten(address));
    match *network {
        "unix" if address.starts_with('/') && !address.contains('\0') => {
            Ok(Address::Unix(PathBuf::from(address)))
        }
        "tcp" => match address.parse::<SocketAddr>() {
            Ok(parsed) if parsed.ip().is_loopback() && parsed.port() != 0 => Ok(Address::Tcp(parsed)),
            _ => Err(unusable()),
        },
        "unix" => Err(unusable()),
        other => Err(HandshakeError::Network(shorten(other))),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_of_a_plugin_is_read() {
        let socket = Ok(Address::Unix("/tmp/plugin1".into()));
        assert_eq!(parse("1|2|unix|/tmp/plugin1|grpc|"), socket);
        assert_eq!(parse("1|2|unix|/tmp/plugin1|grpc||true\n"), socket);
        assert_eq!(parse("1|2|unix|/tmp/plugin1|grpc"), socket);
        let tcp = Address::Tcp("127.0.0.1:10000".parse().expect("an address"));
        assert_eq!(parse("1|2|tcp|127.0.0.1:10000|grpc|"), Ok(tcp));
    }

    #[test]
    fn each_wrong_field_has_its_own_error() {
        use HandshakeError as E;
        let cases = [
            ("hello", E::NotAPlugin("hello".into())),
            ("", E::NotAPlugin(String::new())),
            ("2|2|unix|/s|grpc", E::Core("2".into())),
            ("1|1|unix|/s|grpc", E::Version("1".into())),
            ("1|2|pipe|/s|grpc", E::Network("pipe".into())),
            ("1|2|unix|s|grpc", E::Address("s".into())),
            ("1|2|tcp|10.0.0.1:80|grpc", E::Address("10.0.0.1:80".into())),
            ("1|2|unix|/s|netrpc", E::Protocol("netrpc".into())),
            ("1|2|unix|/s", E::Protocol("netrpc".into())),
        ];
        for (line, error) in cases {
            assert_eq!(parse(line), Err(error), "{line}");
        }
        let certificate = "M".repeat(400);
        assert_eq!(parse(&format!("1|2|unix|/s|grpc|{certificate}")), Err(E::Tls));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in ".{0,200}") {
            let _any = parse(&line);
        }
    }
}
