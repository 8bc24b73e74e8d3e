//! The Controller service.

use crate::identity::UNKNOWN;
use crate::state::Volume;
use crate::{Plugin, remove_tree};
use caravan_proto::csi::{self, controller_server::Controller};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use tonic::{Request, Response, Status};

/// The size of volumes that are created without one.
const DEFAULT_SIZE: i64 = 1 << 30;

/// Returns the publish context of ControllerPublishVolume, for a plugin with that habit.
pub(crate) fn publish_context(volume: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("devicePath".to_owned(), format!("/dev/habits/{volume}"))])
}

fn missing(what: &str) -> Status {
    Status::invalid_argument(format!("{what} missing in request"))
}

impl Plugin {
    fn describe(&self, id: &str, volume: &Volume) -> csi::Volume {
        let segments = BTreeMap::from([(self.options.topology_key(), self.options.nodeid.clone())]);
        csi::Volume {
            capacity_bytes: volume.capacity,
            volume_id: id.to_owned(),
            volume_context: BTreeMap::from([("storage.test/made-by".to_owned(), "habits".to_owned())]),
            content_source: None,
            accessible_topology: vec![csi::Topology { segments }],
        }
    }

    fn create(&self, request: &csi::CreateVolumeRequest) -> Result<csi::CreateVolumeResponse, Status> {
        if request.name.is_empty() {
            return Err(missing("Name"));
        }
        if request.volume_capabilities.is_empty() {
            return Err(missing("Volume Capabilities"));
        }
        if request.volume_capabilities.iter().any(|c| c.access_type.is_none() || c.access_mode.is_none()) {
            return Err(missing("the access type or mode of a capability"));
        }
        let capacity = request.capacity_range.map_or(DEFAULT_SIZE, |range| range.required_bytes);
        let volume = self.store.change(|volumes| {
            if let Some((id, known)) = volumes.iter().find(|(_, v)| v.name == request.name) {
                if known.capacity < capacity {
                    return Err(Status::already_exists("a smaller volume has this name"));
                }
                return Ok(self.describe(id, known));
            }
            let mut hasher = DefaultHasher::new();
            request.name.hash(&mut hasher);
            let id = format!("{:016x}", hasher.finish());
            let made = Volume { name: request.name.clone(), capacity, ..Volume::default() };
            std::fs::create_dir_all(self.store.data(&id)).map_err(|e| Status::internal(e.to_string()))?;
            let described = self.describe(&id, &made);
            volumes.insert(id, made);
            Ok(described)
        })?;
        Ok(csi::CreateVolumeResponse { volume: Some(volume) })
    }

    fn delete(&self, id: &str) -> Result<csi::DeleteVolumeResponse, Status> {
        self.store.change(|volumes| {
            match volumes.get(id) {
                None if self.options.strict_delete => return Err(Status::not_found("no such volume")),
                None => return Ok(()),
                Some(volume) if volume.in_use() => {
                    return Err(Status::failed_precondition(format!("volume is in use: {volume:?}")));
                }
                Some(_) => {}
            }
            remove_tree(&self.store.data(id))?;
            volumes.remove(id);
            Ok(())
        })?;
        Ok(csi::DeleteVolumeResponse {})
    }

    fn attach(
        &self,
        request: &csi::ControllerPublishVolumeRequest,
    ) -> Result<csi::ControllerPublishVolumeResponse, Status> {
        if request.volume_capability.is_none() {
            return Err(missing("Volume Capability"));
        }
        if request.node_id != self.options.nodeid {
            return Err(Status::not_found(format!("there is no node {:?}", request.node_id)));
        }
        self.store.change(|volumes| {
            let volume =
                volumes.get_mut(&request.volume_id).ok_or_else(|| Status::not_found("no such volume"))?;
            match volume.attached {
                Some(read_only) if read_only != request.readonly => {
                    Err(Status::already_exists("it is attached in another way"))
                }
                _ => {
                    volume.attached = Some(request.readonly);
                    Ok(())
                }
            }
        })?;
        let publish_context =
            if self.options.context { publish_context(&request.volume_id) } else { BTreeMap::new() };
        Ok(csi::ControllerPublishVolumeResponse { publish_context })
    }

    fn detach(
        &self,
        request: &csi::ControllerUnpublishVolumeRequest,
    ) -> Result<csi::ControllerUnpublishVolumeResponse, Status> {
        if !request.node_id.is_empty() && request.node_id != self.options.nodeid {
            return Err(Status::not_found(format!("there is no node {:?}", request.node_id)));
        }
        self.store.change(|volumes| {
            let volume =
                volumes.get_mut(&request.volume_id).ok_or_else(|| Status::not_found("no such volume"))?;
            if !volume.published.is_empty() {
                return Err(Status::failed_precondition(format!("volume is in use: {volume:?}")));
            }
            volume.attached = None;
            Ok(())
        })?;
        Ok(csi::ControllerUnpublishVolumeResponse {})
    }
}

fn id(id: &str) -> Result<(), Status> {
    if id.is_empty() { Err(missing("Volume ID")) } else { Ok(()) }
}

fn absent<A>(call: &str) -> Result<Response<A>, Status> {
    eprintln!("refused {call}: there is no such call");
    Err(Status::unimplemented(""))
}

#[tonic::async_trait]
impl Controller for Plugin {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        self.begin("CreateVolume", &request.get_ref().name)?;
        self.end("CreateVolume", self.create(request.get_ref()))
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Result<Response<csi::DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        self.begin("DeleteVolume", &request.volume_id)?;
        id(&request.volume_id)?;
        self.end("DeleteVolume", self.delete(&request.volume_id))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.begin("ControllerPublishVolume", &request.volume_id)?;
        id(&request.volume_id)?;
        self.end("ControllerPublishVolume", self.attach(&request))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.begin("ControllerUnpublishVolume", &request.volume_id)?;
        id(&request.volume_id)?;
        self.end("ControllerUnpublishVolume", self.detach(&request))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<csi::ValidateVolumeCapabilitiesResponse>, Status> {
        use csi::validate_volume_capabilities_response::Confirmed;
        let request = request.into_inner();
        self.begin("ValidateVolumeCapabilities", &request.volume_id)?;
        id(&request.volume_id)?;
        if !self.store.read()?.contains_key(&request.volume_id) {
            return self.end("ValidateVolumeCapabilities", Err(Status::not_found("no such volume")));
        }
        Ok(Response::new(csi::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: Default::default(),
            }),
            message: String::new(),
        }))
    }

    async fn list_volumes(
        &self,
        _: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        self.begin("ListVolumes", "")?;
        let volumes = self.store.read()?;
        let entries = volumes.iter().map(|(id, volume)| csi::list_volumes_response::Entry {
            volume: Some(self.describe(id, volume)),
            status: None,
        });
        Ok(Response::new(csi::ListVolumesResponse { entries: entries.collect(), next_token: String::new() }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        use csi::controller_service_capability::{Rpc, Type, rpc};
        self.begin("ControllerGetCapabilities", "")?;
        let mut numbers: Vec<i32> = vec![rpc::Type::CreateDeleteVolume.into(), rpc::Type::ListVolumes.into()];
        if !self.options.no_attach {
            numbers.push(rpc::Type::PublishUnpublishVolume.into());
        }
        if self.options.unknown_capabilities {
            numbers.push(UNKNOWN);
        }
        let capabilities = numbers
            .into_iter()
            .map(|r#type| csi::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type })) })
            .collect();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn get_capacity(
        &self,
        _: Request<csi::GetCapacityRequest>,
    ) -> Result<Response<csi::GetCapacityResponse>, Status> {
        absent("GetCapacity")
    }

    async fn create_snapshot(
        &self,
        _: Request<csi::CreateSnapshotRequest>,
    ) -> Result<Response<csi::CreateSnapshotResponse>, Status> {
        absent("CreateSnapshot")
    }

    async fn delete_snapshot(
        &self,
        _: Request<csi::DeleteSnapshotRequest>,
    ) -> Result<Response<csi::DeleteSnapshotResponse>, Status> {
        absent("DeleteSnapshot")
    }

    async fn list_snapshots(
        &self,
        _: Request<csi::ListSnapshotsRequest>,
    ) -> Result<Response<csi::ListSnapshotsResponse>, Status> {
        absent("ListSnapshots")
    }

    async fn get_snapshot(
        &self,
        _: Request<csi::GetSnapshotRequest>,
    ) -> Result<Response<csi::GetSnapshotResponse>, Status> {
        absent("GetSnapshot")
    }

    async fn controller_expand_volume(
        &self,
        _: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Result<Response<csi::ControllerExpandVolumeResponse>, Status> {
        absent("ControllerExpandVolume")
    }

    async fn controller_get_volume(
        &self,
        _: Request<csi::ControllerGetVolumeRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeResponse>, Status> {
        absent("ControllerGetVolume")
    }

    async fn controller_modify_volume(
        &self,
        _: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Result<Response<csi::ControllerModifyVolumeResponse>, Status> {
        absent("ControllerModifyVolume")
    }
}
