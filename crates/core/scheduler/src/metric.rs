//! Counts of evaluated nodes by the reason of their rejection (docs/reference/http-api.md, section 5.2,
//! `AllocMetric`).

use caravan_types::eval::{AllocMetric, Counts};
use caravan_types::job::TaskGroup;
use caravan_types::node::Node;
use caravan_types::small::Map;

/// Adds one to the count of a key.
pub(crate) fn add(counts: &mut Map<String, u32>, key: &str) {
    match counts.get_mut(key) {
        Some(count) => *count += 1,
        None => {
            counts.insert(key.to_owned(), 1);
        }
    }
}

fn subtract(counts: &mut Map<String, u32>, key: &str) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Counts a node that is filtered.
pub(crate) fn filter(metric: &mut AllocMetric, node: &Node, reason: &str) {
    let counts = metric.counts_mut();
    counts.nodes_filtered += 1;
    if !node.node_class.is_empty() {
        add(&mut counts.class_filtered, &node.node_class);
    }
    add(&mut counts.constraint_filtered, reason);
}

/// Reverts [`filter`].
pub(crate) fn unfilter(metric: &mut AllocMetric, node: &Node, reason: &str) {
    let counts = metric.counts_mut();
    counts.nodes_filtered = counts.nodes_filtered.saturating_sub(1);
    subtract(&mut counts.class_filtered, &node.node_class);
    subtract(&mut counts.constraint_filtered, reason);
}

/// Counts a node that lacks free resources of a dimension.
pub(crate) fn exhaust(metric: &mut AllocMetric, node: &Node, dimension: &str) {
    let counts = metric.counts_mut();
    counts.nodes_exhausted += 1;
    if !node.node_class.is_empty() {
        add(&mut counts.class_exhausted, &node.node_class);
    }
    add(&mut counts.dimension_exhausted, dimension);
}

/// Reverts [`exhaust`].
pub(crate) fn unexhaust(metric: &mut AllocMetric, node: &Node, dimension: &str) {
    let counts = metric.counts_mut();
    counts.nodes_exhausted = counts.nodes_exhausted.saturating_sub(1);
    subtract(&mut counts.class_exhausted, &node.node_class);
    subtract(&mut counts.dimension_exhausted, dimension);
}

/// Adds the amounts of the exhausted dimensions that one more allocation would have needed.
pub(crate) fn ask(metric: &mut AllocMetric, group: &TaskGroup) {
    let lacks = |dimension: &str| metric.dimension_exhausted.contains_key(dimension);
    let (cpu, cores, memory) = (lacks("cpu"), lacks("cores"), lacks("memory"));
    if !cpu && !cores && !memory {
        return;
    }
    for task in &group.tasks {
        let desired = &task.resources;
        let sum = metric.counts_mut().resources_exhausted.or_default(task.name.clone());
        for (lacks, sum, desired) in [
            (cpu, &mut sum.cpu, desired.cpu),
            (cores, &mut sum.cores, desired.cores),
            (memory, &mut sum.memory_mb, desired.memory_mb),
        ] {
            if lacks {
                *sum = sum.saturating_add(desired);
            }
        }
    }
}

/// Adds the counts of one node's metrics to those of other nodes, because system jobs evaluate each node separately.
pub(crate) fn merge(into: &mut AllocMetric, from: &AllocMetric) {
    fn sum(into: &mut Map<String, u32>, from: &Map<String, u32>) {
        for (key, count) in from {
            *into.or_default(key.clone()) += count;
        }
    }
    let into: &mut Counts = into.counts_mut();
    into.nodes_evaluated += from.nodes_evaluated;
    into.nodes_filtered += from.nodes_filtered;
    into.nodes_exhausted += from.nodes_exhausted;
    sum(&mut into.class_filtered, &from.class_filtered);
    sum(&mut into.constraint_filtered, &from.constraint_filtered);
    sum(&mut into.class_exhausted, &from.class_exhausted);
    sum(&mut into.dimension_exhausted, &from.dimension_exhausted);
    for (task, resources) in &from.resources_exhausted {
        let total = into.resources_exhausted.or_default(task.clone());
        total.cpu = total.cpu.saturating_add(resources.cpu);
        total.cores = total.cores.saturating_add(resources.cores);
        total.memory_mb = total.memory_mb.saturating_add(resources.memory_mb);
    }
}
