//! The driver's options: the `config` block of `plugin "docker"` in the agent's configuration.

use crate::NAME;
use crate::config::Logging;
use caravan_drivers::{DEFAULT_CAPABILITIES, Error, Reader, Result, matches_pattern};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The shortest [`DockerOptions::pull_activity_timeout`] and [`Dangling::creation_grace`].
const MINUTE: Duration = Duration::from_secs(60);

/// The driver's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerOptions {
    /// Address of the engine (`unix:///path` or `tcp://host:port`); empty for the environment's, or Docker's default.
    pub endpoint: String,
    /// The client's certificate, and the authority of the engine's.
    pub tls: Tls,
    /// The sources of credentials of registries.
    pub auth: AuthOptions,
    /// Patterns of the labels that containers get in addition to the allocation's id.
    pub extra_labels: Vec<String>,
    /// The log driver of tasks that name none.
    pub logging: Logging,
    /// The removal of objects that are no longer used.
    pub gc: Gc,
    /// Whether tasks may mount paths outside of their allocation, and volumes.
    pub volumes: bool,
    /// The SELinux label that is appended to each bound path.
    pub selinux_label: String,
    /// Whether tasks may be privileged.
    pub allow_privileged: bool,
    /// Capabilities that tasks may have, in lower case and without `cap_`; `all` allows each.
    pub allow_caps: Vec<String>,
    /// Runtimes that tasks may name.
    pub allow_runtimes: Vec<String>,
    /// Runtime of tasks with an nvidia device.
    pub nvidia_runtime: String,
    /// Image of the containers that hold networks.
    pub infra_image: String,
    /// Longest time of a pull of [`Self::infra_image`].
    pub infra_image_pull_timeout: Duration,
    /// Longest time of a pull, unless the task sets one.
    pub image_pull_timeout: Duration,
    /// Longest time of a pull without progress.
    pub pull_activity_timeout: Duration,
    /// Number of attempts to create a container whose name is taken.
    pub container_exists_attempts: u32,
    /// Largest number of processes of a task; absent means no limit.
    pub pids_limit: Option<i64>,
    /// Whether the output of containers is left to the engine.
    pub disable_log_collection: bool,
    /// Namespace modes that tasks may have without [`Self::allow_privileged`].
    pub allowed_modes: AllowedModes,
}

/// The files for a connection over TLS; empty if the connection has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The client's certificate.
    pub cert: String,
    /// The client's key.
    pub key: String,
    /// The authority of the engine's certificate.
    pub ca: String,
}

/// The sources of credentials of registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthOptions {
    /// A configuration file of the `docker` command.
    pub config: Option<PathBuf>,
    /// Name of a credential helper, without its prefix `docker-credential-`.
    pub helper: Option<String>,
}

/// The removal of objects that are no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gc {
    /// Whether images are removed.
    pub image: bool,
    /// The time that an image stays after its last task.
    pub image_delay: Duration,
    /// Whether containers are removed.
    pub container: bool,
    /// The search for containers of which no agent has a record.
    pub dangling: Dangling,
}

/// The search for containers of which no agent has a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dangling {
    /// Whether the search is enabled.
    pub enabled: bool,
    /// Time between two searches.
    pub period: Duration,
    /// Age below which a container is not removed.
    pub creation_grace: Duration,
    /// Whether the containers are only named in the log, and not removed.
    pub dry_run: bool,
}

/// Patterns of the namespace modes that tasks may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedModes {
    /// The patterns for `pid_mode`.
    pub pid: Vec<String>,
    /// The patterns for `ipc_mode`.
    pub ipc: Vec<String>,
    /// The patterns for `userns_mode`.
    pub userns: Vec<String>,
    /// The patterns for `uts_mode`.
    pub uts: Vec<String>,
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            tls: Tls::default(),
            auth: AuthOptions::default(),
            extra_labels: Vec::new(),
            logging: default_logging(),
            gc: Gc::default(),
            volumes: false,
            selinux_label: String::new(),
            allow_privileged: false,
            allow_caps: DEFAULT_CAPABILITIES.map(str::to_owned).into(),
            allow_runtimes: vec!["runc".into(), "nvidia".into()],
            nvidia_runtime: "nvidia".into(),
            infra_image: default_infra_image(),
            infra_image_pull_timeout: MINUTE * 5,
            image_pull_timeout: MINUTE * 5,
            pull_activity_timeout: MINUTE * 2,
            container_exists_attempts: 5,
            pids_limit: None,
            disable_log_collection: false,
            allowed_modes: AllowedModes::default(),
        }
    }
}

impl Default for Gc {
    fn default() -> Self {
        Self { image: true, image_delay: MINUTE * 3, container: true, dangling: Dangling::default() }
    }
}

impl Default for Dangling {
    fn default() -> Self {
        Self { enabled: true, period: MINUTE * 5, creation_grace: MINUTE * 5, dry_run: false }
    }
}

/// Returns the log driver that limits the engine's own copy of the output, which otherwise grows without end.
pub(crate) fn default_logging() -> Logging {
    let config = [("max-file", "2"), ("max-size", "2m")].map(|(key, value)| (key.into(), value.into()));
    Logging { driver: "json-file".into(), config: config.into() }
}

fn default_infra_image() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!("registry.k8s.io/pause-{arch}:3.3")
}

impl DockerOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// If an option is unknown or has a wrong value; the error names it.
    pub fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let defaults = Self::default();
        let pull_activity_timeout =
            reader.duration("pull_activity_timeout")?.unwrap_or(defaults.pull_activity_timeout);
        if pull_activity_timeout < MINUTE {
            return Err(reader.refuse("pull_activity_timeout", "is less than minimum, 1m0s"));
        }
        let (volumes, selinux_label) = volumes(&mut reader)?;
        let read = Self {
            endpoint: reader.string("endpoint")?.unwrap_or_default(),
            tls: tls(&mut reader)?,
            auth: auth(&mut reader)?,
            extra_labels: reader.strings("extra_labels")?,
            logging: Logging::read(&mut reader)?.unwrap_or(defaults.logging),
            gc: gc(&mut reader)?,
            volumes,
            selinux_label,
            allow_privileged: reader.boolean("allow_privileged")?,
            allow_caps: present(reader.strings("allow_caps")?)
                .map_or(defaults.allow_caps, |caps| caps.iter().map(|cap| plain_capability(cap)).collect()),
            allow_runtimes: present(reader.strings("allow_runtimes")?).unwrap_or(defaults.allow_runtimes),
            nvidia_runtime: reader.string("nvidia_runtime")?.unwrap_or(defaults.nvidia_runtime),
            infra_image: reader
                .string("infra_image")?
                .filter(|image| !image.is_empty())
                .map_or(defaults.infra_image, |image| image.trim_start_matches("https://").to_owned()),
            infra_image_pull_timeout: reader
                .duration("infra_image_pull_timeout")?
                .unwrap_or(defaults.infra_image_pull_timeout),
            image_pull_timeout: reader.duration("image_pull_timeout")?.unwrap_or(defaults.image_pull_timeout),
            pull_activity_timeout,
            container_exists_attempts: attempts(&mut reader)?.unwrap_or(defaults.container_exists_attempts),
            pids_limit: reader.integer("pids_limit")?.filter(|limit| *limit > 0),
            disable_log_collection: reader.boolean("disable_log_collection")?,
            allowed_modes: modes(&mut reader)?,
        };
        // Read for compatibility: the first has no effect in Nomad either, the second only on Windows.
        reader.integer("oom_score_adj")?;
        reader.boolean("windows_allow_insecure_container_admin")?;
        reader.finish()?;
        Ok(read)
    }

    /// Returns whether the task may have a capability.
    pub(crate) fn allows_capability(&self, name: &str) -> bool {
        self.allow_caps.iter().any(|allowed| allowed == "all" || *allowed == plain_capability(name))
    }
}

/// Returns a capability's name in lower case and without `cap_`.
pub(crate) fn plain_capability(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_prefix("cap_").unwrap_or(&name).to_owned()
}

/// Reads `container_exists_attempts`.
pub(crate) fn attempts(reader: &mut Reader<'_>) -> Result<Option<u32>> {
    const KEY: &str = "container_exists_attempts";
    let Some(number) = reader.integer(KEY)? else { return Ok(None) };
    u32::try_from(number).map(Some).map_err(|_| reader.refuse(KEY, "must not be negative"))
}

fn present<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn tls(reader: &mut Reader<'_>) -> Result<Tls> {
    let Some(mut block) = reader.block("tls")? else { return Ok(Tls::default()) };
    let mut text = |key| block.string(key).map(Option::unwrap_or_default);
    let tls = Tls { cert: text("cert")?, key: text("key")?, ca: text("ca")? };
    block.finish()?;
    Ok(tls)
}

fn auth(reader: &mut Reader<'_>) -> Result<AuthOptions> {
    let Some(mut block) = reader.block("auth")? else { return Ok(AuthOptions::default()) };
    let config = block.string("config")?.filter(|path| !path.is_empty()).map(PathBuf::from);
    let helper = block.string("helper")?.filter(|name| !name.is_empty());
    if helper.as_deref().is_some_and(|name| name.contains('/')) {
        return Err(block.refuse("helper", "must be a name, not a path"));
    }
    block.finish()?;
    Ok(AuthOptions { config, helper })
}

fn volumes(reader: &mut Reader<'_>) -> Result<(bool, String)> {
    let Some(mut block) = reader.block("volumes")? else { return Ok((false, String::new())) };
    let read = (block.boolean("enabled")?, block.string("selinuxlabel")?.unwrap_or_default());
    block.finish()?;
    Ok(read)
}

fn gc(reader: &mut Reader<'_>) -> Result<Gc> {
    let defaults = Gc::default();
    let Some(mut block) = reader.block("gc")? else { return Ok(defaults) };
    let dangling = match block.block("dangling_containers")? {
        None => defaults.dangling,
        Some(block) => dangling(block)?,
    };
    let gc = Gc {
        image: block.optional_boolean("image")?.unwrap_or(defaults.image),
        image_delay: block.duration("image_delay")?.unwrap_or(defaults.image_delay),
        container: block.optional_boolean("container")?.unwrap_or(defaults.container),
        dangling,
    };
    block.finish()?;
    Ok(gc)
}

fn dangling(mut block: Reader<'_>) -> Result<Dangling> {
    let defaults = Dangling::default();
    let read = Dangling {
        enabled: block.optional_boolean("enabled")?.unwrap_or(defaults.enabled),
        period: block.duration("period")?.unwrap_or(defaults.period),
        creation_grace: block.duration("creation_grace")?.unwrap_or(defaults.creation_grace),
        dry_run: block.boolean("dry_run")?,
    };
    if read.creation_grace < MINUTE {
        return Err(block.refuse("creation_grace", "is less than minimum, 1m0s"));
    }
    if read.period.is_zero() {
        return Err(block.refuse("period", "must not be zero"));
    }
    block.finish()?;
    Ok(read)
}

fn modes(reader: &mut Reader<'_>) -> Result<AllowedModes> {
    let Some(mut block) = reader.block("allowed_modes")? else { return Ok(AllowedModes::default()) };
    let mut of = |key: &'static str| -> Result<Vec<String>> {
        let all = block.strings(key)?;
        match all.iter().find(|mode| !mode.contains('*') && !is_mode(key, mode)) {
            None => Ok(all),
            Some(bad) => Err(Error::Config(format!(
                "cannot apply allowed_modes configuration, {bad:?} is not a valid {key}_mode"
            ))),
        }
    };
    let read = AllowedModes { pid: of("pid")?, ipc: of("ipc")?, userns: of("userns")?, uts: of("uts")? };
    block.finish()?;
    Ok(read)
}

/// Returns whether the engine has a mode of the namespaces of this kind.
fn is_mode(kind: &str, mode: &str) -> bool {
    let of_container = mode.strip_prefix("container:").is_some_and(|name| !name.is_empty());
    match kind {
        "pid" => mode == "host" || mode == "private" || of_container,
        "ipc" => matches!(mode, "none" | "private" | "shareable" | "host") || of_container,
        _ => mode == "host",
    }
}

/// Returns whether a task may have a mode.
pub(crate) fn allows_mode(allowed: &[String], mode: &str) -> bool {
    allowed.iter().any(|pattern| matches_pattern(pattern, mode))
}

/// Returns the labels that are not empty and whose names match a pattern of `extra_labels`.
pub(crate) fn selected<'a>(
    patterns: &[String],
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, String> {
    labels
        .into_iter()
        .filter(|(name, value)| !value.is_empty() && patterns.iter().any(|p| matches_pattern(p, name)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_option_is_read() {
        let options = DockerOptions::read(&json!({
            "endpoint": "unix:///run/d.sock", "auth": [{"config": "/c.json", "helper": "pass"}],
            "tls": {"cert": "c", "key": "k", "ca": "a"}, "extra_labels": ["job*"],
            "logging": [{"type": "local", "config": [{"max-size": "1m"}]}],
            "gc": [{"image": false, "image_delay": "10s", "container": false,
                "dangling_containers": [{"enabled": false, "period": "1m", "creation_grace": "2m", "dry_run": true}]}],
            "volumes": [{"enabled": true, "selinuxlabel": "z"}], "allow_privileged": true,
            "allow_caps": ["CAP_CHOWN", "Net_Raw"], "allow_runtimes": ["runc"], "nvidia_runtime": "n",
            "infra_image": "https://pause:1", "infra_image_pull_timeout": "1m", "image_pull_timeout": "2m",
            "pull_activity_timeout": "3m", "container_exists_attempts": 7, "pids_limit": 100, "oom_score_adj": 1,
            "disable_log_collection": true, "windows_allow_insecure_container_admin": true,
            "allowed_modes": [{"pid": ["host"], "ipc": ["container:*"], "userns": ["host"], "uts": []}],
        }))
        .unwrap();
        assert_eq!(options.allow_caps, ["chown", "net_raw"]);
        assert_eq!(options.infra_image, "pause:1");
        assert_eq!(options.logging.driver, "local");
        assert_eq!(options.gc.image_delay, Duration::from_secs(10));
        assert!(options.gc.dangling.dry_run && !options.gc.dangling.enabled);
        assert_eq!((options.volumes, options.selinux_label.as_str()), (true, "z"));
        assert_eq!(options.pids_limit, Some(100));
        assert!(options.allows_capability("CAP_NET_RAW") && !options.allows_capability("sys_admin"));
        assert!(allows_mode(&options.allowed_modes.ipc, "container:x"));
        assert_eq!(options.auth.helper.as_deref(), Some("pass"));
    }

    #[test]
    fn defaults_hold_within_blocks() {
        assert_eq!(DockerOptions::read(&json!({})).unwrap(), DockerOptions::default());
        assert_eq!(DockerOptions::read(&Value::Null).unwrap(), DockerOptions::default());
        let options =
            DockerOptions::read(&json!({"gc": {"image_delay": "1s", "dangling_containers": {}}})).unwrap();
        assert!(options.gc.image && options.gc.container && options.gc.dangling.enabled);
    }

    #[test]
    fn wrong_options_are_named() {
        for (bad, needle) in [
            (json!({"endpont": "x"}), "no config key \"endpont\""),
            (json!({"gc": {"image_delay": "soon"}}), "\"gc.image_delay\""),
            (
                json!({"gc": {"dangling_containers": {"creation_grace": "1s"}}}),
                "\"gc.dangling_containers.creation_grace\"",
            ),
            (json!({"pull_activity_timeout": "1s"}), "less than minimum"),
            (json!({"allowed_modes": {"pid": ["x"]}}), "\"x\" is not a valid pid_mode"),
            (json!({"auth": {"helper": "../x"}}), "\"auth.helper\""),
            (json!({"container_exists_attempts": -1}), "negative"),
        ] {
            let error = DockerOptions::read(&bad).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
