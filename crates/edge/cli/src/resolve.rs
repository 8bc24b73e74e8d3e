//! Resolves ids and prefixes that a user typed to one object.

use crate::cmd::{alloc, eval, job, node};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _};
use caravan_sdk::QueryOptions;
use caravan_types::alloc::AllocListStub;
use caravan_types::eval::Evaluation;
use caravan_types::job::JobListStub;
use caravan_types::node::NodeListStub;

/// The result of a search by prefix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// No match.
    None,
    /// One match, or an exact one.
    One(T),
    /// Several matches, none of them exact.
    Many(Vec<T>),
}

/// Returns the object whose id equals `supplied`, or the only object in `found`.
pub(crate) fn pick<T>(supplied: &str, found: Vec<T>, id: impl Fn(&T) -> &str) -> Found<T> {
    let mut rest = Vec::new();
    for object in found {
        if id(&object) == supplied {
            return Found::One(object);
        }
        rest.push(object);
    }
    match rest.len() {
        0 => Found::None,
        1 => rest.pop().map_or(Found::None, Found::One),
        _ => Found::Many(rest),
    }
}

/// Returns a prefix of a UUID as the agent accepts it: with an even number of digits.
///
/// # Errors
/// `supplied` has fewer than two characters.
pub(crate) fn uuid_prefix(supplied: &str) -> Result<String, CliError> {
    if supplied.chars().count() < 2 {
        return Err(CliError::failed("Identifier must contain at least two characters."));
    }
    let mut prefix = supplied.to_owned();
    if prefix.chars().filter(|c| *c != '-').count() % 2 == 1 {
        prefix.pop();
    }
    Ok(prefix)
}

/// Returns the job with this id or unique prefix.
pub(crate) async fn job(ctx: &Ctx, supplied: &str) -> Result<JobListStub, CliError> {
    let query = QueryOptions { per_page: 20, ..ctx.query().prefix(supplied) };
    find_job(ctx, supplied, &query, "", |_| true).await
}

/// Returns the job of some kind with this id or unique prefix. `kind` is the name of the kind, followed by a space.
pub(crate) async fn job_of_kind(
    ctx: &Ctx,
    supplied: &str,
    kind: &str,
    fits: impl Fn(&JobListStub) -> bool,
) -> Result<JobListStub, CliError> {
    // A page could have jobs of other kinds only.
    find_job(ctx, supplied, &ctx.query().prefix(supplied), kind, fits).await
}

async fn find_job(
    ctx: &Ctx,
    supplied: &str,
    query: &QueryOptions,
    kind: &str,
    fits: impl Fn(&JobListStub) -> bool,
) -> Result<JobListStub, CliError> {
    let mut jobs =
        ctx.client.jobs().list(query).await.doing(format!("Error querying job prefix \"{supplied}\""))?;
    jobs.value.retain(fits);
    match pick(supplied, jobs.value, |job| job.id.as_str()) {
        Found::One(job) => Ok(job),
        Found::None => {
            Err(CliError::failed(format!("No {kind}job(s) with prefix or ID \"{supplied}\" found")))
        }
        Found::Many(jobs) => Err(CliError::failed(format!(
            "Prefix \"{supplied}\" matched multiple jobs\n\n{}",
            job::status::list(&ctx.clock(), &jobs, ctx.all_namespaces())
        ))),
    }
}

/// Returns the allocation with this id or unique prefix.
pub(crate) async fn alloc(ctx: &Ctx, supplied: &str) -> Result<AllocListStub, CliError> {
    let query = ctx.query().prefix(uuid_prefix(supplied)?);
    let mut allocs = ctx.client.allocations().list(&query).await.doing("Error querying allocation")?.value;
    allocs.retain(|alloc| alloc.id.as_str().starts_with(supplied));
    match pick(supplied, allocs, |alloc| alloc.id.as_str()) {
        Found::One(alloc) => Ok(alloc),
        Found::None => {
            Err(CliError::failed(format!("No allocation(s) with prefix or id \"{supplied}\" found")))
        }
        Found::Many(allocs) => Err(CliError::failed(format!(
            "Prefix matched multiple allocations\n\n{}",
            alloc::table(&ctx.clock(), &allocs, alloc::Columns::default()).render()
        ))),
    }
}

/// Returns the evaluation with this id or unique prefix.
pub(crate) async fn eval(ctx: &Ctx, supplied: &str) -> Result<Evaluation, CliError> {
    let query = ctx.query().prefix(uuid_prefix(supplied)?);
    let mut evals = ctx.client.evaluations().list(&query).await.doing("Error querying evaluation")?.value;
    evals.retain(|eval| eval.id.as_str().starts_with(supplied));
    match pick(supplied, evals, |eval| eval.id.as_str()) {
        Found::One(eval) => Ok(eval),
        Found::None => {
            Err(CliError::failed(format!("No evaluation(s) with prefix or id \"{supplied}\" found")))
        }
        Found::Many(evals) => Err(CliError::failed(format!(
            "Prefix matched multiple evaluations\n\n{}",
            eval::list_table(&evals, false)
        ))),
    }
}

/// Returns the node with this id or unique prefix.
pub(crate) async fn node(ctx: &Ctx, supplied: &str) -> Result<NodeListStub, CliError> {
    let query = ctx.query().prefix(uuid_prefix(supplied)?);
    let mut nodes = ctx.client.nodes().list(&query).await.doing("Error querying node info")?.value;
    nodes.retain(|node| node.id.as_str().starts_with(supplied));
    match pick(supplied, nodes, |node| node.id.as_str()) {
        Found::One(node) => Ok(node),
        Found::None => Err(CliError::failed(format!("No node(s) with prefix \"{supplied}\" found"))),
        Found::Many(nodes) => Err(CliError::failed(format!(
            "Prefix matched multiple nodes\n\n{}",
            node::status::list(&nodes, false, false, None)
        ))),
    }
}

/// Returns the id of the agent's own node.
pub(crate) async fn own_node(ctx: &Ctx) -> Result<String, CliError> {
    let agent = ctx.client.agent().info().await.doing("Error querying agent info")?;
    match agent.node_id() {
        Some(id) if !id.is_empty() => Ok(id.to_owned()),
        _ => Err(CliError::failed(
            "The agent is not a client and has no node: ask an agent that is one, or name the node",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_id_wins_over_longer_ones() {
        let found =
            |ids: &[&str], supplied| pick(supplied, ids.iter().map(|id| (*id).to_owned()).collect(), |id| id);
        assert_eq!(found(&["web", "web-2"], "web"), Found::One("web".into()));
        assert_eq!(found(&["encode"], "e"), Found::One("encode".into()));
        assert_eq!(found(&["a1", "a2"], "a"), Found::Many(vec!["a1".into(), "a2".into()]));
        assert_eq!(found(&[], "a"), Found::None);
    }

    #[test]
    fn prefixes_of_ids_have_an_even_number_of_digits() {
        assert_eq!(uuid_prefix("55360c301").unwrap(), "55360c30");
        assert_eq!(uuid_prefix("55360c30-8").unwrap(), "55360c30-");
        assert_eq!(uuid_prefix("55360c30-88").unwrap(), "55360c30-88");
        assert!(uuid_prefix("z").is_err());
    }
}
