//! The isolation of the drivers exec and java: a root made of the host's directories, namespaces and capabilities.

use crate::config::Reader;
use crate::driver::Fingerprint;
use crate::names;
use crate::supervised::convert;
use crate::task::{Mount, TaskConfig};
use crate::{Error, Result};
use caravan_shim::TaskSpec;
use caravan_shim::spec::{CommandSpec, IsolationSpec, MountPropagation, MountSpec};
use caravan_sys::caps::{CapSet, Capability};
use caravan_sys::cgroup::{Survey, device_mechanism};
use caravan_sys::user::Account;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// The choice between a separate namespace and that of the host.
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

/// The options of isolation in the agent's configuration of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolationOptions {
    /// PID namespace of tasks that do not set `pid_mode`.
    pub default_pid_mode: NamespaceMode,
    /// IPC namespace of tasks that do not set `ipc_mode`.
    pub default_ipc_mode: NamespaceMode,
    /// Capabilities that tasks may have, by name; `all` allows every capability.
    pub allow_caps: Vec<String>,
    /// Host paths that tasks see read-only, with their paths in the task (`chroot_env`).
    pub host_paths: BTreeMap<PathBuf, PathBuf>,
}

impl Default for IsolationOptions {
    fn default() -> Self {
        Self {
            default_pid_mode: NamespaceMode::default(),
            default_ipc_mode: NamespaceMode::default(),
            allow_caps: DEFAULT_CAPABILITIES.map(str::to_owned).into(),
            host_paths: DEFAULT_HOST_PATHS.map(|path| (path.into(), path.into())).into(),
        }
    }
}

impl IsolationOptions {
    /// Checks the names of the allowed capabilities.
    pub fn check(&self) -> Result<()> {
        capabilities(&self.allow_caps).map(drop)
    }

    /// Checks that the node allows the capabilities that a task's `config` requests.
    pub(crate) fn validate(&self, driver: &str, config: &IsolationConfig) -> Result<()> {
        TaskCapabilities::new(driver, &self.allow_caps, &config.cap_add, &config.cap_drop).map(drop)
    }

    /// Returns the allowed capabilities for the node's attribute, sorted. Unknown names are left out.
    pub(crate) fn allowed_capabilities(&self) -> String {
        if self.allow_caps.iter().any(|name| is_all(name)) {
            return "all".to_owned();
        }
        let known = self.allow_caps.iter().filter_map(|name| capability(name).ok());
        let names: BTreeSet<String> = known.map(|capability| capability.to_string()).collect();
        Vec::from_iter(names).join(",")
    }

    /// Returns the path at which tasks see a file of the host, if they see it. `real` is the path without links.
    pub(crate) fn seen(&self, real: &Path) -> Option<PathBuf> {
        let shown = self.host_paths.iter().filter_map(|(host, task)| {
            // Tasks get a link of the host as a link, whose target they may not see.
            let is_link = std::fs::symlink_metadata(host).is_ok_and(|meta| meta.is_symlink());
            if is_link { None } else { Some((host.canonicalize().ok()?, task)) }
        });
        let parts = shown.filter_map(|(host, task)| {
            let rest = real.strip_prefix(&host).ok()?;
            let path = if rest.as_os_str().is_empty() { task.clone() } else { task.join(rest) };
            Some((host.components().count(), path))
        });
        parts.max_by_key(|(depth, _)| *depth).map(|(_, path)| path)
    }

    /// Returns whether a task can have a separate file at a path. Unless no directory of the host shows the path, the
    /// directory, which is read-only, must have such a file.
    fn has_place(&self, path: &Path) -> bool {
        let shown = self.host_paths.iter().filter_map(|(host, task)| {
            let rest = path.strip_prefix(task).ok()?;
            // Joining nothing would add a slash, which a file may not have.
            let file = if rest.as_os_str().is_empty() { host.clone() } else { host.join(rest) };
            Some((task.components().count(), file))
        });
        shown.max_by_key(|(depth, _)| *depth).is_none_or(|(_, file)| file.symlink_metadata().is_ok())
    }

    /// Returns the specification of a task that runs in isolation.
    pub(crate) fn task_spec(
        &self,
        driver: &str,
        task: &TaskConfig,
        account: &Account,
        config: IsolationConfig,
        program: Program,
    ) -> Result<TaskSpec> {
        let capabilities = if task.privileged_mounts {
            TaskCapabilities::PRIVILEGED
        } else {
            TaskCapabilities::new(driver, &self.allow_caps, &config.cap_add, &config.cap_drop)?
        };
        let private =
            |mode: Option<NamespaceMode>, default| mode.unwrap_or(default) == NamespaceMode::Private;
        let mut mounts = vec![MountSpec {
            host: task.dirs.shared_alloc_dir.clone(),
            task: "/alloc".into(),
            read_only: false,
            propagation: MountPropagation::Private,
        }];
        mounts.extend(program.mount);
        let files = names::needed(task);
        let of_names = [
            (files.resolv, names::RESOLV_FILE, names::RESOLV_PATH),
            (
                files.hosts && self.has_place(Path::new(names::HOSTS_PATH)),
                names::HOSTS_FILE,
                names::HOSTS_PATH,
            ),
        ];
        mounts.extend(of_names.into_iter().filter(|(is_needed, ..)| *is_needed).map(|(_, file, path)| {
            MountSpec {
                host: task.dirs.state_dir.join(file),
                task: path.into(),
                read_only: true,
                propagation: MountPropagation::Private,
            }
        }));
        let hosts = task.network.as_ref().and_then(|network| network.hosts.as_ref());
        let hostname = hosts.map(|line| line.hostname.clone()).filter(|name| !name.is_empty());
        // Every task already has a `/dev`; only privileged tasks may replace it by the host's.
        let may_have = |mount: &&Mount| task.privileged_mounts || mount.task_path != Path::new("/dev");
        mounts.extend(task.mounts.iter().filter(may_have).map(convert::mount));
        let devices = task.devices.iter().map(convert::device).collect::<Result<_>>()?;
        let isolation = IsolationSpec {
            root: task.dirs.task_dir.clone(),
            host_paths: self.host_paths.clone(),
            mounts,
            devices,
            hidden: vec!["/private".into()],
            private_pids: private(config.pid_mode, self.default_pid_mode),
            hostname,
            private_ipc: private(config.ipc_mode, self.default_ipc_mode),
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
                program: program.path,
                args: program.args,
                env: task.env.clone(),
                cwd: config.work_dir.unwrap_or_else(|| "/".into()),
                base: None,
                search: vec!["/local".into(), "/".into()],
            },
            user: Some(convert::user(account)),
            logs: convert::logs(task),
            cgroup: Some(convert::cgroup(task)),
            rlimits: Vec::new(),
            oom_score_adj: None,
            isolation: Some(isolation),
            network: task.network.as_ref().map(|network| network.path.clone()),
            lease: task.lease.clone(),
        })
    }
}

/// The program of a task, in the task's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// An absolute path, or a name to search in the task.
    pub(crate) path: String,
    /// Arguments after the program's name.
    pub(crate) args: Vec<String>,
    /// A mount that shows the program to the task, if no other does.
    pub(crate) mount: Option<MountSpec>,
}

/// The keys of isolation in a task's `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IsolationConfig {
    work_dir: Option<PathBuf>,
    pid_mode: Option<NamespaceMode>,
    ipc_mode: Option<NamespaceMode>,
    cap_add: Vec<String>,
    cap_drop: Vec<String>,
}

impl IsolationConfig {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let work_dir = reader.string("work_dir")?.map(PathBuf::from);
        if work_dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            return Err(reader.refuse("work_dir", "must be an absolute path"));
        }
        Ok(Self {
            work_dir,
            pid_mode: mode(reader, "pid_mode")?,
            ipc_mode: mode(reader, "ipc_mode")?,
            cap_add: reader.strings("cap_add")?,
            cap_drop: reader.strings("cap_drop")?,
        })
    }
}

fn mode(reader: &mut Reader<'_>, key: &'static str) -> Result<Option<NamespaceMode>> {
    let text = reader.string(key)?.filter(|text| !text.is_empty());
    let parse = |text: String| {
        let wrong = |_| reader.refuse(key, format!("must be \"private\" or \"host\", not {text:?}"));
        text.parse().map_err(wrong)
    };
    text.map(parse).transpose()
}

/// Checks whether tasks can be isolated on this machine. The attributes have the way in which the devices of tasks
/// are limited.
pub(crate) fn fingerprint(driver: &str) -> Fingerprint {
    if caravan_sys::user::effective_uid() != 0 {
        return Fingerprint::undetected("Driver must run as root");
    }
    let device_rules = format!("driver.{driver}.device_rules");
    match Survey::read() {
        Ok(Some(survey)) if survey.read_only => Fingerprint::undetected("Cgroup mount point is read-only"),
        Ok(Some(survey)) => match device_mechanism(&survey.hierarchy) {
            Ok(mechanism) => {
                let mut found = Fingerprint::healthy(driver);
                found.attributes.insert(device_rules, mechanism.to_string());
                found
            }
            // Tasks would not start; see `make_cgroup` of the shim.
            Err(refusal) => {
                let error = caravan_sys::Error::Devices(refusal);
                let mut found = Fingerprint::undetected(caravan_sys::describe(&error));
                found.attributes.insert(device_rules, "none".into());
                found
            }
        },
        Ok(None) => Fingerprint::undetected("Cgroup mount point unavailable"),
        Err(error) => Fingerprint::undetected(caravan_sys::describe(&error)),
    }
}

/// The capabilities of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskCapabilities {
    /// All capabilities that the task may have.
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
    fn new(driver: &str, allow: &[String], add: &[String], drop: &[String]) -> Result<Self> {
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
                "driver {driver} does not allow the following capabilities on this node: {}",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn capabilities_are_added_and_dropped_within_what_the_node_allows() {
        let allow = names(&["chown", "kill", "net_raw"]);
        let has = |set: CapSet, name: &str| set.contains(name.parse().unwrap());
        let of =
            |add: &[&str], drop: &[&str]| TaskCapabilities::new("exec", &allow, &names(add), &names(drop));
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
            let options = IsolationOptions { allow_caps: names(allow), ..IsolationOptions::default() };
            (options.allowed_capabilities(), options.check().is_ok())
        };
        assert_eq!(attribute(&["CAP_NET_RAW", "chown", "Kill"]), ("chown,kill,net_raw".into(), true));
        assert_eq!(attribute(&["kill", "ALL"]), ("all".into(), true));
        assert_eq!(attribute(&[]), (String::new(), true));
        assert_eq!(attribute(&["kill", "fly"]), ("kill".into(), false));
        let usual = IsolationOptions::default().allowed_capabilities();
        assert!(
            usual.starts_with("audit_write,chown,dac_override,") && !usual.contains("net_raw"),
            "{usual}"
        );
    }

    #[test]
    fn namespaces_are_the_hosts_only_on_request() {
        let config = serde_json::json!({"pid_mode": "host", "ipc_mode": ""});
        let mut reader = Reader::new("exec", &config).unwrap();
        let config = IsolationConfig::read(&mut reader).unwrap();
        assert_eq!((config.pid_mode, config.ipc_mode), (Some(NamespaceMode::Host), None));
    }

    #[test]
    fn a_file_has_a_place_where_the_host_has_one_or_shows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let place = |pairs: &[(&Path, &str)]| {
            let host_paths =
                pairs.iter().map(|(host, task)| (host.to_path_buf(), PathBuf::from(task))).collect();
            IsolationOptions { host_paths, ..IsolationOptions::default() }.has_place(Path::new("/etc/hosts"))
        };
        assert!(place(&[]) && place(&[(dir.path(), "/usr")]));
        assert!(!place(&[(dir.path(), "/etc")]));
        std::fs::write(dir.path().join("hosts"), "").unwrap();
        assert!(place(&[(dir.path(), "/etc")]));
        let file = dir.path().join("hosts");
        assert!(place(&[(&dir.path().join("none"), "/etc"), (&file, "/etc/hosts")]));
    }

    #[test]
    fn files_are_seen_below_the_directories_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["lib/jvm/bin", "hidden"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        std::fs::write(base.join("hidden/java"), "").unwrap();
        std::os::unix::fs::symlink(base.join("hidden"), base.join("link")).unwrap();
        let seen = |host_paths: &[(&str, &str)], real: &str| {
            let host_paths = host_paths.iter().map(|(host, task)| (base.join(host), task.into())).collect();
            let options = IsolationOptions { host_paths, ..IsolationOptions::default() };
            options.seen(&base.join(real)).map(|path| path.display().to_string())
        };
        let java = "lib/jvm/bin/java";
        assert_eq!(seen(&[("lib", "/lib")], java).as_deref(), Some("/lib/jvm/bin/java"));
        assert_eq!(seen(&[("lib", "/lib"), ("lib/jvm", "/j")], java).as_deref(), Some("/j/bin/java"));
        assert_eq!(seen(&[("hidden/java", "/bin/java")], "hidden/java").as_deref(), Some("/bin/java"));
        assert_eq!(seen(&[("link", "/link"), ("li", "/lib")], "hidden/java"), None);
    }
}
