//! exec: runs programs in their own root, made of the host's directories, with their own namespaces and capabilities.

use crate::config::Reader;
use crate::driver::{Capabilities, Fingerprint, FsIsolation, Health};
use crate::ids::IdRanges;
use crate::isolation::{self, IsolationConfig, IsolationOptions, Program};
use crate::names;
use crate::supervised::{ForkServer, ShimDriver, ShimTasks, convert};
use crate::task::{TaskConfig, TaskHandle};
use crate::{Error, Result};
use async_trait::async_trait;
use caravan_shim::TaskSpec;
use caravan_shim::spec::{MountPropagation, MountSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

const NAME: &str = "exec";

/// The user of a task that names none.
const DEFAULT_USER: &str = "nobody";

/// The user of a task that mounts for other tasks and names no user: mount(2) needs root.
const PRIVILEGED_USER: &str = "root";

/// The node attribute that is `true` if privileged plugins are allowed.
const PRIVILEGED_PLUGINS: &str = "driver.exec.privileged_plugins";

/// The node attribute with the capabilities that tasks may have: names separated by commas, or `all`.
const ALLOWED_CAPABILITIES: &str = "driver.exec.allow_caps";

/// The directory in which a task sees a bundled program that it runs.
const BUNDLED_DIR: &str = "/run/caravan/bin";

/// The driver's options in the agent's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// The root, the namespaces and the capabilities of tasks.
    pub isolation: IsolationOptions,
    /// Users that tasks may not run as.
    pub denied_host_uids: IdRanges,
    /// Groups that tasks may not run as.
    pub denied_host_gids: IdRanges,
    /// Whether tasks that mount for other tasks (CSI plugins of type node and monolith) get all capabilities, the
    /// host's devices, and mounts that propagate to the host. Such a task is root on the node.
    pub allow_privileged_plugins: bool,
    /// Programs of the host that every task may run by name, regardless of its root: the agent itself, for bundled
    /// plugins.
    pub bundled: BTreeMap<String, PathBuf>,
}

/// A driver that runs programs in isolation from the host.
#[derive(Debug)]
pub struct ExecDriver {
    options: ExecOptions,
    tasks: ShimTasks,
}

/// A task's `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    command: String,
    args: Vec<String>,
    isolation: IsolationConfig,
}

impl Config {
    fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let config = Self {
            command: reader.required_string("command")?,
            args: reader.strings("args")?,
            isolation: IsolationConfig::read(&mut reader)?,
        };
        reader.finish()?;
        Ok(config)
    }
}

impl ExecDriver {
    /// Creates the driver without tasks.
    pub fn new(options: ExecOptions, shims: ForkServer) -> Self {
        Self { options, tasks: ShimTasks::new(NAME, shims) }
    }

    async fn spec(&self, task: &TaskConfig) -> Result<TaskSpec> {
        let config = Config::read(&task.driver_config)?;
        if task.privileged_mounts && !self.options.allow_privileged_plugins {
            return Err(Error::Config(
                "driver exec does not allow privileged plugins on this node: a CSI plugin of type node or monolith \
                 takes the driver's option allow_privileged_plugins"
                    .into(),
            ));
        }
        let default = if task.privileged_mounts { PRIVILEGED_USER } else { DEFAULT_USER };
        let user = task.user.as_deref().filter(|user| !user.is_empty()).unwrap_or(default);
        let account = convert::account(user).await?;
        IdRanges::check(&self.options.denied_host_uids, &self.options.denied_host_gids, &account)?;

        let program = self.program(config.command, config.args);
        self.options.isolation.task_spec(NAME, task, &account, config.isolation, program)
    }

    fn program(&self, command: String, args: Vec<String>) -> Program {
        let Some(host) = self.options.bundled.get(&command) else {
            return Program { path: command, args, mount: None };
        };
        let path = format!("{BUNDLED_DIR}/{command}");
        let mount = MountSpec {
            host: host.clone(),
            task: path.clone().into(),
            read_only: true,
            propagation: MountPropagation::Private,
        };
        Program { path, args, mount: Some(mount) }
    }
}

#[async_trait]
impl ShimDriver for ExecDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: FsIsolation::Chroot,
            mounts: true,
            privileged_mounts: true,
            networks: true,
            creates_networks: false,
            dynamic_users: false,
            names: true,
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        let mut found = isolation::fingerprint(NAME);
        if found.state == Health::Healthy {
            if self.options.allow_privileged_plugins {
                found.attributes.insert(PRIVILEGED_PLUGINS.into(), "true".into());
            }
            let allowed = self.options.isolation.allowed_capabilities();
            found.attributes.insert(ALLOWED_CAPABILITIES.into(), allowed);
        }
        found
    }

    fn validate(&self, config: &Value) -> Result<()> {
        self.options.isolation.validate(NAME, &Config::read(config)?.isolation)
    }

    fn tasks(&self) -> &ShimTasks {
        &self.tasks
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        let spec = self.spec(&config).await?;
        names::write(&config)?;
        self.tasks.start(config.id, spec).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn configs_are_checked() {
        for (bad, needle) in [
            (json!({"args": []}), "\"command\" of driver exec is required"),
            (json!({"command": "x", "pid_mode": "shared"}), "\"pid_mode\" of driver exec must be"),
            (json!({"command": "x", "work_dir": "relative"}), "must be an absolute path"),
            (json!({"command": "x", "privileged": true}), "no config key \"privileged\""),
        ] {
            let error = Config::read(&bad).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
