//! The drivers of the client: fingerprinted immediately and then periodically, with each change written into the
//! node.

use crate::allocs::Allocs;
use crate::clock;
use crate::config::ClientConfig;
use crate::node::NodeState;
use caravan_drivers::{Driver, DriverEvent, Fingerprint, Health};
use caravan_types::alloc::{TaskEvent, event};
use caravan_types::node::DriverInfo;
use caravan_types::{AllocId, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(30);

/// The drivers. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct DriverManager {
    drivers: Arc<BTreeMap<String, Arc<dyn Driver>>>,
    node: NodeState,
    /// Drivers that have not completed a fingerprint yet.
    silent: Arc<watch::Sender<BTreeSet<String>>>,
    logged: Arc<Mutex<BTreeMap<String, Fingerprint>>>,
}

impl DriverManager {
    /// Creates the manager with the drivers that the options allow (`driver.allowlist`, `driver.denylist`).
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

    /// Returns the driver with a name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Driver>> {
        self.drivers.get(name).cloned()
    }

    /// Waits until every driver has completed a fingerprint. After `patience`, the missing drivers are logged.
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

    /// Fingerprints all drivers immediately and then periodically, until cancelled. No fingerprint starts after that.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let each = self.drivers.values().map(|driver| {
            let (this, driver) = (self.clone(), Arc::clone(driver));
            async move {
                loop {
                    let found = driver.fingerprint().await;
                    this.reported(driver.name(), found);
                    tokio::select! {
                        () = tokio::time::sleep(PERIOD) => {}
                        () = driver.changed() => {}
                    }
                }
            }
        });
        tokio::select! {
            // Polled first, so that no fingerprint starts after cancellation.
            biased;
            () = cancel.cancelled() => {}
            _ = futures::future::join_all(each) => cancel.cancelled().await,
        }
    }

    /// Ends the processes and watches that drivers keep besides tasks. Drivers report no ends of tasks afterwards.
    pub(crate) async fn shut_down(&self) {
        futures::future::join_all(self.drivers.values().map(|driver| driver.shutdown())).await;
    }

    /// Adds the events of all drivers to their tasks, until cancelled.
    pub(crate) async fn route_events(self, allocs: Allocs, cancel: CancellationToken) {
        let each = self.drivers.values().filter_map(|driver| driver.events()).map(|mut events| {
            let allocs = allocs.clone();
            async move {
                while let Some(event) = events.recv().await {
                    let DriverEvent { alloc_id, task_name, message, details } = event;
                    let Ok(alloc) = allocs.get(&AllocId::from(alloc_id.as_str())) else {
                        tracing::debug!(alloc = alloc_id, message, "ignored event of an unknown allocation");
                        continue;
                    };
                    let mut event = TaskEvent::new(event::DRIVER, clock::now());
                    for (name, value) in details {
                        event = event.detail(&name, value);
                    }
                    alloc.emit(&task_name, event.detail("driver_message", message));
                }
            }
        });
        tokio::select! {
            () = cancel.cancelled() => {}
            _ = futures::future::join_all(each) => {}
        }
    }

    /// Passes the processors that tasks share to all drivers, now and at each change, until cancelled.
    pub(crate) async fn share_processors(
        self,
        mut cpus: watch::Receiver<Option<String>>,
        cancel: CancellationToken,
    ) {
        loop {
            let shared = cpus.borrow_and_update().clone();
            for driver in self.drivers.values() {
                if let Some(shared) = &shared {
                    driver.share_processors(shared);
                }
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                changed = cpus.changed() => if changed.is_err() { return },
            }
        }
    }

    fn reported(&self, name: &str, found: Fingerprint) {
        let mut logged = self.logged.lock();
        if logged.get(name) != Some(&found) {
            tracing::info!(
                driver = name, state = %found.state, description = found.description,
                "driver fingerprint changed"
            );
            logged.insert(name.to_owned(), found.clone());
        }
        drop(logged);
        let mut attributes = found.attributes;
        // The node reports "1" where the driver's own attributes report "true" (docs/reference/http-api.md, section
        // 5.4).
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

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use caravan_drivers::{
        Capabilities, ExecOutput, ExitResult, MockDriver, TaskConfig, TaskHandle, TaskId, TaskStatus, Usage,
    };
    use caravan_types::node::Node;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A driver that counts its fingerprints; with `late`, no fingerprint completes.
    #[derive(Debug)]
    struct Scripted {
        name: &'static str,
        late: bool,
        asked: Arc<AtomicUsize>,
        tasks: MockDriver,
    }

    #[async_trait]
    impl Driver for Scripted {
        fn name(&self) -> &'static str {
            self.name
        }
        fn capabilities(&self) -> Capabilities {
            self.tasks.capabilities()
        }
        async fn fingerprint(&self) -> Fingerprint {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.late {
                std::future::pending::<()>().await;
            }
            Fingerprint::healthy(self.name)
        }
        fn validate(&self, config: &serde_json::Value) -> caravan_drivers::Result<()> {
            self.tasks.validate(config)
        }
        async fn start(&self, config: TaskConfig) -> caravan_drivers::Result<TaskHandle> {
            self.tasks.start(config).await
        }
        async fn recover(&self, handle: TaskHandle) -> caravan_drivers::Result<()> {
            self.tasks.recover(handle).await
        }
        async fn wait(&self, id: &TaskId) -> caravan_drivers::Result<ExitResult> {
            self.tasks.wait(id).await
        }
        async fn stop(
            &self,
            id: &TaskId,
            timeout: Duration,
            signal: Option<&str>,
        ) -> caravan_drivers::Result<()> {
            self.tasks.stop(id, timeout, signal).await
        }
        async fn destroy(&self, id: &TaskId, force: bool) -> caravan_drivers::Result<()> {
            self.tasks.destroy(id, force).await
        }
        async fn inspect(&self, id: &TaskId) -> caravan_drivers::Result<TaskStatus> {
            self.tasks.inspect(id).await
        }
        async fn usage(&self, id: &TaskId) -> caravan_drivers::Result<Usage> {
            self.tasks.usage(id).await
        }
        async fn signal(&self, id: &TaskId, signal: &str) -> caravan_drivers::Result<()> {
            self.tasks.signal(id, signal).await
        }
        async fn exec(
            &self,
            id: &TaskId,
            command: &[String],
            limit: Duration,
        ) -> caravan_drivers::Result<ExecOutput> {
            self.tasks.exec(id, command, limit).await
        }
    }

    fn manager(late: bool) -> (DriverManager, NodeState, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let driver = |name, late| -> Arc<dyn Driver> {
            Arc::new(Scripted { name, late, asked: Arc::clone(&asked), tasks: MockDriver::new() })
        };
        let node = NodeState::new(Node::default());
        let config = ClientConfig::new("/nowhere", "n");
        let drivers = vec![driver("quick", false), driver("slow", late)];
        (DriverManager::new(drivers, &config, node.clone()), node, asked)
    }

    #[tokio::test]
    async fn a_late_driver_holds_the_node_up_for_so_long_and_no_longer() {
        let (manager, node, _) = manager(true);
        let cancel = CancellationToken::new();
        let running = tokio::spawn(manager.clone().run(cancel.clone()));
        manager.first_fingerprints(Duration::from_millis(50)).await;
        let late: Vec<String> = manager.silent.borrow().iter().cloned().collect();
        assert_eq!(late, ["slow"], "the late one is known by name");
        assert!(node.get().drivers["quick"].healthy && !node.get().drivers.contains_key("slow"));
        cancel.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn the_node_waits_for_all_drivers_and_none_is_asked_after_the_end_began() {
        let (manager, node, asked) = manager(false);
        let cancel = CancellationToken::new();
        let running = tokio::spawn(manager.clone().run(cancel.clone()));
        manager.first_fingerprints(Duration::from_secs(60)).await;
        assert!(manager.silent.borrow().is_empty());
        assert_eq!(node.get().drivers.len(), 2);
        cancel.cancel();
        running.await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2, "each was asked once");
        manager.clone().run(cancel).await;
        assert_eq!(asked.load(Ordering::SeqCst), 2, "a run that is cancelled from the start asks nobody");
    }
}
