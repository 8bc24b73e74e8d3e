//! Calls to a plugin's controller, on any node that runs a healthy controller.

use crate::cluster::NodePaths;
use crate::runtime;
use crate::volume::calls::{Calls, Lane};
use caravan_messages::{ControllerAnswer, ControllerCall, ControllerOperation};
use caravan_rpc::{Code, Method, RpcError, methods};
use caravan_state::Root;
use caravan_types::node::NodeStatus;
use caravan_types::{AllocId, NodeId, PluginId, VolumeKey};
use caravan_volumes::wait::MissingSecret;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Timeout of one controller call, the plugin's own deadline included.
const DEADLINE: Duration = Duration::from_secs(150);

/// A controller call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call was not made: a secret is missing.
    #[error(transparent)]
    Secret(#[from] MissingSecret),
    /// The answer belongs to another call, so the effect of this call is unknown.
    #[error("{call}: the controller answered something else than was asked")]
    OtherAnswer { call: &'static str },
    /// No node runs a healthy controller of the plugin.
    #[error("failed to find instances of controller plugin \"{plugin}\"")]
    NoController { plugin: PluginId },
    /// No controller of the plugin was reached.
    #[error("failed to find clients running controller plugin \"{plugin}\": {error}")]
    NotReached {
        plugin: PluginId,
        /// The failure of the controller that was tried last.
        #[source]
        error: RpcError,
    },
    /// The plugin refused to detach, and lists the attachment.
    #[error("{refused}; the plugin lists the volume as attached to node \"{node}\"")]
    StillAttached {
        refused: Box<CallError>,
        /// The plugin's id of the node.
        node: String,
    },
    /// The plugin refused to detach, and the repair failed too.
    #[error("{refused}; attaching the volume to the node again, to let the plugin detach it: {again}")]
    NotRepaired {
        refused: Box<CallError>,
        /// The failure of the repair.
        #[source]
        again: Box<CallError>,
    },
    /// The call reached a controller and failed.
    #[error("{call}: {error}")]
    Failed {
        call: &'static str,
        #[source]
        error: RpcError,
    },
}

/// The kind of a call's failure, which decides whether the call may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// The call was certainly not executed; the same call may succeed later.
    NotMade,
    /// The plugin refused permanently: the same call does not succeed later by itself.
    Refused(Refused),
    /// The plugin reported a failure that proves nothing about the call's effect.
    Failed,
    /// No answer to this call arrived: the call may have been executed.
    Unknown,
}

/// The reason that a plugin refused a call (CSI specification, errors of ControllerPublishVolume).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The plugin has no such volume or node.
    Missing,
    /// The volume is in use, or exists with other properties. An earlier call may have had an effect: the volume may
    /// be attached with other properties.
    Conflict,
    /// The arguments or the caller's rights are wrong.
    Invalid,
}

impl CallFailure {
    /// Returns the kind of failure that the code of a failed call proves.
    fn of_code(code: Code) -> Self {
        match code {
            Code::NoPath | Code::Retryable => Self::NotMade,
            Code::NotFound => Self::Refused(Refused::Missing),
            Code::Conflict => Self::Refused(Refused::Conflict),
            Code::Invalid | Code::Permission => Self::Refused(Refused::Invalid),
            Code::Unavailable | Code::Cancelled | Code::Deadline => Self::Unknown,
            // `Internal`, and codes that a later version may add.
            _ => Self::Failed,
        }
    }
}

impl CallError {
    /// Returns the kind of the failure.
    pub(crate) fn failure(&self) -> CallFailure {
        match self {
            Self::Secret(_) | Self::NoController { .. } | Self::NotReached { .. } => CallFailure::NotMade,
            Self::OtherAnswer { .. } => CallFailure::Unknown,
            // A plugin that is still busy fails both calls in this way.
            Self::NotRepaired { refused, again } if refused.is_unknown() && again.is_unknown() => {
                CallFailure::Unknown
            }
            Self::StillAttached { .. } | Self::NotRepaired { .. } => CallFailure::Failed,
            Self::Failed { error, .. } => CallFailure::of_code(error.code),
        }
    }

    /// Whether the plugin refused permanently.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.failure(), CallFailure::Refused(_))
    }

    /// Whether the plugin has no such volume or node.
    pub(crate) fn is_missing(&self) -> bool {
        self.failure() == CallFailure::Refused(Refused::Missing)
    }

    /// Whether the plugin refused because the volume is in use or has other properties.
    pub(crate) fn is_conflict(&self) -> bool {
        self.failure() == CallFailure::Refused(Refused::Conflict)
    }

    /// Whether the outcome is unknown: the call may have been executed.
    pub(crate) fn is_unknown(&self) -> bool {
        self.failure() == CallFailure::Unknown
    }

    /// Whether the plugin probably answered with an error. A client reports most errors of plugins, such as INTERNAL,
    /// with the code of a lost answer.
    pub(crate) fn is_answer(&self) -> bool {
        let Self::Failed { error, .. } = self else { return false };
        match CallFailure::of_code(error.code) {
            CallFailure::NotMade => false,
            CallFailure::Refused(_) | CallFailure::Failed => true,
            CallFailure::Unknown => error.code == Code::Unavailable,
        }
    }

    /// Returns whether the call certainly had no effect.
    pub(crate) fn proves_no_effect(&self) -> bool {
        match self.failure() {
            CallFailure::NotMade | CallFailure::Refused(Refused::Missing | Refused::Invalid) => true,
            CallFailure::Refused(Refused::Conflict) | CallFailure::Failed | CallFailure::Unknown => false,
        }
    }
}

/// A handle for controller calls; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    pub(crate) nodes: NodePaths,
    /// The token that is cancelled when the server must stop: calls then end, with unknown outcome.
    pub(crate) cut: CancellationToken,
    /// The calls in progress, and their limits.
    pub(crate) calls: Calls,
    /// The volume and allocation of the calls, for `volume explain`.
    about: Option<(VolumeKey, AllocId)>,
    /// The node of a call whose outcome is unknown, by plugin and subject. The next call is made to the same node,
    /// because that client delays the call until the previous call has ended.
    unclear: Arc<Mutex<HashMap<(PluginId, String), NodeId>>>,
}

/// Returns the nodes with a healthy controller of the plugin, in a fixed order.
pub(crate) fn candidates(root: &Root, plugin: &PluginId) -> Vec<NodeId> {
    let Some(row) = root.plugin(plugin) else { return Vec::new() };
    row.controllers
        .iter()
        .filter(|(_, info)| info.healthy)
        .filter(|(node, _)| root.node(node).is_some_and(|n| n.status == NodeStatus::Ready))
        .map(|(node, _)| node.clone())
        .collect()
}

impl Controllers {
    pub(crate) fn new(nodes: NodePaths, calls_per_plugin: usize) -> Self {
        Self {
            nodes,
            cut: CancellationToken::new(),
            calls: Calls::new(calls_per_plugin),
            about: None,
            unclear: Arc::default(),
        }
    }

    /// Returns a handle for calls about a volume and perhaps an allocation, which `volume explain` shows.
    pub(crate) fn about(&self, volume: &VolumeKey, alloc: Option<&AllocId>) -> Self {
        Self { about: Some((volume.clone(), alloc.cloned().unwrap_or_default())), ..self.clone() }
    }

    /// Returns whether some healthy controller of the plugin can be called now.
    pub(crate) fn reach(&self, root: &Root, plugin: &PluginId) -> bool {
        candidates(root, plugin).iter().any(|node| self.nodes.get(node.as_str()).is_ok())
    }

    /// Calls a node, for at most `deadline`, and only until the server stops.
    pub(crate) async fn node<M: Method>(
        &self,
        node: &NodeId,
        request: M::Request,
        deadline: Duration,
    ) -> Result<M::Response, RpcError> {
        let channel = self.nodes.get(node.as_str())?;
        tokio::select! {
            biased;
            () = self.cut.cancelled() => Err(RpcError::new(Code::Cancelled, "the server is stopping")),
            result = runtime::call::<M>(&channel, request, deadline) => result,
        }
    }

    /// Waits until one of the nodes can be called, for a short time, and only until the server stops.
    pub(crate) async fn wait_for(&self, nodes: &[NodeId]) {
        tokio::select! {
            biased;
            () = self.cut.cancelled() => {}
            () = self.nodes.wait_for(nodes) => {}
        }
    }

    fn unclear(&self) -> MutexGuard<'_, HashMap<(PluginId, String), NodeId>> {
        self.unclear.lock()
    }

    fn note_end(
        &self,
        subject: Option<&(PluginId, String)>,
        node: &NodeId,
        result: &Result<ControllerAnswer, RpcError>,
    ) {
        let Some(subject) = subject else { return };
        match result {
            // The call was not made, so the outcome of an earlier call is still unknown.
            Err(error) if error.code == Code::NoPath => {}
            Err(error) if CallFailure::of_code(error.code) == CallFailure::Unknown => {
                self.unclear().insert(subject.clone(), node.clone());
            }
            _ => {
                self.unclear().remove(subject);
            }
        }
    }

    /// Makes one call; tries the next controller only if the previous controller was not reached.
    pub(crate) async fn call(
        &self,
        root: &Root,
        plugin: &PluginId,
        operation: ControllerOperation,
    ) -> Result<ControllerAnswer, CallError> {
        let name = operation.name();
        let mut nodes = candidates(root, plugin);
        let subject = operation.subject().map(|subject| (plugin.clone(), subject.to_owned()));
        if let Some(before) = subject.as_ref().and_then(|subject| self.unclear().get(subject).cloned()) {
            nodes.sort_by_key(|node| *node != before);
            // A node that is out of contact, or whose plugin has ended, is no longer a candidate.
            if nodes.first() == Some(&before) {
                nodes.truncate(1);
            }
        }
        if nodes.is_empty() {
            return Err(CallError::NoController { plugin: plugin.clone() });
        }
        // Wait without a permit, so that a call that waits for a connection does not delay calls to other nodes.
        self.wait_for(&nodes).await;
        let _permit = match Lane::from_operation(&operation) {
            Some(lane) => self.calls.permit(plugin, lane).await,
            None => None,
        };
        let under_way = self.calls.begin(plugin, self.about.as_ref(), name);
        let mut last = None;
        for node in nodes {
            under_way.at(&node);
            let call = ControllerCall { plugin_id: plugin.clone(), operation: operation.clone() };
            let result = self.node::<methods::ControllerCall>(&node, call, DEADLINE).await;
            self.note_end(subject.as_ref(), &node, &result);
            match result {
                Ok(answer) => {
                    under_way.done(true);
                    return Ok(answer);
                }
                Err(error) if matches!(error.code, Code::Retryable | Code::NoPath) => {
                    tracing::debug!(%plugin, %node, call = name, %error, "call failed; trying the next node");
                    last = Some(error);
                }
                Err(error) => return Err(CallError::Failed { call: name, error }),
            }
        }
        let plugin = plugin.clone();
        // There was at least one node, and each of them failed.
        Err(match last {
            Some(error) => CallError::NotReached { plugin, error },
            None => CallError::NoController { plugin },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_proves_what_the_protocol_says() {
        let proves = |code| {
            let error =
                CallError::Failed { call: "ControllerPublishVolume", error: RpcError::new(code, "why") };
            assert_eq!(error.to_string(), "ControllerPublishVolume: why");
            (error.is_unknown(), error.is_refused(), error.is_conflict(), error.proves_no_effect())
        };
        for code in [Code::Deadline, Code::Unavailable, Code::Cancelled] {
            assert_eq!(proves(code), (true, false, false, false), "{code:?}");
        }
        for code in [Code::Invalid, Code::Permission, Code::NotFound] {
            assert_eq!(proves(code), (false, true, false, true), "{code:?}");
        }
        for code in [Code::NoPath, Code::Retryable] {
            assert_eq!(proves(code), (false, false, false, true), "{code:?}");
        }
        assert_eq!(proves(Code::Conflict), (false, true, true, false));
        assert_eq!(proves(Code::Internal), (false, false, false, false));
        let failed = |code| CallError::Failed { call: "x", error: RpcError::new(code, "") };
        for (code, answer) in [
            (Code::Unavailable, true),
            (Code::Internal, true),
            (Code::Conflict, true),
            (Code::Deadline, false),
            (Code::Cancelled, false),
            (Code::NoPath, false),
        ] {
            assert_eq!(failed(code).is_answer(), answer, "{code:?}");
        }
        assert!(failed(Code::NotFound).is_missing());
        assert!(!failed(Code::Invalid).is_missing());
        let other = CallError::OtherAnswer { call: "x" };
        assert!(other.is_unknown() && !other.is_refused() && !other.proves_no_effect());
    }
}
