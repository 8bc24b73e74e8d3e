//! `node eligibility`

use super::meant;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use caravan_types::node::Eligibility;

/// Flags of `node eligibility`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EligibilityArgs {
    /// Take new work
    #[arg(long)]
    enable: bool,
    /// Take no new work
    #[arg(long)]
    disable: bool,
    /// The agent's own node
    #[arg(long = "self")]
    own: bool,
    /// Node
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Runs it.
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
