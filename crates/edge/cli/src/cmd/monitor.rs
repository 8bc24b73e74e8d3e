//! `monitor`: streams an agent's log, and exports its past entries.

use crate::cmd::none;
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
    /// Lowest level to show: trace, debug, info, warn or error [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Show the source location of each log entry
    #[arg(long)]
    log_include_location: bool,
    /// Follow the log of this node's agent
    #[arg(long, value_name = "NODE")]
    node_id: Option<String>,
    /// Follow the log of this server's agent
    #[arg(long, value_name = "SERVER")]
    server_id: Option<String>,
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Rejected: the command takes no arguments
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Subcommands of `monitor`.
#[derive(Debug, Subcommand)]
pub(crate) enum MonitorVerb {
    /// Show past entries of an agent's log
    Export(ExportArgs),
}

/// Flags of `monitor export`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ExportArgs {
    /// Export the log of this node's agent
    #[arg(long, value_name = "NODE")]
    node_id: Option<String>,
    /// Export the log of this server's agent
    #[arg(long, value_name = "SERVER")]
    server_id: Option<String>,
    /// Age of the oldest journal entry to export [default: 72h]
    #[arg(long, value_name = "DURATION", alias = "logs-since")]
    log_since: Option<String>,
    /// Export the systemd journal of this service
    #[arg(long, value_name = "NAME")]
    service_name: Option<String>,
    /// Export the agent's own log file
    #[arg(long)]
    on_disk: bool,
    /// Continue with new entries as they arrive
    #[arg(short = 'f', long)]
    follow: bool,
    /// Rejected: the command takes no arguments
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &MonitorArgs) -> Outcome {
    if let Some(MonitorVerb::Export(args)) = &args.verb {
        return export(ctx, args).await;
    }
    none(&args.args)?;
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
    none(&args.args)?;
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

/// Returns the full id of the named node, or an empty text without one.
async fn node(ctx: &Ctx, supplied: Option<&str>) -> Result<String, CliError> {
    match supplied {
        Some(supplied) => Ok(resolve::node(ctx, supplied).await?.id.to_string()),
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
