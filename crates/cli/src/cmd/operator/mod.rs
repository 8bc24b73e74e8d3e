//! `operator ...`: settings of the region, root keys, snapshots, and looking into an agent's state.

pub(crate) mod api;
mod at_rest;
mod client_state;
pub(crate) mod debug;
pub(crate) mod keyring;
mod raft_log;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod volume_check;

use crate::ctx::Ctx;
use crate::error::Outcome;
use clap::Subcommand;

/// What operators do.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorVerb {
    /// Send any request to the API
    Api(api::ApiArgs),
    /// Care for the servers: get-config, set-config, health
    #[command(subcommand)]
    Autopilot(settings::AutopilotVerb),
    /// Tokens that let nodes in
    #[command(subcommand)]
    ClientIntroduction(keyring::IntroductionVerb),
    /// Show what a stopped client knows, as JSON
    ClientState(client_state::ClientStateArgs),
    /// Collect what helps to find out what is wrong with a cluster
    Debug(Box<debug::DebugArgs>),
    /// Secrets between servers
    #[command(subcommand)]
    Gossip(keyring::GossipVerb),
    /// Show the figures of an agent
    Metrics(api::MetricsArgs),
    /// The replicated log: info, list-peers, logs, remove-peer, state, transfer-leadership
    #[command(subcommand)]
    Raft(settings::RaftVerb),
    /// Secrets of the servers
    #[command(subcommand)]
    Root(keyring::RootVerb),
    /// Scheduling: get-config, set-config
    #[command(subcommand)]
    Scheduler(settings::SchedulerVerb),
    /// Snapshots of the state: save, restore, inspect, redact, state
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotVerb),
    /// A bundle of use figures
    Utilization(api::UtilizationArgs),
    /// Check volumes and claims in a state snapshot or a stopped agent's data directory
    VolumeCheck(volume_check::VolumeCheckArgs),
}

/// Runs the verb.
pub(crate) async fn run(ctx: &Ctx, verb: &OperatorVerb) -> Outcome {
    match verb {
        OperatorVerb::Api(args) => api::run(ctx, args).await,
        OperatorVerb::Autopilot(verb) => settings::autopilot(ctx, verb).await,
        OperatorVerb::ClientIntroduction(keyring::IntroductionVerb::Token(
            keyring::IntroductionTokenVerb::Create(args),
        )) => keyring::introduce(ctx, args).await,
        OperatorVerb::ClientState(args) => client_state::run(ctx, args),
        OperatorVerb::Debug(args) => debug::run(ctx, args).await,
        OperatorVerb::Gossip(keyring::GossipVerb::Keyring(verb)) => keyring::gossip(ctx, verb).await,
        OperatorVerb::Metrics(args) => api::metrics(ctx, args).await,
        OperatorVerb::Raft(verb) => settings::raft(ctx, verb).await,
        OperatorVerb::Root(keyring::RootVerb::Keyring(verb)) => keyring::run(ctx, verb).await,
        OperatorVerb::Scheduler(verb) => settings::scheduler(ctx, verb).await,
        OperatorVerb::Snapshot(verb) => snapshot::run(ctx, verb).await,
        OperatorVerb::Utilization(_) => api::utilization(ctx).await,
        OperatorVerb::VolumeCheck(args) => volume_check::run(ctx, args),
    }
}
