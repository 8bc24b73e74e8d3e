//! Tests against a real server on a unix socket, with a plugin whose behaviour each test selects.

use crate::*;
use caravan_proto::csi::{
    self,
    controller_server::{Controller, ControllerServer},
    identity_server::{Identity, IdentityServer},
    node_server::{Node, NodeServer},
};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{net::UnixListener, sync::oneshot, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// A plugin whose responses depend on the ids in the request.
#[derive(Clone, Default)]
struct Fake {
    ready: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn probe(&self, _: Request<csi::ProbeRequest>) -> Result<Response<csi::ProbeResponse>, Status> {
        Ok(Response::new(csi::ProbeResponse { ready: Some(self.ready.load(Ordering::SeqCst)) }))
    }

    async fn get_plugin_info(
        &self,
        request: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        // The deadline must reach the plugin, which ends its work at that time.
        if !request.metadata().contains_key("grpc-timeout") {
            return Err(Status::internal("there is no deadline"));
        }
        Ok(Response::new(csi::GetPluginInfoResponse {
            name: "fake.example".to_owned(),
            vendor_version: "1.2.3".to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        use csi::plugin_capability::{Service, Type, VolumeExpansion};
        let capabilities = [
            Type::Service(Service { r#type: 1 }),
            Type::Service(Service { r#type: 77 }),
            Type::VolumeExpansion(VolumeExpansion { r#type: 2 }),
        ]
        .map(|capability| csi::PluginCapability { r#type: Some(capability) });
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities: capabilities.into() }))
    }
}

#[tonic::async_trait]
impl Controller for Fake {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        match request.name.as_str() {
            "refused" => {
                let secret = request.secrets.values().next().cloned().unwrap_or_default();
                Err(Status::unauthenticated(format!("login with {secret} refused")))
            }
            "empty" => Ok(Response::new(csi::CreateVolumeResponse { volume: None })),
            name => {
                let range = request.capacity_range.unwrap_or_default();
                let topology = request.accessibility_requirements.unwrap_or_default().requisite;
                Ok(Response::new(csi::CreateVolumeResponse {
                    volume: Some(csi::Volume {
                        capacity_bytes: range.required_bytes,
                        volume_id: format!("id-of-{name}"),
                        volume_context: request.parameters,
                        content_source: request.volume_content_source,
                        accessible_topology: topology,
                    }),
                }))
            }
        }
    }

    async fn list_volumes(
        &self,
        request: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        let start: usize = request.get_ref().starting_token.parse().unwrap_or(0);
        let entry = csi::list_volumes_response::Entry {
            volume: Some(csi::Volume { volume_id: format!("v{start}"), ..Default::default() }),
            status: None,
        };
        let next_token = if start < 2 { (start + 1).to_string() } else { String::new() };
        Ok(Response::new(csi::ListVolumesResponse { entries: vec![entry], next_token }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<csi::ControllerGetVolumeRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeResponse>, Status> {
        let volume = csi::Volume { volume_id: request.into_inner().volume_id, ..Default::default() };
        let status = csi::controller_get_volume_response::VolumeStatus {
            published_node_ids: vec!["n1".to_owned()],
            volume_condition: Some(csi::VolumeCondition { abnormal: true, message: "it smokes".to_owned() }),
        };
        Ok(Response::new(csi::ControllerGetVolumeResponse { volume: Some(volume), status: Some(status) }))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Result<Response<csi::ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        let secret = request.secrets.values().next().cloned().unwrap_or_default();
        match request.mutable_parameters.get("tier").map(String::as_str) {
            Some("fast") => Ok(Response::new(csi::ControllerModifyVolumeResponse {})),
            _ => Err(Status::invalid_argument(format!("not with {secret}"))),
        }
    }

    async fn get_snapshot(
        &self,
        request: Request<csi::GetSnapshotRequest>,
    ) -> Result<Response<csi::GetSnapshotResponse>, Status> {
        let snapshot = csi::Snapshot {
            snapshot_id: request.into_inner().snapshot_id,
            size_bytes: 7,
            ready_to_use: true,
            ..Default::default()
        };
        Ok(Response::new(csi::GetSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<csi::ValidateVolumeCapabilitiesResponse>, Status> {
        let confirmed = (request.get_ref().volume_id == "good").then(Default::default);
        Ok(Response::new(csi::ValidateVolumeCapabilitiesResponse {
            confirmed,
            message: "no block".to_owned(),
        }))
    }
}

#[tonic::async_trait]
impl Node for Fake {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        match request.get_ref().volume_id.as_str() {
            "busy" => Err(Status::aborted("an operation is pending")),
            "hangs" => std::future::pending().await,
            _ => Ok(Response::new(csi::NodeStageVolumeResponse {})),
        }
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        Ok(Response::new(csi::NodeGetInfoResponse::default()))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let usage =
            csi::VolumeUsage { available: 1, total: 3, used: 2, unit: csi::volume_usage::Unit::Bytes.into() };
        Ok(Response::new(csi::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None }))
    }
}

struct Server {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    ready: Arc<AtomicBool>,
}

impl Server {
    fn start(socket: &PathBuf) -> Self {
        let fake = Fake::default();
        let ready = Arc::clone(&fake.ready);
        let listener = UnixListener::bind(socket).expect("the directory is our own");
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tonic::transport::Server::builder()
            .add_service(IdentityServer::new(fake.clone()))
            .add_service(ControllerServer::new(fake.clone()))
            .add_service(NodeServer::new(fake))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                let _ = stopped.await;
            });
        let task = tokio::spawn(async move { server.await.expect("the server runs") });
        Self { stop, task, ready }
    }

    async fn stop(self, socket: &PathBuf) {
        let _ = self.stop.send(());
        self.task.await.expect("the server ends");
        std::fs::remove_file(socket).expect("the socket file stays behind");
    }
}

fn socket(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("csi.sock")
}

fn stage(volume_id: &str) -> NodeStageRequest {
    NodeStageRequest {
        volume_id: volume_id.to_owned(),
        publish_context: StringMap::new(),
        staging_target_path: PathBuf::from("/staging"),
        capability: VolumeCapability::file_system(AccessMode::SingleNodeWriter),
        secrets: Secrets::default(),
        context: StringMap::new(),
    }
}

#[tokio::test]
async fn identity_answers_and_readiness_follows_the_plugin() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(&socket(&directory));
    let client = CsiClient::new(socket(&directory), Deadlines::default());

    assert_eq!(client.probe().await, Ok(Readiness::NotReady));
    server.ready.store(true, Ordering::SeqCst);
    assert_eq!(client.probe().await, Ok(Readiness::Ready));
    let info = client.get_plugin_info().await.expect("the plugin has a name");
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), ("fake.example", "1.2.3"));

    let capabilities = client.get_plugin_capabilities().await.expect("the plugin has capabilities");
    assert!(capabilities.has(PluginCapability::ControllerService));
    assert!(capabilities.has(PluginCapability::ExpansionOffline));
    assert!(!capabilities.has(PluginCapability::VolumeAccessibilityConstraints));
    assert_eq!(capabilities.unknown().collect::<Vec<_>>(), [77]);
}

/// Checks that a link in place of the socket is not followed: the plugin controls the directory of the
/// socket, and the agent runs as root.
#[tokio::test]
async fn a_link_in_the_place_of_the_socket_leads_nowhere_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let elsewhere = tempfile::tempdir().expect("another directory");
    let _other = Server::start(&socket(&elsewhere));
    let _own = Server::start(&directory.path().join("own.sock"));
    let client = CsiClient::new(socket(&directory), Deadlines::default());
    let link = |target: &std::path::Path| {
        let _none_yet = std::fs::remove_file(socket(&directory));
        std::os::unix::fs::symlink(target, socket(&directory)).expect("a link");
    };
    link(&socket(&elsewhere));
    let error = client.probe().await.expect_err("it leads out");
    assert!(
        matches!(error, CsiError::Unreachable { .. }) && error.to_string().contains("csi.sock"),
        "{error}"
    );
    link(std::path::Path::new("own.sock"));
    client.probe().await.expect("within the directory a link is followed");
}

#[tokio::test]
async fn a_client_made_before_the_plugin_connects_later_and_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let client = CsiClient::new(socket(&directory), Deadlines::default());

    let error = client.probe().await.expect_err("nothing listens");
    assert!(matches!(error, CsiError::Unreachable { .. }), "{error:?}");
    assert!(error.is_retryable() && !error.outcome_unknown());
    assert!(error.to_string().contains("csi.sock"), "{error}");

    for _ in 0..2 {
        let server = Server::start(&socket(&directory));
        assert_eq!(client.probe().await, Ok(Readiness::NotReady));
        server.stop(&socket(&directory)).await;
        let error = client.probe().await.expect_err("the plugin is gone");
        assert!(error.is_retryable(), "{error:?}");
    }
}

#[tokio::test]
async fn a_volume_comes_back_as_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let _server = Server::start(&socket(&directory));
    let client = CsiClient::new(socket(&directory), Deadlines::default());
    let zone: Segments = [("zone".to_owned(), "a".to_owned())].into();
    let volume = client
        .create_volume(CreateVolumeRequest {
            name: "data".to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
            capabilities: vec![VolumeCapability::file_system(AccessMode::MultiNodeMultiWriter)],
            parameters: [("tier".to_owned(), "fast".to_owned())].into(),
            content_source: Some(ContentSource::Snapshot("s1".to_owned())),
            topology: Some(TopologyRequirement { requisite: vec![zone.clone()], preferred: vec![] }),
            ..Default::default()
        })
        .await
        .expect("the plugin makes it");
    assert_eq!(
        volume,
        CreatedVolume {
            volume_id: "id-of-data".to_owned(),
            capacity_bytes: 1 << 30,
            context: [("tier".to_owned(), "fast".to_owned())].into(),
            content_source: Some(ContentSource::Snapshot("s1".to_owned())),
            accessible_topology: vec![zone],
        }
    );
}

#[tokio::test]
async fn errors_carry_the_plugins_words_without_the_secrets() {
    let directory = tempfile::tempdir().expect("a directory");
    let _server = Server::start(&socket(&directory));
    let client = CsiClient::new(socket(&directory), Deadlines::default());

    let request = CreateVolumeRequest {
        name: "refused".to_owned(),
        secrets: Secrets([("password".to_owned(), "hunter2".to_owned())].into()),
        ..Default::default()
    };
    let error = client.create_volume(request).await.expect_err("the plugin refuses");
    assert_eq!(error.to_string(), "CreateVolume failed with UNAUTHENTICATED: login with *** refused");
    assert!(!format!("{error:?}").contains("hunter2"));

    let error = client.node_stage(stage("busy")).await.expect_err("the volume is busy");
    assert_eq!(error.class(), Some(Class::Aborted));
    assert!(error.is_retryable());

    let error = client.delete_volume(DeleteVolumeRequest::default()).await.expect_err("it has no such call");
    assert!(error.is_unimplemented() && !error.is_retryable());

    let request = CreateVolumeRequest { name: "empty".to_owned(), ..Default::default() };
    let error = client.create_volume(request).await.expect_err("there is no volume in the answer");
    assert_eq!(error, CsiError::Malformed { call: Call::CreateVolume, field: "volume" });

    let error = client.node_get_info().await.expect_err("the node id is empty");
    assert_eq!(error, CsiError::Malformed { call: Call::NodeGetInfo, field: "node_id" });
}

#[tokio::test]
async fn a_call_past_its_deadline_fails_and_others_continue() {
    let directory = tempfile::tempdir().expect("a directory");
    let _server = Server::start(&socket(&directory));
    let deadlines = Deadlines { volume: Duration::from_millis(50), ..Deadlines::default() };
    let client = CsiClient::new(socket(&directory), deadlines);

    let error = client.node_stage(stage("hangs")).await.expect_err("it never answers");
    assert_eq!(error, CsiError::Deadline { call: Call::NodeStageVolume, after: Duration::from_millis(50) });
    assert!(error.outcome_unknown());
    assert_eq!(client.probe().await, Ok(Readiness::NotReady));
}

#[tokio::test]
async fn lists_are_paged_and_answers_are_translated() {
    let directory = tempfile::tempdir().expect("a directory");
    let _server = Server::start(&socket(&directory));
    let client = CsiClient::new(socket(&directory), Deadlines::default());

    let mut ids = Vec::new();
    let mut token = Some(String::new());
    while let Some(from) = token {
        let page = client.list_volumes(1, &from).await.expect("the plugin lists");
        ids.extend(page.entries.into_iter().map(|entry| entry.volume.volume_id));
        token = page.next_token;
    }
    assert_eq!(ids, ["v0", "v1", "v2"]);

    let validate =
        |volume_id: &str| ValidateRequest { volume_id: volume_id.to_owned(), ..Default::default() };
    assert_eq!(client.validate_capabilities(validate("good")).await, Ok(Validation::Confirmed));
    assert_eq!(
        client.validate_capabilities(validate("bad")).await,
        Ok(Validation::Refused("no block".to_owned()))
    );

    let stats = client
        .node_get_volume_stats(NodeStatsRequest {
            volume_id: "v".to_owned(),
            volume_path: PathBuf::from("/target"),
            staging_target_path: None,
        })
        .await
        .expect("the plugin counts");
    assert_eq!(stats.bytes, Some(Usage { available: 1, total: 3, used: 2 }));
    assert_eq!(stats.inodes, None);
}

#[tokio::test]
async fn one_volume_and_one_snapshot_can_be_asked_for_and_a_volume_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let _server = Server::start(&socket(&directory));
    let client = CsiClient::new(socket(&directory), Deadlines::default());

    let got = client.controller_get_volume("v").await.expect("the plugin knows it");
    assert_eq!(
        (got.volume.volume_id.as_str(), got.published_node_ids.as_slice()),
        ("v", &["n1".to_owned()][..])
    );
    assert_eq!(got.condition, Some(VolumeCondition { abnormal: true, message: "it smokes".to_owned() }));

    let request = GetSnapshotRequest { snapshot_id: "s".to_owned(), secrets: Secrets::default() };
    let snapshot = client.get_snapshot(request).await.expect("the plugin knows it");
    assert_eq!((snapshot.snapshot_id.as_str(), snapshot.size_bytes, snapshot.ready_to_use), ("s", 7, true));

    let modify = |tier: &str| ControllerModifyRequest {
        volume_id: "v".to_owned(),
        secrets: Secrets([("password".to_owned(), "hunter2".to_owned())].into()),
        mutable_parameters: [("tier".to_owned(), tier.to_owned())].into(),
    };
    assert_eq!(client.controller_modify(modify("fast")).await, Ok(()));
    let error = client.controller_modify(modify("slow")).await.expect_err("the plugin refuses");
    assert_eq!(error.to_string(), "ControllerModifyVolume failed with INVALID_ARGUMENT: not with ***");
}
