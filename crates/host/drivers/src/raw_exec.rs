//! raw_exec: runs programs on the host without isolation. A control group only tracks their processes.

use crate::config::{Reader, matches_pattern};
use crate::driver::{Capabilities, Fingerprint, FsIsolation};
use crate::ids::IdRanges;
use crate::supervised::{ForkServer, ShimDriver, ShimTasks, convert};
use crate::task::{TaskConfig, TaskHandle};
use crate::{Error, Result};
use async_trait::async_trait;
use caravan_shim::TaskSpec;
use caravan_shim::spec::CommandSpec;
use caravan_sys::cgroup::Hierarchy;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

const NAME: &str = "raw_exec";

/// The driver's options in the agent's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawExecOptions {
    /// Whether jobs may use the driver.
    pub enabled: bool,
    /// Users that tasks may not run as.
    pub denied_host_uids: IdRanges,
    /// Groups that tasks may not run as.
    pub denied_host_gids: IdRanges,
    /// Patterns of environment variables that tasks do not get.
    pub denied_envvars: Vec<String>,
    /// Programs that every task may run by name, regardless of its `PATH`: the agent itself, for bundled plugins.
    pub bundled: BTreeMap<String, PathBuf>,
}

/// A driver that runs programs without isolation.
#[derive(Debug)]
pub struct RawExecDriver {
    options: RawExecOptions,
    tasks: ShimTasks,
}

/// A task's `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    command: String,
    args: Vec<String>,
    work_dir: Option<PathBuf>,
    oom_score_adj: Option<i32>,
    denied_envvars: Vec<String>,
    cgroup_v1: BTreeMap<String, PathBuf>,
    cgroup_v2: Option<PathBuf>,
}

impl Config {
    fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let config = Self {
            command: reader.required_string("command")?,
            args: reader.strings("args")?,
            work_dir: reader.string("work_dir")?.map(PathBuf::from),
            oom_score_adj: convert::oom_score(reader.integer("oom_score_adj")?)?,
            denied_envvars: reader.strings("denied_envvars")?,
            cgroup_v1: reader
                .string_map("cgroup_v1_override")?
                .into_iter()
                .map(|(controller, path)| (controller, path.into()))
                .collect(),
            cgroup_v2: reader.string("cgroup_v2_override")?.map(PathBuf::from),
        };
        reader.finish()?;
        if !config.cgroup_v1.is_empty() && config.cgroup_v2.is_some() {
            return Err(Error::Config(
                "only one of cgroup_v1_override and cgroup_v2_override may be set".to_owned(),
            ));
        }
        Ok(config)
    }

    /// Returns the control groups that the job sets for this machine's version of control groups.
    fn elsewhere(&self) -> BTreeMap<String, PathBuf> {
        if self.cgroup_v1.is_empty() && self.cgroup_v2.is_none() {
            return BTreeMap::new();
        }
        match (Hierarchy::detect(), &self.cgroup_v2) {
            (Ok(Some(Hierarchy::V1(_))), _) => self.cgroup_v1.clone(),
            (Ok(Some(Hierarchy::V2(_))), Some(path)) => [(String::new(), path.clone())].into(),
            _ => BTreeMap::new(),
        }
    }
}

impl RawExecDriver {
    /// Creates the driver without tasks.
    pub fn new(options: RawExecOptions, shims: ForkServer) -> Self {
        Self { options, tasks: ShimTasks::new(NAME, shims) }
    }

    fn program(&self, command: String) -> String {
        // If the path is not UTF-8, run the command by its name: a job file could not name the path either.
        self.options.bundled.get(&command).and_then(|path| path.to_str()).map_or(command, str::to_owned)
    }

    async fn spec(&self, task: &TaskConfig) -> Result<TaskSpec> {
        let config = Config::read(&task.driver_config)?;
        if !task.mounts.is_empty() {
            return Err(Error::Unsupported {
                driver: NAME.to_owned(),
                what: "mount into a task: it has the host's root",
            });
        }
        let user = match &task.user {
            None => None,
            Some(user) => {
                let account = convert::account(user).await?;
                IdRanges::check(&self.options.denied_host_uids, &self.options.denied_host_gids, &account)?;
                Some(convert::user(&account))
            }
        };
        let denied: Vec<&String> = self.options.denied_envvars.iter().chain(&config.denied_envvars).collect();
        let allowed = |key: &str| !denied.iter().any(|pattern| matches_pattern(pattern, key));
        let env =
            task.env.iter().filter(|(key, _)| allowed(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
        let task_dir = &task.dirs.task_dir;
        let mut cgroup = convert::cgroup(task);
        // Users of this driver expect no memory limit; the group only measures memory.
        cgroup.memory_max = None;
        cgroup.memory_reserved = None;
        cgroup.swap_max = None;
        cgroup.elsewhere.extend(config.elsewhere());
        Ok(TaskSpec {
            task_id: task.id.0.clone(),
            state_dir: task.dirs.state_dir.clone(),
            command: CommandSpec {
                program: self.program(config.command),
                args: config.args,
                env,
                cwd: config.work_dir.unwrap_or_default(),
                base: Some(task_dir.clone()),
                search: vec![task_dir.join("local"), task_dir.clone()],
            },
            user,
            logs: convert::logs(task),
            cgroup: Some(cgroup),
            rlimits: Vec::new(),
            oom_score_adj: config.oom_score_adj,
            isolation: None,
            network: task.network.as_ref().map(|network| network.path.clone()),
            lease: task.lease.clone(),
        })
    }
}

#[async_trait]
impl ShimDriver for RawExecDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: FsIsolation::None,
            mounts: false,
            // Its tasks run as on the host, so they can mount there.
            privileged_mounts: true,
            networks: true,
            creates_networks: false,
            dynamic_users: false,
            names: false,
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        if self.options.enabled { Fingerprint::healthy(NAME) } else { Fingerprint::undetected("disabled") }
    }

    fn validate(&self, config: &Value) -> Result<()> {
        Config::read(config).map(drop)
    }

    fn tasks(&self) -> &ShimTasks {
        &self.tasks
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        if !self.options.enabled {
            return Err(Error::Start {
                message: "driver raw_exec is not enabled on this node".into(),
                recoverable: false,
            });
        }
        let spec = self.spec(&config).await?;
        self.tasks.start(config.id, spec).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn configs_are_checked() {
        let config = Config::read(&json!({
            "command": "sleep", "args": ["1"], "work_dir": "/w", "oom_score_adj": 5,
            "cgroup_v1_override": [{"pids": "a/b"}],
        }))
        .unwrap();
        assert_eq!(config.command, "sleep");
        assert_eq!(config.oom_score_adj, Some(5));
        assert_eq!(config.cgroup_v1["pids"], std::path::Path::new("a/b"));
        for (bad, needle) in [
            (json!({}), "\"command\" of driver raw_exec is required"),
            (json!({"command": "x", "image": "y"}), "no config key \"image\""),
            (json!({"command": "x", "oom_score_adj": -1}), "oom_score_adj must be 0 to 1000"),
            (
                json!({"command": "x", "cgroup_v2_override": "a", "cgroup_v1_override": {"cpu": "b"}}),
                "only one of",
            ),
        ] {
            let error = Config::read(&bad).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
