//! The runs of the plugins of a network.

use super::fault::{CniFault, Code};
use super::list::{NetworkList, PluginConfig};
use super::outcome::CniResult;
use super::process::{self, Ended};
use crate::attachment::Forward;
use caravan_types::AllocId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The timeout of a plugin for a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(90);
/// The timeout of a plugin for the report that it is ready.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a plugin for the output of its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// A command of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds an interface.
    Add,
    /// Removes an interface.
    Del,
    /// Checks an interface.
    Check,
    /// Reports whether the plugin is ready.
    Status,
    /// Removes resources that belong to no interface.
    Gc,
}

impl Command {
    const fn variable(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.variable().to_lowercase())
    }
}

/// An allocation that was or is being added to a network, with everything that its removal needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The id of the allocation.
    pub alloc: AllocId,
    /// The path at which the namespace of the allocation is held.
    pub namespace: PathBuf,
    /// The configuration with which the allocation was added: the file may change afterwards.
    pub list: NetworkList,
    /// The value of `CNI_ARGS`.
    pub arguments: String,
    /// The ports of the node that lead to the allocation.
    pub forwards: Vec<Forward>,
    /// The result of the last plugin that succeeded.
    pub result: Option<CniResult>,
    /// The id of the boot in which the allocation was added: a namespace does not outlive the boot.
    pub boot: String,
}

/// The programs of plugins.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The directories, as configured.
    path: String,
    change_timeout: Duration,
}

impl Runtime {
    /// Creates the runtime for plugins in some directories, separated by colons.
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), change_timeout: CHANGE_TIMEOUT }
    }

    /// Limits the time of a plugin for a change.
    #[must_use]
    pub fn limited(self, change_timeout: Duration) -> Self {
        Self { change_timeout, ..self }
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.path.split(':').filter(|dir| !dir.is_empty()).map(Path::new)
    }

    /// Adds an allocation to its network, and stores the result in `attached`. After an error, the plugins are called
    /// to undo the addition. Blocks, as all calls.
    ///
    /// # Errors
    /// Returns the error of the first plugin that failed.
    pub fn add(&self, attached: &mut Attached) -> Result<(), CniFault> {
        attached.result = None;
        for at in 0..attached.list.plugins.len() {
            match self.add_by(attached, at) {
                Ok(result) => attached.result = Some(result),
                Err(fault) => {
                    // The specification demands DEL also after a failed ADD: an address may be assigned already.
                    if let Err(left) = self.del(attached) {
                        let error = caravan_sys::describe(&left);
                        tracing::warn!(alloc = %attached.alloc, error, "a failed network addition cannot be undone");
                    }
                    attached.result = None;
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    fn add_by(&self, attached: &Attached, at: usize) -> Result<CniResult, CniFault> {
        let plugin = &attached.list.plugins[at];
        let output = self.call(Command::Add, attached, plugin)?;
        CniResult::parse(&output, attached.list.version)
            .map_err(|reason| CniFault::Result { plugin: plugin.kind.clone(), reason })
    }

    /// Removes an allocation from its network. If one plugin fails, the other plugins are still called.
    ///
    /// # Errors
    /// Returns all errors.
    pub fn del(&self, attached: &Attached) -> Result<(), CniFault> {
        let mut faults = Vec::new();
        for plugin in attached.list.plugins.iter().rev() {
            faults.extend(self.call(Command::Del, attached, plugin).err());
        }
        CniFault::combine(faults).map_or(Ok(()), Err)
    }

    /// Checks whether the network of an allocation is unchanged since its addition. A list that allows no check has
    /// no differences.
    ///
    /// # Errors
    /// Returns the error of the first plugin that found a difference.
    pub fn check(&self, attached: &Attached) -> Result<(), CniFault> {
        if !attached.list.version.has_check() || attached.list.disable_check {
            return Ok(());
        }
        for plugin in &attached.list.plugins {
            match self.call(Command::Check, attached, plugin) {
                Err(fault) if fault.is_incompatible() => {
                    let error = caravan_sys::describe(&fault);
                    tracing::debug!(plugin = plugin.kind, error, "a plugin does not support CHECK");
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Checks that the plugins of a network are ready. Lists of versions without STATUS only need the programs.
    ///
    /// # Errors
    /// Returns the error of the first plugin that is not ready or absent.
    pub fn status(&self, list: &NetworkList) -> Result<(), CniFault> {
        for plugin in &list.plugins {
            let program = self.program(&plugin.kind)?;
            if !list.version.has_status() {
                continue;
            }
            let input = Value::Object(stdin(list, plugin)).to_string();
            let variables = [("CNI_COMMAND", "STATUS".into()), ("CNI_PATH", OsString::from(&self.path))];
            let outcome =
                self.run(Command::Status, &plugin.kind, &program, &variables, &input, STATUS_TIMEOUT);
            match outcome {
                // The plugin supports only an earlier version than its list.
                Err(fault) if fault.is_incompatible() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Lets the plugins of a network remove resources that belong to none of the added allocations.
    ///
    /// # Errors
    /// Returns all errors.
    pub fn gc(&self, list: &NetworkList, valid: &[&Attached]) -> Result<(), CniFault> {
        if !list.version.has_status() || list.disable_gc {
            return Ok(());
        }
        let valid: Vec<Value> = valid
            .iter()
            .map(|attached| json!({"containerID": attached.alloc.as_str(), "ifname": super::INTERFACE}))
            .collect();
        let mut faults = Vec::new();
        for plugin in &list.plugins {
            let mut input = stdin(list, plugin);
            input.insert("cni.dev/valid-attachments".to_owned(), Value::Array(valid.clone()));
            let input = Value::Object(input).to_string();
            let variables = [("CNI_COMMAND", "GC".into()), ("CNI_PATH", OsString::from(&self.path))];
            let outcome = self.program(&plugin.kind).and_then(|program| {
                self.run(Command::Gc, &plugin.kind, &program, &variables, &input, self.change_timeout)
            });
            faults.extend(outcome.err().filter(|fault| !fault.is_incompatible()));
        }
        CniFault::combine(faults).map_or(Ok(()), Err)
    }

    /// Returns the programs of all directories that may be plugins, with the time of their last change. Of
    /// several programs with the same name, the first one runs.
    pub fn programs(&self) -> Vec<(PathBuf, std::time::SystemTime)> {
        let mut all = Vec::new();
        for dir in self.dirs() {
            let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths {
                let Ok(found) = std::fs::metadata(&path) else { continue };
                if found.is_file() && found.permissions().mode() & 0o111 != 0 {
                    all.push((path, found.modified().unwrap_or(std::time::UNIX_EPOCH)));
                }
            }
        }
        all
    }

    /// Returns the versions that some plugins print, by the name of the plugin. Plugins that print none are left out. Of
    /// several programs with the same name, the first one counts.
    pub fn versions<'a>(programs: impl Iterator<Item = &'a Path>) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for path in programs {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            // The first directory with the plugin has the program that runs.
            if !seen.insert(name) {
                continue;
            }
            match process::run(path, &[], b"", VERSION_TIMEOUT) {
                Ok(Ended { status: Some(status), output, errors }) if status.success() => {
                    if let Some(version) = printed_version(&output).or_else(|| printed_version(&errors)) {
                        found.insert(name.to_owned(), version);
                    }
                }
                Ok(ended) => tracing::debug!(plugin = name, ?ended, "a plugin prints no version"),
                Err(error) => tracing::debug!(plugin = name, %error, "a plugin cannot be started"),
            }
        }
        found
    }

    fn program(&self, kind: &str) -> Result<PathBuf, CniFault> {
        let found = self.dirs().map(|dir| dir.join(kind)).find(|path| path.is_file());
        found.ok_or_else(|| CniFault::Missing { plugin: kind.to_owned(), path: self.path.clone() })
    }

    fn call(&self, command: Command, attached: &Attached, plugin: &PluginConfig) -> Result<String, CniFault> {
        let program = self.program(&plugin.kind)?;
        let mut input = stdin(&attached.list, plugin);
        let asked = capabilities(&attached.forwards);
        let asked: Map<String, Value> =
            asked.into_iter().filter(|(name, _)| plugin.capabilities.contains(name)).collect();
        if !asked.is_empty() {
            input.insert("runtimeConfig".to_owned(), Value::Object(asked));
        }
        let passes_result = command == Command::Add || attached.list.version.has_check();
        if let Some(result) = attached.result.as_ref().filter(|_| passes_result) {
            input.insert("prevResult".to_owned(), result.value());
        }
        let variables = [
            ("CNI_COMMAND", OsString::from(command.variable())),
            ("CNI_CONTAINERID", attached.alloc.as_str().into()),
            ("CNI_NETNS", attached.namespace.as_os_str().to_owned()),
            ("CNI_IFNAME", super::INTERFACE.into()),
            ("CNI_ARGS", OsString::from(&attached.arguments)),
            ("CNI_PATH", OsString::from(&self.path)),
        ];
        let input = Value::Object(input).to_string();
        self.run(command, &plugin.kind, &program, &variables, &input, self.change_timeout)
    }

    fn run(
        &self,
        command: Command,
        kind: &str,
        program: &Path,
        variables: &[(&str, OsString)],
        input: &str,
        limit: Duration,
    ) -> Result<String, CniFault> {
        let plugin = kind.to_owned();
        let ended = process::run(program, variables, input.as_bytes(), limit)
            .map_err(|source| CniFault::Start { plugin: plugin.clone(), source })?;
        let Some(status) = ended.status else { return Err(CniFault::Late { plugin, command, limit }) };
        if status.success() {
            return Ok(ended.output);
        }
        match serde_json::from_str::<Report>(&ended.output) {
            Ok(report) if report.code != 0 || !report.msg.is_empty() => Err(CniFault::Reported {
                plugin,
                command,
                code: Code(report.code),
                message: match report.details.is_empty() {
                    true => report.msg,
                    false => format!("{}: {}", report.msg, report.details),
                },
            }),
            _ => {
                Err(CniFault::Broken { plugin, command, ended: process::words(status), output: ended.errors })
            }
        }
    }
}

/// The error that a plugin prints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    code: u32,
    msg: String,
    details: String,
}

/// Returns the input of a plugin: its configuration, and the name and the version of its list.
fn stdin(list: &NetworkList, plugin: &PluginConfig) -> Map<String, Value> {
    let mut input = plugin.keys();
    input.insert("name".to_owned(), Value::String(list.name.clone()));
    input.insert("cniVersion".to_owned(), Value::String(list.version.to_string()));
    input
}

/// Returns the capabilities that the client offers. Each port of the node is mapped for both protocols.
fn capabilities(forwards: &[Forward]) -> Map<String, Value> {
    let mut all = Map::new();
    let mappings = forwards.iter().flat_map(|forward| {
        ["tcp", "udp"].map(|protocol| {
            let mut mapping = json!({
                "hostPort": forward.port,
                "containerPort": forward.to,
                "protocol": protocol,
            });
            if let (Some(address), Some(mapping)) = (forward.address, mapping.as_object_mut()) {
                mapping.insert("hostIP".to_owned(), Value::String(address.to_string()));
            }
            mapping
        })
    });
    let mappings: Vec<Value> = mappings.collect();
    if !mappings.is_empty() {
        all.insert("portMappings".to_owned(), Value::Array(mappings));
    }
    all
}

/// Returns the first word of a text that is a version such as `v1.9.1`.
fn printed_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let numbers = word.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
        numbers.split('.').count() == 3
            && numbers.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_plugins_print() {
        let find = |text: &str| printed_version(text).unwrap_or_default();
        assert_eq!(
            find("CNI bridge plugin v1.9.1\nCNI protocol versions supported: 0.1.0, 0.2.0\n"),
            "v1.9.1"
        );
        assert_eq!(find("CNI bridge plugin version unknown\nCNI protocol versions supported: 0.1.0\n"), "");
        assert_eq!(find("cilium 1.2.3-rc.1"), "1.2.3-rc.1");
        assert_eq!(find(""), "");
    }

    #[test]
    fn ports_are_mapped_for_both_protocols() {
        let forward = |address: Option<&str>| Forward {
            address: address.map(|ip| ip.parse().unwrap()),
            port: 8080,
            to: 80,
        };
        assert!(capabilities(&[]).is_empty());
        let all = Value::Object(capabilities(&[forward(None), forward(Some("10.0.0.1"))]));
        assert_eq!(all["portMappings"].as_array().unwrap().len(), 4);
        assert_eq!(all["portMappings"][1], json!({"hostPort": 8080, "containerPort": 80, "protocol": "udp"}));
        assert_eq!(all["portMappings"][2]["hostIP"], "10.0.0.1");
    }
}
