//! The conversion of the metrics of an evaluation to sentences.

use crate::caps::NOT_ALLOWED;
use crate::exclusive;
use caravan_types::EvalId;
use caravan_types::alloc::Allocation;
use caravan_types::eval::{AllocMetric, EvalStatus, Evaluation};
use caravan_types::plan::Decision;
use std::collections::BTreeMap;
use std::fmt;

/// The reason that an evaluation is not executed completely.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// Allocations of a group are not placed.
    NotPlaced { group: String, queued: u32, cause: String },
    /// The scheduler noted a fact about single nodes.
    Noted { group: String, note: String },
    /// An object is missing or in use.
    Waits(String),
    /// Another evaluation places the rest.
    Blocked(EvalId),
    /// The evaluation failed.
    Failed(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPlaced { group, queued: 0, cause } => write!(f, "Task group {group:?}: {cause}."),
            Self::NotPlaced { group, queued: 1, cause } => {
                write!(f, "Task group {group:?} (1 allocation not placed): {cause}.")
            }
            Self::NotPlaced { group, queued, cause } => {
                write!(f, "Task group {group:?} ({queued} allocations not placed): {cause}.")
            }
            Self::Noted { group, note } => write!(f, "Task group {group:?}: {note}."),
            Self::Waits(sentence) => f.write_str(sentence),
            Self::Blocked(eval) => write!(f, "Evaluation {} waits to place the rest.", eval.short()),
            Self::Failed(why) => write!(f, "The evaluation failed: {why}."),
        }
    }
}

/// Returns the reasons that allocations of an evaluation were not placed, one sentence for each cause. The result is
/// empty if all were placed.
pub fn explain(eval: &Evaluation) -> Vec<String> {
    reasons(eval).iter().map(Reason::to_string).collect()
}

fn reasons(eval: &Evaluation) -> Vec<Reason> {
    let mut out = Vec::new();
    for (group, metric) in &eval.failed_tg_allocs {
        let mut causes = causes(metric);
        if causes.is_empty() {
            causes.push("no node was found".to_owned());
        }
        // An evaluation that waits for a later time has no count of queued allocations, but its metric has one.
        let queued = eval.queued_allocations.get(group).copied();
        let queued = queued.unwrap_or_else(|| metric.coalesced_failures.saturating_add(1));
        out.extend(causes.into_iter().map(|cause| Reason::NotPlaced { group: group.clone(), queued, cause }));
    }
    out.extend(waits(eval));
    if !eval.blocked_eval.is_empty() && out.is_empty() {
        out.push(Reason::Blocked(eval.blocked_eval.clone()));
    }
    if eval.status == EvalStatus::Failed && !eval.status_description.is_empty() {
        out.push(Reason::Failed(eval.status_description.clone()));
    }
    out
}

/// Returns the objects that an evaluation waits for.
fn waits(eval: &Evaluation) -> impl Iterator<Item = Reason> {
    eval.missing_non_node_resources.iter().filter_map(|text| waiting(text)).map(Reason::Waits)
}

/// Returns the reasons that allocations of a decision would not be placed, and the changes that would help. The
/// result has the sentences of [`explain`], with the scheduler's notes about single nodes.
pub fn explain_decision(decision: &Decision) -> Vec<String> {
    let mut out = reasons(&decision.eval);
    for blocked in decision.follow_ups.iter().filter(|eval| eval.status == EvalStatus::Blocked) {
        out.extend(waits(blocked));
    }
    // The objects for which the blocked evaluation waits are separate reasons.
    out.retain(|reason| !matches!(reason, Reason::Blocked(_)));
    for (group, notes) in &decision.notes {
        out.extend(notes.iter().map(|note| Reason::Noted { group: group.clone(), note: note.clone() }));
    }
    out.iter().map(Reason::to_string).collect()
}

/// Describes the number of nodes that were evaluated, filtered, exhausted and scored for each group with new
/// placements.
pub fn describe(decision: &Decision) -> Vec<String> {
    let mut groups: BTreeMap<&str, Vec<&Allocation>> = BTreeMap::new();
    let new = decision.plan.placements.values().flatten().filter(|alloc| alloc.create_index == 0);
    for alloc in new {
        groups.entry(&alloc.task_group).or_default().push(alloc);
    }
    let mut sentences = Vec::new();
    for (group, allocs) in groups {
        let Some(metric) = allocs.first().and_then(|alloc| alloc.metrics.as_ref()) else { continue };
        let count = allocs.len();
        let what = if count == 1 { "1 allocation".to_owned() } else { format!("{count} allocations") };
        let mut text = format!(
            "Task group {group:?} ({what} placed): {} looked at, {} filtered, {} exhausted",
            nodes(metric.nodes_evaluated),
            metric.nodes_filtered,
            metric.nodes_exhausted
        );
        if let Some(best) = metric.score_meta_data.first() {
            let scores = best.scores.iter().filter(|(_, score)| *score != 0.0);
            let scores: Vec<String> =
                scores.map(|(scorer, score)| format!("{} {score:.2}", scorer.as_str())).collect();
            let node = best.node_id.short();
            text.push_str(&format!(
                "; the best, {node}, scored {:.2} ({})",
                best.norm_score,
                scores.join(", ")
            ));
        }
        sentences.push(format!("{text}."));
        sentences.extend(causes(metric).into_iter().map(|cause| format!("Task group {group:?}: {cause}.")));
    }
    sentences
}

fn causes(metric: &AllocMetric) -> Vec<String> {
    let pool = if metric.node_pool.is_empty() { "default" } else { &metric.node_pool };
    if metric.nodes_in_pool == 0 {
        return vec![format!("no node in pool {pool:?} is ready and eligible")];
    }
    if metric.nodes_available.values().sum::<u32>() == 0 {
        return vec![format!(
            "none of the {} of pool {pool:?} is in the job's datacenters",
            nodes(metric.nodes_in_pool)
        )];
    }
    let mut causes = Vec::new();
    for (reason, count) in &metric.constraint_filtered {
        let count = *count;
        let who = nodes(count);
        let (lack, fail) = if count == 1 { ("lacks", "does") } else { ("lack", "do") };
        causes.push(match reason.as_str() {
            "missing drivers" => format!("{who} {lack} a healthy driver that the group needs"),
            "missing devices" => format!("{who} {lack} a device that the group needs"),
            "missing network" => format!("{who} {lack} the network mode that the group needs"),
            "missing compatible host volumes" => format!("{who} {lack} a host volume that the group needs"),
            "node does not allow privileged plugins" => format!(
                "{who} {fail} not allow privileged plugins: a CSI plugin of type node or monolith under exec takes \
                 allow_privileged_plugins in the driver's configuration"
            ),
            "distinct_hosts" => {
                format!("{who} {fail} not qualify: an allocation of the job is there already")
            }
            other if other.starts_with(NOT_ALLOWED) => {
                let names = other.strip_prefix(NOT_ALLOWED).unwrap_or_default();
                format!(
                    "{who} {fail} not allow the capabilities {names}: cap_add under exec takes allow_caps in the \
                     driver's configuration"
                )
            }
            other if other.starts_with("${") => format!("{who} {fail} not satisfy \"{other}\""),
            other => format!("{who} {fail} not qualify: {other}"),
        });
    }
    for (dimension, count) in &metric.dimension_exhausted {
        let who = nodes(*count);
        let has = if *count == 1 { "has" } else { "have" };
        causes.push(match dimension.as_str() {
            "numa-cores" => format!("{who} {has} not enough cores of one NUMA node left"),
            exclusive::APART => {
                format!(
                    "{who} {has} no NUMA node left with both the cores and the devices that the group needs"
                )
            }
            "cpu" | "memory" | "disk" | "cores" => format!("{who} {has} not enough {dimension} left"),
            other => format!("{who} {has} no room: {other}"),
        });
    }
    causes
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Returns the sentence for an element of `MissingNonNodeResources`.
fn waiting(text: &str) -> Option<String> {
    if let Some(key) = text.strip_prefix("csi-volume:") {
        let (namespace, id) = key.split_once(':')?;
        return Some(format!("Waits for volume {id:?} in namespace {namespace:?} to be created."));
    }
    if let Some(key) = text.strip_prefix("csi-claim:") {
        let (namespace, id) = key.split_once(':')?;
        return Some(format!(
            "Waits for a claim on volume {id:?} in namespace {namespace:?} to be released."
        ));
    }
    if let Some(key) = text.strip_prefix("host-volume:") {
        let (namespace, name) = key.split_once(':')?;
        return Some(format!(
            "Waits for host volume {name:?} in namespace {namespace:?} to be there and free."
        ));
    }
    text.strip_prefix("csi-plugin:").map(|id| format!("Waits for plugin {id:?} to become healthy."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::eval::Counts;
    use caravan_types::small::Map;

    #[test]
    fn metrics_become_sentences() {
        let metric = Counts {
            nodes_in_pool: 4,
            nodes_available: [("dc1".into(), 4)].into(),
            constraint_filtered: Map::from([
                ("missing drivers".into(), 2),
                ("${attr.kernel.name} = plan9".into(), 1),
                ("node does not allow the capabilities net_admin".into(), 3),
            ]),
            dimension_exhausted: [("memory".into(), 1)].into(),
            ..Counts::default()
        };
        let eval = Evaluation {
            failed_tg_allocs: BTreeMap::from([("g".into(), metric.into())]),
            queued_allocations: BTreeMap::from([("g".into(), 2)]),
            missing_non_node_resources: vec!["csi-claim:default:data".into()],
            ..Evaluation::default()
        };
        assert_eq!(
            explain(&eval),
            [
                "Task group \"g\" (2 allocations not placed): 1 node does not satisfy \"${attr.kernel.name} \
                 = plan9\".",
                "Task group \"g\" (2 allocations not placed): 2 nodes lack a healthy driver that the group \
                 needs.",
                "Task group \"g\" (2 allocations not placed): 3 nodes do not allow the capabilities net_admin: \
                 cap_add under exec takes allow_caps in the driver's configuration.",
                "Task group \"g\" (2 allocations not placed): 1 node has not enough memory left.",
                "Waits for a claim on volume \"data\" in namespace \"default\" to be released.",
            ]
        );
        assert!(explain(&Evaluation::default()).is_empty());
    }

    #[test]
    fn empty_clusters_are_named() {
        let eval = Evaluation {
            failed_tg_allocs: BTreeMap::from([("g".into(), AllocMetric::default())]),
            ..Evaluation::default()
        };
        assert_eq!(
            explain(&eval),
            [
                "Task group \"g\" (1 allocation not placed): no node in pool \"default\" is ready and eligible."
            ]
        );
    }
}
