//! The networks of allocations by CNI plugins: their records, their set-up and removal, and the networks that the
//! node offers (docs/design/networks.md).

use crate::clock::Backoff;
use crate::config::ClientConfig;
use crate::node::{CniOffer, NodeState};
use crate::state::{PluggedRecord, Store};
use caravan_networks::Forward;
use caravan_networks::cni::{Arguments, Attached, Catalog, CniFault, NetworkList, Runtime};
use caravan_sys::{describe, time};
use caravan_types::AllocId;
use caravan_types::alloc::NetworkStatus;
use caravan_types::job::Dns;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedMutexGuard, Semaphore};

/// The time between two scans of the configurations and the plugins.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// The most networks that are changed at the same time. Each change starts several programs.
const MAX_CHANGES: u32 = 8;
/// The most attempts of a set-up.
const SET_UP_ATTEMPTS: u32 = 3;
/// The most attempts of a removal before the allocation ends without it. The client continues its attempts
/// afterwards.
const REMOVAL_ATTEMPTS: u32 = 6;

/// The network that an allocation requests.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) alloc: AllocId,
    /// The name of the network, as the job file spells it.
    pub(crate) network: String,
    pub(crate) namespace: PathBuf,
    pub(crate) arguments: Arguments,
    pub(crate) forwards: Vec<Forward>,
}

/// The networks by plugins on this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Plugged {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
    config_dir: PathBuf,
    is_offered: bool,
    /// Whether the versions of plugins are attributes of the node.
    has_versions: bool,
    store: Store,
    node: NodeState,
    book: Mutex<Book>,
    changes: Arc<Semaphore>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Book {
    records: BTreeMap<AllocId, Attached>,
    /// The allocations whose network is being removed: a set-up that was given up must not begin afterwards.
    releasing: BTreeSet<AllocId>,
    /// The allocations that ended although their network could not be removed.
    orphans: BTreeSet<AllocId>,
    /// The locks that serialize the changes of an allocation's network.
    busy: BTreeMap<AllocId, Arc<tokio::sync::Mutex<()>>>,
}

/// The results of the last scan.
#[derive(Debug, Default)]
struct Seen {
    programs: Vec<(PathBuf, SystemTime)>,
    versions: BTreeMap<String, String>,
    complaints: BTreeSet<String>,
}

impl Plugged {
    /// Restores the networks of an earlier agent.
    pub(crate) fn open(
        config: &ClientConfig,
        store: Store,
        node: NodeState,
        records: Vec<PluggedRecord>,
    ) -> Self {
        let records = records.into_iter().map(|record| (record.0.alloc.clone(), record.0)).collect();
        let inner = Inner {
            runtime: Runtime::new(&config.cni_path),
            config_dir: config.cni_config_dir.clone(),
            is_offered: config.wants_fingerprint("cni"),
            has_versions: config.wants_fingerprint("plugins_cni"),
            store,
            node,
            book: Mutex::new(Book { records, ..Book::default() }),
            changes: Arc::new(Semaphore::new(MAX_CHANGES as usize)),
            seen: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the addresses of an allocation whose network may exist.
    pub(crate) fn record_of(&self, alloc: &AllocId) -> Option<Arc<NetworkStatus>> {
        let book = self.inner.book.lock();
        let record = book.records.get(alloc)?;
        Some(Arc::new(status(record).unwrap_or_default()))
    }

    async fn alone(&self, alloc: &AllocId) -> OwnedMutexGuard<()> {
        let own = Arc::clone(self.inner.book.lock().busy.entry(alloc.clone()).or_default());
        own.lock_owned().await
    }

    /// Runs plugins on a thread that may block; at most [`MAX_CHANGES`] such threads run at the same time.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Runtime) -> Result<T, CniFault> + Send + 'static,
    ) -> Result<T, Failed> {
        let ends = |_| Failed { reason: "the agent is ending".to_owned(), is_passing: false };
        let place = Arc::clone(&self.inner.changes).acquire_owned().await.map_err(|_| ends(()))?;
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&inner.runtime);
            drop(place);
            done
        });
        let done = done.await.map_err(|_| ends(()))?;
        done.map_err(|fault| Failed { reason: describe(&fault), is_passing: fault.is_passing() })
    }

    /// Creates the network of an allocation, or finds the network that an earlier agent created. `report` receives
    /// each repair.
    ///
    /// # Errors
    /// Returns one sentence. [`Plugged::release`] removes the finished steps.
    pub(crate) async fn attach(&self, ask: Ask, report: impl Fn(&str)) -> Result<Arc<NetworkStatus>, String> {
        let (sender, mut repairs) = tokio::sync::mpsc::unbounded_channel();
        // Locked before the task starts: a release that follows waits for the lock, even if the task has not run yet.
        let alone = self.alone(&ask.alloc).await;
        let this = self.clone();
        // A separate task: running plugins are not stopped halfway if the allocation is stopped.
        let work = tokio::spawn(async move {
            let made = this.make(ask, &sender).await;
            drop(alone);
            made
        });
        while let Some(sentence) = repairs.recv().await {
            report(&sentence);
        }
        work.await.unwrap_or_else(|_| Err("the agent is ending".to_owned()))
    }

    async fn make(
        &self,
        ask: Ask,
        repairs: &tokio::sync::mpsc::UnboundedSender<String>,
    ) -> Result<Arc<NetworkStatus>, String> {
        let alloc = ask.alloc.clone();
        let boot = time::boot_id().map_err(|error| describe(&error))?;
        let known = self.inner.book.lock().records.get(&alloc).cloned();
        if let Some(record) = known {
            if let Some(status) = self.kept(&record, &ask, &boot, repairs).await {
                return Ok(Arc::new(status));
            }
            let mut left = record;
            if left.boot != boot {
                // The machine was restarted, so the namespace of the record does not exist any more.
                left.namespace = PathBuf::new();
            }
            if let Err(failed) = self.run(move |runtime| runtime.del(&left)).await {
                tracing::warn!(%alloc, failed.reason, "an allocation's earlier network cannot be removed");
            }
        }
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(2));
        let mut first = None;
        for attempt in 1..=SET_UP_ATTEMPTS {
            match self.add(&ask, &boot).await {
                Ok(status) => return Ok(Arc::new(status)),
                Err(failed) => {
                    tracing::warn!(%alloc, attempt, failed.reason, "a network cannot be created");
                    let is_last = !failed.is_passing || attempt == SET_UP_ATTEMPTS;
                    let reason = first.get_or_insert(failed.reason);
                    if is_last {
                        return Err(reason.clone());
                    }
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
        Err(first.unwrap_or_default())
    }

    /// Returns the status of a recorded network, if it is the requested one and the plugins find no difference.
    async fn kept(
        &self,
        record: &Attached,
        ask: &Ask,
        boot: &str,
        repairs: &tokio::sync::mpsc::UnboundedSender<String>,
    ) -> Option<NetworkStatus> {
        let is_same = record.boot == boot
            && record.namespace == ask.namespace
            && record.list.name() == ask.network
            && record.result.is_some();
        if !is_same {
            return None;
        }
        let own = record.clone();
        match self.run(move |runtime| runtime.check(&own)).await {
            Ok(()) => status(record).ok(),
            Err(failed) => {
                let sentence = format!("network configuration check failed, made again: {}", failed.reason);
                tracing::warn!(alloc = %record.alloc, sentence, "check failed: creating the network again");
                let _ending = repairs.send(sentence);
                None
            }
        }
    }

    async fn add(&self, ask: &Ask, boot: &str) -> Result<NetworkStatus, Failed> {
        // Read at each use: an operator may have changed it.
        let (dir, network) = (self.inner.config_dir.clone(), ask.network.clone());
        let list = self.run(move |_| Catalog::find(&dir, &network)).await?;
        if !ask.forwards.is_empty() && !list.maps_ports() {
            let network = &ask.network;
            tracing::debug!(network, "no plugin of the network maps ports of the node");
        }
        let record = Attached {
            alloc: ask.alloc.clone(),
            namespace: ask.namespace.clone(),
            list,
            arguments: ask.arguments.render(),
            forwards: ask.forwards.clone(),
            result: None,
            boot: boot.to_owned(),
        };
        let is_current = {
            let mut book = self.inner.book.lock();
            let is_current = !book.releasing.contains(&ask.alloc);
            if is_current {
                book.records.insert(ask.alloc.clone(), record.clone());
            }
            is_current
        };
        if !is_current {
            return Err(Failed { reason: "the allocation is ending".to_owned(), is_passing: false });
        }
        self.write(&record).await?;
        let record = self
            .run(move |runtime| {
                let mut record = record;
                runtime.add(&mut record)?;
                match record.result.as_ref().map(|result| result.reached()) {
                    Some(Ok(_)) => Ok(record),
                    Some(Err(fault)) => Err(undone(runtime, &record, fault)),
                    None => Err(undone(runtime, &record, CniFault::NoAddress)),
                }
            })
            .await?;
        self.inner.book.lock().records.insert(ask.alloc.clone(), record.clone());
        self.write(&record).await?;
        status(&record).map_err(|fault| Failed { reason: describe(&fault), is_passing: false })
    }

    async fn write(&self, record: &Attached) -> Result<(), Failed> {
        let written = self.inner.store.put_plugged(&PluggedRecord(record.clone())).done().await;
        written.map_err(|error| Failed { reason: describe(&error), is_passing: false })
    }

    /// Removes the network of an allocation, if it has one. After some failed attempts the allocation ends without
    /// the removal, which is reported and retried later.
    pub(crate) async fn release(&self, alloc: &AllocId, report: impl Fn(&str)) {
        {
            let mut book = self.inner.book.lock();
            if !book.records.contains_key(alloc) && !book.busy.contains_key(alloc) {
                return;
            }
            book.releasing.insert(alloc.clone());
        }
        let alone = self.alone(alloc).await;
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let mut reported = String::new();
        for attempt in 1..=REMOVAL_ATTEMPTS {
            match self.remove(alloc).await {
                Ok(()) => return self.close(alloc, alone),
                Err(failed) => {
                    tracing::warn!(%alloc, failed.reason, "the allocation's network cannot be removed yet");
                    if failed.reason != reported {
                        report(&format!("The allocation's network cannot be removed yet: {}", failed.reason));
                        reported = failed.reason;
                    }
                    if attempt < REMOVAL_ATTEMPTS {
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
        }
        let sentence = format!(
            "The network of allocation {alloc} may have left addresses and rules, which are removed later: {reported}"
        );
        self.inner.node.event("Network", &sentence, BTreeMap::new());
        self.inner.book.lock().orphans.insert(alloc.clone());
        self.close(alloc, alone);
    }

    fn close(&self, alloc: &AllocId, alone: OwnedMutexGuard<()>) {
        let mut book = self.inner.book.lock();
        book.releasing.remove(alloc);
        book.busy.remove(alloc);
        drop(alone);
    }

    async fn remove(&self, alloc: &AllocId) -> Result<(), Failed> {
        let known = self.inner.book.lock().records.get(alloc).cloned();
        let Some(mut record) = known else { return Ok(()) };
        self.run(move |runtime| {
            // Plugins remove the remaining parts also without the namespace.
            if !caravan_sys::netns::is_held(&record.namespace).unwrap_or(false) {
                record.namespace = PathBuf::new();
            }
            runtime.del(&record)
        })
        .await?;
        // A failure is logged. If the record stays, the next agent finds no network to remove.
        self.inner.store.remove_plugged(alloc).wait().await;
        let mut book = self.inner.book.lock();
        book.records.remove(alloc);
        book.orphans.remove(alloc);
        Ok(())
    }

    /// Removes the networks that earlier agents left, and scans the configurations and the plugins regularly. `here`
    /// returns whether an allocation of an earlier agent is still on this node.
    pub(crate) async fn run_until(
        self,
        here: impl Fn(&AllocId) -> bool,
        cancel: tokio_util::sync::CancellationToken,
    ) {
        let gone: Vec<AllocId> =
            self.inner.book.lock().records.keys().filter(|alloc| !here(alloc)).cloned().collect();
        let work = async {
            self.look().await;
            for alloc in gone {
                self.release(&alloc, |_| {}).await;
            }
            self.collect().await;
            loop {
                tokio::time::sleep(LOOK_INTERVAL).await;
                self.look().await;
                self.retry().await;
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }

    /// Retries the removal of the networks of ended allocations.
    async fn retry(&self) {
        let orphans = self.inner.book.lock().orphans.clone();
        for alloc in orphans {
            let alone = self.alone(&alloc).await;
            match self.remove(&alloc).await {
                Ok(()) => tracing::info!(%alloc, "the network of an ended allocation was removed"),
                Err(failed) => {
                    tracing::debug!(%alloc, failed.reason, "an ended allocation's network cannot be removed")
                }
            }
            self.close(&alloc, alone);
        }
    }

    /// Lets plugins remove resources that belong to no allocation, while no network is changed.
    async fn collect(&self) {
        let Ok(places) = Arc::clone(&self.inner.changes).acquire_many_owned(MAX_CHANGES).await else {
            return;
        };
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || {
            let catalog = Catalog::read(&inner.config_dir);
            let records = inner.book.lock().records.clone();
            for list in catalog.lists.values() {
                let valid: Vec<&Attached> =
                    records.values().filter(|record| record.list.name() == list.name()).collect();
                if let Err(fault) = inner.runtime.gc(list, &valid) {
                    let error = describe(&fault);
                    tracing::warn!(network = list.name(), error, "plugins cannot remove left-over resources");
                }
            }
            drop(places);
        });
        let _ended = done.await;
    }

    /// Finds the networks and the versions of plugins that the node offers.
    async fn look(&self) {
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || inner.look());
        let _ended = done.await;
    }
}

impl Inner {
    fn look(&self) {
        let mut complaints = BTreeSet::new();
        let mut offer = CniOffer::default();
        if self.is_offered {
            let catalog = Catalog::read(&self.config_dir);
            complaints.extend(catalog.faults.iter().map(|fault| describe(fault)));
            for list in catalog.lists.values() {
                match self.runtime.status(list) {
                    Ok(()) => offer.networks.push(list.name().to_owned()),
                    Err(fault) => drop(complaints.insert(not_offered(list, &fault))),
                }
            }
        }
        let mut seen = self.seen.lock();
        if self.has_versions {
            let programs = self.runtime.programs();
            if programs != seen.programs {
                seen.versions = Runtime::versions(programs.iter().map(|(path, _)| path.as_path()));
                seen.programs = programs;
            }
            offer.versions = seen.versions.clone();
        }
        for sentence in complaints.difference(&seen.complaints) {
            tracing::warn!(sentence, "a network of plugins is not offered");
            self.node.event("Network", sentence, BTreeMap::new());
        }
        seen.complaints = complaints;
        self.node.put_cni(offer);
    }
}

fn not_offered(list: &NetworkList, fault: &CniFault) -> String {
    format!("Networks of mode cni/{} are not offered: {}", list.name(), describe(fault))
}

/// The failure of a change.
#[derive(Clone, Debug)]
struct Failed {
    reason: String,
    /// Whether a repetition may help.
    is_passing: bool,
}

/// Undoes an addition whose result cannot be used.
fn undone(runtime: &Runtime, record: &Attached, fault: CniFault) -> CniFault {
    if let Err(left) = runtime.del(record) {
        tracing::warn!(alloc = %record.alloc, error = describe(&left), "a network addition cannot be undone");
    }
    fault
}

fn status(record: &Attached) -> Result<NetworkStatus, CniFault> {
    let reached = record.result.as_ref().ok_or(CniFault::NoAddress)?.reached()?;
    let listed = |values: Vec<String>| (!values.is_empty()).then_some(values);
    let dns = reached.names.map(|names| Dns {
        servers: listed(names.servers),
        searches: listed(names.searches),
        options: listed(names.options),
    });
    Ok(NetworkStatus {
        interface_name: reached.interface,
        address: reached.address.to_string(),
        address_ipv6: reached.ipv6.map(|ip| ip.to_string()).unwrap_or_default(),
        dns: dns.map(Box::new),
    })
}

#[cfg(test)]
mod tests;
