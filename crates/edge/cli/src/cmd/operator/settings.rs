//! `operator autopilot ...`, `operator scheduler ...`, `operator raft ...`

use super::{raft_log, recover};
use crate::cmd::duration_of;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::go_time;
use crate::table::{Pairs, Table};
use caravan_sdk::AutopilotHealth;
use caravan_types::duration::GoDuration;
use caravan_types::operator::SchedulerAlgorithm;
use clap::Subcommand;

/// Subcommands of `operator autopilot`.
#[derive(Debug, Subcommand)]
pub(crate) enum AutopilotVerb {
    /// Show the autopilot settings
    GetConfig(DataArgs),
    /// Change autopilot settings
    SetConfig(AutopilotArgs),
    /// Show the health of the servers
    Health(DataArgs),
}

/// Flags of `operator autopilot set-config`.
#[derive(Debug, clap::Args)]
pub(crate) struct AutopilotArgs {
    #[arg(long, value_name = "BOOL")]
    cleanup_dead_servers: Option<bool>,
    #[arg(long, value_name = "N")]
    max_trailing_logs: Option<u64>,
    #[arg(long, value_name = "DURATION")]
    last_contact_threshold: Option<String>,
    #[arg(long, value_name = "DURATION")]
    server_stabilization_time: Option<String>,
    #[arg(long, value_name = "N")]
    min_quorum: Option<u64>,
    #[arg(long, value_name = "BOOL")]
    enable_redundancy_zones: Option<bool>,
    #[arg(long, value_name = "BOOL")]
    disable_upgrade_migration: Option<bool>,
    #[arg(long, value_name = "BOOL")]
    enable_custom_upgrades: Option<bool>,
}

/// Subcommands of `operator scheduler`.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulerVerb {
    /// Show the scheduler settings
    GetConfig(DataArgs),
    /// Change scheduler settings
    SetConfig(SchedulerArgs),
}

/// Flags of `operator scheduler set-config`.
#[derive(Debug, clap::Args)]
pub(crate) struct SchedulerArgs {
    /// Change the settings only if their modify index equals this
    #[arg(long, value_name = "INDEX")]
    check_index: Option<u64>,
    /// Algorithm that ranks nodes: binpack or spread
    #[arg(long, value_name = "NAME")]
    scheduler_algorithm: Option<String>,
    /// Let tasks use more memory than they reserve
    #[arg(long, value_name = "BOOL")]
    memory_oversubscription: Option<bool>,
    /// Let only management tokens register jobs
    #[arg(long, value_name = "BOOL")]
    reject_job_registration: Option<bool>,
    /// Pause the evaluation broker: no evaluation is processed
    #[arg(long, value_name = "BOOL")]
    pause_eval_broker: Option<bool>,
    /// Let batch jobs preempt allocations of lower priority
    #[arg(long, value_name = "BOOL")]
    preempt_batch_scheduler: Option<bool>,
    /// Let service jobs preempt allocations of lower priority
    #[arg(long, value_name = "BOOL")]
    preempt_service_scheduler: Option<bool>,
    /// Let sysbatch jobs preempt allocations of lower priority
    #[arg(long, value_name = "BOOL")]
    preempt_sysbatch_scheduler: Option<bool>,
    /// Let system jobs preempt allocations of lower priority
    #[arg(long, value_name = "BOOL")]
    preempt_system_scheduler: Option<bool>,
    /// Number of candidate nodes to rank for one allocation; 0: the scheduler decides
    #[arg(long, value_name = "N")]
    node_limit: Option<u64>,
}

/// Subcommands of `operator raft`.
#[derive(Debug, Subcommand)]
pub(crate) enum RaftVerb {
    /// Show a summary of a stopped server's log
    Info(raft_log::InfoArgs),
    /// List the members
    ListPeers(PeersArgs),
    /// Show each entry of the log of a stopped server as JSON
    Logs(raft_log::LogsArgs),
    /// Recover a cluster that lost its majority, with one stopped server
    Recover(recover::RecoverArgs),
    /// Remove a member
    RemovePeer(PeerArgs),
    /// Show the state that results from applying a stopped server's log, as JSON
    State(raft_log::StateArgs),
    /// Transfer leadership to another member
    TransferLeadership(TransferArgs),
}

/// Flags of `operator raft list-peers`.
#[derive(Debug, clap::Args)]
pub(crate) struct PeersArgs {
    /// Let any server answer, possibly with stale data
    #[arg(long)]
    stale: bool,
}

/// Flags of `operator raft remove-peer`.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerArgs {
    /// Id of the member to remove
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    peer_id: String,
    /// Address of the member; not supported, use -peer-id
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    peer_address: String,
}

/// Flags of `operator raft transfer-leadership`.
#[derive(Debug, clap::Args)]
pub(crate) struct TransferArgs {
    /// Id of the new leader
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    peer_id: String,
    /// Address of the new leader
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    peer_address: String,
}

/// Runs a subcommand of `operator autopilot`.
pub(crate) async fn autopilot(ctx: &Ctx, verb: &AutopilotVerb) -> Outcome {
    let operator = ctx.client.operator();
    match verb {
        AutopilotVerb::GetConfig(data) => {
            let config = operator.autopilot(&ctx.query()).await;
            let config = config.doing("Error querying Autopilot configuration")?;
            if let Some(shown) = data.show(ctx, &config) {
                return shown;
            }
            for (name, value) in [
                ("CleanupDeadServers", config.cleanup_dead_servers.to_string()),
                ("LastContactThreshold", config.last_contact_threshold.0.to_string()),
                ("MaxTrailingLogs", config.max_trailing_logs.to_string()),
                ("MinQuorum", config.min_quorum.to_string()),
                ("ServerStabilizationTime", config.server_stabilization_time.0.to_string()),
                ("EnableRedundancyZones", config.enable_redundancy_zones.to_string()),
                ("DisableUpgradeMigration", config.disable_upgrade_migration.to_string()),
                ("EnableCustomUpgrades", config.enable_custom_upgrades.to_string()),
            ] {
                ctx.out.line(&format!("{name} = {value}"));
            }
            Ok(0)
        }
        AutopilotVerb::SetConfig(args) => {
            let mut config =
                operator.autopilot(&ctx.query()).await.doing("Error querying for Autopilot configuration")?;
            let set = |mine: &mut bool, supplied: Option<bool>| *mine = supplied.unwrap_or(*mine);
            set(&mut config.cleanup_dead_servers, args.cleanup_dead_servers);
            set(&mut config.enable_redundancy_zones, args.enable_redundancy_zones);
            set(&mut config.disable_upgrade_migration, args.disable_upgrade_migration);
            set(&mut config.enable_custom_upgrades, args.enable_custom_upgrades);
            config.max_trailing_logs = args.max_trailing_logs.unwrap_or(config.max_trailing_logs);
            config.min_quorum = args.min_quorum.unwrap_or(config.min_quorum);
            for (mine, flag, supplied) in [
                (&mut config.last_contact_threshold, "last-contact-threshold", &args.last_contact_threshold),
                (
                    &mut config.server_stabilization_time,
                    "server-stabilization-time",
                    &args.server_stabilization_time,
                ),
            ] {
                if let Some(text) = supplied {
                    *mine = GoDuration(duration_of(flag, text)?);
                }
            }
            let check = Some(config.modify_index);
            match operator
                .set_autopilot(&config, check, &ctx.query())
                .await
                .doing("Error setting Autopilot configuration")?
            {
                true => ctx.out.line("Configuration updated!"),
                false => {
                    ctx.out.line("Configuration could not be atomically updated, please try again");
                    return Ok(1);
                }
            }
            Ok(0)
        }
        AutopilotVerb::Health(data) => {
            let health = operator.autopilot_health(&ctx.query()).await;
            let health = health.doing("Error querying Autopilot health")?;
            // Scripts of users take the exit code as the health.
            if let Some(shown) = data.show(ctx, &health) {
                return shown.map(|code| code.max(u8::from(!health.healthy)));
            }
            ctx.out.line(&healthy(&health));
            Ok(u8::from(!health.healthy))
        }
    }
}

fn healthy(health: &AutopilotHealth) -> String {
    let rows = health.servers.iter().map(|server| {
        vec![
            server.id.clone(),
            server.name.clone(),
            server.address.clone(),
            server.serf_status.clone(),
            server.version.clone(),
            server.leader.to_string(),
            server.voter.to_string(),
            server.healthy.to_string(),
            server.last_contact.clone(),
            server.last_term.to_string(),
            server.last_index.to_string(),
            go_time(server.stable_since),
        ]
    });
    let heading = [
        "ID",
        "Name",
        "Address",
        "SerfStatus",
        "Version",
        "Leader",
        "Voter",
        "Healthy",
        "LastContact",
        "LastTerm",
        "LastIndex",
        "StableSince",
    ];
    format!(
        "Healthy: {}\nFailureTolerance: {}\nLeader: {}\nVoters:  \n\t{}\nServers: \n{}\n",
        health.healthy,
        health.failure_tolerance,
        health.leader,
        health.voters.join("\n\t"),
        Table::new(&heading).rows(rows).render()
    )
}

/// Runs a subcommand of `operator scheduler`.
pub(crate) async fn scheduler(ctx: &Ctx, verb: &SchedulerVerb) -> Outcome {
    let operator = ctx.client.operator();
    let settings = operator.scheduler(&ctx.query()).await;
    let settings = settings.doing("Error querying scheduler configuration")?;
    match verb {
        SchedulerVerb::GetConfig(data) => {
            if let Some(shown) = data.show(ctx, &settings) {
                return shown;
            }
            let config = settings.scheduler_config;
            let preemption = config.preemption_config;
            let pairs = Pairs::new()
                .pair("Scheduler Algorithm", config.scheduler_algorithm.as_str())
                .pair("Memory Oversubscription", config.memory_oversubscription_enabled.to_string())
                .pair("Reject Job Registration", config.reject_job_registration.to_string())
                .pair("Pause Eval Broker", config.pause_eval_broker.to_string())
                .pair("Preemption System Scheduler", preemption.system_scheduler_enabled.to_string())
                .pair("Preemption Service Scheduler", preemption.service_scheduler_enabled.to_string())
                .pair("Preemption Batch Scheduler", preemption.batch_scheduler_enabled.to_string())
                .pair("Preemption SysBatch Scheduler", preemption.sys_batch_scheduler_enabled.to_string())
                .pair(
                    "Node Limit For Feasibility Checks",
                    config.node_limit_for_feasibility_checks.to_string(),
                )
                .pair("Modify Index", config.modify_index.to_string());
            ctx.out.line(&pairs.render());
            Ok(0)
        }
        SchedulerVerb::SetConfig(args) => {
            let mut config = settings.scheduler_config;
            if let Some(name) = &args.scheduler_algorithm {
                config.scheduler_algorithm = match name.as_str() {
                    "binpack" => SchedulerAlgorithm::Binpack,
                    "spread" => SchedulerAlgorithm::Spread,
                    other => {
                        // The same text as the servers' answer.
                        return Err(CliError::failed(format!(
                            "Error setting scheduler configuration: Unexpected response code: 400 (invalid scheduler algorithm: {other})"
                        )));
                    }
                };
            }
            let set = |mine: &mut bool, supplied: Option<bool>| *mine = supplied.unwrap_or(*mine);
            set(&mut config.memory_oversubscription_enabled, args.memory_oversubscription);
            set(&mut config.reject_job_registration, args.reject_job_registration);
            set(&mut config.pause_eval_broker, args.pause_eval_broker);
            let preemption = &mut config.preemption_config;
            set(&mut preemption.batch_scheduler_enabled, args.preempt_batch_scheduler);
            set(&mut preemption.service_scheduler_enabled, args.preempt_service_scheduler);
            set(&mut preemption.sys_batch_scheduler_enabled, args.preempt_sysbatch_scheduler);
            set(&mut preemption.system_scheduler_enabled, args.preempt_system_scheduler);
            if let Some(limit) = args.node_limit {
                config.node_limit_for_feasibility_checks = limit;
            }
            let done = operator.set_scheduler(&config, args.check_index, &ctx.query()).await;
            match done.doing("Error setting scheduler configuration")? {
                true => {
                    ctx.out.line("Scheduler configuration updated!");
                    Ok(0)
                }
                false => Err(CliError::failed(
                    "Scheduler configuration could not be atomically updated, please try again",
                )),
            }
        }
    }
}

/// Runs a subcommand of `operator raft`.
pub(crate) async fn raft(ctx: &Ctx, verb: &RaftVerb) -> Outcome {
    let operator = ctx.client.operator();
    match verb {
        RaftVerb::Info(args) => raft_log::info(ctx, args),
        RaftVerb::Logs(args) => raft_log::logs(ctx, args),
        RaftVerb::State(args) => raft_log::state(ctx, args),
        RaftVerb::Recover(args) => recover::run(ctx, args),
        RaftVerb::ListPeers(args) => {
            let mut query = ctx.query();
            query.stale = args.stale;
            let peers = operator.raft(&query).await;
            let mut peers = peers.doing("Failed to retrieve raft configuration")?;
            peers.servers.sort_by(|a, b| a.node.cmp(&b.node));
            let rows = peers.servers.into_iter().map(|server| {
                let state = if server.leader { "leader" } else { "follower" };
                vec![
                    server.node,
                    server.id,
                    server.address,
                    state.to_owned(),
                    server.voter.to_string(),
                    server.raft_protocol,
                ]
            });
            let heading = ["Node", "ID", "Address", "State", "Voter", "RaftProtocol"];
            ctx.out.line(&Table::new(&heading).rows(rows).render());
            Ok(0)
        }
        RaftVerb::RemovePeer(args) => {
            if !args.peer_address.is_empty() && args.peer_id.is_empty() {
                return Err(CliError::failed("Removing a peer by address is not supported: use -peer-id"));
            }
            if args.peer_id.is_empty() {
                return Err(CliError::failed("Missing peer id required"));
            }
            operator.remove_peer(&args.peer_id, &ctx.query()).await.doing("Error removing peer")?;
            ctx.out.line(&format!("Removed peer with id \"{}\"", args.peer_id));
            Ok(0)
        }
        RaftVerb::TransferLeadership(args) => {
            let (by, peer) = match (args.peer_id.as_str(), args.peer_address.as_str()) {
                ("", "") => return Err(CliError::failed("Must specify one of -peer-id or -peer-address")),
                (id, "") => ("id", id),
                ("", address) => ("address", address),
                _ => return Err(CliError::failed("Must specify only one of -peer-id or -peer-address")),
            };
            let done = operator.transfer_leadership(by, peer, &ctx.query()).await;
            let done = done.doing("Failed to transfer leadership to peer")?;
            match done["Noop"] == serde_json::json!(true) {
                true => ctx.out.line("The peer leads already: leadership was not transferred"),
                false => {
                    let to = |key: &str| done["To"][key].as_str().unwrap_or_default().to_owned();
                    let (id, address) = (to("ID"), to("Address"));
                    ctx.out.line(&format!(
                        "Transferred leadership to peer with id \"{id}\" at address \"{address}\""
                    ));
                }
            }
            Ok(0)
        }
    }
}
