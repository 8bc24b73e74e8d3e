//! The networks that drivers create for allocations, such as a container that holds a namespace. Each network has a
//! record, written before the driver's call and removed after the driver destroyed the network. If the agent dies in
//! between, the next agent finds the network, and destroys it once.

use super::hooks::HookContext;
use crate::drivers::DriverManager;
use crate::state::{NetworkRecord, Store};
use caravan_drivers::{Driver, NetworkIsolation, NetworkRequest};
use caravan_sys::{describe, netns};
use caravan_types::AllocId;
use caravan_types::job::TaskGroup;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The time between two calls of a driver that could not create or destroy a network.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The most attempts of a driver to create the network of an allocation whose tasks have not started.
const ATTEMPTS: u32 = 5;
/// The longest wait of the end of an allocation for a driver that cannot destroy the network. The client continues
/// its attempts afterwards.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);

/// The networks that drivers created on this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct DriverNetworks {
    drivers: DriverManager,
    store: Store,
    records: Arc<Mutex<BTreeMap<AllocId, NetworkRecord>>>,
    shutdown: CancellationToken,
}

impl DriverNetworks {
    /// Creates the value with the records of an earlier agent.
    pub(crate) fn new(
        drivers: DriverManager,
        store: Store,
        records: BTreeMap<AllocId, NetworkRecord>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { drivers, store, records: Arc::new(Mutex::new(records)), shutdown }
    }

    /// Destroys the networks whose allocation is not on this node.
    pub(crate) async fn sweep(self, here: impl Fn(&AllocId) -> bool) {
        let lost: Vec<AllocId> = self.records.lock().keys().filter(|id| !here(id)).cloned().collect();
        futures::future::join_all(lost.iter().map(|id| self.destroy_patiently(id))).await;
    }

    /// Returns whether a driver created the network of an allocation.
    pub(super) fn is_made_by(&self, id: &AllocId, driver: &str) -> bool {
        self.records.lock().get(id).is_some_and(|record| record.driver == driver)
    }

    /// Creates the network of an allocation by the driver of one of its tasks, and holds its namespace at `held`.
    /// Returns `None` if no driver of the group creates networks.
    pub(super) async fn create(
        &self,
        cx: &HookContext<'_>,
        group: &TaskGroup,
        hostname: &str,
        held: &Path,
    ) -> Result<Option<NetworkIsolation>, String> {
        let Some(driver) = self.maker(group)? else { return Ok(None) };
        let id = cx.id();
        let request = NetworkRequest { alloc_id: id.to_string(), hostname: hostname.to_owned() };
        self.intend(&id, driver.name()).await?;
        let mut network = self.made(cx, driver.as_ref(), &request).await?;
        self.put(&id, NetworkRecord { driver: driver.name().to_owned(), network: Some(network.clone()) })
            .await?;
        if network.path.as_os_str().is_empty() {
            refuse_others(group, driver.name())?;
            return Ok(Some(network));
        }
        let (source, path) = (network.path.clone(), held.to_owned());
        let done = tokio::task::spawn_blocking(move || netns::hold_other(&source, &path)).await;
        done.map_err(|_| "the agent is ending".to_owned())?.map_err(|error| {
            format!("the network that driver {} made cannot be used: {}", driver.name(), describe(&error))
        })?;
        network.path = held.to_owned();
        Ok(Some(network))
    }

    /// Destroys the network that a driver created for an allocation, if there is one.
    pub(super) async fn destroy(&self, id: &AllocId) {
        if !self.records.lock().contains_key(id) {
            return;
        }
        let (this, own) = (self.clone(), id.clone());
        let work = tokio::spawn(async move { this.destroy_patiently(&own).await });
        if tokio::time::timeout(RELEASE_TIMEOUT, work).await.is_err() {
            tracing::warn!(alloc = %id, "the network of an ended allocation is not destroyed yet");
        }
    }

    /// Returns the driver that creates the group's network.
    fn maker(&self, group: &TaskGroup) -> Result<Option<Arc<dyn Driver>>, String> {
        let mut found: Option<(&str, Arc<dyn Driver>)> = None;
        for task in &group.tasks {
            let Some(driver) = self.drivers.get(&task.driver) else { continue };
            if !driver.capabilities().creates_networks {
                continue;
            }
            match &found {
                Some((first, other)) if other.name() != driver.name() => {
                    return Err(format!(
                        "tasks {first} and {} want to initiate networking but only one driver can do so",
                        task.name
                    ));
                }
                Some(_) => {}
                None => found = Some((&task.name, driver)),
            }
        }
        let has_names =
            |driver: &str| self.drivers.get(driver).is_some_and(|driver| driver.capabilities().names);
        if found.is_none()
            && group.networks.first().is_some_and(|network| !network.hostname.is_empty())
            && let Some(task) = group.tasks.iter().find(|task| !has_names(&task.driver))
        {
            return Err(format!("hostname is not currently supported on driver {}", task.driver));
        }
        Ok(found.map(|(_, driver)| driver))
    }

    /// Records that a driver is about to create a network.
    async fn intend(&self, id: &AllocId, driver: &str) -> Result<(), String> {
        let known = self.records.lock().get(id).cloned();
        match known {
            Some(record) if record.driver == driver => return Ok(()),
            // The job has another driver now, so the network of the earlier driver is not used any more.
            Some(_) => self.destroy(id).await,
            None => {}
        }
        self.put(id, NetworkRecord { driver: driver.to_owned(), network: None }).await
    }

    async fn put(&self, id: &AllocId, record: NetworkRecord) -> Result<(), String> {
        if self.records.lock().get(id) == Some(&record) {
            return Ok(());
        }
        let written = self.store.put_network(id, &record);
        self.records.lock().insert(id.clone(), record);
        written.done().await.map_err(|error| describe(&error))
    }

    /// Requests the network from the driver. If tasks have run, the request is retried until it succeeds; otherwise
    /// at most [`ATTEMPTS`] times.
    async fn made(
        &self,
        cx: &HookContext<'_>,
        driver: &dyn Driver,
        request: &NetworkRequest,
    ) -> Result<NetworkIsolation, String> {
        let mut attempts = 0;
        loop {
            let error = match driver.create_network(request).await {
                Ok(network) => return Ok(network),
                Err(error) => error,
            };
            let reason = format!("driver {} cannot make the network: {}", driver.name(), describe(&error));
            attempts += 1;
            if !error.is_recoverable() || attempts >= ATTEMPTS && !cx.has_begun() {
                return Err(reason);
            }
            if attempts == 1 {
                cx.report(&format!("network: waiting: {reason}"));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Destroys a network, and retries until that succeeds or the agent ends.
    async fn destroy_patiently(&self, id: &AllocId) {
        let mut is_reported = false;
        loop {
            let Some(record) = self.records.lock().get(id).cloned() else { return };
            let destroyed = match self.drivers.get(&record.driver) {
                Some(driver) => driver.destroy_network(id.as_str(), record.network.as_ref()).await,
                None => Err(caravan_drivers::Error::Refused("the driver is not on this node".into())),
            };
            match destroyed {
                Ok(()) => {
                    self.records.lock().remove(id);
                    return self.store.remove_network(id).wait().await;
                }
                Err(error) if !is_reported => {
                    is_reported = true;
                    let (error, driver) = (describe(&error), &record.driver);
                    tracing::warn!(alloc = %id, driver, error, "a network cannot be destroyed yet");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
        }
    }
}

/// Refuses tasks of other drivers in a network without a namespace.
fn refuse_others(group: &TaskGroup, maker: &str) -> Result<(), String> {
    match group.tasks.iter().find(|task| task.driver != maker) {
        None => Ok(()),
        Some(task) => Err(format!(
            "driver {} of task {} cannot join the network that driver {maker} made",
            task.driver, task.name
        )),
    }
}
