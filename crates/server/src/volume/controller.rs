//! Calls to a plugin's controller, on any node that runs a healthy one.

use crate::secrets::Unresolved;
use crate::volume::calls::{Calls, Lane};
use caravan_rpc::{Code, Method, ReverseRegistry, RpcError, methods};
use caravan_state::Root;
use caravan_types::node::NodeStatus;
use caravan_types::wire::{ControllerAnswer, ControllerCall, ControllerOperation};
use caravan_types::{AllocId, NodeId, PluginId, VolumeKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Timeout of one controller call, the plugin's own deadline included.
const DEADLINE: Duration = Duration::from_secs(150);

/// Why a controller call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CallError {
    /// The call may have been executed.
    pub(crate) outcome_unknown: bool,
    /// The plugin refused permanently: the same call will not succeed later by itself.
    pub(crate) refused: bool,
    /// The plugin does not know the volume.
    pub(crate) missing: bool,
    /// The plugin refused because of the volume's current use.
    pub(crate) conflict: bool,
    /// The call was certainly not executed: it was not made, or its refusal proves that (CSI specification, errors of
    /// ControllerPublishVolume). `conflict` proves nothing: the volume may be attached in another way.
    pub(crate) not_done: bool,
    /// The plugin's error, or the reason why it was not reached.
    pub(crate) message: String,
}

impl CallError {
    fn not_reached(message: String) -> Self {
        Self {
            outcome_unknown: false,
            refused: false,
            missing: false,
            conflict: false,
            not_done: true,
            message,
        }
    }

    /// Returns the error of a call that was not made because its secrets are missing.
    pub(crate) fn waits(wait: &Unresolved) -> Self {
        Self::not_reached(wait.to_string())
    }

    /// Returns the error for a response that belongs to another call: the outcome is unknown.
    pub(crate) fn nonsense(name: &str) -> Self {
        let message = format!("{name}: the controller answered something else than was asked");
        Self {
            outcome_unknown: true,
            refused: false,
            missing: false,
            conflict: false,
            not_done: false,
            message,
        }
    }
}

/// Makes controller calls; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    pub(crate) nodes: ReverseRegistry,
    /// Cancelled when the server must stop: calls end, with unknown outcome.
    pub(crate) cut: CancellationToken,
    /// The calls in progress, and their limits.
    pub(crate) calls: Calls,
    /// The volume and allocation of the calls, for `volume explain`.
    about: Option<(VolumeKey, AllocId)>,
    /// The node of a call whose outcome is unknown, by plugin and subject. The next call goes to the same node, because
    /// that client delays it until the previous one has ended.
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
    pub(crate) fn new(nodes: ReverseRegistry, calls_per_plugin: usize) -> Self {
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

    /// Whether some healthy controller of the plugin can be called now.
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
            result = channel.call::<M>(request, Some(deadline)) => result,
        }
    }

    fn unclear(&self) -> MutexGuard<'_, HashMap<(PluginId, String), NodeId>> {
        self.unclear.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_end(
        &self,
        subject: Option<&(PluginId, String)>,
        node: &NodeId,
        result: &Result<ControllerAnswer, RpcError>,
    ) {
        let Some(subject) = subject else { return };
        match result {
            // The call was not made, so the outcome of an earlier one is still unknown.
            Err(error) if error.code == Code::NoPath => {}
            Err(error) if classify("", error).outcome_unknown => {
                self.unclear().insert(subject.clone(), node.clone());
            }
            _ => {
                self.unclear().remove(subject);
            }
        }
    }

    /// Makes one call; tries the next controller only if the previous one was not reached.
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
            let message = format!("failed to find instances of controller plugin \"{plugin}\"");
            return Err(CallError::not_reached(message));
        }
        let _permit = match Lane::of(&operation) {
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
                    tracing::debug!(%plugin, %node, call = name, %error, "controller not reached, trying the next");
                    last = Some(error);
                }
                Err(error) => return Err(classify(name, &error)),
            }
        }
        let message = last.map_or_else(String::new, |e| e.message);
        let message = format!("failed to find clients running controller plugin \"{plugin}\": {message}");
        Err(CallError::not_reached(message))
    }
}

pub(crate) fn classify(name: &str, error: &RpcError) -> CallError {
    let outcome_unknown = matches!(error.code, Code::Deadline | Code::Unavailable | Code::Cancelled);
    let refused = matches!(error.code, Code::Invalid | Code::NotFound | Code::Permission | Code::Conflict);
    let missing = error.code == Code::NotFound;
    let conflict = error.code == Code::Conflict;
    let not_done = matches!(
        error.code,
        Code::Invalid | Code::NotFound | Code::Permission | Code::Retryable | Code::NoPath
    );
    let message = format!("{name}: {}", error.message);
    CallError { outcome_unknown, refused, missing, conflict, not_done, message }
}
