//! A CSI node plugin in the test's own process, which the test controls; the plugin's task does nothing.

use crate::fuse::{self, Daemon};
use crate::support::{Agent, alloc, poll, shell};
use caravan_proto::csi;
use caravan_proto::csi::identity_server::{Identity, IdentityServer};
use caravan_proto::csi::node_server::{Node, NodeServer};
use caravan_proto::csi::node_service_capability::rpc::Type as Can;
use caravan_sys::mount::{Unmount, bind, is_mount_point, make_read_only, unmount};
use caravan_types::Nanos;
use caravan_types::job::{CsiPluginConfig, CsiPluginType, JobType};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

pub const PLUGIN: &str = "fake";

/// The kind of a published volume.
#[derive(Clone, Debug, Default)]
pub enum What {
    /// A directory.
    #[default]
    Directory,
    /// A separate FUSE file system.
    Fuse,
    /// A device, bind-mounted on a file.
    Device(PathBuf),
}

#[derive(Default)]
struct State {
    can: Vec<Can>,
    what: BTreeMap<String, What>,
    /// Calls that fail as long as they are in the set: call and volume.
    fails: BTreeSet<(String, String)>,
    /// Calls that hang as long as they are in the set.
    hangs: BTreeSet<(String, String)>,
    /// The notification that some hanging calls may end.
    freed: Arc<Notify>,
    log: Vec<String>,
    daemons: BTreeMap<String, Daemon>,
    generation: u32,
    condition: Option<String>,
    groups: Vec<String>,
}

/// The plugin. Clones share the state.
#[derive(Clone)]
pub struct Fake {
    data: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Fake {
    /// Starts the plugin as the allocation `fake` of an agent, and waits until the node reports it.
    pub async fn start(agent: &Agent, can: &[Can]) -> Self {
        let state = State { can: can.to_vec(), ..Default::default() };
        let this = Self { data: agent.dir.path().join("fake"), state: Arc::new(Mutex::new(state)) };
        let mut task = shell("plugin", "raw_exec", "exec sleep 600");
        task.csi_plugin_config = Some(CsiPluginConfig {
            id: PLUGIN.into(),
            kind: CsiPluginType::Node,
            health_timeout: Nanos::from_secs(15),
            ..Default::default()
        });
        agent.servers.run(alloc("fake", JobType::System, vec![task]));
        agent.servers.status("fake", caravan_types::alloc::ClientStatus::Running).await;
        this.serve(agent);
        agent
            .servers
            .node("the plugin is healthy", |n| {
                n.csi_node_plugins.get(PLUGIN).is_some_and(|info| info.healthy)
            })
            .await;
        this
    }

    fn serve(&self, agent: &Agent) {
        let socket = agent.dir.path().join("client/csi/plugins/fake/csi.sock");
        let listener = tokio::net::UnixListener::bind(socket).unwrap();
        let router = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(self.clone()))
            .add_service(NodeServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(UnixListenerStream::new(listener)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn is(&self, volume: &str, what: What) {
        self.state().what.insert(volume.to_owned(), what);
    }
    pub fn fail(&self, call: &str, volume: &str, on: bool) {
        let key = (call.to_owned(), volume.to_owned());
        let mut state = self.state();
        if on {
            state.fails.insert(key)
        } else {
            state.fails.remove(&key)
        };
    }
    pub fn hang(&self, call: &str, volume: &str) {
        self.state().hangs.insert((call.to_owned(), volume.to_owned()));
    }
    /// Lets all hanging calls end.
    pub fn let_go(&self) {
        let mut state = self.state();
        state.hangs.clear();
        state.freed.notify_waiters();
    }
    pub fn abnormal(&self, words: &str) {
        self.state().condition = Some(words.to_owned());
    }
    pub fn data(&self, volume: &str) -> PathBuf {
        self.data.join(volume)
    }
    /// Returns the number of times that a call was made for a volume.
    pub fn calls(&self, call: &str, volume: &str) -> usize {
        let line = format!("{call} {volume}");
        self.state().log.iter().filter(|l| **l == line).count()
    }
    pub async fn called(&self, call: &str, volume: &str) {
        poll(&format!("{call} {volume}"), || self.calls(call, volume) > 0).await;
    }
    /// Returns the volume mount groups that the plugin received.
    pub fn groups(&self) -> Vec<String> {
        self.state().groups.clone()
    }
    /// Ends the daemons of FUSE file systems, as a crash would.
    pub fn crash(&self) {
        let daemons = std::mem::take(&mut self.state().daemons);
        drop(daemons);
    }

    async fn begin(&self, call: &str, volume: &str) -> Result<(), Status> {
        let key = (call.to_owned(), volume.to_owned());
        let (fails, hangs) = {
            let mut state = self.state();
            state.log.push(format!("{call} {volume}"));
            // Registered before the check, so that no notification is missed.
            let freed = state.freed.clone().notified_owned();
            (state.fails.contains(&key), state.hangs.contains(&key).then_some(freed))
        };
        if let Some(freed) = hangs {
            freed.await;
        }
        if fails { Err(Status::internal(format!("{call} fails today"))) } else { Ok(()) }
    }

    fn publish(&self, request: &csi::NodePublishVolumeRequest) -> std::io::Result<()> {
        use csi::volume_capability::AccessType;
        let target = Path::new(&request.target_path);
        let mut state = self.state();
        if let Some(AccessType::Mount(mount)) =
            request.volume_capability.as_ref().and_then(|c| c.access_type.clone())
        {
            state.groups.push(mount.volume_mount_group);
        }
        let what = state.what.get(&request.volume_id).cloned().unwrap_or_default();
        let failed = std::io::Error::other::<caravan_sys::Error>;
        if is_mount_point(target).unwrap_or(false) {
            return Ok(());
        }
        match what {
            What::Directory => {
                std::fs::create_dir_all(target)?;
                std::fs::create_dir_all(self.data(&request.volume_id))?;
                bind(&self.data(&request.volume_id), target, false).map_err(failed)?;
            }
            What::Fuse => {
                std::fs::create_dir_all(target)?;
                state.generation += 1;
                let daemon = fuse::mount(target, state.generation)?;
                state.daemons.insert(request.target_path.clone(), daemon);
            }
            What::Device(device) => {
                std::fs::write(target, "")?;
                bind(&device, target, false).map_err(failed)?;
            }
        }
        if request.readonly { make_read_only(target).map_err(failed) } else { Ok(()) }
    }

    fn unpublish(&self, target: &str) -> std::io::Result<()> {
        let path = Path::new(target);
        while unmount(path, Unmount::Lazy).map_err(std::io::Error::other)? {}
        self.state().daemons.remove(target);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => std::fs::remove_dir(path),
            Ok(_) => std::fs::remove_file(path),
            Err(_) => Ok(()),
        }
    }
}

fn internal(error: std::io::Error) -> Status {
    Status::internal(error.to_string())
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        let name = "fake.storage.test".to_owned();
        let answer = csi::GetPluginInfoResponse { name, vendor_version: "1".into(), ..Default::default() };
        Ok(Response::new(answer))
    }
    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(csi::GetPluginCapabilitiesResponse::default()))
    }
    async fn probe(&self, _: Request<csi::ProbeRequest>) -> Result<Response<csi::ProbeResponse>, Status> {
        Ok(Response::new(csi::ProbeResponse::default()))
    }
}

#[tonic::async_trait]
impl Node for Fake {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.begin("Stage", &request.volume_id).await?;
        let (data, at) = (self.data(&request.volume_id), PathBuf::from(&request.staging_target_path));
        std::fs::create_dir_all(&data).map_err(internal)?;
        if !is_mount_point(&at).unwrap_or(false) {
            bind(&data, &at, false).map_err(|e| internal(std::io::Error::other(e)))?;
        }
        Ok(Response::new(csi::NodeStageVolumeResponse {}))
    }
    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.begin("Unstage", &request.volume_id).await?;
        let at = PathBuf::from(&request.staging_target_path);
        unmount(&at, Unmount::Lazy).map_err(|e| internal(std::io::Error::other(e)))?;
        Ok(Response::new(csi::NodeUnstageVolumeResponse {}))
    }
    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        self.begin("Publish", &request.get_ref().volume_id).await?;
        self.publish(request.get_ref()).map_err(internal)?;
        Ok(Response::new(csi::NodePublishVolumeResponse {}))
    }
    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        self.begin("Unpublish", &request.get_ref().volume_id).await?;
        self.unpublish(&request.get_ref().target_path).map_err(internal)?;
        Ok(Response::new(csi::NodeUnpublishVolumeResponse {}))
    }
    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        use csi::volume_usage::Unit;
        self.begin("Stats", &request.get_ref().volume_id).await?;
        let usage =
            |unit: Unit, total| csi::VolumeUsage { available: total - 1, total, used: 1, unit: unit.into() };
        let message = self.state().condition.clone();
        Ok(Response::new(csi::NodeGetVolumeStatsResponse {
            usage: vec![usage(Unit::Bytes, 100), usage(Unit::Inodes, 10)],
            volume_condition: Some(csi::VolumeCondition {
                abnormal: message.is_some(),
                message: message.unwrap_or_default(),
            }),
        }))
    }
    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.begin("Expand", &request.volume_id).await?;
        let staged = Path::new(&request.staging_target_path).is_dir();
        if !staged || !Path::new(&request.volume_path).is_dir() || request.volume_capability.is_none() {
            return Err(Status::invalid_argument("a path or the capability is missing"));
        }
        let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes + 1);
        Ok(Response::new(csi::NodeExpandVolumeResponse { capacity_bytes }))
    }
    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        use csi::node_service_capability::{Rpc, Type};
        let rpc =
            |can: &Can| csi::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: (*can).into() })) };
        let capabilities = self.state().can.iter().map(rpc).collect();
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities }))
    }
    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let node_id = "fake-node".to_owned();
        Ok(Response::new(csi::NodeGetInfoResponse { node_id, ..Default::default() }))
    }
}
