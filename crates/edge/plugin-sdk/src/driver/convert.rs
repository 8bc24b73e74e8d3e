//! Conversions between messages and types. Go agents read some messages without checking for their presence, so
//! results, times and attributes are always sent.

use super::{
    Capabilities, ExitResult, Fingerprint, FsIsolation, Health, MountConfigs, NetworkMode, Started, Task,
    TaskState, TaskStatus,
};
use crate::error::Cause;
use crate::value::attributes;
use crate::{config, messages};
use caravan_proto::plugins::driver::{self as wire, driver_capabilities, fingerprint_response};
use prost_types::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, SystemTime};

/// The zero time of Go programs: the first of January of the year 1.
const NO_TIME: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

pub(crate) fn time(at: Option<SystemTime>) -> Timestamp {
    at.map_or(NO_TIME, Timestamp::from)
}

/// Converts a duration; an absent or a negative one is zero.
pub(crate) fn duration(message: Option<prost_types::Duration>) -> Duration {
    message.and_then(|message| Duration::try_from(message).ok()).unwrap_or_default()
}

pub(super) fn task<C: DeserializeOwned>(message: wire::TaskConfig) -> Result<Task<C>, Cause> {
    Ok(Task {
        config: config::read(&message.msgpack_driver_config)?,
        id: message.id,
        name: message.name,
        group: message.task_group_name,
        job_name: message.job_name,
        job_id: message.job_id,
        parent_job_id: message.parent_job_id,
        namespace: message.namespace,
        alloc_id: message.alloc_id,
        node_name: message.node_name,
        node_id: message.node_id,
        env: message.env,
        device_env: message.device_env,
        user: message.user,
        alloc_dir: message.alloc_dir.into(),
        stdout: message.stdout_path.into(),
        stderr: message.stderr_path.into(),
        resources: message.resources.unwrap_or_default(),
        mounts: message.mounts,
        devices: message.devices,
        network: message.network_isolation_spec,
        dns: message.dns,
    })
}

pub(super) fn started<S: Serialize>(
    config: wire::TaskConfig,
    started: Started<S>,
) -> Result<wire::StartTaskResponse, Cause> {
    let handle = wire::TaskHandle {
        version: 1,
        config: Some(config),
        state: wire::TaskState::Running.into(),
        driver_state: config::write_state(&started.state)?,
    };
    Ok(wire::StartTaskResponse {
        result: wire::start_task_response::Result::Success.into(),
        driver_error_msg: String::new(),
        handle: Some(handle),
        network_override: started.network.map(Into::into),
    })
}

pub(super) fn capabilities(from: Capabilities) -> wire::DriverCapabilities {
    let modes = from.network_modes.into_iter().map(|mode| {
        let mode = match mode {
            NetworkMode::Host => messages::NetworkIsolationMode::Host,
            NetworkMode::Group => messages::NetworkIsolationMode::Group,
            NetworkMode::Task => messages::NetworkIsolationMode::Task,
            NetworkMode::None => messages::NetworkIsolationMode::None,
        };
        mode.into()
    });
    let fs_isolation = match from.fs_isolation {
        FsIsolation::None => driver_capabilities::FsIsolation::None,
        FsIsolation::Chroot => driver_capabilities::FsIsolation::Chroot,
        FsIsolation::Image => driver_capabilities::FsIsolation::Image,
        FsIsolation::Unveil => driver_capabilities::FsIsolation::Unveil,
    };
    let mount_configs = match from.mount_configs {
        MountConfigs::Any => driver_capabilities::MountConfigs::AnyMounts,
        MountConfigs::None => driver_capabilities::MountConfigs::NoMounts,
    };
    wire::DriverCapabilities {
        send_signals: from.send_signals,
        exec: from.exec,
        fs_isolation: fs_isolation.into(),
        network_isolation_modes: modes.collect(),
        must_create_network: from.must_create_network,
        mount_configs: mount_configs.into(),
        disable_log_collection: from.disable_log_collection,
        dynamic_workload_users: from.dynamic_workload_users,
    }
}

pub(super) fn fingerprint(from: Fingerprint) -> wire::FingerprintResponse {
    let health = match from.health {
        Health::Undetected => fingerprint_response::HealthState::Undetected,
        Health::Unhealthy => fingerprint_response::HealthState::Unhealthy,
        Health::Healthy => fingerprint_response::HealthState::Healthy,
    };
    wire::FingerprintResponse {
        attributes: attributes(from.attributes),
        health: health.into(),
        health_description: from.description,
        err: String::new(),
    }
}

/// Converts a result. The wire format has no field for its message.
pub(super) fn exit(from: &ExitResult) -> wire::ExitResult {
    wire::ExitResult { exit_code: from.code, signal: from.signal, oom_killed: from.oom_killed }
}

pub(super) fn status(id: String, from: TaskStatus) -> wire::InspectTaskResponse {
    let state = match from.state {
        TaskState::Unknown => wire::TaskState::Unknown,
        TaskState::Running => wire::TaskState::Running,
        TaskState::Exited => wire::TaskState::Exited,
    };
    let task = wire::TaskStatus {
        id,
        name: from.name,
        state: state.into(),
        started_at: Some(time(Some(from.started_at))),
        completed_at: Some(time(from.completed_at)),
        result: Some(exit(&from.result.unwrap_or_default())),
    };
    wire::InspectTaskResponse {
        task: Some(task),
        driver: Some(wire::TaskDriverStatus { attributes: from.attributes }),
        network_override: from.network.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoConfig;
    use std::collections::BTreeMap;
    use std::time::UNIX_EPOCH;

    #[test]
    fn absent_parts_of_a_status_are_sent() {
        let from = TaskStatus {
            name: "web".into(),
            state: TaskState::Running,
            started_at: UNIX_EPOCH,
            completed_at: None,
            result: None,
            attributes: BTreeMap::new(),
            network: None,
        };
        let sent = status("id".into(), from);
        let task = sent.task.unwrap();
        assert_eq!(task.completed_at, Some(NO_TIME));
        assert_eq!(NO_TIME.to_string(), "0001-01-01T00:00:00Z");
        assert_eq!(task.result, Some(wire::ExitResult::default()));
        assert!(sent.driver.is_some());
    }

    #[test]
    fn tasks_show_no_secrets() {
        let env = BTreeMap::from([("TOKEN".to_owned(), "hidden".to_owned())]);
        let message = wire::TaskConfig { id: "a/b/c".into(), name: "b".into(), env, ..Default::default() };
        let task: Task<NoConfig> = task(message).unwrap();
        let shown = format!("{task:?}");
        assert!(shown.contains("a/b/c") && !shown.contains("hidden"), "{shown}");
        assert_eq!(task.dir(), std::path::Path::new("b"));
    }

    #[test]
    fn durations_are_never_negative() {
        let negative = prost_types::Duration { seconds: -1, nanos: 0 };
        assert_eq!(duration(Some(negative)), Duration::ZERO);
        assert_eq!(duration(None), Duration::ZERO);
        assert_eq!(duration(Some(prost_types::Duration { seconds: 1, nanos: 5 })), Duration::new(1, 5));
    }

    #[test]
    fn results_follow_the_status_of_a_process() {
        use std::os::unix::process::ExitStatusExt as _;
        let ended = |raw| ExitResult::from(std::process::ExitStatus::from_raw(raw));
        assert_eq!(ended(43 << 8), ExitResult::code(43));
        assert_eq!(ended(9), ExitResult { code: 137, signal: 9, ..ExitResult::default() });
    }
}
