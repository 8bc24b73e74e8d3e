//! Warnings about settings that are stored but have no effect on any node yet. A job may rely on them, so its
//! submission reports them.

use crate::problem::{Findings, ProblemCode as Code};
use caravan_types::job::{Task, TaskGroup};

/// Adds a warning that names the settings of a task that have no effect, if there is one.
pub(super) fn of_task(task: &Task, warnings: &mut Findings) {
    let labelled = task.volume_mounts.iter().position(|mount| !mount.selinux_label.is_empty());
    if let Some(at) = labelled {
        let path = warnings.path.clone().field("VolumeMounts").index(at).field("SELinuxLabel");
        let text = format!("task \"{}\": kept with the job but without effect yet: selinux_label", task.name);
        warnings.add_at(Code::NoEffect, path, text);
    }
}

/// Adds warnings about settings that only a node of another kind could offer: nodes of this release report no networks of
/// these modes, so that the group is not placed until one does.
pub(super) fn of_group(group: &TaskGroup, warnings: &mut Findings) {
    let path = warnings.path.clone();
    let mut without_effect = Vec::new();
    let mut warn = |path, what: String| {
        let text = format!("no node offers it yet, the group waits for one that does: {what}");
        warnings.add_at(Code::AwaitsNode, path, text);
    };
    for (at, network) in group.networks.iter().enumerate() {
        let named = [("dns", network.dns.is_some()), ("hostname", !network.hostname.is_empty())];
        for (setting, _) in named.into_iter().filter(|(_, is_set)| *is_set) {
            let path = path.clone().field("Networks").index(at);
            let text = format!(
                "group \"{}\": kept with the job but without effect yet: {setting} of a network",
                group.name
            );
            without_effect.push((path, text));
        }
        if !matches!(network.mode.as_str(), "" | "host" | "none" | "bridge") {
            let path = path.clone().field("Networks").index(at).field("Mode");
            warn(path, format!("networks of mode {}", network.mode));
        }
    }
    for (path, text) in without_effect {
        warnings.add_at(Code::NoEffect, path, text);
    }
}

#[cfg(test)]
mod tests {
    use crate::{check, tests::minimal};
    use caravan_types::job::{Network, Numa, RequestedDevice};

    #[test]
    fn what_no_node_offers_is_named() {
        let mut job = minimal();
        let group = &mut job.task_groups[0];
        group.networks = vec![Network { mode: "none".into(), ..Default::default() }];
        assert!(check(&job).warnings.is_empty());
        let group = &mut job.task_groups[0];
        group.networks[0].mode = "bridge".into();
        assert!(check(&job).warnings.is_empty());
        job.task_groups[0].networks[0].dns = Some(Box::default());
        let warned = check(&job).warnings.texts().join("\n");
        assert!(warned.contains("without effect yet: dns of a network"), "{warned}");
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
        let reported = reported.warnings.texts().join("\n");
        assert!(reported.contains("networks of mode cni/mine"), "{reported}");
        assert!(!reported.contains("device"), "nodes offer devices: {reported}");
    }
}
