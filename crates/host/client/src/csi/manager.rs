//! One instance per plugin and role: created, replaced and removed as the registry changes, fingerprinted into the
//! node, and used for calls.

use super::CsiFault;
use super::instance::{Instance, blank};
use super::registry::{Key, Registration, Registry};
use crate::clock::{self, Backoff};
use crate::node::NodeState;
use caravan_base::{KeyedGuard, KeyedLock};
use caravan_csi::{CsiClient, Deadlines};
use caravan_types::plugin::{CsiInfo, PluginRole};
use caravan_types::{PluginId, Time};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The interval of fingerprints, and of comparing the registry with the instances.
const PERIOD: Duration = Duration::from_secs(30);

/// The plugins of this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Manager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    node: NodeState,
    deadlines: Deadlines,
    instances: Mutex<HashMap<Key, Slot>>,
    /// A counter of the changes of instances and of their fingerprints.
    version: watch::Sender<u64>,
    tasks: TaskTracker,
    /// Locks that serialize the controller calls of one volume.
    turns: KeyedLock<(PluginId, String)>,
}

#[derive(Debug)]
struct Slot {
    instance: Arc<Instance>,
    info: CsiInfo,
    end: CancellationToken,
    /// A notification that triggers a fingerprint immediately.
    ask: Arc<Notify>,
}

/// A ready plugin and its latest fingerprint.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    /// The connection over which calls to the plugin are made.
    pub(crate) instance: Arc<Instance>,
    /// Capabilities and health as of the last fingerprint.
    pub(crate) info: CsiInfo,
}

impl Manager {
    /// Creates a manager that is idle until [`Manager::run`].
    pub(crate) fn new(registry: Registry, node: NodeState, deadlines: Deadlines) -> Self {
        let inner = Inner {
            registry,
            node,
            deadlines,
            instances: Mutex::default(),
            version: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            turns: KeyedLock::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits for the lock of controller calls for a volume, or another object with an id of the plugin.
    pub(super) async fn controller_turn(
        &self,
        plugin: &PluginId,
        subject: &str,
    ) -> KeyedGuard<(PluginId, String)> {
        self.inner.turns.lock(&(plugin.clone(), subject.to_owned())).await
    }

    /// Returns the registry that this manager follows.
    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Returns a receiver of changes of instances and fingerprints.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.version.subscribe()
    }

    /// Follows the registry until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut changes = self.inner.registry.changes();
        let mut timer = tokio::time::interval(PERIOD);
        loop {
            self.follow(&cancel);
            tokio::select! {
                () = cancel.cancelled() => break,
                _ = timer.tick() => {}
                // Missed changes do no harm, because the whole registry is compared.
                change = changes.recv() => if let Ok(change) = change {
                    self.ask(&change.key);
                }
            }
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Triggers a fingerprint of a plugin.
    fn ask(&self, key: &Key) {
        if let Some(slot) = self.lock().get(key) {
            slot.ask.notify_one();
        }
    }

    /// Creates and removes instances, so that they match the registry.
    fn follow(&self, cancel: &CancellationToken) {
        let serving = self.inner.registry.serving();
        let mut instances = self.lock();
        let mut gone = Vec::new();
        instances.retain(|key, slot| {
            let keep = serving.get(key).is_some_and(|r| r.same_endpoint(&slot.instance.registration));
            if !keep {
                slot.end.cancel();
                gone.push(key.clone());
            }
            keep
        });
        let mut changed = !gone.is_empty();
        for (key, registration) in serving {
            gone.retain(|k| *k != key);
            if instances.contains_key(&key) {
                continue;
            }
            tracing::info!(plugin = %key.1, role = key.0.as_str(), alloc = %registration.alloc, "plugin serves");
            let slot = self.start(key.clone(), registration, cancel);
            instances.insert(key, slot);
            changed = true;
        }
        drop(instances);
        for key in gone {
            tracing::info!(plugin = %key.1, role = key.0.as_str(), "plugin stopped serving");
            self.inner.node.remove_plugin(key.0, &key.1);
        }
        if changed {
            self.inner.version.send_modify(|v| *v += 1);
        }
    }

    fn start(&self, key: Key, registration: Registration, cancel: &CancellationToken) -> Slot {
        let client = CsiClient::new(&registration.socket, self.inner.deadlines);
        let info = blank(&registration, Time(clock::now().0));
        let instance = Arc::new(Instance { registration, client });
        let (end, ask) = (cancel.child_token(), Arc::new(Notify::new()));
        let this = self.clone();
        let (looked_at, until, asked) = (Arc::clone(&instance), end.clone(), Arc::clone(&ask));
        self.inner.tasks.spawn(async move { this.watch(key, looked_at, until, &asked).await });
        Slot { instance, info, end, ask }
    }

    /// Fingerprints the plugin immediately and then periodically; more often while it is not healthy.
    async fn watch(&self, key: Key, instance: Arc<Instance>, end: CancellationToken, ask: &Notify) {
        let mut basics = None;
        let mut backoff = Backoff::new(Duration::from_millis(50), PERIOD);
        loop {
            let info = tokio::select! {
                () = end.cancelled() => return,
                info = instance.fingerprint(&mut basics, Time(clock::now().0)) => info,
            };
            let wait = match info.healthy {
                true => {
                    backoff.reset();
                    PERIOD
                }
                false => backoff.delay(),
            };
            self.reported(&key, &instance, info);
            tokio::select! {
                () = end.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = ask.notified() => {}
            }
        }
    }

    fn reported(&self, key: &Key, instance: &Arc<Instance>, info: CsiInfo) {
        let mut instances = self.lock();
        let Some(slot) = instances.get_mut(key).filter(|s| Arc::ptr_eq(&s.instance, instance)) else {
            return;
        };
        if slot.info.same(&info) {
            return;
        }
        slot.info = info.clone();
        // Still under the lock, so that this report can never overwrite a successor's.
        self.inner.node.put_plugin(key.0, info);
        drop(instances);
        self.inner.version.send_modify(|v| *v += 1);
    }

    /// Returns the plugin of a role once it has reported its capabilities, after waiting for at most `patience`. An
    /// unhealthy plugin is returned too, because releasing its volumes may still work.
    pub(crate) async fn plugin(
        &self,
        role: PluginRole,
        plugin: &PluginId,
        patience: Duration,
    ) -> Result<Lent, CsiFault> {
        let key = (role, plugin.clone());
        let mut version = self.inner.version.subscribe();
        let ready = async {
            loop {
                version.borrow_and_update();
                if let Some(lent) = self.ready(&key) {
                    return lent;
                }
                if version.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(patience, ready).await.map_err(|_| CsiFault::NoPlugin {
            role: role.as_str(),
            plugin: plugin.to_string(),
            reason: self
                .lock()
                .get(&key)
                .map_or("it is not running on this node".to_owned(), |s| s.info.health_description.clone()),
        })
    }

    fn ready(&self, key: &Key) -> Option<Lent> {
        let instances = self.lock();
        let slot = instances.get(key)?;
        let reported = slot.info.node_info.is_some() || slot.info.controller_info.is_some();
        reported.then(|| Lent { instance: Arc::clone(&slot.instance), info: slot.info.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.inner.instances.lock()
    }
}
