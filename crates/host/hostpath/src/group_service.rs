//! The group controller service: passes calls to threads that may block.

use crate::service::Service;
use caravan_proto::csi::{self, group_controller_server::GroupController};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl GroupController for Service {
    async fn group_controller_get_capabilities(
        &self,
        _request: Request<csi::GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::GroupControllerGetCapabilitiesResponse>, Status> {
        use csi::group_controller_service_capability::{Rpc, Type, rpc};
        let snapshots = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
        let capability = csi::GroupControllerServiceCapability { r#type: Some(Type::Rpc(snapshots)) };
        Ok(Response::new(csi::GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<csi::CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<csi::CreateVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.carry_out("CreateVolumeGroupSnapshot", request.name.clone(), request, |plugin, request| {
            plugin.create_group(&request)
        })
        .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<csi::DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<csi::DeleteVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let id = request.group_snapshot_id.clone();
        self.carry_out("DeleteVolumeGroupSnapshot", id, request, |plugin, request| {
            plugin.delete_group(&request)
        })
        .await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<csi::GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<csi::GetVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let id = request.group_snapshot_id.clone();
        self.carry_out("GetVolumeGroupSnapshot", id, request, |plugin, request| plugin.get_group(&request))
            .await
    }
}
