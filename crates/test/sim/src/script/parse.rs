//! The parser of lines and words of scripts.

use super::ScriptError;
use crate::samples;
use caravan_scheduler::{Algorithm, Preemption, Rules};
use caravan_types::device::{DeviceGroup, DeviceInstance};
use caravan_types::node::{DriverInfo, Hardware, Node};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, Volume};

/// A command with its indented lines.
#[derive(Debug)]
pub(super) struct Line {
    pub number: usize,
    pub text: String,
    pub words: Vec<String>,
    pub below: Vec<Vec<String>>,
}

impl Line {
    pub fn word(&self, at: usize) -> Result<&str, String> {
        self.words
            .get(at)
            .map(String::as_str)
            .ok_or_else(|| format!("a word is missing after {:?}", self.text))
    }

    /// Returns the `key=value` words after the first `skip` words.
    pub fn pairs(&self, skip: usize) -> Result<Vec<(&str, &str)>, String> {
        pairs(self.words.get(skip..).unwrap_or_default())
    }
}

pub(super) fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, String> {
    words.iter().map(|w| w.split_once('=').ok_or_else(|| format!("{w:?} is not key=value"))).collect()
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

pub(super) fn lines(text: &str) -> Result<Vec<Line>, ScriptError> {
    let mut lines: Vec<Line> = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let content = raw.split(" #").next().unwrap_or_default().trim_end();
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        let words: Vec<String> = content.split_whitespace().map(str::to_owned).collect();
        if content.starts_with(' ') {
            let Some(above) = lines.last_mut() else {
                let message = "an indented line needs a command above it".to_owned();
                return Err(ScriptError { line: at + 1, message });
            };
            above.below.push(words);
        } else {
            lines.push(Line { number: at + 1, text: content.to_owned(), words, below: Vec::new() });
        }
    }
    Ok(lines)
}

/// Expands `a`, `a,b`, or `n1..n4`.
pub(super) fn names(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in text.split(',') {
        let Some((first, last)) = part.split_once("..") else {
            names.push(part.to_owned());
            continue;
        };
        let split = |name: &str| -> Result<(String, u32), String> {
            let digits = name.len() - name.chars().rev().take_while(char::is_ascii_digit).count();
            Ok((name[..digits].to_owned(), number(&name[digits..])?))
        };
        let ((prefix, from), (other, to)) = (split(first)?, split(last)?);
        if prefix != other {
            return Err(format!("{part:?} is not a range: both ends must begin alike"));
        }
        names.extend((from..=to).map(|n| format!("{prefix}{n}")));
    }
    Ok(names)
}

/// Replaces `%N` by the remainder of the number modulo N.
fn vary(value: &str, number: usize) -> String {
    let Some((before, after)) = value.split_once('%') else { return value.to_owned() };
    match after.parse::<usize>() {
        Ok(modulus) if modulus > 0 => format!("{before}{}", number % modulus),
        _ => value.to_owned(),
    }
}

pub(super) fn nodes(line: &Line) -> Result<Vec<Node>, String> {
    let mut made = Vec::new();
    for (at, name) in names(line.word(1)?)?.into_iter().enumerate() {
        let mut node = samples::node(&name);
        for (key, value) in line.pairs(2)? {
            set(&mut node, key, &vary(value, at))?;
        }
        made.push(node);
    }
    Ok(made)
}

fn set(node: &mut Node, key: &str, value: &str) -> Result<(), String> {
    match key {
        "dc" => node.datacenter = value.to_owned(),
        "class" => node.node_class = value.to_owned(),
        "pool" => node.node_pool = value.to_owned(),
        "cpu" => node.node_resources.cpu.cpu_shares = number(value)?,
        "memory" => node.node_resources.memory.memory_mb = number(value)?,
        "disk" => node.node_resources.disk.disk_mb = number(value)?,
        "cores" => {
            let cores: u16 = number(value)?;
            node.node_resources.cpu.total_cpu_cores = u32::from(cores);
            node.node_resources.cpu.reservable_cpu_cores = (0..cores).collect();
        }
        "reserved_cores" => {
            let cores = caravan_types::cores::parse(value).map_err(|error| error.to_string())?;
            node.reserved_resources.cpu.reserved_cpu_cores = cores.into_iter().collect();
        }
        // The number of cores of each NUMA node; must follow `cores`.
        "numa" => {
            let each = number::<u16>(value)?.max(1);
            let core = |id: &u16| serde_json::json!({"ID": id, "NodeID": id / each});
            let cores: Vec<serde_json::Value> =
                node.node_resources.cpu.reservable_cpu_cores.iter().map(core).collect();
            node.node_resources.processors.topology = Some(Hardware(serde_json::json!({ "Cores": cores })));
        }
        "max_allocs" => node.node_max_allocs = number(value)?,
        "reserved_ports" => node.reserved_resources.networks.reserved_host_ports = value.to_owned(),
        "drivers" => {
            node.drivers.clear();
            for driver in value.split(',').filter(|driver| !driver.is_empty()) {
                let info = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
                node.drivers.insert(driver.to_owned(), info);
            }
        }
        "device" => node.node_resources.devices.push(device(value)?),
        _ => {
            if let Some(key) = key.strip_prefix("meta.") {
                node.meta.insert(key.to_owned(), value.to_owned());
            } else if let Some(key) = key.strip_prefix("attr.") {
                node.attributes.insert(key.to_owned(), value.to_owned());
            } else {
                return Err(format!("nodes have no {key:?}"));
            }
        }
    }
    Ok(())
}

/// Parses `vendor/type/name:count`.
fn device(text: &str) -> Result<DeviceGroup, String> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let parts: Vec<&str> = name.split('/').collect();
    let [vendor, kind, name] = parts[..] else {
        return Err(format!("{text:?} is not vendor/type/name:count"));
    };
    let count: usize = number(count)?;
    let instance =
        |n| DeviceInstance { id: format!("{name}-{n}"), healthy: true, ..DeviceInstance::default() };
    Ok(DeviceGroup {
        vendor: vendor.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        instances: (0..count).map(instance).collect(),
        ..DeviceGroup::default()
    })
}

/// Applies `plugin ID on NAMES [max=N]` to one of the nodes.
pub(super) fn install(line: &Line, node: &mut Node) -> Result<(), String> {
    let id = line.word(1)?;
    let mut max_volumes = 0;
    for (key, value) in line.pairs(4)? {
        match key {
            "max" => max_volumes = number(value)?,
            other => return Err(format!("plugins have no {other:?}")),
        }
    }
    let (info, controller) = crate::plugin_on(node.id.as_str(), id, max_volumes);
    node.csi_node_plugins.insert(id.into(), info);
    node.csi_controller_plugins.insert(id.into(), controller);
    Ok(())
}

pub(super) fn mode(text: &str) -> Result<AccessMode, String> {
    let quoted = serde_json::Value::String(text.to_owned());
    serde_json::from_value(quoted).map_err(|_| format!("there is no access mode {text:?}"))
}

pub(super) fn volume(line: &Line) -> Result<Volume, String> {
    let id = line.word(1)?;
    let mut volume = Volume {
        namespace: "default".into(),
        id: id.into(),
        external_id: format!("ext-{id}"),
        ..Volume::default()
    };
    let mut access_mode = AccessMode::SingleNodeWriter;
    for (key, value) in line.pairs(2)? {
        match key {
            "plugin" => volume.plugin_id = value.into(),
            "mode" => access_mode = mode(value)?,
            other => return Err(format!("volumes have no {other:?}")),
        }
    }
    volume.requested_capabilities =
        vec![Capability { attachment_mode: AttachmentMode::FileSystem, access_mode }];
    Ok(volume)
}

pub(super) fn rules(line: &Line) -> Result<Rules, String> {
    let mut rules = Rules::default();
    for (key, value) in line.pairs(1)? {
        match (key, value) {
            ("algorithm", "spread") => rules.algorithm = Algorithm::Spread,
            ("algorithm", "binpack") => rules.algorithm = Algorithm::Binpack,
            ("oversubscription", "true") => rules.memory_oversubscription = true,
            ("preempt", kinds) => {
                let names: Vec<&str> = kinds.split(',').collect();
                let has = |name: &str| names.contains(&name);
                rules.preemption = Preemption {
                    system: has("system"),
                    sysbatch: has("sysbatch"),
                    batch: has("batch"),
                    service: has("service"),
                };
            }
            _ => return Err(format!("there is no rule {key}={value}")),
        }
    }
    Ok(rules)
}
