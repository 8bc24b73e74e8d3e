//! `node …`

pub(crate) mod config;
pub(crate) mod drain;
pub(crate) mod eligibility;
pub(crate) mod fence;
pub(crate) mod identity;
pub(crate) mod meta;
pub(crate) mod pool;
pub(crate) mod status;

use crate::ctx::Ctx;
use crate::error::CliError;
use crate::resolve;
use clap::Subcommand;

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Show or change the servers of a client
    Config(config::ConfigArgs),
    /// Show nodes, or one node
    Status(status::StatusArgs),
    /// Drain a node: move all its allocations away
    Drain(drain::DrainArgs),
    /// Set whether the scheduler may place allocations on a node
    Eligibility(eligibility::EligibilityArgs),
    /// Confirm that a node's machine is off, so that other nodes can use its volumes at once
    Fence(fence::FenceArgs),
    /// Signed identities of nodes: get, renew
    #[command(subcommand)]
    Identity(identity::IdentityVerb),
    /// Introduction tokens, with which nodes join: create
    #[command(subcommand)]
    Intro(identity::IntroVerb),
    /// Metadata of nodes: read, apply
    #[command(subcommand)]
    Meta(meta::MetaVerb),
    /// Node pools: apply, delete, info, init, jobs, list, nodes
    #[command(subcommand)]
    Pool(pool::PoolVerb),
}

/// Returns the id of the agent's own node, or of the node that the only argument names.
pub(crate) async fn meant(ctx: &Ctx, own: bool, args: &[String]) -> Result<String, CliError> {
    match (own, args) {
        (true, []) => resolve::own_node(ctx).await,
        (false, [supplied]) => Ok(resolve::node(ctx, supplied).await?.id.to_string()),
        _ => Err(CliError::Usage("Node ID must be specified if -self isn't being used".into())),
    }
}
