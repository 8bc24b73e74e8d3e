//! Rules for tasks.

use super::targets::{Place, affinities, constraints};
use super::{blocks, joined, one_of, policies, service, unheeded, volume};
use caravan_types::Nanos;
use caravan_types::api::{Misfits, Part};
use caravan_types::component::{MAX_COMPONENT_BYTES, check_component};
use caravan_types::job::{CsiPluginConfig, Job, JobType, Numa, RequestedDevice, Resources, Task, TaskGroup};

/// The maximum length of a task's name: its log files have a suffix.
const MAX_TASK_NAME_BYTES: usize = MAX_COMPONENT_BYTES - ".stdout.4294967295".len();

pub(super) fn check(
    job: &Job,
    group: &TaskGroup,
    task: &Task,
    mut misfits: Misfits,
) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    if task.name.contains(['/', '\\']) {
        errors.push("Task name cannot include slashes".into());
    }
    if task.name.contains('\0') {
        errors.push("Task name cannot include null characters".into());
    }
    if task.name.len() > MAX_TASK_NAME_BYTES {
        errors.push(format!("Task name cannot be longer than {MAX_TASK_NAME_BYTES} bytes: its log files have it in their names"));
    }
    if matches!(task.name.as_str(), "alloc" | "." | "..") {
        errors.push(format!("Task name \"{}\" is reserved", task.name));
    }
    if task.driver.is_empty() {
        errors.push("Missing task driver".into());
    }
    if task.kill_timeout.0 < 0 {
        errors.push("KillTimeout must be a positive value".into());
    }
    if task.shutdown_delay.0 < 0 {
        errors.push("ShutdownDelay must be a positive value".into());
    }
    if let Some(policy) = &task.restart_policy {
        policies::restart(policy, &mut misfits, &mut errors);
    }
    if let Some(update) = &group.update
        && job.kind == JobType::Service
        && update.progress_deadline > Nanos::ZERO
        && task.kill_timeout > update.progress_deadline
    {
        errors.push(format!(
            "KillTimout ({}) longer than the group's ProgressDeadline ({})",
            task.kill_timeout, update.progress_deadline
        ));
    }
    let found = resources(task);
    if !found.is_empty() {
        errors.push(joined(&found));
    }
    let found = logs(group, task, misfits.take(Part::Logs));
    if !found.is_empty() {
        errors.push(joined(&found));
    }
    constraints(&task.constraints, Place::Task, &mut errors);
    if job.kind != JobType::System {
        affinities(&task.affinities, &mut errors);
    }
    if let Some(lifecycle) = &task.lifecycle {
        match lifecycle.hook.as_str() {
            "prestart" | "poststart" => {}
            "poststop" if lifecycle.sidecar => {
                errors.push("poststop tasks cannot be sidecars".into());
            }
            "poststop" => {}
            other => errors.push(one_of("invalid hook:", other, &["prestart", "poststart", "poststop"])),
        }
    }
    volume::mounts(group, task, &mut errors);
    blocks::check(task, &mut errors);
    errors.extend(misfits.rest());
    if let Some(plugin) = &task.csi_plugin_config {
        csi_plugin(plugin, &mut errors);
    }
    for (block, present) in [
        ("vault", task.vault.is_some()),
        ("secret", !task.secrets.is_empty()),
        ("schedule", task.schedule.is_some()),
    ] {
        if present {
            // A task without a block that it relies on is worse than a refused job.
            errors.push(format!("{block} blocks are not supported yet"));
        }
    }
    let owner = format!("task \"{}\" of job \"{}\"", task.name, job.id);
    warnings.extend(service::unregistered(&owner, &task.services));
    warnings.extend(unheeded::of_task(task));
    (errors, warnings)
}

/// Checks the logs of a task. A number that `unfit` already reports is not checked again.
fn logs(group: &TaskGroup, task: &Task, unfit: Vec<String>) -> Vec<String> {
    let mut errors = unfit;
    let logs = &task.log_config;
    if logs.disabled || !errors.is_empty() {
        return errors;
    }
    if logs.max_files < 1 {
        errors.push("minimum number of files is 1; got 0".into());
    }
    if logs.max_file_size_mb < 1 {
        errors.push("minimum file size is 1MB; got 0".into());
    }
    let size = i64::from(logs.max_files) * i64::from(logs.max_file_size_mb);
    if group.ephemeral_disk.is_some() && size > group.disk_mb() {
        errors.push(format!(
            "log storage ({size} MB) must be less than requested disk capacity ({} MB)",
            group.disk_mb()
        ));
    }
    errors
}

/// Returns the names of the devices that must be near the cores.
pub(super) fn numa_devices(numa: &Numa) -> impl Iterator<Item = &str> {
    numa.devices.iter().flatten().map(String::as_str)
}

/// Returns the reason why a task's NUMA preferences cannot be honored.
fn unfit_numa(resources: &Resources, numa: &Numa) -> Option<String> {
    let affinity = numa.affinity.as_str();
    if !matches!(affinity, "" | "none" | "prefer" | "require") {
        return Some(one_of("invalid numa affinity:", affinity, &["none", "prefer", "require"]));
    }
    let known = |name: &&str| resources.devices.iter().any(|device| device.name == **name);
    if let Some(name) = numa_devices(numa).find(|name| !known(name)) {
        return Some(format!("numa device \"{name}\" is not among the devices of the task"));
    }
    (resources.numa_wish().is_some() && resources.cores < 1)
        .then(|| format!("numa affinity \"{affinity}\" needs cores: it says that these are of one NUMA node"))
}

/// Checks the resources of a task. A separate error reports resources below the minimum.
fn resources(task: &Task) -> Vec<String> {
    let mut errors = Vec::new();
    let resources = &task.resources;
    if resources.cores > 0 && resources.cpu > 0 {
        errors.push("Task can only ask for 'cpu' or 'cores' resource, not both.".into());
    }
    if resources.cores < 0 {
        errors.push(format!("minimum number of cores is 0; got {}", resources.cores));
    }
    errors.extend(resources.numa.as_ref().and_then(|numa| unfit_numa(resources, numa)));
    let mut minima = Vec::new();
    if resources.cores < 1 && resources.cpu < 1 {
        minima.push(format!("minimum CPU value is 1; got {}", resources.cpu));
    }
    if resources.memory_mb < 10 {
        minima.push(format!("minimum MemoryMB value is 10; got {}", resources.memory_mb));
    }
    if !minima.is_empty() {
        errors.push(joined(&minima));
    }
    if resources.disk_mb > 0 {
        errors.push(
            "Task can't ask for disk resources, they have to be specified at the task group level.".into(),
        );
    }
    devices(&resources.devices, &mut errors);
    if resources.memory_max_mb < -1 {
        errors
            .push(format!("minimum MemoryMaxMB value is -1, for no limit; got {}", resources.memory_max_mb));
    }
    if resources.memory_max_mb > 0 && resources.memory_max_mb < resources.memory_mb {
        errors.push(format!(
            "MemoryMaxMB value ({}) should be larger than MemoryMB value ({})",
            resources.memory_max_mb, resources.memory_mb
        ));
    }
    if resources.secrets_mb < 0 {
        errors.push(format!("minimum secrets value is 0; got {}", resources.secrets_mb));
    }
    if resources.secrets_mb > resources.memory_mb {
        errors.push(format!(
            "secrets ({} MB) must not be larger than memory ({} MB)",
            resources.secrets_mb, resources.memory_mb
        ));
    }
    if !resources.networks.is_empty() {
        errors.push("networks of a task are not supported: use a network block in the group".into());
    }
    errors
}

fn devices(list: &[RequestedDevice], errors: &mut Vec<String>) {
    for (index, device) in list.iter().enumerate() {
        let mut found = Vec::new();
        let parts: Vec<&str> = device.name.split('/').collect();
        if parts.len() > 3 || parts.iter().any(|part| part.is_empty()) {
            found.push(format!(
                "invalid device name \"{}\": it is type, vendor/type or vendor/type/name",
                device.name
            ));
        }
        if device.count == 0 {
            found.push("invalid device count: it must be at least 1".into());
        }
        constraints(&device.constraints, Place::Device, &mut found);
        affinities(&device.affinities, &mut found);
        if !found.is_empty() {
            errors.push(format!("device {} failed validation: {}", index + 1, joined(&found)));
        }
    }
}

fn csi_plugin(plugin: &CsiPluginConfig, errors: &mut Vec<String>) {
    if plugin.id.is_empty() {
        errors.push("CSIPluginConfig must have a non-empty PluginID".into());
    } else if let Err(error) = check_component("CSIPluginConfig PluginID", plugin.id.as_str()) {
        errors.push(error.to_string());
    }
    let (base, dir) = (&plugin.stage_publish_base_dir, &plugin.mount_dir);
    if !base.is_empty() && !dir.is_empty() {
        let parent = dir.trim_end_matches('/');
        let inside = base.trim_end_matches('/') == parent || base.starts_with(&format!("{parent}/"));
        if inside {
            errors.push(format!(
                "CSIPluginConfig StagePublishBaseDir must not be a subdirectory of MountDir, got: StagePublishBaseDir=\"{base}\" MountDir=\"{dir}\""
            ));
        }
    }
}
