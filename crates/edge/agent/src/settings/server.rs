//! The settings of the server.

use super::{ClusterSettings, Host, absolute, bad};
use crate::error::AgentError;
use caravan_hcl::config::ServerConfig;
use caravan_server::{Ages, GcConfig, RejectionConfig, Scheduler, Workers};
use caravan_types::Nanos;
use caravan_volumes::lease::Lease;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest configurable number of concurrent calls of one kind to a plugin.
const MAX_CALLS: usize = 1000;
/// The largest configurable event buffer; a larger one would keep too much history in memory.
const MAX_EVENTS: usize = 100_000;
/// The maximum of the default number of workers.
const DEFAULT_WORKERS: usize = 64;

/// The settings of the server.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    pub(crate) data_dir: PathBuf,
    pub(crate) workers: Workers,
    pub(crate) min_heartbeat_ttl: Duration,
    pub(crate) heartbeat_grace: Duration,
    pub(crate) failover_heartbeat_ttl: Option<Duration>,
    pub(crate) lease: Lease,
    pub(crate) volume_calls_per_plugin: usize,
    pub(crate) issuer: Option<String>,
    pub(crate) gc: GcConfig,
    /// The number of indexes whose events are kept; absent means a limit of bytes.
    pub(crate) event_buffer: Option<usize>,
    pub(crate) rejections: RejectionConfig,
    pub(crate) cluster: ClusterSettings,
}

impl ServerSettings {
    /// Reads the `server` block.
    pub(super) fn from_config(
        file: &ServerConfig,
        data_dir: &Path,
        host: &Host,
        cluster: ClusterSettings,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            data_dir: match file.data_dir.clone() {
                Some(dir) => absolute("server.data_dir", dir)?,
                None => data_dir.join("server"),
            },
            workers: workers(file, host.cores)?,
            min_heartbeat_ttl: file.min_heartbeat_ttl.map_or(Duration::from_secs(10), |d| d.to_std()),
            heartbeat_grace: file.heartbeat_grace.map_or(Duration::from_secs(10), |d| d.to_std()),
            failover_heartbeat_ttl: file.failover_heartbeat_ttl.map(|d| d.to_std()),
            lease: lease(file)?,
            volume_calls_per_plugin: calls_per_plugin(file.volume_calls_per_plugin)?,
            issuer: file.oidc_issuer.clone().filter(|issuer| !issuer.is_empty()),
            gc: gc(file),
            event_buffer: event_buffer(file.event_buffer_size)?,
            rejections: rejections(file),
            cluster,
        })
    }
}

pub(super) fn calls_per_plugin(configured: Option<i64>) -> Result<usize, AgentError> {
    let Some(supplied) = configured else { return Ok(caravan_server::CALLS_PER_PLUGIN) };
    match usize::try_from(supplied) {
        Ok(calls) if (1..=MAX_CALLS).contains(&calls) => Ok(calls),
        _ => {
            Err(bad("server.volume_calls_per_plugin", format!("{supplied} is not between 1 and {MAX_CALLS}")))
        }
    }
}

/// Reads the rules by which nodes with many rejected plans become ineligible
/// (docs/reference/jobspec.md, section 11.2).
fn rejections(file: &ServerConfig) -> RejectionConfig {
    let defaults = RejectionConfig::default();
    let Some(tracker) = &file.plan_rejection_tracker else { return defaults };
    RejectionConfig {
        enabled: tracker.enabled.unwrap_or(defaults.enabled),
        threshold: tracker.node_threshold.and_then(|n| usize::try_from(n).ok()).unwrap_or(defaults.threshold),
        window: tracker.node_window.unwrap_or(defaults.window),
    }
}

/// Reads the ages for garbage collection (docs/reference/jobspec.md, section 11.2).
fn gc(file: &ServerConfig) -> GcConfig {
    let GcConfig { interval, ages } = GcConfig::default();
    GcConfig {
        interval: file.job_gc_interval.unwrap_or(interval),
        ages: Ages {
            evals: file.eval_gc_threshold.unwrap_or(ages.evals),
            batch_evals: file.batch_eval_gc_threshold.unwrap_or(ages.batch_evals),
            jobs: file.job_gc_threshold.unwrap_or(ages.jobs),
            deployments: file.deployment_gc_threshold.unwrap_or(ages.deployments),
            nodes: file.node_gc_threshold.unwrap_or(ages.nodes),
        },
    }
}

fn event_buffer(configured: Option<i64>) -> Result<Option<usize>, AgentError> {
    let Some(supplied) = configured else { return Ok(None) };
    match usize::try_from(supplied) {
        Ok(indexes) if (1..=MAX_EVENTS).contains(&indexes) => Ok(Some(indexes)),
        _ => Err(bad("server.event_buffer_size", format!("{supplied} is not between 1 and {MAX_EVENTS}"))),
    }
}

/// Reads the times of lease and fence. A lease must outlast ordinary network failures, a kill takes time, and
/// clocks differ.
fn lease(file: &ServerConfig) -> Result<Lease, AgentError> {
    let default = Lease::default();
    let span = |field, supplied: Option<Nanos>, default: Nanos, least: Nanos| match supplied {
        Some(supplied) if supplied < least => {
            Err(bad(field, format!("{supplied} is too short: at least {least}")))
        }
        supplied => Ok(supplied.unwrap_or(default)),
    };
    let tenth = Nanos::from_millis(100);
    Ok(Lease {
        ttl: span("server.lease_ttl", file.lease_ttl, default.ttl, Nanos::from_secs(1))?,
        kill_grace: span("server.lease_kill_grace", file.lease_kill_grace, default.kill_grace, tenth)?,
        margin: span("server.lease_margin", file.lease_margin, default.margin, tenth)?,
    })
}

/// Reads `num_schedulers`, by default one for each core, and `enabled_schedulers`, which always includes `_core`.
fn workers(file: &ServerConfig, cores: usize) -> Result<Workers, AgentError> {
    let number = match file.num_schedulers {
        None => cores.min(DEFAULT_WORKERS),
        Some(number) => usize::try_from(number)
            .map_err(|_| bad("server.num_schedulers", format!("{number} is less than 0")))?,
    };
    let named =
        file.enabled_schedulers.as_deref().unwrap_or_default().iter().map(|name| name.parse::<Scheduler>());
    let enabled: Result<Vec<Scheduler>, _> = named.collect();
    let mut enabled = enabled.map_err(|error| bad("server.enabled_schedulers", error.to_string()))?;
    if enabled.is_empty() {
        enabled = Scheduler::ALL.to_vec();
    } else if !enabled.contains(&Scheduler::Core) {
        enabled.push(Scheduler::Core);
    }
    Workers::new(number, enabled).map_err(|error| bad("server.num_schedulers", error.to_string()))
}
