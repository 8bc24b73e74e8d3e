//! The rows with which the tests begin.

use caravan_types::job::{
    EphemeralDisk, Job, JobType, Network, Port, Resources, RestartPolicy, Task, TaskGroup, VolumeRequest,
    VolumeType,
};
use caravan_types::node::{DriverInfo, Node, NodeSecret};
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, VolumeRequestBody};
use caravan_types::{JobKey, Nanos, VolumeKey};

pub const PLUGIN: &str = "disk";

pub fn job_key(id: &str) -> JobKey {
    JobKey::new("default", id)
}

pub fn volume_key(id: &str) -> VolumeKey {
    VolumeKey::new("default", id)
}

/// Returns a service with one small task.
pub fn job(id: &str) -> Job {
    let task = Task {
        name: "t".into(),
        driver: "raw_exec".into(),
        resources: Resources { cpu: 100, memory_mb: 100, ..Default::default() },
        kill_timeout: Nanos::from_secs(5),
        ..Default::default()
    };
    let restart = RestartPolicy {
        attempts: 2,
        interval: Nanos::from_secs(1800),
        delay: Nanos::from_secs(15),
        ..Default::default()
    };
    let group = TaskGroup {
        name: "g".into(),
        count: 1,
        restart_policy: Some(restart),
        ephemeral_disk: Some(EphemeralDisk::default()),
        tasks: vec![task],
        ..Default::default()
    };
    Job {
        id: id.into(),
        name: id.into(),
        region: "global".into(),
        namespace: "default".into(),
        node_pool: "default".into(),
        priority: 50,
        datacenters: vec!["*".into()],
        task_groups: vec![group],
        ..Default::default()
    }
}

/// Returns a job with one allocation on every node.
pub fn system_job(id: &str) -> Job {
    Job { kind: JobType::System, ..job(id) }
}

/// Returns a job of which a node of [`node`] has room for exactly one allocation.
pub fn big_job(id: &str) -> Job {
    let mut job = job(id);
    job.task_groups[0].tasks[0].resources.memory_mb = 3000;
    job
}

/// Returns a job with a static port.
pub fn port_job(id: &str, port: i64) -> Job {
    let mut job = job(id);
    let port = Port { label: "p".into(), value: port, ..Default::default() };
    job.task_groups[0].networks.push(Network {
        mode: "host".into(),
        reserved_ports: vec![port],
        ..Default::default()
    });
    job
}

/// Returns a job whose one allocation writes a volume.
pub fn writer(id: &str, volume: &str) -> Job {
    let mut job = job(id);
    job.task_groups[0].volumes.insert(
        "data".into(),
        VolumeRequest {
            name: "data".into(),
            kind: VolumeType::Csi,
            source: volume.into(),
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
            ..Default::default()
        },
    );
    job
}

/// Returns the job, constrained to one node.
pub fn pinned(mut job: Job, node: &str) -> Job {
    job.constraints.push(caravan_types::job::Constraint {
        l_target: "${node.unique.name}".into(),
        r_target: node.into(),
        operand: "=".into(),
    });
    job
}

/// Returns a node with one healthy driver and no plugin.
pub fn node(name: &str) -> Node {
    let mut node = Node {
        id: format!("{name}-node").into(),
        secret_id: NodeSecret::new(format!("{name}-secret")),
        name: name.into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        ..Default::default()
    };
    node.drivers
        .insert("raw_exec".into(), DriverInfo { detected: true, healthy: true, ..Default::default() });
    node.node_resources.cpu.cpu_shares = 4000;
    node.node_resources.memory.memory_mb = 4096;
    node.node_resources.disk.disk_mb = 50_000;
    node
}

/// Returns a node that runs both services of the plugin. With `attaches`, its controller attaches volumes.
pub fn storage_node(name: &str, attaches: bool) -> Node {
    with_node_plugin(with_controller(node(name), attaches))
}

fn info() -> CsiInfo {
    CsiInfo {
        plugin_id: PLUGIN.into(),
        healthy: true,
        provider: "disk.example".into(),
        provider_version: "1".into(),
        requires_controller_plugin: true,
        ..Default::default()
    }
}

pub fn with_controller(mut node: Node, attaches: bool) -> Node {
    let controller = CsiControllerInfo {
        supports_create_delete: true,
        supports_attach_detach: attaches,
        supports_list_volumes: true,
        supports_create_delete_snapshot: true,
        supports_list_snapshots: true,
        supports_expand: true,
        ..Default::default()
    };
    node.csi_controller_plugins
        .insert(PLUGIN.into(), CsiInfo { controller_info: Some(controller), ..info() });
    node
}

/// Returns the node with a controller that lists the nodes of its volumes.
pub fn with_listed_nodes(mut node: Node) -> Node {
    let controllers =
        node.csi_controller_plugins.values_mut().filter_map(|info| info.controller_info.as_mut());
    controllers.for_each(|info| info.supports_list_volumes_attached_nodes = true);
    node
}

pub fn with_node_plugin(mut node: Node) -> Node {
    let service =
        CsiNodeInfo { id: format!("csi-{}", node.name), max_volumes: i64::MAX, ..Default::default() };
    node.csi_node_plugins.insert(PLUGIN.into(), CsiInfo { node_info: Some(service), ..info() });
    node
}

/// Returns the node with another health of its plugin.
pub fn with_health(mut node: Node, healthy: bool) -> Node {
    let plugins = node.csi_controller_plugins.values_mut().chain(node.csi_node_plugins.values_mut());
    for info in plugins {
        info.healthy = healthy;
    }
    node
}

/// Returns a volume for one writer.
pub fn volume(id: &str) -> VolumeRequestBody {
    VolumeRequestBody {
        id: id.into(),
        name: id.into(),
        plugin_id: PLUGIN.into(),
        requested_capacity_min: 1,
        requested_capabilities: vec![Capability {
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
        }],
        ..Default::default()
    }
}
