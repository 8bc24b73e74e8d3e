//! The calls of the Controller service.

use super::Sensitive;
use crate::{
    Call, CapabilitySet, Capacity, ControllerCapability, ControllerExpandRequest, ControllerExpanded,
    ControllerModifyRequest, ControllerPublishRequest, ControllerUnpublishRequest, CreateSnapshotRequest,
    CreateVolumeRequest, CreatedVolume, CsiClient, CsiError, DeleteSnapshotRequest, DeleteVolumeRequest,
    GetCapacityRequest, GetSnapshotRequest, ListSnapshotsRequest, ListedVolume, Page, Snapshot, StringMap,
    ValidateRequest, Validation, convert,
};
use caravan_proto::csi;

impl CsiClient {
    /// Returns the capabilities of the controller service ("ControllerGetCapabilities").
    pub async fn controller_get_capabilities(&self) -> Result<CapabilitySet<ControllerCapability>, CsiError> {
        let mut client = self.controller();
        let answer = self
            .call(
                Call::ControllerGetCapabilities,
                &Sensitive::none(),
                csi::ControllerGetCapabilitiesRequest {},
                |request| client.controller_get_capabilities(request),
            )
            .await?;
        let mut set = CapabilitySet::default();
        for capability in answer.capabilities {
            if let Some(csi::controller_service_capability::Type::Rpc(rpc)) = capability.r#type {
                set.insert(rpc.r#type, ControllerCapability::from_number(rpc.r#type));
            }
        }
        Ok(set)
    }

    /// Creates a volume ("CreateVolume"). A repeated call with the same name returns the same volume.
    pub async fn create_volume(&self, request: CreateVolumeRequest) -> Result<CreatedVolume, CsiError> {
        let call = Call::CreateVolume;
        let sensitive = Sensitive::secrets(&request.secrets)
            .and_flags(request.capabilities.iter().map(|capability| &capability.mount.mount_flags));
        let message = csi::CreateVolumeRequest {
            name: request.name,
            capacity_range: request
                .capacity_range
                .map(|range| convert::capacity_range(call, range))
                .transpose()?,
            volume_capabilities: convert::capabilities(request.capabilities),
            parameters: request.parameters,
            secrets: request.secrets.0,
            volume_content_source: request.content_source.map(convert::content_source),
            accessibility_requirements: request.topology.map(convert::topology_requirement),
            mutable_parameters: StringMap::new(),
        };
        let mut client = self.controller();
        let answer = self.call(call, &sensitive, message, |request| client.create_volume(request)).await?;
        convert::volume(call, answer.volume)
    }

    /// Deletes a volume ("DeleteVolume"). Idempotent.
    pub async fn delete_volume(&self, request: DeleteVolumeRequest) -> Result<(), CsiError> {
        let sensitive = Sensitive::secrets(&request.secrets);
        let message = csi::DeleteVolumeRequest { volume_id: request.volume_id, secrets: request.secrets.0 };
        let mut client = self.controller();
        self.call(Call::DeleteVolume, &sensitive, message, |request| client.delete_volume(request)).await?;
        Ok(())
    }

    /// Attaches a volume to a node ("ControllerPublishVolume") and returns the publish context. Idempotent.
    pub async fn controller_publish(&self, request: ControllerPublishRequest) -> Result<StringMap, CsiError> {
        let sensitive =
            Sensitive::secrets(&request.secrets).and_flags([&request.capability.mount.mount_flags]);
        let message = csi::ControllerPublishVolumeRequest {
            volume_id: request.volume_id,
            node_id: request.node_id,
            volume_capability: Some(convert::capability(request.capability)),
            readonly: request.readonly,
            secrets: request.secrets.0,
            volume_context: request.context,
        };
        let mut client = self.controller();
        let answer = self
            .call(Call::ControllerPublishVolume, &sensitive, message, |request| {
                client.controller_publish_volume(request)
            })
            .await?;
        Ok(answer.publish_context)
    }

    /// Detaches a volume from a node ("ControllerUnpublishVolume"). Idempotent.
    pub async fn controller_unpublish(&self, request: ControllerUnpublishRequest) -> Result<(), CsiError> {
        let sensitive = Sensitive::secrets(&request.secrets);
        let message = csi::ControllerUnpublishVolumeRequest {
            volume_id: request.volume_id,
            node_id: request.node_id,
            secrets: request.secrets.0,
        };
        let mut client = self.controller();
        self.call(Call::ControllerUnpublishVolume, &sensitive, message, |request| {
            client.controller_unpublish_volume(request)
        })
        .await?;
        Ok(())
    }

    /// Checks whether a volume can be used in these ways ("ValidateVolumeCapabilities").
    pub async fn validate_capabilities(&self, request: ValidateRequest) -> Result<Validation, CsiError> {
        let sensitive = Sensitive::secrets(&request.secrets)
            .and_flags(request.capabilities.iter().map(|capability| &capability.mount.mount_flags));
        let message = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: request.volume_id,
            volume_context: request.context,
            volume_capabilities: convert::capabilities(request.capabilities),
            parameters: request.parameters,
            secrets: request.secrets.0,
            mutable_parameters: StringMap::new(),
        };
        let mut client = self.controller();
        let answer = self
            .call(Call::ValidateVolumeCapabilities, &sensitive, message, |request| {
                client.validate_volume_capabilities(request)
            })
            .await?;
        Ok(match answer.confirmed {
            Some(_) => Validation::Confirmed,
            None => Validation::Refused(sensitive.scrub(&answer.message)),
        })
    }

    /// Returns a page of the plugin's volumes ("ListVolumes"). With `max_entries` 0 the plugin chooses the page size;
    /// an empty `starting_token` starts at the beginning.
    pub async fn list_volumes(
        &self,
        max_entries: u32,
        starting_token: &str,
    ) -> Result<Page<ListedVolume>, CsiError> {
        let call = Call::ListVolumes;
        let message = csi::ListVolumesRequest {
            max_entries: entries(max_entries),
            starting_token: starting_token.to_owned(),
        };
        let mut client = self.controller();
        let answer =
            self.call(call, &Sensitive::none(), message, |request| client.list_volumes(request)).await?;
        let entries =
            answer.entries.into_iter().map(|entry| convert::listed(call, entry)).collect::<Result<_, _>>()?;
        Ok(Page { entries, next_token: token(answer.next_token) })
    }

    /// Returns one volume by the plugin's id ("ControllerGetVolume"). Requires the capability GET_VOLUME.
    pub async fn controller_get_volume(&self, volume_id: &str) -> Result<ListedVolume, CsiError> {
        let call = Call::ControllerGetVolume;
        let message = csi::ControllerGetVolumeRequest { volume_id: volume_id.to_owned() };
        let mut client = self.controller();
        let answer = self
            .call(call, &Sensitive::none(), message, |request| client.controller_get_volume(request))
            .await?;
        let status = answer.status.unwrap_or_default();
        Ok(ListedVolume {
            volume: convert::volume(call, answer.volume)?,
            published_node_ids: status.published_node_ids,
            condition: status.volume_condition.map(convert::condition),
        })
    }

    /// Changes mutable parameters of a volume ("ControllerModifyVolume"). Idempotent.
    pub async fn controller_modify(&self, request: ControllerModifyRequest) -> Result<(), CsiError> {
        let sensitive = Sensitive::secrets(&request.secrets);
        let message = csi::ControllerModifyVolumeRequest {
            volume_id: request.volume_id,
            secrets: request.secrets.0,
            mutable_parameters: request.mutable_parameters,
        };
        let mut client = self.controller();
        self.call(Call::ControllerModifyVolume, &sensitive, message, |request| {
            client.controller_modify_volume(request)
        })
        .await?;
        Ok(())
    }

    /// Returns the capacity for new volumes ("GetCapacity").
    pub async fn get_capacity(&self, request: GetCapacityRequest) -> Result<Capacity, CsiError> {
        let sensitive = Sensitive::none()
            .and_flags(request.capabilities.iter().map(|capability| &capability.mount.mount_flags));
        let message = csi::GetCapacityRequest {
            volume_capabilities: convert::capabilities(request.capabilities),
            parameters: request.parameters,
            accessible_topology: request.topology.map(convert::topology),
        };
        let mut client = self.controller();
        let answer =
            self.call(Call::GetCapacity, &sensitive, message, |request| client.get_capacity(request)).await?;
        Ok(Capacity {
            available: convert::unsigned(answer.available_capacity),
            largest_volume: answer.maximum_volume_size.map(convert::unsigned),
            smallest_volume: answer.minimum_volume_size.map(convert::unsigned),
        })
    }

    /// Creates a snapshot ("CreateSnapshot"). A repeated call with the same name returns the same snapshot; repeat
    /// the call until the snapshot is ready to use.
    pub async fn create_snapshot(&self, request: CreateSnapshotRequest) -> Result<Snapshot, CsiError> {
        let call = Call::CreateSnapshot;
        let sensitive = Sensitive::secrets(&request.secrets);
        let message = csi::CreateSnapshotRequest {
            source_volume_id: request.source_volume_id,
            name: request.name,
            secrets: request.secrets.0,
            parameters: request.parameters,
        };
        let mut client = self.controller();
        let answer = self.call(call, &sensitive, message, |request| client.create_snapshot(request)).await?;
        convert::snapshot(call, answer.snapshot)
    }

    /// Deletes a snapshot ("DeleteSnapshot"). Idempotent.
    pub async fn delete_snapshot(&self, request: DeleteSnapshotRequest) -> Result<(), CsiError> {
        let sensitive = Sensitive::secrets(&request.secrets);
        let message =
            csi::DeleteSnapshotRequest { snapshot_id: request.snapshot_id, secrets: request.secrets.0 };
        let mut client = self.controller();
        self.call(Call::DeleteSnapshot, &sensitive, message, |request| client.delete_snapshot(request))
            .await?;
        Ok(())
    }

    /// Returns a page of the plugin's snapshots ("ListSnapshots").
    pub async fn list_snapshots(&self, request: ListSnapshotsRequest) -> Result<Page<Snapshot>, CsiError> {
        let call = Call::ListSnapshots;
        let sensitive = Sensitive::secrets(&request.secrets);
        let message = csi::ListSnapshotsRequest {
            max_entries: entries(request.max_entries),
            starting_token: request.starting_token,
            source_volume_id: request.source_volume_id,
            snapshot_id: request.snapshot_id,
            secrets: request.secrets.0,
        };
        let mut client = self.controller();
        let answer = self.call(call, &sensitive, message, |request| client.list_snapshots(request)).await?;
        let entries = answer
            .entries
            .into_iter()
            .map(|entry| convert::snapshot(call, entry.snapshot))
            .collect::<Result<_, _>>()?;
        Ok(Page { entries, next_token: token(answer.next_token) })
    }

    /// Returns one snapshot ("GetSnapshot"). Requires the capability GET_SNAPSHOT.
    pub async fn get_snapshot(&self, request: GetSnapshotRequest) -> Result<Snapshot, CsiError> {
        let call = Call::GetSnapshot;
        let sensitive = Sensitive::secrets(&request.secrets);
        let message =
            csi::GetSnapshotRequest { snapshot_id: request.snapshot_id, secrets: request.secrets.0 };
        let mut client = self.controller();
        let answer = self.call(call, &sensitive, message, |request| client.get_snapshot(request)).await?;
        convert::snapshot(call, answer.snapshot)
    }

    /// Expands a volume ("ControllerExpandVolume").
    pub async fn controller_expand(
        &self,
        request: ControllerExpandRequest,
    ) -> Result<ControllerExpanded, CsiError> {
        let call = Call::ControllerExpandVolume;
        let sensitive = Sensitive::secrets(&request.secrets)
            .and_flags(request.capability.iter().map(|capability| &capability.mount.mount_flags));
        let message = csi::ControllerExpandVolumeRequest {
            volume_id: request.volume_id,
            capacity_range: Some(convert::capacity_range(call, request.capacity_range)?),
            secrets: request.secrets.0,
            volume_capability: request.capability.map(convert::capability),
        };
        let mut client = self.controller();
        let answer =
            self.call(call, &sensitive, message, |request| client.controller_expand_volume(request)).await?;
        Ok(ControllerExpanded {
            capacity_bytes: convert::unsigned(answer.capacity_bytes),
            node_expansion_required: answer.node_expansion_required,
        })
    }
}

/// Converts a number of entries to the signed type of the interface. Numbers above its maximum become 0, "no limit".
fn entries(max: u32) -> i32 {
    i32::try_from(max).unwrap_or(0)
}

fn token(token: String) -> Option<String> {
    (!token.is_empty()).then_some(token)
}
