//! Calls to a plugin's controller, through whichever node runs a healthy one.

use caravan_rpc::{Code, ReverseRegistry, RpcError, methods};
use caravan_state::Root;
use caravan_types::node::NodeStatus;
use caravan_types::wire::{ControllerAnswer, ControllerCall, ControllerOperation};
use caravan_types::{NodeId, PluginId};
use std::time::Duration;

/// Longest time for one controller call, the plugin's own deadline included.
const DEADLINE: Duration = Duration::from_secs(150);

/// Why a controller call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CallError {
    /// The call may have been carried out.
    pub(crate) outcome_unknown: bool,
    /// The plugin refused for good: the same call will not succeed later by itself.
    pub(crate) refused: bool,
    /// The plugin's words, or why it was not reached.
    pub(crate) message: String,
}

/// Makes controller calls; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    pub(crate) nodes: ReverseRegistry,
}

/// Nodes with a healthy controller of the plugin, in a fixed order.
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
    /// Makes one call; tries the next controller only when the one before was not reached.
    pub(crate) async fn call(
        &self,
        root: &Root,
        plugin: &PluginId,
        operation: ControllerOperation,
    ) -> Result<ControllerAnswer, CallError> {
        let name = operation.name();
        let nodes = candidates(root, plugin);
        if nodes.is_empty() {
            return Err(CallError {
                outcome_unknown: false,
                refused: false,
                message: format!("failed to find instances of controller plugin \"{plugin}\""),
            });
        }
        let mut last = None;
        for node in nodes {
            let result = match self.nodes.get(node.as_str()) {
                Ok(channel) => {
                    let call = ControllerCall { plugin_id: plugin.clone(), operation: operation.clone() };
                    channel.call::<methods::ControllerCall>(call, Some(DEADLINE)).await
                }
                Err(error) => Err(error),
            };
            match result {
                Ok(answer) => return Ok(answer),
                Err(error) if matches!(error.code, Code::Retryable | Code::NoPath) => {
                    tracing::debug!(%plugin, %node, call = name, %error, "controller not reached, trying the next");
                    last = Some(error);
                }
                Err(error) => return Err(classify(name, &error)),
            }
        }
        let message = last.map_or_else(String::new, |e| e.message);
        Err(CallError {
            outcome_unknown: false,
            refused: false,
            message: format!("failed to find clients running controller plugin \"{plugin}\": {message}"),
        })
    }
}

fn classify(name: &str, error: &RpcError) -> CallError {
    let outcome_unknown = matches!(error.code, Code::Deadline | Code::Unavailable | Code::Cancelled);
    let refused = matches!(error.code, Code::Invalid | Code::NotFound | Code::Permission | Code::Conflict);
    CallError { outcome_unknown, refused, message: format!("{name}: {}", error.message) }
}
