//! The steps from the decision to start a task to its first process.

use super::alloc::AllocRunner;
use super::artifacts;
use super::binds::{Binds, of_volume, ownerless, wanted};
use super::fence::Footing;
use super::fresh;
use super::identity::{self, Change, Writes};
use super::payload;
use super::users::{TaskUser, unknown_owner};
use crate::alloc_dir::{Secrets, TaskDir};
use crate::clock;
use crate::csi::supervisor::PluginTask;
use crate::env::{Inputs, SeenDirs, TaskEnv};
use caravan_drivers::{
    Driver, FsIsolation, LogConfig, Mount, Resources, TaskConfig, TaskDirs, TaskHandle, TaskId,
};
use caravan_sys::dir::Owner;
use caravan_types::alloc::Allocation;
use caravan_types::job::{Task, TaskGroup, Template};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Drivers that pass on the host's environment (docs/reference/jobspec.md, section 9.2).
const WITH_HOST_ENV: [&str; 4] = ["raw_exec", "exec", "java", "qemu"];

/// The data of a task that is known before it starts.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) plugin: Option<PluginTask>,
    pub(super) alloc: Arc<Allocation>,
    pub(super) name: String,
    env: TaskEnv,
    dirs: TaskDir,
}

/// Why a start failed.
#[derive(Debug)]
pub(super) enum StartFault {
    /// A hook failed; a retry may help.
    Hook(String),
    /// The driver returned an error.
    Driver(caravan_drivers::Error),
    /// The lease term under which its volumes were mounted has ended.
    Lease,
    /// An artifact cannot be fetched.
    Artifact(String),
    /// A template cannot be rendered.
    Templates(super::templates::Failed),
}

/// The results of the preparation.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Variables that contain identities.
    tokens: BTreeMap<String, String>,
    /// The user that the task runs as, if the host knows that user.
    owner: Option<Owner>,
}

/// Returns the fault of a failed hook.
fn hook(name: &str, why: String) -> StartFault {
    StartFault::Hook(format!("prestart hook \"{name}\" failed: {why}"))
}

impl Plan {
    /// Plans a task. Returns `None` if its driver is absent or its job no longer has the task.
    pub(super) fn make(runner: &AllocRunner, name: &str) -> Option<Self> {
        let context = runner.context();
        let alloc = runner.alloc();
        let (job, group) = (alloc.job.clone()?, alloc.group()?.clone());
        let task = group.task(name)?;
        let driver = context.drivers.get(&task.driver)?;
        let isolation = driver.capabilities().fs_isolation;
        let dirs = runner.dir().task(name);
        let seen = seen_dirs(&dirs, isolation);
        let empty = BTreeMap::new();
        let host = if WITH_HOST_ENV.contains(&task.driver.as_str()) { &context.host_env } else { &empty };
        let node = context.node.get();
        let plugin = task
            .csi_plugin_config
            .as_ref()
            .map(|block| PluginTask::plan(&context.csi_dir, &alloc.id, block, isolation));
        let env = TaskEnv::build(&Inputs {
            hooks: &plugin.as_ref().map(PluginTask::variables).unwrap_or_default(),
            node: &node,
            region: &context.config.region,
            alloc: &alloc,
            job: &job,
            group: &group,
            task,
            dirs: &seen,
            cgroup_parent: &context.config.cgroup_parent,
            host,
        });
        Some(Self { driver, plugin, alloc: Arc::clone(&alloc), name: name.to_owned(), env, dirs })
    }

    /// Returns the task in the job file.
    pub(super) fn task(&self) -> &Task {
        let task = self.alloc.group().and_then(|g| g.task(&self.name));
        task.expect("the plan was made from this task of this allocation")
    }

    fn group(&self) -> &TaskGroup {
        self.alloc.group().expect("the plan was made from this group")
    }

    /// Returns the signal of a graceful stop, if the job file sets one.
    pub(super) fn kill_signal(&self) -> Option<String> {
        let signal = self.env.text(&self.task().kill_signal);
        (!signal.is_empty()).then_some(signal)
    }

    /// Returns a text with its references replaced.
    pub(super) fn text(&self, text: &str) -> String {
        self.env.text(text)
    }

    /// Returns the binds that an earlier agent created for this task.
    pub(super) fn adopt_binds(&self, runner: &AllocRunner) -> Binds {
        if self.driver.capabilities().mounts {
            return Binds::default();
        }
        let mounts = wanted(runner.context(), &self.alloc, self.group(), self.task(), &self.env, false);
        Binds::adopt(&mounts.unwrap_or_default(), &self.dirs)
    }

    /// Returns the directories of the task.
    pub(super) fn dirs(&self) -> &TaskDir {
        &self.dirs
    }

    /// Returns whether the task sees its directories in a root of its own.
    pub(super) fn has_own_root(&self) -> bool {
        self.driver.capabilities().fs_isolation != FsIsolation::None
    }

    /// Returns the environment that templates see: the task's, without the variables that hooks add.
    pub(super) fn template_env(&self) -> &BTreeMap<String, String> {
        self.env.variables()
    }

    /// Returns a text with its references replaced, those to directories by the paths on the host.
    pub(super) fn client_text(&self, text: &str) -> String {
        let path = |path: PathBuf| path.display().to_string();
        let places = [
            ("NOMAD_ALLOC_DIR", path(self.dirs.shared.clone())),
            ("NOMAD_TASK_DIR", path(self.dirs.local())),
            ("NOMAD_SECRETS_DIR", path(self.dirs.secrets())),
        ];
        self.env.with(places.map(|(name, place)| (name.to_owned(), place))).text(text)
    }

    /// Creates the directories and the files that must exist before templates are rendered.
    pub(super) async fn prepare(
        &self,
        runner: &AllocRunner,
        writes: &Writes,
    ) -> Result<Prepared, StartFault> {
        let task = self.task();
        let known = self.user().known_owner().await;
        let owner = known.unwrap_or_else(unknown_owner);
        self.build_directories(runner, owner).map_err(|why| hook("task_dir", why))?;
        runner.open_socket(&self.name);
        let signed = identity::fetch(runner, task).await.map_err(|why| hook("identity", why))?;
        identity::write(&self.dirs, &signed, owner).map_err(|why| hook("identity", why))?;
        writes.record(signed.iter().map(|(spec, _)| spec), clock::now());
        if let Some(job) = &self.alloc.job {
            payload::write(&self.dirs, job, task).map_err(|why| hook("dispatch_payload", why))?;
        }
        artifacts::fetch_all(runner, self, owner).await.map_err(StartFault::Artifact)?;
        Ok(Prepared { tokens: identity::variables(&signed), owner: known })
    }

    /// Creates the directories of the task. Idempotent, also while it runs.
    fn build_directories(&self, runner: &AllocRunner, owner: Owner) -> Result<(), String> {
        let task = self.task();
        let secrets = Secrets { size_mb: task.resources.secrets_mb, user: owner, mode: secrets_mode(task) };
        let built = runner.dir().build_task(&self.name, secrets);
        built.map(drop).map_err(|error| caravan_sys::describe(&error))
    }

    /// Applies the owners and modes of this agent to the directories of a running task.
    pub(super) async fn adopt_directories(&self, runner: &AllocRunner) -> Result<(), String> {
        self.build_directories(runner, self.user().owner().await)
    }

    /// Mounts the volumes, then starts the task. `more` are the variables that templates add.
    pub(super) async fn start(
        &self,
        runner: &AllocRunner,
        id: &str,
        prepared: Prepared,
        more: BTreeMap<String, String>,
    ) -> Result<(TaskHandle, Binds), StartFault> {
        let context = runner.context();
        let task = self.task();
        let Prepared { tokens, owner } = prepared;
        let texts = self.env.with(more);
        let env = texts.with(tokens).variables().clone();
        let mut mounts = Vec::new();
        if let Some(plugin) = &self.plugin {
            context.left_mounts.begin(&self.name, plugin).await;
            plugin.prepare().map_err(|e| hook("csi_plugin_supervisor", e.to_string()))?;
            mounts = plugin.mounts();
        }
        let volumes = wanted(context, &self.alloc, self.group(), task, &self.env, true)
            .map_err(|why| hook("volumes", why))?;
        // The driver refuses an unknown user, so the volume's root stays for the next task.
        if let Some(owner) = owner.filter(|owner| owner.uid != Some(0)) {
            let ownerless = ownerless(self.group(), task, &self.env, &volumes);
            let fresh = ownerless.filter(|v| !v.read_only && v.host_path.starts_with(&context.csi_dir));
            fresh.for_each(|volume| fresh::give(&volume.host_path, owner));
        }
        let mut binds = Binds::default();
        if self.driver.capabilities().mounts {
            mounts.extend(volumes);
        } else {
            binds = Binds::make(&volumes, &self.dirs).map_err(|why| hook("volumes", why))?;
        }
        // Checked late, so that the shim rarely has to refuse.
        let lease = match runner.footing(task) {
            Footing::Free => None,
            Footing::Under(term) => Some(context.lease.for_shim(term)),
            Footing::Lost => {
                binds.undo();
                return Err(StartFault::Lease);
            }
        };
        let config = TaskConfig { lease, ..self.config(runner, id, &texts, env, mounts) };
        match self.driver.start(config).await {
            Ok(handle) => {
                context.cores.started();
                Ok((handle, binds))
            }
            Err(error) => {
                binds.undo();
                Err(StartFault::Driver(error))
            }
        }
    }

    /// Renews the identities of the running task until a renewal requires a restart or a signal.
    pub(super) async fn renewed(&self, runner: &AllocRunner, writes: &Writes) -> Change {
        let owner = self.user().owner().await;
        identity::renewed(runner, self.task(), &self.dirs, owner, writes).await
    }

    /// Replaces the mounts of a volume in the running task.
    pub(super) async fn rebind(
        &self,
        runner: &AllocRunner,
        alias: &str,
        driver: &dyn Driver,
        id: &str,
    ) -> Result<(), String> {
        let mounts = wanted(runner.context(), &self.alloc, self.group(), self.task(), &self.env, true)?;
        let mounts: Vec<Mount> = of_volume(self.task(), &self.env, &mounts, alias).cloned().collect();
        if !driver.capabilities().mounts {
            // The task's runner has the same targets and ends the mounts there.
            return Binds::make(&mounts, &self.dirs).map(drop);
        }
        for mount in &mounts {
            let id = TaskId(id.to_owned());
            driver.remount(&id, mount).await.map_err(|error| caravan_sys::describe(&error))?;
        }
        Ok(())
    }

    /// Returns the user that the task runs as.
    pub(super) fn user(&self) -> TaskUser {
        let user = self.env.text(&self.task().user);
        if !user.is_empty() {
            // The driver reports a user that the host does not know.
            return TaskUser::Named(user);
        }
        let confined = self.driver.capabilities().fs_isolation == FsIsolation::Chroot;
        let privileged = self.plugin.as_ref().is_some_and(PluginTask::mounts_volumes);
        if confined && !privileged { TaskUser::Nobody } else { TaskUser::Agent }
    }

    fn config(
        &self,
        runner: &AllocRunner,
        id: &str,
        texts: &TaskEnv,
        env: BTreeMap<String, String>,
        mounts: Vec<Mount>,
    ) -> TaskConfig {
        let (task, alloc) = (self.task(), &self.alloc);
        let config = &runner.context().config;
        let given = alloc.allocated_resources.as_ref().and_then(|r| r.tasks.get(&self.name));
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let memory = given.map_or(task.resources.memory_mb, |g| g.memory.memory_mb);
        let memory_max = given.map_or(task.resources.memory_max_mb, |g| g.memory.memory_max_mb);
        let user = self.env.text(&task.user);
        let log = |stream: &str| format!("{}.{stream}", self.name);
        TaskConfig {
            id: TaskId(id.to_owned()),
            alloc_id: alloc.id.to_string(),
            task_name: self.name.clone(),
            job_id: alloc.job_id.to_string(),
            group_name: alloc.task_group.to_string(),
            namespace: alloc.namespace.to_string(),
            driver_config: texts.config(&task.config),
            env,
            resources: Resources {
                cpu_mhz: number(given.map_or(task.resources.cpu, |g| g.cpu.cpu_shares)),
                memory_mb: number(memory),
                memory_max_mb: (memory_max > memory).then(|| number(memory_max)),
            },
            processors: runner.context().cores.of(&alloc.id, &self.name),
            mounts,
            user: (!user.is_empty()).then_some(user),
            dirs: TaskDirs {
                shared_alloc_dir: self.dirs.shared.clone(),
                task_dir: self.dirs.root.clone(),
                state_dir: state_dir(runner, &self.name),
            },
            logs: (!task.log_config.disabled).then(|| LogConfig {
                dir: runner.dir().logs(),
                stdout: log("stdout"),
                stderr: log("stderr"),
                max_files: task.log_config.max_files,
                max_file_size_mb: u64::from(task.log_config.max_file_size_mb),
            }),
            network: runner.network(),
            cgroup_parent: config.cgroup_parent.trim_start_matches('/').into(),
            lease: None,
            privileged_mounts: self.plugin.as_ref().is_some_and(PluginTask::mounts_volumes),
        }
    }
}

/// Returns the mode of a task's `secrets`: for its user only. Other users may pass through if a template's file belongs
/// to them.
fn secrets_mode(task: &Task) -> u32 {
    if task.templates.iter().any(Template::has_owner) { 0o711 } else { 0o700 }
}

fn seen_dirs(dirs: &TaskDir, isolation: FsIsolation) -> SeenDirs {
    let text = |path: &Path| path.display().to_string();
    match isolation {
        FsIsolation::None => {
            SeenDirs { alloc: text(&dirs.shared), local: text(&dirs.local()), secrets: text(&dirs.secrets()) }
        }
        FsIsolation::Chroot | FsIsolation::Image => {
            SeenDirs { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
        }
    }
}

/// Returns the directory of a driver's data that must survive between runs of a task.
pub(super) fn state_dir(runner: &AllocRunner, task: &str) -> PathBuf {
    runner.context().config.state_dir.join("tasks").join(runner.alloc().id.as_str()).join(task)
}
