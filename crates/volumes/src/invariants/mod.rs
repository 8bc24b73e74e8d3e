//! The promises of storage (design section 4.2) as functions that say what is broken.
//!
//! This is the one place that states rules 2, 3, 4 and 6. The model explores with them, the offline check
//! asks them of records, the trace checker of a plugin's log, and servers may ask them of their own state.
//! All answer violations as sentences; an empty list is what must come.
//!
//! [`records`] needs records only. [`Outside`] follows what calls made of a volume outside the records, and
//! knows the order in which they must come. [`one_writer`] and [`same_users`] compare what is seen.

mod outside;
mod records;

pub use outside::{Call, Needs, Outside, Verb};
pub use records::{detached_in_use, known_before_used, may_share, records};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The rules of design section 4.2 that are stated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Rule 2: a single-writer volume has at most one node with a live writer.
    OneWriter,
    /// Rule 3: in quiet, claims = consumers = published targets = mounts; what waits has a reason.
    Quiet,
    /// Rule 4: calls follow the CSI order, at most one in flight per volume.
    CallOrder,
    /// Rule 6: unknown is never no.
    UnknownIsNotNo,
}

impl Rule {
    /// Its number in the design.
    pub fn number(self) -> u8 {
        match self {
            Self::OneWriter => 2,
            Self::Quiet => 3,
            Self::CallOrder => 4,
            Self::UnknownIsNotNo => 6,
        }
    }
}

/// A rule that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// One sentence that names the volume.
    pub text: String,
}

impl Violation {
    /// A violation of a rule.
    pub fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rule {})", self.text, self.rule.number())
    }
}

/// Rule 2: the live tasks that can write to a volume with room for one writer, as node and allocation.
/// Several on one node are a matter of the claims; on two nodes they destroy the volume.
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

/// Rule 3, first half: in quiet, every other view of who uses a volume is the view of the claims. A view is
/// its name ("a published target") and its users, each a node and an allocation.
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
