//! Scores of nodes: full nodes first, allocations of one group apart, wishes counted.

use crate::context::{Ask, Capacity, Usage};
use caravan_types::NodeId;
use caravan_types::eval::NodeScore;
use std::collections::BTreeMap;

/// A quotient of integers; the values here are far below 2^53, where it would lose digits.
#[expect(clippy::cast_precision_loss, reason = "resources and weights are small numbers")]
pub(crate) fn ratio(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How well a node is filled by a placement, 0 (empty) to 1 (full): best fit after Google's bin
/// packing score, `20 - (10^free_cpu + 10^free_memory)` over its maximum 18.
pub(crate) fn binpack(capacity: &Capacity, cpu: i64, memory: i64) -> f64 {
    let free = |used, all| (1.0 - ratio(used, all)).clamp(0.0, 1.0);
    let score = 20.0 - (10_f64.powf(free(cpu, capacity.cpu)) + 10_f64.powf(free(memory, capacity.memory)));
    score.clamp(0.0, 18.0) / 18.0
}

/// What a score depends on besides the node's fill.
pub(crate) struct Factors<'a> {
    pub group: &'a str,
    pub count: u32,
    pub affinity: Option<f64>,
    pub penalized: bool,
}

/// The scores of a node by scorer, and the mean of those that apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score {
    fill: f64,
    apart: f64,
    penalty: f64,
    wish: f64,
    /// What nodes are compared by.
    pub norm: f64,
}

impl Score {
    /// As clients see it.
    pub fn named(&self, node: &NodeId) -> NodeScore {
        NodeScore {
            node_id: node.clone(),
            scores: BTreeMap::from([
                ("binpack".to_owned(), self.fill),
                ("job-anti-affinity".to_owned(), self.apart),
                ("node-reschedule-penalty".to_owned(), self.penalty),
                ("node-affinity".to_owned(), self.wish),
            ]),
            norm_score: self.norm,
        }
    }
}

/// Scores a node for a group.
pub(crate) fn score(capacity: &Capacity, usage: &Usage, ask: &Ask, factors: &Factors<'_>) -> Score {
    let fill = binpack(capacity, usage.cpu.saturating_add(ask.cpu), usage.memory.saturating_add(ask.memory));
    let together = usage.own.get(factors.group).copied().unwrap_or(0);
    let apart =
        if together == 0 { 0.0 } else { -ratio(i64::from(together) + 1, i64::from(factors.count.max(1))) };
    let penalty = if factors.penalized { -1.0 } else { 0.0 };
    let wish = factors.affinity.unwrap_or(0.0);
    let applies = [true, together > 0, factors.penalized, wish != 0.0];
    let terms = applies.iter().filter(|applies| **applies).count();
    // What does not apply is zero and adds nothing.
    let norm = (fill + apart + penalty + wish) / ratio(i64::try_from(terms).unwrap_or(1), 1);
    Score { fill, apart, penalty, wish, norm }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Capacity = Capacity { cpu: 1000, memory: 1000, disk: 1000 };

    #[test]
    fn fuller_nodes_score_higher() {
        assert!(binpack(&NODE, 1000, 1000) > binpack(&NODE, 500, 500));
        assert!((binpack(&NODE, 1000, 1000) - 1.0).abs() < 1e-9);
        assert!(binpack(&NODE, 0, 0).abs() < 1e-9);
        assert!(binpack(&Capacity { cpu: 0, memory: 0, disk: 0 }, 0, 0).is_finite());
    }

    #[test]
    fn allocations_of_a_group_keep_apart_and_wishes_count() {
        let ask = Ask { cpu: 100, memory: 100, disk: 0, cores: 0 };
        let plain = Factors { group: "g", count: 2, affinity: None, penalized: false };
        let empty = Usage::default();
        let mut busy = Usage::default();
        busy.own.insert("g".into(), 1);
        let alone = score(&NODE, &empty, &ask, &plain).norm;
        assert!(score(&NODE, &busy, &ask, &plain).norm < alone);
        let wished = Factors { affinity: Some(1.0), ..plain };
        assert!(score(&NODE, &empty, &ask, &wished).norm > alone);
    }
}
