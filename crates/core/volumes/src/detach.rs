//! The servers' step after a plugin refused to detach a volume.
//!
//! A plugin must return OK if the volume is not attached (CSI specification, "ControllerUnpublishVolume"). Published
//! plugins return an error instead. Such a refusal proves neither that the volume is attached nor that it is not. For
//! example, the leader calls ControllerUnpublish for node N1 and loses its leadership before the response arrives.
//! The volume is detached. The next leader repeats the call, and the plugin returns INTERNAL from then on.
//!
//! Two responses settle the detach. A plugin that lists the nodes of its volumes names the attachment. Any other
//! plugin attaches the volume to the same node again, which is idempotent, and then has a record of the attachment to
//! undo. Nothing else can be attached meanwhile, because the claim still holds the volume.

use caravan_types::plugin::Plugin;

/// The response of a plugin that lists attachments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The volume is attached to the node.
    Attached,
    /// The volume is not attached to the node.
    Absent,
    /// The list was not returned, or does not contain the volume.
    Unknown,
}

/// The inputs of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number of failed attempts before this refusal.
    pub tries: u32,
    /// Whether the plugin lists the nodes to which its volumes are attached.
    pub lists_nodes: bool,
    /// The plugin's list, once it was requested.
    pub listed: Option<Listed>,
    /// Whether the record of the volume exists, which an attach call needs.
    pub has_volume: bool,
}

/// The step after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRefusal {
    /// Record the failure, and retry the detach after the backoff.
    Retry,
    /// Request the plugin's list.
    List,
    /// Nothing is attached: the claim ends.
    Detached,
    /// Attach the volume to the same node again, then detach it.
    AttachAgain,
}

/// Returns the step after the plugin refused to detach.
///
/// The first refusal is only retried, because most errors are temporary.
pub fn after_refusal(refusal: Refusal) -> AfterRefusal {
    match refusal.listed {
        _ if refusal.tries == 0 => AfterRefusal::Retry,
        None if refusal.lists_nodes => AfterRefusal::List,
        Some(Listed::Absent) => AfterRefusal::Detached,
        Some(Listed::Attached) => AfterRefusal::Retry,
        None | Some(Listed::Unknown) if refusal.has_volume => AfterRefusal::AttachAgain,
        None | Some(Listed::Unknown) => AfterRefusal::Retry,
    }
}

/// Returns whether a healthy controller of the plugin lists the nodes to which its volumes are attached.
pub fn lists_nodes(plugin: Option<&Plugin>) -> bool {
    let controllers = plugin.into_iter().flat_map(|plugin| plugin.controllers.values());
    controllers
        .filter(|controller| controller.healthy)
        .filter_map(|controller| controller.controller_info)
        .any(|info| info.supports_list_volumes && info.supports_list_volumes_attached_nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Refusal = Refusal { tries: 0, lists_nodes: false, listed: None, has_volume: true };

    #[test]
    fn a_first_refusal_is_retried() {
        assert_eq!(after_refusal(FIRST), AfterRefusal::Retry);
        assert_eq!(after_refusal(Refusal { lists_nodes: true, ..FIRST }), AfterRefusal::Retry);
    }

    #[test]
    fn a_plugin_that_lists_is_asked_and_only_an_absent_attachment_ends_the_claim() {
        let second = Refusal { tries: 1, lists_nodes: true, ..FIRST };
        assert_eq!(after_refusal(second), AfterRefusal::List);
        let after = |listed| after_refusal(Refusal { listed: Some(listed), ..second });
        assert_eq!(after(Listed::Absent), AfterRefusal::Detached);
        assert_eq!(after(Listed::Attached), AfterRefusal::Retry);
        assert_eq!(after(Listed::Unknown), AfterRefusal::AttachAgain);
    }

    #[test]
    fn a_plugin_that_does_not_list_attaches_again() {
        let second = Refusal { tries: 1, ..FIRST };
        assert_eq!(after_refusal(second), AfterRefusal::AttachAgain);
        assert_eq!(after_refusal(Refusal { has_volume: false, ..second }), AfterRefusal::Retry);
    }
}
