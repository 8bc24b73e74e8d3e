//! `monitor`: an agent's log as it is written

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use caravan_sdk::MonitorOptions;

/// Flags of `monitor`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct MonitorArgs {
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

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, args: &MonitorArgs) -> Outcome {
    if !args.args.is_empty() {
        return Err(CliError::Usage("This command takes no arguments".into()));
    }
    let node = match &args.node_id {
        Some(given) => resolve::node(ctx, given).await?.id.to_string(),
        None => String::new(),
    };
    let options = MonitorOptions {
        level: args.log_level.clone().unwrap_or_default(),
        node,
        server: args.server_id.clone().unwrap_or_default(),
        json: args.json,
        location: args.log_include_location,
    };
    let mut log = ctx.client.monitor(&options, &ctx.query()).await.map_err(|error| {
        CliError::failed(format!(
            "==> Error starting monitor: {error}\n==> For additional help try 'caravan monitor -help'"
        ))
    })?;
    while let Some(frame) = log.next().await.doing("Error reading the log")? {
        ctx.out.raw(&frame.data);
    }
    Ok(0)
}
