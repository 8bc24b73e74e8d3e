//! Warnings about settings that are stored but have no effect on any node yet. A job may rely on them, so its
//! submission reports them.

use crate::task::numa_devices;
use caravan_types::job::{Task, TaskGroup};

/// Returns a warning that names the task's settings without effect; `None` if there are none.
pub(super) fn of_task(task: &Task) -> Option<String> {
    let labelled = task.volume_mounts.iter().any(|mount| !mount.selinux_label.is_empty());
    let near = task.resources.numa.as_ref().is_some_and(|numa| numa_devices(numa).next().is_some());
    let names =
        [("selinux_label", labelled), ("devices of numa", near)].into_iter().filter(|(_, there)| *there);
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| {
        format!("task \"{}\": kept with the job but without effect yet: {}", task.name, names.join(", "))
    })
}

/// Returns warnings about devices and network modes. Nodes of this release offer neither, so the
/// group is not placed until a node does.
pub(super) fn of_group(group: &TaskGroup) -> Vec<String> {
    let modes = group.networks.iter().map(|network| network.mode.as_str());
    let modes = modes.filter(|mode| !matches!(*mode, "" | "host" | "none"));
    let devices = group.tasks.iter().flat_map(|task| &task.resources.devices);
    let wanted = modes
        .map(|mode| format!("networks of mode {mode}"))
        .chain(devices.map(|device| format!("device {}", device.name)));
    wanted.map(|what| format!("no node offers it yet, the group waits for one that does: {what}")).collect()
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
        let told = check(&job);
        assert_eq!(told.errors, Vec::<String>::new());
        let told = told.warnings.join("\n");
        assert!(told.contains("networks of mode bridge") && told.contains("device nvidia/gpu"), "{told}");
    }
}
