//! Nodes that repeatedly reject placements: the scheduler's view of them differs from the actual state, so placements
//! there only waste attempts (`plan_rejection_tracker`, docs/reference/jobspec.md, section 11.2). Pure.

use caravan_types::{Nanos, NodeId, UnixNanos};
use std::collections::{BTreeMap, VecDeque};

/// The condition under which a node becomes ineligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectionConfig {
    /// Whether the tracker is enabled.
    pub enabled: bool,
    /// The number of rejections of one node within `window` that make the node ineligible.
    pub threshold: usize,
    /// The time within which rejections are counted together.
    pub window: Nanos,
}

impl Default for RejectionConfig {
    fn default() -> Self {
        Self { enabled: false, threshold: 100, window: Nanos::from_secs(5 * 60) }
    }
}

/// Recent rejections, by node.
#[derive(Clone, Debug, Default)]
pub(super) struct Rejections {
    by_node: BTreeMap<NodeId, VecDeque<UnixNanos>>,
}

impl Rejections {
    /// Records a rejection. Returns whether the limit is reached; the count then starts again.
    pub(super) fn record(&mut self, node: &NodeId, now: UnixNanos, config: &RejectionConfig) -> bool {
        let fresh = |at: &UnixNanos| at.plus(config.window) > now;
        self.by_node.retain(|_, seen| seen.back().is_some_and(fresh));
        let seen = self.by_node.entry(node.clone()).or_default();
        seen.retain(fresh);
        seen.push_back(now);
        let too_many = seen.len() >= config.threshold.max(1);
        if too_many {
            self.by_node.remove(node);
        }
        too_many && config.enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_within_the_window_count() {
        let config = RejectionConfig { enabled: true, threshold: 3, window: Nanos(10) };
        let mut seen = Rejections::default();
        let node = NodeId::new("n");
        let mut at = |now| seen.record(&node, UnixNanos(now), &config);
        assert_eq!([at(0), at(5), at(11), at(12)], [false, false, false, true]);
        assert_eq!([at(13), at(14), at(15)], [false, false, true]);
        let off = RejectionConfig { enabled: false, ..config };
        let mut seen = Rejections::default();
        assert!(!(0..9).any(|now| seen.record(&node, UnixNanos(now), &off)));
    }
}
