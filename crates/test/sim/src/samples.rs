//! Typical samples of a node, a job and a plugin, which tests and simulations adapt to their needs.
//! This crate depends on the state and the scheduler, but not on the servers. Tests of all of them can
//! therefore use the samples.

use caravan_types::job::{EphemeralDisk, Job, JobType, Task, TaskGroup};
use caravan_types::node::{DriverInfo, Node, NodeStatus};
use caravan_types::plugin::{CsiControllerInfo, CsiInfo, CsiNodeInfo};

/// Returns a ready node with 4000 MHz, 8192 MB of memory, 100 GB of disk and the drivers `raw_exec` and `exec`.
pub fn node(id: &str) -> Node {
    let mut node = Node {
        id: id.into(),
        name: id.into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: NodeStatus::Ready,
        ..Node::default()
    };
    node.attributes.insert("kernel.name".into(), "linux".into());
    node.attributes.insert("unique.network.ip-address".into(), "10.0.0.1".into());
    node.node_resources.cpu.cpu_shares = 4000;
    node.node_resources.cpu.total_cpu_cores = 4;
    node.node_resources.cpu.reservable_cpu_cores = vec![0, 1, 2, 3];
    node.node_resources.memory.memory_mb = 8192;
    node.node_resources.disk.disk_mb = 102_400;
    node.node_resources.min_dynamic_port = 20_000;
    node.node_resources.max_dynamic_port = 32_000;
    for driver in ["raw_exec", "exec"] {
        let info = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
        node.drivers.insert(driver.into(), info);
    }
    node
}

/// Returns a job of one group `g` with one task `t` of 100 MHz, 100 MB of memory and 100 MB of disk under `raw_exec`.
pub fn job(id: &str, kind: JobType, count: u32) -> Job {
    let mut task = Task { name: "t".into(), driver: "raw_exec".into(), ..Task::default() };
    task.resources.cpu = 100;
    task.resources.memory_mb = 100;
    let group = TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![task],
        ephemeral_disk: Some(EphemeralDisk { size_mb: 100, ..EphemeralDisk::default() }),
        ..TaskGroup::default()
    };
    Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        region: "global".into(),
        kind,
        priority: 50,
        datacenters: vec!["*".into()],
        node_pool: "default".into(),
        task_groups: vec![group],
        ..Job::default()
    }
}

/// Returns a node's reports of a healthy plugin with a controller that attaches: its node service and its controller.
/// The node may have `max_volumes` volumes at a time; 0 means no limit.
pub fn plugin_on(node: &str, plugin: &str, max_volumes: i64) -> (CsiInfo, CsiInfo) {
    let info = CsiInfo {
        plugin_id: plugin.into(),
        healthy: true,
        requires_controller_plugin: true,
        node_info: Some(CsiNodeInfo { id: format!("csi-{node}"), max_volumes, ..CsiNodeInfo::default() }),
        ..CsiInfo::default()
    };
    let controller = CsiInfo {
        controller_info: Some(CsiControllerInfo {
            supports_attach_detach: true,
            ..CsiControllerInfo::default()
        }),
        node_info: None,
        ..info.clone()
    };
    (info, controller)
}
