//! exec: runs programs in their own root, made of the host's directories, with their own namespaces and capabilities.

use crate::config::Reader;
use crate::driver::{Capabilities, Driver, Fingerprint, FsIsolation};
use crate::ids::IdRanges;
use crate::session::{ExecRequest, ExecStream};
use crate::supervised::{ForkServer, ShimTasks, convert, end_forgotten};
use crate::task::{ExecOutput, ExitResult, Mount, TaskConfig, TaskHandle, TaskId, TaskStatus, Usage};
use crate::{Error, Result};
use async_trait::async_trait;
use caravan_shim::TaskSpec;
use caravan_shim::spec::{CommandSpec, IsolationSpec, MountPropagation, MountSpec};
use caravan_sys::caps::{CapSet, Capability};
use caravan_sys::cgroup::{Survey, device_mechanism};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "exec";

/// The user of a task that names none.
const DEFAULT_USER: &str = "nobody";

/// The user of a task that mounts for other tasks and names no user: mount(2) needs root.
const PRIVILEGED_USER: &str = "root";

/// The node attribute that is `true` if privileged plugins are allowed.
const PRIVILEGED_PLUGINS: &str = "driver.exec.privileged_plugins";

/// The node attribute with the capabilities that tasks may have: names separated by commas, or `all`.
const ALLOWED_CAPABILITIES: &str = "driver.exec.allow_caps";

/// The node attribute with the way in which the devices of tasks are limited: `controller` (version 1 of control
/// groups), `program` (version 2), or `none`.
const DEVICE_RULES: &str = "driver.exec.device_rules";

/// The directory in which a task sees a bundled program that it runs.
const BUNDLED_DIR: &str = "/run/caravan/bin";

/// The capabilities that tasks may have unless the agent's configuration sets `allow_caps`.
pub const DEFAULT_CAPABILITIES: [&str; 13] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];

/// The host's directories that tasks see unless the agent's configuration sets `chroot_env`.
pub const DEFAULT_HOST_PATHS: [&str; 9] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/run/resolvconf", "/run/systemd/resolve", "/sbin", "/usr"];

/// Whether tasks share a namespace with the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// The task has its own namespace.
    #[default]
    Private,
    /// The task uses the host's namespace.
    Host,
}

impl std::str::FromStr for NamespaceMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "private" => Ok(Self::Private),
            "host" => Ok(Self::Host),
            other => Err(Error::Config(format!("{other:?} is not \"private\" or \"host\""))),
        }
    }
}

/// The driver's options in the agent's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOptions {
    /// PID namespace of tasks that do not set `pid_mode`.
    pub default_pid_mode: NamespaceMode,
    /// IPC namespace of tasks that do not set `ipc_mode`.
    pub default_ipc_mode: NamespaceMode,
    /// Capabilities that tasks may have, by name; `all` allows every capability.
    pub allow_caps: Vec<String>,
    /// Users that tasks may not run as.
    pub denied_host_uids: IdRanges,
    /// Groups that tasks may not run as.
    pub denied_host_gids: IdRanges,
    /// Host paths that tasks see read-only, with their paths in the task (`chroot_env`).
    pub host_paths: BTreeMap<PathBuf, PathBuf>,
    /// Whether tasks that mount for other tasks (CSI plugins of type node and monolith) get all capabilities, the
    /// host's devices, and mounts that propagate to the host. Such a task is root on the node.
    pub allow_privileged_plugins: bool,
    /// Programs of the host that every task may run by name, regardless of its root: the agent itself, for bundled
    /// plugins.
    pub bundled: BTreeMap<String, PathBuf>,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            default_pid_mode: NamespaceMode::default(),
            default_ipc_mode: NamespaceMode::default(),
            allow_caps: DEFAULT_CAPABILITIES.map(str::to_owned).into(),
            denied_host_uids: IdRanges::default(),
            denied_host_gids: IdRanges::default(),
            host_paths: DEFAULT_HOST_PATHS.map(|path| (path.into(), path.into())).into(),
            allow_privileged_plugins: false,
            bundled: BTreeMap::new(),
        }
    }
}

impl ExecOptions {
    /// Checks that the kernel knows the allowed capabilities.
    pub fn check(&self) -> Result<()> {
        capabilities(&self.allow_caps).map(drop)
    }

    /// Returns the allowed capabilities for the node's attribute, sorted. Names that the kernel does not know are
    /// left out.
    fn allowed_capabilities(&self) -> String {
        if self.allow_caps.iter().any(|name| is_all(name)) {
            return "all".to_owned();
        }
        let known = self.allow_caps.iter().filter_map(|name| capability(name).ok());
        let names: BTreeSet<String> = known.map(|capability| capability.to_string()).collect();
        Vec::from_iter(names).join(",")
    }
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
    work_dir: Option<PathBuf>,
    pid_mode: Option<NamespaceMode>,
    ipc_mode: Option<NamespaceMode>,
    cap_add: Vec<String>,
    cap_drop: Vec<String>,
}

impl Config {
    fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let mode = |key: &'static str, text: Option<String>| {
            text.filter(|t| !t.is_empty())
                .map(|t| {
                    t.parse().map_err(|e| Error::Config(format!("config key {key:?} of driver exec: {e}")))
                })
                .transpose()
        };
        let config = Self {
            command: reader.required_string("command")?,
            args: reader.strings("args")?,
            work_dir: reader.string("work_dir")?.map(PathBuf::from),
            pid_mode: mode("pid_mode", reader.string("pid_mode")?)?,
            ipc_mode: mode("ipc_mode", reader.string("ipc_mode")?)?,
            cap_add: reader.strings("cap_add")?,
            cap_drop: reader.strings("cap_drop")?,
        };
        reader.finish()?;
        if config.work_dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            return Err(Error::Config(
                "config key \"work_dir\" of driver exec must be an absolute path".into(),
            ));
        }
        Ok(config)
    }
}

/// The capabilities of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskCapabilities {
    /// The most capabilities that the task may have.
    set: CapSet,
    /// The capabilities that the job adds, by name or as `all`. A user other than root gets these as well.
    added: CapSet,
    /// Whether the job adds a capability by its name.
    is_named: bool,
}

impl TaskCapabilities {
    /// The capabilities of a plugin that mounts for other tasks.
    const PRIVILEGED: Self = Self { set: CapSet::ALL, added: CapSet::EMPTY, is_named: false };

    /// Returns the default capabilities that the node allows, plus those in `add`, minus those in `drop`. The name
    /// `all` stands for every allowed capability.
    fn new(allow: &[String], add: &[String], drop: &[String]) -> Result<Self> {
        let allowed = capabilities(allow)?;
        let mut set = capabilities(&DEFAULT_CAPABILITIES.map(str::to_owned))?.intersection(allowed);
        let (mut added, mut named) = (CapSet::EMPTY, CapSet::EMPTY);
        let mut refused = Vec::new();
        for name in add {
            if is_all(name) {
                set = allowed;
                added = allowed;
                continue;
            }
            let capability = capability(name)?;
            if allowed.contains(capability) {
                set.insert(capability);
                added.insert(capability);
                named.insert(capability);
            } else {
                refused.push(capability.to_string());
            }
        }
        if !refused.is_empty() {
            return Err(Error::Config(format!(
                "driver exec does not allow the following capabilities on this node: {}",
                refused.join(", ")
            )));
        }
        for name in drop {
            if is_all(name) {
                // Dropping all keeps the added capabilities.
                set = added;
                continue;
            }
            let capability = capability(name)?;
            set.remove(capability);
            added.remove(capability);
            named.remove(capability);
        }
        Ok(Self { set, added, is_named: named != CapSet::EMPTY })
    }
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("all")
}

fn capability(name: &str) -> Result<Capability> {
    name.parse().map_err(|e: caravan_sys::Error| Error::Config(e.to_string()))
}

fn capabilities(names: &[String]) -> Result<CapSet> {
    let mut set = CapSet::EMPTY;
    for name in names {
        if is_all(name) {
            return Ok(CapSet::ALL);
        }
        set.insert(capability(name)?);
    }
    Ok(set)
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

        let capabilities = if task.privileged_mounts {
            TaskCapabilities::PRIVILEGED
        } else {
            TaskCapabilities::new(&self.options.allow_caps, &config.cap_add, &config.cap_drop)?
        };
        let shared = MountSpec {
            host: task.dirs.shared_alloc_dir.clone(),
            task: "/alloc".into(),
            read_only: false,
            propagation: MountPropagation::Private,
        };
        let private =
            |mode: Option<NamespaceMode>, default| mode.unwrap_or(default) == NamespaceMode::Private;
        let mut mounts = vec![shared];
        let program = match self.options.bundled.get(&config.command) {
            None => config.command,
            Some(host) => {
                let task = format!("{BUNDLED_DIR}/{}", config.command);
                mounts.push(MountSpec {
                    host: host.clone(),
                    task: task.clone().into(),
                    read_only: true,
                    propagation: MountPropagation::Private,
                });
                task
            }
        };
        // Every task already has a `/dev`; only privileged tasks may replace it by the host's.
        let may_have = |mount: &&Mount| task.privileged_mounts || mount.task_path != Path::new("/dev");
        mounts.extend(task.mounts.iter().filter(may_have).map(convert::mount));
        let isolation = IsolationSpec {
            root: task.dirs.task_dir.clone(),
            host_paths: self.options.host_paths.clone(),
            mounts,
            hidden: vec!["/private".into()],
            private_pids: private(config.pid_mode, self.options.default_pid_mode),
            private_ipc: private(config.ipc_mode, self.options.default_ipc_mode),
            capabilities: capabilities.set.bits(),
            ambient: capabilities.added.bits(),
            privileged: task.privileged_mounts,
            filtered: !task.privileged_mounts,
            // The job may name a capability that a program file grants, which no_new_privs would prevent. `all` names
            // none.
            no_new_privileges: !task.privileged_mounts && account.uid != 0 && !capabilities.is_named,
        };
        Ok(TaskSpec {
            task_id: task.id.0.clone(),
            state_dir: task.dirs.state_dir.clone(),
            command: CommandSpec {
                program,
                args: config.args,
                env: task.env.clone(),
                cwd: config.work_dir.unwrap_or_else(|| "/".into()),
                base: None,
                search: vec!["/local".into(), "/".into()],
            },
            user: Some(convert::user(&account)),
            logs: convert::logs(task),
            cgroup: Some(convert::cgroup(task)),
            rlimits: Vec::new(),
            oom_score_adj: None,
            isolation: Some(isolation),
            network: task.network.clone(),
            lease: task.lease.clone(),
        })
    }
}

#[async_trait]
impl Driver for ExecDriver {
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
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        if caravan_sys::user::effective_uid() != 0 {
            return Fingerprint::undetected("Driver must run as root");
        }
        match Survey::read() {
            Ok(Some(survey)) if survey.read_only => {
                Fingerprint::undetected("Cgroup mount point is read-only")
            }
            Ok(Some(survey)) => match device_mechanism(&survey.hierarchy) {
                Ok(mechanism) => {
                    let mut found = Fingerprint::healthy(NAME);
                    if self.options.allow_privileged_plugins {
                        found.attributes.insert(PRIVILEGED_PLUGINS.into(), "true".into());
                    }
                    found.attributes.insert(ALLOWED_CAPABILITIES.into(), self.options.allowed_capabilities());
                    found.attributes.insert(DEVICE_RULES.into(), mechanism.to_string());
                    found
                }
                // Tasks would not start; see `make_cgroup` of the shim.
                Err(refusal) => {
                    let error = caravan_sys::Error::Devices(refusal);
                    let mut found = Fingerprint::undetected(caravan_sys::describe(&error));
                    found.attributes.insert(DEVICE_RULES.into(), "none".into());
                    found
                }
            },
            Ok(None) => Fingerprint::undetected("Cgroup mount point unavailable"),
            Err(error) => Fingerprint::undetected(caravan_sys::describe(&error)),
        }
    }

    fn validate(&self, config: &Value) -> Result<()> {
        let config = Config::read(config)?;
        TaskCapabilities::new(&self.options.allow_caps, &config.cap_add, &config.cap_drop).map(drop)
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        let spec = self.spec(&config).await?;
        self.tasks.start(config.id, spec).await
    }

    async fn recover(&self, handle: TaskHandle) -> Result<()> {
        self.tasks.recover(handle)
    }

    async fn wait(&self, id: &TaskId) -> Result<ExitResult> {
        self.tasks.wait(id).await
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        self.tasks.stop(id, timeout, signal).await
    }

    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()> {
        self.tasks.destroy(id, force).await
    }

    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        self.tasks.inspect(id)
    }

    async fn usage(&self, id: &TaskId) -> Result<Usage> {
        self.tasks.usage(id).await
    }

    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()> {
        self.tasks.signal(id, signal).await
    }

    async fn exec(&self, id: &TaskId, command: &[String], timeout: Duration) -> Result<ExecOutput> {
        self.tasks.exec(id, command, timeout).await
    }

    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        self.tasks.exec_stream(id, request).await
    }

    async fn end_lost(&self, id: &TaskId, state_dir: &Path) -> Result<()> {
        end_forgotten(id, state_dir).await
    }

    async fn remount(&self, id: &TaskId, mount: &Mount) -> Result<()> {
        self.tasks.remount(id, mount).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn capabilities_are_added_and_dropped_within_what_the_node_allows() {
        let allow = names(&["chown", "kill", "net_raw"]);
        let has = |set: CapSet, name: &str| set.contains(name.parse().unwrap());
        let of = |add: &[&str], drop: &[&str]| TaskCapabilities::new(&allow, &names(add), &names(drop));
        let found = of(&["CAP_NET_RAW"], &["chown"]).unwrap();
        assert!(has(found.set, "net_raw") && has(found.set, "kill"));
        assert!(!has(found.set, "chown") && !has(found.set, "setuid"));
        assert!(has(found.added, "net_raw") && !has(found.added, "kill") && found.is_named);
        let found = of(&["kill"], &["all"]).unwrap();
        assert!(has(found.set, "kill") && !has(found.set, "chown"));
        let error = of(&["sys_admin"], &[]).unwrap_err().to_string();
        assert!(
            error.contains("does not allow the following capabilities on this node: sys_admin"),
            "{error}"
        );
        let error = of(&["fly"], &[]).unwrap_err().to_string();
        assert_eq!(error, "unknown capability \"fly\"");
        // `all` adds every capability but names none.
        let found = of(&["All"], &[]).unwrap();
        assert!(has(found.added, "net_raw") && found.set == found.added && !found.is_named);
        assert!(of(&["all", "kill"], &[]).unwrap().is_named);
        assert!(!of(&["all", "kill"], &["kill"]).unwrap().is_named);
    }

    #[test]
    fn nodes_report_allowed_capabilities_by_the_names_of_the_kernel() {
        let attribute = |allow: &[&str]| {
            let options = ExecOptions { allow_caps: names(allow), ..ExecOptions::default() };
            (options.allowed_capabilities(), options.check().is_ok())
        };
        assert_eq!(attribute(&["CAP_NET_RAW", "chown", "Kill"]), ("chown,kill,net_raw".into(), true));
        assert_eq!(attribute(&["kill", "ALL"]), ("all".into(), true));
        assert_eq!(attribute(&[]), (String::new(), true));
        assert_eq!(attribute(&["kill", "fly"]), ("kill".into(), false));
        let usual = ExecOptions::default().allowed_capabilities();
        assert!(
            usual.starts_with("audit_write,chown,dac_override,") && !usual.contains("net_raw"),
            "{usual}"
        );
    }

    #[test]
    fn configs_are_checked() {
        for (bad, needle) in [
            (json!({"args": []}), "\"command\" of driver exec is required"),
            (json!({"command": "x", "pid_mode": "shared"}), "\"pid_mode\" of driver exec: \"shared\" is not"),
            (json!({"command": "x", "work_dir": "relative"}), "must be an absolute path"),
            (json!({"command": "x", "privileged": true}), "no config key \"privileged\""),
        ] {
            let error = Config::read(&bad).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
        let config = Config::read(&json!({"command": "x", "pid_mode": "host", "ipc_mode": ""})).unwrap();
        assert_eq!((config.pid_mode, config.ipc_mode), (Some(NamespaceMode::Host), None));
    }
}
