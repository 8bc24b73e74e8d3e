//! The catalog: the programs of `plugin_dir` that the agent's configuration names
//! (docs/reference/drivers.md, section 6).

mod broken;
mod known;

use crate::device::ExternalDevice;
use crate::driver::ExternalDriver;
use crate::instance::Timing;
use crate::process::{Process, Program, hex};
use crate::setup::{Configured, Info, Kind, Setup, parse_version};
use crate::{PluginError, process};
use broken::BrokenDriver;
use caravan_drivers::{DevicePlugin, Driver, ShimCommand};
use known::Known;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait of the agent's start for a plugin with a record of an earlier run. The plugin is not missing
/// meanwhile: its driver waits for the process.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The version of all built-in drivers.
const BUILT_IN_VERSION: &str = "0.1.0";

/// A `plugin` block.
#[derive(Clone, Default)]
pub struct Block {
    /// The arguments of the program.
    pub args: Vec<String>,
    /// The plugin's configuration.
    pub config: serde_json::Value,
    /// The places of the configuration's keys in the files, by path (`auth.username`); the empty path is the block's.
    pub places: BTreeMap<String, String>,
}

impl fmt::Debug for Block {
    /// Omits arguments and configuration, since either may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("place", &self.places.get("")).finish_non_exhaustive()
    }
}

/// The directories of plugins, and the settings of the agent's configuration about them.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the programs; `None` loads no plugin.
    pub plugin_dir: Option<PathBuf>,
    /// Whether the directory was configured: only then is it an error if it does not exist.
    pub is_configured: bool,
    /// The `plugin` blocks by the name of the program's file.
    pub blocks: BTreeMap<String, Block>,
    /// The agent's directory for plugins: sockets, pipes, and records of processes.
    pub state_dir: PathBuf,
    /// The program of collectors.
    pub shim: ShimCommand,
    /// The names of the built-in drivers.
    pub built_in: BTreeSet<String>,
    /// The drivers that the operator allows.
    pub allowed: Allowed,
    /// The processors of this machine.
    pub cores: Vec<u32>,
    /// The times after which a plugin that does not answer is replaced.
    pub timing: Timing,
}

/// The drivers that an operator allows (`driver.allowlist`, `driver.denylist`).
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The only allowed drivers; `None` allows all.
    pub only: Option<Vec<String>>,
    /// The drivers that are not allowed.
    pub never: Vec<String>,
}

impl Allowed {
    /// Returns whether a driver is allowed.
    pub fn allows(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|list| list.iter().any(|allowed| allowed == name))
            && !self.never.iter().any(|denied| denied == name)
    }
}

/// All plugins that were found.
#[derive(Default)]
pub struct Catalog {
    /// The drivers; a driver that cannot be used reports the reason in its fingerprint.
    pub drivers: Vec<Arc<dyn Driver>>,
    /// Device plugins.
    pub devices: Vec<Arc<dyn DevicePlugin>>,
    /// The configuration of each plugin with its defaults, by the name of the file.
    pub shown: BTreeMap<String, serde_json::Value>,
    /// The plugins that cannot be used, by the name of the file, with the reason.
    pub broken: BTreeMap<String, PluginError>,
}

impl fmt::Debug for Catalog {
    /// Omits configurations, since they may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("drivers", &self.drivers)
            .field("devices", &self.devices)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// A plugin that can be used.
struct Found {
    program: Program,
    setup: Setup,
    known: Known,
    first: Option<(Arc<Process>, Configured)>,
}

impl Catalog {
    /// Finds, starts and configures all plugins, all at the same time.
    pub async fn load(options: &Options) -> Self {
        let mut catalog = Self::default();
        let programs = find(options);
        end_others(options, &programs).await;
        for (file, error) in absent(options, &programs) {
            catalog.refuse(options, file, error);
        }
        let loaded = programs.into_iter().map(|(program, setup)| async {
            let name = program.name.clone();
            (name, load(program, setup).await)
        });
        let mut found: BTreeMap<(Kind, String), Found> = BTreeMap::new();
        for (file, outcome) in futures::future::join_all(loaded).await {
            match outcome {
                Ok(plugin) => catalog.add(options, &mut found, plugin).await,
                Err(error) => catalog.refuse(options, file, error),
            }
        }
        let started = found.into_values().map(|plugin| start(options, plugin));
        for (file, shown, adapter) in futures::future::join_all(started).await {
            if let Some(shown) = shown {
                catalog.shown.insert(file, shown);
            }
            match adapter {
                Adapter::Driver(driver) => catalog.drivers.push(driver),
                Adapter::Device(device) => catalog.devices.push(device),
            }
        }
        catalog
    }

    /// Reports a plugin that cannot be used in the log and on the node.
    fn refuse(&mut self, options: &Options, file: String, error: PluginError) {
        tracing::error!(plugin = file, error = %error, "the plugin cannot be used");
        if !options.built_in.contains(&file) {
            self.drivers.push(Arc::new(BrokenDriver::new(&file, &error)));
        }
        self.broken.insert(file, error);
    }

    /// Keeps a plugin, unless it is not allowed or another plugin of its name has a higher version.
    async fn add(&mut self, options: &Options, found: &mut BTreeMap<(Kind, String), Found>, plugin: Found) {
        let info = plugin.known.info.clone();
        let is_driver = info.kind == Kind::Driver;
        if is_driver && !options.allowed.allows(&info.name) {
            tracing::info!(plugin = plugin.program.name, driver = info.name, "the driver is not allowed");
            return plugin.end().await;
        }
        if is_driver && options.built_in.contains(&info.name) && is_lower(&info.version, BUILT_IN_VERSION) {
            tracing::warn!(
                driver = info.name,
                version = info.version,
                "the built-in driver has a higher version; the plugin is not used"
            );
            return plugin.end().await;
        }
        let key = (info.kind, info.name.clone());
        let loser = match found.remove(&key) {
            None => {
                found.insert(key, plugin);
                return;
            }
            Some(other) if is_lower(&info.version, &other.known.info.version) => {
                found.insert(key, other);
                plugin
            }
            Some(other) => {
                found.insert(key, plugin);
                other
            }
        };
        tracing::warn!(
            plugin = loser.program.name,
            name = info.name,
            "another program is the same plugin with a version that is not lower; this one is not used"
        );
        loser.end().await;
    }

    /// Ends the processes of all plugins.
    pub async fn shut_down(&self) {
        let drivers = self.drivers.iter().map(|driver| driver.shutdown());
        let devices = self.devices.iter().map(|device| device.shutdown());
        futures::future::join(futures::future::join_all(drivers), futures::future::join_all(devices)).await;
    }

    /// Returns the first plugin that cannot be used among the required ones (`*` for all).
    pub fn missing<'a>(&'a self, required: &'a [String]) -> Option<(&'a str, &'a PluginError)> {
        let is_required = |file: &String| required.iter().any(|name| name == "*" || name == file);
        let mut broken = self.broken.iter().filter(|(file, _)| is_required(file));
        broken.next().map(|(file, error)| (file.as_str(), error))
    }
}

impl Found {
    /// Ends the plugin's process.
    async fn end(self) {
        match self.first {
            Some((process, _)) => process.shut_down(&self.program).await,
            None => {
                if let Err(error) = self.program.end_recorded().await {
                    tracing::warn!(plugin = self.program.name, %error, "a plugin process cannot be killed");
                }
            }
        }
    }
}

fn is_lower(version: &str, other: &str) -> bool {
    parse_version(version) < parse_version(other)
}

/// Returns the programs that the configuration names.
fn find(options: &Options) -> Vec<(Program, Setup)> {
    let Some(dir) = &options.plugin_dir else { return Vec::new() };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            if options.is_configured {
                tracing::warn!(dir = %dir.display(), %error, "plugin_dir cannot be read");
            }
            return Vec::new();
        }
    };
    let mut programs = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            tracing::warn!(path = %path.display(), "a file of plugin_dir is skipped: its name is not UTF-8");
            continue;
        };
        let label = name.strip_suffix(".exe").unwrap_or(&name).to_owned();
        let Some(block) = options.blocks.get(&label) else {
            tracing::warn!(
                plugin = name,
                "plugin not referenced in the agent configuration file, loading skipped"
            );
            continue;
        };
        programs.push((
            Program {
                dir: options.state_dir.join(&label),
                name: label,
                path,
                args: block.args.clone(),
                config: hex(&Sha256::digest(block.config.to_string().as_bytes())),
                timing: options.timing,
            },
            Setup {
                config: block.config.clone(),
                places: block.places.clone(),
                info: None,
                cores: options.cores.clone(),
            },
        ));
    }
    programs.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    programs
}

/// Returns the plugins of `plugin` blocks that have no file. Blocks of built-in drivers need no file.
fn absent(options: &Options, programs: &[(Program, Setup)]) -> Vec<(String, PluginError)> {
    let Some(dir) = &options.plugin_dir else { return Vec::new() };
    let has_file = |label: &String| programs.iter().any(|(program, _)| program.name == *label);
    let labels = options.blocks.keys().filter(|label| !options.built_in.contains(*label) && !has_file(label));
    let named = labels.map(|label| {
        let error = PluginError::File { path: dir.join(label), reason: "does not exist" };
        (label.clone(), error)
    });
    named.collect()
}

/// Ends the processes of plugins that the configuration no longer names.
async fn end_others(options: &Options, programs: &[(Program, Setup)]) {
    let Ok(entries) = std::fs::read_dir(&options.state_dir) else { return };
    for entry in entries.flatten() {
        let dir = entry.path();
        if programs.iter().any(|(program, _)| program.dir == dir) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let gone = Program {
            name,
            path: PathBuf::new(),
            args: Vec::new(),
            dir,
            config: String::new(),
            timing: options.timing,
        };
        if let Err(error) = gone.end_recorded().await {
            tracing::warn!(plugin = gone.name, %error, "the process of an earlier plugin cannot be ended");
        }
    }
}

/// Examines a plugin: by its record if its program is the same as before, or by a start.
async fn load(program: Program, mut setup: Setup) -> Result<Found, PluginError> {
    let checked = program.check()?;
    if let Some(known) = Known::read(&program.dir, &checked.checksum, &program.config) {
        setup.info = Some(known.info.clone());
        return Ok(Found { program, setup, known, first: None });
    }
    program.end_recorded().await?;
    let process = Arc::new(program.start().await?);
    let configured = match setup.configure(&process).await {
        Ok(configured) => configured,
        Err(error) => {
            process.shut_down(&program).await;
            return Err(error);
        }
    };
    let known = Known {
        checksum: checked.checksum,
        config: program.config.clone(),
        info: configured.info.clone(),
        supports: configured.supports,
    };
    known.write(&program.dir)?;
    setup.info = Some(known.info.clone());
    Ok(Found { program, setup, known, first: Some((process, configured)) })
}

enum Adapter {
    Driver(Arc<dyn Driver>),
    Device(Arc<dyn DevicePlugin>),
}

/// Begins to supervise a plugin. Returns the name of its file, its configuration if known, and its driver or devices.
async fn start(options: &Options, found: Found) -> (String, Option<serde_json::Value>, Adapter) {
    let Found { program, setup, known, first } = found;
    let file = program.name.clone();
    let Info { kind, name, version, .. } = &known.info;
    tracing::info!(plugin = file, name, version, "plugin found");
    match (kind, known.supports) {
        (Kind::Driver, Some(supports)) => {
            let shim = options.shim.clone();
            let driver = ExternalDriver::new(name.clone(), supports, setup, program, first, shim);
            let shown = driver.shown(KNOWN_TIMEOUT).await;
            (file, shown, Adapter::Driver(Arc::new(driver)))
        }
        _ => {
            let device = ExternalDevice::new(name.clone(), setup, program, first);
            let shown = device.shown(KNOWN_TIMEOUT).await;
            (file, shown, Adapter::Device(Arc::new(device)))
        }
    }
}

pub(crate) use process::put;
