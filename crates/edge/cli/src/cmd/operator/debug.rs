//! `operator debug`: collects a bundle of data that helps to diagnose a cluster.

mod bundle;
mod capture;
mod targets;

use crate::cmd::none;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use bundle::Bundle;
use capture::{Capture, Logs, Target};
use caravan_types::duration;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use targets::Targets;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Flags of `operator debug`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DebugArgs {
    /// Time to collect for
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    duration: String,
    /// Interval between two captures of changing data
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    interval: String,
    /// Lowest level of the agents' logs
    #[arg(long, value_name = "LEVEL", default_value = "DEBUG")]
    log_level: String,
    /// Include the source location of each log entry
    #[arg(long)]
    log_include_location: bool,
    /// Also collect the agents' log files
    #[arg(long)]
    log_file_export: bool,
    /// Also collect the journals of the agents' services, as far back as this duration
    #[arg(long, value_name = "DURATION")]
    log_lookback: Option<String>,
    /// Maximum number of nodes to collect from; 0: all
    #[arg(long, value_name = "N", default_value_t = 10, allow_hyphen_values = true)]
    max_nodes: i64,
    /// Nodes to collect from, separated by commas: ids, prefixes of them, names, or all
    #[arg(long, value_name = "NODES", default_value = "all")]
    node_id: String,
    /// Collect only from nodes of this class
    #[arg(long, value_name = "CLASS", default_value = "", hide_default_value = true)]
    node_class: String,
    /// Servers to collect from, separated by commas: names, ids, leader, or all
    #[arg(long, value_name = "SERVERS", default_value = "all")]
    server_id: String,
    /// Let any server answer, possibly with stale data
    #[arg(long)]
    stale: bool,
    /// Events to collect, separated by commas: Topic, Topic:key, all, or none
    #[arg(long, value_name = "TOPICS", default_value = "none")]
    event_topic: String,
    /// Index of the first event
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    event_index: u64,
    /// Duration of the agents' CPU profiles; 0: no profiles
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pprof_duration: String,
    /// Interval between profiles; has no effect, as agents are profiled once
    #[arg(long, value_name = "DURATION", default_value = "250ms", hide = true)]
    pprof_interval: String,
    /// Directory to write the bundle to, instead of an archive
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the name of every agent that data is collected from
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    others: OtherArgs,
    /// Rejected: the command takes no arguments
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Flags about Consul and Vault, which this build does not query.
#[derive(Clone, Default, clap::Args)]
struct OtherArgs {
    #[arg(long, hide = true)]
    consul_http_addr: Option<String>,
    #[arg(long, hide = true)]
    consul_token: Option<String>,
    #[arg(long, hide = true)]
    consul_token_file: Option<String>,
    #[arg(long, hide = true)]
    consul_client_cert: Option<String>,
    #[arg(long, hide = true)]
    consul_client_key: Option<String>,
    #[arg(long, hide = true)]
    consul_ca_cert: Option<String>,
    #[arg(long, hide = true)]
    consul_ca_path: Option<String>,
    #[arg(long, hide = true)]
    consul_auth: Option<String>,
    #[arg(long, hide = true)]
    vault_address: Option<String>,
    #[arg(long, hide = true)]
    vault_token: Option<String>,
    #[arg(long, hide = true)]
    vault_client_cert: Option<String>,
    #[arg(long, hide = true)]
    vault_client_key: Option<String>,
    #[arg(long, hide = true)]
    vault_ca_cert: Option<String>,
    #[arg(long, hide = true)]
    vault_ca_path: Option<String>,
}

impl OtherArgs {
    fn any(&self) -> bool {
        [
            &self.consul_http_addr,
            &self.consul_token,
            &self.consul_token_file,
            &self.consul_client_cert,
            &self.consul_client_key,
            &self.consul_ca_cert,
            &self.consul_ca_path,
            &self.consul_auth,
            &self.vault_address,
            &self.vault_token,
            &self.vault_client_cert,
            &self.vault_client_key,
            &self.vault_ca_cert,
            &self.vault_ca_path,
        ]
        .into_iter()
        .any(Option::is_some)
    }
}

// Written by hand, because some of these flags hold secrets.
impl std::fmt::Debug for OtherArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OtherArgs").field("given", &self.any()).finish_non_exhaustive()
    }
}

/// The flags of `operator debug`, with durations and topics read.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    duration: Duration,
    interval: Duration,
    profile_seconds: u64,
    topics: Option<Vec<String>>,
}

impl Plan {
    /// Returns the number of intervals that begin within the duration; at least 1.
    fn intervals(&self) -> u32 {
        let number = self.duration.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        u32::try_from(number).unwrap_or(u32::MAX).max(1)
    }

    fn read(args: &DebugArgs) -> Result<Self, CliError> {
        none(&args.args)?;
        let span = |what: &str, text: &str| {
            duration::parse(text)
                .filter(|span| span.0 >= 0)
                .map(caravan_types::Nanos::to_std)
                .ok_or_else(|| CliError::failed(format!("Error parsing {what}: {}", duration::invalid(text))))
        };
        let (length, interval) = (span("duration", &args.duration)?, span("interval", &args.interval)?);
        if interval.is_zero() {
            return Err(CliError::failed("Error parsing interval: it must be above 0"));
        }
        if let Some(text) = &args.log_lookback {
            span("log lookback", text)?;
        }
        span("pprof interval", &args.pprof_interval)?;
        let profile = span("pprof duration", &args.pprof_duration)?;
        let words: Vec<&str> = args.event_topic.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
        let topics = match words.as_slice() {
            [] | ["none"] => None,
            words if words.contains(&"all") || words.contains(&"*") => Some(vec!["*".to_owned()]),
            words => Some(words.iter().copied().map(topic).collect::<Result<_, _>>()?),
        };
        // The route takes whole seconds; round a shorter profile up to one second.
        let profile_seconds = profile.as_secs().max(u64::from(!profile.is_zero()));
        Ok(Self { duration: length, interval, profile_seconds, topics })
    }
}

/// Parses a topic: `Job`, `job:web`, `Job:*`.
fn topic(text: &str) -> Result<String, CliError> {
    let wrong = || CliError::failed(format!("Error parsing event topics: failed to parse topic: {text:?}"));
    let (name, key) = text.split_once(':').unwrap_or((text, "*"));
    if name.is_empty() || key.is_empty() || key.contains(':') {
        return Err(wrong());
    }
    let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
    Ok(format!("{}{rest}:{key}", first.to_ascii_uppercase()))
}

pub(crate) async fn run(ctx: &Ctx, args: &DebugArgs) -> Outcome {
    let plan = Plan::read(args)?;
    let mut query = ctx.query().namespace("*");
    query.stale = args.stale;
    let targets = targets::find(ctx, args, &query).await?;
    let stamp = jiff::Timestamp::now().strftime("%Y-%m-%d-%H%M%SZ");
    let name = format!("nomad-debug-{stamp}");
    let dir = match &args.output {
        Some(parent) => parent.join(&name),
        None => std::env::temp_dir().join(format!("{name}-{}", std::process::id())),
    };
    let bundle = Bundle::create(dir.clone(), args.output.is_some())
        .doing(format!("Error creating output directory {}", dir.display()))?;
    let archive = args.output.is_none().then(|| PathBuf::from(format!("{name}.tar.gz")));
    if let Some(path) = archive.as_ref().filter(|path| path.exists()) {
        return Err(CliError::failed(format!("Output file already exists: {}", path.display())));
    }
    head(ctx, args, &plan, &targets);
    let capture = Arc::new(Capture {
        client: ctx.client.clone(),
        bundle,
        query,
        asked: AtomicUsize::default(),
        failed: AtomicUsize::default(),
    });
    let mut streams = JoinSet::new();
    let listening = |kind: SignalKind| signal(kind).doing("Error listening to signals");
    let (mut interrupt, mut terminate) =
        (listening(SignalKind::interrupt())?, listening(SignalKind::terminate())?);
    let begun = Instant::now();
    let ended = tokio::select! {
        done = Box::pin(collect(ctx, args, &plan, &targets, &capture, &mut streams)) => Some(done),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    match ended {
        Some(done) => done.doing("Error writing the bundle")?,
        None => {
            let after = begun.elapsed().as_secs();
            ctx.out
                .line(&format!("Interrupted after {after}s: the bundle holds what was collected until now"));
        }
    }
    streams.shutdown().await;
    capture.bundle.index().doing("Error creating index")?;
    let (asked, failed) = (capture.asked.load(Ordering::Relaxed), capture.failed.load(Ordering::Relaxed));
    if failed > 0 {
        ctx.out.note(&format!("{failed} of {asked} requests failed; the files in their place say why"));
    }
    match archive {
        Some(path) => {
            capture.bundle.pack(&name, &path).doing("Error creating archive")?;
            ctx.out.line(&format!("Created debug archive: {}", path.display()));
        }
        None => ctx.out.line(&format!("Created debug directory: {}", capture.bundle.dir().display())),
    }
    Ok(0)
}

fn head(ctx: &Ctx, args: &DebugArgs, plan: &Plan, targets: &Targets) {
    let shown = |names: &[String], all: usize| format!("({}/{all}) {names:?}", names.len());
    let pairs = crate::table::Pairs::new()
        .pair("Version", env!("CARGO_PKG_VERSION"))
        .pair("Address", ctx.client.address().to_string())
        .pair("Servers", shown(&targets.servers, targets.all_servers))
        .pair("Clients", shown(&targets.nodes, targets.all_nodes))
        .pair("Interval", span(plan.interval))
        .pair("Duration", span(plan.duration))
        .pair("Log level", args.log_level.as_str())
        .pair("Event topics", plan.topics.as_ref().map_or("none".to_owned(), |topics| topics.join(", ")));
    ctx.out.line(&format!("Starting debugger...\n\n{}\n", pairs.render()));
    if args.others.any() {
        ctx.out.note("Consul and Vault are not asked: this build does not talk to them.");
    }
}

fn span(length: Duration) -> String {
    caravan_types::Nanos::from_std(length).to_string()
}

/// Collects until the duration is over. The tasks in `streams` run beside it.
async fn collect(
    ctx: &Ctx,
    args: &DebugArgs,
    plan: &Plan,
    targets: &Targets,
    capture: &Arc<Capture>,
    streams: &mut JoinSet<std::io::Result<()>>,
) -> std::io::Result<()> {
    let servers = targets.servers.iter().cloned().map(Target::Server);
    let agents: Vec<Target> = servers.chain(targets.nodes.iter().cloned().map(Target::Node)).collect();
    let logs = Logs {
        level: args.log_level.clone(),
        location: args.log_include_location,
        files: args.log_file_export,
        lookback: args.log_lookback.clone(),
    };
    // Start the streams first, so that they also record the effects of the collection itself.
    for target in &agents {
        let (own, target, logs) = (Arc::clone(capture), target.clone(), logs.clone());
        streams.spawn(async move { own.monitor(&target, &logs).await });
    }
    if let Some(topics) = plan.topics.clone() {
        let (own, index) = (Arc::clone(capture), args.event_index);
        streams.spawn(async move { own.events(&topics, index).await });
    }
    ctx.out.line("Capturing cluster data...");
    capture.bundle.json("cluster/cli-flags.json", flags(args))?;
    capture.bundle.json("cluster/version.json", json!({"Version": env!("CARGO_PKG_VERSION")}))?;
    capture.cluster().await?;
    for target in &agents {
        if args.verbose {
            let (what, name) = match target {
                Target::Server(name) => ("server", name),
                Target::Node(id) => ("client", id),
            };
            ctx.out.line(&format!("    Capturing {what} {name}"));
        }
        capture.agent(target, plan.profile_seconds).await?;
        capture.export(target, &logs).await?;
    }
    let begun = Instant::now();
    for number in 0..plan.intervals() {
        tokio::time::sleep_until(begun + plan.interval * number).await;
        ctx.out.line(&format!("    Capture interval {number:04}"));
        capture.interval(number).await?;
    }
    tokio::time::sleep_until(begun + plan.duration).await;
    Ok(())
}

/// Returns the flags as parsed, without any that may hold secrets.
fn flags(args: &DebugArgs) -> Value {
    let mut out = Map::new();
    for (name, value) in [
        ("duration", json!(args.duration)),
        ("interval", json!(args.interval)),
        ("log-level", json!(args.log_level)),
        ("log-include-location", json!(args.log_include_location)),
        ("log-file-export", json!(args.log_file_export)),
        ("log-lookback", json!(args.log_lookback)),
        ("max-nodes", json!(args.max_nodes)),
        ("node-id", json!(args.node_id)),
        ("node-class", json!(args.node_class)),
        ("server-id", json!(args.server_id)),
        ("stale", json!(args.stale)),
        ("event-topic", json!(args.event_topic)),
        ("event-index", json!(args.event_index)),
        ("pprof-duration", json!(args.pprof_duration)),
    ] {
        out.insert(name.to_owned(), value);
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_fill_the_duration() {
        let intervals = |duration: u64, interval: u64| {
            let (duration, interval) = (Duration::from_secs(duration), Duration::from_secs(interval));
            Plan { duration, interval, profile_seconds: 0, topics: None }.intervals()
        };
        assert_eq!(intervals(120, 30), 4);
        assert_eq!((intervals(2, 1), intervals(5, 2), intervals(1, 30), intervals(0, 30)), (2, 3, 1, 1));
    }

    #[test]
    fn topics_are_named_as_the_stream_knows_them() {
        assert_eq!(topic("job").unwrap(), "Job:*");
        assert_eq!(topic("Node:n1").unwrap(), "Node:n1");
        assert_eq!(topic("äx").unwrap(), "äx:*");
        for bad in [":x", "Job:", "a:b:c"] {
            assert!(topic(bad).is_err(), "{bad}");
        }
    }
}
