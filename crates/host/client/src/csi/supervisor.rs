//! The hook of CSI plugin tasks (docs/reference/storage.md, section 1): directories, mounts and environment before the
//! task, registration once it answers, and health while it runs.

use super::CsiFault;
use super::probe;
use super::registry::{Registration, Registry};
use crate::clock;
use caravan_csi::{CsiClient, Deadlines};
use caravan_drivers::{FsIsolation as Isolation, Mount, Propagation};
use caravan_types::alloc::{TaskEvent, event};
use caravan_types::job::{CsiPluginConfig, CsiPluginType};
use caravan_types::plugin::PluginRole;
use caravan_types::{AllocId, Nanos};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the socket in its directory.
pub(super) const SOCKET: &str = "csi.sock";
/// The most bytes of a socket address's path (unix(7)).
const MAX_ADDRESS_BYTES: usize = 107;
/// The directory of short links to sockets whose own path is too long.
const SHORT_DIR: &str = "/run/caravan/csi";
/// The variable with the staging and publish root, for plugins without a fixed mount directory.
const BASE_VARIABLE: &str = "CARAVAN_CSI_STAGE_PUBLISH_BASE_DIR";

/// A plugin task: all values derived from its block and its allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginTask {
    alloc: AllocId,
    config: CsiPluginConfig,
    socket_dir: PathBuf,
    host_root: PathBuf,
    isolation: Isolation,
}

impl PluginTask {
    /// Plans a plugin task below the client's CSI directory.
    pub(crate) fn plan(
        csi_dir: &Path,
        alloc: &AllocId,
        config: &CsiPluginConfig,
        isolation: Isolation,
    ) -> Self {
        let mut config = config.clone();
        let or = |text: &mut String, default: &str| {
            if text.is_empty() {
                default.clone_into(text);
            }
        };
        or(&mut config.mount_dir, "/csi");
        or(&mut config.stage_publish_base_dir, "/local/csi");
        if config.health_timeout == Nanos::ZERO {
            config.health_timeout = Nanos::from_secs(30);
        }
        Self {
            alloc: alloc.clone(),
            socket_dir: csi_dir.join("plugins").join(alloc.as_str()),
            host_root: csi_dir.join(config.kind.as_str()).join(config.id.as_str()),
            isolation,
            config,
        }
    }

    /// Returns the plugin's id.
    pub(crate) fn id(&self) -> &caravan_types::PluginId {
        &self.config.id
    }

    /// Returns the path of the socket on the host.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket_dir.join(SOCKET)
    }

    /// Returns a short link to the socket's directory, for a plugin on the host whose socket path is too long to bind.
    fn short_dir(&self) -> Option<PathBuf> {
        let too_long = self.socket().as_os_str().len() > MAX_ADDRESS_BYTES;
        (too_long && self.isolation.shows_host_paths())
            .then(|| Path::new(SHORT_DIR).join(self.alloc.as_str()))
    }

    /// Returns the plugin root as the plugin sees it. A task without a separate root sees the host's path.
    pub(crate) fn plugin_root(&self) -> PathBuf {
        match self.isolation {
            Isolation::None | Isolation::Unveil => self.host_root.clone(),
            Isolation::Chroot | Isolation::Image => PathBuf::from(&self.config.stage_publish_base_dir),
        }
    }

    /// Returns whether the plugin mounts volumes, which needs privileges.
    pub(crate) fn mounts_volumes(&self) -> bool {
        self.config.kind.has_node()
    }

    /// Creates the directories and removes the socket of an earlier run. Connecting to a stale socket fails, and many
    /// plugins cannot bind to an existing one.
    pub(crate) fn prepare(&self) -> Result<(), CsiFault> {
        for (dir, what) in
            [(&self.host_root, "create mount point"), (&self.socket_dir, "create socket mount point")]
        {
            caravan_sys::files::private_dir(dir).map_err(|source| CsiFault::Kernel { what, source })?;
        }
        if self.isolation != Isolation::None && !self.mounts_volumes() {
            // The plugin runs as an unprivileged user and must create its socket. Other users cannot reach the
            // directory, because its parent is closed to them.
            open_to_all(&self.socket_dir)?;
        }
        if let Some(link) = self.short_dir() {
            self.link(&link)?;
        }
        let socket = self.socket();
        match std::fs::remove_file(&socket) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(CsiFault::Directory { what: "remove stale socket", path: socket, source })
            }
            _ => Ok(()),
        }
    }

    fn link(&self, link: &Path) -> Result<(), CsiFault> {
        let what = "create the short way to the socket";
        caravan_sys::files::private_dir(Path::new(SHORT_DIR))
            .map_err(|source| CsiFault::Kernel { what, source })?;
        match std::os::unix::fs::symlink(&self.socket_dir, link) {
            Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(CsiFault::Directory { what, path: link.to_owned(), source })
            }
            _ => Ok(()),
        }
    }

    /// Returns the allocation that runs the plugin.
    pub(super) fn alloc(&self) -> &AllocId {
        &self.alloc
    }

    /// Returns the directory of the plugin's socket, and the root that all allocations of the plugin share.
    pub(super) fn dirs(&self) -> [&Path; 2] {
        [&self.socket_dir, &self.host_root]
    }

    /// Removes the short link to the socket after the task ended.
    pub(crate) fn unlink(&self) {
        if let Some(link) = self.short_dir()
            && let Err(error) = std::fs::remove_file(&link)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %link.display(), %error, "a link to a socket directory cannot be removed");
        }
    }

    /// Returns the host directories to mount into the task.
    pub(crate) fn mounts(&self) -> Vec<Mount> {
        if self.isolation == Isolation::None {
            return Vec::new();
        }
        // A controller mounts no volumes.
        let propagation = match self.mounts_volumes() {
            true => Propagation::Bidirectional,
            false => Propagation::Private,
        };
        let shared = |host: &Path, task: &str| Mount {
            host_path: host.to_owned(),
            task_path: task.into(),
            read_only: false,
            propagation,
        };
        let devices = Mount {
            host_path: "/dev".into(),
            task_path: "/dev".into(),
            read_only: false,
            propagation: Propagation::Private,
        };
        vec![
            shared(&self.socket_dir, &self.config.mount_dir),
            shared(&self.host_root, &self.config.stage_publish_base_dir),
            devices,
        ]
    }

    /// Returns the plugin's environment variables; the job file may override them.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let endpoint = match self.isolation {
            Isolation::None | Isolation::Unveil => {
                let socket = self.short_dir().map_or_else(|| self.socket(), |dir| dir.join(SOCKET));
                format!("unix://{}", socket.display())
            }
            Isolation::Chroot | Isolation::Image => format!("unix://{}/{SOCKET}", self.config.mount_dir),
        };
        let root = self.plugin_root().display().to_string();
        BTreeMap::from([("CSI_ENDPOINT".to_owned(), endpoint), (BASE_VARIABLE.to_owned(), root)])
    }

    /// Returns the roles that the plugin registers.
    pub(crate) fn roles(&self) -> Vec<PluginRole> {
        roles(self.config.kind)
    }

    /// Returns the timeout of the first contact.
    fn patience(&self) -> Duration {
        self.config.health_timeout.to_std()
    }

    /// Returns the reason for the event of a restart.
    pub(crate) fn restart_reason(&self) -> String {
        format!(
            "CSI plugin did not become healthy before configured {} health timeout",
            self.config.health_timeout
        )
    }
}

fn open_to_all(dir: &Path) -> Result<(), CsiFault> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o777)).map_err(|source| CsiFault::Directory {
        what: "open to the plugin's user",
        path: dir.to_owned(),
        source,
    })
}

/// Returns the roles of a plugin type, the controller first.
pub(crate) fn roles(kind: CsiPluginType) -> Vec<PluginRole> {
    let mut roles = Vec::new();
    if kind.has_controller() {
        roles.push(PluginRole::Controller);
    }
    if kind.has_node() {
        roles.push(PluginRole::Node);
    }
    roles
}

/// Registers the plugin once it answers and watches its health. Returns, with the reason, only if the plugin did not
/// answer in time. Dropping the future ends the watch and keeps the registrations.
pub(crate) async fn supervise(
    plugin: &PluginTask,
    registry: &Registry,
    deadlines: Deadlines,
    emit: impl Fn(TaskEvent),
) -> String {
    let client = CsiClient::new(plugin.socket(), deadlines);
    let known_before = plugin.roles().iter().all(|role| {
        registry.of_alloc(&(*role, plugin.id().clone()), &plugin.alloc).is_some_and(|r| r.healthy)
    });
    let info = match probe::first_contact(&client, plugin.patience()).await {
        Ok(info) => info,
        Err(why) => {
            let words = format!("Error: {why}");
            emit(TaskEvent::new(event::PLUGIN_UNHEALTHY, clock::now()).message(words));
            set_health(plugin, registry, false).await;
            return why;
        }
    };
    for role in plugin.roles() {
        let registration = Registration {
            role,
            name: plugin.id().clone(),
            alloc: plugin.alloc.clone(),
            kind: plugin.config.kind,
            provider: info.name.clone(),
            version: info.vendor_version.clone(),
            socket: plugin.socket(),
            host_root: plugin.host_root.clone(),
            plugin_root: plugin.plugin_root(),
            healthy: true,
        };
        registry.register(registration).await;
    }
    let healthy_event =
        || TaskEvent::new(event::PLUGIN_HEALTHY, clock::now()).message(format!("plugin: {}", plugin.id()));
    // After a restart of the agent, nothing changed for the plugin.
    if !known_before {
        emit(healthy_event());
    }
    let mut healthy = true;
    loop {
        match probe::next_change(&client, healthy).await {
            Ok(()) => {
                healthy = true;
                emit(healthy_event());
            }
            Err(why) => {
                healthy = false;
                let words = format!("Error: {why}");
                emit(TaskEvent::new(event::PLUGIN_UNHEALTHY, clock::now()).message(words));
            }
        }
        set_health(plugin, registry, healthy).await;
    }
}

/// Sets the health of all the plugin's registrations.
pub(crate) async fn set_health(plugin: &PluginTask, registry: &Registry, healthy: bool) {
    for role in plugin.roles() {
        registry.set_health(&(role, plugin.id().clone()), &plugin.alloc, healthy).await;
    }
}

/// Removes all registrations of the plugin with its name, roles and allocation.
pub(crate) async fn deregister(plugin: &PluginTask, registry: &Registry) {
    for role in plugin.roles() {
        registry.deregister(&(role, plugin.id().clone()), &plugin.alloc).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: CsiPluginType, isolation: Isolation) -> PluginTask {
        let config = CsiPluginConfig { id: "disk".into(), kind, ..Default::default() };
        PluginTask::plan(Path::new("/state/csi"), &"a1".into(), &config, isolation)
    }

    #[test]
    fn an_isolated_plugin_gets_its_directories_mounted() {
        let plugin = plan(CsiPluginType::Node, Isolation::Chroot);
        let mounts = plugin.mounts();
        let pairs: Vec<_> =
            mounts.iter().map(|m| (m.host_path.to_str().unwrap(), m.task_path.to_str().unwrap())).collect();
        assert_eq!(
            pairs,
            [("/state/csi/plugins/a1", "/csi"), ("/state/csi/node/disk", "/local/csi"), ("/dev", "/dev")]
        );
        assert!(mounts[..2].iter().all(|m| m.propagation == Propagation::Bidirectional));
        let controller = plan(CsiPluginType::Controller, Isolation::Chroot).mounts();
        assert!(controller.iter().all(|m| m.propagation == Propagation::Private));
        assert_eq!(plugin.plugin_root(), Path::new("/local/csi"));
        assert_eq!(plugin.variables()["CSI_ENDPOINT"], "unix:///csi/csi.sock");
    }

    #[test]
    fn a_plugin_on_the_host_gets_the_hosts_paths() {
        let plugin = plan(CsiPluginType::Monolith, Isolation::None);
        assert!(plugin.mounts().is_empty());
        assert_eq!(plugin.plugin_root(), Path::new("/state/csi/monolith/disk"));
        let variables = plugin.variables();
        assert_eq!(variables["CSI_ENDPOINT"], "unix:///state/csi/plugins/a1/csi.sock");
        assert_eq!(variables[BASE_VARIABLE], "/state/csi/monolith/disk");
    }

    #[test]
    fn a_socket_whose_path_does_not_fit_an_address_is_reached_by_a_link() {
        let deep = PathBuf::from(format!("/{}", "d".repeat(100)));
        let config = CsiPluginConfig { id: "disk".into(), ..Default::default() };
        let endpoint = |isolation| {
            let plugin = PluginTask::plan(&deep, &"a1".into(), &config, isolation);
            plugin.variables()["CSI_ENDPOINT"].clone()
        };
        assert_eq!(endpoint(Isolation::None), "unix:///run/caravan/csi/a1/csi.sock");
        assert_eq!(endpoint(Isolation::Chroot), "unix:///csi/csi.sock");
    }

    #[test]
    fn a_monolith_registers_twice() {
        assert_eq!(roles(CsiPluginType::Monolith), [PluginRole::Controller, PluginRole::Node]);
        assert_eq!(roles(CsiPluginType::Node), [PluginRole::Node]);
    }
}
