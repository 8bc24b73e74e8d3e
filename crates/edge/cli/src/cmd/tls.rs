//! `tls ca` and `tls cert`: TLS certificates for agents (docs/reference/jobspec.md, section 12).

mod authority;
mod create;
mod info;

use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use clap::Subcommand;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Subcommands of `tls`.
#[derive(Debug, Subcommand)]
pub(crate) enum TlsVerb {
    /// The authority that signs certificates: create, info
    #[command(subcommand)]
    Ca(CaVerb),
    /// Certificates of agents and users: create, info
    #[command(subcommand)]
    Cert(CertVerb),
}

/// Subcommands of `tls ca`.
#[derive(Debug, Subcommand)]
pub(crate) enum CaVerb {
    /// Create an authority: a certificate and its key, in the current directory
    Create(Box<authority::CaArgs>),
    /// Show the certificate of an authority
    Info(info::InfoArgs),
}

/// Subcommands of `tls cert`.
#[derive(Debug, Subcommand)]
pub(crate) enum CertVerb {
    /// Create a certificate and its key, in the current directory
    Create(Box<create::CertArgs>),
    /// Show a certificate
    Info(info::InfoArgs),
}

pub(crate) fn run(ctx: &Ctx, verb: &TlsVerb) -> Outcome {
    match verb {
        TlsVerb::Ca(CaVerb::Create(args)) => authority::create(ctx, args),
        TlsVerb::Cert(CertVerb::Create(args)) => create::create(ctx, args),
        TlsVerb::Ca(CaVerb::Info(args)) => info::run(ctx, args, info::Kind::Authority),
        TlsVerb::Cert(CertVerb::Info(args)) => info::run(ctx, args, info::Kind::Any),
    }
}

/// Converts the `rcgen` error of a certificate that cannot be created.
fn unmade(error: &rcgen::Error) -> CliError {
    CliError::failed(format!("Error creating the certificate: {error}"))
}

/// Sets the validity of a certificate. It begins one minute ago, because clocks differ.
fn validity(params: &mut rcgen::CertificateParams, days: i64) -> Result<(), CliError> {
    /// Longer validities would exceed the last date that a certificate can encode.
    const MAX_DAYS: i64 = 365 * 1000;
    let days = u64::try_from(days)
        .ok()
        .filter(|_| (1..=MAX_DAYS).contains(&days))
        .ok_or_else(|| CliError::failed(format!("Invalid -days {days}: between 1 and {MAX_DAYS}")))?;
    let elapsed = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(elapsed);
    params.not_before = now - Duration::from_secs(60);
    params.not_after = now + Duration::from_secs(days * 24 * 3600);
    Ok(())
}

/// Returns an error if the path exists, so that no file is overwritten.
fn is_free(what: &str, path: &Path) -> Result<(), CliError> {
    if path.exists() {
        return Err(CliError::failed(format!(
            "{what} {} is there already: it is not written over",
            path.display()
        )));
    }
    Ok(())
}

/// Writes a new file with the permissions `mode`.
fn write(what: &str, path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => is_free(what, path),
        Err(source) => Err(CliError::Io { doing: format!("Error writing {}", path.display()), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::tls::authority::{CaArgs, make as make_ca};
    use crate::cmd::tls::create::{CertArgs, make as make_cert};
    use std::os::unix::fs::PermissionsExt as _;

    fn ca(dir: &Path, args: CaArgs) -> Result<Vec<String>, CliError> {
        make_ca(dir, &CaArgs { domain: "nomad".into(), days: 1825, ..args })
    }

    fn cert(dir: &Path, args: CertArgs) -> Result<Vec<String>, CliError> {
        make_cert(dir, "global", &CertArgs { domain: "nomad".into(), days: 365, ..args })
    }

    fn shown(dir: &Path, file: &str, kind: info::Kind) -> Result<String, CliError> {
        info::shown(&dir.join(file), kind)
    }

    #[test]
    fn an_authority_signs_certificates_of_all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        ca(dir, CaArgs::default()).unwrap();
        let mode = |name: &str| dir.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("nomad-agent-ca-key.pem"), 0o600);
        cert(dir, CertArgs { server: true, ..CertArgs::default() }).unwrap();
        cert(dir, CertArgs { client: true, ..CertArgs::default() }).unwrap();
        let more = CertArgs {
            cli: true,
            additional_dnsname: vec!["web.example".into()],
            additional_ipaddress: vec!["10.0.0.1".into()],
            ..CertArgs::default()
        };
        cert(dir, more).unwrap();
        assert_eq!(mode("global-server-nomad-key.pem"), 0o600);
        let text = shown(dir, "global-server-nomad.pem", info::Kind::Any).unwrap();
        assert!(text.contains("server.global.nomad, localhost"), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
        let text = shown(dir, "global-cli-nomad.pem", info::Kind::Any).unwrap();
        assert!(text.contains("cli.global.nomad, localhost, web.example"), "{text}");
        assert!(text.contains("10.0.0.1"), "{text}");
        let text = shown(dir, "nomad-agent-ca.pem", info::Kind::Authority).unwrap();
        assert!(text.contains("Nomad Agent CA"), "{text}");
        let error = shown(dir, "global-cli-nomad.pem", info::Kind::Authority).unwrap_err().to_string();
        assert!(error.contains("not the certificate of an authority"), "{error}");
    }

    #[test]
    fn nothing_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        ca(dir, CaArgs::default()).unwrap();
        let error = ca(dir, CaArgs::default()).unwrap_err().to_string();
        assert!(error.contains("nomad-agent-ca.pem is there already"), "{error}");
        cert(dir, CertArgs { client: true, ..CertArgs::default() }).unwrap();
        let error = cert(dir, CertArgs { client: true, ..CertArgs::default() }).unwrap_err().to_string();
        assert!(error.contains("global-client-nomad.pem is there already"), "{error}");
    }

    #[test]
    fn mistakes_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let reported = |args| cert(dir, args).unwrap_err().to_string();
        assert_eq!(reported(CertArgs::default()), "Please provide either -server, -client, or -cli");
        let two = CertArgs { server: true, client: true, ..CertArgs::default() };
        assert_eq!(reported(two), "Please provide either -server, -client, or -cli");
        let server = || CertArgs { server: true, ..CertArgs::default() };
        assert!(reported(server()).contains("nomad-agent-ca.pem"));
        ca(dir, CaArgs::default()).unwrap();
        let bad = CertArgs { additional_ipaddress: vec!["x".into()], ..server() };
        assert!(reported(bad).contains("\"x\" is not an IP address"));
        let days = make_cert(dir, "global", &CertArgs { domain: "nomad".into(), days: 0, ..server() });
        assert!(days.unwrap_err().to_string().contains("Invalid -days 0"));
        let alone = ca(dir, CaArgs { additional_domain: vec!["x".into()], ..CaArgs::default() });
        assert!(alone.unwrap_err().to_string().contains("-name-constraint"));
    }

    #[test]
    fn constraints_are_in_the_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let args = CaArgs {
            name_constraint: true,
            additional_domain: vec!["example.com".into()],
            common_name: "Ours".into(),
            ..CaArgs::default()
        };
        ca(dir.path(), args).unwrap();
        let text = shown(dir.path(), "nomad-agent-ca.pem", info::Kind::Authority).unwrap();
        assert!(text.contains("Ours") && text.contains("nomad, localhost, example.com"), "{text}");
    }

    /// A key in SEC1 (RFC 5915), the format in which openssl and Go write elliptic curve keys.
    #[test]
    fn keys_of_other_programs_are_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        let pkcs8 = key.serialized_der();
        // The SEC1 key is the last part of the PKCS #8 key, after the header of its octet string.
        let at = pkcs8.windows(2).position(|two| two == [0x30, 0x6b]).unwrap();
        let sec1 = &pkcs8[at..];
        // The SEC1 key with the curve, which comes between the private and the public key: 2 + 3 + 34 bytes.
        let curve = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
        let mut whole = vec![0x30, 0x6b + 12];
        whole.extend_from_slice(&sec1[2..39]);
        whole.extend_from_slice(&curve);
        whole.extend_from_slice(&sec1[39..]);
        let read = create::from_sec1(&whole).unwrap();
        assert_eq!(read.public_key_raw(), key.public_key_raw());
        assert!(create::from_sec1(&[1, 2, 3]).is_none());
    }
}
