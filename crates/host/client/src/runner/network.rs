//! The network of an allocation. In mode `none` its tasks share a network namespace with a loopback interface only. In
//! mode `bridge` the namespace has an interface on the node's bridge as well. In mode `host`, or without a network block,
//! they use the node's network. The node reports no other modes, so the scheduler places no group here that needs one.
//! Either the client makes the namespace, or the driver of a task ([`super::driver_network`]).

use super::driver_network::DriverNetworks;
use super::hooks::{AllocHook, HookContext};
use crate::ClientError;
use crate::drivers::DriverManager;
use crate::networks::Networks;
use async_trait::async_trait;
use caravan_drivers::{HostsLine, NetworkIsolation};
use caravan_sys::files::private_dir;
use caravan_sys::{describe, netns};
use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use caravan_types::job::TaskGroup;
use std::path::{Path, PathBuf};

/// Directory of the network namespaces below the client's state.
pub(crate) const DIR: &str = "networks";

/// Creates the directory of the network namespaces, and releases those whose allocation is not on this node.
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
            tracing::warn!(network = %entry.path().display(), error = describe(&error), "a network is left over");
        }
    }
    Ok(())
}

/// The hook that creates the network of the allocation.
#[derive(Debug)]
pub(super) struct NetworkHook {
    pub(super) drivers: DriverManager,
    pub(super) bridge: Networks,
    pub(super) made: DriverNetworks,
    pub(super) state_dir: PathBuf,
}

/// Returns the path that holds the allocation's own network namespace, if it has one.
fn own_network(state_dir: &Path, alloc: &Allocation) -> Option<PathBuf> {
    let own = alloc.group().is_some_and(|group| matches!(mode(group), "none" | "bridge"));
    own.then(|| state_dir.join(DIR).join(alloc.id.as_str()))
}

#[async_trait]
impl AllocHook for NetworkHook {
    /// Creates the allocation's network, or reuses that of an earlier agent.
    async fn prepare(&self, cx: &HookContext<'_>) -> Result<(), String> {
        let alloc = cx.alloc();
        let Some(group) = alloc.group() else { return Ok(()) };
        match mode(group) {
            "host" => return Ok(()),
            "none" | "bridge" => {}
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
        let path = self.state_dir.join(DIR).join(alloc.id.as_str());
        let mut network = match self.made.create(cx, group, &path).await? {
            Some(network) => network,
            None => {
                let own = path.clone();
                let held = tokio::task::spawn_blocking(move || netns::hold(&own)).await;
                held.map_err(|_| "the agent is ending".to_owned())?.map_err(|error| describe(&error))?;
                NetworkIsolation::held_at(path)
            }
        };
        if mode(group) == "bridge" {
            cx.hold_network();
            let failed = |why| format!("the network of the allocation cannot be made: {why}");
            let status = self.bridge.attach(&alloc).await.map_err(failed)?;
            let named = network.hosts.take().map(|line| line.hostname);
            let hostname = named.unwrap_or_else(|| hostname(group));
            network.hosts = Some(HostsLine { hostname, address: status.address.clone() });
            cx.put_network(status);
        }
        cx.set_network(network);
        Ok(())
    }

    /// Removes the allocation's network, once no task needs it.
    async fn release(&self, cx: &HookContext<'_>) {
        self.bridge.release(&cx.id(), |reason| cx.note(reason)).await;
        cx.network_released();
        let Some(path) = own_network(&self.state_dir, &cx.alloc()) else { return };
        let gone = tokio::task::spawn_blocking(move || netns::let_go(&path));
        if let Ok(Err(error)) = gone.await {
            tracing::warn!(alloc = %cx.id(), error = describe(&error), "the allocation's network is left over");
        }
        self.made.destroy(&cx.id()).await;
    }
}

/// Returns the name that the job gives the allocation's host; empty if it gives none.
fn hostname(group: &TaskGroup) -> String {
    group.networks.first().map(|network| network.hostname.clone()).unwrap_or_default()
}

/// Returns the mode of a group's first network.
fn mode(group: &TaskGroup) -> &str {
    match group.networks.first().map(|network| network.mode.as_str()) {
        None | Some("") => "host",
        Some(mode) => mode,
    }
}
