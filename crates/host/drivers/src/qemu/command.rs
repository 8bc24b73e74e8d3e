//! The arguments of an emulator, made from a task's `config` block.

use super::{NAME, QemuOptions, emulators};
use crate::config::Reader;
use crate::task::{Port, Processors};
use crate::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The memory that a machine may have, in MB.
const MEMORY: std::ops::RangeInclusive<u64> = 128..=4_000_000;

/// The longest path of a socket, in bytes (unix(7)).
const SOCKET_PATH: usize = 108;

const DRIVE_INTERFACES: [&str; 8] = ["ide", "scsi", "sd", "mtd", "floppy", "pflash", "virtio", "none"];

/// The accelerator that uses the processor's support for virtual machines.
const KVM: &str = "kvm";

/// A task's `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) image_path: PathBuf,
    pub(super) emulator: String,
    machine_type: String,
    accelerator: String,
    drive_interface: String,
    pub(super) graceful_shutdown: bool,
    pub(super) guest_agent: bool,
    args: Vec<String>,
    /// Ports of the guest by label.
    pub(super) port_map: BTreeMap<String, u16>,
}

impl Config {
    /// Reads and checks a task's `config` block.
    pub(super) fn read(value: &Value, options: &QemuOptions) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let image_path = reader.required_string("image_path")?.into();
        let mut text = |key, default: &str| {
            let given = reader.string(key)?.filter(|text| !text.is_empty());
            Ok::<_, Error>(given.unwrap_or_else(|| default.to_owned()))
        };
        let (emulator, drive_interface) = (text("emulator", "x86_64")?, text("drive_interface", "ide")?);
        let (machine_type, accelerator) = (text("machine_type", "pc")?, text("accelerator", "tcg")?);
        for (key, value) in [("machine_type", &machine_type), ("accelerator", &accelerator)] {
            // A machine has properties that name files of the host.
            if value.contains(',') && !options.args_allowlist.is_empty() {
                return Err(reader.refuse(key, "must be a name without properties: args_allowlist is set"));
            }
        }
        let mut port_map = BTreeMap::new();
        for (label, port) in reader.string_map("port_map")? {
            let port = port.parse().ok().filter(|port| *port != 0);
            let port = port.ok_or_else(|| reader.refuse("port_map", "must contain numbers of ports"))?;
            port_map.insert(label, port);
        }
        let config = Self {
            image_path,
            emulator,
            machine_type,
            accelerator,
            drive_interface,
            graceful_shutdown: reader.boolean("graceful_shutdown")?,
            guest_agent: reader.boolean("guest_agent")?,
            args: reader.strings("args")?,
            port_map,
        };
        reader.finish()?;
        if !emulators::is_allowed(&config.emulator, &options.emulators_allowlist) {
            return Err(Error::Config(format!("'{}' is not an allowed emulator", config.emulator)));
        }
        if !DRIVE_INTERFACES.contains(&config.drive_interface.as_str()) {
            return Err(Error::Config("Unsupported drive_interface".into()));
        }
        check_args(&config.args, &options.args_allowlist)?;
        Ok(config)
    }

    /// Returns the arguments of the emulator.
    pub(super) fn arguments(&self, machine: &Machine<'_>) -> Result<Vec<String>> {
        if !MEMORY.contains(&machine.memory_mb) {
            return Err(Error::Config("QEMU memory assignment out of bounds".into()));
        }
        let name = self.image_path.file_name().unwrap_or_default().to_string_lossy();
        let mut list = Vec::new();
        let mut add = |words: &[&str]| list.extend(words.iter().map(|word| (*word).to_owned()));
        add(&["-machine", &format!("type={},accel={}", self.machine_type, self.accelerator)]);
        add(&["-name", &escaped(&name), "-m", &format!("{}M", machine.memory_mb)]);
        let drive = format!("file={},if={},id=image0", escaped(machine.image), self.drive_interface);
        add(&["-drive", &drive, "-nographic"]);
        if let Some(socket) = &machine.monitor {
            add(&["-monitor", &format!("unix:{},server=on,wait=off", socket_path(socket)?)]);
        }
        if let Some(socket) = &machine.guest_agent {
            let path = socket_path(socket)?;
            add(&["-chardev", &format!("socket,path={path},server=on,wait=off,id=qga0")]);
            add(&["-device", "virtio-serial"]);
            add(&["-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"]);
        }
        if self.accelerator.split(',').next() == Some(KVM) {
            add(&["-enable-kvm"]);
            let has_own = self.args.iter().any(|word| matches!(word.as_str(), "-smp" | "--smp"));
            if let Processors::Own(list) = machine.processors
                && let Some(count) = count(list)
                && !has_own
            {
                add(&["-smp", &count.to_string()]);
            }
        }
        list.extend(self.args.iter().cloned());
        if !machine.forwards.is_empty() {
            let rules = machine.forwards.iter().flat_map(Forward::rules).collect::<Vec<_>>().join(",");
            list.extend(["-netdev".to_owned(), format!("user,id=user.0,{rules}")]);
            list.extend(["-device".to_owned(), "virtio-net,netdev=user.0".to_owned()]);
        }
        Ok(list)
    }
}

/// The properties of a machine that are not in its `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine<'a> {
    /// The path of the image, which is absolute and has no links.
    pub(super) image: &'a str,
    pub(super) memory_mb: u64,
    pub(super) processors: &'a Processors,
    /// The socket of the monitor.
    pub(super) monitor: Option<PathBuf>,
    /// The socket of the guest's agent.
    pub(super) guest_agent: Option<PathBuf>,
    pub(super) forwards: Vec<Forward>,
}

/// A port that the emulator forwards to the guest, for both protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forward {
    /// The address to listen on; absent means all.
    address: Option<Ipv4Addr>,
    port: u16,
    guest: u16,
}

impl Forward {
    fn rules(&self) -> [String; 2] {
        let address = self.address.map(|address| address.to_string()).unwrap_or_default();
        ["tcp", "udp"].map(|protocol| format!("hostfwd={protocol}:{address}:{}-:{}", self.port, self.guest))
    }
}

/// Returns the forwarded ports of a machine. In a network namespace of the group, the emulator listens on the port to
/// which the host's port leads.
pub(super) fn forwards(
    port_map: &BTreeMap<String, u16>,
    ports: &[Port],
    own_network: bool,
) -> Result<Vec<Forward>> {
    let one = |(label, guest): (&String, &u16)| {
        let port = ports.iter().find(|port| port.label == *label);
        let port = port.ok_or_else(|| Error::Config(format!("Unknown port label {label:?}")))?;
        Ok(if own_network {
            Forward { address: None, port: if port.to == 0 { port.value } else { port.to }, guest: *guest }
        } else {
            Forward { address: port.host_ip.parse().ok(), port: port.value, guest: *guest }
        })
    };
    port_map.iter().map(one).collect()
}

/// Refuses options that the node does not allow. Each other word must follow an option, because the emulator takes a
/// separate word as the path of a disk.
fn check_args(args: &[String], allowlist: &[String]) -> Result<()> {
    if allowlist.is_empty() {
        return Ok(());
    }
    let mut may_be_value = false;
    for word in args {
        let is_option = word.starts_with('-');
        if is_option && !allowlist.contains(word) || !is_option && !may_be_value {
            return Err(Error::Config(format!("{word:?} is not in args_allowlist")));
        }
        may_be_value = is_option;
    }
    Ok(())
}

/// Returns a value for a list of properties, in which a comma is written twice.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

fn socket_path(path: &Path) -> Result<String> {
    if path.as_os_str().len() > SOCKET_PATH {
        return Err(Error::Config(format!(
            "the path of the socket {} is longer than {SOCKET_PATH} bytes",
            path.display()
        )));
    }
    let refused = || Error::Config(format!("the path of the socket {} is not UTF-8", path.display()));
    path.to_str().map(escaped).ok_or_else(refused)
}

/// Returns the number of processors in a list such as `0-1,4`.
fn count(list: &str) -> Option<u64> {
    let parts = list.split(',').map(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u64, u64) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        high.checked_sub(low).map(|more| more + 1)
    });
    parts.sum()
}

#[cfg(test)]
mod tests;
