//! The description of a container that the engine receives. Pure, except for the files that a job names.

mod devices;
pub(crate) mod hosts;
mod mounts;
mod ports;
#[cfg(test)]
mod tests;

use crate::config::{Config, SecurityOpt};
use crate::network::HOLDER;
use crate::options::{DockerOptions, allows_mode, default_logging, plain_capability, selected};
use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HealthConfig, HostConfig,
    HostConfigCgroupnsModeEnum, HostConfigLogConfig, NetworkingConfig, ResourcesUlimits,
};
use caravan_drivers::{
    DEFAULT_CAPABILITIES, Error, NetworkIsolation, Processors, Resources, Result, TaskConfig,
};
use mounts::Mounted;
use std::collections::HashMap;

/// The prefix of the labels that containers get.
const LABEL_PREFIX: &str = "com.hashicorp.nomad.";

/// The label with the id of a container's allocation.
pub(crate) const ALLOC_LABEL: &str = "com.hashicorp.nomad.alloc_id";

/// The label with the id of the run of a task ([`caravan_drivers::TaskId`]).
pub(crate) const RUN_LABEL: &str = "caravan.task_id";

/// The label with the id of the node whose agent made the container.
pub(crate) const NODE_LABEL: &str = "caravan.node_id";

/// Bytes of a MB in job files.
const MIB: i64 = 1 << 20;

/// The least memory that engines accept, in bytes.
const MIN_MEMORY: i64 = 6 * MIB;

/// The size at which podman begins a new file of output, unless the job or the node sets one.
const PODMAN_MAX_SIZE: &str = "100m";

/// The MHz up to which CPU shares are MHz. Nodes with more scale their shares to this number.
const MAX_SHARES: u64 = 262_144;

/// Facts about the engine that decide which settings it accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Whether the engine uses version 2 of control groups.
    pub(crate) cgroup_v2: bool,
    /// Number of processors.
    pub(crate) processors: i64,
    /// Whether the engine is podman's service.
    pub(crate) is_podman: bool,
}

/// Returns the name of a task's container, which is the same for each run of the task.
pub(crate) fn name(task: &TaskConfig) -> String {
    format!("{}-{}", task.task_name.replace('/', "_"), task.alloc_id)
}

/// Returns the description of a task's container.
///
/// # Errors
/// If the task requests more than the node allows, or the combination of settings is impossible.
pub(crate) fn body(
    task: &TaskConfig,
    config: &Config,
    options: &DockerOptions,
    facts: Facts,
    image: &str,
) -> Result<ContainerCreateBody> {
    check_allowed(config, options)?;
    let Mounted { binds, mounts } = mounts::all(task, config, options)?;
    let network_mode = network_mode(task, config)?;
    let ports = ports::published(task, config, &network_mode)?;
    // Files of the client replace these settings.
    let own_network = joined(task, config).is_none();
    let unless_joined = |values: &Vec<String>| present(values.clone()).filter(|_| own_network);
    let resolver = hosts::resolver(task, config).unwrap_or_default();
    let mut host = HostConfig {
        binds: Some(binds),
        mounts: Some(mounts),
        volume_driver: config.volume_driver.clone(),
        privileged: Some(config.privileged),
        readonly_rootfs: Some(config.readonly_rootfs),
        init: config.init.then_some(true),
        devices: Some(devices::all(task, config)),
        security_opt: Some(security(config)?),
        sysctls: map(&config.sysctl),
        storage_opt: map(&config.storage_opt),
        ulimits: Some(ulimits(config)),
        shm_size: config.limits.shm_size,
        oom_score_adj: config.limits.oom_score_adj,
        group_add: present(config.group_add.clone()),
        runtime: devices::runtime(task, config, options)?,
        pid_mode: text(&config.modes.pid),
        ipc_mode: text(&config.modes.ipc),
        uts_mode: text(&config.modes.uts),
        userns_mode: text(&config.modes.userns),
        cgroupns_mode: match config.modes.cgroup.as_str() {
            "host" => Some(HostConfigCgroupnsModeEnum::HOST),
            "private" => Some(HostConfigCgroupnsModeEnum::PRIVATE),
            _ => None,
        },
        log_config: Some(log_config(config, options, facts)),
        pids_limit: Some(pids(config, options)?),
        network_mode: Some(network_mode),
        port_bindings: (!ports.bindings.is_empty()).then_some(ports.bindings),
        extra_hosts: unless_joined(&config.network.extra_hosts),
        dns: unless_joined(&resolver.servers),
        dns_search: unless_joined(&resolver.searches),
        dns_options: unless_joined(&resolver.options),
        ..HostConfig::default()
    };
    capabilities(config, options, &mut host);
    memory(task, config, facts, &mut host)?;
    cpu(task, config, facts, &mut host);
    let mut env = task.env.clone();
    env.extend(ports.variables);
    Ok(ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: present(config.command.iter().chain(&config.args).cloned().collect()),
        entrypoint: present(config.entrypoint.clone()),
        working_dir: config.work_dir.clone(),
        hostname: config.hostname.clone(),
        user: task.user.clone(),
        env: Some(env.into_iter().map(|(key, value)| format!("{key}={value}")).collect()),
        tty: Some(config.tty),
        open_stdin: Some(config.interactive),
        exposed_ports: (!ports.exposed.is_empty()).then_some(ports.exposed),
        healthcheck: config
            .disable_healthchecks
            .then(|| HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        labels: Some(labels(task, config, options)),
        networking_config: endpoint(config),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    })
}

/// Returns the network of the group that a task's container joins; `None` if the container has another network.
pub(crate) fn joined<'a>(task: &'a TaskConfig, config: &Config) -> Option<&'a NetworkIsolation> {
    task.network.as_ref().filter(|_| config.network.mode.is_none())
}

fn network_mode(task: &TaskConfig, config: &Config) -> Result<String> {
    let Some(network) = joined(task, config) else {
        return Ok(config.network.mode.clone().unwrap_or_else(|| "default".into()));
    };
    let holder = network.labels.get(HOLDER);
    holder.map(|holder| format!("container:{holder}")).ok_or_else(|| {
        Error::Config("a container cannot join the network that another driver made for the group".into())
    })
}

/// Refuses settings that the node does not allow.
pub(crate) fn check_allowed(config: &Config, options: &DockerOptions) -> Result<()> {
    if config.privileged && !options.allow_privileged {
        return Err(Error::Config("Docker privileged mode is disabled on this Nomad agent".into()));
    }
    let modes = [
        ("pid_mode", &config.modes.pid, &options.allowed_modes.pid),
        ("ipc_mode", &config.modes.ipc, &options.allowed_modes.ipc),
        ("uts_mode", &config.modes.uts, &options.allowed_modes.uts),
        ("userns_mode", &config.modes.userns, &options.allowed_modes.userns),
    ];
    for (key, mode, allowed) in modes {
        if !mode.is_empty() && !options.allow_privileged && !allows_mode(allowed, mode) {
            return Err(Error::Config(format!(
                "cannot apply {key:?} configuration: this node does not allow the mode {mode:?}"
            )));
        }
    }
    if let Some(runtime) = &config.runtime
        && !options.allow_runtimes.contains(runtime)
    {
        return Err(Error::Config(format!("requested runtime {runtime:?} is not allowed")));
    }
    let refused: Vec<String> = config
        .cap_add
        .iter()
        .filter(|name| !options.allows_capability(name))
        .map(|name| plain_capability(name))
        .collect();
    if !refused.is_empty() {
        return Err(Error::Config(format!(
            "driver does not allow the following capabilities: {}",
            refused.join(", ")
        )));
    }
    pids(config, options).map(drop)
}

/// Sets the added and dropped capabilities. The engine starts from its default set, so a default that the node does
/// not allow is dropped.
fn capabilities(config: &Config, options: &DockerOptions, host: &mut HostConfig) {
    // The engine's default set is that of this driver with net_raw.
    let defaults = DEFAULT_CAPABILITIES.iter().copied().chain(["net_raw"]);
    let upper = |name: &str| plain_capability(name).to_uppercase();
    let denied = defaults.filter(|name| !options.allows_capability(name)).map(upper);
    let mut drop: Vec<String> = denied.chain(config.cap_drop.iter().map(|name| upper(name))).collect();
    drop.sort();
    drop.dedup();
    let add = config.cap_add.iter().map(|name| upper(name)).collect::<Vec<_>>();
    // A capability that the job adds by name stays, also with `cap_drop = ["all"]`.
    drop.retain(|name| !add.contains(name));
    host.cap_add = present(add);
    host.cap_drop = present(drop);
}

fn memory(task: &TaskConfig, config: &Config, facts: Facts, host: &mut HostConfig) -> Result<()> {
    let resources = &task.resources;
    let bytes = |mb: u64| i64::try_from(mb).unwrap_or(i64::MAX).saturating_mul(MIB);
    let reserved = bytes(resources.memory_mb);
    // Version 2 of control groups has no swappiness.
    host.memory_swappiness = (!facts.cgroup_v2).then_some(0);
    if resources.memory_max_mb == Some(Resources::NO_MEMORY_LIMIT) {
        host.memory_reservation = Some(reserved);
        return Ok(());
    }
    let hard = resources.memory_max_mb.into_iter().chain(config.limits.memory_hard_mb).max().map(bytes);
    let limit = hard.unwrap_or(reserved);
    if reserved > limit {
        return Err(Error::Config(format!(
            "task memory requirements exceed driver hard limit of {} MB",
            limit / MIB
        )));
    }
    if limit > 0 {
        let limit = limit.max(MIN_MEMORY);
        host.memory = Some(limit);
        // The same limit for memory and swap together leaves no swap.
        host.memory_swap = Some(limit);
    }
    if hard.is_some() {
        host.memory_reservation = Some(reserved);
    }
    Ok(())
}

fn cpu(task: &TaskConfig, config: &Config, facts: Facts, host: &mut HostConfig) {
    let (mhz, node) = (task.resources.cpu_mhz, task.resources.node_cpu_mhz);
    let scaled = if node > MAX_SHARES { mhz.saturating_mul(MAX_SHARES) / node } else { mhz };
    host.cpu_shares = Some(i64::try_from(scaled.max(2)).unwrap_or(i64::MAX));
    if config.limits.cpu_hard && node > 0 {
        let period = config.limits.cpu_period.unwrap_or(100_000);
        let share = u128::from(mhz) * u128::try_from(period * facts.processors).unwrap_or(0);
        host.cpu_period = Some(period);
        host.cpu_quota = Some(i64::try_from(share / u128::from(node)).unwrap_or(i64::MAX).max(1000));
    }
    host.cpuset_cpus = match &task.processors {
        Processors::Own(list) | Processors::Only(list) => Some(list.clone()),
        Processors::Any | Processors::Group(_) => None,
    };
}

/// Returns the largest number of processes; -1 means no limit.
fn pids(config: &Config, options: &DockerOptions) -> Result<i64> {
    match (config.limits.pids, options.pids_limit) {
        (Some(task), Some(node)) if task > node => Err(Error::Config(format!(
            "pids_limit cannot be greater than nomad plugin config pids_limit: {node}"
        ))),
        (Some(limit), _) | (None, Some(limit)) => Ok(limit),
        (None, None) => Ok(-1),
    }
}

fn ulimits(config: &Config) -> Vec<ResourcesUlimits> {
    let limits = config.limits.ulimits.iter();
    limits
        .map(|limit| ResourcesUlimits {
            name: Some(limit.name.clone()),
            soft: Some(limit.soft),
            hard: Some(limit.hard),
        })
        .collect()
}

/// Returns the security options. The engine receives the content of a filter of system calls, not its path.
fn security(config: &Config) -> Result<Vec<String>> {
    let read = |option: &SecurityOpt| match option {
        SecurityOpt::Plain(text) => Ok(text.clone()),
        SecurityOpt::SeccompFile(path) => {
            let bad =
                |reason: String| Error::Config(format!("opening seccomp profile ({path}) failed: {reason}"));
            let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            let filter: serde_json::Value =
                serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
            Ok(format!("seccomp={filter}"))
        }
    };
    config.security_opt.iter().map(read).collect()
}

fn log_config(config: &Config, options: &DockerOptions, facts: Facts) -> HostConfigLogConfig {
    let logging = config.logging.as_ref().unwrap_or(&options.logging);
    let mut values: HashMap<_, _> = logging.config.clone().into_iter().collect();
    if facts.is_podman && *logging == default_logging() {
        // podman keeps no older file: two files that fill between two reads are a loss.
        values.insert("max-size".into(), PODMAN_MAX_SIZE.into());
    }
    HostConfigLogConfig { typ: text(&logging.driver), config: Some(values) }
}

fn labels(task: &TaskConfig, config: &Config, options: &DockerOptions) -> HashMap<String, String> {
    let extra = [
        ("job_name", task.job_name.as_str()),
        ("job_id", &task.job_id),
        ("parent_job_id", &task.parent_job_id),
        ("task_group_name", &task.group_name),
        ("task_name", &task.task_name),
        ("namespace", &task.namespace),
        ("node_name", &task.node_name),
        ("node_id", &task.node_id),
    ];
    let extra = selected(&options.extra_labels, extra);
    let own = [(ALLOC_LABEL, &task.alloc_id), (RUN_LABEL, &task.id.0), (NODE_LABEL, &task.node_id)];
    // The driver finds its containers by its own labels, so a job cannot set these.
    config
        .labels
        .clone()
        .into_iter()
        .chain(extra.into_iter().map(|(name, value)| (format!("{LABEL_PREFIX}{name}"), value)))
        .chain(own.map(|(name, value)| (name.to_owned(), value.clone())))
        .collect()
}

/// Returns the settings of the endpoint in the network that the job names.
fn endpoint(config: &Config) -> Option<NetworkingConfig> {
    let network = &config.network;
    let addresses = network.ipv4.is_some() || network.ipv6.is_some();
    if network.aliases.is_empty() && !addresses && network.mac.is_none() {
        return None;
    }
    let endpoint = EndpointSettings {
        aliases: present(network.aliases.clone()),
        ipam_config: addresses.then(|| EndpointIpamConfig {
            ipv4_address: network.ipv4.map(|ip| ip.to_string()),
            ipv6_address: network.ipv6.map(|ip| ip.to_string()),
            link_local_ips: None,
        }),
        mac_address: network.mac.clone(),
        ..EndpointSettings::default()
    };
    let name = network.mode.clone().unwrap_or_else(|| "default".into());
    Some(NetworkingConfig { endpoints_config: Some([(name, endpoint)].into()) })
}

fn map(values: &std::collections::BTreeMap<String, String>) -> Option<HashMap<String, String>> {
    (!values.is_empty()).then(|| values.clone().into_iter().collect())
}

fn present<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}
