//! `tls cert create`

use super::{is_free, unmade, validity, write};
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Flags of `tls cert create`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CertArgs {
    /// Additional DNS name of the certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) additional_dnsname: Vec<String>,
    /// Additional IP address of the certificate; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(super) additional_ipaddress: Vec<String>,
    /// Certificate of the authority [default: DOMAIN-agent-ca.pem]
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Key of the authority [default: DOMAIN-agent-ca-key.pem]
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// Create a certificate for the command line
    #[arg(long)]
    pub(super) cli: bool,
    /// Create a certificate for a client agent
    #[arg(long)]
    pub(super) client: bool,
    /// Create a certificate for an agent that is a server, or both server and client
    #[arg(long)]
    pub(super) server: bool,
    /// Days that the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, allow_negative_numbers = true)]
    pub(super) days: i64,
    /// Domain of the agents, which their names in the certificate end with
    #[arg(long, value_name = "DOMAIN", default_value = "nomad")]
    pub(super) domain: String,
}

/// Creates a certificate in the current directory, for the region of the general flags.
pub(super) fn create(ctx: &Ctx, args: &CertArgs) -> Outcome {
    let region = ctx.client.config().region.clone().unwrap_or_else(|| "global".to_owned());
    make(Path::new("."), &region, args)?.iter().for_each(|line| ctx.out.line(line));
    Ok(0)
}

/// Creates a certificate and returns the lines to print.
pub(super) fn make(dir: &Path, region: &str, args: &CertArgs) -> Result<Vec<String>, CliError> {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let (kind, what, usages) = match (args.server, args.client, args.cli) {
        // An agent both accepts and opens connections.
        (true, false, false) => ("server", "Server", vec![ServerAuth, ClientAuth]),
        (false, true, false) => ("client", "Client", vec![ClientAuth, ServerAuth]),
        (false, false, true) => ("cli", "Cli", vec![ClientAuth]),
        _ => return Err(CliError::failed("Please provide either -server, -client, or -cli")),
    };
    let domain = &args.domain;
    let cert = format!("{region}-{kind}-{domain}.pem");
    let key = format!("{region}-{kind}-{domain}-key.pem");
    let (cert_path, key_path) = (dir.join(&cert), dir.join(&key));
    is_free(&format!("{what} certificate file"), &cert_path)?;
    is_free(&format!("{what} key file"), &key_path)?;

    let authority = authority(
        &args.ca.clone().unwrap_or_else(|| dir.join(format!("{domain}-agent-ca.pem"))),
        &args.key.clone().unwrap_or_else(|| dir.join(format!("{domain}-agent-ca-key.pem"))),
    )?;
    let name = format!("{kind}.{region}.{domain}");
    let mut names = vec![name.clone(), "localhost".to_owned()];
    names.extend(args.additional_dnsname.iter().cloned());
    let mut params = CertificateParams::new(names).map_err(|error| unmade(&error))?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    if !args.cli {
        addresses.push(IpAddr::from([127, 0, 0, 1]));
    }
    for text in &args.additional_ipaddress {
        addresses.push(text.parse().map_err(|_| {
            CliError::failed(format!("Invalid -additional-ipaddress: {text:?} is not an IP address"))
        })?);
    }
    params.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = usages;
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, args.days)?;
    let pair = KeyPair::generate().map_err(|error| unmade(&error))?;
    let made = params.signed_by(&pair, &authority).map_err(|error| unmade(&error))?;
    write(&format!("{what} key file"), &key_path, &pair.serialize_pem(), 0o600)?;
    write(&format!("{what} certificate file"), &cert_path, &made.pem(), 0o644)?;
    Ok(vec![
        format!("==> {what} certificate saved to: {cert}"),
        format!("==> {what} certificate key saved to: {key}"),
    ])
}

/// Reads the authority from its certificate and key files.
fn authority(cert: &Path, key: &Path) -> Result<Issuer<'static, KeyPair>, CliError> {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|source| CliError::Io { doing: format!("Error reading {}", path.display()), source })
    };
    let (cert_text, key_text) = (read(cert)?, read(key)?);
    // The error does not repeat the content of the key file, which is secret.
    let pair = key_of(&key_text).ok_or_else(|| {
        CliError::failed(format!("Error reading {}: there is no key in it that can sign", key.display()))
    })?;
    Issuer::from_ca_cert_pem(&cert_text, pair)
        .map_err(|error| CliError::failed(format!("Error reading {}: {error}", cert.display())))
}

/// Parses a key in PKCS #8, or an elliptic curve key as Go and openssl write it.
fn key_of(pem: &str) -> Option<KeyPair> {
    if let Ok(pair) = KeyPair::from_pem(pem) {
        return Some(pair);
    }
    let blocks = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).flatten();
    blocks.filter(|block| block.label == "EC PRIVATE KEY").find_map(|block| from_sec1(&block.contents))
}

/// Wraps an RFC 5915 key into PKCS #8 (RFC 5208), which names the curve outside the key.
pub(super) fn from_sec1(sec1: &[u8]) -> Option<KeyPair> {
    const EC: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const CURVES: [&[u8]; 2] = [
        &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
    ];
    let curve = CURVES.into_iter().find(|curve| sec1.windows(curve.len()).any(|part| part == *curve))?;
    let algorithm = wrapped(0x30, &[EC.as_slice(), curve].concat())?;
    let inner = [[0x02, 0x01, 0x00].as_slice(), &algorithm, &wrapped(0x04, sec1)?].concat();
    KeyPair::try_from(wrapped(0x30, &inner)?).ok()
}

/// Encodes a DER value with its tag and length.
fn wrapped(tag: u8, inner: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(inner.len()).ok()?;
    let [high, low] = length.to_be_bytes();
    let mut out = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    out.extend_from_slice(inner);
    Some(out)
}
