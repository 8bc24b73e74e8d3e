//! `operator ...`: settings of the region, root keys, snapshots, and tools that read an agent's state.

pub(crate) mod api;
mod at_rest;
mod client_state;
pub(crate) mod debug;
pub(crate) mod keyring;
mod raft_log;
mod recover;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod volume_check;

use crate::ctx::Ctx;
use crate::error::Outcome;
use clap::Subcommand;

/// Subcommands of `operator`.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorVerb {
    /// Send any request to the API
    Api(api::ApiArgs),
    /// Autopilot, which manages the servers: get-config, set-config, health
    #[command(subcommand)]
    Autopilot(settings::AutopilotVerb),
    /// Introduction tokens, with which nodes join: token
    #[command(subcommand)]
    ClientIntroduction(keyring::IntroductionVerb),
    /// Show the state of a stopped client as JSON
    ClientState(client_state::ClientStateArgs),
    /// Collect data that helps to diagnose a cluster
    Debug(Box<debug::DebugArgs>),
    /// Keys that encrypt traffic between servers: keyring
    #[command(subcommand)]
    Gossip(keyring::GossipVerb),
    /// Show the metrics of an agent
    Metrics(api::MetricsArgs),
    /// The replicated log: info, list-peers, logs, recover, remove-peer, state, transfer-leadership
    #[command(subcommand)]
    Raft(settings::RaftVerb),
    /// Root keys of the servers: keyring
    #[command(subcommand)]
    Root(keyring::RootVerb),
    /// Scheduler settings: get-config, set-config
    #[command(subcommand)]
    Scheduler(settings::SchedulerVerb),
    /// Snapshots of the state: save, restore, inspect, redact, state
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotVerb),
    /// Create a bundle of utilization reports
    Utilization(api::UtilizationArgs),
    /// Check volumes and claims in a state snapshot or a stopped agent's data directory
    VolumeCheck(volume_check::VolumeCheckArgs),
}

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
