//! `setup consul|vault`: preparing other programs for workloads that log in to them. Neither is talked to by this build.

use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use clap::Subcommand;

/// Verbs of other programs.
#[derive(Debug, Subcommand)]
pub(crate) enum SetupVerb {
    /// Prepare a Consul cluster for the identities of workloads
    Consul(ConsulArgs),
    /// Prepare a Vault cluster for the identities of workloads
    Vault(VaultArgs),
}

/// Flags of `setup consul`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConsulArgs {
    /// Where Consul reads the keys of identities
    #[arg(long, value_name = "URL")]
    jwks_url: Option<String>,
    /// CA certificates for it
    #[arg(long, value_name = "FILE")]
    jwks_ca_file: Option<String>,
    /// Take away what was made
    #[arg(long)]
    destroy: bool,
    /// Do not ask
    #[arg(short = 'y', long = "yes")]
    yes: bool,
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `setup vault`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct VaultArgs {
    /// Where Vault reads the keys of identities
    #[arg(long, value_name = "URL")]
    jwks_url: Option<String>,
    /// CA certificates for it
    #[arg(long, value_name = "FILE")]
    jwks_ca_file: Option<String>,
    /// Take away what was made
    #[arg(long)]
    destroy: bool,
    /// Only say what stands in the way of identities
    #[arg(long)]
    check: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show everything
    #[arg(long)]
    verbose: bool,
    /// Do not ask
    #[arg(short = 'y', long = "yes")]
    yes: bool,
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Says that it cannot be done. Nothing is written anywhere.
pub(crate) fn run(_ctx: &Ctx, verb: &SetupVerb) -> Outcome {
    let name = match verb {
        SetupVerb::Consul(ConsulArgs { args, .. }) => ("Consul", args),
        SetupVerb::Vault(VaultArgs { args, .. }) => ("Vault", args),
    };
    let (name, args) = name;
    if !args.is_empty() {
        return Err(CliError::Usage("This command takes no arguments".into()));
    }
    Err(CliError::failed(format!("This build does not talk to {name} yet: nothing was set up.")))
}
