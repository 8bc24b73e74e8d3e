//! `setup consul|vault`: would prepare Consul or Vault for workload identities. This build connects to neither.

use crate::cmd::none;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use clap::Subcommand;

/// Subcommands of `setup`.
#[derive(Debug, Subcommand)]
pub(crate) enum SetupVerb {
    /// Prepare a Consul cluster for workload identities
    Consul(ConsulArgs),
    /// Prepare a Vault cluster for workload identities
    Vault(VaultArgs),
}

/// Flags that both subcommands have.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SharedArgs {
    /// URL of the public keys (JWKS) that verify workload identities
    #[arg(long, value_name = "URL")]
    jwks_url: Option<String>,
    /// CA certificates to verify the JWKS URL
    #[arg(long, value_name = "FILE")]
    jwks_ca_file: Option<String>,
    /// Remove the objects that an earlier setup created
    #[arg(long)]
    destroy: bool,
    /// Skip the confirmation prompt
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
    /// Only report why workload identities cannot be used
    #[arg(long)]
    check: bool,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show all details
    #[arg(long)]
    verbose: bool,
}

/// Returns an error that names the missing integration. Writes nothing.
pub(crate) fn run(_ctx: &Ctx, verb: &SetupVerb) -> Outcome {
    let (name, args) = match verb {
        SetupVerb::Consul(ConsulArgs { shared }) => ("Consul", &shared.args),
        SetupVerb::Vault(VaultArgs { shared, .. }) => ("Vault", &shared.args),
    };
    none(args)?;
    Err(CliError::failed(format!("This build does not talk to {name} yet: nothing was set up.")))
}
