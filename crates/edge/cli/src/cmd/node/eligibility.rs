//! `node eligibility`

use super::meant;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use caravan_types::node::Eligibility;

/// Flags of `node eligibility`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EligibilityArgs {
    /// Let the scheduler place allocations on the node
    #[arg(long)]
    enable: bool,
    /// Keep the scheduler from placing allocations on the node
    #[arg(long)]
    disable: bool,
    /// Use the node of the agent that answers
    #[arg(long = "self")]
    own: bool,
    /// Node id or prefix
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &EligibilityArgs) -> Outcome {
    let (eligibility, word) = match (args.enable, args.disable) {
        (true, false) => (Eligibility::Eligible, "eligible"),
        (false, true) => (Eligibility::Ineligible, "ineligible"),
        _ => return Err(CliError::Usage("Either the '-enable' or '-disable' flag must be set".into())),
    };
    let id = meant(ctx, args.own, &args.args).await?;
    ctx.client
        .nodes()
        .eligibility(&id, eligibility, &ctx.query())
        .await
        .doing("Error updating scheduling eligibility")?;
    ctx.out.line(&format!("Node \"{id}\" scheduling eligibility set: {word} for scheduling"));
    Ok(0)
}
