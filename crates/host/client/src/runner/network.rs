//! The network of an allocation. In mode `none` its tasks share a network namespace with a loopback interface only.
//! In mode `bridge` the namespace also has an interface on the node's bridge. In mode `cni/NAME` it has the
//! interfaces that the plugins of the network NAME create. In mode `host`, or without a network block, the tasks use
//! the node's network. Either the client creates the namespace, or the driver of a task ([`super::driver_network`]).

use super::alloc::RunnerParts;
use super::alloc_state::Joined;
use super::driver_network::DriverNetworks;
use super::hooks::{AllocHook, HookContext};
use super::plan::{Plan, Planner};
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::ClientError;
use crate::drivers::DriverManager;
use crate::networks::Networks;
use crate::node::CNI_MODE;
use crate::state::NamespaceId;
use async_trait::async_trait;
use caravan_drivers::{HostsLine, NetworkIsolation};
use caravan_networks::cni::Arguments;
use caravan_sys::files::private_dir;
use caravan_sys::{describe, netns};
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, NetworkStatus};
use caravan_types::job::{Network, TaskGroup};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the network namespaces below the client's state.
pub(crate) const DIR: &str = "networks";

/// Creates the directory of the network namespaces, and releases the namespaces whose allocation is not on this node.
pub(crate) fn sweep(state_dir: &Path, here: impl Fn(&AllocId) -> bool) -> Result<(), ClientError> {
    let dir = state_dir.join(DIR);
    private_dir(&dir).map_err(ClientError::kernel(format!("{} cannot be used", dir.display())))?;
    let read = ClientError::directory(&dir, "be read");
    for entry in std::fs::read_dir(&dir).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(read)? {
        let name = entry.file_name();
        if name.to_str().is_some_and(|id| here(&AllocId::from(id))) {
            continue;
        }
        if let Err(error) = netns::let_go(&entry.path()) {
            tracing::warn!(
                network = %entry.path().display(), error = describe(&error),
                "a left-over network namespace cannot be removed"
            );
        }
    }
    Ok(())
}

/// The hook that creates the network of the allocation. A clone is the hook of one task, which finds the network
/// again before each further run. Meanwhile, the engine of containers that holds the network may have restarted.
#[derive(Clone, Debug)]
pub(super) struct NetworkHook {
    drivers: DriverManager,
    bridge: Networks,
    made: DriverNetworks,
    planner: Arc<Planner>,
    state_dir: PathBuf,
    /// A lock that is held during a set-up: of two tasks that start at the same time, only one replaces the network.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether a start of the task was tried: the first start follows the set-up of the allocation.
    has_started: bool,
}

impl NetworkHook {
    pub(super) fn new(parts: &RunnerParts) -> Self {
        Self {
            drivers: parts.planner.drivers.clone(),
            bridge: parts.bridge.clone(),
            made: parts.networks.clone(),
            planner: Arc::clone(&parts.planner),
            state_dir: parts.site.state_dir.clone(),
            turn: Arc::default(),
            has_started: false,
        }
    }

    /// Creates the network of a group, or finds the network of an earlier call or agent.
    async fn set_up(
        &self,
        cx: &HookContext<'_>,
        alloc: &Allocation,
        group: &TaskGroup,
    ) -> Result<(), String> {
        let _turn = self.turn.lock().await;
        let hostname = self.hostname(alloc, group)?;
        let path = self.state_dir.join(DIR).join(alloc.id.as_str());
        let mut network = match self.made.create(cx, group, &hostname, &path).await? {
            Some(network) => network,
            None => {
                let own = path.clone();
                blocking(move || netns::hold(&own)).await?;
                NetworkIsolation::held_at(path)
            }
        };
        if mode(group) != "none" {
            if network.path.as_os_str().is_empty() {
                return Err(format!(
                    "the driver that made the network of the allocation has no namespace for it, so it cannot have a \
                     network of mode {}",
                    mode(group)
                ));
            }
            cx.hold_network();
            let status = self.connect(cx, alloc, group).await?;
            let named = network.hosts.take().map(|line| line.hostname);
            let hostname = named.unwrap_or(hostname);
            network.hosts = Some(HostsLine { hostname, address: status.address.clone() });
            cx.put_network(status);
        } else if !hostname.is_empty() && network.hosts.is_none() {
            // The namespace has no other address.
            network.hosts = Some(HostsLine { hostname, address: "127.0.0.1".to_owned() });
        }
        let namespace = match network.path.as_os_str().is_empty() {
            true => None,
            false => {
                let held = network.path.clone();
                Some(NamespaceId(blocking(move || netns::number(&held)).await?))
            }
        };
        cx.set_network(Joined { network, namespace });
        cx.restart_strays();
        Ok(())
    }
}

impl NetworkHook {
    /// Connects the namespace with the node's bridge or with a CNI network.
    async fn connect(
        &self,
        cx: &HookContext<'_>,
        alloc: &Allocation,
        group: &TaskGroup,
    ) -> Result<Arc<NetworkStatus>, String> {
        let Some(name) = mode(group).strip_prefix(CNI_MODE) else {
            let failed = |why| format!("the network of the allocation cannot be made: {why}");
            return self.bridge.attach(alloc).await.map_err(failed);
        };
        let failed =
            |why| format!("failed to configure networking for alloc: failed to configure network: {why}");
        let arguments = self.arguments(alloc, group).map_err(failed)?;
        self.bridge.plug(alloc, name, arguments, |sentence: &str| cx.note(sentence)).await.map_err(failed)
    }
}

/// Runs a step that may block.
async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> caravan_sys::Result<T> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(step).await;
    done.map_err(|_| "the agent is ending".to_owned())?.map_err(|error| describe(&error))
}

#[async_trait]
impl TaskHook for NetworkHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        _prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let has_run = cx.alloc.task_started(cx.name).unwrap_or_default();
        let is_first = !std::mem::replace(&mut self.has_started, true) && !has_run;
        if is_first || !self.made.is_made_by(&plan.alloc.id, plan.driver.name()) {
            return Ok(());
        }
        let set_up = self.set_up(&HookContext::new(cx.alloc), &plan.alloc, plan.group()).await;
        set_up.map_err(|why| StartFault::of_hook("network", why))
    }
}

/// Returns the path that holds the allocation's own network namespace, if it has one.
fn own_network(state_dir: &Path, alloc: &Allocation) -> Option<PathBuf> {
    let own = alloc.group().is_some_and(|group| is_apart(mode(group)));
    own.then(|| state_dir.join(DIR).join(alloc.id.as_str()))
}

impl NetworkHook {
    /// Returns the host name that the job sets for the allocation; empty without one.
    fn hostname(&self, alloc: &Allocation, group: &TaskGroup) -> Result<String, String> {
        let Some(asked) = group.networks.first().map(|network| &network.hostname) else {
            return Ok(String::new());
        };
        if asked.is_empty() {
            return Ok(String::new());
        }
        let name = self.planner.group_env(alloc).text(asked);
        if !Network::is_hostname(&name) {
            return Err(format!("network hostname {name:?} is not a valid DNS name"));
        }
        Ok(name)
    }
}

impl NetworkHook {
    /// Returns the arguments of CNI plugins: the arguments of the job, and facts about the allocation, which have
    /// priority.
    fn arguments(&self, alloc: &Allocation, group: &TaskGroup) -> Result<Arguments, String> {
        let env = self.planner.group_env(alloc);
        let mut arguments = Arguments::optional();
        let of_job =
            group.networks.iter().filter_map(|network| network.cni.as_ref()?.args.as_ref()).flatten();
        for (name, value) in of_job {
            arguments.set(name, &env.text(value)).map_err(|bad| bad.to_string())?;
        }
        for (name, value) in [
            ("NOMAD_REGION", self.planner.region.as_str()),
            ("NOMAD_NAMESPACE", alloc.namespace.as_str()),
            ("NOMAD_JOB_ID", alloc.job_id.as_str()),
            ("NOMAD_GROUP_NAME", group.name.as_str()),
            ("NOMAD_ALLOC_ID", alloc.id.as_str()),
        ] {
            if let Err(bad) = arguments.set(name, value) {
                tracing::warn!(alloc = %alloc.id, %bad, "an invalid argument for CNI plugins is omitted");
            }
        }
        Ok(arguments)
    }
}

#[async_trait]
impl AllocHook for NetworkHook {
    /// Creates the allocation's network, or reuses the network that an earlier agent created.
    async fn prepare(&self, cx: &HookContext<'_>) -> Result<(), String> {
        let alloc = cx.alloc();
        let Some(group) = alloc.group() else { return Ok(()) };
        let hostname = self.hostname(&alloc, group)?;
        match mode(group) {
            "host" if !hostname.is_empty() => {
                return Err("hostname cannot be set on task group using \"host\" networking mode".to_owned());
            }
            "host" => return Ok(()),
            mode if is_apart(mode) => {}
            other => return Err(format!("this node makes no networks of mode {other}")),
        }
        for task in &group.tasks {
            let driver = self.drivers.get(&task.driver);
            if driver.is_some_and(|driver| !driver.capabilities().networks) {
                return Err(format!(
                    "driver {} of task {} only has the node's network",
                    task.driver, task.name
                ));
            }
        }
        self.set_up(cx, &alloc, group).await
    }

    /// Removes the allocation's network, once no task needs it.
    async fn release(&self, cx: &HookContext<'_>) {
        self.bridge.release(&cx.id(), |reason| cx.note(reason)).await;
        cx.network_released();
        let Some(path) = own_network(&self.state_dir, &cx.alloc()) else { return };
        let gone = tokio::task::spawn_blocking(move || netns::let_go(&path));
        if let Ok(Err(error)) = gone.await {
            tracing::warn!(alloc = %cx.id(), error = describe(&error), "a network namespace cannot be removed");
        }
        self.made.destroy(&cx.id()).await;
    }
}

/// Returns whether a network of a mode is a separate namespace.
fn is_apart(mode: &str) -> bool {
    matches!(mode, "none" | "bridge") || mode.starts_with(CNI_MODE)
}

/// Returns the mode of a group's first network.
pub(super) fn mode(group: &TaskGroup) -> &str {
    match group.networks.first().map(|network| network.mode.as_str()) {
        None | Some("") => "host",
        Some(mode) => mode,
    }
}
