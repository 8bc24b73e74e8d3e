//! The calls of the Node service.

use super::Sensitive;
use crate::{
    Call, CapabilitySet, CsiClient, CsiError, NodeCapability, NodeExpandRequest, NodeInfo,
    NodePublishRequest, NodeStageRequest, NodeStatsRequest, NodeUnpublishRequest, NodeUnstageRequest,
    VolumeStats, convert,
};
use caravan_proto::csi;

impl CsiClient {
    /// Returns the capabilities of the node service ("NodeGetCapabilities").
    pub async fn node_get_capabilities(&self) -> Result<CapabilitySet<NodeCapability>, CsiError> {
        let mut client = self.node();
        let answer = self
            .call(
                Call::NodeGetCapabilities,
                &Sensitive::none(),
                csi::NodeGetCapabilitiesRequest {},
                |request| client.node_get_capabilities(request),
            )
            .await?;
        let mut set = CapabilitySet::default();
        for capability in answer.capabilities {
            if let Some(csi::node_service_capability::Type::Rpc(rpc)) = capability.r#type {
                set.insert(rpc.r#type, NodeCapability::from_number(rpc.r#type));
            }
        }
        Ok(set)
    }

    /// Returns the plugin's information about its node ("NodeGetInfo"). An empty node id is an error.
    pub async fn node_get_info(&self) -> Result<NodeInfo, CsiError> {
        let call = Call::NodeGetInfo;
        let mut client = self.node();
        let answer = self
            .call(call, &Sensitive::none(), csi::NodeGetInfoRequest {}, |request| {
                client.node_get_info(request)
            })
            .await?;
        if answer.node_id.is_empty() {
            return Err(CsiError::Malformed { call, field: "node_id" });
        }
        Ok(NodeInfo {
            node_id: answer.node_id,
            max_volumes: u64::try_from(answer.max_volumes_per_node).ok().filter(|limit| *limit > 0),
            accessible_topology: answer.accessible_topology.map(|topology| topology.segments),
        })
    }

    /// Stages a volume on the node ("NodeStageVolume"). Idempotent.
    pub async fn node_stage(&self, request: NodeStageRequest) -> Result<(), CsiError> {
        let call = Call::NodeStageVolume;
        let sensitive =
            Sensitive::secrets(&request.secrets).and_flags([&request.capability.mount.mount_flags]);
        let message = csi::NodeStageVolumeRequest {
            volume_id: request.volume_id,
            publish_context: request.publish_context,
            staging_target_path: convert::path(call, &request.staging_target_path)?,
            volume_capability: Some(convert::capability(request.capability)),
            secrets: request.secrets.0,
            volume_context: request.context,
        };
        let mut client = self.node();
        self.call(call, &sensitive, message, |request| client.node_stage_volume(request)).await?;
        Ok(())
    }

    /// Unstages a volume from its staging directory ("NodeUnstageVolume"). Idempotent.
    pub async fn node_unstage(&self, request: NodeUnstageRequest) -> Result<(), CsiError> {
        let call = Call::NodeUnstageVolume;
        let message = csi::NodeUnstageVolumeRequest {
            volume_id: request.volume_id,
            staging_target_path: convert::path(call, &request.staging_target_path)?,
        };
        let mut client = self.node();
        self.call(call, &Sensitive::none(), message, |request| client.node_unstage_volume(request)).await?;
        Ok(())
    }

    /// Publishes a volume at a path ("NodePublishVolume"). Idempotent.
    pub async fn node_publish(&self, request: NodePublishRequest) -> Result<(), CsiError> {
        let call = Call::NodePublishVolume;
        let sensitive =
            Sensitive::secrets(&request.secrets).and_flags([&request.capability.mount.mount_flags]);
        let message = csi::NodePublishVolumeRequest {
            volume_id: request.volume_id,
            publish_context: request.publish_context,
            staging_target_path: convert::optional_path(call, request.staging_target_path.as_deref())?,
            target_path: convert::path(call, &request.target_path)?,
            volume_capability: Some(convert::capability(request.capability)),
            readonly: request.readonly,
            secrets: request.secrets.0,
            volume_context: request.context,
        };
        let mut client = self.node();
        self.call(call, &sensitive, message, |request| client.node_publish_volume(request)).await?;
        Ok(())
    }

    /// Unpublishes a volume from a path ("NodeUnpublishVolume"). Idempotent.
    pub async fn node_unpublish(&self, request: NodeUnpublishRequest) -> Result<(), CsiError> {
        let call = Call::NodeUnpublishVolume;
        let message = csi::NodeUnpublishVolumeRequest {
            volume_id: request.volume_id,
            target_path: convert::path(call, &request.target_path)?,
        };
        let mut client = self.node();
        self.call(call, &Sensitive::none(), message, |request| client.node_unpublish_volume(request)).await?;
        Ok(())
    }

    /// Expands a file system ("NodeExpandVolume"). Returns its size in bytes, or 0 if the plugin does not report it.
    pub async fn node_expand(&self, request: NodeExpandRequest) -> Result<u64, CsiError> {
        let call = Call::NodeExpandVolume;
        let sensitive = Sensitive::secrets(&request.secrets)
            .and_flags(request.capability.iter().map(|capability| &capability.mount.mount_flags));
        let message = csi::NodeExpandVolumeRequest {
            volume_id: request.volume_id,
            volume_path: convert::path(call, &request.volume_path)?,
            capacity_range: request
                .capacity_range
                .map(|range| convert::capacity_range(call, range))
                .transpose()?,
            staging_target_path: convert::optional_path(call, request.staging_target_path.as_deref())?,
            volume_capability: request.capability.map(convert::capability),
            secrets: request.secrets.0,
        };
        let mut client = self.node();
        let answer =
            self.call(call, &sensitive, message, |request| client.node_expand_volume(request)).await?;
        Ok(convert::unsigned(answer.capacity_bytes))
    }

    /// Returns the usage of a volume ("NodeGetVolumeStats").
    pub async fn node_get_volume_stats(&self, request: NodeStatsRequest) -> Result<VolumeStats, CsiError> {
        use csi::volume_usage::Unit;
        let call = Call::NodeGetVolumeStats;
        let message = csi::NodeGetVolumeStatsRequest {
            volume_id: request.volume_id,
            volume_path: convert::path(call, &request.volume_path)?,
            staging_target_path: convert::optional_path(call, request.staging_target_path.as_deref())?,
        };
        let mut client = self.node();
        let answer = self
            .call(call, &Sensitive::none(), message, |request| client.node_get_volume_stats(request))
            .await?;
        let find =
            |unit: Unit| answer.usage.iter().find(|usage| usage.unit == i32::from(unit)).map(convert::usage);
        Ok(VolumeStats {
            bytes: find(Unit::Bytes),
            inodes: find(Unit::Inodes),
            condition: answer.volume_condition.clone().map(convert::condition),
        })
    }
}
