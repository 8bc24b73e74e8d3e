//! The Node service.

use crate::Plugin;
use crate::controller::publish_context;
use crate::identity::UNKNOWN;
use crate::mounts::{bind, is_mounted, unmount};
use crate::state::{Volume, Volumes};
use caravan_proto::csi::{self, node_server::Node};
use caravan_sys::tree::{self, Seals};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tonic::{Request, Response, Status};

fn internal(error: std::io::Error) -> Status {
    Status::internal(error.to_string())
}

fn required(values: &[(&str, &str)]) -> Result<(), Status> {
    match values.iter().find(|(_, value)| value.is_empty()) {
        Some((what, _)) => Err(Status::invalid_argument(format!("{what} missing in request"))),
        None => Ok(()),
    }
}

impl Plugin {
    fn volume<'a>(&self, volumes: &'a mut Volumes, id: &str) -> Result<&'a mut Volume, Status> {
        if self.options.stateless {
            fs::create_dir_all(self.store.data(id)).map_err(internal)?;
            return Ok(volumes.entry(id.to_owned()).or_default());
        }
        volumes.get_mut(id).ok_or_else(|| Status::not_found(format!("there is no volume {id:?}")))
    }

    fn check_attached(
        &self,
        id: &str,
        volume: &Volume,
        context: &BTreeMap<String, String>,
    ) -> Result<(), Status> {
        if self.options.no_attach {
            return Ok(());
        }
        if self.options.context && *context != publish_context(id) {
            return Err(Status::invalid_argument("the publish context is not the controller's"));
        }
        if volume.attached.is_none() && !self.options.stateless {
            return Err(Status::failed_precondition("ControllerPublishVolume must come first"));
        }
        Ok(())
    }

    fn stage(&self, request: &csi::NodeStageVolumeRequest) -> Result<(), Status> {
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        required(&[("Volume ID", id), ("Target path", path)])?;
        if request.volume_capability.is_none() {
            return Err(Status::invalid_argument("Volume Capability missing in request"));
        }
        if !Path::new(path).is_dir() {
            return Err(Status::invalid_argument(format!("the staging directory {path:?} is not there")));
        }
        self.store.change(|volumes| {
            let volume = self.volume(volumes, id)?;
            self.check_attached(id, volume, &request.publish_context)?;
            if volume.staged.contains(path) {
                return Ok(());
            }
            if !volume.staged.is_empty() {
                return Err(Status::failed_precondition(format!("it is staged at {:?}", volume.staged)));
            }
            if self.options.stage_mounts && !is_mounted(path)? {
                bind(&self.store.data(id), path, false)?;
            }
            volume.staged.insert(path.clone());
            Ok(())
        })
    }

    fn unstage(&self, request: &csi::NodeUnstageVolumeRequest) -> Result<(), Status> {
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        required(&[("Volume ID", id), ("Target path", path)])?;
        self.store.change(|volumes| {
            let volume = self.volume(volumes, id)?;
            if !volume.published.is_empty() {
                let places = &volume.published;
                return Err(Status::failed_precondition(format!("it is still published at {places:?}")));
            }
            if !volume.staged.contains(path) {
                return self.gone(format!("it is not staged at {path:?}"));
            }
            if self.options.stage_mounts {
                unmount(path)?;
            }
            volume.staged.remove(path);
            Ok(())
        })
    }

    fn gone(&self, words: String) -> Result<(), Status> {
        if self.options.gone_is_not_found { Err(Status::not_found(words)) } else { Ok(()) }
    }

    fn publish(&self, request: &csi::NodePublishVolumeRequest) -> Result<(), Status> {
        let (id, target, staging) = (&request.volume_id, &request.target_path, &request.staging_target_path);
        required(&[("Volume ID", id), ("Target path", target)])?;
        let capability = request.volume_capability.as_ref().and_then(|c| c.access_type.as_ref());
        match capability {
            Some(csi::volume_capability::AccessType::Mount(_)) => {}
            Some(_) => return Err(Status::invalid_argument("block volumes are not supported")),
            None => return Err(Status::invalid_argument("Volume Capability missing in request")),
        }
        if !self.options.no_stage {
            required(&[("Staging Target Path", staging)])?;
        }
        self.store.change(|volumes| {
            let volume = self.volume(volumes, id)?;
            self.check_attached(id, volume, &request.publish_context)?;
            if !self.options.no_stage && !volume.staged.contains(staging) {
                return Err(Status::failed_precondition("it must be staged before it is published"));
            }
            match fs::create_dir(target) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Status::internal(format!("cannot create {target:?}: {error}")));
                }
                _ => {}
            }
            if !is_mounted(target)? {
                let data = self.store.data(id);
                let source = if self.options.stage_mounts { Path::new(staging) } else { &data };
                bind(source, target, request.readonly)?;
            }
            volume.published.insert(target.clone());
            Ok(())
        })
    }

    fn unpublish(&self, request: &csi::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let (id, target) = (&request.volume_id, &request.target_path);
        required(&[("Volume ID", id), ("Target path", target)])?;
        self.store.change(|volumes| {
            let volume = self.volume(volumes, id)?;
            // Without a record the target is left alone, even if it is mounted.
            if !volume.published.contains(target) {
                return self.gone(format!("it is not published at {target:?}"));
            }
            while is_mounted(target)? {
                unmount(target)?;
            }
            // The volume is no longer mounted below the target.
            tree::remove(Path::new(target), Seals::Keep)
                .map_err(|error| Status::internal(error.to_string()))?;
            volume.published.remove(target);
            Ok(())
        })
    }
}

#[tonic::async_trait]
impl Node for Plugin {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        self.begin("NodeStageVolume", &request.get_ref().volume_id)?;
        let done = self.stage(request.get_ref());
        self.end("NodeStageVolume", done.map(|()| csi::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        self.begin("NodeUnstageVolume", &request.get_ref().volume_id)?;
        let done = self.unstage(request.get_ref());
        self.end("NodeUnstageVolume", done.map(|()| csi::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        self.begin("NodePublishVolume", &request.get_ref().volume_id)?;
        let done = self.publish(request.get_ref());
        self.end("NodePublishVolume", done.map(|()| csi::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        self.begin("NodeUnpublishVolume", &request.get_ref().volume_id)?;
        let done = self.unpublish(request.get_ref());
        self.end("NodeUnpublishVolume", done.map(|()| csi::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        self.end("NodeGetVolumeStats", Err(Status::unimplemented("")))
    }

    async fn node_expand_volume(
        &self,
        _: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        self.end("NodeExpandVolume", Err(Status::unimplemented("")))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use csi::node_service_capability::{Rpc, Type, rpc};
        self.begin("NodeGetCapabilities", "")?;
        let mut numbers = Vec::new();
        if !self.options.no_stage {
            numbers.push(rpc::Type::StageUnstageVolume.into());
        }
        if self.options.unknown_capabilities {
            numbers.push(UNKNOWN);
        }
        let capabilities = numbers
            .into_iter()
            .map(|r#type| csi::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type })) })
            .collect();
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        self.begin("NodeGetInfo", "")?;
        let segments = BTreeMap::from([(self.options.topology_key(), self.options.nodeid.clone())]);
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: self.options.nodeid.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(csi::Topology { segments }),
        }))
    }
}
