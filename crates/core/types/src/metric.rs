//! Placement metrics: the nodes evaluated, filtered, exhausted and scored (docs/reference/http-api.md, section 5.2).

use crate::id::NodeId;
use crate::job::Resources;
use crate::ser::{is_default, nil};
use crate::small::Map;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::sync::Arc;

/// The metrics of a placement: the nodes evaluated, filtered, exhausted and scored.
///
/// The counts are the same for most placements of an evaluation, which share them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Owned")]
pub struct AllocMetric {
    /// The number of nodes by the outcome of the placement.
    pub counts: Arc<Counts>,
    /// The scores of the best nodes.
    pub score_meta_data: Box<[NodeScore]>,
    /// The duration of the placement.
    pub allocation_time: Nanos,
    /// The number of further placements that failed for the same reasons.
    pub coalesced_failures: u32,
}

impl AllocMetric {
    /// Returns the counts for a change, after copying them if another placement shares them.
    pub fn counts_mut(&mut self) -> &mut Counts {
        Arc::make_mut(&mut self.counts)
    }

    /// Shares the counts of another placement if they are equal.
    pub fn share(&mut self, other: &Self) {
        if !Arc::ptr_eq(&self.counts, &other.counts) && self.counts == other.counts {
            self.counts = Arc::clone(&other.counts);
        }
    }
}

impl Deref for AllocMetric {
    type Target = Counts;
    fn deref(&self) -> &Counts {
        &self.counts
    }
}

impl From<Counts> for AllocMetric {
    fn from(counts: Counts) -> Self {
        Self { counts: Arc::new(counts), ..Self::default() }
    }
}

/// The number of nodes evaluated for a placement, by the reason that excluded them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.2")]
pub struct Counts {
    pub nodes_evaluated: u32,
    pub nodes_filtered: u32,
    pub nodes_in_pool: u32,
    pub node_pool: String,
    #[serde(with = "nil")]
    pub nodes_available: Map<String, u32>,
    #[serde(with = "nil")]
    pub class_filtered: Map<String, u32>,
    #[serde(with = "nil")]
    pub constraint_filtered: Map<String, u32>,
    pub nodes_exhausted: u32,
    #[serde(with = "nil")]
    pub class_exhausted: Map<String, u32>,
    #[serde(with = "nil")]
    pub dimension_exhausted: Map<String, u32>,
    #[serde(with = "nil")]
    pub quota_exhausted: Vec<String>,
    #[serde(with = "nil")]
    pub resources_exhausted: Map<String, Resources>,
    #[serde(with = "nil")]
    pub scores: Map<String, f64>,
}

/// Metrics in the form of the HTTP API: one flat object.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown<'m> {
    nodes_evaluated: u32,
    nodes_filtered: u32,
    nodes_in_pool: u32,
    node_pool: &'m str,
    #[serde(with = "nil")]
    nodes_available: &'m Map<String, u32>,
    #[serde(with = "nil")]
    class_filtered: &'m Map<String, u32>,
    #[serde(with = "nil")]
    constraint_filtered: &'m Map<String, u32>,
    nodes_exhausted: u32,
    #[serde(with = "nil")]
    class_exhausted: &'m Map<String, u32>,
    #[serde(with = "nil")]
    dimension_exhausted: &'m Map<String, u32>,
    #[serde(with = "nil")]
    quota_exhausted: &'m Vec<String>,
    #[serde(with = "nil")]
    resources_exhausted: &'m Map<String, Resources>,
    #[serde(with = "nil")]
    scores: &'m Map<String, f64>,
    #[serde(with = "nil")]
    score_meta_data: &'m [NodeScore],
    allocation_time: Nanos,
    coalesced_failures: u32,
}

/// Metrics in the form that is stored and sent between agents: without empty fields.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Kept<'m> {
    #[serde(skip_serializing_if = "is_default")]
    nodes_evaluated: u32,
    #[serde(skip_serializing_if = "is_default")]
    nodes_filtered: u32,
    #[serde(skip_serializing_if = "is_default")]
    nodes_in_pool: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    node_pool: &'m str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    nodes_available: &'m Map<String, u32>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    class_filtered: &'m Map<String, u32>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    constraint_filtered: &'m Map<String, u32>,
    #[serde(skip_serializing_if = "is_default")]
    nodes_exhausted: u32,
    #[serde(skip_serializing_if = "Map::is_empty")]
    class_exhausted: &'m Map<String, u32>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    dimension_exhausted: &'m Map<String, u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    quota_exhausted: &'m [String],
    #[serde(skip_serializing_if = "Map::is_empty")]
    resources_exhausted: &'m Map<String, Resources>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    scores: &'m Map<String, f64>,
    #[serde(skip_serializing_if = "<[NodeScore]>::is_empty")]
    score_meta_data: &'m [NodeScore],
    #[serde(skip_serializing_if = "is_default")]
    allocation_time: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    coalesced_failures: u32,
}

impl<'m> Kept<'m> {
    fn new(metric: &'m AllocMetric) -> Self {
        let counts = &*metric.counts;
        Self {
            nodes_evaluated: counts.nodes_evaluated,
            nodes_filtered: counts.nodes_filtered,
            nodes_in_pool: counts.nodes_in_pool,
            node_pool: &counts.node_pool,
            nodes_available: &counts.nodes_available,
            class_filtered: &counts.class_filtered,
            constraint_filtered: &counts.constraint_filtered,
            nodes_exhausted: counts.nodes_exhausted,
            class_exhausted: &counts.class_exhausted,
            dimension_exhausted: &counts.dimension_exhausted,
            quota_exhausted: &counts.quota_exhausted,
            resources_exhausted: &counts.resources_exhausted,
            scores: &counts.scores,
            score_meta_data: &metric.score_meta_data,
            allocation_time: metric.allocation_time,
            coalesced_failures: metric.coalesced_failures,
        }
    }
}

impl Serialize for AllocMetric {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return Kept::new(self).serialize(serializer);
        }
        let counts = &*self.counts;
        let shown = Shown {
            nodes_evaluated: counts.nodes_evaluated,
            nodes_filtered: counts.nodes_filtered,
            nodes_in_pool: counts.nodes_in_pool,
            node_pool: &counts.node_pool,
            nodes_available: &counts.nodes_available,
            class_filtered: &counts.class_filtered,
            constraint_filtered: &counts.constraint_filtered,
            nodes_exhausted: counts.nodes_exhausted,
            class_exhausted: &counts.class_exhausted,
            dimension_exhausted: &counts.dimension_exhausted,
            quota_exhausted: &counts.quota_exhausted,
            resources_exhausted: &counts.resources_exhausted,
            scores: &counts.scores,
            score_meta_data: &self.score_meta_data,
            allocation_time: self.allocation_time,
            coalesced_failures: self.coalesced_failures,
        };
        shown.serialize(serializer)
    }
}

/// Metrics in the form from which they are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Owned {
    nodes_evaluated: u32,
    nodes_filtered: u32,
    nodes_in_pool: u32,
    node_pool: String,
    #[serde(with = "nil")]
    nodes_available: Map<String, u32>,
    #[serde(with = "nil")]
    class_filtered: Map<String, u32>,
    #[serde(with = "nil")]
    constraint_filtered: Map<String, u32>,
    nodes_exhausted: u32,
    #[serde(with = "nil")]
    class_exhausted: Map<String, u32>,
    #[serde(with = "nil")]
    dimension_exhausted: Map<String, u32>,
    #[serde(with = "nil")]
    quota_exhausted: Vec<String>,
    #[serde(with = "nil")]
    resources_exhausted: Map<String, Resources>,
    #[serde(with = "nil")]
    scores: Map<String, f64>,
    #[serde(with = "nil")]
    score_meta_data: Box<[NodeScore]>,
    allocation_time: Nanos,
    coalesced_failures: u32,
}

impl From<Owned> for AllocMetric {
    fn from(read: Owned) -> Self {
        let counts = Counts {
            nodes_evaluated: read.nodes_evaluated,
            nodes_filtered: read.nodes_filtered,
            nodes_in_pool: read.nodes_in_pool,
            node_pool: read.node_pool,
            nodes_available: read.nodes_available,
            class_filtered: read.class_filtered,
            constraint_filtered: read.constraint_filtered,
            nodes_exhausted: read.nodes_exhausted,
            class_exhausted: read.class_exhausted,
            dimension_exhausted: read.dimension_exhausted,
            quota_exhausted: read.quota_exhausted,
            resources_exhausted: read.resources_exhausted,
            scores: read.scores,
        };
        Self {
            counts: Arc::new(counts),
            score_meta_data: read.score_meta_data,
            allocation_time: read.allocation_time,
            coalesced_failures: read.coalesced_failures,
        }
    }
}

/// A part of the scheduler that scores nodes (docs/reference/http-api.md, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scorer {
    /// Scores the used share of the node: full nodes first, or empty nodes first.
    Binpack,
    /// Scores the number of the group's allocations on the node.
    JobAntiAffinity,
    /// Scores a node on which an earlier attempt failed.
    NodeReschedulePenalty,
    /// Scores the match of the job's preferences for nodes.
    NodeAffinity,
    /// Scores how evenly the group is spread.
    AllocationSpread,
    /// Scores the match of the task's preferences for devices.
    Devices,
    /// Scores a low priority of the allocations to preempt.
    Preemption,
}

impl Scorer {
    const ALL: [Self; 7] = [
        Self::Binpack,
        Self::JobAntiAffinity,
        Self::NodeReschedulePenalty,
        Self::NodeAffinity,
        Self::AllocationSpread,
        Self::Devices,
        Self::Preemption,
    ];

    /// Returns the scorer with a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scorer| scorer.as_str() == name)
    }
    /// Returns the name in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Binpack => "binpack",
            Self::JobAntiAffinity => "job-anti-affinity",
            Self::NodeReschedulePenalty => "node-reschedule-penalty",
            Self::NodeAffinity => "node-affinity",
            Self::AllocationSpread => "allocation-spread",
            Self::Devices => "devices",
            Self::Preemption => "preemption",
        }
    }
}

/// The scores of a node by scorer. JSON shows a map; the memory is compact, because every allocation keeps several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// One bit for each scorer with a score.
    present: u8,
    /// One bit for each scorer with a score other than zero.
    kept: u8,
    /// The scores other than zero, in the order of the scorers.
    values: Box<[f64]>,
}

impl Scores {
    /// Returns scores, at most one for each scorer.
    pub fn new(scores: impl IntoIterator<Item = (Scorer, f64)>) -> Self {
        let mut by_scorer = [None; Scorer::ALL.len()];
        for (scorer, score) in scores {
            by_scorer[scorer as usize] = Some(score);
        }
        let (mut supplied, mut kept, mut values) = (0, 0, Vec::new());
        for (at, score) in by_scorer.iter().enumerate().filter_map(|(at, score)| Some((at, (*score)?))) {
            supplied |= 1 << at;
            if score != 0.0 {
                kept |= 1 << at;
                values.push(score);
            }
        }
        Self { present: supplied, kept, values: values.into_boxed_slice() }
    }
    /// Returns the scores with their scorers.
    pub fn iter(&self) -> impl Iterator<Item = (Scorer, f64)> + '_ {
        let mut values = self.values.iter();
        Scorer::ALL.into_iter().filter(|scorer| self.present & (1 << *scorer as u8) != 0).map(move |scorer| {
            let kept = self.kept & (1 << scorer as u8) != 0;
            (scorer, kept.then(|| values.next().copied()).flatten().unwrap_or(0.0))
        })
    }
    /// Returns the score of one scorer.
    pub fn get(&self, scorer: Scorer) -> Option<f64> {
        self.iter().find(|(known, _)| *known == scorer).map(|(_, score)| score)
    }
}

impl Serialize for Scores {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Scores {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scores = Map::<String, f64>::deserialize(deserializer)?;
        // Agents of other versions may have more scorers.
        Ok(Self::new(scores.into_iter().filter_map(|(name, score)| Some((Scorer::parse(&name)?, score)))))
    }
}

/// The scores of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeScore {
    /// The UUID of the node.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The scores, by scorer.
    pub scores: Scores,
    /// The final score, by which nodes are compared.
    pub norm_score: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric() -> AllocMetric {
        let mut metric = AllocMetric::from(Counts {
            nodes_evaluated: 3,
            nodes_available: [("dc1".into(), 3)].into(),
            ..Counts::default()
        });
        let scores = Scores::new([
            (Scorer::AllocationSpread, 0.5),
            (Scorer::Binpack, 0.25),
            (Scorer::JobAntiAffinity, 0.0),
        ]);
        metric.score_meta_data = [NodeScore { node_id: "n1".into(), scores, norm_score: 0.375 }].into();
        metric.coalesced_failures = 2;
        metric
    }

    #[test]
    fn metrics_are_one_flat_object_and_come_back() {
        let metric = metric();
        let json = serde_json::to_value(&metric).unwrap();
        assert_eq!(json["NodesEvaluated"], 3);
        assert_eq!(json["NodesAvailable"]["dc1"], 3);
        assert!(json["ClassFiltered"].is_null() && json["Scores"].is_null());
        let scores = &json["ScoreMetaData"][0]["Scores"];
        assert_eq!(scores.to_string(), r#"{"binpack":0.25,"job-anti-affinity":0.0,"allocation-spread":0.5}"#);
        assert_eq!(json["CoalescedFailures"], 2);
        assert_eq!(serde_json::from_value::<AllocMetric>(json).unwrap(), metric);
        let packed = rmp_serde::to_vec_named(&metric).unwrap();
        assert_eq!(rmp_serde::from_slice::<AllocMetric>(&packed).unwrap(), metric);
    }

    #[test]
    fn equal_counts_are_shared_and_a_change_is_ones_own() {
        let (mut one, other) = (metric(), metric());
        one.share(&other);
        assert!(Arc::ptr_eq(&one.counts, &other.counts));
        one.counts_mut().nodes_exhausted += 1;
        assert_eq!((one.nodes_exhausted, other.nodes_exhausted), (1, 0));
        one.share(&other);
        assert!(!Arc::ptr_eq(&one.counts, &other.counts));
    }
}
