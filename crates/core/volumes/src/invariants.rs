//! The promises of storage (docs/design/volumes.md) as functions that return violations.
//!
//! This module is the only place that states rules 2, 3, 4 and 6. The model explores with these functions. The
//! offline check applies them to records, and the trace checker to a plugin's log. Servers may apply them to their
//! own state. All functions return violations as sentences; an empty list means that all rules hold.
//!
//! [`records`] needs records only. [`Outside`] follows the effects of calls on a volume outside the records, and
//! checks their legal order. [`one_writer`] and [`same_users`] compare observations.

mod outside;
mod records;

pub use outside::{Call, Needs, Outside, Verb};
pub use records::{detached_in_use, known_before_used, may_share, records};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The rules of docs/design/volumes.md that are stated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Rule 2: a single-writer volume has at most one node with a live writer.
    OneWriter,
    /// Rule 3: in quiet, claims = consumers = published targets = mounts; every wait has a reason.
    Quiet,
    /// Rule 4: calls follow the CSI order, at most one in flight per volume.
    CallOrder,
    /// Rule 6: unknown must never count as "no".
    UnknownIsNotNo,
}

impl Rule {
    /// Returns the rule's number in the design.
    pub fn number(self) -> u8 {
        match self {
            Self::OneWriter => 2,
            Self::Quiet => 3,
            Self::CallOrder => 4,
            Self::UnknownIsNotNo => 6,
        }
    }
}

/// A broken rule, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// The sentence that names the volume and the broken rule.
    pub text: String,
}

impl Violation {
    /// Creates a violation of a rule.
    pub fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rule {})", self.text, self.rule.number())
    }
}

/// Checks rule 2 for the live tasks that can write to a single-writer volume, given as node and allocation. The
/// claims limit several tasks on one node; tasks on two nodes destroy the volume.
pub fn one_writer<K: Ord + fmt::Display>(
    volume: &str,
    writers: impl IntoIterator<Item = (K, K)>,
) -> Vec<Violation> {
    let mut by_node: BTreeMap<K, Vec<K>> = BTreeMap::new();
    for (node, alloc) in writers {
        by_node.entry(node).or_default().push(alloc);
    }
    if by_node.len() < 2 {
        return Vec::new();
    }
    let nodes: Vec<String> = by_node
        .iter()
        .map(|(node, allocs)| {
            let allocs: Vec<String> = allocs.iter().map(ToString::to_string).collect();
            format!("node {node} (allocation {})", allocs.join(", "))
        })
        .collect();
    let text = format!("volume {volume} is written at the same time on {}", nodes.join(" and on "));
    vec![Violation::new(Rule::OneWriter, text)]
}

/// Checks the first half of rule 3: in quiet, every other view of a volume's users equals the view of the claims. A
/// view is its name ("a published target") and its users, each a node and an allocation.
pub fn same_users<K: Ord + fmt::Display>(
    volume: &str,
    claims: &BTreeSet<(K, K)>,
    views: &[(&str, &BTreeSet<(K, K)>)],
) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (what, users) in views {
        for (node, alloc) in claims.difference(users) {
            wrong.push(format!(
                "volume {volume} is claimed for allocation {alloc} on node {node} without {what}"
            ));
        }
        for (node, alloc) in users.difference(claims) {
            wrong.push(format!(
                "volume {volume} has {what} of allocation {alloc} on node {node} without a claim"
            ));
        }
    }
    wrong.into_iter().map(|text| Violation::new(Rule::Quiet, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_on_two_nodes_are_named() {
        assert_eq!(one_writer("data", [("n1", "a"), ("n1", "b")]), []);
        let wrong = one_writer("data", [("n1", "a"), ("n2", "b"), ("n1", "c")]);
        let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["volume data is written at the same time on node n1 (allocation a, c) and on node n2 \
              (allocation b) (rule 2)"]
        );
    }

    #[test]
    fn every_view_must_be_the_view_of_the_claims() {
        let claims = BTreeSet::from([("n1", "a"), ("n2", "b")]);
        let fewer = BTreeSet::from([("n1", "a")]);
        let more = BTreeSet::from([("n1", "a"), ("n2", "b"), ("n2", "c")]);
        assert_eq!(same_users("v", &claims, &[("a mount", &claims)]), []);
        let wrong = same_users("v", &claims, &[("a mount", &fewer), ("a published target", &more)]);
        let texts: Vec<String> = wrong.into_iter().map(|w| w.text).collect();
        assert_eq!(
            texts,
            [
                "volume v is claimed for allocation b on node n2 without a mount",
                "volume v has a published target of allocation c on node n2 without a claim"
            ]
        );
    }
}
