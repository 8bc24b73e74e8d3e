//! The Node service.

use crate::Plugin;
use crate::log::About;
use crate::mounts::{bind, is_dead, is_mounted, mount_image, unmount};
use crate::options::Unknown;
use crate::san::Volume;
use caravan_proto::csi::{self, node_server::Node};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tonic::{Request, Response, Status};

fn required(values: &[(&str, &str)]) -> Result<(), Status> {
    match values.iter().find(|(_, value)| value.is_empty()) {
        Some((what, _)) => Err(Status::invalid_argument(format!("{what} missing in request"))),
        None => Ok(()),
    }
}

fn file_system(capability: Option<&csi::VolumeCapability>) -> Result<(), Status> {
    match capability.and_then(|c| c.access_type.as_ref()) {
        Some(csi::volume_capability::AccessType::Mount(_)) => Ok(()),
        Some(_) => Err(Status::invalid_argument("block volumes are not supported")),
        None => Err(Status::invalid_argument("Volume Capability missing in request")),
    }
}

impl Plugin {
    fn node(&self) -> &str {
        &self.options.nodeid
    }

    fn check_attached(&self, volume: &Volume) -> Result<(), Status> {
        if self.options.no_attach || volume.attached.contains_key(self.node()) {
            return Ok(());
        }
        Err(Status::failed_precondition(format!("it is not attached to node {}", self.node())))
    }

    /// Mounts the volume itself.
    fn mount(&self, id: &str, at: &Path, read_only: bool) -> Result<(), Status> {
        if !self.options.outside {
            return self.mount_at(id, at, read_only);
        }
        let own = self.san.outside(self.node(), id);
        fs::create_dir_all(&own).map_err(|e| Status::internal(e.to_string()))?;
        if is_dead(&own.to_string_lossy()) {
            unmount(&own.to_string_lossy())?;
        }
        if !is_mounted(&own.to_string_lossy())? {
            self.mount_at(id, &own, false)?;
        }
        bind(&own, at, read_only)
    }

    fn mount_at(&self, id: &str, at: &Path, read_only: bool) -> Result<(), Status> {
        if self.options.images {
            mount_image(&self.san.data(id), at)
        } else if self.options.fuse {
            crate::fuse::mount(&self.san.data(id), at).map_err(|e| Status::internal(e.to_string()))
        } else {
            bind(&self.san.data(id), at, read_only)
        }
    }

    /// Removes the plugin's own mount of a volume that is neither staged nor published.
    fn unmount_own(&self, id: &str, volume: &Volume) -> Result<(), Status> {
        let used = volume.staged.get(self.node()).is_some_and(|paths| !paths.is_empty())
            || volume.published.get(self.node()).is_some_and(|paths| !paths.is_empty());
        if self.options.outside && !used {
            unmount(&self.san.outside(self.node(), id).to_string_lossy())?;
        }
        Ok(())
    }

    /// Returns whether a path must still be mounted; an existing mount is reused unless the plugin refuses that.
    fn must_mount(&self, path: &str) -> Result<bool, Status> {
        let there = is_mounted(path)?;
        // The wording of mkdir(2) and mount(2), which plugins pass on.
        if there && (self.options.once || is_dead(path)) {
            return Err(Status::internal(format!("cannot mount at {path:?}: File exists")));
        }
        Ok(!there)
    }

    /// Refuses to undo an unknown step, if that is the plugin's habit. With the option `forget`, mounts without a
    /// record count as unknown.
    fn known(&self, recorded: bool, path: &str) -> Result<bool, Status> {
        if recorded || (!self.options.forget && is_mounted(path)?) {
            return Ok(true);
        }
        not_known(self.options.unknown, path)?;
        Ok(false)
    }

    fn half_way<A>(&self, effect: bool) -> crate::Done<A> {
        Err(Status::internal(if effect { "told to stop half way" } else { "told to fail" }))
    }

    fn stage(&self, request: &csi::NodeStageVolumeRequest) -> crate::Done<csi::NodeStageVolumeResponse> {
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        required(&[("Volume ID", id), ("Staging Target Path", path)])?;
        file_system(request.volume_capability.as_ref())?;
        if !is_dead(path) && !Path::new(path).is_dir() {
            return Err(Status::invalid_argument(format!("the staging directory {path:?} is not there")));
        }
        self.san.change(|known| {
            let volume = known.volume(id)?;
            self.check_attached(volume)?;
            let mut effect = false;
            if self.must_mount(path)? {
                self.mount(id, Path::new(path), false)?;
                effect = true;
            }
            if self.half {
                return self.half_way(effect);
            }
            effect |= volume.staged.entry(self.node().to_owned()).or_default().insert(path.clone());
            Ok((csi::NodeStageVolumeResponse {}, effect))
        })
    }

    fn unstage(
        &self,
        request: &csi::NodeUnstageVolumeRequest,
    ) -> crate::Done<csi::NodeUnstageVolumeResponse> {
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        required(&[("Volume ID", id), ("Staging Target Path", path)])?;
        self.san.change(|known| {
            let volume = known.volume(id)?;
            let published = volume.published.get(self.node());
            if let Some(target) = published.and_then(|p| p.iter().find(|(_, from)| *from == path)) {
                return Err(Status::failed_precondition(format!("it is still published at {target:?}")));
            }
            let recorded = volume.staged.get(self.node()).is_some_and(|paths| paths.contains(path));
            if !self.known(recorded, path)? {
                return Ok((csi::NodeUnstageVolumeResponse {}, false));
            }
            let mut effect = unmount(path)?;
            if self.half {
                return self.half_way(effect);
            }
            if let Some(paths) = volume.staged.get_mut(self.node()) {
                effect |= paths.remove(path);
            }
            self.unmount_own(id, volume)?;
            Ok((csi::NodeUnstageVolumeResponse {}, effect))
        })
    }

    fn publish(
        &self,
        request: &csi::NodePublishVolumeRequest,
    ) -> crate::Done<csi::NodePublishVolumeResponse> {
        let (id, target, staging) = (&request.volume_id, &request.target_path, &request.staging_target_path);
        required(&[("Volume ID", id), ("Target path", target)])?;
        file_system(request.volume_capability.as_ref())?;
        if !self.options.no_stage {
            required(&[("Staging Target Path", staging)])?;
        }
        self.san.change(|known| {
            let volume = known.volume(id)?;
            self.check_attached(volume)?;
            let staged = volume.staged.get(self.node()).is_some_and(|paths| paths.contains(staging));
            if !self.options.no_stage && !staged {
                return Err(Status::failed_precondition("it must be staged before it is published"));
            }
            match fs::create_dir(target) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists && !is_dead(target) => {
                    return Err(Status::internal(format!("cannot create {target:?}: {error}")));
                }
                _ => {}
            }
            let mut effect = false;
            if self.must_mount(target)? {
                if self.options.no_stage {
                    self.mount(id, Path::new(target), request.readonly)?;
                } else {
                    bind(Path::new(staging), Path::new(target), request.readonly)?;
                }
                effect = true;
            }
            if self.half {
                return self.half_way(effect);
            }
            let targets = volume.published.entry(self.node().to_owned()).or_default();
            effect |= targets.insert(target.clone(), staging.clone()).is_none();
            Ok((csi::NodePublishVolumeResponse {}, effect))
        })
    }

    fn unpublish(
        &self,
        request: &csi::NodeUnpublishVolumeRequest,
    ) -> crate::Done<csi::NodeUnpublishVolumeResponse> {
        let (id, target) = (&request.volume_id, &request.target_path);
        required(&[("Volume ID", id), ("Target path", target)])?;
        self.san.change(|known| {
            let volume = known.volume(id)?;
            let recorded = volume.published.get(self.node()).is_some_and(|paths| paths.contains_key(target));
            if !self.known(recorded, target)? {
                return Ok((csi::NodeUnpublishVolumeResponse {}, false));
            }
            let mut effect = unmount(target)?;
            if self.half {
                return self.half_way(effect);
            }
            match fs::remove_dir(target) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Status::internal(format!("cannot remove {target:?}: {error}")));
                }
                _ => {}
            }
            if let Some(targets) = volume.published.get_mut(self.node()) {
                effect |= targets.remove(target).is_some();
            }
            if self.options.no_stage {
                self.unmount_own(id, volume)?;
            }
            Ok((csi::NodeUnpublishVolumeResponse {}, effect))
        })
    }
}

/// Returns the topology of a node.
pub(crate) fn topology(node: &str) -> csi::Topology {
    let segments = [("topology.fault.csi.test/node".to_owned(), node.to_owned())];
    csi::Topology { segments: segments.into() }
}

/// Refuses to undo an unknown step, if that is the plugin's habit.
pub(crate) fn not_known(habit: Unknown, what: &str) -> Result<(), Status> {
    let words = format!("{}: {what}", crate::NOT_KNOWN);
    match habit {
        Unknown::Ok => Ok(()),
        Unknown::Internal => Err(Status::internal(words)),
        Unknown::NotFound => Err(Status::not_found(words)),
        Unknown::FailedPrecondition => Err(Status::failed_precondition(words)),
    }
}

#[tonic::async_trait]
impl Node for Plugin {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("NodeStageVolume", &request.volume_id, self.node());
        let about = about.at("", &request.staging_target_path);
        self.call(about, move |plugin| plugin.stage(&request)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("NodeUnstageVolume", &request.volume_id, self.node());
        let about = about.at("", &request.staging_target_path);
        self.call(about, move |plugin| plugin.unstage(&request)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("NodePublishVolume", &request.volume_id, self.node());
        let mut about = about.at(&request.target_path, &request.staging_target_path);
        about.readonly = request.readonly;
        self.call(about, move |plugin| plugin.publish(&request)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = About::volume("NodeUnpublishVolume", &request.volume_id, self.node());
        let about = about.at(&request.target_path, "");
        self.call(about, move |plugin| plugin.unpublish(&request)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        // The call has no volume, so it does not exclude other calls; fault rules match it by its name.
        let about = About { call: "NodeGetVolumeStats", ..About::default() };
        let answer = move |plugin: &Self| {
            let path = &request.volume_path;
            let known = plugin.san.read()?.volume(&request.volume_id)?.clone();
            let targets = known.published.get(plugin.node());
            if !targets.is_some_and(|targets| targets.contains_key(path)) {
                return Err(Status::not_found(format!("it is not published at {path:?}")));
            }
            let found = rustix::fs::statvfs(path.as_str()).map_err(|e| Status::internal(e.to_string()))?;
            let bytes = |blocks: u64| i64::try_from(blocks * found.f_frsize).unwrap_or(i64::MAX);
            let usage = csi::VolumeUsage {
                unit: csi::volume_usage::Unit::Bytes.into(),
                total: bytes(found.f_blocks),
                available: bytes(found.f_bavail),
                used: bytes(found.f_blocks - found.f_bfree),
            };
            Ok((csi::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None }, false))
        };
        self.call(about, answer).await
    }

    async fn node_expand_volume(
        &self,
        _: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use csi::node_service_capability::{Rpc, Type, rpc};
        let about = About { call: "NodeGetCapabilities", ..About::default() };
        let answer = |plugin: &Self| {
            let mut types = vec![rpc::Type::GetVolumeStats];
            if !plugin.options.no_stage {
                types.push(rpc::Type::StageUnstageVolume);
            }
            let capability = |r#type: rpc::Type| csi::NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: r#type.into() })),
            };
            let times = if plugin.options.capabilities_twice { 2 } else { 1 };
            let capabilities = types.repeat(times).into_iter().map(capability).collect();
            Ok((csi::NodeGetCapabilitiesResponse { capabilities }, false))
        };
        self.call(about, answer).await
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let about = About { call: "NodeGetInfo", ..About::default() };
        let info = csi::NodeGetInfoResponse {
            node_id: self.options.nodeid.clone(),
            max_volumes_per_node: self.options.max_volumes,
            accessible_topology: self.options.topology.then(|| topology(&self.options.nodeid)),
        };
        self.call(about, move |_| Ok((info, false))).await
    }
}
