//! Messages of the driver protocol, converted to and from the types of [`caravan_drivers`].

use caravan_drivers::{
    Capabilities, DeviceNode, DriverEvent, DriverNetwork, ExitResult, Fingerprint, FsIsolation, Health,
    HostsLine, Mount, NetworkIsolation, Port, ProcessUsage, Processors, Propagation, TaskConfig,
};
use caravan_proto::plugins::driver::network_isolation_spec::NetworkIsolationMode;
use caravan_proto::plugins::driver::{self, driver_capabilities as capabilities};
use caravan_proto::plugins::structs::{self, attribute};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// The features of a driver, as its plugin reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Supports {
    /// The features in the form that the client uses.
    pub(crate) client: Capabilities,
    /// Whether a task may have mounts.
    pub(crate) volumes: bool,
    /// Whether the plugin collects the output of tasks itself.
    pub(crate) own_logs: bool,
}

/// Reads a plugin's capabilities.
pub(crate) fn supports(found: &driver::DriverCapabilities) -> Supports {
    use capabilities::{FsIsolation as Fs, MountConfigs};
    let fs_isolation = match found.fs_isolation() {
        Fs::None => FsIsolation::None,
        Fs::Unveil => FsIsolation::Unveil,
        Fs::Chroot => FsIsolation::Chroot,
        Fs::Image => FsIsolation::Image,
    };
    let shares_network = found.network_isolation_modes.contains(&i32::from(NetworkIsolationMode::Group));
    let volumes = found.mount_configs != i32::from(MountConfigs::NoMounts);
    // The client bind-mounts the volumes of a task that sees the host's root.
    let mounts = !fs_isolation.shows_host_paths();
    Supports {
        client: Capabilities {
            send_signals: found.send_signals,
            exec: found.exec,
            fs_isolation,
            mounts,
            // A task that sees the host's root can mount for other tasks without separate mounts.
            privileged_mounts: volumes || !mounts,
            networks: shares_network,
            creates_networks: shares_network && found.must_create_network,
            dynamic_users: found.dynamic_workload_users,
            // The plugin decides: it receives the settings.
            names: true,
            survives_agent: true,
        },
        volumes,
        own_logs: found.disable_log_collection,
    }
}

/// Reads a fingerprint.
pub(crate) fn fingerprint(name: &str, found: driver::FingerprintResponse) -> Fingerprint {
    use driver::fingerprint_response::HealthState;
    if !found.err.is_empty() {
        return Fingerprint {
            state: Health::Unhealthy,
            attributes: BTreeMap::new(),
            description: format!("the plugin cannot examine this machine: {}", found.err),
        };
    }
    let state = match found.health() {
        HealthState::Undetected => Health::Undetected,
        HealthState::Unhealthy => Health::Unhealthy,
        HealthState::Healthy => Health::Healthy,
    };
    let mut attributes = BTreeMap::new();
    if state == Health::Healthy {
        attributes.insert(format!("driver.{name}"), "1".to_owned());
        for (key, value) in found.attributes {
            let text = attribute_text(&value);
            if text.is_empty() {
                attributes.remove(&key);
            } else {
                attributes.insert(key, text);
            }
        }
    }
    Fingerprint { state, attributes, description: found.health_description }
}

/// Returns an attribute as the node shows it: `true`, `8GiB`.
fn attribute_text(attribute: &structs::Attribute) -> String {
    let unit = &attribute.unit;
    match &attribute.value {
        None => String::new(),
        Some(attribute::Value::FloatVal(number)) => format!("{number}{unit}"),
        Some(attribute::Value::IntVal(number)) => format!("{number}{unit}"),
        Some(attribute::Value::StringVal(text)) => text.clone(),
        Some(attribute::Value::BoolVal(flag)) => flag.to_string(),
    }
}

/// The pipes that the plugin writes a task's output to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'a> {
    pub(crate) stdout: &'a Path,
    pub(crate) stderr: &'a Path,
}

/// Returns a task as the plugin receives it. `config` is the decoded `config` block in MessagePack.
pub(crate) fn task(task: &TaskConfig, config: Vec<u8>, output: Output<'_>) -> driver::TaskConfig {
    driver::TaskConfig {
        id: task.id.0.clone(),
        name: task.task_name.clone(),
        msgpack_driver_config: config,
        env: task.env.clone(),
        device_env: task.device_env.clone(),
        resources: Some(resources(task)),
        mounts: task.mounts.iter().map(mount).collect(),
        devices: task.devices.iter().map(device).collect(),
        user: task.user.clone().unwrap_or_default(),
        alloc_dir: text(task.dirs.shared_alloc_dir.parent().unwrap_or(&task.dirs.shared_alloc_dir)),
        stdout_path: text(output.stdout),
        stderr_path: text(output.stderr),
        task_group_name: task.group_name.clone(),
        job_name: task.job_name.clone(),
        alloc_id: task.alloc_id.clone(),
        network_isolation_spec: task.network.as_ref().map(network),
        dns: task.dns.as_ref().map(|dns| driver::DnsConfig {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        job_id: task.job_id.clone(),
        namespace: task.namespace.clone(),
        node_name: task.node_name.clone(),
        node_id: task.node_id.clone(),
        parent_job_id: task.parent_job_id.clone(),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns the network of an allocation as the plugin receives it.
pub(crate) fn network(network: &NetworkIsolation) -> driver::NetworkIsolationSpec {
    let hosts = network.hosts.clone();
    driver::NetworkIsolationSpec {
        mode: NetworkIsolationMode::Group.into(),
        path: text(&network.path),
        labels: network.labels.clone(),
        hosts_config: hosts
            .map(|line| driver::HostsConfig { hostname: line.hostname, address: line.address }),
    }
}

/// Reads the network that a plugin created for an allocation.
pub(crate) fn made_network(found: driver::NetworkIsolationSpec) -> NetworkIsolation {
    let hosts = found.hosts_config.filter(|line| !line.address.is_empty());
    NetworkIsolation {
        path: found.path.into(),
        labels: found.labels,
        hosts: hosts.map(|line| HostsLine { hostname: line.hostname, address: line.address }),
    }
}

fn resources(task: &TaskConfig) -> driver::Resources {
    let given = task.resources;
    let limit = given.memory_mb.max(given.memory_max_mb.unwrap_or(0)).saturating_mul(MIB);
    let share = if given.node_cpu_mhz == 0 { 0.0 } else { given.cpu_mhz as f64 / given.node_cpu_mhz as f64 };
    let (cpuset_cpus, cpuset_cgroup) = match &task.processors {
        Processors::Any => (String::new(), String::new()),
        Processors::Only(list) | Processors::Own(list) => (list.clone(), String::new()),
        Processors::Group(path) => (String::new(), text(path)),
    };
    driver::Resources {
        allocated_resources: Some(driver::AllocatedTaskResources {
            cpu: Some(driver::AllocatedCpuResources { cpu_shares: number(given.cpu_mhz) }),
            memory: Some(driver::AllocatedMemoryResources {
                memory_mb: number(given.memory_mb),
                memory_max_mb: number(given.memory_max_mb.unwrap_or(0)),
            }),
            networks: Vec::new(),
        }),
        linux_resources: Some(driver::LinuxResources {
            cpu_shares: number(given.cpu_mhz),
            memory_limit_bytes: number(limit),
            cpuset_cpus,
            cpuset_cgroup,
            percent_ticks: share,
            ..Default::default()
        }),
        ports: task.ports.iter().map(port).collect(),
    }
}

fn port(port: &Port) -> driver::PortMapping {
    driver::PortMapping {
        label: port.label.clone(),
        value: port.value.into(),
        to: port.to.into(),
        host_ip: port.host_ip.clone(),
    }
}

fn mount(mount: &Mount) -> driver::Mount {
    let propagation = match mount.propagation {
        Propagation::Private => "private",
        Propagation::HostToTask => "host-to-task",
        Propagation::Bidirectional => "bidirectional",
    };
    driver::Mount {
        task_path: text(&mount.task_path),
        host_path: text(&mount.host_path),
        readonly: mount.read_only,
        propagation_mode: propagation.into(),
        ..Default::default()
    }
}

fn device(device: &DeviceNode) -> driver::Device {
    driver::Device {
        task_path: text(&device.task_path),
        host_path: text(&device.host_path),
        cgroup_permissions: device.permissions.clone(),
    }
}

/// Reads the network that a driver created for a task.
pub(crate) fn network_override(found: driver::NetworkOverride) -> DriverNetwork {
    let port = |(label, port)| u16::try_from(port).ok().map(|port| (label, port));
    DriverNetwork {
        ip: found.addr,
        ports: found.port_map.into_iter().filter_map(port).collect(),
        advertise: found.auto_advertise,
    }
}

/// Reads the end of a task.
pub(crate) fn exit(found: driver::WaitTaskResponse, now_unix_ns: u64) -> ExitResult {
    let err = (!found.err.is_empty()).then_some(found.err);
    match found.result {
        Some(result) => ExitResult {
            exit_code: result.exit_code,
            signal: result.signal,
            oom_killed: result.oom_killed,
            err,
            finished_unix_ns: now_unix_ns,
            ..Default::default()
        },
        None => ExitResult {
            err: Some(err.unwrap_or_else(|| "the driver reported no result".into())),
            finished_unix_ns: now_unix_ns,
            ..Default::default()
        },
    }
}

/// Reads an event of a task.
pub(crate) fn event(found: driver::DriverTaskEvent) -> DriverEvent {
    DriverEvent {
        alloc_id: found.alloc_id,
        task_name: found.task_name,
        message: found.message,
        details: found.annotations,
    }
}

/// Returns a duration in the form of the protocols.
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// Returns the use of one process.
pub(crate) fn process_usage(pid: &str, found: &driver::TaskResourceUsage) -> Option<ProcessUsage> {
    let memory = found.memory.clone().unwrap_or_default();
    Some(ProcessUsage { pid: pid.parse().ok()?, rss: memory.rss, swap: memory.swap, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_has_its_units_and_its_own_attribute() {
        let number =
            |value| structs::Attribute { unit: "GiB".into(), value: Some(attribute::Value::IntVal(value)) };
        let flag = structs::Attribute { unit: String::new(), value: Some(attribute::Value::BoolVal(true)) };
        let found = driver::FingerprintResponse {
            attributes: [("driver.x.memory".into(), number(8)), ("driver.x.on".into(), flag)].into(),
            health: driver::fingerprint_response::HealthState::Healthy.into(),
            health_description: "Healthy".into(),
            err: String::new(),
        };
        let read = fingerprint("x", found.clone());
        let texts: Vec<_> = read.attributes.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(texts, ["driver.x=1", "driver.x.memory=8GiB", "driver.x.on=true"]);
        let read = fingerprint("x", driver::FingerprintResponse { err: "no disk".into(), ..found });
        assert_eq!(read.state, Health::Unhealthy);
        assert!(read.description.contains("no disk"));
    }

    #[test]
    fn capabilities_decide_who_mounts() {
        use capabilities::{FsIsolation as Fs, MountConfigs};
        let of = |fs: Fs, mounts: MountConfigs| {
            supports(&driver::DriverCapabilities {
                fs_isolation: fs.into(),
                mount_configs: mounts.into(),
                ..Default::default()
            })
        };
        assert!(!of(Fs::None, MountConfigs::AnyMounts).client.mounts, "the client binds on the host");
        assert!(of(Fs::Image, MountConfigs::AnyMounts).client.mounts);
        assert!(!of(Fs::Image, MountConfigs::NoMounts).volumes);
        let unveil = of(Fs::Unveil, MountConfigs::AnyMounts).client;
        assert!(unveil.fs_isolation == FsIsolation::Unveil && !unveil.mounts);
    }

    #[test]
    fn an_end_without_result_has_a_reason() {
        let read = exit(driver::WaitTaskResponse::default(), 7);
        assert!(read.err.is_some() && !read.is_success() && read.finished_unix_ns == 7);
    }
}
