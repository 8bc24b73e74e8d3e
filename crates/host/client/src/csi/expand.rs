//! The expansion of mounted volumes (NodeExpandVolume).

use super::ledger::MountPhase;
use super::volumes::VolumeManager;
use super::{CsiFault, capability};
use caravan_csi::{CapacityRange, NodeExpandRequest};
use caravan_messages::{NodeExpand, NodeExpanded};
use caravan_types::plugin::PluginRole;
use std::time::Duration;

/// The longest wait of an expansion for an absent plugin; the servers retry.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(10);

impl VolumeManager {
    /// Expands a volume that is mounted on this node.
    pub(crate) async fn expand(&self, request: NodeExpand) -> Result<NodeExpanded, CsiFault> {
        let claim = &request.claim;
        let _turn = self.turn(&claim.volume).await;
        let entry = self
            .entry(claim)
            .filter(|e| e.phase == MountPhase::Mounted && e.generation == request.generation)
            .ok_or_else(|| CsiFault::Unknown(claim.volume.id.to_string()))?;
        let lent = self.inner.plugins.plugin(PluginRole::Node, &entry.plugin, PLUGIN_TIMEOUT).await?;
        if !lent.info.node_info.as_ref().is_some_and(|node| node.supports_expand) {
            return Err(CsiFault::Unsupported(format!(
                "plugin \"{}\" does not grow volumes on the node (it does not name EXPAND_VOLUME)",
                entry.plugin
            )));
        }
        let bytes = |n: i64| u64::try_from(n).unwrap_or(0);
        let inside = entry.in_plugin()?;
        let grown = lent
            .instance
            .client
            .node_expand(NodeExpandRequest {
                volume_id: entry.external_id.clone(),
                volume_path: inside.publish,
                capacity_range: Some(CapacityRange {
                    required_bytes: bytes(request.capacity_min),
                    limit_bytes: bytes(request.capacity_max),
                }),
                staging_target_path: entry.stages.then_some(inside.staging),
                capability: Some(capability(
                    entry.usage,
                    request.mount_options.as_ref(),
                    &entry.mount_group,
                )?),
                secrets: request.secrets.expose().clone().into(),
            })
            .await;
        let grown = grown.map_err(CsiFault::from);
        self.note("Expand volume", claim, grown.as_ref().err());
        let reported = grown?;
        let capacity_bytes = i64::try_from(reported).ok().filter(|reported| *reported > 0);
        Ok(NodeExpanded { capacity_bytes: capacity_bytes.unwrap_or(request.capacity_min) })
    }
}
