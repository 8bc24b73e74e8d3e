//! The device files of a container, and the runtime that some devices need.

use crate::config::{Config, Device};
use crate::options::DockerOptions;
use bollard::models::DeviceMapping;
use caravan_drivers::{DeviceNode, Error, Result, TaskConfig};

/// The variable by which the device plugin of nvidia requests its runtime.
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// Returns the devices that the job file names, followed by the devices that plugins reserved.
pub(super) fn all(task: &TaskConfig, config: &Config) -> Vec<DeviceMapping> {
    config.devices.iter().map(of_job).chain(task.devices.iter().map(reserved)).collect()
}

fn of_job(device: &Device) -> DeviceMapping {
    DeviceMapping {
        path_on_host: Some(device.host.clone()),
        path_in_container: Some(device.container.clone()),
        cgroup_permissions: Some(device.permissions.clone()),
    }
}

/// Returns the mapping of a reserved device. Without permissions, every use is allowed.
fn reserved(device: &DeviceNode) -> DeviceMapping {
    let permissions = if device.permissions.is_empty() { "rwm" } else { &device.permissions };
    DeviceMapping {
        path_on_host: Some(device.host_path.display().to_string()),
        path_in_container: Some(device.task_path.display().to_string()),
        cgroup_permissions: Some(permissions.to_owned()),
    }
}

/// Returns the container's runtime: a task with a device of nvidia needs that of nvidia.
pub(super) fn runtime(task: &TaskConfig, config: &Config, options: &DockerOptions) -> Result<Option<String>> {
    let uses_nvidia = task.device_env.contains_key(NVIDIA_DEVICES);
    chosen(uses_nvidia, config.runtime.as_deref(), &options.nvidia_runtime)
}

fn chosen(uses_nvidia: bool, requested: Option<&str>, nvidia: &str) -> Result<Option<String>> {
    match requested {
        Some(other) if uses_nvidia && other != nvidia => Err(Error::Config(format!(
            "conflicting runtime requests: gpu runtime {nvidia:?} conflicts with task runtime {other:?}"
        ))),
        None if uses_nvidia => Ok(Some(nvidia.to_owned())),
        requested => Ok(requested.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_nvidia_needs_its_runtime() {
        assert_eq!(chosen(false, None, "nvidia").unwrap(), None);
        assert_eq!(chosen(false, Some("runc"), "nvidia").unwrap().as_deref(), Some("runc"));
        for requested in [None, Some("nvidia")] {
            assert_eq!(chosen(true, requested, "nvidia").unwrap().as_deref(), Some("nvidia"));
        }
        let refusal = chosen(true, Some("runc"), "nvidia").unwrap_err().to_string();
        assert!(refusal.starts_with("conflicting runtime requests"), "{refusal}");
    }

    #[test]
    fn a_reserved_device_keeps_its_permissions() {
        let node = |permissions: &str| DeviceNode {
            host_path: "/dev/nvidia0".into(),
            task_path: "/dev/card".into(),
            permissions: permissions.into(),
        };
        let mapping = reserved(&node("r"));
        assert_eq!(mapping.path_on_host.as_deref(), Some("/dev/nvidia0"));
        assert_eq!(mapping.path_in_container.as_deref(), Some("/dev/card"));
        assert_eq!(mapping.cgroup_permissions.as_deref(), Some("r"));
        assert_eq!(reserved(&node("")).cgroup_permissions.as_deref(), Some("rwm"));
    }
}
