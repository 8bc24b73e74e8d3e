//! The addresses of servers to join (docs/reference/cluster.md, section 4), parsed and resolved.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// The timeout of the program of an `exec=` entry.
const EXEC_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of the resolution of a name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The providers of the reference, each with the alternative.
const PROVIDERS: &[(&str, &str)] = &[
    ("aliyun", CLOUD),
    ("aws", CLOUD),
    ("azure", CLOUD),
    ("digitalocean", CLOUD),
    ("gce", CLOUD),
    ("k8s", "use the DNS name of a headless service instead"),
    ("linode", CLOUD),
    ("mdns", "list the servers' addresses instead"),
    ("os", CLOUD),
    ("packet", CLOUD),
    ("scaleway", CLOUD),
    ("softlayer", CLOUD),
    ("srv", "use a DNS name with address records instead"),
    ("tencentcloud", CLOUD),
    ("triton", CLOUD),
    ("vsphere", CLOUD),
];
const CLOUD: &str = "list the servers' addresses, use a DNS name that resolves to them, or print them with exec=<program> instead";

/// The reasons for which an entry has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The entry is empty.
    #[error("the address is empty")]
    Empty,
    /// The entry is not an address.
    #[error("{0:?} is not host, host:port, an IP address or [IPv6 address]:port")]
    NotAnAddress(String),
    /// The entry is not a list of key=value pairs.
    #[error("{0:?} is not provider=NAME key=value ...")]
    NotAProvider(String),
    /// The provider is known, but not supported.
    #[error("provider {provider:?} is not supported: {alternative}")]
    Provider {
        /// Name of the provider.
        provider: String,
        /// The setting or entry to use instead.
        alternative: &'static str,
    },
    /// The provider is unknown.
    #[error("provider {0:?} is unknown")]
    UnknownProvider(String),
    /// A provider or a program is not an address of a join command.
    #[error("{0:?} is for retry_join and start_join in the configuration only")]
    NotHere(String),
    /// The name does not resolve.
    #[error("{name} does not resolve: {reason}")]
    Resolve {
        /// The name.
        name: String,
        /// The system's reason.
        reason: String,
    },
    /// The program of an `exec=` entry failed.
    #[error("the program {program} failed: {reason}")]
    Exec {
        /// The program.
        program: String,
        /// The reason of the failure.
        reason: String,
    },
}

/// The address of a server in the form that users write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinAddress {
    /// An IP address, with or without a port.
    Ip(IpAddr, Option<u16>),
    /// A name, with or without a port.
    Name(String, Option<u16>),
}

impl fmt::Display for JoinAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip, None) => write!(f, "{ip}"),
            Self::Ip(ip, Some(port)) => write!(f, "{}", SocketAddr::new(*ip, *port)),
            Self::Name(name, None) => f.write_str(name),
            Self::Name(name, Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}

impl JoinAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// [`AddressError::Empty`], [`AddressError::NotAnAddress`], [`AddressError::NotHere`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let bad = || AddressError::NotAnAddress(text.to_owned());
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if text.starts_with("exec=") || text.contains("provider=") {
            return Err(AddressError::NotHere(text.to_owned()));
        }
        if let Ok(addr) = text.parse::<SocketAddr>() {
            return Ok(Self::Ip(addr.ip(), Some(port(addr.port()).ok_or_else(bad)?)));
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Self::Ip(ip, None));
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, number)) => (name, Some(number.parse().ok().and_then(port).ok_or_else(bad)?)),
            None => (text, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > 255 || !name.chars().all(is_name) {
            return Err(bad());
        }
        Ok(Self::Name(name.to_owned(), port))
    }

    /// Returns the addresses, with `default_port` if the address has no port. A name may have several addresses.
    ///
    /// # Errors
    /// [`AddressError::Resolve`].
    pub async fn resolve(&self, default_port: u16) -> Result<Vec<SocketAddr>, AddressError> {
        let (name, port) = match self {
            Self::Ip(ip, port) => return Ok(vec![SocketAddr::new(*ip, port.unwrap_or(default_port))]),
            Self::Name(name, port) => (name, port.unwrap_or(default_port)),
        };
        let fail = |reason: String| AddressError::Resolve { name: name.clone(), reason };
        let lookup = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((name.as_str(), port)));
        let found = lookup.await.map_err(|_| fail("no answer in time".to_owned()))?;
        let mut found: Vec<SocketAddr> = found.map_err(|error| fail(error.to_string()))?.collect();
        found.sort();
        found.dedup();
        if found.is_empty() { Err(fail("it has no addresses".to_owned())) } else { Ok(found) }
    }
}

/// Returns the port of a server; `None` for 0.
fn port(number: u16) -> Option<u16> {
    if number == 0 { None } else { Some(number) }
}

/// An entry of `retry_join` or `start_join`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEntry {
    /// An address.
    Address(JoinAddress),
    /// A program that prints IP addresses, separated by white space (`exec=`).
    Exec {
        /// The program.
        program: String,
        /// The arguments of the program.
        args: Vec<String>,
    },
}

impl fmt::Display for JoinEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Exec { program, .. } => write!(f, "exec={program}"),
        }
    }
}

impl JoinEntry {
    /// Parses an entry.
    ///
    /// # Errors
    /// All of [`AddressError`] that need no network. All providers are refused.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if let Some(command) = text.strip_prefix("exec=") {
            let mut words =
                words(command).ok_or_else(|| AddressError::NotAnAddress(text.to_owned()))?.into_iter();
            let program = words.next().ok_or(AddressError::Empty)?;
            return Ok(Self::Exec { program, args: words.collect() });
        }
        if text.contains("provider=") {
            return Err(refuse(text));
        }
        JoinAddress::parse(text).map(Self::Address)
    }

    /// Returns the addresses of the entry.
    ///
    /// # Errors
    /// [`AddressError::Resolve`], [`AddressError::Exec`].
    pub async fn resolve(&self, default_port: u16) -> Result<Vec<SocketAddr>, AddressError> {
        match self {
            Self::Address(address) => address.resolve(default_port).await,
            Self::Exec { program, args } => {
                let fail = |reason: String| AddressError::Exec { program: program.clone(), reason };
                let mut command = Command::new(program);
                command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
                let output = timeout(EXEC_TIMEOUT, command.output());
                let output = output.await.map_err(|_| fail("it did not end in time".to_owned()))?;
                let output = output.map_err(|error| fail(error.to_string()))?;
                if !output.status.success() {
                    return Err(fail(output.status.to_string()));
                }
                printed(&String::from_utf8_lossy(&output.stdout), default_port).map_err(fail)
            }
        }
    }
}

/// Reads the IP addresses that a program printed.
fn printed(text: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    let read = |word: &str| match JoinAddress::parse(word) {
        Ok(JoinAddress::Ip(ip, port)) => Ok(SocketAddr::new(ip, port.unwrap_or(default_port))),
        _ => Err(format!("{word:?} is not an IP address")),
    };
    text.split_whitespace().map(read).collect()
}

/// Returns the reason for which a provider string is refused.
fn refuse(text: &str) -> AddressError {
    let Some(words) = words(text) else { return AddressError::NotAProvider(text.to_owned()) };
    let pairs: Option<Vec<(&str, &str)>> = words.iter().map(|word| word.split_once('=')).collect();
    let provider = pairs.and_then(|pairs| pairs.into_iter().find(|(key, _)| *key == "provider"));
    let Some((_, provider)) = provider.filter(|(_, provider)| !provider.is_empty()) else {
        return AddressError::NotAProvider(text.to_owned());
    };
    let provider = provider.to_owned();
    match PROVIDERS.iter().find(|(known, _)| *known == provider) {
        Some((_, alternative)) => AddressError::Provider { provider, alternative },
        None => AddressError::UnknownProvider(provider),
    }
}

/// Splits a text into words. White space in double quotes belongs to a word, and the character after a
/// backslash has no special meaning. Returns `None` if a quote or a backslash has no end.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut is_quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.get_or_insert_default().push(chars.next()?),
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if is_quoted { None } else { Some(words) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> String {
        match JoinEntry::parse(text) {
            Ok(JoinEntry::Address(JoinAddress::Ip(ip, port))) => format!("ip {ip} {port:?}"),
            Ok(JoinEntry::Address(JoinAddress::Name(name, port))) => format!("name {name} {port:?}"),
            Ok(JoinEntry::Exec { program, args }) => format!("exec {program} {args:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn entries_have_these_forms() {
        for (text, expected) in [
            ("10.0.0.1", "ip 10.0.0.1 None"),
            (" 10.0.0.1:99 ", "ip 10.0.0.1 Some(99)"),
            ("::1", "ip ::1 None"),
            ("[::1]", "ip ::1 None"),
            ("[2001:db8::1]:4648", "ip 2001:db8::1 Some(4648)"),
            ("nope", "name nope None"),
            ("s-1.example.com:4648", "name s-1.example.com Some(4648)"),
            ("exec=/bin/find \"a b\" c\\ d", "exec /bin/find [\"a b\", \"c d\"]"),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        for text in
            ["", "a:b", "host:0", "host:99999", "a b", "[::1", "http://x", "exec=", "exec=\"x", ":4648"]
        {
            assert!(JoinEntry::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn providers_are_refused_by_name() {
        let aws = parsed("provider=aws tag_key=role tag_value=\"my server\"");
        assert!(aws.contains("\"aws\" is not supported: list the servers' addresses"), "{aws}");
        assert!(parsed("tag_key=x provider=k8s").contains("headless service"));
        assert!(parsed("provider=srv hostname=x").contains("address records"));
        assert_eq!(parsed("provider=nope"), "provider \"nope\" is unknown");
        assert!(parsed("provider=").contains("is not provider=NAME"));
        assert!(matches!(JoinAddress::parse("provider=aws"), Err(AddressError::NotHere(_))));
    }

    #[test]
    fn programs_print_addresses() {
        assert_eq!(printed("10.0.0.1\n10.0.0.2:7 ::1", 5).unwrap().len(), 3);
        assert_eq!(printed("", 5).unwrap(), []);
        assert!(printed("10.0.0.1 nope", 5).unwrap_err().contains("nope"));
    }

    #[tokio::test]
    async fn names_and_programs_resolve() {
        let resolve = async |text: &str| JoinEntry::parse(text).unwrap().resolve(7).await;
        assert!(resolve("localhost").await.unwrap().iter().all(|addr| addr.port() == 7));
        let found = resolve("exec=/bin/echo 127.0.0.1 127.0.0.2:9").await.unwrap();
        assert_eq!(found, ["127.0.0.1:7".parse().unwrap(), "127.0.0.2:9".parse().unwrap()]);
        assert!(matches!(resolve("exec=/bin/false").await, Err(AddressError::Exec { .. })));
        assert!(matches!(resolve("no-such-host.invalid").await, Err(AddressError::Resolve { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,60}") {
            if let Ok(JoinEntry::Address(address)) = JoinEntry::parse(&text) {
                prop_assert_eq!(JoinAddress::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
