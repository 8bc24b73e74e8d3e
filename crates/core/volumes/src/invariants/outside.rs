//! The state of one volume outside the records, as the result of calls. This module also checks the legal order of
//! calls (CSI specification, "Volume Lifecycle" and "Concurrency").

use super::{Rule, Violation};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A call about a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Attaches the volume to a node.
    ControllerPublish,
    /// Detaches the volume from a node.
    ControllerUnpublish,
    /// Mounts the volume once on a node.
    Stage,
    /// Undoes `Stage`.
    Unstage,
    /// Mounts the volume for an allocation.
    Publish,
    /// Undoes `Publish`.
    Unpublish,
    /// Any other controller call about the volume: create, delete, expand, snapshot.
    Controller,
    /// Any other node call about the volume: expand.
    Node,
}

impl Verb {
    /// Returns the verb of a CSI call that changes one volume, or `None` for calls that only read.
    pub fn of_call(name: &str) -> Option<Self> {
        Some(match name {
            "ControllerPublishVolume" => Self::ControllerPublish,
            "ControllerUnpublishVolume" => Self::ControllerUnpublish,
            "NodeStageVolume" => Self::Stage,
            "NodeUnstageVolume" => Self::Unstage,
            "NodePublishVolume" => Self::Publish,
            "NodeUnpublishVolume" => Self::Unpublish,
            "CreateVolume"
            | "DeleteVolume"
            | "ControllerExpandVolume"
            | "ControllerModifyVolume"
            | "CreateSnapshot" => Self::Controller,
            "NodeExpandVolume" => Self::Node,
            _ => return None,
        })
    }

    /// Returns the name of the call.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControllerPublish => "ControllerPublishVolume",
            Self::ControllerUnpublish => "ControllerUnpublishVolume",
            Self::Stage => "NodeStageVolume",
            Self::Unstage => "NodeUnstageVolume",
            Self::Publish => "NodePublishVolume",
            Self::Unpublish => "NodeUnpublishVolume",
            Self::Controller => "a controller call",
            Self::Node => "a node call",
        }
    }

    fn on_controller(self) -> bool {
        matches!(self, Self::ControllerPublish | Self::ControllerUnpublish | Self::Controller)
    }
}

/// A call and its location. `K` identifies nodes and places. Fields that a verb does not need keep their default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call<K> {
    /// The kind of call.
    pub verb: Verb,
    /// The node of the call.
    pub node: K,
    /// The publish target.
    pub target: K,
    /// The staging path.
    pub staging: K,
}

impl<K: fmt::Display> Call<K> {
    fn words(&self) -> String {
        format!("{} for node {}", self.verb.as_str(), self.node)
    }
}

/// The requirements of a volume's plugin and modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Needs {
    /// Whether the plugin's controller attaches.
    pub attach: bool,
    /// Whether the plugin's node service stages.
    pub stage: bool,
    /// Whether several claims may be active together, on one node or on many. Calls to different nodes may then
    /// overlap, and an existing attachment may be requested again while its node works.
    pub shared: bool,
}

/// The state of one volume at its plugin, followed call by call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outside<K: Ord> {
    /// The nodes to which the volume is attached.
    pub attached: BTreeSet<K>,
    /// The places where the volume is staged: node and path.
    pub staged: BTreeSet<(K, K)>,
    /// The places where the volume is published: node and path, with the stage beneath.
    pub published: BTreeMap<(K, K), K>,
    /// The stages whose attachment was removed; mounts there are invalid.
    pub stale: BTreeSet<(K, K)>,
    /// The calls in flight.
    pub in_flight: Vec<Call<K>>,
    /// The nodes whose lease certainly ran out. Their own calls no longer block other calls, and the volume may be
    /// detached from them without unmounting.
    pub lost: BTreeSet<K>,
}

impl<K: Ord> Default for Outside<K> {
    fn default() -> Self {
        Self {
            attached: BTreeSet::new(),
            staged: BTreeSet::new(),
            published: BTreeMap::new(),
            stale: BTreeSet::new(),
            in_flight: Vec::new(),
            lost: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone + fmt::Display> Outside<K> {
    /// Begins a call, and returns the violations of rule 4 that the call causes.
    pub fn begin(&mut self, volume: &str, needs: Needs, call: Call<K>) -> Vec<Violation> {
        let mut wrong = Vec::new();
        for other in self.in_flight.iter().filter(|other| self.conflict(needs, other, &call)) {
            wrong.push(format!(
                "volume {volume}: {} begins while {} is under way",
                call.words(),
                other.words()
            ));
        }
        if let Some(why) = self.out_of_order(needs, &call) {
            wrong.push(format!("volume {volume}: {} {why}", call.words()));
        }
        self.in_flight.push(call);
        wrong.into_iter().map(|text| Violation::new(Rule::CallOrder, text)).collect()
    }

    /// Applies the effect of a call, which may still be in flight.
    pub fn take_effect(&mut self, call: &Call<K>) {
        let stage = (call.node.clone(), call.staging.clone());
        let target = (call.node.clone(), call.target.clone());
        match call.verb {
            Verb::ControllerPublish => {
                self.attached.insert(call.node.clone());
            }
            Verb::ControllerUnpublish => {
                self.attached.remove(&call.node);
                let left = self.staged.iter().filter(|(node, _)| *node == call.node);
                self.stale.extend(left.cloned());
            }
            Verb::Stage => {
                self.staged.insert(stage);
            }
            Verb::Unstage => {
                self.staged.remove(&stage);
                self.stale.remove(&stage);
            }
            Verb::Publish => {
                self.published.insert(target, call.staging.clone());
            }
            Verb::Unpublish => {
                self.published.remove(&target);
            }
            Verb::Controller | Verb::Node => {}
        }
    }

    /// Ends a call after its response, or after its caller or its server disappeared.
    pub fn end(&mut self, call: &Call<K>) {
        if let Some(at) = self.in_flight.iter().position(|c| c == call) {
            self.in_flight.remove(at);
        }
    }

    fn conflict(&self, needs: Needs, a: &Call<K>, b: &Call<K>) -> bool {
        let of_the_lost = |call: &Call<K>| !call.verb.on_controller() && self.lost.contains(&call.node);
        if of_the_lost(a) || of_the_lost(b) {
            return false;
        }
        if !needs.shared {
            return true;
        }
        match (a.verb.on_controller(), b.verb.on_controller()) {
            (true, true) => true,
            (false, false) => a.node == b.node,
            (true, false) => a.verb == Verb::ControllerUnpublish && a.node == b.node,
            (false, true) => b.verb == Verb::ControllerUnpublish && a.node == b.node,
        }
    }

    fn out_of_order(&self, needs: Needs, call: &Call<K>) -> Option<String> {
        let node = &call.node;
        let stage = (node.clone(), call.staging.clone());
        let detached = needs.attach && !self.attached.contains(node);
        match call.verb {
            Verb::Stage if detached => Some("begins before the volume is attached to it".to_owned()),
            Verb::Publish if needs.stage && !self.staged.contains(&stage) => {
                Some(format!("begins before the volume is staged at {}", call.staging))
            }
            Verb::Publish if self.stale.contains(&stage) => {
                Some(format!("uses the stage at {}, which was made for an earlier attachment", call.staging))
            }
            Verb::Publish if detached => Some("begins before the volume is attached to it".to_owned()),
            Verb::Unstage => {
                let user = self.published.iter().find(|((at, _), from)| at == node && **from == call.staging);
                user.map(|((_, target), _)| format!("begins while it is still published at {target}"))
            }
            Verb::ControllerUnpublish if !self.lost.contains(node) => {
                let target = self.published.keys().find(|(at, _)| at == node);
                let staged = self.staged.iter().find(|(at, _)| at == node);
                target
                    .map(|(_, target)| format!("begins while it is still published at {target}"))
                    .or_else(|| staged.map(|(_, at)| format!("begins while it is still staged at {at}")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Needs = Needs { attach: true, stage: true, shared: false };

    fn call(verb: Verb, node: &str) -> Call<String> {
        Call { verb, node: node.into(), target: "t".into(), staging: "s".into() }
    }

    fn texts(wrong: Vec<Violation>) -> Vec<String> {
        wrong.into_iter().map(|w| w.text).collect()
    }

    /// Begins, applies and ends a call.
    fn whole(outside: &mut Outside<String>, needs: Needs, verb: Verb, node: &str) -> Vec<String> {
        let call = call(verb, node);
        let wrong = outside.begin("v", needs, call.clone());
        outside.take_effect(&call);
        outside.end(&call);
        texts(wrong)
    }

    #[test]
    fn the_way_there_and_back_is_in_order() {
        let mut outside = Outside::default();
        for verb in [
            Verb::ControllerPublish,
            Verb::Stage,
            Verb::Publish,
            Verb::Unpublish,
            Verb::Unstage,
            Verb::ControllerUnpublish,
        ] {
            assert_eq!(whole(&mut outside, ALL, verb, "n"), Vec::<String>::new(), "{verb:?}");
        }
        assert_eq!(outside, Outside::default());
    }

    #[test]
    fn skipped_steps_are_named() {
        let mut outside = Outside::default();
        assert_eq!(
            whole(&mut outside, ALL, Verb::Stage, "n"),
            ["volume v: NodeStageVolume for node n begins before the volume is attached to it"]
        );
        let mut outside = Outside::default();
        assert_eq!(
            whole(&mut outside, ALL, Verb::Publish, "n"),
            ["volume v: NodePublishVolume for node n begins before the volume is staged at s"]
        );
        assert_eq!(
            whole(&mut outside, ALL, Verb::Unstage, "n"),
            ["volume v: NodeUnstageVolume for node n begins while it is still published at t"]
        );
        let none = Needs::default();
        assert!(whole(&mut Outside::default(), none, Verb::Publish, "n").is_empty());
    }

    #[test]
    fn a_detach_needs_an_empty_node_or_a_lost_one() {
        let mut outside = Outside::default();
        for verb in [Verb::ControllerPublish, Verb::Stage, Verb::Publish] {
            assert!(whole(&mut outside, ALL, verb, "n").is_empty());
        }
        let mut lost = outside.clone();
        assert_eq!(whole(&mut outside, ALL, Verb::ControllerUnpublish, "n").len(), 1);
        lost.lost.insert("n".into());
        assert!(whole(&mut lost, ALL, Verb::ControllerUnpublish, "n").is_empty());
        // The stages of the volume stay invalid, even after the volume is attached again.
        assert!(whole(&mut lost, ALL, Verb::ControllerPublish, "n").is_empty());
        assert_eq!(
            whole(&mut lost, ALL, Verb::Publish, "n"),
            [
                "volume v: NodePublishVolume for node n uses the stage at s, which was made for an earlier attachment"
            ]
        );
    }

    #[test]
    fn calls_of_one_volume_do_not_overlap() {
        let mut outside = Outside::default();
        assert!(outside.begin("v", ALL, call(Verb::ControllerPublish, "n")).is_empty());
        assert_eq!(
            texts(outside.begin("v", ALL, call(Verb::ControllerPublish, "m"))),
            [
                "volume v: ControllerPublishVolume for node m begins while ControllerPublishVolume for node n is \
              under way"
            ]
        );
        let shared = Needs { shared: true, ..Needs::default() };
        let mut outside = Outside::default();
        assert!(outside.begin("v", shared, call(Verb::Publish, "n")).is_empty());
        assert!(outside.begin("v", shared, call(Verb::Publish, "m")).is_empty());
        assert!(outside.begin("v", shared, call(Verb::ControllerPublish, "n")).is_empty());
        assert_eq!(outside.begin("v", shared, call(Verb::ControllerUnpublish, "m")).len(), 2);
    }
}
