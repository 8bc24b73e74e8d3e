//! Rules for tasks.

use super::problem::{Findings, ProblemCode as Code};
use super::targets::{Place, affinities, constraints};
use super::{blocks, one_of, policies, service, unheeded, volume};
use caravan_api::{Misfits, Part};
use caravan_types::Nanos;
use caravan_types::component::{MAX_COMPONENT_BYTES, check_component};
use caravan_types::job::{CsiPluginConfig, Job, JobType, Numa, RequestedDevice, Resources, Task, TaskGroup};

/// The maximum length of a task's name in bytes: the names of its log files have a suffix.
const MAX_TASK_NAME_BYTES: usize = MAX_COMPONENT_BYTES - ".stdout.4294967295".len();

pub(super) fn check(
    job: &Job,
    group: &TaskGroup,
    task: &Task,
    mut misfits: Misfits,
    errors: &mut Findings,
    warnings: &mut Findings,
) {
    name(task, errors);
    if task.driver.is_empty() {
        errors.add(Code::Missing, "Driver", "Missing task driver");
    }
    if task.kill_timeout.0 < 0 {
        errors.add(Code::BelowMinimum, "KillTimeout", "KillTimeout must be a positive value");
    }
    if task.shutdown_delay.0 < 0 {
        errors.add(Code::BelowMinimum, "ShutdownDelay", "ShutdownDelay must be a positive value");
    }
    if let Some(policy) = &task.restart_policy {
        policies::restart(policy, &mut misfits, errors);
    }
    if let Some(update) = &group.update
        && job.kind == JobType::Service
        && update.progress_deadline > Nanos::ZERO
        && task.kill_timeout > update.progress_deadline
    {
        let text = format!(
            "KillTimout ({}) longer than the group's ProgressDeadline ({})",
            task.kill_timeout, update.progress_deadline
        );
        errors.add(Code::Conflict, "KillTimeout", text);
    }
    let mut found = errors.below("Resources");
    resources(task, &mut found);
    errors.nest("", found);
    let mut found = errors.below("LogConfig");
    logs(group, task, misfits.take(Part::Logs), &mut found);
    errors.nest("", found);
    constraints(&task.constraints, Place::Task, errors);
    if job.kind != JobType::System {
        affinities(&task.affinities, errors);
    }
    if let Some(lifecycle) = &task.lifecycle {
        match lifecycle.hook.as_str() {
            "prestart" | "poststart" => {}
            "poststop" if lifecycle.sidecar => {
                errors.add(Code::Conflict, "Lifecycle.Sidecar", "poststop tasks cannot be sidecars");
            }
            "poststop" => {}
            other => {
                let text = one_of("invalid hook:", other, &["prestart", "poststart", "poststop"]);
                errors.add(Code::UnknownWord, "Lifecycle.Hook", text);
            }
        }
    }
    volume::mounts(group, task, errors);
    blocks::check(task, errors);
    errors.misfits(misfits.rest());
    if let Some(plugin) = &task.csi_plugin_config {
        csi_plugin(plugin, errors);
    }
    for (block, field, present) in [
        ("vault", "Vault", task.vault.is_some()),
        ("secret", "Secrets", !task.secrets.is_empty()),
        ("schedule", "Schedule", task.schedule.is_some()),
    ] {
        if present {
            // A stored task without a block that it relies on would be worse than a refused job.
            errors.add(Code::Unsupported, field, format!("{block} blocks are not supported yet"));
        }
    }
    let owner = format!("task \"{}\" of job \"{}\"", task.name, job.id);
    service::unregistered(&owner, &task.services, warnings);
    unheeded::of_task(task, warnings);
}

fn name(task: &Task, errors: &mut Findings) {
    if task.name.contains(['/', '\\']) {
        errors.add(Code::InvalidName, "Name", "Task name cannot include slashes");
    }
    if task.name.contains('\0') {
        errors.add(Code::InvalidName, "Name", "Task name cannot include null characters");
    }
    if task.name.len() > MAX_TASK_NAME_BYTES {
        let text = format!(
            "Task name cannot be longer than {MAX_TASK_NAME_BYTES} bytes: its log files have it in their names"
        );
        errors.add(Code::AboveMaximum, "Name", text);
    }
    if matches!(task.name.as_str(), "alloc" | "." | "..") {
        errors.add(Code::InvalidName, "Name", format!("Task name \"{}\" is reserved", task.name));
    }
}

/// Checks the logs of a task. A number in `unfit` is not reported twice.
fn logs(group: &TaskGroup, task: &Task, unfit: Misfits, errors: &mut Findings) {
    errors.misfits(unfit);
    let logs = &task.log_config;
    if logs.disabled || !errors.is_empty() {
        return;
    }
    if logs.max_files < 1 {
        errors.add(Code::BelowMinimum, "MaxFiles", "minimum number of files is 1; got 0");
    }
    if logs.max_file_size_mb < 1 {
        errors.add(Code::BelowMinimum, "MaxFileSizeMB", "minimum file size is 1MB; got 0");
    }
    let size = i64::from(logs.max_files) * i64::from(logs.max_file_size_mb);
    if group.ephemeral_disk.is_some() && size > group.disk_mb() {
        let text = format!(
            "log storage ({size} MB) must be less than requested disk capacity ({} MB)",
            group.disk_mb()
        );
        errors.add(Code::AboveMaximum, "", text);
    }
}

/// Returns the names of the devices that must be near the cores.
fn numa_devices(numa: &Numa) -> impl Iterator<Item = &str> {
    numa.devices.iter().flatten().map(String::as_str)
}

/// Checks the NUMA preferences of a task. Only the first problem is reported.
fn numa_preferences(resources: &Resources, numa: &Numa, errors: &mut Findings) {
    let affinity = numa.affinity.as_str();
    if !matches!(affinity, "" | "none" | "prefer" | "require") {
        let text = one_of("invalid numa affinity:", affinity, &["none", "prefer", "require"]);
        errors.add(Code::UnknownWord, "NUMA.Affinity", text);
        return;
    }
    let known = |name: &str| resources.devices.iter().any(|device| device.name == name);
    if let Some((at, name)) = numa_devices(numa).enumerate().find(|(_, name)| !known(name)) {
        let path = errors.path.clone().field("NUMA.Devices").index(at);
        let text = format!("numa device \"{name}\" is not among the devices of the task");
        errors.add_at(Code::UndefinedReference, path, text);
        return;
    }
    if resources.numa_wish().is_some() && resources.cores < 1 {
        let text =
            format!("numa affinity \"{affinity}\" needs cores: it says that these are of one NUMA node");
        errors.add(Code::Conflict, "NUMA.Affinity", text);
    }
}

/// Checks the resources that a task requests. Values below the minimum are reported in a separate error.
fn resources(task: &Task, errors: &mut Findings) {
    let resources = &task.resources;
    if resources.cores > 0 && resources.cpu > 0 {
        let text = "Task can only ask for 'cpu' or 'cores' resource, not both.";
        errors.add(Code::Conflict, "Cores", text);
    }
    if resources.cores < 0 {
        let text = format!("minimum number of cores is 0; got {}", resources.cores);
        errors.add(Code::BelowMinimum, "Cores", text);
    }
    if let Some(numa) = &resources.numa {
        numa_preferences(resources, numa, errors);
    }
    let mut minima = errors.below("");
    if resources.cores < 1 && resources.cpu < 1 {
        let text = format!("minimum CPU value is 1; got {}", resources.cpu);
        minima.add(Code::BelowMinimum, "CPU", text);
    }
    if resources.memory_mb < 10 {
        let text = format!("minimum MemoryMB value is 10; got {}", resources.memory_mb);
        minima.add(Code::BelowMinimum, "MemoryMB", text);
    }
    errors.nest("", minima);
    if resources.disk_mb > 0 {
        let text = "Task can't ask for disk resources, they have to be specified at the task group level.";
        errors.add(Code::NotAllowedHere, "DiskMB", text);
    }
    devices(&resources.devices, errors);
    if resources.memory_max_mb < -1 {
        let text = format!("minimum MemoryMaxMB value is -1, for no limit; got {}", resources.memory_max_mb);
        errors.add(Code::BelowMinimum, "MemoryMaxMB", text);
    }
    if resources.memory_max_mb > 0 && resources.memory_max_mb < resources.memory_mb {
        let text = format!(
            "MemoryMaxMB value ({}) should be larger than MemoryMB value ({})",
            resources.memory_max_mb, resources.memory_mb
        );
        errors.add(Code::Conflict, "MemoryMaxMB", text);
    }
    if resources.secrets_mb < 0 {
        let text = format!("minimum secrets value is 0; got {}", resources.secrets_mb);
        errors.add(Code::BelowMinimum, "SecretsMB", text);
    }
    if resources.secrets_mb > resources.memory_mb {
        let text = format!(
            "secrets ({} MB) must not be larger than memory ({} MB)",
            resources.secrets_mb, resources.memory_mb
        );
        errors.add(Code::AboveMaximum, "SecretsMB", text);
    }
    if !resources.networks.is_empty() {
        let text = "networks of a task are not supported: use a network block in the group";
        errors.add(Code::Unsupported, "Networks", text);
    }
}

fn devices(list: &[RequestedDevice], errors: &mut Findings) {
    for (index, device) in list.iter().enumerate() {
        let mut found = errors.element("Devices", index);
        // The name of a device model may contain slashes.
        if device.name.splitn(3, '/').any(str::is_empty) {
            let text = format!(
                "invalid device name \"{}\": it is type, vendor/type or vendor/type/name",
                device.name
            );
            found.add(Code::InvalidName, "Name", text);
        }
        if device.count == 0 {
            found.add(Code::BelowMinimum, "Count", "invalid device count: it must be at least 1");
        }
        constraints(&device.constraints, Place::Device, &mut found);
        affinities(&device.affinities, &mut found);
        errors.nest(format!("device {} failed validation: ", index + 1), found);
    }
}

fn csi_plugin(plugin: &CsiPluginConfig, errors: &mut Findings) {
    if plugin.id.is_empty() {
        let text = "CSIPluginConfig must have a non-empty PluginID";
        errors.add(Code::Missing, "CSIPluginConfig.ID", text);
    } else if let Err(error) = check_component("CSIPluginConfig PluginID", plugin.id.as_str()) {
        errors.add(Code::InvalidName, "CSIPluginConfig.ID", error.to_string());
    }
    let (base, dir) = (&plugin.stage_publish_base_dir, &plugin.mount_dir);
    if !base.is_empty() && !dir.is_empty() {
        let parent = dir.trim_end_matches('/');
        let inside = base.trim_end_matches('/') == parent || base.starts_with(&format!("{parent}/"));
        if inside {
            let text = format!(
                "CSIPluginConfig StagePublishBaseDir must not be a subdirectory of MountDir, got: StagePublishBaseDir=\"{base}\" MountDir=\"{dir}\""
            );
            errors.add(Code::Conflict, "CSIPluginConfig.StagePublishBaseDir", text);
        }
    }
}
