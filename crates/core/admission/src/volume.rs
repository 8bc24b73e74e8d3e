//! Rules for volume requests and mounts.

use super::problem::{Findings, Problem, ProblemCode as Code};
use caravan_api::JobPath;
use caravan_types::component::{check_component, check_indexed_component};
use caravan_types::job::{BrokenMount, Job, PropagationMode, Task, TaskGroup, VolumeRequest, VolumeType};
use caravan_types::volume::{AccessMode, AttachmentMode};

pub(super) fn requests(job: &Job, group: &TaskGroup, errors: &mut Findings) {
    for (name, request) in &group.volumes {
        let mut found = Findings::at(errors.path.clone().field("Volumes").key(name));
        one(job, group, request, &mut found);
        for problem in found.found.iter() {
            let lead = format!("Task group volume validation for {name} failed: ");
            errors.found.push_after(lead, problem.clone());
        }
    }
}

fn one(job: &Job, group: &TaskGroup, request: &VolumeRequest, errors: &mut Findings) {
    if request.source.is_empty() {
        errors.add(Code::Missing, "Source", "volume has an empty source");
    } else {
        // The volume names of `per_alloc` have the index of the allocation after the source.
        let checked = match request.per_alloc {
            true => check_indexed_component("volume source", &request.source),
            false => check_component("volume source", &request.source),
        };
        if let Err(error) = checked {
            errors.add(Code::InvalidName, "Source", error.to_string());
        }
    }
    if request.per_alloc {
        if job.kind.is_system() {
            let text = "volume cannot be per_alloc for system or sysbatch jobs";
            errors.add(Code::NotForJobType, "PerAlloc", text);
        }
        if group.update.as_ref().is_some_and(|u| u.canary > 0) {
            errors.add(Code::Conflict, "PerAlloc", "volume cannot be per_alloc when canaries are in use");
        }
        if request.sticky {
            errors.add(Code::Conflict, "Sticky", "volume cannot be per_alloc and sticky at the same time");
        }
    }
    match request.kind {
        VolumeType::Host => host(request, errors),
        VolumeType::Csi => csi(group, request, errors),
    }
    owner(request, errors);
}

/// Checks owner and mode of the volume's root, and the setting for a broken mount. Names of users are resolved on the
/// node only.
fn owner(request: &VolumeRequest, errors: &mut Findings) {
    for (field, key, value) in [("user", "User", &request.user), ("group", "Group", &request.group)] {
        if value.contains([':', '/', '\0']) || value.contains(char::is_whitespace) {
            let text = format!("volume has an invalid {field} \"{value}\": it must be one name or number");
            errors.add(Code::InvalidName, key, text);
        }
    }
    // The parser of numbers accepts a sign, but a mode has none.
    let octal =
        |mode: &str| !mode.starts_with('+') && u32::from_str_radix(mode, 8).is_ok_and(|bits| bits <= 0o7777);
    if !request.mode.is_empty() && !octal(&request.mode) {
        let text = format!(
            "volume has an invalid mode \"{}\": it must be octal and at most 7777, for example \"0750\"",
            request.mode
        );
        errors.add(Code::InvalidValue, "Mode", text);
    }
    let asked = !(request.user.is_empty() && request.mode.is_empty());
    let first = match (request.user.is_empty(), request.mode.is_empty()) {
        (false, _) => "User",
        (true, false) => "Mode",
        (true, true) => "Group",
    };
    if request.kind == VolumeType::Host {
        if asked || !request.group.is_empty() {
            let text = "host volumes cannot have a user, group or mode: they are as they are on the node";
            errors.add(Code::NotAllowedHere, first, text);
        }
        if request.broken_mount != BrokenMount::Hold {
            let text = "host volumes cannot have a broken_mount policy: nothing is mounted for them";
            errors.add(Code::NotAllowedHere, "BrokenMount", text);
        }
    } else if asked && request.read_only {
        let text = "read-only volumes cannot have a user or mode: setting them takes write access";
        errors.add(Code::Conflict, first, text);
    }
}

/// Whether mount options contain a setting; an empty block contains none.
fn has_options(request: &VolumeRequest) -> bool {
    request.mount_options.as_ref().is_some_and(|options| !options.is_empty())
}

fn host(request: &VolumeRequest, errors: &mut Findings) {
    if has_options(request) {
        errors.add(Code::NotAllowedHere, "MountOptions", "host volumes cannot have mount options");
    }
    let mode = request.access_mode;
    if mode == AccessMode::SingleNodeReaderOnly && !request.read_only {
        errors.add(Code::Conflict, "ReadOnly", format!("{mode} volumes must be read-only"));
    }
    if matches!(
        mode,
        AccessMode::MultiNodeReaderOnly
            | AccessMode::MultiNodeSingleWriter
            | AccessMode::MultiNodeMultiWriter
    ) {
        let text = format!("host volumes cannot be mounted with {mode} access mode");
        errors.add(Code::NotAllowedHere, "AccessMode", text);
    }
}

/// Returns whether two allocations of the same request could never use the volume together.
fn excludes_itself(request: &VolumeRequest) -> bool {
    match request.access_mode {
        AccessMode::SingleNodeReaderOnly | AccessMode::SingleNodeWriter => true,
        AccessMode::SingleNodeSingleWriter | AccessMode::MultiNodeSingleWriter => !request.read_only,
        AccessMode::Unknown
        | AccessMode::SingleNodeMultiWriter
        | AccessMode::MultiNodeReaderOnly
        | AccessMode::MultiNodeMultiWriter => false,
    }
}

/// Refuses groups of one job that can never run together: both must be the only writer, or one must be
/// the only user.
pub(super) fn between_groups(job: &Job, errors: &mut Findings) {
    let users: Vec<(usize, &TaskGroup, &str, &VolumeRequest)> = job
        .task_groups
        .iter()
        .enumerate()
        .filter(|(_, group)| group.count > 0)
        .flat_map(|(at, group)| {
            group.csi_volumes().map(move |(alias, request)| (at, group, alias.as_str(), request))
        })
        .collect();
    for (at, (number, group, alias, request)) in users.iter().enumerate() {
        let rival = users[..at].iter().find(|(_, other, _, theirs)| {
            other.name != group.name
                && theirs.source == request.source
                && theirs.per_alloc == request.per_alloc
                && collide(request, theirs)
        });
        if let Some((_, other, _, theirs)) = rival {
            let mode = if excludes_itself(request) { request.access_mode } else { theirs.access_mode };
            let alone = [request, theirs].iter().any(|r| r.access_mode == AccessMode::SingleNodeReaderOnly);
            let only = if alone { "one user" } else { "one writer" };
            let text = format!(
                "Task groups {} and {} both use volume \"{}\", but {mode} access mode allows only {only}: put their tasks into one group, or use a mode for several in both and in the volume",
                other.name, group.name, request.source
            );
            let path = JobPath::group(*number).field("Volumes").key(alias).field("AccessMode");
            errors.add_at(Code::TooManyUsers, path, text);
        }
    }
}

fn collide(a: &VolumeRequest, b: &VolumeRequest) -> bool {
    let strict = [a, b].iter().any(|r| r.access_mode.single_writer());
    let alone = [a, b].iter().any(|r| r.access_mode == AccessMode::SingleNodeReaderOnly);
    alone || (strict && !a.read_only && !b.read_only)
}

fn csi(group: &TaskGroup, request: &VolumeRequest, errors: &mut Findings) {
    if request.attachment_mode == AttachmentMode::Unknown {
        errors.add(Code::Missing, "AttachmentMode", "CSI volumes must have an attachment mode");
    }
    if request.attachment_mode == AttachmentMode::BlockDevice && has_options(request) {
        errors.add(Code::Conflict, "MountOptions", "block devices cannot have mount options");
    }
    let mode = request.access_mode;
    let many = group.count > 1 && !request.per_alloc;
    let only_one = |what: &str| format!("volume with {mode} access mode allows only one {what}");
    match mode {
        AccessMode::Unknown => {
            errors.add(Code::Missing, "AccessMode", "CSI volumes must have an access mode");
        }
        mode if mode.host_only() => {
            let text = format!("CSI volumes cannot be mounted with {mode} access mode");
            errors.add(Code::NotAllowedHere, "AccessMode", text);
        }
        AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly => {
            if !request.read_only {
                errors.add(Code::Conflict, "ReadOnly", format!("{mode} volumes must be read-only"));
            }
            if mode == AccessMode::SingleNodeReaderOnly && many {
                errors.add(Code::TooManyUsers, "AccessMode", only_one("reader"));
            }
        }
        AccessMode::SingleNodeWriter if many => {
            errors.add(Code::TooManyUsers, "AccessMode", only_one("reader or writer"));
        }
        AccessMode::MultiNodeSingleWriter if many && !request.read_only => {
            errors.add(Code::TooManyUsers, "AccessMode", only_one("writer"));
        }
        _ => {}
    }
    let canaries = group.update.as_ref().map_or(0, |update| update.canary);
    if canaries > 0 && !request.per_alloc && excludes_itself(request) {
        let only = if request.read_only { "user" } else { "writer" };
        let text = format!(
            "volume with {mode} access mode allows only one {only}, and a canary would be a second one that waits for ever: set canary to 0, or use a mode for several"
        );
        errors.add(Code::TooManyUsers, "AccessMode", text);
    }
}

pub(super) fn mounts(group: &TaskGroup, task: &Task, errors: &mut Findings) {
    for (index, mount) in task.volume_mounts.iter().enumerate() {
        let path = errors.path.clone().field("VolumeMounts").index(index);
        let mut add = |code, field, text: String| {
            errors.found.push(Problem::new(code, path.clone().field(field), text));
        };
        if mount.volume.is_empty() {
            let text =
                format!("Volume Mount ({index}) is invalid: \"volume mount references an empty volume\"");
            add(Code::Missing, "Volume", text);
            continue;
        }
        let Some(request) = group.volumes.get(&mount.volume) else {
            let near =
                caravan_types::words::suggestion(&mount.volume, group.volumes.keys().map(String::as_str));
            let text = format!("Volume Mount ({index}) references undefined volume {}{near}", mount.volume);
            add(Code::UndefinedReference, "Volume", text);
            continue;
        };
        if mount.destination.is_empty() {
            let text = format!("Volume Mount ({index}) is invalid: \"volume mount has no destination\"");
            add(Code::Missing, "Destination", text);
        }
        if !matches!(mount.selinux_label.as_str(), "" | "z" | "Z") {
            let text = format!(
                "Volume Mount ({index}) is invalid: \"volume mount has an invalid SELinux label: \"{}\"\"",
                mount.selinux_label
            );
            add(Code::UnknownWord, "SELinuxLabel", text);
        }
        if mount.propagation_mode == PropagationMode::Bidirectional && (request.read_only || mount.read_only)
        {
            let text = format!(
                "Volume Mount ({index}) of volume {} is invalid: \"bidirectional propagation needs write access to the volume, but it is read-only\"",
                mount.volume
            );
            add(Code::Conflict, "PropagationMode", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::{MountOptions, UpdateStrategy};

    fn group(name: &str, mode: AccessMode, read_only: bool) -> TaskGroup {
        let request = VolumeRequest {
            name: "data".into(),
            kind: VolumeType::Csi,
            source: "data".into(),
            access_mode: mode,
            attachment_mode: AttachmentMode::FileSystem,
            read_only,
            ..Default::default()
        };
        TaskGroup {
            name: name.into(),
            count: 1,
            volumes: [("data".to_owned(), request)].into(),
            ..Default::default()
        }
    }

    fn problems(groups: Vec<TaskGroup>) -> Vec<String> {
        let job = Job { task_groups: groups, ..Default::default() };
        let mut errors = Findings::default();
        for (at, group) in job.task_groups.iter().enumerate() {
            let mut found = Findings::at(JobPath::group(at));
            requests(&job, group, &mut found);
            errors.found.append(found.found);
        }
        between_groups(&job, &mut errors);
        errors.found.texts()
    }

    #[test]
    fn two_groups_cannot_both_be_the_only_writer() {
        use AccessMode as M;
        let pair =
            |mode, second_reads| problems(vec![group("a", mode, false), group("b", mode, second_reads)]);
        for mode in [M::SingleNodeWriter, M::MultiNodeSingleWriter] {
            let found = pair(mode, false);
            assert!(
                found.len() == 1 && found[0].starts_with("Task groups a and b both use volume \"data\""),
                "{found:?}"
            );
            assert_eq!(pair(mode, true), Vec::<String>::new(), "a reader beside the writer");
        }
        assert_eq!(pair(M::MultiNodeMultiWriter, false), Vec::<String>::new());
        let mut off = group("b", M::SingleNodeWriter, false);
        off.count = 0;
        assert_eq!(problems(vec![group("a", M::SingleNodeWriter, false), off]), Vec::<String>::new());
    }

    #[test]
    fn empty_mount_options_are_none() {
        for (kind, attachment_mode) in
            [(VolumeType::Host, AttachmentMode::FileSystem), (VolumeType::Csi, AttachmentMode::BlockDevice)]
        {
            let with = |fs_type: &str| {
                let mut group = group("a", AccessMode::SingleNodeWriter, false);
                let request = group.volumes.get_mut("data").unwrap();
                (request.kind, request.attachment_mode) = (kind, attachment_mode);
                request.mount_options = Some(MountOptions { fs_type: fs_type.into(), ..Default::default() });
                problems(vec![group])
            };
            assert_eq!(with(""), Vec::<String>::new());
            assert!(with("ext4")[0].contains("cannot have mount options"));
        }
    }

    #[test]
    fn a_canary_of_an_only_writer_is_refused() {
        let with_canary = |mode, read_only| {
            let mut group = group("a", mode, read_only);
            group.update = Some(UpdateStrategy { canary: 1, ..Default::default() });
            problems(vec![group])
        };
        let found = with_canary(AccessMode::SingleNodeWriter, false);
        assert!(found.len() == 1 && found[0].contains("set canary to 0"), "{found:?}");
        assert_eq!(with_canary(AccessMode::MultiNodeMultiWriter, false), Vec::<String>::new());
        assert_eq!(with_canary(AccessMode::MultiNodeSingleWriter, true), Vec::<String>::new());
    }
}
