//! One volume with all calls of its life.

use caravan_csi::*;
use std::path::Path;

/// A volume, its use, and all calls of its life.
pub struct Volume {
    pub client: CsiClient,
    pub made: CreatedVolume,
    pub capability: VolumeCapability,
}

pub fn mounted() -> VolumeCapability {
    VolumeCapability::file_system(AccessMode::SingleNodeWriter)
}

pub fn device() -> VolumeCapability {
    VolumeCapability::block_device(AccessMode::SingleNodeWriter)
}

pub fn request(
    name: &str,
    bytes: u64,
    capability: &VolumeCapability,
    parameters: &[(&str, &str)],
) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        capabilities: vec![capability.clone()],
        parameters: map(parameters),
        ..Default::default()
    }
}

impl Volume {
    pub async fn make(client: &CsiClient, request: CreateVolumeRequest) -> Self {
        let capability = request.capabilities[0].clone();
        let made = client.create_volume(request).await.expect("it is made");
        Self { client: client.clone(), made, capability }
    }

    pub fn id(&self) -> String {
        self.made.volume_id.clone()
    }

    pub async fn stage(&self, staging: &Path) -> Result<(), CsiError> {
        let request = NodeStageRequest {
            volume_id: self.id(),
            publish_context: StringMap::new(),
            staging_target_path: staging.to_owned(),
            capability: self.capability.clone(),
            secrets: Secrets::default(),
            context: StringMap::new(),
        };
        self.client.node_stage(request).await
    }

    pub async fn publish(&self, staging: &Path, target: &Path, readonly: bool) -> Result<(), CsiError> {
        let request = NodePublishRequest {
            volume_id: self.id(),
            publish_context: StringMap::new(),
            staging_target_path: Some(staging.to_owned()),
            target_path: target.to_owned(),
            capability: self.capability.clone(),
            readonly,
            secrets: Secrets::default(),
            context: StringMap::new(),
        };
        self.client.node_publish(request).await
    }

    pub async fn unpublish(&self, target: &Path) {
        let request = NodeUnpublishRequest { volume_id: self.id(), target_path: target.to_owned() };
        self.client.node_unpublish(request).await.expect("it is unpublished");
    }

    pub async fn unstage(&self, staging: &Path) {
        let request = NodeUnstageRequest { volume_id: self.id(), staging_target_path: staging.to_owned() };
        self.client.node_unstage(request).await.expect("it is unstaged");
    }

    pub async fn expand(
        &self,
        required_bytes: u64,
        limit_bytes: u64,
    ) -> Result<ControllerExpanded, CsiError> {
        let request = ControllerExpandRequest {
            volume_id: self.id(),
            capacity_range: CapacityRange { required_bytes, limit_bytes },
            secrets: Secrets::default(),
            capability: Some(self.capability.clone()),
        };
        self.client.controller_expand(request).await
    }

    pub async fn expand_on_node(&self, path: &Path, required_bytes: u64) -> Result<u64, CsiError> {
        let request = NodeExpandRequest {
            volume_id: self.id(),
            volume_path: path.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            staging_target_path: None,
            capability: Some(self.capability.clone()),
            secrets: Secrets::default(),
        };
        self.client.node_expand(request).await
    }

    pub async fn snapshot(&self, name: &str) -> Result<Snapshot, CsiError> {
        let request = CreateSnapshotRequest {
            source_volume_id: self.id(),
            name: name.to_owned(),
            ..Default::default()
        };
        self.client.create_snapshot(request).await
    }

    pub async fn usage(&self, path: &Path) -> Usage {
        let request = NodeStatsRequest {
            volume_id: self.id(),
            volume_path: path.to_owned(),
            staging_target_path: None,
        };
        self.client.node_get_volume_stats(request).await.expect("it answers").bytes.expect("it counts bytes")
    }

    pub async fn modify(&self, parameters: &[(&str, &str)]) -> Result<(), CsiError> {
        let request = ControllerModifyRequest {
            volume_id: self.id(),
            mutable_parameters: map(parameters),
            ..Default::default()
        };
        self.client.controller_modify(request).await
    }

    pub async fn delete(&self) {
        let request = DeleteVolumeRequest { volume_id: self.id(), secrets: Secrets::default() };
        self.client.delete_volume(request).await.expect("it is deleted");
    }
}

pub fn class<T: std::fmt::Debug>(result: Result<T, CsiError>) -> Option<Class> {
    result.expect_err("it is refused").class()
}

pub fn from(content: ContentSource, name: &str, capability: &VolumeCapability) -> CreateVolumeRequest {
    CreateVolumeRequest { content_source: Some(content), ..request(name, 0, capability, &[]) }
}

/// Returns the parameters of a request as a map.
pub fn map(pairs: &[(&str, &str)]) -> StringMap {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
