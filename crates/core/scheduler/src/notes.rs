//! Notes for users: the changes that would let an allocation be placed.

use crate::context::Context;
use crate::prepared::{Prepared, Reject};
use crate::view::View;

/// Returns notes about a group for which no node was found.
pub(crate) fn collect<V: View>(ctx: &mut Context<'_, V>, prepared: &Prepared<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let away = &ctx.field.census.away;
    for (what, count) in away {
        let (who, are) =
            if *count == 1 { ("1 node".to_owned(), "is") } else { (format!("{count} nodes"), "are") };
        notes.push(format!("{who} of its pool and datacenters {are} {what}"));
    }
    notes.extend(smallest_missing(ctx, prepared));
    if prepared.metric.nodes_exhausted > 0 && !ctx.rules.preemption.allows(ctx.job.kind) {
        notes.push(format!("evicting others is switched off for {} jobs", ctx.job.kind));
    }
    notes
}

/// Describes the node that lacks the least CPU, memory and disk, as a share of the requested amount.
fn smallest_missing<V: View>(ctx: &mut Context<'_, V>, prepared: &Prepared<'_>) -> Option<String> {
    let mut best: Option<(f64, String)> = None;
    for candidate in &prepared.candidates {
        let Some(Reject::Exhaust(_)) = candidate.reject() else { continue };
        let nodes = ctx.nodes;
        let node = &nodes[candidate.at];
        let desired = prepared.ask.on(node);
        let left = candidate.capacity.minus(ctx.usage(candidate.at).amount);
        let (mut share, mut parts) = (0.0, Vec::new());
        for (desired, left, unit) in [
            (desired.cpu, left.cpu, "MHz of CPU"),
            (desired.memory, left.memory, "MiB of memory"),
            (desired.disk, left.disk, "MiB of disk"),
        ] {
            let missing = desired.saturating_sub(left.max(0));
            if desired > 0 && missing > 0 {
                share += crate::rank::ratio(missing, desired);
                parts.push(format!("{missing} {unit}"));
            }
        }
        if !parts.is_empty() && best.as_ref().is_none_or(|(known, _)| share < *known) {
            best = Some((share, format!("smallest missing: {} on node {}", parts.join(" and "), node.name)));
        }
    }
    best.map(|(_, text)| text)
}
