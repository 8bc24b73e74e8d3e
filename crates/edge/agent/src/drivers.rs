//! The drivers of this agent, configured by its `plugin` blocks.

use crate::error::AgentError;
use crate::settings::Settings;
use caravan_docker::{DockerDriver, DockerOptions};
use caravan_drivers::{
    Driver, ExecDriver, ExecOptions, ForkServer, IdRanges, IsolationOptions, JavaDriver, MockDriver,
    NamespaceMode, QemuDriver, QemuOptions, RawExecDriver, RawExecOptions, ShimCommand, own_program,
};
use caravan_plugins::{Allowed, Catalog};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the driver of containers.
const DOCKER: &str = "docker";

/// The client option with the plugins without which the agent does not start: names of files, or `*`.
const REQUIRED_PLUGINS: &str = "plugin.required";

/// The option of driver exec that gives plugins root on the node.
const PRIVILEGED_PLUGINS: &str = "allow_privileged_plugins";

/// Creates and configures all drivers. `node_id` is the id of the agent's node.
pub(crate) fn all(settings: &Settings, node_id: &str) -> Result<Vec<Arc<dyn Driver>>, AgentError> {
    let shims = ForkServer::new(ShimCommand::default());
    // Tasks run the agent's own program by this name, independent of their root directory and PATH.
    let bundled = own_program("caravan");
    let mut raw = RawExecOptions { bundled: bundled.clone(), ..raw_exec(settings)? };
    // As in Nomad, a development agent enables raw_exec.
    raw.enabled |= settings.dev;
    let exec = ExecOptions { bundled, ..exec(settings)? };
    let docker = DockerDriver::new(docker(settings)?, node_id, ShimCommand::default());
    let mut drivers: Vec<Arc<dyn Driver>> = vec![
        Arc::new(RawExecDriver::new(raw, shims.clone())),
        Arc::new(ExecDriver::new(exec, shims.clone())),
        Arc::new(JavaDriver::new(java(settings)?, shims.clone())),
        Arc::new(QemuDriver::new(qemu(settings)?, shims)),
        Arc::new(docker),
    ];
    if settings.dev || settings.plugins.contains_key("mock_driver") {
        drivers.push(Arc::new(MockDriver::new()));
    }
    Ok(drivers)
}

/// Finds, starts and configures the external plugins. `built_in` are the drivers of [`all`], from which a driver is
/// removed if a plugin replaces it.
pub(crate) async fn external(
    settings: &Settings,
    built_in: &mut Vec<Arc<dyn Driver>>,
) -> Result<Catalog, AgentError> {
    let Some(client) = &settings.client else { return Ok(Catalog::default()) };
    let option = |names: [&str; 2]| {
        let set = client.file.options.as_ref();
        let text = names.into_iter().find_map(|name| set.and_then(|options| options.get(name)))?;
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect::<Vec<_>>()).filter(|names| !names.is_empty())
    };
    let options = caravan_plugins::Options {
        plugin_dir: settings.plugin_dir.as_ref().map(|dir| dir.path.clone()),
        is_configured: settings.plugin_dir.as_ref().is_some_and(|dir| dir.is_configured),
        blocks: settings.plugins.clone(),
        state_dir: client.state_dir.join("plugins"),
        shim: ShimCommand::default(),
        built_in: built_in.iter().map(|driver| driver.name().to_owned()).collect(),
        allowed: Allowed {
            only: option(["driver.allowlist", "driver.whitelist"]),
            never: option(["driver.denylist", "driver.blacklist"]).unwrap_or_default(),
        },
        cores: (0..std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)))
            .collect(),
        timing: caravan_plugins::Timing::default(),
    };
    let catalog = Catalog::load(&options).await;
    let required = option([REQUIRED_PLUGINS, REQUIRED_PLUGINS]).unwrap_or_default();
    if let Some((name, error)) = catalog.missing(&required) {
        catalog.shut_down().await;
        return Err(AgentError::Setting {
            field: "plugin",
            reason: format!("\"{name}\" is required (client option {REQUIRED_PLUGINS}): {error}"),
        });
    }
    built_in.retain(|driver| !catalog.drivers.iter().any(|plugin| plugin.name() == driver.name()));
    Ok(catalog)
}

/// A reader of one driver's options; options that remain at the end are unknown.
struct Options {
    driver: &'static str,
    values: Map<String, Value>,
}

impl Options {
    fn new(settings: &Settings, driver: &'static str) -> Self {
        let values = match settings.plugins.get(driver).map(|block| &block.config) {
            Some(Value::Object(values)) => values.clone(),
            _ => Map::new(),
        };
        Self { driver, values }
    }

    fn bad(&self, key: &str, desired: &str) -> AgentError {
        AgentError::Setting {
            field: "plugin",
            reason: format!("\"{}\": {key} must be {desired}", self.driver),
        }
    }

    fn bool(&mut self, key: &str) -> Result<Option<bool>, AgentError> {
        match self.values.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(on)),
            Some(Value::String(text)) if text == "true" => Ok(Some(true)),
            Some(Value::String(text)) if text == "false" => Ok(Some(false)),
            Some(_) => Err(self.bad(key, "true or false")),
        }
    }

    fn strings(&mut self, key: &str) -> Result<Option<Vec<String>>, AgentError> {
        let Some(value) = self.values.remove(key) else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|_| self.bad(key, "a list of strings"))
    }

    fn ids(&mut self, key: &str) -> Result<IdRanges, AgentError> {
        let text = match self.values.remove(key) {
            None | Some(Value::Null) => return Ok(IdRanges::default()),
            Some(Value::String(text)) => text,
            Some(_) => return Err(self.bad(key, "ranges of ids such as \"0-99,1000\"")),
        };
        text.parse().map_err(|_| self.bad(key, "ranges of ids such as \"0-99,1000\""))
    }

    fn mode(&mut self, key: &str) -> Result<NamespaceMode, AgentError> {
        match self.values.remove(key) {
            None | Some(Value::Null) => Ok(NamespaceMode::default()),
            Some(Value::String(text)) => text.parse().map_err(|_| self.bad(key, "\"private\" or \"host\"")),
            Some(_) => Err(self.bad(key, "\"private\" or \"host\"")),
        }
    }

    /// Reads the options of isolation. The root of tasks is a setting of the client.
    fn isolation(&mut self, settings: &Settings) -> Result<IsolationOptions, AgentError> {
        let defaults = IsolationOptions::default();
        let chroot = settings.client.as_ref().and_then(|client| client.file.chroot_env.clone());
        let read = IsolationOptions {
            default_pid_mode: self.mode("default_pid_mode")?,
            default_ipc_mode: self.mode("default_ipc_mode")?,
            allow_caps: self.strings("allow_caps")?.unwrap_or(defaults.allow_caps),
            host_paths: match chroot.filter(|paths| !paths.is_empty()) {
                Some(paths) => paths.into_iter().map(|(from, to)| (from.into(), to.into())).collect(),
                None => defaults.host_paths,
            },
        };
        read.check().map_err(|error| AgentError::Setting {
            field: "plugin",
            reason: format!("\"{}\": allow_caps: {error}", self.driver),
        })?;
        Ok(read)
    }

    fn end(self) -> Result<(), AgentError> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(key) => Err(AgentError::Setting {
                field: "plugin",
                reason: format!("\"{}\": there is no option {key:?}", self.driver),
            }),
        }
    }
}

fn raw_exec(settings: &Settings) -> Result<RawExecOptions, AgentError> {
    let mut options = Options::new(settings, "raw_exec");
    let read = RawExecOptions {
        enabled: options.bool("enabled")?.unwrap_or(false),
        denied_host_uids: options.ids("denied_host_uids")?,
        denied_host_gids: options.ids("denied_host_gids")?,
        denied_envvars: options.strings("denied_envvars")?.unwrap_or_default(),
        ..RawExecOptions::default()
    };
    options.end()?;
    Ok(read)
}

fn exec(settings: &Settings) -> Result<ExecOptions, AgentError> {
    let mut options = Options::new(settings, "exec");
    // The driver always uses pivot_root; the option is for file systems that cannot.
    if options.bool("no_pivot_root")? == Some(true) {
        return Err(options.bad("no_pivot_root", "false: tasks always get a root of their own"));
    }
    let read = ExecOptions {
        isolation: options.isolation(settings)?,
        denied_host_uids: options.ids("denied_host_uids")?,
        denied_host_gids: options.ids("denied_host_gids")?,
        allow_privileged_plugins: options.bool(PRIVILEGED_PLUGINS)?.unwrap_or(settings.dev),
        bundled: BTreeMap::new(),
    };
    options.end()?;
    Ok(read)
}

fn java(settings: &Settings) -> Result<IsolationOptions, AgentError> {
    let mut options = Options::new(settings, "java");
    let read = options.isolation(settings)?;
    options.end()?;
    Ok(read)
}

fn qemu(settings: &Settings) -> Result<QemuOptions, AgentError> {
    let mut options = Options::new(settings, "qemu");
    let images = options.strings("image_paths")?.unwrap_or_default();
    let read = QemuOptions {
        image_paths: images.into_iter().map(Into::into).collect(),
        args_allowlist: options.strings("args_allowlist")?.unwrap_or_default(),
        emulators_allowlist: options.strings("emulators_allowlist")?.unwrap_or_default(),
    };
    options.end()?;
    Ok(read)
}

fn docker(settings: &Settings) -> Result<DockerOptions, AgentError> {
    let legacy;
    let config = match settings.plugins.get(DOCKER).map(|block| &block.config) {
        Some(config) => config,
        None => {
            let options = settings.client.as_ref().and_then(|client| client.file.options.as_ref());
            legacy = legacy_docker(options.unwrap_or(&BTreeMap::new()));
            &legacy
        }
    };
    DockerOptions::read(config)
        .map_err(|error| AgentError::Setting { field: "plugin", reason: format!("\"{DOCKER}\": {error}") })
}

/// Returns the options of driver docker that old configurations set in the `options` of the client block. A plugin
/// block replaces all of them.
fn legacy_docker(options: &BTreeMap<String, String>) -> Value {
    const PLACES: [(&str, &str, &str); 13] = [
        ("docker.endpoint", "", "endpoint"),
        ("docker.privileged.enabled", "", "allow_privileged"),
        ("docker.nvidia_runtime", "", "nvidia_runtime"),
        ("docker.auth.config", "auth", "config"),
        ("docker.auth.helper", "auth", "helper"),
        ("docker.tls.cert", "tls", "cert"),
        ("docker.tls.key", "tls", "key"),
        ("docker.tls.ca", "tls", "ca"),
        ("docker.cleanup.image", "gc", "image"),
        ("docker.cleanup.image.delay", "gc", "image_delay"),
        ("docker.cleanup.container", "gc", "container"),
        ("docker.volumes.enabled", "volumes", "enabled"),
        ("docker.volumes.selinuxlabel", "volumes", "selinuxlabel"),
    ];
    let mut config = Map::new();
    for (option, block, key) in PLACES {
        let Some(value) = options.get(option) else { continue };
        let value = Value::String(value.clone());
        if block.is_empty() {
            config.insert(key.to_owned(), value);
        } else if let Value::Object(inner) = config.entry(block).or_insert_with(|| Value::Object(Map::new()))
        {
            inner.insert(key.to_owned(), value);
        }
    }
    let caps = options.get("docker.caps.allowlist").or_else(|| options.get("docker.caps.whitelist"));
    if let Some(caps) = caps {
        let names = caps.split(',').map(|name| Value::String(name.trim().to_owned()));
        config.insert("allow_caps".to_owned(), names.collect());
    }
    Value::Object(config)
}

/// Returns whether plugins have root on the node: as configured; by default only in development agents.
pub(crate) fn allows_privileged_plugins(settings: &Settings) -> bool {
    let set = Options::new(settings, "exec").bool(PRIVILEGED_PLUGINS).ok().flatten();
    set.unwrap_or(settings.dev)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_options_of_docker_are_read() {
        let options = [
            ("docker.endpoint", "unix:///e"),
            ("docker.cleanup.image.delay", "1h"),
            ("docker.cleanup.image", "false"),
            ("docker.volumes.enabled", "true"),
            ("docker.privileged.enabled", "true"),
            ("docker.caps.whitelist", "CHOWN, net_raw"),
            ("driver.allowlist", "docker"),
        ];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let read = DockerOptions::read(&legacy_docker(&options)).unwrap();
        assert_eq!(read.endpoint, "unix:///e");
        assert_eq!((read.gc.image, read.gc.image_delay.as_secs()), (false, 3600));
        assert!(read.volumes && read.allow_privileged);
        assert_eq!(read.allow_caps, ["chown", "net_raw"]);
    }
}
