//! A task's `config` block.

mod mounts;
mod values;

use crate::NAME;
use crate::image::Reference;
use crate::options::attempts;
use caravan_drivers::{Error, Reader, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

pub(crate) use mounts::{MountKind, MountSpec, VolumeSpec, expand};
pub(crate) use values::{Device, SecurityOpt, Ulimit};

/// A log driver of the engine, with its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    /// The driver's name.
    pub driver: String,
    /// The options of the log driver.
    pub config: BTreeMap<String, String>,
}

impl Logging {
    /// Reads the block `logging`. A block that names neither driver nor options counts as absent.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>> {
        let Some(mut block) = reader.block("logging")? else { return Ok(None) };
        let old_name = block.string("driver")?;
        let driver = block.string("type")?.or(old_name).unwrap_or_default();
        let config = block.string_map("config")?;
        block.finish()?;
        Ok((!driver.is_empty() || !config.is_empty()).then_some(Self { driver, config }))
    }
}

/// Credentials of a registry, from a job file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskAuth {
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) server_address: String,
}

impl fmt::Debug for TaskAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskAuth").field("server_address", &self.server_address).finish_non_exhaustive()
    }
}

/// The namespaces of a task, by the engine's names of modes; empty for the engine's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) pid: String,
    pub(crate) ipc: String,
    pub(crate) uts: String,
    pub(crate) userns: String,
    pub(crate) cgroup: String,
}

/// The network of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) mode: Option<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    pub(crate) mac: Option<String>,
    pub(crate) advertise_ipv6: bool,
    /// Labels of ports to publish.
    pub(crate) ports: Vec<String>,
    /// Ports in the container by label.
    pub(crate) port_map: BTreeMap<String, u16>,
    pub(crate) extra_hosts: Vec<String>,
    pub(crate) dns_servers: Vec<String>,
    pub(crate) dns_search: Vec<String>,
    pub(crate) dns_options: Vec<String>,
}

/// Limits of a task in addition to its `resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) cpu_hard: bool,
    pub(crate) cpu_period: Option<i64>,
    /// In MB (2^20 bytes).
    pub(crate) memory_hard_mb: Option<u64>,
    pub(crate) pids: Option<i64>,
    pub(crate) oom_score_adj: Option<i64>,
    /// In bytes.
    pub(crate) shm_size: Option<i64>,
    pub(crate) ulimits: Vec<Ulimit>,
}

/// A task's `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) image: String,
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) work_dir: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) force_pull: bool,
    pub(crate) load: Option<String>,
    pub(crate) auth: Option<TaskAuth>,
    pub(crate) auth_soft_fail: bool,
    pub(crate) image_pull_timeout: Option<Duration>,
    pub(crate) privileged: bool,
    pub(crate) cap_add: Vec<String>,
    pub(crate) cap_drop: Vec<String>,
    pub(crate) security_opt: Vec<SecurityOpt>,
    pub(crate) readonly_rootfs: bool,
    pub(crate) init: bool,
    pub(crate) interactive: bool,
    pub(crate) tty: bool,
    pub(crate) modes: Modes,
    pub(crate) limits: Limits,
    pub(crate) sysctl: BTreeMap<String, String>,
    pub(crate) storage_opt: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) logging: Option<Logging>,
    pub(crate) disable_healthchecks: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) mounts: Vec<MountSpec>,
    pub(crate) volumes: Vec<VolumeSpec>,
    pub(crate) volume_driver: Option<String>,
    pub(crate) runtime: Option<String>,
    pub(crate) group_add: Vec<String>,
    pub(crate) network: Network,
}

impl Config {
    pub(crate) fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let image = reader.required_string("image")?;
        let image = image.strip_prefix("https://").unwrap_or(&image).to_owned();
        Reference::parse(&image)?;
        let volume_driver = nonempty(&mut reader, "volume_driver")?;
        let config = Self {
            image,
            command: command(&mut reader)?,
            args: reader.strings("args")?,
            entrypoint: reader.strings("entrypoint")?,
            work_dir: nonempty(&mut reader, "work_dir")?,
            hostname: nonempty(&mut reader, "hostname")?,
            force_pull: reader.boolean("force_pull")?,
            load: nonempty(&mut reader, "load")?,
            auth: auth(&mut reader)?,
            auth_soft_fail: reader.boolean("auth_soft_fail")?,
            image_pull_timeout: reader.duration("image_pull_timeout")?,
            privileged: reader.boolean("privileged")?,
            cap_add: reader.strings("cap_add")?,
            cap_drop: reader.strings("cap_drop")?,
            security_opt: values::security(&mut reader)?,
            readonly_rootfs: reader.boolean("readonly_rootfs")?,
            init: reader.boolean("init")?,
            interactive: reader.boolean("interactive")?,
            tty: reader.boolean("tty")?,
            modes: modes(&mut reader)?,
            limits: limits(&mut reader)?,
            sysctl: reader.string_map("sysctl")?,
            storage_opt: reader.string_map("storage_opt")?,
            labels: reader.string_map("labels")?,
            logging: Logging::read(&mut reader)?,
            disable_healthchecks: healthchecks(&mut reader)?,
            devices: values::devices(&mut reader)?,
            mounts: mounts::mounts(&mut reader)?,
            volumes: mounts::volumes(&mut reader, volume_driver.is_some())?,
            volume_driver,
            runtime: nonempty(&mut reader, "runtime")?,
            group_add: reader.strings("group_add")?,
            network: network(&mut reader)?,
        };
        // The plugin's number applies; the task's is only checked.
        attempts(&mut reader)?;
        if let Some(list) = nonempty(&mut reader, "cpuset_cpus")? {
            tracing::warn!(list, "config key cpuset_cpus has no effect: reserve cores in resources");
        }
        if let Some(mode) = nonempty(&mut reader, "isolation")? {
            return Err(reader.refuse("isolation", format_args!("cannot be {mode:?} on linux")));
        }
        reader.finish()?;
        Ok(config)
    }
}

/// Reads a string; an empty one counts as absent.
fn nonempty(reader: &mut Reader<'_>, key: &'static str) -> Result<Option<String>> {
    Ok(reader.string(key)?.filter(|text| !text.is_empty()))
}

fn command(reader: &mut Reader<'_>) -> Result<Option<String>> {
    let Some(command) = nonempty(reader, "command")? else { return Ok(None) };
    match command.trim() {
        "" => Err(Error::Config(format!("command empty: {command:?}"))),
        trimmed if trimmed != command => {
            Err(Error::Config(format!("command contains extra white space: {command:?}")))
        }
        _ => Ok(Some(command)),
    }
}

fn auth(reader: &mut Reader<'_>) -> Result<Option<TaskAuth>> {
    let Some(mut block) = reader.block("auth")? else { return Ok(None) };
    let mut text = |key| block.string(key).map(Option::unwrap_or_default);
    let auth = TaskAuth {
        username: text("username")?,
        password: text("password")?,
        server_address: text("server_address")?,
    };
    // Part of the format, without use.
    text("email")?;
    block.finish()?;
    Ok((auth != TaskAuth::default()).then_some(auth))
}

fn modes(reader: &mut Reader<'_>) -> Result<Modes> {
    let mut text = |key| reader.string(key).map(Option::unwrap_or_default);
    let modes = Modes {
        pid: text("pid_mode")?,
        ipc: text("ipc_mode")?,
        uts: text("uts_mode")?,
        userns: text("userns_mode")?,
        cgroup: text("cgroupns")?,
    };
    if !matches!(modes.cgroup.as_str(), "" | "host" | "private") {
        return Err(reader.refuse("cgroupns", "must be \"host\" or \"private\""));
    }
    Ok(modes)
}

fn limits(reader: &mut Reader<'_>) -> Result<Limits> {
    let cpu_hard = reader.boolean("cpu_hard_limit")?;
    let cpu_period = reader.integer("cpu_cfs_period")?;
    if cpu_hard && cpu_period.is_some_and(|period| !(0..=1_000_000).contains(&period)) {
        return Err(Error::Config("invalid value for cpu_cfs_period".into()));
    }
    let memory_hard_mb = match reader.integer("memory_hard_limit")? {
        None | Some(0) => None,
        Some(number) => Some(
            u64::try_from(number).map_err(|_| reader.refuse("memory_hard_limit", "must not be negative"))?,
        ),
    };
    let shm_size = reader.integer("shm_size")?;
    if shm_size.is_some_and(|size| size < 0) {
        return Err(reader.refuse("shm_size", "must not be negative"));
    }
    Ok(Limits {
        cpu_hard,
        cpu_period: cpu_period.filter(|period| *period > 0),
        memory_hard_mb,
        pids: reader.integer("pids_limit")?.filter(|limit| *limit > 0),
        oom_score_adj: reader.integer("oom_score_adj")?.filter(|score| *score != 0),
        shm_size: shm_size.filter(|size| *size > 0),
        ulimits: values::ulimits(&reader.string_map("ulimit")?)?,
    })
}

fn healthchecks(reader: &mut Reader<'_>) -> Result<bool> {
    let Some(mut block) = reader.block("healthchecks")? else { return Ok(false) };
    let disable = block.boolean("disable")?;
    block.finish()?;
    Ok(disable)
}

fn network(reader: &mut Reader<'_>) -> Result<Network> {
    let ipv4 = address(reader, "ipv4_address")?;
    let ipv6 = address(reader, "ipv6_address")?;
    let mut port_map = BTreeMap::new();
    for (label, port) in reader.string_map("port_map")? {
        let port = port.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| {
            reader.refuse("port_map", format_args!("must map {label:?} to a port of 1 to 65535"))
        })?;
        port_map.insert(label, port);
    }
    let dns_servers = reader.strings("dns_servers")?;
    let (dns_servers, bad): (Vec<_>, Vec<_>) =
        dns_servers.into_iter().partition(|server| server.parse::<std::net::IpAddr>().is_ok());
    for server in bad {
        tracing::error!(server, "config key dns_servers has an entry that is not an address: ignoring it");
    }
    Ok(Network {
        mode: nonempty(reader, "network_mode")?,
        aliases: reader.strings("network_aliases")?,
        ipv4,
        ipv6,
        mac: nonempty(reader, "mac_address")?,
        advertise_ipv6: reader.boolean("advertise_ipv6_address")?,
        ports: reader.strings("ports")?,
        port_map,
        extra_hosts: reader.strings("extra_hosts")?,
        dns_servers,
        dns_search: reader.strings("dns_search_domains")?,
        dns_options: reader.strings("dns_options")?,
    })
}

fn address<T: std::str::FromStr<Err: fmt::Display>>(
    reader: &mut Reader<'_>,
    key: &'static str,
) -> Result<Option<T>> {
    let Some(text) = nonempty(reader, key)? else { return Ok(None) };
    let parsed = text.parse().map(Some);
    parsed.map_err(|error| Error::Config(format!("failed to parse {key} {text:?}: {error}")))
}

#[cfg(test)]
mod tests;
