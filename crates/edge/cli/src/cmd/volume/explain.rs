//! `volume explain`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::format::{Clock, bytes, coarse, id, json};
use crate::table::{Pairs, Table};
use caravan_types::id::NodeId;
use caravan_types::volume::{ClaimExplain, ClaimMode, VolumeExplain, VolumeUsage};
use std::collections::BTreeMap;

/// Flags of `volume explain`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids, and claims that have ended
    #[arg(long)]
    verbose: bool,
    /// Volume id or prefix; a deregistered volume needs its full id
    #[arg(value_name = "VOLUME", num_args = 0..)]
    args: Vec<String>,
}

/// Runs `volume explain`. A deregistered volume may still have claims; its full id selects it.
pub(crate) async fn run(ctx: &Ctx, args: &ExplainArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <id>")?;
    let volumes = ctx.client.volumes();
    let reported = match volumes.explain(supplied, &ctx.query()).await {
        Ok(reported) => reported.value,
        Err(_) => {
            let stub = super::meant(ctx, supplied).await?;
            let query = ctx.query().namespace(stub.namespace.as_str());
            volumes.explain(stub.id.as_str(), &query).await.doing("Error explaining volume")?.value
        }
    };
    let text = if args.json { json(&reported)? } else { render(&ctx.clock(), &reported, args.verbose) };
    ctx.out.line(&text);
    Ok(0)
}

fn render(clock: &Clock, reported: &VolumeExplain, verbose: bool) -> String {
    let mut sections = vec![head(clock, reported)];
    if !reported.calls.is_empty() {
        let rows = reported.calls.iter().map(|call| {
            let (node, alloc) = (call.node_id.as_str(), call.alloc_id.as_str());
            vec![call.call.clone(), id(node, verbose), id(alloc, verbose), coarse(call.running_for)]
        });
        let table = Table::new(&["Call", "Node ID", "Alloc ID", "For"]).keep_empty().rows(rows);
        sections.push(format!("Calls Under Way\n{}", table.render()));
    }
    let shown: Vec<&ClaimExplain> = reported.claims.iter().filter(|c| verbose || c.phase.holds()).collect();
    sections.push(match shown.is_empty() {
        true => "Claims\nNo claims".to_owned(),
        false => format!("Claims\n{}", claims(clock, &shown, verbose)),
    });
    let history = history(clock, reported, &shown, verbose);
    if !history.is_empty() {
        sections.push(format!("History\n{history}"));
    }
    sections.join("\n\n")
}

fn head(clock: &Clock, reported: &VolumeExplain) -> String {
    let size = |n: i64| bytes(u64::try_from(n).unwrap_or(0));
    let mut pairs = Pairs::new()
        .pair("ID", reported.id.as_str())
        .pair("Namespace", reported.namespace.as_str())
        .pair("Plugin ID", reported.plugin_id.as_str())
        .pair("External ID", reported.external_id.as_str())
        .pair("Phase", reported.phase.as_str())
        .pair("Summary", reported.summary.as_str());
    let capacity = reported.capacity;
    if capacity.accepted > 0 || capacity.requested_min > 0 {
        let mut text = size(capacity.accepted);
        if capacity.requested_min > capacity.accepted {
            text = format!("{text} (wanted: {})", size(capacity.requested_min));
        } else if capacity.actual > 0 && capacity.actual != capacity.accepted {
            text = format!("{text} (nodes see {})", size(capacity.actual));
        }
        pairs.push("Capacity", text);
    }
    if reported.tries > 0 {
        pairs.push("Tries", reported.tries.to_string());
    }
    if !reported.last_error.is_empty() {
        pairs.push("Last Error", reported.last_error.as_str());
    }
    if reported.next_try > clock.now {
        pairs.push("Next Try", format!("in {}", coarse(reported.next_try.since(clock.now))));
    }
    for (key, value) in usage(&reported.usage, true) {
        pairs.push(key, value);
    }
    pairs.render()
}

/// Returns rows about the space used: of the only node that reports it, or of each node.
pub(crate) fn usage(by_node: &BTreeMap<NodeId, VolumeUsage>, always_named: bool) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (node, usage) in by_node {
        let on = match always_named || by_node.len() > 1 {
            true => format!(" ({})", id(node.as_str(), false)),
            false => String::new(),
        };
        let size = |n: i64| bytes(u64::try_from(n).unwrap_or(0));
        if usage.total_bytes > 0 {
            rows.push((
                format!("Used{on}"),
                format!("{} of {}", size(usage.used_bytes), size(usage.total_bytes)),
            ));
            rows.push((format!("Available{on}"), size(usage.available_bytes)));
        }
        if usage.total_inodes > 0 {
            rows.push((format!("Inodes{on}"), format!("{} of {}", usage.used_inodes, usage.total_inodes)));
        }
        if let Some(condition) = &usage.condition {
            let text = match condition.abnormal {
                true => format!("Abnormal ({})", condition.message),
                false => "OK".to_owned(),
            };
            rows.push((format!("Condition{on}"), text));
        }
    }
    rows
}

fn claims(clock: &Clock, claims: &[&ClaimExplain], verbose: bool) -> String {
    let heading =
        ["Alloc ID", "Node ID", "Job ID", "Mode", "Phase", "Since", "Tries", "Next Try", "Waits For"];
    let rows = claims.iter().map(|claim| {
        let next = match claim.next_try > clock.now {
            true => format!("in {}", coarse(claim.next_try.since(clock.now))),
            false => String::new(),
        };
        let waits = match (claim.waits_for.as_str(), claim.last_error.as_str()) {
            (waits, "") => waits.to_owned(),
            ("", error) => error.to_owned(),
            (waits, error) if waits.contains(error) => waits.to_owned(),
            (waits, error) => format!("{waits}; last error: {error}"),
        };
        vec![
            id(claim.alloc_id.as_str(), verbose),
            id(claim.node_id.as_str(), verbose),
            claim.job_id.to_string(),
            if claim.mode == ClaimMode::Read { "read".into() } else { "write".into() },
            claim.phase.as_str().to_owned(),
            clock.when(claim.since, verbose),
            if claim.tries > 0 { claim.tries.to_string() } else { String::new() },
            next,
            waits,
        ]
    });
    Table::new(&heading).keep_empty().rows(rows).render()
}

/// Returns the events of the volume and of the shown claims, oldest first.
fn history(clock: &Clock, reported: &VolumeExplain, claims: &[&ClaimExplain], verbose: bool) -> String {
    let mut events: Vec<_> = reported
        .history
        .iter()
        .map(|t| (t.at, "volume".to_owned(), t.phase.as_str(), t.note.clone()))
        .collect();
    for claim in claims {
        let who = format!("claim {}", id(claim.alloc_id.as_str(), verbose));
        events.extend(claim.history.iter().map(|t| (t.at, who.clone(), t.phase.as_str(), t.note.clone())));
    }
    if events.is_empty() {
        return String::new();
    }
    events.sort_by_key(|(at, ..)| *at);
    let rows =
        events.into_iter().map(|(at, who, phase, note)| vec![clock.time(at), who, phase.to_owned(), note]);
    Table::new(&["Time", "Of", "Phase", "Note"]).keep_empty().rows(rows).render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::clock;
    use caravan_types::time::Nanos;
    use caravan_types::volume::{
        CallInFlight, Capacity, ClaimPhase, ClaimTransition, VolumeCondition, VolumePhase, VolumeTransition,
    };

    #[test]
    fn everything_that_waits_says_for_what() {
        let clock = clock("2026-11-21T09:22:36Z");
        let ago = |secs: i64| clock.now.plus(Nanos::from_secs(-secs));
        let reported = VolumeExplain {
            id: "data".into(),
            plugin_id: "disk".into(),
            phase: VolumePhase::Expanding,
            summary: "expanding: try 2 failed: no room".into(),
            tries: 2,
            last_error: "no room".into(),
            next_try: clock.now.plus(Nanos::from_secs(4)),
            capacity: Capacity { requested_min: 2 << 30, accepted: 1 << 30, ..Default::default() },
            calls: vec![CallInFlight {
                call: "NodeExpandVolume".into(),
                node_id: "0123456789".into(),
                running_for: Nanos::from_secs(75),
                ..Default::default()
            }],
            usage: BTreeMap::from([(
                "0123456789".into(),
                VolumeUsage {
                    total_bytes: 1 << 30,
                    used_bytes: 1 << 20,
                    available_bytes: 1 << 29,
                    condition: Some(VolumeCondition { abnormal: true, message: "worn out".into() }),
                    ..Default::default()
                },
            )]),
            claims: vec![
                ClaimExplain {
                    alloc_id: "aaaaaaaa-1".into(),
                    job_id: "web".into(),
                    phase: ClaimPhase::Releasing,
                    since: ago(60),
                    waits_for: "waits for node 01234567 to unpublish the volume".into(),
                    history: vec![ClaimTransition {
                        at: ago(60),
                        phase: ClaimPhase::Releasing,
                        note: String::new(),
                    }],
                    ..Default::default()
                },
                ClaimExplain { alloc_id: "bbbbbbbb-1".into(), phase: ClaimPhase::Gone, ..Default::default() },
            ],
            history: vec![VolumeTransition {
                at: ago(90),
                phase: VolumePhase::Expanding,
                note: "no room".into(),
            }],
            ..Default::default()
        };
        let text = render(&clock, &reported, false);
        for part in [
            "= expanding: try 2 failed: no room",
            "1.0 GiB (wanted: 2.0 GiB)",
            "in 4s",
            "1.0 MiB of 1.0 GiB",
            "Abnormal (worn out)",
            "NodeExpandVolume  01234567",
            "1m15s",
            "waits for node 01234567 to unpublish the volume",
            "expanding  no room",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains("bbbbbbbb"), "what is over is shown on demand");
        assert!(render(&clock, &reported, true).contains("bbbbbbbb-1"));
    }
}
