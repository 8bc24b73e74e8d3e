//! The plugin under test, and calls with all fields that a caller must send.

use super::{Report, Settings};
use anyhow::{Context, Result};
use caravan_csi::{
    AttachmentMode, CapabilitySet, CapacityRange, Class, ContentSource, ControllerCapability,
    ControllerExpandRequest, ControllerExpanded, ControllerPublishRequest, ControllerUnpublishRequest,
    CreateSnapshotRequest, CreateVolumeRequest, CreatedVolume, CsiClient, CsiError, Deadlines,
    DeleteSnapshotRequest, DeleteVolumeRequest, NodeCapability, NodeExpandRequest, NodeInfo,
    NodePublishRequest, NodeStageRequest, NodeStatsRequest, NodeUnpublishRequest, NodeUnstageRequest,
    PluginCapability, Snapshot, StringMap, VolumeCapability, VolumeStats,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A deadline that no plugin can meet.
const HURRY: Duration = Duration::from_millis(1);

/// The features that the plugin reports.
pub(super) struct Offered {
    pub(super) plugin: CapabilitySet<PluginCapability>,
    /// The controller's capabilities; empty without a controller.
    pub(super) controller: CapabilitySet<ControllerCapability>,
    pub(super) node: CapabilitySet<NodeCapability>,
}

impl Offered {
    pub(super) fn creates(&self) -> bool {
        self.controller.has(ControllerCapability::CreateDeleteVolume)
    }

    pub(super) fn attaches(&self) -> bool {
        self.controller.has(ControllerCapability::PublishUnpublishVolume)
    }

    pub(super) fn stages(&self) -> bool {
        self.node.has(NodeCapability::StageUnstageVolume)
    }
}

/// The plugin under test.
pub(super) struct Bench<'a> {
    pub(super) client: CsiClient,
    /// A client of the same plugin, with a deadline that no call meets.
    pub(super) hurried: CsiClient,
    pub(super) offered: Offered,
    pub(super) node: NodeInfo,
    pub(super) settings: &'a Settings,
    /// A name that no earlier run had.
    pub(super) run: String,
    /// The directory in which this run mounts.
    pub(super) directory: tempfile::TempDir,
    pub(super) report: &'a mut Report,
}

/// Returns deadlines that no call meets.
pub(super) fn hurried() -> Deadlines {
    Deadlines { volume: HURRY, stats: HURRY, ..Deadlines::default() }
}

/// Retries a call while the plugin responds that another call is in progress.
pub(super) async fn patiently<T, F>(patience: Duration, mut call: impl FnMut() -> F) -> Result<T, CsiError>
where
    F: Future<Output = Result<T, CsiError>>,
{
    let deadline = Instant::now() + patience;
    loop {
        match call().await {
            Err(error) if error.class() == Some(Class::Aborted) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            result => return result,
        }
    }
}

/// A volume in use, with the steps to undo.
pub(super) struct Volume {
    pub(super) made: CreatedVolume,
    pub(super) capability: VolumeCapability,
    pub(super) context: StringMap,
    pub(super) staging: PathBuf,
    pub(super) targets: PathBuf,
}

impl Volume {
    pub(super) fn id(&self) -> String {
        self.made.volume_id.clone()
    }

    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.targets.join(name)
    }

    pub(super) fn is_device(&self) -> bool {
        self.capability.attachment_mode == AttachmentMode::BlockDevice
    }
}

impl Bench<'_> {
    pub(super) fn name(&self, name: &str) -> String {
        format!("conformance-{}-{name}", self.run)
    }

    pub(super) fn creation(&self, name: &str, capability: &VolumeCapability) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: self.name(name),
            capacity_range: Some(CapacityRange { required_bytes: self.settings.size, limit_bytes: 0 }),
            capabilities: vec![capability.clone()],
            parameters: self.settings.parameters.clone(),
            secrets: self.settings.secrets.clone(),
            ..Default::default()
        }
    }

    pub(super) async fn create(&self, request: CreateVolumeRequest) -> Result<CreatedVolume, CsiError> {
        patiently(self.settings.patience, || self.client.create_volume(request.clone())).await
    }

    /// Returns the request for a copy with another name.
    pub(super) fn copy(&self, name: &str, of: &Volume, content: ContentSource) -> CreateVolumeRequest {
        CreateVolumeRequest {
            capacity_range: Some(CapacityRange {
                required_bytes: of.made.capacity_bytes.max(self.settings.size),
                limit_bytes: 0,
            }),
            content_source: Some(content),
            ..self.creation(name, &of.capability)
        }
    }

    /// Returns a volume with its paths.
    pub(super) fn volume(
        &self,
        made: CreatedVolume,
        capability: &VolumeCapability,
        name: &str,
    ) -> Result<Volume> {
        let place = self.directory.path().join(name);
        let (staging, targets) = (place.join("staging"), place.join("targets"));
        for directory in [&staging, &targets] {
            fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        let context = StringMap::new();
        Ok(Volume { made, capability: capability.clone(), context, staging, targets })
    }

    pub(super) fn delete_request(&self, id: String) -> DeleteVolumeRequest {
        DeleteVolumeRequest { volume_id: id, secrets: self.settings.secrets.clone() }
    }

    pub(super) async fn delete(&self, id: &str) -> Result<(), CsiError> {
        patiently(self.settings.patience, || self.client.delete_volume(self.delete_request(id.to_owned())))
            .await
    }

    pub(super) async fn attach(&self, volume: &Volume) -> Result<StringMap, CsiError> {
        self.attach_to(volume, &self.node.node_id).await
    }

    pub(super) async fn attach_to(&self, volume: &Volume, node: &str) -> Result<StringMap, CsiError> {
        let request = ControllerPublishRequest {
            volume_id: volume.id(),
            node_id: node.to_owned(),
            capability: volume.capability.clone(),
            readonly: false,
            secrets: self.settings.secrets.clone(),
            context: volume.made.context.clone(),
        };
        patiently(self.settings.patience, || self.client.controller_publish(request.clone())).await
    }

    pub(super) async fn detach(&self, volume: &Volume) -> Result<(), CsiError> {
        let request = ControllerUnpublishRequest {
            volume_id: volume.id(),
            node_id: self.node.node_id.clone(),
            secrets: self.settings.secrets.clone(),
        };
        patiently(self.settings.patience, || self.client.controller_unpublish(request.clone())).await
    }

    pub(super) fn stage_request(&self, volume: &Volume) -> NodeStageRequest {
        NodeStageRequest {
            volume_id: volume.id(),
            publish_context: volume.context.clone(),
            staging_target_path: volume.staging.clone(),
            capability: volume.capability.clone(),
            secrets: self.settings.secrets.clone(),
            context: volume.made.context.clone(),
        }
    }

    pub(super) async fn stage(&self, volume: &Volume) -> Result<(), CsiError> {
        patiently(self.settings.patience, || self.client.node_stage(self.stage_request(volume))).await
    }

    pub(super) async fn unstage(&self, volume: &Volume) -> Result<(), CsiError> {
        let request =
            NodeUnstageRequest { volume_id: volume.id(), staging_target_path: volume.staging.clone() };
        patiently(self.settings.patience, || self.client.node_unstage(request.clone())).await
    }

    pub(super) fn publish_request(
        &self,
        volume: &Volume,
        target: &Path,
        readonly: bool,
    ) -> NodePublishRequest {
        NodePublishRequest {
            volume_id: volume.id(),
            publish_context: volume.context.clone(),
            staging_target_path: self.offered.stages().then(|| volume.staging.clone()),
            target_path: target.to_owned(),
            capability: volume.capability.clone(),
            readonly,
            secrets: self.settings.secrets.clone(),
            context: volume.made.context.clone(),
        }
    }

    pub(super) async fn publish(
        &self,
        volume: &Volume,
        target: &Path,
        readonly: bool,
    ) -> Result<(), CsiError> {
        let request = self.publish_request(volume, target, readonly);
        patiently(self.settings.patience, || self.client.node_publish(request.clone())).await
    }

    pub(super) fn unpublish_request(&self, volume: &Volume, target: &Path) -> NodeUnpublishRequest {
        NodeUnpublishRequest { volume_id: volume.id(), target_path: target.to_owned() }
    }

    pub(super) async fn unpublish(&self, volume: &Volume, target: &Path) -> Result<(), CsiError> {
        let request = self.unpublish_request(volume, target);
        patiently(self.settings.patience, || self.client.node_unpublish(request.clone())).await
    }

    pub(super) async fn stats(&self, volume: &Volume, path: &Path) -> Result<VolumeStats, CsiError> {
        let request = NodeStatsRequest {
            volume_id: volume.id(),
            volume_path: path.to_owned(),
            staging_target_path: self.offered.stages().then(|| volume.staging.clone()),
        };
        patiently(self.settings.patience, || self.client.node_get_volume_stats(request.clone())).await
    }

    pub(super) async fn expand(
        &self,
        volume: &Volume,
        range: CapacityRange,
    ) -> Result<ControllerExpanded, CsiError> {
        let request = ControllerExpandRequest {
            volume_id: volume.id(),
            capacity_range: range,
            secrets: self.settings.secrets.clone(),
            capability: Some(volume.capability.clone()),
        };
        patiently(self.settings.patience, || self.client.controller_expand(request.clone())).await
    }

    pub(super) async fn expand_on_node(
        &self,
        volume: &Volume,
        path: &Path,
        bytes: u64,
    ) -> Result<u64, CsiError> {
        let request = NodeExpandRequest {
            volume_id: volume.id(),
            volume_path: path.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: self.offered.stages().then(|| volume.staging.clone()),
            capability: Some(volume.capability.clone()),
            secrets: self.settings.secrets.clone(),
        };
        patiently(self.settings.patience, || self.client.node_expand(request.clone())).await
    }

    pub(super) async fn snapshot(&self, volume: &Volume, name: &str) -> Result<Snapshot, CsiError> {
        let request = CreateSnapshotRequest {
            source_volume_id: volume.id(),
            name: self.name(name),
            secrets: self.settings.secrets.clone(),
            parameters: StringMap::new(),
        };
        patiently(self.settings.patience, || self.client.create_snapshot(request.clone())).await
    }

    pub(super) async fn delete_snapshot(&self, id: &str) -> Result<(), CsiError> {
        let request =
            DeleteSnapshotRequest { snapshot_id: id.to_owned(), secrets: self.settings.secrets.clone() };
        patiently(self.settings.patience, || self.client.delete_snapshot(request.clone())).await
    }

    /// Creates a volume and publishes it at a target, without checks.
    pub(super) async fn bring(&self, volume: &mut Volume, target: &Path) -> Result<(), CsiError> {
        if self.offered.attaches() {
            volume.context = self.attach(volume).await?;
        }
        if self.offered.stages() {
            self.stage(volume).await?;
        }
        self.publish(volume, target, false).await
    }

    /// Undoes every step for a volume; reports the steps that cannot be undone.
    pub(super) async fn clear(&mut self, volume: &Volume) {
        let mut problems = Vec::new();
        let targets: Vec<PathBuf> =
            fs::read_dir(&volume.targets).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        for target in targets {
            problems.extend(self.unpublish(volume, &target).await.err());
        }
        if self.offered.stages() {
            problems.extend(self.unstage(volume).await.err());
        }
        if self.offered.attaches() {
            problems.extend(self.detach(volume).await.err());
        }
        problems.extend(self.delete(&volume.made.volume_id).await.err());
        for problem in problems {
            self.report.note("cleaning up", problem.to_string());
        }
    }
}
