//! qemu: runs virtual machines under an emulator, which is a program of the host without isolation.

mod command;
mod emulators;
mod image;
mod monitor;

use crate::driver::{Capabilities, Fingerprint, FsIsolation};
use crate::programs::{self, VersionAnswer};
use crate::supervised::{ForkServer, ShimDriver, ShimTasks, convert};
use crate::task::{DriverNetwork, TaskConfig, TaskHandle, TaskId, TaskState};
use crate::{Error, Result};
use async_trait::async_trait;
use caravan_shim::TaskSpec;
use caravan_shim::spec::CommandSpec;
use command::{Config, Machine, forwards};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "qemu";

/// The socket of the emulator's monitor, in the task's directory.
const MONITOR: &str = "qm.sock";

/// The socket of the guest's agent, in the task's directory.
const GUEST_AGENT: &str = "qa.sock";

/// The key of a handle's state with the directory of the monitor's socket; absent if the task has no monitor.
const MONITOR_DIR: &str = "monitor_dir";

/// The driver's options in the agent's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QemuOptions {
    /// Directories whose images tasks may use, in addition to the directory of the allocation.
    pub image_paths: Vec<PathBuf>,
    /// Options of the emulator that tasks may use, such as `-smp`; empty allows all.
    pub args_allowlist: Vec<String>,
    /// Emulators that tasks may use, with or without `qemu-system-`; empty allows all.
    pub emulators_allowlist: Vec<String>,
}

/// A driver that runs virtual machines.
#[derive(Debug)]
pub struct QemuDriver {
    options: QemuOptions,
    tasks: ShimTasks,
    version: VersionAnswer,
}

impl QemuDriver {
    /// Creates the driver without tasks.
    pub fn new(options: QemuOptions, shims: ForkServer) -> Self {
        Self { options, tasks: ShimTasks::new(NAME, shims), version: VersionAnswer::default() }
    }

    async fn spec(&self, task: &TaskConfig, config: &Config) -> Result<TaskSpec> {
        if !task.mounts.is_empty() {
            return Err(Error::Unsupported { driver: NAME.to_owned(), what: "mount into a virtual machine" });
        }
        if task.privileged_mounts {
            return Err(Error::Unsupported {
                driver: NAME.to_owned(),
                what: "run a plugin that mounts for other tasks",
            });
        }
        let user = match task.user.as_deref().filter(|user| !user.is_empty()) {
            None => None,
            Some(user) => Some(convert::user(&convert::account(user).await?)),
        };
        let task_dir = &task.dirs.task_dir;
        let (options, dirs) = (self.options.clone(), task.dirs.clone());
        let (path, emulator) = (config.image_path.clone(), emulators::program(&config.emulator));
        let found = tokio::task::spawn_blocking(move || {
            let image = image::resolve(&path, &dirs, &options.image_paths)?;
            let program = programs::find(&emulator, &programs::search_path());
            let program = program.and_then(|path| path.to_str().map(str::to_owned));
            let absent = || Error::Start {
                message: format!("emulator {emulator} is not found on the agent's PATH"),
                recoverable: false,
            };
            Ok::<_, Error>((image, program.ok_or_else(absent)?))
        });
        let cut_off = |_| Error::Start {
            message: "the search for the image and the emulator was cut off".into(),
            recoverable: true,
        };
        let (image, program) = found.await.map_err(cut_off)??;
        let machine = Machine {
            image: &image,
            memory_mb: task.resources.memory_mb,
            processors: &task.processors,
            monitor: config.graceful_shutdown.then(|| task_dir.join(MONITOR)),
            guest_agent: config.guest_agent.then(|| task_dir.join(GUEST_AGENT)),
            forwards: forwards(&config.port_map, &task.ports, task.network.is_some())?,
        };
        let args = config.arguments(&machine)?;
        let mut cgroup = convert::cgroup(task);
        // The emulator needs more memory than its guest, whose memory is limited by its size.
        cgroup.memory_max = None;
        cgroup.memory_reserved = None;
        cgroup.swap_max = None;
        Ok(TaskSpec {
            task_id: task.id.0.clone(),
            state_dir: task.dirs.state_dir.clone(),
            command: CommandSpec {
                program,
                args,
                env: task.env.clone(),
                cwd: PathBuf::new(),
                base: Some(task_dir.clone()),
                search: Vec::new(),
            },
            user,
            logs: convert::logs(task),
            cgroup: Some(cgroup),
            rlimits: Vec::new(),
            oom_score_adj: None,
            isolation: None,
            network: task.network.as_ref().map(|network| network.path.clone()),
            lease: task.lease.clone(),
        })
    }

    /// Requests the guest to shut down and waits for its end. Returns whether the guest ended in time; `None` if the
    /// request failed.
    async fn power_down(&self, id: &TaskId, task_dir: &Path, timeout: Duration) -> Option<bool> {
        match monitor::power_down(task_dir, MONITOR).await {
            Ok(_open) => {
                let ended = tokio::time::timeout(timeout, self.tasks.wait(id)).await;
                Some(matches!(ended, Ok(Ok(_))))
            }
            Err(error) => {
                let error = caravan_sys::describe(&error);
                tracing::debug!(task = %id, error, "monitor request failed; sending the signal instead");
                None
            }
        }
    }
}

#[async_trait]
impl ShimDriver for QemuDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: false,
            exec: false,
            fs_isolation: FsIsolation::None,
            mounts: false,
            privileged_mounts: false,
            networks: true,
            creates_networks: false,
            dynamic_users: false,
            names: false,
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        let allowlist = self.options.emulators_allowlist.clone();
        let found = tokio::task::spawn_blocking(move || {
            emulators::Emulators::find(&programs::search_path(), &allowlist)
        });
        let emulators = match found.await {
            Ok(Ok(emulators)) => emulators,
            Ok(Err(reason)) => return Fingerprint::undetected(reason),
            Err(_) => return Fingerprint::undetected("the search for emulators was cut off"),
        };
        let output = match self.version.get(&emulators.first(), "--version").await {
            Ok(output) => output,
            Err(reason) => return Fingerprint::undetected(reason),
        };
        let Some(version) = emulators::parse_version(&output) else {
            return Fingerprint::undetected(format!("{} reports no version", emulators.first().display()));
        };
        let mut found = Fingerprint::healthy(NAME);
        found.attributes.insert("driver.qemu.version".into(), version.to_owned());
        found.attributes.insert("driver.qemu.emulators".into(), emulators.names.join(","));
        found
    }

    fn validate(&self, config: &Value) -> Result<()> {
        Config::read(config, &self.options).map(drop)
    }

    fn tasks(&self) -> &ShimTasks {
        &self.tasks
    }

    async fn start(&self, task: TaskConfig) -> Result<TaskHandle> {
        let config = Config::read(&task.driver_config, &self.options)?;
        let spec = self.spec(&task, &config).await?;
        let monitor = config.graceful_shutdown.then_some(task.dirs.task_dir);
        let network = config.network();
        self.tasks
            .start_with(task.id, spec, |handle| {
                handle.network = network;
                if let (Some(dir), Value::Object(state)) = (monitor, &mut handle.state) {
                    state.insert(MONITOR_DIR.to_owned(), serde_json::json!(dir));
                }
            })
            .await
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        let status = self.tasks.inspect(id)?;
        let monitor = status.handle.state.get(MONITOR_DIR).and_then(Value::as_str);
        if let Some(task_dir) = monitor
            && status.state == TaskState::Running
            && !timeout.is_zero()
        {
            match self.power_down(id, Path::new(task_dir), timeout).await {
                Some(true) => return Ok(()),
                Some(false) => return self.tasks.stop(id, Duration::ZERO, Some("SIGKILL")).await,
                None => {}
            }
        }
        self.tasks.stop(id, timeout, signal).await
    }

    fn has_sealed_tasks(&self) -> bool {
        true
    }
}

impl Config {
    /// Returns the network of a machine whose only port has a name.
    fn network(&self) -> Option<DriverNetwork> {
        (self.port_map.len() == 1)
            .then(|| DriverNetwork { ports: self.port_map.clone(), ..DriverNetwork::default() })
    }
}
