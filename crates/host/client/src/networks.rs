//! The networks of allocations on the node's bridge: their records, their set-up and removal, and the repair of what
//! other programs destroy (docs/design/networks.md).

pub(crate) mod cni;
mod words;

use self::cni::{Ask, Plugged};
use crate::clock::Backoff;
use crate::config::ClientConfig;
use crate::node::NodeState;
use crate::state::{AttachmentRecord, LastAddress, Store};
use caravan_networks::cni::Arguments;
use caravan_networks::{Attachment, Bridge, Fault, Finding, Foreign, Forward, Moved, Pool, probe};
use caravan_sys::netlink::watch::Watch;
use caravan_sys::{describe, netns};
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, NetworkStatus};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The time between two comparisons with the kernel's state without a notification.
const COMPARE_INTERVAL: Duration = Duration::from_secs(30);
/// The time in which the notifications of one change arrive, which one comparison serves.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// The networks of the allocations on this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Networks {
    inner: Arc<Inner>,
    /// The networks by plugins.
    plugged: Plugged,
}

#[derive(Debug)]
struct Inner {
    /// The bridge; absent if the node has none, with the reason.
    bridge: Result<Mutex<Bridge>, String>,
    book: Mutex<Book>,
    store: Store,
    node: NodeState,
    /// The directory of the network namespaces.
    dir: PathBuf,
    /// Whether a mapped port is reached through all addresses of the host.
    is_wildcard: bool,
    /// Whether any allocation has a network.
    used: watch::Sender<bool>,
    /// The last reported reason why a repair failed.
    complaint: Mutex<Option<String>>,
    /// The reported firewalls of other programs.
    foreign: Mutex<Vec<Foreign>>,
    /// The ports whose tracked connections are to be removed.
    moved: Mutex<MovedPorts>,
}

/// The ports whose destination changed, until the tracked connections to the earlier destination are removed.
#[derive(Debug, Default)]
struct MovedPorts {
    ports: Moved,
    /// Whether a thread is removing the connections; it ends when `ports` is empty.
    is_removing: bool,
}

#[derive(Debug)]
struct Book {
    pool: Pool,
    records: BTreeMap<AllocId, AttachmentRecord>,
    /// The allocations whose network is being removed: a set-up that was given up must not begin afterwards.
    releasing: BTreeSet<AllocId>,
}

impl Book {
    /// Returns whether an allocation has addresses and keeps them.
    fn is_used_by(&self, alloc: &AllocId) -> bool {
        self.records.contains_key(alloc) && !self.releasing.contains(alloc)
    }
}

/// Returns the reason why the kernel cannot create a bridge, or `None` if it can.
pub(crate) fn obstacle(config: &ClientConfig) -> Option<String> {
    probe(&config.bridge).err().map(|fault| describe(&fault))
}

impl Networks {
    /// Restores the networks of an earlier agent. The kernel's state does not change before [`Networks::run`] and
    /// [`Networks::attach`].
    pub(crate) fn open(
        config: &ClientConfig,
        store: Store,
        node: NodeState,
        records: Vec<AttachmentRecord>,
        last: Option<LastAddress>,
        plugged: Plugged,
    ) -> Self {
        let mut pool = Pool::new(config.bridge.clone(), last.map(|last| last.0));
        let mut kept = BTreeMap::new();
        for record in records {
            let own = &record.attachment;
            // Addresses outside of the configured network are assigned again; the record names the network to remove.
            pool.restore(&own.alloc, &own.addresses);
            kept.insert(own.alloc.clone(), record);
        }
        let is_current = |record: &&AttachmentRecord| {
            record.ready && pool.get(&record.attachment.alloc) == Some(record.attachment.addresses)
        };
        let ready = kept.values().filter(is_current).map(|record| record.attachment.clone());
        let bridge = Bridge::open(config.bridge.clone(), ready.collect::<Vec<_>>());
        let bridge = bridge.map(Mutex::new).map_err(|fault| describe(&fault));
        let used = watch::Sender::new(!kept.is_empty());
        let inner = Inner {
            bridge,
            book: Mutex::new(Book { pool, records: kept, releasing: BTreeSet::new() }),
            store,
            node,
            dir: config.state_dir.join(crate::runner::NETWORKS),
            is_wildcard: config.bind_wildcard && config.host_networks.is_empty(),
            used,
            complaint: Mutex::new(None),
            foreign: Mutex::default(),
            moved: Mutex::default(),
        };
        Self { inner: Arc::new(inner), plugged }
    }

    /// Returns the addresses of an allocation whose network may exist.
    pub(crate) fn record_of(&self, alloc: &AllocId) -> Option<Arc<NetworkStatus>> {
        let book = self.inner.book.lock();
        let on_bridge = book.records.get(alloc).map(|record| Arc::new(status(&record.attachment)));
        on_bridge.or_else(|| self.plugged.record_of(alloc))
    }

    /// Creates the network of an allocation by CNI plugins, or finds the network that an earlier agent created.
    ///
    /// # Errors
    /// Returns one sentence. [`Networks::release`] removes the finished steps.
    pub(crate) async fn plug(
        &self,
        alloc: &Allocation,
        network: &str,
        arguments: Arguments,
        report: impl Fn(&str),
    ) -> Result<Arc<NetworkStatus>, String> {
        let ask = Ask {
            alloc: alloc.id.clone(),
            network: network.to_owned(),
            namespace: self.inner.dir.join(alloc.id.as_str()),
            arguments,
            forwards: forwards(alloc, self.inner.is_wildcard)?,
        };
        self.plugged.attach(ask, report).await
    }

    /// Creates the network of an allocation, or finds the network that an earlier agent created. Returns its
    /// addresses.
    ///
    /// # Errors
    /// Returns one sentence. [`Networks::release`] removes the finished steps.
    pub(crate) async fn attach(&self, alloc: &Allocation) -> Result<Arc<NetworkStatus>, String> {
        let forwards = forwards(alloc, self.inner.is_wildcard)?;
        let namespace = self.inner.dir.join(alloc.id.as_str());
        let (record, is_new) = {
            let mut book = self.inner.book.lock();
            let addresses = book.pool.assign(&alloc.id).map_err(|full| full.to_string())?;
            let attachment = Attachment { alloc: alloc.id.clone(), namespace, addresses, forwards };
            let known = book.records.get(&alloc.id).filter(|known| known.attachment == attachment).cloned();
            let is_new = known.is_none();
            let record = known.unwrap_or(AttachmentRecord { attachment, ready: false });
            book.records.insert(alloc.id.clone(), record.clone());
            (record, is_new)
        };
        if is_new {
            self.inner.store.put_last_address(&LastAddress(record.attachment.addresses)).later();
            let written = self.inner.store.put_attachment(&record);
            written.done().await.map_err(|error| describe(&error))?;
        }
        let attachment = record.attachment.clone();
        self.on_bridge(move |bridge, inner| {
            if !inner.book.lock().is_used_by(&attachment.alloc) {
                return Ok(());
            }
            // A finished network is only compared, so that its connections continue.
            let repaired = match bridge.has(&attachment) {
                true => bridge.renew(&attachment)?,
                false => bridge.attach(&attachment)?,
            };
            inner.report(&repaired.found);
            inner.report_foreign(bridge);
            match repaired.failed.into_iter().find(|(failed, _)| *failed == attachment.alloc) {
                Some((_, fault)) => Err(fault),
                None => Ok(()),
            }
        })
        .await?;
        self.inner.used.send_replace(true);
        if !record.ready {
            let ready = AttachmentRecord { ready: true, ..record.clone() };
            self.inner.book.lock().records.insert(alloc.id.clone(), ready.clone());
            let written = self.inner.store.put_attachment(&ready);
            written.done().await.map_err(|error| describe(&error))?;
        }
        Ok(Arc::new(status(&record.attachment)))
    }

    /// Removes the network of an allocation, if it has one. The removal is retried until it succeeds; `report`
    /// receives each new reason of the wait.
    pub(crate) async fn release(&self, alloc: &AllocId, report: impl Fn(&str)) {
        self.plugged.release(alloc, &report).await;
        let record = {
            let mut book = self.inner.book.lock();
            let Some(record) = book.records.get(alloc).cloned() else { return };
            book.releasing.insert(alloc.clone());
            record
        };
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let mut reported = String::new();
        loop {
            let attachment = record.attachment.clone();
            let removed = self
                .on_bridge(move |bridge, _| {
                    bridge.detach(&attachment)?;
                    Ok(netns::let_go(&attachment.namespace)?)
                })
                .await;
            match removed {
                Ok(()) => break,
                Err(reason) => {
                    tracing::warn!(%alloc, reason, "the allocation's network cannot be removed yet");
                    if reason != reported {
                        report(&format!("The allocation's network cannot be removed yet: {reason}"));
                        reported = reason;
                    }
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
        // A failure is logged. If the record stays, the next agent finds no network to remove.
        self.inner.store.remove_attachment(alloc).wait().await;
        let mut book = self.inner.book.lock();
        book.records.remove(alloc);
        book.releasing.remove(alloc);
        book.pool.release(alloc);
        self.inner.used.send_replace(!book.records.is_empty());
    }

    /// Carries out a change of the bridge on a thread that may block.
    async fn on_bridge<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Bridge, &Inner) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, String> {
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || {
            let bridge = inner.bridge.as_ref().map_err(Clone::clone)?;
            let mut bridge = bridge.lock();
            let changed = change(&mut bridge, &inner).map_err(|fault| describe(&fault));
            let moved = bridge.take_moved();
            drop(bridge);
            inner.remove_connections_later(moved);
            changed
        });
        done.await.unwrap_or_else(|_| Err("the agent is ending".to_owned()))
    }

    /// Repairs the networks when something changes, and regularly. `here` returns whether an allocation of an earlier
    /// agent is still on this node; the networks of other allocations are removed first.
    pub(crate) async fn run(self, here: impl Fn(&AllocId) -> bool, cancel: CancellationToken) {
        let gone: Vec<AllocId> =
            self.inner.book.lock().records.keys().filter(|alloc| !here(alloc)).cloned().collect();
        let work = async {
            for alloc in gone {
                self.release(&alloc, |_| {}).await;
            }
            self.watch().await;
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }

    async fn watch(&self) {
        let (Some(links), Some(rules)) = (readable(Watch::links()), readable(Watch::rules())) else {
            tracing::warn!("changes of the network are noticed late: the kernel sends no notifications");
            return self.watch_by_time().await;
        };
        let mut used = self.inner.used.subscribe();
        loop {
            // Without a network, no repair is needed, and notifications of other programs wake no task.
            if used.wait_for(|used| *used).await.is_err() {
                return;
            }
            self.repair().await;
            loop {
                let noticed = tokio::select! {
                    _ = used.wait_for(|used| !used) => break,
                    ready = links.readable() => ready.map(|mut guard| guard.clear_ready()),
                    ready = rules.readable() => ready.map(|mut guard| guard.clear_ready()),
                    () = tokio::time::sleep(COMPARE_INTERVAL) => Ok(()),
                };
                if noticed.is_err() {
                    return self.watch_by_time().await;
                }
                tokio::time::sleep(SETTLE_TIME).await;
                let _noticed = (links.get_ref().drain(), rules.get_ref().drain());
                self.repair().await;
            }
        }
    }

    async fn watch_by_time(&self) {
        loop {
            tokio::time::sleep(COMPARE_INTERVAL).await;
            self.repair().await;
        }
    }

    /// Compares the kernel with the records, and removes the differences.
    async fn repair(&self) {
        let repaired = self.on_bridge(|bridge, inner| {
            if !bridge.is_used() {
                return Ok(Default::default());
            }
            let repaired = bridge.repair()?;
            inner.report_foreign(bridge);
            Ok(repaired)
        });
        let complaint = match repaired.await {
            Ok(repaired) => {
                self.inner.report(&repaired.found);
                let failed = repaired.failed.first();
                failed.map(|(alloc, fault)| format!("allocation {alloc}: {}", describe(fault)))
            }
            Err(reason) => Some(reason),
        };
        let mut known = self.inner.complaint.lock();
        if let Some(reason) = complaint.as_ref().filter(|_| *known != complaint) {
            tracing::warn!(reason, "the network cannot be repaired");
            self.inner.node.event(
                "Network",
                &format!("Network cannot be repaired: {reason}"),
                BTreeMap::new(),
            );
        }
        *known = complaint;
    }

    /// Removes the bridge if nothing uses it: a development agent leaves no state in the kernel.
    pub(crate) async fn remove_bridge(&self) {
        if self.inner.bridge.is_err() {
            return;
        }
        if let Err(reason) = self.on_bridge(|bridge, _| bridge.remove()).await {
            tracing::warn!(reason, "the bridge cannot be removed");
        }
    }
}

impl Inner {
    /// Removes the tracked connections of ports whose destination changed. One walk of the kernel through its table
    /// serves all ports that change meanwhile, and no set-up waits for the walk.
    fn remove_connections_later(self: &Arc<Self>, moved: Moved) {
        let mut waiting = self.moved.lock();
        waiting.ports.append(moved);
        if waiting.is_removing || waiting.ports.is_empty() {
            return;
        }
        waiting.is_removing = true;
        drop(waiting);
        let inner = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            while let Some(moved) = inner.next_moved() {
                if let Err(fault) = moved.remove_connections() {
                    tracing::warn!(
                        error = describe(&fault),
                        "tracked connections of moved ports cannot be removed"
                    );
                }
            }
        });
    }

    /// Returns the ports whose destination changed since the last call. `None` ends the removal.
    fn next_moved(&self) -> Option<Moved> {
        let mut waiting = self.moved.lock();
        waiting.is_removing = !waiting.ports.is_empty();
        waiting.is_removing.then(|| std::mem::take(&mut waiting.ports))
    }

    /// Reports firewalls of other programs that may drop packets of the bridge, once each.
    fn report_foreign(&self, bridge: &Bridge) {
        let mut known = self.foreign.lock();
        if *known == bridge.foreign() {
            return;
        }
        let name = &bridge.config().name;
        for foreign in bridge.foreign().iter().filter(|foreign| !known.contains(foreign)) {
            let sentence = format!(
                "Packets of bridge {name} may be dropped: {foreign}; accept there what comes from and goes to {name}"
            );
            tracing::warn!(sentence, "another firewall may drop packets of allocations");
            self.node.event("Network", &sentence, BTreeMap::new());
        }
        *known = bridge.foreign().to_vec();
    }

    /// Reports a repair as an event of the node.
    fn report(&self, found: &[Finding]) {
        if let Some(sentence) = words::sentence(found) {
            tracing::warn!(sentence, "other programs changed the network of allocations");
            self.node.event("Network", &sentence, BTreeMap::new());
        }
    }
}

/// Returns a socket whose notifications wake a task.
#[expect(deprecated, reason = "the socket owns its descriptor, which is what the deprecation is about")]
fn readable(socket: caravan_sys::Result<Watch>) -> Option<AsyncFd<Watch>> {
    AsyncFd::with_interest(socket.ok()?, Interest::READABLE).ok()
}

fn status(attachment: &Attachment) -> NetworkStatus {
    NetworkStatus {
        interface_name: Attachment::INTERFACE.to_owned(),
        address: attachment.addresses.ipv4.to_string(),
        address_ipv6: attachment.addresses.ipv6.map(|ip| ip.to_string()).unwrap_or_default(),
        dns: None,
    }
}

/// Returns the ports of the node that lead to an allocation. With `is_wildcard`, all addresses of the node count.
fn forwards(alloc: &Allocation, is_wildcard: bool) -> Result<Vec<Forward>, String> {
    let ports = alloc.allocated_resources.iter().flat_map(|resources| &resources.shared.ports);
    let number = |label: &str, value: i64| {
        u16::try_from(value).map_err(|_| format!("port {label} has the number {value}, which is no port"))
    };
    ports
        .map(|port| {
            let address = match is_wildcard || port.host_ip.is_empty() {
                true => None,
                false => Some(port.host_ip.parse().map_err(|_| {
                    format!("port {} has the address {:?}, which is no IP address", port.label, port.host_ip)
                })?),
            };
            let to = if port.to > 0 { port.to } else { port.value };
            Ok(Forward { address, port: number(&port.label, port.value)?, to: number(&port.label, to)? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedPort, AllocatedResources, AllocatedSharedResources};

    #[test]
    fn ports_lead_from_the_address_of_their_network() {
        let port = |to: i64, host_ip: &str| AllocatedPort {
            label: "http".into(),
            value: 25_000,
            to,
            host_ip: host_ip.into(),
            ..Default::default()
        };
        let alloc = |port| {
            let shared = AllocatedSharedResources { ports: vec![port], ..Default::default() };
            let resources = AllocatedResources { shared, ..Default::default() };
            Allocation { allocated_resources: Some(Arc::new(resources)), ..Default::default() }
        };
        let one = |address: Option<&str>, to| {
            vec![Forward { address: address.map(|ip| ip.parse().unwrap()), port: 25_000, to }]
        };
        assert_eq!(forwards(&alloc(port(80, "10.0.0.1")), false).unwrap(), one(Some("10.0.0.1"), 80));
        assert_eq!(forwards(&alloc(port(0, "10.0.0.1")), true).unwrap(), one(None, 25_000));
        assert!(forwards(&alloc(port(80, "here")), false).unwrap_err().contains("no IP address"));
        assert!(forwards(&alloc(port(70_000, "")), false).unwrap_err().contains("70000"));
    }
}
