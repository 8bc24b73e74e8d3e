//! The scores of nodes: bin packing or spreading, job anti-affinity, affinities.

use crate::resources::Amount;
use crate::rules::Algorithm;
use caravan_types::NodeId;
use caravan_types::eval::{NodeScore, Scorer, Scores};

/// Divides integers. The values of the scheduler are far below 2^53, above which the quotient would lose digits.
#[expect(clippy::cast_precision_loss, reason = "resources and weights are small numbers")]
pub(crate) fn ratio(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns the degree to which a placement suits the fill of a node, 0 to 1.
///
/// With bin packing, 0 is an empty node, and 1 a full node. The score is best fit after Google's bin packing score,
/// `20 - (10^free_cpu + 10^free_memory)`, divided by its maximum 18. Spreading is the opposite.
pub(crate) fn fill(algorithm: Algorithm, capacity: &Amount, used: &Amount) -> f64 {
    let free = |used, all| (1.0 - ratio(used, all)).clamp(0.0, 1.0);
    let sum = 10_f64.powf(free(used.cpu, capacity.cpu)) + 10_f64.powf(free(used.memory, capacity.memory));
    let score = match algorithm {
        Algorithm::Binpack => 20.0 - sum,
        Algorithm::Spread => sum - 2.0,
    };
    score.clamp(0.0, 18.0) / 18.0
}

/// Returns the anti-affinity score (0 or negative) of a node that already has allocations of the group.
pub(crate) fn apart(together: u32, count: u32) -> f64 {
    if together == 0 { 0.0 } else { -ratio(i64::from(together) + 1, i64::from(count.max(1))) }
}

/// Returns the preemption score, which is near 1 if the victims are unimportant. It is a logistic curve over their
/// net priority, with its middle at 2048.
pub(crate) fn preemption(net_priority: f64) -> f64 {
    1.0 / (1.0 + (0.0048 * (net_priority - 2048.0)).exp())
}

/// The scores of a node by scorer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    pub fill: f64,
    pub apart: f64,
    pub wish: f64,
    pub devices: f64,
    pub penalty: f64,
    pub spread: Option<f64>,
    pub preemption: Option<f64>,
}

impl Score {
    /// Returns the sum of the scores that do not depend on the allocation, and their number.
    pub fn base(&self) -> (f64, u8) {
        let mut terms = 1;
        for value in [self.apart, self.wish, self.devices] {
            terms += u8::from(value != 0.0);
        }
        (self.fill + self.apart + self.wish + self.devices, terms)
    }

    /// Returns the mean of the scores that apply, by which nodes are compared.
    pub fn norm(&self) -> f64 {
        let (mut sum, mut terms) = self.base();
        for value in [Some(self.penalty), self.spread, self.preemption].into_iter().flatten() {
            sum += value;
            terms += u8::from(value != 0.0);
        }
        sum / f64::from(terms)
    }

    /// Returns the scores in the form that clients receive. System jobs have the fill only, because their nodes do
    /// not compete.
    pub fn named(&self, node: &NodeId, system: bool) -> NodeScore {
        let shown = |shown: bool, scorer, score| shown.then_some((scorer, score));
        let scores = Scores::new(
            [
                shown(true, Scorer::Binpack, self.fill),
                shown(!system, Scorer::JobAntiAffinity, self.apart),
                shown(!system, Scorer::NodeReschedulePenalty, self.penalty),
                shown(!system, Scorer::NodeAffinity, self.wish),
                shown(self.devices != 0.0, Scorer::Devices, self.devices),
                self.spread.map(|spread| (Scorer::AllocationSpread, spread)),
                self.preemption.map(|preemption| (Scorer::Preemption, preemption)),
            ]
            .into_iter()
            .flatten(),
        );
        NodeScore { node_id: node.clone(), scores, norm_score: self.norm() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Amount = Amount { cpu: 1000, memory: 1000, disk: 1000 };

    fn at(cpu: i64) -> Amount {
        Amount { cpu, memory: cpu, disk: 0 }
    }

    #[test]
    fn fuller_nodes_score_higher_or_lower() {
        let binpack = |used| fill(Algorithm::Binpack, &NODE, &at(used));
        let spread = |used| fill(Algorithm::Spread, &NODE, &at(used));
        assert!(binpack(1000) > binpack(500));
        assert!(spread(1000) < spread(500));
        assert!((binpack(1000) - 1.0).abs() < 1e-9);
        assert!(binpack(0).abs() < 1e-9);
        assert!((spread(0) - 1.0).abs() < 1e-9);
        assert!(fill(Algorithm::Binpack, &Amount::default(), &at(0)).is_finite());
    }

    #[test]
    fn only_scores_that_apply_are_averaged() {
        let plain = Score { fill: 0.5, ..Score::default() };
        assert!((plain.norm() - 0.5).abs() < 1e-9);
        let together = Score { apart: apart(1, 2), ..plain };
        assert!((together.norm() + 0.25).abs() < 1e-9);
        assert!(Score { wish: 1.0, ..plain }.norm() > plain.norm());
        assert!(Score { penalty: -1.0, ..plain }.norm() < plain.norm());
        assert!((Score { spread: Some(0.0), ..plain }.norm() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn cheap_victims_score_higher() {
        assert!(preemption(50.0) > preemption(4000.0));
        assert!((preemption(2048.0) - 0.5).abs() < 1e-9);
    }
}
