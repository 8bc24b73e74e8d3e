//! Host volume plugins as executables: one process per operation, with parameters in its environment and a JSON result
//! on standard output (docs/reference/storage.md, section 8.4).

use super::fault::{HostVolumeFault, PluginOutcome};
use super::plugin::Plugins;
use caravan_messages::HostVolumeCreated;
use caravan_types::host_volume::HostVolume;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// The timeout of a fingerprint; Nomad allows one second, too little for a busy host.
const FINGERPRINT_LIMIT: Duration = Duration::from_secs(5);
/// The timeout for creating or deleting a volume.
const LIMIT: Duration = Duration::from_secs(60);
/// The most bytes of a plugin's standard error that are logged.
const LOGGED: usize = 2048;

/// Returns a failure after which the operation has certainly had no effect.
pub(super) fn fault(doing: String, plugin: &str, why: String) -> HostVolumeFault {
    HostVolumeFault::Plugin { doing, plugin: plugin.to_owned(), why, outcome: PluginOutcome::Failed }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    version: String,
    path: String,
    bytes: i64,
    error: String,
}

/// Returns the version that a plugin reports.
pub(super) async fn fingerprint(id: &str, path: &Path) -> Result<String, HostVolumeFault> {
    let environment = BTreeMap::from([("DHV_OPERATION", "fingerprint".to_owned())]);
    let doing = || "fingerprinting".to_owned();
    let output = run(id, path, "fingerprint", &environment, FINGERPRINT_LIMIT).await;
    let answer = output.and_then(|output| output.succeeded()).map_err(|error| error.named(doing(), id))?;
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|error| fault(doing(), id, format!("error parsing fingerprint output as json: {error}")))?;
    Ok(answer.version)
}

/// Creates a volume with a plugin.
pub(super) async fn create(
    plugins: &Plugins,
    id: &str,
    path: &Path,
    volume: &HostVolume,
) -> Result<HostVolumeCreated, HostVolumeFault> {
    let mut environment = environment(plugins, volume, "create");
    environment.insert("DHV_CAPACITY_MIN_BYTES", volume.requested_capacity_min_bytes.to_string());
    environment.insert("DHV_CAPACITY_MAX_BYTES", volume.requested_capacity_max_bytes.to_string());
    let doing = || format!("creating volume \"{}\" with", volume.id);
    let output = run(id, path, "create", &environment, LIMIT).await;
    let answer = output.and_then(|output| output.succeeded()).map_err(|error| error.named(doing(), id))?;
    let unreadable = |why: String| HostVolumeFault::Plugin {
        doing: doing(),
        plugin: id.to_owned(),
        why,
        outcome: PluginOutcome::Unreadable,
    };
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|error| unreadable(format!("error parsing create output as json: {error}")))?;
    if !Path::new(&answer.path).is_absolute() {
        return Err(unreadable(format!("the path that it answered, {:?}, is not absolute", answer.path)));
    }
    Ok(HostVolumeCreated { host_path: answer.path, capacity_bytes: answer.bytes })
}

/// Deletes a volume with a plugin.
pub(super) async fn delete(
    plugins: &Plugins,
    id: &str,
    path: &Path,
    volume: &HostVolume,
    created_path: &str,
) -> Result<(), HostVolumeFault> {
    let mut environment = environment(plugins, volume, "delete");
    environment.insert("DHV_CREATED_PATH", created_path.to_owned());
    let doing = || format!("deleting volume \"{}\" with", volume.id);
    let output = run(id, path, "delete", &environment, LIMIT).await;
    output.and_then(|output| output.succeeded()).map(drop).map_err(|error| error.named(doing(), id))
}

fn environment(plugins: &Plugins, volume: &HostVolume, operation: &str) -> BTreeMap<&'static str, String> {
    let parameters = match volume.parameters.is_empty() {
        true => "null".to_owned(),
        false => serde_json::to_string(&volume.parameters).expect("texts by texts always have a JSON form"),
    };
    BTreeMap::from([
        ("DHV_OPERATION", operation.to_owned()),
        ("DHV_VOLUMES_DIR", plugins.volumes_dir.display().to_string()),
        ("DHV_PLUGIN_DIR", plugins.plugin_dir.display().to_string()),
        ("DHV_NAMESPACE", volume.namespace.to_string()),
        ("DHV_VOLUME_NAME", volume.name.clone()),
        ("DHV_VOLUME_ID", volume.id.to_string()),
        ("DHV_NODE_ID", plugins.node_id.to_string()),
        ("DHV_NODE_POOL", plugins.node_pool.clone()),
        ("DHV_PARAMETERS", parameters),
    ])
}

/// The exit status and output of a plugin.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
}

impl Ended {
    /// Returns the plugin's output, if it succeeded.
    fn succeeded(self) -> Result<Vec<u8>, Failed> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        let how = match self.status.code() {
            Some(code) => format!("exit status {code}"),
            None => format!("{}", self.status),
        };
        let words = serde_json::from_slice::<Answer>(&self.stdout).map(|answer| answer.error);
        let why = match words {
            Ok(words) if !words.is_empty() => format!("{how}: {words}"),
            _ => how,
        };
        Err(Failed { why, outcome: PluginOutcome::Failed })
    }
}

/// The failure of a plugin: its reason, and the recorded outcome of the operation.
struct Failed {
    why: String,
    outcome: PluginOutcome,
}

impl Failed {
    fn named(self, doing: String, plugin: &str) -> HostVolumeFault {
        HostVolumeFault::Plugin { doing, plugin: plugin.to_owned(), why: self.why, outcome: self.outcome }
    }
}

/// Runs a plugin with exactly this environment. The plugin and its child processes are killed on timeout, or if the
/// caller stops waiting.
async fn run(
    id: &str,
    path: &Path,
    operation: &str,
    environment: &BTreeMap<&'static str, String>,
    limit: Duration,
) -> Result<Ended, Failed> {
    let mut command = Command::new(path);
    command.arg(operation).env_clear().envs(environment).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed = |why: String| Failed { why, outcome: PluginOutcome::Failed };
    let child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut group = Group(child.id());
    let output = match tokio::time::timeout(limit, child.wait_with_output()).await {
        Ok(output) => {
            output.map_err(|error| Failed { why: error.to_string(), outcome: PluginOutcome::Unknown })?
        }
        Err(_) => {
            let why = format!("it did not end within {} s and was killed", limit.as_secs());
            return Err(Failed { why, outcome: PluginOutcome::Unknown });
        }
    };
    // The plugin ended by itself; processes that it has left running are not killed.
    group.0 = None;
    if !output.stderr.is_empty() {
        let shown = &output.stderr[..output.stderr.len().min(LOGGED)];
        tracing::debug!(
            plugin = id, operation, stderr = %String::from_utf8_lossy(shown).trim_end(),
            "host volume plugin wrote to standard error"
        );
    }
    Ok(Ended { status: output.status, stdout: output.stdout })
}

/// A process group that is killed when it is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0.and_then(|pid| i32::try_from(pid).ok()) {
            // The group may have ended just now.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
