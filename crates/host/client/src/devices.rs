//! The devices of the node: found by device plugins, written into the node, reserved for tasks, and measured
//! (docs/reference/drivers.md, section 9).

mod holders;
mod place;

use crate::ClientError;
use crate::client::Handle;
use crate::clock::Backoff;
use crate::node::NodeState;
use caravan_drivers::{DeviceError, DeviceGroup, DeviceGroupStats, DevicePlugin, Reservation};
use caravan_types::AllocId;
use caravan_types::alloc::AllocatedDevice;
pub(crate) use holders::Holders;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest pause between two attempts to start a plugin that ends again and again.
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(120);

/// The run time after which a plugin that ends is started again without a pause.
const STEADY: Duration = Duration::from_secs(60);

/// The first and the longest pause after a failure of statistics.
const STATS_PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30 * 60));

/// The reason that devices cannot be reserved for a task.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceFault {
    /// No plugin has the device any more.
    #[error("failed to reserve device {device}: the node no longer has {}", instances(ids))]
    Unknown {
        /// Vendor, type and name.
        device: String,
        /// The missing instances.
        ids: Vec<String>,
    },
    /// The plugin does not reserve the device.
    #[error("failed to reserve device {device}")]
    Refused {
        /// Vendor, type and name.
        device: String,
        /// The plugin's reason.
        #[source]
        source: DeviceError,
    },
}

fn instances(ids: &[String]) -> String {
    match ids {
        [id] => format!("instance {id}"),
        ids => format!("instances {}", ids.join(", ")),
    }
}

/// The device plugins and the devices that they reported. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct DeviceManager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    plugins: Vec<Plugin>,
    node: NodeState,
    interval: Duration,
    /// Plugins that have not reported yet.
    silent: watch::Sender<BTreeSet<String>>,
}

#[derive(Debug)]
struct Plugin {
    plugin: Arc<dyn DevicePlugin>,
    /// The last valid report; empty if the plugin is out of use.
    groups: Mutex<Vec<DeviceGroup>>,
    stats: Mutex<Vec<DeviceGroupStats>>,
}

/// The end of a stream of reports.
enum End {
    /// The plugin's process has ended; a new process may report.
    Gone,
    /// The plugin is not used any more, with the reason.
    Over(String),
}

impl DeviceManager {
    /// Creates the manager. Statistics are collected once per `interval`.
    pub(crate) fn new(plugins: Vec<Arc<dyn DevicePlugin>>, interval: Duration, node: NodeState) -> Self {
        let silent = watch::Sender::new(plugins.iter().map(|plugin| plugin.name().to_owned()).collect());
        let plugins = plugins
            .into_iter()
            .map(|plugin| Plugin { plugin, groups: Mutex::default(), stats: Mutex::default() })
            .collect();
        Self { inner: Arc::new(Inner { plugins, node, interval, silent }) }
    }

    /// Waits until every plugin has reported or failed. After `patience`, the missing plugins are logged.
    pub(crate) async fn first_fingerprints(&self, patience: Duration) {
        let mut silent = self.inner.silent.subscribe();
        let all = silent.wait_for(BTreeSet::is_empty);
        if tokio::time::timeout(patience, all).await.is_err() {
            let late: Vec<String> = self.inner.silent.borrow().iter().cloned().collect();
            tracing::warn!(
                plugins = late.join(", "),
                "registering the node without the devices of late plugins"
            );
        }
    }

    /// Follows all plugins until cancelled, then ends them.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let each = self.inner.plugins.iter().map(|plugin| async {
            tokio::select! {
                why = self.follow(plugin) => {
                    tracing::warn!(plugin = plugin.plugin.name(), why, "device plugin is not used any more");
                    plugin.stats.lock().clear();
                    self.found(plugin, Vec::new());
                    plugin.plugin.shutdown().await;
                }
                never = self.measure(plugin) => match never {},
            }
        });
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            _ = futures::future::join_all(each) => cancel.cancelled().await,
        }
        futures::future::join_all(self.inner.plugins.iter().map(|plugin| plugin.plugin.shutdown())).await;
    }

    /// Follows the reports of a plugin until it is not used any more, and returns the reason.
    async fn follow(&self, plugin: &Plugin) -> String {
        let mut backoff = Backoff::new(Duration::from_secs(5), LONGEST_RESTART_PAUSE);
        let mut ended_before = false;
        loop {
            let began = Instant::now();
            if let End::Over(why) = self.reports(plugin).await {
                return why;
            }
            tracing::warn!(plugin = plugin.plugin.name(), "device plugin has ended and is started again");
            if began.elapsed() >= STEADY {
                backoff.reset();
                ended_before = false;
            }
            // A new process starts immediately, while the devices stay listed. If it ends soon too, they are removed.
            if ended_before {
                self.found(plugin, Vec::new());
                tokio::time::sleep(backoff.delay()).await;
            }
            ended_before = true;
        }
    }

    async fn reports(&self, plugin: &Plugin) -> End {
        let ended = |error: DeviceError| match error {
            DeviceError::Gone(_) => End::Gone,
            other => End::Over(caravan_sys::describe(&other)),
        };
        let mut stream = match plugin.plugin.fingerprint().await {
            Ok(stream) => stream,
            Err(error) => return ended(error),
        };
        loop {
            match stream.recv().await {
                Some(Ok(groups)) => {
                    if let Err(why) = check(&groups) {
                        return End::Over(format!("its report is invalid: {why}"));
                    }
                    self.found(plugin, groups);
                }
                Some(Err(error)) => return ended(error),
                None => return End::Over("it ended its reports".to_owned()),
            }
        }
    }

    /// Records the devices of a plugin and writes the devices of all plugins into the node.
    fn found(&self, plugin: &Plugin, groups: Vec<DeviceGroup>) {
        let changed = {
            let mut known = plugin.groups.lock();
            let changed = *known != groups;
            *known = groups;
            changed
        };
        if changed {
            let counts = plugin.groups.lock().iter().map(|group| group.instances.len()).sum::<usize>();
            tracing::info!(plugin = plugin.plugin.name(), devices = counts, "plugin reported devices");
            let mut all: Vec<DeviceGroup> =
                self.inner.plugins.iter().flat_map(|plugin| plugin.groups.lock().clone()).collect();
            all.sort_by(|a, b| (&a.vendor, &a.kind, &a.name).cmp(&(&b.vendor, &b.kind, &b.name)));
            let places = place::of_groups(&all);
            self.inner.node.put_devices(all, &places);
        }
        self.inner.silent.send_if_modified(|silent| silent.remove(plugin.plugin.name()));
    }

    /// Collects the statistics of a plugin, from its first report on.
    async fn measure(&self, plugin: &Plugin) -> std::convert::Infallible {
        let name = plugin.plugin.name();
        let mut silent = self.inner.silent.subscribe();
        // The sender lives as long as the manager.
        let _ = silent.wait_for(|silent| !silent.contains(name)).await;
        let mut backoff = Backoff::new(STATS_PAUSES.0, STATS_PAUSES.1);
        loop {
            let why = match plugin.plugin.stats(self.inner.interval).await {
                Ok(mut stream) => loop {
                    match stream.recv().await {
                        Some(Ok(stats)) => {
                            backoff.reset();
                            *plugin.stats.lock() = stats;
                        }
                        Some(Err(error)) => break caravan_sys::describe(&error),
                        None => break "the statistics ended".to_owned(),
                    }
                },
                Err(error) => caravan_sys::describe(&error),
            };
            tracing::warn!(plugin = name, why, "device plugin sends no statistics");
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Returns the last statistics of all devices.
    pub(crate) fn stats(&self) -> Vec<DeviceGroupStats> {
        let mut all: Vec<DeviceGroupStats> =
            self.inner.plugins.iter().flat_map(|plugin| plugin.stats.lock().clone()).collect();
        all.sort_by(|a, b| (&a.vendor, &a.kind, &a.name).cmp(&(&b.vendor, &b.kind, &b.name)));
        all
    }

    /// Returns the last statistics of some instances. A group whose instances have none yet is listed without them.
    pub(crate) fn stats_of(&self, assigned: &[AllocatedDevice]) -> Vec<DeviceGroupStats> {
        if assigned.is_empty() {
            return Vec::new();
        }
        let all = self.stats();
        let own = |device: &AllocatedDevice| {
            let same = |group: &&DeviceGroupStats| {
                (&group.vendor, &group.kind, &group.name) == (&device.vendor, &device.kind, &device.name)
            };
            let known = all.iter().filter(same).flat_map(|group| &group.instances);
            DeviceGroupStats {
                vendor: device.vendor.clone(),
                kind: device.kind.clone(),
                name: device.name.clone(),
                instances: known
                    .filter(|(id, _)| device.device_ids.contains(id))
                    .map(|(id, stats)| (id.clone(), stats.clone()))
                    .collect(),
            }
        };
        assigned.iter().map(own).collect()
    }

    /// Returns the reservation of the instances that the scheduler assigned to a task.
    ///
    /// # Errors
    /// If no plugin has an instance any more, or its plugin refuses.
    pub(crate) async fn reserve(&self, assigned: &[AllocatedDevice]) -> Result<Reservation, DeviceFault> {
        let mut all = Reservation::default();
        for device in assigned {
            let name = format!("{}/{}/{}", device.vendor, device.kind, device.name);
            let plugin =
                self.plugin_of(device).map_err(|ids| DeviceFault::Unknown { device: name.clone(), ids })?;
            let mut reserved = plugin.reserve(&device.device_ids).await;
            if matches!(reserved, Err(DeviceError::Gone(_))) {
                reserved = plugin.reserve(&device.device_ids).await;
            }
            let reserved = reserved.map_err(|source| DeviceFault::Refused { device: name, source })?;
            all.envs.extend(reserved.envs);
            all.mounts.extend(reserved.mounts);
            all.devices.extend(reserved.devices);
        }
        Ok(all)
    }

    /// Returns the plugin that has all instances of an assignment; the error lists the missing ones.
    fn plugin_of(&self, device: &AllocatedDevice) -> Result<Arc<dyn DevicePlugin>, Vec<String>> {
        let mut missing = device.device_ids.clone();
        for plugin in &self.inner.plugins {
            let groups = plugin.groups.lock();
            let same = |group: &&DeviceGroup| {
                (&group.vendor, &group.kind, &group.name) == (&device.vendor, &device.kind, &device.name)
            };
            let Some(group) = groups.iter().find(same) else { continue };
            let absent = |id: &&String| !group.instances.iter().any(|instance| instance.id == **id);
            let lacks: Vec<String> = device.device_ids.iter().filter(absent).cloned().collect();
            if lacks.is_empty() {
                return Ok(Arc::clone(&plugin.plugin));
            }
            missing = lacks;
        }
        Err(missing)
    }
}

impl Handle {
    /// Returns the last statistics of the node's devices.
    pub fn device_stats(&self) -> Vec<DeviceGroupStats> {
        self.devices.stats()
    }
    /// Returns the last statistics of the devices that a task uses.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn task_device_stats(
        &self,
        alloc: &AllocId,
        task: &str,
    ) -> Result<Vec<DeviceGroupStats>, ClientError> {
        let alloc = self.allocs.get(alloc)?.alloc();
        let resources = alloc.allocated_resources.as_ref().and_then(|resources| resources.tasks.get(task));
        Ok(self.devices.stats_of(resources.map_or(&[], |task| &task.devices)))
    }
}

/// Checks a plugin's report. The error is one sentence about the first problem.
fn check(groups: &[DeviceGroup]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for group in groups {
        let name = format!("{}/{}/{}", group.vendor, group.kind, group.name);
        for (part, text) in [("vendor", &group.vendor), ("type", &group.kind), ("name", &group.name)] {
            if text.is_empty() {
                return Err(format!("device group {name} has no {part}"));
            }
        }
        if !seen.insert(name.clone()) {
            return Err(format!("device group {name} is listed twice"));
        }
        let mut ids = BTreeMap::new();
        for instance in &group.instances {
            if instance.id.is_empty() {
                return Err(format!("a device of group {name} has no id"));
            }
            if ids.insert(&instance.id, ()).is_some() {
                return Err(format!("device {} of group {name} is listed twice", instance.id));
            }
        }
        for (key, attribute) in &group.attributes {
            attribute.check().map_err(|why| format!("attribute {key} of device group {name}: {why}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
