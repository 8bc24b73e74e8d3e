//! The Controller service.

use crate::Plugin;
use crate::log::About;
use crate::mounts::make_image;
use crate::node::not_known;
use crate::san::{Attachment, Volume};
use caravan_proto::csi::{self, controller_server::Controller};
use caravan_sys::tree::{self, Seals};
use csi::volume_capability::access_mode::Mode;
use std::collections::BTreeMap;
use std::fs;
use tonic::{Request, Response, Status};

/// The size of volumes that are created without one.
const DEFAULT_SIZE: i64 = 16 << 20;

fn required(what: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() {
        Err(Status::invalid_argument(format!("{what} missing in request")))
    } else {
        Ok(())
    }
}

fn described(id: &str, volume: &Volume) -> csi::Volume {
    csi::Volume { capacity_bytes: volume.capacity, volume_id: id.to_owned(), ..csi::Volume::default() }
}

/// Returns whether an access mode allows several nodes (CSI specification, `AccessMode`).
fn shared(capability: Option<&csi::VolumeCapability>) -> Result<bool, Status> {
    let mode = capability.and_then(|c| c.access_mode).map(|m| m.mode());
    match mode {
        None | Some(Mode::Unknown) => Err(Status::invalid_argument("Volume Capability missing in request")),
        Some(Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) => {
            Ok(true)
        }
        Some(_) => Ok(false),
    }
}

impl Plugin {
    fn create(&self, request: &csi::CreateVolumeRequest) -> crate::Done<csi::CreateVolumeResponse> {
        let id = &request.name;
        required("Name", id)?;
        if id.contains('/') || id.starts_with('.') {
            return Err(Status::invalid_argument("the name cannot be a file name"));
        }
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("Volume Capabilities missing in request"));
        }
        let range = request.capacity_range.unwrap_or_default();
        let capacity = if range.required_bytes > 0 { range.required_bytes } else { DEFAULT_SIZE };
        // Volumes are accessible from all nodes; the topology is returned only on request.
        let asked = request.accessibility_requirements.clone().filter(|_| self.options.topology);
        let topologies = asked.map_or_else(Vec::new, |asked| asked.requisite);
        let described = |id: &str, volume: &Volume| csi::Volume {
            accessible_topology: topologies.clone(),
            ..described(id, volume)
        };
        self.san.change(|known| {
            if let Some(volume) = known.volumes.get(id) {
                let too_large = range.limit_bytes > 0 && volume.capacity > range.limit_bytes;
                if volume.capacity < range.required_bytes || too_large {
                    return Err(Status::already_exists("a volume of another size has this name"));
                }
                let volume = Some(described(id, volume));
                return Ok((csi::CreateVolumeResponse { volume }, false));
            }
            let data = self.san.data(id);
            if self.options.images {
                make_image(&data, capacity)?;
            } else {
                fs::create_dir_all(&data).map_err(|e| Status::internal(e.to_string()))?;
            }
            let volume = Volume { capacity, ..Volume::default() };
            let answer = csi::CreateVolumeResponse { volume: Some(described(id, &volume)) };
            known.volumes.insert(id.clone(), volume);
            Ok((answer, true))
        })
    }

    fn delete(&self, id: &str) -> crate::Done<csi::DeleteVolumeResponse> {
        required("Volume ID", id)?;
        self.san.change(|known| {
            let effect = match known.volumes.get(id) {
                None => false,
                Some(volume) if volume.in_use() => {
                    return Err(Status::failed_precondition(format!("volume is in use: {volume:?}")));
                }
                Some(_) => true,
            };
            let data = self.san.data(id);
            if effect {
                let removed = tree::remove(&data, Seals::Keep);
                removed.map_err(|error| Status::failed_precondition(caravan_sys::describe(&error)))?;
            }
            known.volumes.remove(id);
            Ok((csi::DeleteVolumeResponse {}, effect))
        })
    }

    fn attach(
        &self,
        request: &csi::ControllerPublishVolumeRequest,
    ) -> crate::Done<csi::ControllerPublishVolumeResponse> {
        let (id, node) = (&request.volume_id, &request.node_id);
        required("Volume ID", id)?;
        required("Node ID", node)?;
        let desired =
            Attachment { readonly: request.readonly, shared: shared(request.volume_capability.as_ref())? };
        let publish_context = BTreeMap::from([("device".to_owned(), format!("{node}:{id}"))]);
        let answer = csi::ControllerPublishVolumeResponse { publish_context };
        self.san.change(|known| {
            if !known.nodes.contains(node) {
                return Err(Status::not_found(format!("there is no node {node:?}")));
            }
            let volume = known.volume(id)?;
            match volume.attached.get(node) {
                Some(known) if *known == desired => return Ok((answer, false)),
                Some(_) => return Err(Status::already_exists("it is attached in another way")),
                None => {}
            }
            let in_the_way = volume.attached.iter().find(|(_, a)| !(a.shared && desired.shared));
            if let Some((other, _)) = in_the_way {
                return Err(Status::failed_precondition(format!("it is attached to node {other}")));
            }
            volume.attached.insert(node.clone(), desired);
            Ok((answer, true))
        })
    }

    /// Detaches a volume also from a node where it is still mounted, as the fencing of a lost node requires.
    /// The log shows whether the call was justified.
    fn detach(
        &self,
        request: &csi::ControllerUnpublishVolumeRequest,
    ) -> crate::Done<csi::ControllerUnpublishVolumeResponse> {
        let (id, node) = (&request.volume_id, &request.node_id);
        required("Volume ID", id)?;
        self.san.change(|known| {
            let volume = known.volume(id)?;
            let effect = if node.is_empty() {
                !std::mem::take(&mut volume.attached).is_empty()
            } else {
                volume.attached.remove(node).is_some()
            };
            if !effect {
                not_known(self.options.unknown_attachment, node)?;
            }
            Ok((csi::ControllerUnpublishVolumeResponse {}, effect))
        })
    }
}

fn absent<A>() -> Result<Response<A>, Status> {
    Err(Status::unimplemented(""))
}

#[tonic::async_trait]
impl Controller for Plugin {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("CreateVolume", &request.name, "");
        self.call(about, move |plugin| plugin.create(&request)).await
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Result<Response<csi::DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("DeleteVolume", &request.volume_id, "");
        self.call(about, move |plugin| plugin.delete(&request.volume_id)).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let mut about = About::volume("ControllerPublishVolume", &request.volume_id, &request.node_id);
        about.readonly = request.readonly;
        self.call(about, move |plugin| plugin.attach(&request)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("ControllerUnpublishVolume", &request.volume_id, &request.node_id);
        self.call(about, move |plugin| plugin.detach(&request)).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<csi::ValidateVolumeCapabilitiesResponse>, Status> {
        use csi::validate_volume_capabilities_response::Confirmed;
        let request = request.into_inner();
        let about = About::volume("ValidateVolumeCapabilities", &request.volume_id, "");
        let answer = move |plugin: &Self| {
            plugin.san.read()?.volume(&request.volume_id)?;
            let confirmed = Some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: Default::default(),
            });
            Ok((csi::ValidateVolumeCapabilitiesResponse { confirmed, message: String::new() }, false))
        };
        self.call(about, answer).await
    }

    async fn list_volumes(
        &self,
        _: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        let about = About { call: "ListVolumes", ..About::default() };
        let answer = |plugin: &Self| {
            let known = plugin.san.read()?;
            let entries = known.volumes.iter().map(|(id, volume)| csi::list_volumes_response::Entry {
                volume: Some(described(id, volume)),
                status: plugin.options.list_nodes.then(|| csi::list_volumes_response::VolumeStatus {
                    published_node_ids: volume.attached.keys().cloned().collect(),
                    volume_condition: None,
                }),
            });
            let entries = entries.collect();
            Ok((csi::ListVolumesResponse { entries, next_token: String::new() }, false))
        };
        self.call(about, answer).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        use csi::controller_service_capability::{Rpc, Type, rpc};
        let about = About { call: "ControllerGetCapabilities", ..About::default() };
        let answer = |plugin: &Self| {
            let mut types =
                vec![rpc::Type::CreateDeleteVolume, rpc::Type::ListVolumes, rpc::Type::ExpandVolume];
            if !plugin.options.no_attach {
                types.push(rpc::Type::PublishUnpublishVolume);
            }
            if plugin.options.list_nodes {
                types.push(rpc::Type::ListVolumesPublishedNodes);
            }
            let capability = |r#type: rpc::Type| csi::ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: r#type.into() })),
            };
            let times = if plugin.options.capabilities_twice { 2 } else { 1 };
            let capabilities = types.repeat(times).into_iter().map(capability).collect();
            Ok((csi::ControllerGetCapabilitiesResponse { capabilities }, false))
        };
        self.call(about, answer).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Result<Response<csi::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("ControllerExpandVolume", &request.volume_id, "");
        let answer = move |plugin: &Self| {
            let desired = request.capacity_range.unwrap_or_default().required_bytes;
            plugin.san.change(|known| {
                let volume = known.volume(&request.volume_id)?;
                if plugin.options.images && desired > volume.capacity {
                    return Err(Status::out_of_range("images do not grow"));
                }
                let effect = desired > volume.capacity;
                volume.capacity = volume.capacity.max(desired);
                let capacity_bytes = volume.capacity;
                let node_expansion_required = false;
                Ok((csi::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required }, effect))
            })
        };
        self.call(about, answer).await
    }

    async fn get_capacity(
        &self,
        _: Request<csi::GetCapacityRequest>,
    ) -> Result<Response<csi::GetCapacityResponse>, Status> {
        absent()
    }

    async fn create_snapshot(
        &self,
        _: Request<csi::CreateSnapshotRequest>,
    ) -> Result<Response<csi::CreateSnapshotResponse>, Status> {
        absent()
    }

    async fn delete_snapshot(
        &self,
        _: Request<csi::DeleteSnapshotRequest>,
    ) -> Result<Response<csi::DeleteSnapshotResponse>, Status> {
        absent()
    }

    async fn list_snapshots(
        &self,
        _: Request<csi::ListSnapshotsRequest>,
    ) -> Result<Response<csi::ListSnapshotsResponse>, Status> {
        absent()
    }

    async fn get_snapshot(
        &self,
        _: Request<csi::GetSnapshotRequest>,
    ) -> Result<Response<csi::GetSnapshotResponse>, Status> {
        absent()
    }

    async fn controller_get_volume(
        &self,
        _: Request<csi::ControllerGetVolumeRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeResponse>, Status> {
        absent()
    }

    async fn controller_modify_volume(
        &self,
        _: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Result<Response<csi::ControllerModifyVolumeResponse>, Status> {
        absent()
    }
}
