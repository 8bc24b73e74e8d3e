//! Warnings about settings that are stored but have no effect on any node yet. A job may rely on them, so its
//! submission reports them.

use crate::problem::{Findings, ProblemCode as Code};
use caravan_types::job::{Task, TaskGroup};

/// Adds a warning that names the settings of a task that have no effect, if the task has any.
pub(super) fn of_task(task: &Task, warnings: &mut Findings) {
    let labelled = task.volume_mounts.iter().position(|mount| !mount.selinux_label.is_empty());
    if let Some(at) = labelled {
        let path = warnings.path.clone().field("VolumeMounts").index(at).field("SELinuxLabel");
        let text = format!("task \"{}\": kept with the job but without effect yet: selinux_label", task.name);
        warnings.add_at(Code::NoEffect, path, text);
    }
}

/// Adds warnings about settings of a group's networks that its allocations cannot have.
pub(super) fn of_group(group: &TaskGroup, warnings: &mut Findings) {
    let path = warnings.path.clone();
    for (at, network) in group.networks.iter().enumerate() {
        if matches!(network.mode.as_str(), "" | "host") && !network.hostname.is_empty() {
            let text = format!(
                "group \"{}\": its allocations will fail: a hostname takes a network of mode bridge, none or cni/NAME",
                group.name
            );
            warnings.add_at(Code::Conflict, path.clone().field("Networks").index(at).field("Hostname"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{check, tests::minimal};
    use caravan_types::job::{Network, Numa, RequestedDevice};

    #[test]
    fn a_hostname_takes_a_network_of_its_own() {
        let mut job = minimal();
        let group = &mut job.task_groups[0];
        group.networks = vec![Network { mode: "none".into(), ..Default::default() }];
        assert!(check(&job).warnings.is_empty());
        let group = &mut job.task_groups[0];
        group.networks[0].mode = "bridge".into();
        assert!(check(&job).warnings.is_empty());
        job.task_groups[0].networks[0].hostname = "web".into();
        job.task_groups[0].networks[0].dns = Some(Box::default());
        assert!(check(&job).warnings.is_empty());
        job.task_groups[0].networks[0].mode = "host".into();
        let warned = check(&job).warnings.texts().join("\n");
        assert!(warned.contains("a hostname takes a network of mode bridge"), "{warned}");
        let group = &mut job.task_groups[0];
        group.networks[0].mode = "cni/mine".into();
        group.tasks[0].resources.devices =
            vec![RequestedDevice { name: "nvidia/gpu".into(), count: 1, ..Default::default() }];
        group.tasks[0].resources.cores = 1;
        group.tasks[0].resources.cpu = 0;
        group.tasks[0].resources.numa =
            Some(Box::new(Numa { affinity: "prefer".into(), devices: Some(vec!["nvidia/gpu".into()]) }));
        let reported = check(&job);
        assert_eq!(reported.errors.texts(), Vec::<String>::new());
        assert!(
            reported.warnings.is_empty(),
            "nodes offer devices and networks: {:?}",
            reported.warnings.texts()
        );
    }
}
