//! The rows at the beginning of a simulation: nodes, a volume, and jobs.

use caravan_types::job::{
    EphemeralDisk, Job, JobType, ReschedulePolicy, Resources, RestartPolicy, Task, TaskGroup, VolumeRequest,
    VolumeType,
};
use caravan_types::node::{DriverInfo, Node, NodeSecret};
use caravan_types::plugin::{CsiInfo, CsiNodeInfo};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, VolumeRequestBody};
use caravan_types::{JobKey, Nanos, NodeId, VolumeKey};

const PLUGIN: &str = "disk";
const VOLUME: &str = "data";
/// The setting of a job in which users count their writes.
pub(super) const MARK: &str = "mark";

/// The jobs that users register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobName {
    /// A service with two allocations.
    Web,
    /// A service with one allocation, which writes to a single-writer volume.
    Writer,
    /// A batch job of three allocations that end.
    Batch,
}

impl JobName {
    pub(super) const ALL: [Self; 3] = [Self::Web, Self::Writer, Self::Batch];

    pub(super) fn key(self) -> JobKey {
        JobKey::new("default", self.id())
    }

    fn id(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Writer => "writer",
            Self::Batch => "batch",
        }
    }

    pub(super) fn count(self) -> usize {
        match self {
            Self::Web => 2,
            Self::Writer => 1,
            Self::Batch => 3,
        }
    }
}

pub(super) fn volume_key() -> VolumeKey {
    VolumeKey::new("default", VOLUME)
}

pub(super) fn node_id(number: u32) -> NodeId {
    NodeId::new(format!("node-{number}"))
}

/// Returns a node with one driver and the node service of a plugin that does not attach volumes.
pub(super) fn node(number: u32) -> Node {
    let mut node = Node {
        id: node_id(number),
        secret_id: NodeSecret::new(format!("secret-{number}")),
        name: format!("n{number}").into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        ..Node::default()
    };
    let driver = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
    node.drivers.insert("raw_exec".into(), driver);
    node.node_resources.cpu.cpu_shares = 4000;
    node.node_resources.memory.memory_mb = 8192;
    node.node_resources.disk.disk_mb = 50_000;
    let service =
        CsiNodeInfo { id: format!("csi-{number}"), max_volumes: i64::MAX, ..CsiNodeInfo::default() };
    let plugin = CsiInfo {
        plugin_id: PLUGIN.into(),
        healthy: true,
        provider: "disk.example".into(),
        provider_version: "1".into(),
        node_info: Some(service),
        ..CsiInfo::default()
    };
    node.csi_node_plugins.insert(PLUGIN.into(), plugin);
    node
}

/// Returns a volume that one node may write.
pub(super) fn volume() -> VolumeRequestBody {
    VolumeRequestBody {
        id: VOLUME.into(),
        name: VOLUME.into(),
        external_id: "external".into(),
        plugin_id: PLUGIN.into(),
        requested_capabilities: vec![Capability {
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
        }],
        ..VolumeRequestBody::default()
    }
}

/// Returns a job with a mark.
pub(super) fn job(name: JobName, mark: u64) -> Job {
    let task = Task {
        name: "t".into(),
        driver: "raw_exec".into(),
        resources: Resources { cpu: 100, memory_mb: 100, ..Resources::default() },
        kill_timeout: Nanos::from_secs(1),
        ..Task::default()
    };
    let restart = RestartPolicy {
        attempts: 0,
        interval: Nanos::from_secs(1800),
        delay: Nanos::from_secs(15),
        ..RestartPolicy::default()
    };
    let reschedule = ReschedulePolicy {
        delay: Nanos::from_secs(5),
        delay_function: "constant".into(),
        unlimited: true,
        ..ReschedulePolicy::default()
    };
    let mut group = TaskGroup {
        name: "g".into(),
        count: name.count().try_into().unwrap_or(1),
        restart_policy: Some(restart),
        reschedule_policy: Some(reschedule),
        ephemeral_disk: Some(EphemeralDisk::default()),
        tasks: vec![task],
        ..TaskGroup::default()
    };
    if name == JobName::Writer {
        let request = VolumeRequest {
            name: VOLUME.into(),
            kind: VolumeType::Csi,
            source: VOLUME.into(),
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
            ..VolumeRequest::default()
        };
        group.volumes.insert(VOLUME.into(), request);
    }
    let kind = if name == JobName::Batch { JobType::Batch } else { JobType::Service };
    let mut job = Job {
        id: name.id().into(),
        name: name.id().into(),
        kind,
        region: "global".into(),
        namespace: "default".into(),
        node_pool: "default".into(),
        priority: 50,
        datacenters: vec!["*".into()],
        task_groups: vec![group],
        ..Job::default()
    };
    job.meta.insert(MARK.into(), mark.to_string());
    job
}

/// Returns the mark of a job; zero without one.
pub(super) fn mark(job: &Job) -> u64 {
    job.meta.get(MARK).and_then(|mark| mark.parse().ok()).unwrap_or(0)
}
