//! All drivers of the client: fingerprinted at once and again and again, changes written into the node.

use crate::clock;
use crate::config::ClientConfig;
use crate::node::NodeState;
use caravan_drivers::{Driver, Fingerprint, Health};
use caravan_types::Time;
use caravan_types::node::DriverInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(30);

/// The drivers. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct DriverManager {
    drivers: Arc<BTreeMap<String, Arc<dyn Driver>>>,
    node: NodeState,
    /// Drivers that have not told anything yet.
    silent: Arc<watch::Sender<BTreeSet<String>>>,
    logged: Arc<Mutex<BTreeMap<String, Fingerprint>>>,
}

impl DriverManager {
    /// The drivers that the options let through (`driver.allowlist`, `driver.denylist`).
    pub(crate) fn new(drivers: Vec<Arc<dyn Driver>>, config: &ClientConfig, node: NodeState) -> Self {
        let allowed = config.option_list("driver.allowlist").filter(|l| !l.is_empty());
        let denied = config.option_list("driver.denylist").unwrap_or_default();
        let lets = |name: &str| {
            allowed.as_ref().is_none_or(|l| l.iter().any(|w| w == name)) && !denied.iter().any(|w| w == name)
        };
        let drivers: BTreeMap<_, _> =
            drivers.into_iter().filter(|d| lets(d.name())).map(|d| (d.name().to_owned(), d)).collect();
        let silent = watch::Sender::new(drivers.keys().cloned().collect());
        Self { drivers: Arc::new(drivers), node, silent: Arc::new(silent), logged: Arc::default() }
    }

    /// The driver of a name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Driver>> {
        self.drivers.get(name).cloned()
    }

    /// Waits until every driver has told something; after `patience` the late ones are named in the log.
    pub(crate) async fn first_fingerprints(&self, patience: Duration) {
        let mut silent = self.silent.subscribe();
        let all = silent.wait_for(BTreeSet::is_empty);
        if tokio::time::timeout(patience, all).await.is_err() {
            let late: Vec<String> = self.silent.borrow().iter().cloned().collect();
            tracing::warn!(
                drivers = late.join(", "),
                "registering the node without the fingerprints of late drivers"
            );
        }
    }

    /// Fingerprints all drivers at once and then in turns, until cancelled. No try is begun after that.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let each = self.drivers.values().map(|driver| {
            let (this, driver) = (self.clone(), Arc::clone(driver));
            async move {
                loop {
                    let found = driver.fingerprint().await;
                    this.told(driver.name(), found);
                    tokio::time::sleep(PERIOD).await;
                }
            }
        });
        tokio::select! {
            () = cancel.cancelled() => {}
            _ = futures::future::join_all(each) => cancel.cancelled().await,
        }
    }

    fn told(&self, name: &str, found: Fingerprint) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.get(name) != Some(&found) {
            tracing::info!(driver = name, state = %found.state, description = found.description, "driver");
            logged.insert(name.to_owned(), found.clone());
        }
        drop(logged);
        let mut attributes = found.attributes;
        // The node says "1" where the driver's own attributes say "true" (`http-api` section 5.4).
        if let Some(own) = attributes.get_mut(&format!("driver.{name}")) {
            "true".clone_into(own);
        }
        self.node.put_driver(
            name,
            DriverInfo {
                attributes,
                detected: found.state != Health::Undetected,
                healthy: found.state == Health::Healthy,
                health_description: found.description,
                update_time: Time(clock::now().0),
            },
        );
        self.silent.send_if_modified(|silent| silent.remove(name));
    }
}
