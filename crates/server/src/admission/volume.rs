//! Rules for volume requests and mounts.

use caravan_types::job::{BrokenMount, Job, PropagationMode, Task, TaskGroup, VolumeRequest, VolumeType};
use caravan_types::volume::{AccessMode, AttachmentMode};

pub(super) fn requests(job: &Job, group: &TaskGroup, errors: &mut Vec<String>) {
    for (name, request) in &group.volumes {
        let mut found = Vec::new();
        one(job, group, request, &mut found);
        errors.extend(
            found.into_iter().map(|e| format!("Task group volume validation for {name} failed: {e}")),
        );
    }
}

fn one(job: &Job, group: &TaskGroup, request: &VolumeRequest, errors: &mut Vec<String>) {
    if request.source.is_empty() {
        errors.push("volume has an empty source".into());
    } else if request.source.contains(['/', '\0']) || request.source == "." || request.source == ".." {
        errors.push(format!("volume source \"{}\" cannot be the name of a directory", request.source));
    }
    if request.per_alloc {
        if job.kind.is_system() {
            errors.push("volume cannot be per_alloc for system or sysbatch jobs".into());
        }
        if group.update.as_ref().is_some_and(|u| u.canary > 0) {
            errors.push("volume cannot be per_alloc when canaries are in use".into());
        }
        if request.sticky {
            errors.push("volume cannot be per_alloc and sticky at the same time".into());
        }
    }
    match request.kind {
        VolumeType::Host => host(request, errors),
        VolumeType::Csi => csi(group, request, errors),
    }
    owner(request, errors);
}

/// Owner and mode of the volume's root, and what becomes of a broken mount. Names of users are the node's to know.
fn owner(request: &VolumeRequest, errors: &mut Vec<String>) {
    for (field, value) in [("user", &request.user), ("group", &request.group)] {
        if value.contains([':', '/', '\0']) || value.contains(char::is_whitespace) {
            errors.push(format!("volume has an invalid {field} \"{value}\": it must be one name or number"));
        }
    }
    // A sign is a number's, not a mode's.
    let octal =
        |mode: &str| !mode.starts_with('+') && u32::from_str_radix(mode, 8).is_ok_and(|bits| bits <= 0o7777);
    if !request.mode.is_empty() && !octal(&request.mode) {
        errors.push(format!(
            "volume has an invalid mode \"{}\": it must be octal and at most 7777, for example \"0750\"",
            request.mode
        ));
    }
    let asked = !(request.user.is_empty() && request.mode.is_empty());
    if request.kind == VolumeType::Host {
        if asked || !request.group.is_empty() {
            errors.push(
                "host volumes cannot have a user, group or mode: they are as they are on the node".into(),
            );
        }
        if request.broken_mount != BrokenMount::Hold {
            errors.push("host volumes cannot have a broken_mount policy: nothing is mounted for them".into());
        }
    } else if asked && request.read_only {
        errors.push("read-only volumes cannot have a user or mode: setting them takes write access".into());
    }
}

fn host(request: &VolumeRequest, errors: &mut Vec<String>) {
    if request.mount_options.is_some() {
        errors.push("host volumes cannot have mount options".into());
    }
    let mode = request.access_mode;
    if mode == AccessMode::SingleNodeReaderOnly && !request.read_only {
        errors.push(format!("{mode} volumes must be read-only"));
    }
    if matches!(
        mode,
        AccessMode::MultiNodeReaderOnly
            | AccessMode::MultiNodeSingleWriter
            | AccessMode::MultiNodeMultiWriter
    ) {
        errors.push(format!("host volumes cannot be mounted with {mode} access mode"));
    }
}

fn csi(group: &TaskGroup, request: &VolumeRequest, errors: &mut Vec<String>) {
    if request.attachment_mode == AttachmentMode::Unknown {
        errors.push("CSI volumes must have an attachment mode".into());
    }
    if request.attachment_mode == AttachmentMode::BlockDevice && request.mount_options.is_some() {
        errors.push("block devices cannot have mount options".into());
    }
    let mode = request.access_mode;
    let many = group.count > 1 && !request.per_alloc;
    match mode {
        AccessMode::Unknown => errors.push("CSI volumes must have an access mode".into()),
        AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly => {
            if !request.read_only {
                errors.push(format!("{mode} volumes must be read-only"));
            }
            if mode == AccessMode::SingleNodeReaderOnly && many {
                errors.push(format!("volume with {mode} access mode allows only one reader"));
            }
        }
        AccessMode::SingleNodeWriter if many => {
            errors.push(format!("volume with {mode} access mode allows only one reader or writer"));
        }
        AccessMode::MultiNodeSingleWriter if many && !request.read_only => {
            errors.push(format!("volume with {mode} access mode allows only one writer"));
        }
        _ => {}
    }
}

pub(super) fn mounts(group: &TaskGroup, task: &Task, errors: &mut Vec<String>) {
    for (index, mount) in task.volume_mounts.iter().enumerate() {
        if mount.volume.is_empty() {
            errors.push(format!(
                "Volume Mount ({index}) is invalid: \"volume mount references an empty volume\""
            ));
            continue;
        }
        let Some(request) = group.volumes.get(&mount.volume) else {
            errors.push(format!("Volume Mount ({index}) references undefined volume {}", mount.volume));
            continue;
        };
        if mount.destination.is_empty() {
            errors.push(format!("Volume Mount ({index}) is invalid: \"volume mount has no destination\""));
        }
        if !matches!(mount.selinux_label.as_str(), "" | "z" | "Z") {
            errors.push(format!(
                "Volume Mount ({index}) is invalid: \"volume mount has an invalid SELinux label: \"{}\"\"",
                mount.selinux_label
            ));
        }
        if mount.propagation_mode == PropagationMode::Bidirectional && (request.read_only || mount.read_only)
        {
            errors.push(format!(
                "Volume Mount ({index}) of volume {} is invalid: \"bidirectional propagation needs write access to the volume, but it is read-only\"",
                mount.volume
            ));
        }
    }
}
