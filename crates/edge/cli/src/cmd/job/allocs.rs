//! `job allocs`

use crate::cmd::alloc::{self, Columns};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{Doing as _, Outcome};
use crate::resolve;

/// Flags of `job allocs`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AllocsArgs {
    /// Include allocations of earlier jobs with the same id
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    data: DataArgs,
    /// Show full ids and timestamps
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &AllocsArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <job>")?;
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let jobs = ctx.client.jobs();
    let allocs = jobs
        .allocations(job.id.as_str(), args.all, &query)
        .await
        .doing("Error retrieving allocations")?
        .value;
    if let Some(shown) = args.data.show(ctx, &allocs) {
        return shown;
    }
    if allocs.is_empty() {
        ctx.out.line("No allocations placed");
        return Ok(0);
    }
    let columns = Columns { verbose: args.verbose, node_name: args.verbose };
    ctx.out.line(&alloc::table(&ctx.clock(), &allocs, columns).render());
    Ok(0)
}
