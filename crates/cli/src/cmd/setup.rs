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

/// Flags of both.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SharedArgs {
    /// Where it reads the keys of identities
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

/// Flags of `setup consul`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConsulArgs {
    #[command(flatten)]
    shared: SharedArgs,
}

/// Flags of `setup vault`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct VaultArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Only say what stands in the way of identities
    #[arg(long)]
    check: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show everything
    #[arg(long)]
    verbose: bool,
}

/// Says that it cannot be done. Nothing is written anywhere.
pub(crate) fn run(_ctx: &Ctx, verb: &SetupVerb) -> Outcome {
    let (name, args) = match verb {
        SetupVerb::Consul(ConsulArgs { shared }) => ("Consul", &shared.args),
        SetupVerb::Vault(VaultArgs { shared, .. }) => ("Vault", &shared.args),
    };
    if !args.is_empty() {
        return Err(CliError::Usage("This command takes no arguments".into()));
    }
    Err(CliError::failed(format!("This build does not talk to {name} yet: nothing was set up.")))
}
