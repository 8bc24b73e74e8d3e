//! The plan of a task: the data that is known before it starts, and the driver's input.

use super::alloc_state::AllocState;
use super::binds::{Binds, Sources, of_volume, requested_mounts};
use super::task_hooks::Prepared;
use super::unveil;
use super::users::{TaskUser, Users};
use crate::ClientError;
use crate::alloc_dir::{AllocDir, TaskDir};
use crate::cores::Cores;
use crate::csi::supervisor::PluginTask;
use crate::drivers::DriverManager;
use crate::dynamic_users::DynamicUsers;
use crate::env::{Inputs, SeenDirs, TaskEnv};
use crate::node::NodeState;
use caravan_drivers::{Driver, FsIsolation, LogConfig, Mount, Port, Resources, TaskConfig, TaskDirs, TaskId};
use caravan_types::AllocId;
use caravan_types::alloc::{AllocatedDevice, AllocatedPort, Allocation};
use caravan_types::job::{Task, TaskGroup, Template};
use caravan_types::node::Node;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The data of a task that is known before it starts.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) plugin: Option<PluginTask>,
    pub(super) alloc: Arc<Allocation>,
    pub(super) name: String,
    node: Arc<Node>,
    env: TaskEnv,
    dirs: TaskDir,
    /// The user that the client chose for the task.
    dynamic_uid: Option<u32>,
}

/// The facts of the node from which tasks are planned.
#[derive(Debug)]
pub(crate) struct Planner {
    pub(crate) drivers: DriverManager,
    pub(crate) node: NodeState,
    pub(crate) region: String,
    /// The parent of the control groups of tasks.
    pub(crate) cgroup_parent: String,
    /// The directory of CSI sockets and mounts.
    pub(crate) csi_dir: PathBuf,
    /// The parent of the directories that drivers of kind [`FsIsolation::Unveil`] show.
    pub(crate) mounts_dir: PathBuf,
    /// The users that the client chose for tasks.
    pub(crate) dynamic_users: DynamicUsers,
    /// The host's environment as tasks may see it.
    pub(crate) host_env: BTreeMap<String, String>,
}

impl Planner {
    /// Plans a task. Returns `None` if its driver is absent or its job no longer has the task.
    pub(super) fn plan(&self, state: &AllocState, name: &str) -> Option<Plan> {
        self.plan_of(state.alloc(), state.dir(), name)
    }

    fn plan_of(&self, alloc: Arc<Allocation>, dir: &AllocDir, name: &str) -> Option<Plan> {
        let (job, group) = (alloc.job.clone()?, alloc.group()?.clone());
        let task = group.task(name)?;
        let driver = self.drivers.get(&task.driver)?;
        let isolation = driver.capabilities().fs_isolation;
        let dirs = dir.task(name);
        let seen = seen_dirs(&dirs, isolation, &unveil::place(&self.mounts_dir, &alloc.id, name));
        let dynamic_uid = self.dynamic_users.get(&alloc.id, name);
        let empty = BTreeMap::new();
        // Only tasks with the root of an image run without the host's environment (docs/reference/drivers.md, section
        // 5.4).
        let host = if isolation == FsIsolation::Image { &empty } else { &self.host_env };
        let node = self.node.get();
        let plugin = task
            .csi_plugin_config
            .as_ref()
            .map(|block| PluginTask::plan(&self.csi_dir, &alloc.id, block, isolation));
        let env = TaskEnv::build(&Inputs {
            hooks: &plugin.as_ref().map(PluginTask::variables).unwrap_or_default(),
            node: &node,
            region: &self.region,
            alloc: &alloc,
            job: &job,
            group: &group,
            task,
            dirs: &seen,
            cgroup_parent: &self.cgroup_parent,
            host,
        });
        Some(Plan {
            driver,
            plugin,
            alloc: Arc::clone(&alloc),
            name: name.to_owned(),
            node,
            env,
            dirs,
            dynamic_uid,
        })
    }

    /// Returns the users that the named tasks run as. A task whose driver is absent has none.
    pub(super) fn users(&self, alloc: &Arc<Allocation>, dir: &AllocDir, tasks: &[String]) -> Users {
        let plans = tasks.iter().filter_map(|task| self.plan_of(Arc::clone(alloc), dir, task));
        Users::new(plans.map(|plan| plan.user()).collect())
    }

    /// Returns the users that the tasks of an allocation run as.
    pub(super) fn users_of(&self, state: &AllocState) -> Users {
        self.users(&state.alloc(), state.dir(), &state.task_names())
    }

    /// Returns the driver of a running task and the driver's id of it.
    pub(crate) fn running(
        &self,
        state: &AllocState,
        task: &str,
    ) -> Result<(Arc<dyn Driver>, String), ClientError> {
        let alloc = state.alloc();
        let spec = alloc.group().and_then(|g| g.task(task));
        let spec = spec.ok_or_else(|| ClientError::UnknownTask(task.to_owned()))?;
        let id = state.record(task).filter(|r| r.handle.is_some()).and_then(|r| r.driver_id);
        let driver = self.drivers.get(&spec.driver);
        driver.zip(id).ok_or_else(|| ClientError::TaskNotRunning(task.to_owned()))
    }
}

/// The limits and places of tasks on this node.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) cores: Cores,
    pub(crate) state_dir: PathBuf,
    pub(crate) cgroup_parent: String,
    pub(crate) max_kill_timeout: Duration,
    /// The token that is cancelled when the agent ends; tasks keep running.
    pub(crate) shutdown: CancellationToken,
}

impl Site {
    /// Returns the directory of a driver's data that must survive between runs of the tasks of an allocation.
    pub(super) fn state_dir_of(&self, alloc: &AllocId) -> PathBuf {
        self.state_dir.join("tasks").join(alloc.as_str())
    }
}

impl Plan {
    /// Returns the task in the job file.
    pub(super) fn task(&self) -> &Task {
        let task = self.alloc.group().and_then(|g| g.task(&self.name));
        task.expect("the plan was made from this task of this allocation")
    }

    pub(super) fn group(&self) -> &TaskGroup {
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

    /// Returns the environment without the variables that hooks add.
    pub(super) fn env(&self) -> &TaskEnv {
        &self.env
    }

    /// Returns the devices that the scheduler assigned to the task.
    pub(super) fn devices(&self) -> &[AllocatedDevice] {
        let resources = self.alloc.allocated_resources.as_ref();
        resources.and_then(|resources| resources.tasks.get(&self.name)).map_or(&[], |task| &task.devices)
    }

    /// Returns the directories of the task.
    pub(super) fn dirs(&self) -> &TaskDir {
        &self.dirs
    }

    /// Returns whether the task sees its directories in a separate root.
    pub(super) fn has_own_root(&self) -> bool {
        !self.driver.capabilities().fs_isolation.shows_host_paths()
    }

    /// Returns the environment that templates see: the task's, without the variables that hooks add.
    pub(super) fn template_env(&self) -> &BTreeMap<String, String> {
        self.env.variables()
    }

    /// Returns a text with its references replaced; references to directories become paths on the host.
    pub(super) fn client_text(&self, text: &str) -> String {
        let path = |path: PathBuf| path.display().to_string();
        let places = [
            ("NOMAD_ALLOC_DIR", path(self.dirs.shared.clone())),
            ("NOMAD_TASK_DIR", path(self.dirs.local())),
            ("NOMAD_SECRETS_DIR", path(self.dirs.secrets())),
        ];
        self.env.with(places.map(|(name, place)| (name.to_owned(), place))).text(text)
    }

    /// Replaces the mounts of a volume in the running task.
    pub(super) async fn rebind(
        &self,
        sources: &Sources,
        alias: &str,
        driver: &dyn Driver,
        id: &str,
    ) -> Result<(), String> {
        let mounts = requested_mounts(sources, &self.alloc, self.group(), self.task(), &self.env, true)?;
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
            // The driver reports a user that the host does not have.
            return TaskUser::Named(user);
        }
        if self.driver.capabilities().dynamic_users {
            return self.dynamic_uid.map_or(TaskUser::Nobody, TaskUser::Dynamic);
        }
        let confined = self.driver.capabilities().fs_isolation == FsIsolation::Chroot;
        let privileged = self.plugin.as_ref().is_some_and(PluginTask::mounts_volumes);
        if confined && !privileged { TaskUser::Nobody } else { TaskUser::Agent }
    }

    /// Returns whether the client must choose a user for the task before its start.
    pub(super) fn needs_user(&self) -> bool {
        self.driver.capabilities().dynamic_users
            && self.dynamic_uid.is_none()
            && self.env.text(&self.task().user).is_empty()
    }

    /// Returns the driver's input for a run.
    pub(super) fn config(&self, site: &Site, state: &AllocState, id: &str, prepared: Prepared) -> TaskConfig {
        let Prepared { tokens, variables, device_env, devices, dns, mounts, lease, owner: _ } = prepared;
        let texts = self.env.with(device_env.clone()).with(variables);
        let env = texts.with(tokens).variables().clone();
        let (task, alloc) = (self.task(), &self.alloc);
        let allocated = alloc.allocated_resources.as_ref().and_then(|r| r.tasks.get(&self.name));
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let memory = allocated.map_or(task.resources.memory_mb, |g| g.memory.memory_mb);
        let memory_max = allocated.map_or(task.resources.memory_max_mb, |g| g.memory.memory_max_mb);
        let user = self.env.text(&task.user);
        let log = |stream: &str| format!("{}.{stream}", self.name);
        TaskConfig {
            id: TaskId(id.to_owned()),
            alloc_id: alloc.id.to_string(),
            task_name: self.name.clone(),
            job_id: alloc.job_id.to_string(),
            job_name: alloc.job.as_ref().map(|job| job.name.to_string()).unwrap_or_default(),
            parent_job_id: alloc.job.as_ref().map(|job| job.parent_id.to_string()).unwrap_or_default(),
            group_name: alloc.task_group.to_string(),
            namespace: alloc.namespace.to_string(),
            node_id: self.node.id.to_string(),
            node_name: self.node.name.to_string(),
            driver_config: texts.config(&task.config),
            env,
            resources: Resources {
                cpu_mhz: number(allocated.map_or(task.resources.cpu, |g| g.cpu.cpu_shares)),
                memory_mb: number(memory),
                memory_max_mb: memory_max_of(memory, memory_max),
                node_cpu_mhz: number(self.node.node_resources.cpu.cpu_shares),
            },
            processors: site.cores.get(&alloc.id, &self.name),
            ports: ports(alloc),
            mounts,
            devices,
            device_env,
            user: match self.user() {
                TaskUser::Dynamic(uid) => Some(DynamicUsers::name(uid)),
                _ => (!user.is_empty()).then_some(user),
            },
            dirs: TaskDirs {
                shared_alloc_dir: self.dirs.shared.clone(),
                task_dir: self.dirs.root.clone(),
                state_dir: site.state_dir_of(&state.alloc().id).join(&self.name),
            },
            logs: (!task.log_config.disabled).then(|| LogConfig {
                dir: state.dir().logs(),
                stdout: log("stdout"),
                stderr: log("stderr"),
                max_files: task.log_config.max_files,
                max_file_size_mb: u64::from(task.log_config.max_file_size_mb),
            }),
            network: state.network(),
            dns,
            cgroup_parent: site.cgroup_parent.trim_start_matches('/').into(),
            lease,
            privileged_mounts: self.plugin.as_ref().is_some_and(PluginTask::mounts_volumes),
        }
    }
}

/// Returns the memory limit of a task in MB, if it differs from the reservation. -1 means no limit.
fn memory_max_of(reserved: i64, most: i64) -> Option<u64> {
    match most {
        -1 => Some(Resources::NO_MEMORY_LIMIT),
        most if most > reserved => u64::try_from(most).ok(),
        _ => None,
    }
}

fn ports(alloc: &Allocation) -> Vec<Port> {
    let shared = alloc.allocated_resources.iter().flat_map(|resources| &resources.shared.ports);
    let number = |n: i64| u16::try_from(n).unwrap_or(0);
    let port = |port: &AllocatedPort| Port {
        label: port.label.clone(),
        value: number(port.value),
        to: number(port.to),
        host_ip: port.host_ip.clone(),
    };
    shared.map(port).collect()
}

/// Returns the mode of a task's `secrets`: for its user only. Other users may pass through if a template's file belongs
/// to them.
pub(super) fn secrets_mode(task: &Task) -> u32 {
    if task.templates.iter().any(Template::has_owner) { 0o711 } else { 0o700 }
}

fn seen_dirs(dirs: &TaskDir, isolation: FsIsolation, unveiled: &Path) -> SeenDirs {
    let text = |path: &Path| path.display().to_string();
    match isolation {
        FsIsolation::None => {
            SeenDirs { alloc: text(&dirs.shared), local: text(&dirs.local()), secrets: text(&dirs.secrets()) }
        }
        FsIsolation::Unveil => SeenDirs {
            alloc: text(&unveiled.join(unveil::ALLOC)),
            local: text(&unveiled.join(unveil::LOCAL)),
            secrets: text(&unveiled.join(unveil::SECRETS)),
        },
        FsIsolation::Chroot | FsIsolation::Image => {
            SeenDirs { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_memory_is_above_the_reservation_or_absent() {
        assert_eq!(memory_max_of(64, 0), None);
        assert_eq!(memory_max_of(64, 64), None);
        assert_eq!(memory_max_of(64, 128), Some(128));
        assert_eq!(memory_max_of(64, -1), Some(Resources::NO_MEMORY_LIMIT));
    }
}
