//! `node config`: shows or changes the servers that a client connects to.

use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};

/// Flags of `node config`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConfigArgs {
    /// List the servers
    #[arg(long)]
    servers: bool,
    /// Replace the client's servers by the given addresses
    #[arg(long)]
    update_servers: bool,
    /// Addresses of servers, with -update-servers
    #[arg(value_name = "SERVER", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &ConfigArgs) -> Outcome {
    if args.servers == args.update_servers {
        return Err(CliError::Usage("The -servers or -update-servers flag(s) must be set".into()));
    }
    let agent = ctx.client.agent();
    if args.update_servers {
        if args.args.is_empty() {
            return Err(CliError::Usage(
                "If -update-servers is set, at least one server must be given".into(),
            ));
        }
        agent.set_servers(&args.args).await.doing("Error updating server list")?;
        ctx.out.line("Updated server list");
        return Ok(0);
    }
    if !args.args.is_empty() {
        return Err(wrong_count(&args.args, 0, "This command takes no arguments with -servers"));
    }
    let servers = agent.servers().await.doing("Error querying server list")?;
    servers.iter().for_each(|server| ctx.out.line(server));
    Ok(0)
}
