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

/// Verbs of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Show or change the servers of a client
    Config(config::ConfigArgs),
    /// Show nodes, or one node
    Status(status::StatusArgs),
    /// Move all work away from a node
    Drain(drain::DrainArgs),
    /// Whether a node takes new work
    Eligibility(eligibility::EligibilityArgs),
    /// Say that the machine of a node is off, so that its volumes are handed on at once
    Fence(fence::FenceArgs),
    /// Signed identities of nodes: get, renew
    #[command(subcommand)]
    Identity(identity::IdentityVerb),
    /// Letting nodes in: create
    #[command(subcommand)]
    Intro(identity::IntroVerb),
    /// Free pairs of nodes: read, apply
    #[command(subcommand)]
    Meta(meta::MetaVerb),
    /// Node pools: apply, delete, info, init, jobs, list, nodes
    #[command(subcommand)]
    Pool(pool::PoolVerb),
}

/// The node that is meant: the agent's own, or the one named.
pub(crate) async fn meant(ctx: &Ctx, own: bool, args: &[String]) -> Result<String, CliError> {
    match (own, args) {
        (true, []) => resolve::own_node(ctx).await,
        (false, [given]) => Ok(resolve::node(ctx, given).await?.id.to_string()),
        _ => Err(CliError::Usage("Node ID must be specified if -self isn't being used".into())),
    }
}
