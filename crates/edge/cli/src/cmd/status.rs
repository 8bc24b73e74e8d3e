//! `status`: shows any object by its id or a prefix of it.

use crate::cmd::{alloc, at_most_one, eval, job, node, plugin, volume};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve::uuid_prefix;

/// Flags of `status`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show full ids and timestamps
    #[arg(long)]
    verbose: bool,
    /// Job, allocation, evaluation, node, volume or plugin
    #[arg(value_name = "ID", num_args = 0..)]
    args: Vec<String>,
}

/// Types of objects, in the order in which an ambiguous prefix prefers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Job,
    Alloc,
    Eval,
    Node,
    Volume,
    Plugin,
}

pub(crate) async fn run(ctx: &Ctx, args: &StatusArgs) -> Outcome {
    let Some(supplied) =
        at_most_one(&args.args, "This command takes either no arguments or one: <identifier>")?
    else {
        return Box::pin(job::status::run(ctx, &job::status::StatusArgs::default())).await;
    };
    let kind = find(ctx, supplied).await?;
    match kind {
        Kind::Job => {
            Box::pin(job::status::run(ctx, &job::status::StatusArgs::new(supplied, args.verbose))).await
        }
        Kind::Alloc => {
            Box::pin(alloc::status::run(ctx, &alloc::status::StatusArgs::new(supplied, args.verbose))).await
        }
        Kind::Eval => Box::pin(eval::status(ctx, &eval::StatusArgs::new(supplied, args.verbose))).await,
        Kind::Node => {
            Box::pin(node::status::run(ctx, &node::status::StatusArgs::new(supplied, args.verbose))).await
        }
        Kind::Volume => {
            Box::pin(volume::status::run(ctx, &volume::status::StatusArgs::new(supplied, args.verbose))).await
        }
        Kind::Plugin => Box::pin(plugin::status(ctx, &plugin::StatusArgs::new(supplied, args.verbose))).await,
    }
}

/// Returns the type of the object that the argument names: an exact id wins, then the order of types.
async fn find(ctx: &Ctx, supplied: &str) -> Result<Kind, CliError> {
    let mut found: Vec<(Kind, Vec<String>)> = Vec::new();
    let query = ctx.query().prefix(supplied);
    let client = &ctx.client;
    let searching = "Error querying search";
    let jobs = client.jobs().list(&query).await.doing(searching)?.value;
    found.push((Kind::Job, jobs.into_iter().map(|job| job.id.to_string()).collect()));
    let hex = supplied.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if hex && let Ok(prefix) = uuid_prefix(supplied) {
        let query = ctx.query().prefix(prefix);
        let allocs = client.allocations().list(&query).await.doing(searching)?.value;
        found.push((Kind::Alloc, allocs.into_iter().map(|alloc| alloc.id.to_string()).collect()));
        let evals = client.evaluations().list(&query).await.doing(searching)?.value;
        found.push((Kind::Eval, evals.into_iter().map(|eval| eval.id.to_string()).collect()));
        let nodes = client.nodes().list(&query).await.doing(searching)?.value;
        found.push((Kind::Node, nodes.into_iter().map(|node| node.id.to_string()).collect()));
    }
    let volumes = client.volumes().list(&query).await.doing(searching)?.value;
    found.push((Kind::Volume, volumes.into_iter().map(|volume| volume.id.to_string()).collect()));
    let plugins = client.plugins().list(&query).await.doing(searching)?.value;
    found.push((Kind::Plugin, plugins.into_iter().map(|plugin| plugin.id.to_string()).collect()));
    choose(supplied, &found).ok_or_else(|| CliError::failed(format!("Unable to resolve ID: \"{supplied}\"")))
}

fn choose(supplied: &str, found: &[(Kind, Vec<String>)]) -> Option<Kind> {
    let with = |fits: &dyn Fn(&String) -> bool| {
        found.iter().find(|(_, ids)| ids.iter().any(fits)).map(|(kind, _)| *kind)
    };
    with(&|id| id == supplied).or_else(|| with(&|id| id.starts_with(supplied)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_ids_win_over_the_order_of_kinds() {
        let found = [(Kind::Job, vec!["data-2".to_owned()]), (Kind::Volume, vec!["data".to_owned()])];
        assert_eq!(choose("data", &found), Some(Kind::Volume));
        assert_eq!(choose("da", &found), Some(Kind::Job));
        assert_eq!(choose("x", &found), None);
    }
}
