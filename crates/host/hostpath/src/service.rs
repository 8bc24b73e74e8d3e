//! The identity, controller and node services: answer directly, or pass calls to threads that may block.

use crate::{controller::Plugin, error::Error, expand::may_grow_mounted, request::FsKind};
use caravan_proto::csi::{self, controller_server::Controller, identity_server::Identity, node_server::Node};
use tonic::{Request, Response, Status};

/// The state of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    plugin: Plugin,
}

impl Service {
    pub(crate) fn new(plugin: Plugin) -> Self {
        Self { plugin }
    }

    /// Carries out a call on a thread that may block. It continues even if the caller has disconnected: the volume's
    /// lock is held until its end.
    pub(crate) async fn carry_out<Q, A>(
        &self,
        call: &'static str,
        volume: impl Into<String> + Send,
        request: Q,
        work: fn(&Plugin, Q) -> Result<A, Error>,
    ) -> Result<Response<A>, Status>
    where
        Q: Send + 'static,
        A: Send + 'static,
    {
        let plugin = self.plugin.clone();
        let volume = volume.into();
        match tokio::task::spawn_blocking(move || work(&plugin, request)).await {
            Ok(Ok(answer)) => {
                tracing::info!(call, volume, "call completed");
                Ok(Response::new(answer))
            }
            Ok(Err(error)) => {
                tracing::warn!(call, volume, code = ?error.code(), error = error.sentence(), "call failed");
                Err(error.into())
            }
            Err(_panicked) => Err(Status::internal(format!("{call} ended before its time"))),
        }
    }
}

#[tonic::async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _request: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        Ok(Response::new(csi::GetPluginInfoResponse {
            name: self.plugin.options.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        use csi::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
        let options = &self.plugin.options;
        // The capability applies to all volumes. If only some volumes must be unmounted, the expand call for these
        // reports it.
        let expansion = if options.enforce_size && options.fs == FsKind::Ext4 && !may_grow_mounted() {
            volume_expansion::Type::Offline
        } else {
            volume_expansion::Type::Online
        };
        let mut services = vec![service::Type::ControllerService, service::Type::GroupControllerService];
        if self.plugin.options.topology.is_some() {
            services.push(service::Type::VolumeAccessibilityConstraints);
        }
        let capabilities = services
            .into_iter()
            .map(|service| Type::Service(Service { r#type: service.into() }))
            .chain([Type::VolumeExpansion(VolumeExpansion { r#type: expansion.into() })])
            .map(|capability| csi::PluginCapability { r#type: Some(capability) })
            .collect();
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _request: Request<csi::ProbeRequest>,
    ) -> Result<Response<csi::ProbeResponse>, Status> {
        Ok(Response::new(csi::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Controller for Service {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("CreateVolume", request.name.clone(), request, Plugin::create).await
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Result<Response<csi::DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("DeleteVolume", request.volume_id.clone(), request, |plugin, request| {
            plugin.delete(&request)
        })
        .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ControllerPublishVolume", request.volume_id.clone(), request, Plugin::attach).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ControllerUnpublishVolume", request.volume_id.clone(), request, |plugin, request| {
            plugin.detach(&request)
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<csi::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ValidateVolumeCapabilities", request.volume_id.clone(), request, Plugin::validate)
            .await
    }

    async fn list_volumes(
        &self,
        request: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        self.carry_out("ListVolumes", "", request.into_inner(), |plugin, request| plugin.list(&request)).await
    }

    async fn get_capacity(
        &self,
        request: Request<csi::GetCapacityRequest>,
    ) -> Result<Response<csi::GetCapacityResponse>, Status> {
        self.carry_out("GetCapacity", "", request.into_inner(), Plugin::capacity).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<csi::ControllerGetVolumeRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ControllerGetVolume", request.volume_id.clone(), request, |plugin, request| {
            plugin.get(&request)
        })
        .await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Result<Response<csi::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ControllerExpandVolume", request.volume_id.clone(), request, Plugin::expand).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Result<Response<csi::ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ControllerModifyVolume", request.volume_id.clone(), request, |plugin, request| {
            plugin.modify(&request)
        })
        .await
    }

    async fn create_snapshot(
        &self,
        request: Request<csi::CreateSnapshotRequest>,
    ) -> Result<Response<csi::CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("CreateSnapshot", request.source_volume_id.clone(), request, |plugin, request| {
            plugin.create_snapshot(&request)
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        request: Request<csi::DeleteSnapshotRequest>,
    ) -> Result<Response<csi::DeleteSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("DeleteSnapshot", request.snapshot_id.clone(), request, |plugin, request| {
            plugin.delete_snapshot(&request)
        })
        .await
    }

    async fn get_snapshot(
        &self,
        request: Request<csi::GetSnapshotRequest>,
    ) -> Result<Response<csi::GetSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("GetSnapshot", request.snapshot_id.clone(), request, |plugin, request| {
            plugin.get_snapshot(&request)
        })
        .await
    }

    async fn list_snapshots(
        &self,
        request: Request<csi::ListSnapshotsRequest>,
    ) -> Result<Response<csi::ListSnapshotsResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("ListSnapshots", request.source_volume_id.clone(), request, |plugin, request| {
            plugin.list_snapshots(&request)
        })
        .await
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        use csi::controller_service_capability::{Rpc, Type, rpc};
        let mut rpcs = vec![
            rpc::Type::CreateDeleteVolume,
            rpc::Type::ListVolumes,
            rpc::Type::GetCapacity,
            rpc::Type::GetVolume,
            rpc::Type::VolumeCondition,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::ListSnapshots,
            rpc::Type::CloneVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::ModifyVolume,
        ];
        if self.plugin.options.controller_publish {
            rpcs.extend([
                rpc::Type::PublishUnpublishVolume,
                rpc::Type::PublishReadonly,
                rpc::Type::ListVolumesPublishedNodes,
            ]);
        }
        let capabilities = rpcs
            .into_iter()
            .map(|rpc| csi::ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })),
            })
            .collect();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }
}

#[tonic::async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("NodeStageVolume", request.volume_id.clone(), request, Plugin::stage).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("NodeUnstageVolume", request.volume_id.clone(), request, |plugin, request| {
            plugin.unstage(&request)
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("NodePublishVolume", request.volume_id.clone(), request, Plugin::publish).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("NodeUnpublishVolume", request.volume_id.clone(), request, |plugin, request| {
            plugin.unpublish(&request)
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("NodeGetVolumeStats", request.volume_id.clone(), request, |plugin, request| {
            plugin.stats(&request)
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("NodeExpandVolume", request.volume_id.clone(), request, Plugin::node_expand).await
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use csi::node_service_capability::{Rpc, Type, rpc};
        let mut rpcs = vec![
            rpc::Type::GetVolumeStats,
            rpc::Type::VolumeCondition,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::VolumeMountGroup,
        ];
        if self.plugin.options.stage {
            rpcs.push(rpc::Type::StageUnstageVolume);
        }
        let capabilities = rpcs
            .into_iter()
            .map(|rpc| csi::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) })
            .collect();
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _request: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let options = &self.plugin.options;
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: options.node_id.clone(),
            max_volumes_per_node: i64::from(options.max_volumes),
            accessible_topology: options.topology.clone().map(|segments| csi::Topology { segments }),
        }))
    }
}
