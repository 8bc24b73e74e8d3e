//! Explains in sentences why allocations were not placed.

use crate::format::plural;
use caravan_types::eval::{AllocMetric, Evaluation};
use std::collections::BTreeMap;

/// Returns one line for each reason, each with this prefix.
pub(crate) fn reasons(metric: &AllocMetric, prefix: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |text: String| out.push(format!("{prefix}* {text}"));
    if metric.nodes_evaluated == 0 {
        say("No nodes were eligible for evaluation".into());
    }
    for (datacenter, available) in &metric.nodes_available {
        if *available == 0 {
            say(format!("No nodes are available in datacenter \"{datacenter}\""));
        }
    }
    for (class, n) in &metric.class_filtered {
        say(format!("Class \"{class}\": {n} nodes excluded by filter"));
    }
    for (constraint, n) in &metric.constraint_filtered {
        say(format!("Constraint \"{constraint}\": {n} nodes excluded by filter"));
    }
    if metric.nodes_exhausted > 0 {
        say(format!("Resources exhausted on {} nodes", metric.nodes_exhausted));
    }
    for (class, n) in &metric.class_exhausted {
        say(format!("Class \"{class}\" exhausted on {n} nodes"));
    }
    for (dimension, n) in &metric.dimension_exhausted {
        say(format!("Dimension \"{dimension}\" exhausted on {n} nodes"));
    }
    for quota in &metric.quota_exhausted {
        say(format!("Quota limit hit \"{quota}\""));
    }
    out
}

/// Returns the heading of a group: `Task Group "g" (failed to place 2 allocations):`
pub(crate) fn heading(group: &str, metric: &AllocMetric) -> String {
    let n = u64::from(metric.coalesced_failures) + 1;
    format!("Task Group \"{group}\" (failed to place {n} allocation{}):", plural(n))
}

/// Returns all groups, each with its heading and its reasons. Every line begins with `prefix`.
pub(crate) fn failures(failed: &BTreeMap<String, AllocMetric>, prefix: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (group, metric) in failed {
        out.push(format!("{prefix}{}", heading(group, metric)));
        out.extend(reasons(metric, &format!("{prefix}  ")));
    }
    out
}

/// Returns sentences about the volumes and plugins that a blocked evaluation waits for.
pub(crate) fn waits(eval: &Evaluation) -> Vec<String> {
    let sentence = |text: &String| {
        let mut parts = text.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("csi-volume"), Some(namespace), Some(id)) => {
                format!("Waiting for volume \"{id}\" in namespace \"{namespace}\" to be created")
            }
            (Some("csi-claim"), Some(namespace), Some(id)) => {
                format!("Waiting for a claim on volume \"{id}\" in namespace \"{namespace}\" to be released")
            }
            (Some("csi-plugin"), Some(id), None) => {
                format!("Waiting for plugin \"{id}\" to become healthy on a node")
            }
            _ => format!("Waiting for {text}"),
        }
    };
    eval.missing_non_node_resources.iter().map(sentence).collect()
}

/// Returns whether plugins are the only named resource that a blocked evaluation waits for.
pub(crate) fn waits_only_for_plugins(eval: &Evaluation) -> bool {
    let names = &eval.missing_non_node_resources;
    !names.is_empty() && names.iter().all(|name| name.starts_with("csi-plugin:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::eval::Counts;
    use caravan_types::small::Map;

    #[test]
    fn reasons_read_like_the_recorded_ones() {
        let metric = AllocMetric::from(Counts {
            nodes_evaluated: 1,
            nodes_exhausted: 1,
            class_exhausted: Map::from([("fixture".into(), 1)]),
            dimension_exhausted: Map::from([("cpu".into(), 1)]),
            ..Default::default()
        });
        let failed = BTreeMap::from([("g".to_owned(), metric)]);
        let text = failures(&failed, "").join("\n");
        let recorded = include_str!("../fixtures/eval-blocked.txt");
        assert!(recorded.contains(&text), "{text}");
    }

    #[test]
    fn filtered_nodes_name_the_constraint() {
        let metric = AllocMetric::from(Counts {
            nodes_evaluated: 1,
            nodes_available: Map::from([("dc1".into(), 0)]),
            constraint_filtered: Map::from([("missing drivers".into(), 1)]),
            ..Default::default()
        });
        let metric = AllocMetric { coalesced_failures: 2, ..metric };
        assert_eq!(
            reasons(&metric, "  "),
            [
                "  * No nodes are available in datacenter \"dc1\"",
                "  * Constraint \"missing drivers\": 1 nodes excluded by filter"
            ]
        );
        assert_eq!(heading("g", &metric), "Task Group \"g\" (failed to place 3 allocations):");
    }

    #[test]
    fn only_plugin_waits_are_distinguished() {
        let waits = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            waits_only_for_plugins(&Evaluation { missing_non_node_resources: names, ..Default::default() })
        };
        assert!(waits(&["csi-plugin:a", "csi-plugin:b"]));
        assert!(!waits(&[]) && !waits(&["csi-plugin:a", "csi-volume:default:v"]));
    }

    #[test]
    fn waits_are_sentences() {
        let eval = Evaluation {
            missing_non_node_resources: vec!["csi-volume:default:data".into(), "csi-plugin:hostpath".into()],
            ..Default::default()
        };
        assert_eq!(
            waits(&eval),
            [
                "Waiting for volume \"data\" in namespace \"default\" to be created",
                "Waiting for plugin \"hostpath\" to become healthy on a node"
            ]
        );
    }
}
