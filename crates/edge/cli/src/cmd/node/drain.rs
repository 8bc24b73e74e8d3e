//! `node drain`

use super::meant;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::Clock;
use crate::monitor::pace;
use caravan_sdk::{DrainRequest, DrainSpec, Watch};
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::id::AllocId;
use caravan_types::node::{Node, NodeEvent};
use caravan_types::time::Nanos;
use std::collections::BTreeMap;
use std::time::Instant;

/// Flags of `node drain`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DrainArgs {
    /// Start draining the node
    #[arg(long)]
    enable: bool,
    /// Stop draining the node
    #[arg(long)]
    disable: bool,
    /// Time after which the remaining allocations are stopped, for example 90m [default: 1h]
    #[arg(long, value_name = "DURATION")]
    deadline: Option<String>,
    /// Wait for the remaining allocations without a deadline
    #[arg(long)]
    no_deadline: bool,
    /// Stop all allocations at once
    #[arg(long)]
    force: bool,
    /// Leave the allocations of system jobs on the node
    #[arg(long)]
    ignore_system: bool,
    /// With -disable: leave the node ineligible for scheduling
    #[arg(long)]
    keep_ineligible: bool,
    /// Reason for the drain, stored with it
    #[arg(short = 'm', value_name = "MESSAGE")]
    message: Option<String>,
    /// Metadata stored with the drain, KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
    /// Return at once instead of following the drain
    #[arg(long)]
    detach: bool,
    /// Follow a drain in progress without changing it
    #[arg(long)]
    monitor: bool,
    /// Use the node of the agent that answers
    #[arg(long = "self")]
    own: bool,
    /// Skip the confirmation prompt
    #[arg(long, short = 'y')]
    yes: bool,
    /// Node id or prefix
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &DrainArgs) -> Outcome {
    if !args.monitor && args.enable == args.disable {
        return Err(CliError::Usage(
            "Either the '-enable' or '-disable' flag must be set, unless using '-monitor'".into(),
        ));
    }
    let request = args.request()?;
    let id = meant(ctx, args.own, &args.args).await?;
    if args.monitor && !args.enable && !args.disable {
        return follow(ctx, &id).await;
    }
    let question = format!("Are you sure you want to {} drain mode for node \"{id}\"? [y/N]", args.word());
    if !args.yes && !ctx.out.ask(&question, &["y", "Y"]) {
        return Err(CliError::failed("Canceling drain toggle"));
    }
    ctx.client
        .nodes()
        .drain(&id, &request, &ctx.query())
        .await
        .doing("Error updating drain specification")?;
    let set = if args.enable { "set" } else { "unset" };
    ctx.out.line(&format!("Node \"{id}\" drain strategy {set}"));
    if args.enable && !args.detach {
        return follow(ctx, &id).await;
    }
    Ok(0)
}

impl DrainArgs {
    fn word(&self) -> &'static str {
        if self.enable { "enable" } else { "disable" }
    }

    fn request(&self) -> Result<DrainRequest, CliError> {
        let deadline = match (self.force, self.no_deadline, &self.deadline) {
            (true, false, None) => Nanos(-1),
            (false, true, None) => Nanos(0),
            (false, false, None) => Nanos::from_secs(3600),
            (false, false, Some(text)) => duration(text).filter(|d| d.0 > 0).ok_or_else(|| {
                CliError::failed(format!(
                    "Failed to parse deadline \"{text}\": it must be a positive duration such as 90m or 1h30m"
                ))
            })?,
            _ => return Err(CliError::failed("-force, -no-deadline and -deadline exclude each other")),
        };
        let mut meta = BTreeMap::new();
        for text in &self.meta {
            let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                CliError::failed(format!("Error parsing -meta value: {text:?} is not of the form KEY=VALUE"))
            })?;
            meta.insert(key.to_owned(), value.to_owned());
        }
        if let Some(text) = &self.message {
            meta.insert("message".to_owned(), text.clone());
        }
        let spec = DrainSpec { deadline, ignore_system_jobs: self.ignore_system };
        Ok(DrainRequest {
            drain_spec: self.enable.then_some(spec),
            mark_eligible: self.disable && !self.keep_ineligible,
            meta,
        })
    }
}

/// Parses a duration in Go's notation, with whole numbers only.
fn duration(text: &str) -> Option<Nanos> {
    let mut total: i64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let n: i64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let nanos = match &rest[digits..unit] {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            _ => return None,
        };
        total = total.checked_add(n.checked_mul(nanos)?)?;
        rest = &rest[unit..];
    }
    Some(Nanos(total))
}

async fn follow(ctx: &Ctx, id: &str) -> Outcome {
    ctx.out.line(&format!("{}: Monitoring node \"{id}\": Ctrl-C to detach monitoring", ctx.clock().stamp()));
    let mut monitor = Monitor::default();
    let (mut of_allocs, mut of_node) = (Watch::new(ctx.query()), Watch::new(ctx.query()));
    let (mut allocs, mut node) = (Vec::new(), None::<Node>);
    let nodes = ctx.client.nodes();
    loop {
        let asked = Instant::now();
        let (next_allocs, next_node) = (of_allocs.query().clone(), of_node.query().clone());
        // Continue at the first change. The end of the drain changes only the node.
        let new = tokio::select! {
            answer = nodes.allocations(id, &next_allocs) => {
                let answer = answer.doing("Error querying node allocations")?;
                allocs = answer.value;
                of_allocs.saw(&answer.meta)
            }
            answer = nodes.info(id, &next_node) => {
                let answer = answer.doing("Error querying node info")?;
                node = Some(answer.value);
                of_node.saw(&answer.meta)
            }
        };
        pace(new, asked).await;
        for line in monitor.update(&ctx.clock(), &allocs) {
            ctx.out.line(&line);
        }
        let Some(node) = &node else { continue };
        for line in monitor.waits(&ctx.clock(), node) {
            ctx.out.line(&line);
        }
        let leaving = allocs.iter().any(|a| a.server_terminal() && !a.client_terminal());
        if node.drain_strategy.is_none() && !leaving {
            let end = node.last_drain.as_ref().map_or("complete", |drain| drain.status.as_str());
            ctx.out.line(&format!("{}: Drain {end} for node {id}", ctx.clock().stamp()));
            return Ok(0);
        }
    }
}

/// A monitor that reports changes of allocations since their last reported state.
#[derive(Debug, Default)]
struct Monitor {
    reported: BTreeMap<AllocId, (bool, bool, ClientStatus)>,
    /// The last event about volumes that wait to be unmounted, once reported.
    waited: Option<NodeEvent>,
}

impl Monitor {
    /// Names the volumes that wait to be unmounted and hold up the drain, once per change.
    fn waits(&mut self, clock: &Clock, node: &Node) -> Vec<String> {
        let since = node.last_drain.as_ref().map(|drain| drain.started_at);
        let waits = |event: &&NodeEvent| {
            event.subsystem == "Drain"
                && event.message.starts_with("Waiting")
                && since.is_some_and(|since| event.timestamp >= since)
        };
        let Some(event) = node.events.iter().rfind(waits) else { return Vec::new() };
        if node.drain_strategy.is_none() || self.waited.as_ref() == Some(event) {
            return Vec::new();
        }
        self.waited = Some(event.clone());
        let line = |(volume, why): (&String, &String)| {
            format!("{}: Waiting for volume \"{volume}\" to be unmounted: {why}", clock.stamp())
        };
        event.details.iter().map(line).collect()
    }

    fn update(&mut self, clock: &Clock, allocs: &[Allocation]) -> Vec<String> {
        let mut out = Vec::new();
        for alloc in allocs {
            let marked = alloc.desired_transition.migrate == Some(true);
            let now = (marked, alloc.server_terminal(), alloc.client_status);
            let Some((was_marked, was_ending, before)) = self.reported.insert(alloc.id.clone(), now) else {
                continue;
            };
            let mut say =
                |text: String| out.push(format!("{}: Alloc \"{}\" {text}", clock.stamp(), alloc.id));
            if marked && !was_marked {
                say("marked for migration".into());
            }
            if alloc.server_terminal() && !was_ending {
                say("draining".into());
            }
            if before != alloc.client_status {
                say(format!("status {} -> {}", before.as_str(), alloc.client_status.as_str()));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::alloc::{DesiredStatus, DesiredTransition};

    #[test]
    fn durations_are_read() {
        assert_eq!(duration("1h30m"), Some(Nanos::from_secs(5400)));
        assert_eq!(duration("250ms"), Some(Nanos::from_millis(250)));
        assert_eq!(duration("5"), None);
        assert_eq!(duration("x"), None);
        assert_eq!(duration("5d"), None);
    }

    #[test]
    fn deadlines_exclude_each_other() {
        let enable = DrainArgs { enable: true, ..Default::default() };
        assert_eq!(enable.request().unwrap().drain_spec.unwrap().deadline, Nanos::from_secs(3600));
        let force = DrainArgs { force: true, ..enable.clone() };
        assert_eq!(force.request().unwrap().drain_spec.unwrap().deadline, Nanos(-1));
        assert!(DrainArgs { no_deadline: true, ..force }.request().is_err());
        let disable = DrainArgs { disable: true, ..Default::default() }.request().unwrap();
        assert!(disable.drain_spec.is_none() && disable.mark_eligible);
    }

    #[test]
    fn only_changes_are_printed() {
        let clock = clock("2026-11-21T09:23:13Z");
        let mut alloc =
            Allocation { id: "413bed3b".into(), client_status: ClientStatus::Running, ..Default::default() };
        let mut monitor = Monitor::default();
        assert!(monitor.update(&clock, std::slice::from_ref(&alloc)).is_empty());
        alloc.desired_transition = DesiredTransition { migrate: Some(true), ..Default::default() };
        alloc.desired_status = DesiredStatus::Stop;
        alloc.client_status = ClientStatus::Complete;
        assert_eq!(
            monitor.update(&clock, &[alloc]),
            [
                "2026-11-21T09:23:13Z: Alloc \"413bed3b\" marked for migration",
                "2026-11-21T09:23:13Z: Alloc \"413bed3b\" draining",
                "2026-11-21T09:23:13Z: Alloc \"413bed3b\" status running -> complete",
            ]
        );
    }
}
