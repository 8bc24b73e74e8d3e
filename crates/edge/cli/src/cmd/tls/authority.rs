//! `tls ca create`

use super::{is_free, unmade, validity, write};
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose,
    NameConstraints,
};
use std::path::Path;

/// Flags of `tls ca create`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CaArgs {
    /// With -name-constraint: another domain that the authority may sign for; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    pub(super) additional_domain: Vec<String>,
    /// Name of the authority
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) common_name: String,
    /// Country of the authority
    #[arg(long, value_name = "COUNTRY", default_value = "", hide_default_value = true)]
    pub(super) country: String,
    /// Days that the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 1825, allow_negative_numbers = true)]
    pub(super) days: i64,
    /// Domain of the agents; also the prefix of the file names
    #[arg(long, value_name = "DOMAIN", default_value = "nomad")]
    pub(super) domain: String,
    /// City of the authority
    #[arg(long, value_name = "CITY", default_value = "", hide_default_value = true)]
    pub(super) locality: String,
    /// Let the authority sign only for -domain, -additional-domain and localhost
    #[arg(long)]
    pub(super) name_constraint: bool,
    /// Organization of the authority
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) organization: String,
    /// Organizational unit of the authority
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) organizational_unit: String,
    /// Postal code of the authority
    #[arg(long, value_name = "CODE", default_value = "", hide_default_value = true)]
    pub(super) postal_code: String,
    /// State or province of the authority
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) province: String,
    /// Street of the authority
    #[arg(long, value_name = "STREET", default_value = "", hide_default_value = true)]
    pub(super) street_address: String,
}

/// Creates an authority in the current directory.
pub(super) fn create(ctx: &Ctx, args: &CaArgs) -> Outcome {
    make(Path::new("."), args)?.iter().for_each(|line| ctx.out.line(line));
    Ok(0)
}

/// Creates an authority and returns the lines to print.
pub(super) fn make(dir: &Path, args: &CaArgs) -> Result<Vec<String>, CliError> {
    if !args.additional_domain.is_empty() && !args.name_constraint {
        return Err(CliError::failed("-additional-domain counts together with -name-constraint only"));
    }
    let (cert, key) = (format!("{}-agent-ca.pem", args.domain), format!("{}-agent-ca-key.pem", args.domain));
    let (cert_path, key_path) = (dir.join(&cert), dir.join(&key));
    is_free("CA certificate file", &cert_path)?;
    is_free("CA key file", &key_path)?;

    let pair = KeyPair::generate().map_err(|error| unmade(&error))?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    validity(&mut params, args.days)?;
    // Two authorities must not have the same name, so the default name contains a number that is derived from the
    // key.
    let own = || {
        let raw = pair.public_key_raw();
        let tail: String = raw[raw.len().saturating_sub(8)..].iter().map(|b| format!("{b:02x}")).collect();
        format!("Nomad Agent CA {tail}")
    };
    let common_name = if args.common_name.is_empty() { own() } else { args.common_name.clone() };
    let postal_code = DnType::CustomDnType(vec![2, 5, 4, 17]);
    let street = DnType::CustomDnType(vec![2, 5, 4, 9]);
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in [
        (DnType::CountryName, &args.country),
        (DnType::StateOrProvinceName, &args.province),
        (DnType::LocalityName, &args.locality),
        (street, &args.street_address),
        (postal_code, &args.postal_code),
        (DnType::OrganizationName, &args.organization),
        (DnType::OrganizationalUnitName, &args.organizational_unit),
        (DnType::CommonName, &common_name),
    ] {
        if !value.is_empty() {
            params.distinguished_name.push(kind, value.as_str());
        }
    }
    if args.name_constraint {
        let domains = [args.domain.as_str(), "localhost"].into_iter().map(str::to_owned);
        let permitted_subtrees =
            domains.chain(args.additional_domain.iter().cloned()).map(GeneralSubtree::DnsName).collect();
        params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    }
    let made = params.self_signed(&pair).map_err(|error| unmade(&error))?;
    // Write the key first: a certificate without its key is useless.
    write("CA key file", &key_path, &pair.serialize_pem(), 0o600)?;
    write("CA certificate file", &cert_path, &made.pem(), 0o644)?;
    Ok(vec![format!("==> CA certificate saved to: {cert}"), format!("==> CA key saved to: {key}")])
}
