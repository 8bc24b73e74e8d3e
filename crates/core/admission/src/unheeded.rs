//! Warnings about settings that are stored but have no effect on any node yet. A job may rely on them, so its
//! submission reports them.

use crate::problem::{Findings, ProblemCode as Code};
use crate::task::numa_devices;
use caravan_types::job::{Task, TaskGroup};

/// Adds a warning that names the settings of a task that have no effect, if there is one.
pub(super) fn of_task(task: &Task, warnings: &mut Findings) {
    let labelled = task.volume_mounts.iter().position(|mount| !mount.selinux_label.is_empty());
    let near = task.resources.numa.as_ref().is_some_and(|numa| numa_devices(numa).next().is_some());
    let path = warnings.path.clone();
    let label = labelled
        .map(|at| ("selinux_label", path.clone().field("VolumeMounts").index(at).field("SELinuxLabel")));
    let devices = near.then(|| ("devices of numa", path.field("Resources.NUMA.Devices")));
    let all: Vec<_> = label.into_iter().chain(devices).collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    if let Some((_, path)) = all.first() {
        let text =
            format!("task \"{}\": kept with the job but without effect yet: {}", task.name, names.join(", "));
        warnings.add_at(Code::NoEffect, path.clone(), text);
    }
}

/// Adds warnings about settings that only a node of another kind could offer: nodes of this release report neither
/// devices nor networks of these modes, so that the group is not placed until one does.
pub(super) fn of_group(group: &TaskGroup, warnings: &mut Findings) {
    let path = warnings.path.clone();
    let mut warn = |path, what: String| {
        let text = format!("no node offers it yet, the group waits for one that does: {what}");
        warnings.add_at(Code::AwaitsNode, path, text);
    };
    for (at, network) in group.networks.iter().enumerate() {
        if !matches!(network.mode.as_str(), "" | "host" | "none") {
            let path = path.clone().field("Networks").index(at).field("Mode");
            warn(path, format!("networks of mode {}", network.mode));
        }
    }
    for (at, task) in group.tasks.iter().enumerate() {
        let path = path.clone().field("Tasks").index(at).field("Resources.Devices");
        for (at, device) in task.resources.devices.iter().enumerate() {
            warn(path.clone().index(at).field("Name"), format!("device {}", device.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{check, tests::minimal};
    use caravan_types::job::{Network, RequestedDevice};

    #[test]
    fn what_no_node_offers_is_named() {
        let mut job = minimal();
        let group = &mut job.task_groups[0];
        group.networks = vec![Network { mode: "none".into(), ..Default::default() }];
        assert!(check(&job).warnings.is_empty());
        let group = &mut job.task_groups[0];
        group.networks[0].mode = "bridge".into();
        group.tasks[0].resources.devices =
            vec![RequestedDevice { name: "nvidia/gpu".into(), count: 1, ..Default::default() }];
        let reported = check(&job);
        assert_eq!(reported.errors.texts(), Vec::<String>::new());
        let reported = reported.warnings.texts().join("\n");
        assert!(
            reported.contains("networks of mode bridge") && reported.contains("device nvidia/gpu"),
            "{reported}"
        );
    }
}
