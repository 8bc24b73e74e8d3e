//! `tls ca info` and `tls cert info`

use crate::cmd::at_most_one;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::table::Pairs;
use std::net::IpAddr;
use std::path::Path;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

/// Arguments of `tls ca info` and `tls cert info`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InfoArgs {
    /// Certificate file [default for an authority: nomad-agent-ca.pem]
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

/// The expected use of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Authority,
    Any,
}

/// Prints a certificate.
pub(super) fn run(ctx: &Ctx, args: &InfoArgs, kind: Kind) -> Outcome {
    let path = match (at_most_one(&args.args, "This command takes one argument: <certificate file>")?, kind) {
        (Some(path), _) => path,
        (None, Kind::Authority) => "nomad-agent-ca.pem",
        (None, Kind::Any) => {
            return Err(CliError::Usage("This command takes one argument: <certificate file>".to_owned()));
        }
    };
    ctx.out.line(&shown(Path::new(path), kind)?);
    Ok(0)
}

/// Renders the attributes of a certificate.
pub(super) fn shown(path: &Path, kind: Kind) -> Result<String, CliError> {
    let reported = |reason: String| CliError::failed(format!("Error reading {}: {reason}", path.display()));
    let text = std::fs::read(path).map_err(|error| reported(error.to_string()))?;
    let pem = x509_parser::pem::Pem::iter_from_buffer(&text)
        .flatten()
        .find(|block| block.label == "CERTIFICATE")
        .ok_or_else(|| reported("there is no certificate in it".to_owned()))?;
    let cert = pem.parse_x509().map_err(|error| reported(error.to_string()))?;
    if kind == Kind::Authority && !cert.is_ca() {
        return Err(reported("it is not the certificate of an authority".to_owned()));
    }
    let mut pairs = Pairs::new()
        .pair("Serial Number", cert.tbs_certificate.raw_serial_as_string())
        .pair("Issuer CN", common_name(cert.issuer()))
        .pair("Common Name", common_name(cert.subject()))
        .pair("Valid From", day(cert.validity().not_before.timestamp()))
        .pair("Expiry Date", day(cert.validity().not_after.timestamp()));
    let (names, addresses) = names(&cert);
    for (title, values) in [
        ("DNS Names", names),
        ("IP Addresses", addresses),
        ("Permitted DNS Domains", permitted(&cert)),
        ("Used For", usages(&cert)),
    ] {
        if !values.is_empty() {
            pairs.push(title, values.join(", "));
        }
    }
    Ok(pairs.render())
}

fn common_name(name: &x509_parser::x509::X509Name<'_>) -> String {
    name.iter_common_name().find_map(|part| part.as_str().ok()).unwrap_or_default().to_owned()
}

fn day(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |at| at.to_string())
}

fn names(cert: &X509Certificate<'_>) -> (Vec<String>, Vec<String>) {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let Ok(Some(extension)) = cert.subject_alternative_name() else { return (names, addresses) };
    for name in &extension.value.general_names {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                addresses.extend(address.map(|address| address.to_string()));
            }
            _ => {}
        }
    }
    (names, addresses)
}

fn permitted(cert: &X509Certificate<'_>) -> Vec<String> {
    let mut domains = Vec::new();
    for extension in cert.extensions() {
        if let ParsedExtension::NameConstraints(constraints) = extension.parsed_extension() {
            for subtree in constraints.permitted_subtrees.iter().flatten() {
                if let GeneralName::DNSName(name) = &subtree.base {
                    domains.push((*name).to_owned());
                }
            }
        }
    }
    domains
}

fn usages(cert: &X509Certificate<'_>) -> Vec<String> {
    let mut usages = Vec::new();
    if cert.is_ca() {
        usages.push("signing certificates".to_owned());
    }
    if let Ok(Some(extension)) = cert.extended_key_usage() {
        let desired =
            [(extension.value.server_auth, "being called"), (extension.value.client_auth, "calling")];
        usages.extend(desired.into_iter().filter(|(on, _)| *on).map(|(_, text)| text.to_owned()));
    }
    usages
}
