//! The reasons for which claims wait: typed reasons, rendered as the sentences that users read.

use caravan_types::sealed::Unopened;
use caravan_types::volume::{Claim, ClaimPhase};
use caravan_types::{AllocId, Namespace, NodeId, PluginId};
use std::fmt;

/// A wait of a claim: its reason, and the failed attempt before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The change that the claim needs before it can proceed.
    pub reason: WaitReason,
    /// The failure of the claim's last call, or `None` if the call did not fail.
    pub failure: Option<FailedTry>,
}

/// The last failed attempt of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTry {
    /// The number of failed attempts so far.
    pub tries: u32,
    /// The message that the plugin or the node returned.
    pub error: String,
}

/// A call of a plugin's controller about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerStep {
    /// The CSI call ControllerPublishVolume.
    Attach,
    /// The CSI call ControllerUnpublishVolume.
    Detach,
}

/// A step of the client on a claim's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// The CSI calls NodeStageVolume and NodePublishVolume.
    Mount,
    /// The CSI call NodeUnpublishVolume.
    Unpublish,
    /// The CSI call NodeUnstageVolume.
    Unstage,
}

/// The reason of a wait. [`fmt::Display`] renders one sentence, [`WaitReason::code`] a stable name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The node has to be in contact before the volume is attached to it.
    NodeSilent {
        /// The claim's node.
        node: NodeId,
    },
    /// The node has to be in contact before it expands its mounted volume.
    NodeSilentForGrowth {
        /// The claim's node.
        node: NodeId,
    },
    /// No server can call the node, which has to expand its mounted volume.
    NodeNotConnected {
        /// The claim's node.
        node: NodeId,
    },
    /// The tasks of a silent node end with its lease.
    LeaseOfSilentNode {
        /// The claim's node.
        node: NodeId,
    },
    /// The node has no record any more, and its allocation is not declared lost yet.
    NodeUnknown {
        /// The claim's node.
        node: NodeId,
    },
    /// A node returned during its fence and has to unpublish the volume itself.
    NodeBack {
        /// The claim's node.
        node: NodeId,
    },
    /// The client of the claim's node executes the next step.
    NodeStep {
        /// The claim's node.
        node: NodeId,
        /// The next step of the client.
        step: NodeStep,
    },
    /// The volume is still being created.
    VolumeCreating,
    /// The volume is being deleted.
    VolumeDeleting,
    /// The volume has no record any more.
    VolumeGone,
    /// The claim of another allocation blocks this claim.
    OtherClaim {
        /// The allocation of the other claim.
        alloc: AllocId,
        /// The node of the other claim.
        node: NodeId,
        /// The phase of the other claim.
        phase: ClaimPhase,
    },
    /// A call about the volume is in progress.
    CallUnderWay,
    /// Another allocation is being attached to the same node.
    AttachBeside {
        /// The other allocation, which is being attached.
        alloc: AllocId,
    },
    /// Another allocation uses the attachment that would be undone.
    AttachmentInUse {
        /// The other allocation, which uses the attachment.
        alloc: AllocId,
    },
    /// The plugin has no record.
    PluginUnknown {
        /// The claim's plugin.
        plugin: PluginId,
        /// The call that no controller can execute, or `None` while the servers do not know whether a call is needed.
        step: Option<ControllerStep>,
    },
    /// No controller of the plugin is healthy.
    NoHealthyController {
        /// The claim's plugin.
        plugin: PluginId,
        /// The call that no controller can execute.
        step: ControllerStep,
    },
    /// No node with a healthy controller of the plugin is connected to the servers.
    ControllerNotConnected {
        /// The claim's plugin.
        plugin: PluginId,
    },
    /// No healthy controller has reported its capabilities yet.
    AttachSupportUnknown {
        /// The claim's plugin.
        plugin: PluginId,
    },
    /// The plugin has not reported its own id of the node yet.
    NodeIdUnknown {
        /// The claim's plugin.
        plugin: PluginId,
        /// The claim's node.
        node: NodeId,
    },
    /// A secret of the volume is missing.
    Secret(MissingSecret),
    /// The time of the next attempt has not come.
    Retry,
}

/// The reason that the secrets of a volume cannot be passed to its plugin. It never contains a part of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingSecret {
    /// The sealed secrets or the variable cannot be opened.
    #[error(transparent)]
    Sealed(#[from] Unopened),
    /// The reference of a secret is malformed.
    #[error("secret \"{secret}\": {cause}")]
    BadReference {
        /// The name of the secret.
        secret: String,
        /// The parser's message.
        cause: String,
    },
    /// The variable of a secret has not been written yet.
    #[error("waits for variable \"{path}\" in namespace \"{namespace}\", which has secret \"{secret}\"")]
    NoVariable {
        /// The path of the variable.
        path: String,
        /// The namespace of the variable and the volume.
        namespace: Namespace,
        /// The name of the secret.
        secret: String,
    },
    /// The variable lacks the item of a secret.
    #[error(
        "waits for item \"{item}\" of variable \"{path}\" in namespace \"{namespace}\", which is secret \"{secret}\""
    )]
    NoItem {
        /// The name of the item.
        item: String,
        /// The path of the variable.
        path: String,
        /// The namespace of the variable and the volume.
        namespace: Namespace,
        /// The name of the secret.
        secret: String,
    },
}

impl FailedTry {
    /// Returns the last failure in the record of a claim.
    pub fn recorded(claim: &Claim) -> Option<Self> {
        let error = &claim.last_error;
        (!error.is_empty()).then(|| Self { tries: claim.tries, error: error.clone() })
    }
}

impl From<WaitReason> for Wait {
    fn from(reason: WaitReason) -> Self {
        Self { reason, failure: None }
    }
}

impl WaitReason {
    /// The codes of all reasons ([`Self::code`]), sorted.
    pub const CODES: [&str; 21] = [
        "attach_beside",
        "attach_support_unknown",
        "attachment_in_use",
        "call_under_way",
        "controller_not_connected",
        "lease_of_silent_node",
        "no_healthy_controller",
        "node_back",
        "node_id_unknown",
        "node_not_connected",
        "node_silent",
        "node_silent_for_growth",
        "node_step",
        "node_unknown",
        "other_claim",
        "plugin_unknown",
        "retry",
        "secret",
        "volume_creating",
        "volume_deleting",
        "volume_gone",
    ];

    /// Returns the stable name of the reason, for metrics. Users group by it, so it never changes.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NodeSilent { .. } => "node_silent",
            Self::NodeSilentForGrowth { .. } => "node_silent_for_growth",
            Self::NodeNotConnected { .. } => "node_not_connected",
            Self::LeaseOfSilentNode { .. } => "lease_of_silent_node",
            Self::NodeUnknown { .. } => "node_unknown",
            Self::NodeBack { .. } => "node_back",
            Self::NodeStep { .. } => "node_step",
            Self::VolumeCreating => "volume_creating",
            Self::VolumeDeleting => "volume_deleting",
            Self::VolumeGone => "volume_gone",
            Self::OtherClaim { .. } => "other_claim",
            Self::CallUnderWay => "call_under_way",
            Self::AttachBeside { .. } => "attach_beside",
            Self::AttachmentInUse { .. } => "attachment_in_use",
            Self::PluginUnknown { .. } => "plugin_unknown",
            Self::NoHealthyController { .. } => "no_healthy_controller",
            Self::ControllerNotConnected { .. } => "controller_not_connected",
            Self::AttachSupportUnknown { .. } => "attach_support_unknown",
            Self::NodeIdUnknown { .. } => "node_id_unknown",
            Self::Secret(_) => "secret",
            Self::Retry => "retry",
        }
    }
}

impl fmt::Display for ControllerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attach => "attach",
            Self::Detach => "detach",
        })
    }
}

impl fmt::Display for NodeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mount => "mount",
            Self::Unpublish => "unpublish",
            Self::Unstage => "unstage",
        })
    }
}

impl fmt::Display for FailedTry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "try {} failed: {}", self.tries, self.error)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, &self.failure) {
            // The failure itself is the reason.
            (WaitReason::Retry, Some(failure)) => failure.fmt(f),
            (reason, Some(failure)) => write!(f, "{reason} ({failure})"),
            (reason, None) => reason.fmt(f),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeSilent { node } => write!(f, "node {} is not in contact", node.short()),
            Self::NodeSilentForGrowth { node } => {
                write!(f, "node {} is not in contact and cannot grow the volume", node.short())
            }
            Self::NodeNotConnected { node } => {
                write!(f, "node {} is not connected to the servers and cannot grow the volume", node.short())
            }
            Self::LeaseOfSilentNode { node } => {
                write!(
                    f,
                    "node {} is not in contact: waits until its tasks have certainly ended",
                    node.short()
                )
            }
            Self::NodeUnknown { node } => {
                write!(
                    f,
                    "node {} is not known any more: waits for its allocation to be declared lost",
                    node.short()
                )
            }
            Self::NodeBack { node } => {
                write!(f, "node {} is back: waits for it to unpublish the volume", node.short())
            }
            Self::NodeStep { node, step } => {
                write!(f, "waits for node {} to {step} the volume", node.short())
            }
            Self::VolumeCreating => f.write_str("waits for the volume to be created"),
            Self::VolumeDeleting => f.write_str("the volume is being deleted"),
            Self::VolumeGone => f.write_str("the volume does not exist any more"),
            Self::OtherClaim { alloc, node, phase } => {
                let (alloc, node, phase) = (alloc.short(), node.short(), phase.as_str());
                write!(f, "waits for the claim of allocation {alloc} on node {node} to end ({phase})")
            }
            Self::CallUnderWay => f.write_str("waits for the volume's call that is under way to end"),
            Self::AttachBeside { alloc } => {
                write!(f, "allocation {} is being attached to the same node", alloc.short())
            }
            Self::AttachmentInUse { alloc } => {
                write!(f, "allocation {} uses the attachment on the same node", alloc.short())
            }
            Self::PluginUnknown { plugin, step: None } => {
                write!(f, "plugin {:?} is not known", plugin.as_str())
            }
            Self::PluginUnknown { plugin, step: Some(step) } => {
                write!(f, "plugin {:?} is not known: nothing can {step} the volume", plugin.as_str())
            }
            Self::NoHealthyController { plugin, step } => {
                write!(f, "plugin {:?} has no healthy controller to {step} the volume", plugin.as_str())
            }
            Self::ControllerNotConnected { plugin } => {
                write!(
                    f,
                    "no node with a healthy controller of plugin \"{plugin}\" is connected to the servers"
                )
            }
            Self::AttachSupportUnknown { plugin } => write!(
                f,
                "it is not known yet whether plugin {:?} attaches volumes: no healthy controller has told",
                plugin.as_str()
            ),
            Self::NodeIdUnknown { plugin, node } => {
                write!(f, "plugin {:?} has not told its id of node {} yet", plugin.as_str(), node.short())
            }
            Self::Secret(missing) => missing.fmt(f),
            Self::Retry => f.write_str("waits for its next try"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sentences() -> Vec<(WaitReason, &'static str)> {
        let node = || NodeId::new("0123456789");
        let alloc = || AllocId::new("abcdefghij");
        let plugin = || PluginId::new("p\"q");
        vec![
            (WaitReason::NodeSilent { node: node() }, "node 01234567 is not in contact"),
            (
                WaitReason::NodeSilentForGrowth { node: node() },
                "node 01234567 is not in contact and cannot grow the volume",
            ),
            (
                WaitReason::NodeNotConnected { node: node() },
                "node 01234567 is not connected to the servers and cannot grow the volume",
            ),
            (
                WaitReason::LeaseOfSilentNode { node: node() },
                "node 01234567 is not in contact: waits until its tasks have certainly ended",
            ),
            (
                WaitReason::NodeUnknown { node: node() },
                "node 01234567 is not known any more: waits for its allocation to be declared lost",
            ),
            (
                WaitReason::NodeBack { node: node() },
                "node 01234567 is back: waits for it to unpublish the volume",
            ),
            (
                WaitReason::NodeStep { node: node(), step: NodeStep::Mount },
                "waits for node 01234567 to mount the volume",
            ),
            (
                WaitReason::NodeStep { node: node(), step: NodeStep::Unpublish },
                "waits for node 01234567 to unpublish the volume",
            ),
            (
                WaitReason::NodeStep { node: node(), step: NodeStep::Unstage },
                "waits for node 01234567 to unstage the volume",
            ),
            (WaitReason::VolumeCreating, "waits for the volume to be created"),
            (WaitReason::VolumeDeleting, "the volume is being deleted"),
            (WaitReason::VolumeGone, "the volume does not exist any more"),
            (
                WaitReason::OtherClaim { alloc: alloc(), node: node(), phase: ClaimPhase::Detaching },
                "waits for the claim of allocation abcdefgh on node 01234567 to end (detaching)",
            ),
            (WaitReason::CallUnderWay, "waits for the volume's call that is under way to end"),
            (
                WaitReason::AttachBeside { alloc: alloc() },
                "allocation abcdefgh is being attached to the same node",
            ),
            (
                WaitReason::AttachmentInUse { alloc: alloc() },
                "allocation abcdefgh uses the attachment on the same node",
            ),
            (WaitReason::PluginUnknown { plugin: plugin(), step: None }, r#"plugin "p\"q" is not known"#),
            (
                WaitReason::PluginUnknown { plugin: plugin(), step: Some(ControllerStep::Attach) },
                r#"plugin "p\"q" is not known: nothing can attach the volume"#,
            ),
            (
                WaitReason::NoHealthyController { plugin: plugin(), step: ControllerStep::Detach },
                r#"plugin "p\"q" has no healthy controller to detach the volume"#,
            ),
            (
                WaitReason::ControllerNotConnected { plugin: PluginId::new("p") },
                "no node with a healthy controller of plugin \"p\" is connected to the servers",
            ),
            (
                WaitReason::AttachSupportUnknown { plugin: plugin() },
                r#"it is not known yet whether plugin "p\"q" attaches volumes: no healthy controller has told"#,
            ),
            (
                WaitReason::NodeIdUnknown { plugin: plugin(), node: node() },
                r#"plugin "p\"q" has not told its id of node 01234567 yet"#,
            ),
            (
                WaitReason::Secret(Unopened::Damaged { owner: "volume v".into() }.into()),
                "the secrets of volume v cannot be opened: they are damaged",
            ),
            (
                WaitReason::Secret(MissingSecret::BadReference { secret: "s".into(), cause: "no".into() }),
                "secret \"s\": no",
            ),
            (
                WaitReason::Secret(MissingSecret::NoVariable {
                    path: "a/b".into(),
                    namespace: "default".into(),
                    secret: "s".into(),
                }),
                "waits for variable \"a/b\" in namespace \"default\", which has secret \"s\"",
            ),
            (
                WaitReason::Secret(MissingSecret::NoItem {
                    item: "i".into(),
                    path: "a/b".into(),
                    namespace: "default".into(),
                    secret: "s".into(),
                }),
                "waits for item \"i\" of variable \"a/b\" in namespace \"default\", which is secret \"s\"",
            ),
            (WaitReason::Retry, "waits for its next try"),
        ]
    }

    #[test]
    fn reasons_are_rendered_as_one_sentence() {
        for (reason, sentence) in sentences() {
            assert_eq!(reason.to_string(), sentence);
        }
    }

    #[test]
    fn a_failed_try_follows_the_reason_or_is_the_reason() {
        let failure = Some(FailedTry { tries: 2, error: "out of targets".into() });
        let wait = |reason| Wait { reason, failure: failure.clone() }.to_string();
        assert_eq!(wait(WaitReason::Retry), "try 2 failed: out of targets");
        assert_eq!(
            wait(WaitReason::VolumeCreating),
            "waits for the volume to be created (try 2 failed: out of targets)"
        );
    }

    #[test]
    fn codes_are_distinct_and_listed() {
        let codes: BTreeSet<&str> = sentences().iter().map(|(reason, _)| reason.code()).collect();
        assert_eq!(codes, BTreeSet::from(WaitReason::CODES));
        assert_eq!(codes.len(), WaitReason::CODES.len());
        assert!(codes.iter().all(|code| code.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
    }
}
