//! `monitor`: an agent's log as it is written, and what has been kept of it

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use caravan_sdk::{ExportOptions, LogStream, MonitorOptions};
use clap::Subcommand;

/// Flags of `monitor`.
#[derive(Debug, Default, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MonitorArgs {
    #[command(subcommand)]
    verb: Option<MonitorVerb>,
    /// trace, debug, info, warn or error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// With the places in the program
    #[arg(long)]
    log_include_location: bool,
    /// Follow a node's agent
    #[arg(long, value_name = "NODE")]
    node_id: Option<String>,
    /// Follow a server's agent
    #[arg(long, value_name = "SERVER")]
    server_id: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// None
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Verbs of agents' logs.
#[derive(Debug, Subcommand)]
pub(crate) enum MonitorVerb {
    /// Show what has been kept of an agent's log
    Export(ExportArgs),
}

/// Flags of `monitor export`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ExportArgs {
    /// Of a node's agent
    #[arg(long, value_name = "NODE")]
    node_id: Option<String>,
    /// Of a server's agent
    #[arg(long, value_name = "SERVER")]
    server_id: Option<String>,
    /// How far back in the journal [default: 72h]
    #[arg(long, value_name = "DURATION", alias = "logs-since")]
    log_since: Option<String>,
    /// The journal of this service
    #[arg(long, value_name = "NAME")]
    service_name: Option<String>,
    /// The agent's own log file
    #[arg(long)]
    on_disk: bool,
    /// Go on with what comes
    #[arg(short = 'f', long)]
    follow: bool,
    /// None
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, args: &MonitorArgs) -> Outcome {
    if let Some(MonitorVerb::Export(args)) = &args.verb {
        return export(ctx, args).await;
    }
    if !args.args.is_empty() {
        return Err(CliError::Usage("This command takes no arguments".into()));
    }
    let options = MonitorOptions {
        level: args.log_level.clone().unwrap_or_default(),
        node: node(ctx, args.node_id.as_deref()).await?,
        server: args.server_id.clone().unwrap_or_default(),
        json: args.json,
        location: args.log_include_location,
    };
    let log = ctx.client.monitor(&options, &ctx.query()).await;
    show(ctx, log.map_err(|error| refused(&error, "monitor"))?).await
}

async fn export(ctx: &Ctx, args: &ExportArgs) -> Outcome {
    if !args.args.is_empty() {
        return Err(CliError::Usage("This command takes no arguments".into()));
    }
    let service = args.service_name.clone().unwrap_or_default();
    if service.is_empty() != args.on_disk {
        return Err(CliError::Usage("One of -service-name and -on-disk must be set".into()));
    }
    if args.on_disk && args.log_since.is_some() {
        return Err(CliError::Usage("-log-since is for the journal of a service (-service-name)".into()));
    }
    let options = ExportOptions {
        service,
        on_disk: args.on_disk,
        since: args.log_since.clone().unwrap_or_default(),
        follow: args.follow,
        node: node(ctx, args.node_id.as_deref()).await?,
        server: args.server_id.clone().unwrap_or_default(),
    };
    let log = ctx.client.monitor_export(&options, &ctx.query()).await;
    show(ctx, log.map_err(|error| refused(&error, "monitor export"))?).await
}

/// The whole id of a node that is named.
async fn node(ctx: &Ctx, given: Option<&str>) -> Result<String, CliError> {
    match given {
        Some(given) => Ok(resolve::node(ctx, given).await?.id.to_string()),
        None => Ok(String::new()),
    }
}

fn refused(error: &caravan_sdk::Error, verb: &str) -> CliError {
    CliError::failed(format!(
        "==> Error starting monitor: {error}\n==> For additional help try 'caravan {verb} -help'"
    ))
}

async fn show(ctx: &Ctx, mut log: LogStream) -> Outcome {
    while let Some(frame) = log.next().await.doing("Error reading the log")? {
        ctx.out.raw(&frame.data);
    }
    Ok(0)
}
