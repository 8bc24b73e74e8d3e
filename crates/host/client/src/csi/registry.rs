//! The dynamic plugin registry: the allocations that serve the plugins of this node (docs/reference/storage.md,
//! section 2, with docs/design/rough-edges.md, 1, 2, 3, 5 and 6 fixed).
//!
//! [`Registrations`] is the pure part: several allocations may be registered for one role and name, and the newest
//! healthy one serves. [`Registry`] makes it durable and notifies listeners of every change.

use crate::state::Store;
use caravan_types::job::CsiPluginType;
use caravan_types::plugin::PluginRole;
use caravan_types::{AllocId, PluginId};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::broadcast;

/// An allocation that serves a plugin in one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    /// Controller or node.
    pub(crate) role: PluginRole,
    /// Id of the plugin.
    pub(crate) name: PluginId,
    /// The allocation that serves the plugin.
    pub(crate) alloc: AllocId,
    /// The type in the job file, which names the directory of the plugin root.
    pub(crate) kind: CsiPluginType,
    /// The plugin's own name (GetPluginInfo).
    pub(crate) provider: String,
    /// The plugin's version (GetPluginInfo).
    pub(crate) version: String,
    /// Path of the socket on the host.
    pub(crate) socket: PathBuf,
    /// Plugin root on the host.
    pub(crate) host_root: PathBuf,
    /// Plugin root as the plugin sees it.
    pub(crate) plugin_root: PathBuf,
    /// The health that the supervisor last found.
    pub(crate) healthy: bool,
}

impl Registration {
    /// Returns the key under which allocations compete.
    pub(crate) fn key(&self) -> Key {
        (self.role, self.name.clone())
    }
    /// Returns whether both reach the same process in the same way, independent of their health.
    pub(crate) fn same_endpoint(&self, other: &Self) -> bool {
        Self { healthy: other.healthy, ..self.clone() } == *other
    }
}

/// Role and plugin id.
pub(crate) type Key = (PluginRole, PluginId);

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The role and plugin that changed.
    pub(crate) key: Key,
    /// The allocation that was registered or deregistered, or changed its health.
    pub(crate) alloc: AllocId,
    /// The kind of the change.
    pub(crate) kind: ChangeKind,
}

/// The kinds of changes of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// The registration is new, or has another socket or version.
    Registered,
    /// The registration was removed.
    Deregistered,
    /// The plugin changed between healthy and unhealthy.
    Health,
}

/// All registrations of a node: for each role and name, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registrations {
    entries: Vec<Registration>,
}

impl Registrations {
    /// Adds a registration, or replaces the registration of the same allocation, whose age stays.
    pub(crate) fn register(&mut self, new: Registration) -> Option<Change> {
        let change = |kind| Change { key: new.key(), alloc: new.alloc.clone(), kind };
        let known = self.entries.iter_mut().find(|r| r.alloc == new.alloc && r.key() == new.key());
        match known {
            Some(old) if *old == new => None,
            Some(old) => {
                let kind = if old.same_endpoint(&new) { ChangeKind::Health } else { ChangeKind::Registered };
                let change = change(kind);
                *old = new;
                Some(change)
            }
            None => {
                let change = change(ChangeKind::Registered);
                self.entries.push(new);
                Some(change)
            }
        }
    }

    /// Removes the registration of exactly this role, name and allocation.
    pub(crate) fn deregister(&mut self, key: &Key, alloc: &AllocId) -> Option<Change> {
        let at = self.entries.iter().position(|r| r.alloc == *alloc && r.key() == *key)?;
        self.entries.remove(at);
        Some(Change { key: key.clone(), alloc: alloc.clone(), kind: ChangeKind::Deregistered })
    }

    /// Sets the health of a registration.
    pub(crate) fn set_health(&mut self, key: &Key, alloc: &AllocId, healthy: bool) -> Option<Change> {
        let entry = self.entries.iter_mut().find(|r| r.alloc == *alloc && r.key() == *key)?;
        if entry.healthy == healthy {
            return None;
        }
        entry.healthy = healthy;
        Some(Change { key: key.clone(), alloc: alloc.clone(), kind: ChangeKind::Health })
    }

    /// Returns the registration that serves: the newest healthy one, or else the newest.
    pub(crate) fn current(&self, key: &Key) -> Option<&Registration> {
        let mut newest_first = self.entries.iter().rev().filter(|r| r.key() == *key);
        newest_first.clone().find(|r| r.healthy).or_else(|| newest_first.next())
    }

    /// Returns the serving registration of every role and name.
    pub(crate) fn serving(&self) -> BTreeMap<Key, Registration> {
        let keys = self.entries.iter().map(Registration::key);
        keys.filter_map(|key| self.current(&key).cloned().map(|r| (key, r))).collect()
    }

    /// Returns the registration of an allocation.
    pub(crate) fn of_alloc(&self, key: &Key, alloc: &AllocId) -> Option<&Registration> {
        self.entries.iter().find(|r| r.alloc == *alloc && r.key() == *key)
    }

    /// Removes the registrations of allocations that do not exist any more.
    pub(crate) fn retain_allocs(&mut self, exists: impl Fn(&AllocId) -> bool) {
        self.entries.retain(|r| exists(&r.alloc));
    }
}

/// The registry of a running client. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registrations: Mutex<Registrations>,
    /// The changes for listeners. A listener that falls behind loses changes, receives an error, and reads the whole
    /// registry again. Registering never waits for listeners.
    changes: broadcast::Sender<Change>,
    store: Store,
}

impl Registry {
    /// Restores the stored registrations, without the registrations of removed allocations.
    pub(crate) fn restore(
        mut registrations: Registrations,
        store: Store,
        exists: impl Fn(&AllocId) -> bool,
    ) -> Self {
        registrations.retain_allocs(exists);
        let (changes, _) = broadcast::channel(64);
        Self { inner: Arc::new(Inner { registrations: Mutex::new(registrations), changes, store }) }
    }

    /// Subscribes to changes. Subscribe first, then read.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Change> {
        self.inner.changes.subscribe()
    }

    /// Adds or replaces a registration; durable when this returns.
    pub(crate) async fn register(&self, registration: Registration) {
        self.update(|all| all.register(registration)).await;
    }

    /// Removes the registration of exactly this role, name and allocation.
    pub(crate) async fn deregister(&self, key: &Key, alloc: &AllocId) {
        self.update(|all| all.deregister(key, alloc)).await;
    }

    /// Sets the health of a registration; durable when this returns.
    pub(crate) async fn set_health(&self, key: &Key, alloc: &AllocId, healthy: bool) {
        self.update(|all| all.set_health(key, alloc, healthy)).await;
    }

    /// Returns the registration that serves a role and name.
    pub(crate) fn current(&self, key: &Key) -> Option<Registration> {
        self.lock().current(key).cloned()
    }

    /// Returns the registration of an allocation.
    pub(crate) fn of_alloc(&self, key: &Key, alloc: &AllocId) -> Option<Registration> {
        self.lock().of_alloc(key, alloc).cloned()
    }

    /// Returns the serving registration of every role and name.
    pub(crate) fn serving(&self) -> BTreeMap<Key, Registration> {
        self.lock().serving()
    }

    async fn update(&self, change: impl FnOnce(&mut Registrations) -> Option<Change>) {
        let stored = {
            let mut all = self.lock();
            let Some(change) = change(&mut all) else { return };
            // Queued under the lock: the stored order is the order of the changes.
            let stored = self.inner.store.put_registry(&all);
            // An error means that there is no listener: listeners read the whole registry when they start.
            let _ = self.inner.changes.send(change);
            stored
        };
        stored.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, Registrations> {
        self.inner.registrations.lock()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn registration(role: PluginRole, name: &str, alloc: &str) -> Registration {
        Registration {
            role,
            name: name.into(),
            alloc: alloc.into(),
            kind: CsiPluginType::Monolith,
            provider: "p".into(),
            version: "1".into(),
            socket: format!("/run/{alloc}/csi.sock").into(),
            host_root: "/var/csi".into(),
            plugin_root: "/local/csi".into(),
            healthy: true,
        }
    }

    fn key() -> Key {
        (PluginRole::Node, "p".into())
    }

    fn serving(all: &Registrations) -> Option<&str> {
        all.current(&key()).map(|r| r.alloc.as_str())
    }

    #[test]
    fn the_newest_healthy_one_serves_and_earlier_ones_stay() {
        let mut all = Registrations::default();
        all.register(registration(PluginRole::Node, "p", "old"));
        all.register(Registration { healthy: false, ..registration(PluginRole::Node, "p", "new") });
        assert_eq!(serving(&all), Some("old"));
        assert!(all.set_health(&key(), &"new".into(), true).is_some());
        assert_eq!(serving(&all), Some("new"));
        all.deregister(&key(), &"new".into());
        assert_eq!(serving(&all), Some("old"));
    }

    #[test]
    fn deregistering_one_never_touches_another() {
        let mut all = Registrations::default();
        all.register(registration(PluginRole::Node, "p", "a"));
        all.register(registration(PluginRole::Controller, "p", "a"));
        assert_eq!(all.deregister(&key(), &"b".into()), None, "no event for one that is not there");
        assert!(all.deregister(&key(), &"a".into()).is_some());
        assert!(all.current(&(PluginRole::Controller, "p".into())).is_some());
    }

    #[test]
    fn a_new_socket_of_the_same_allocation_is_taken_up() {
        let mut all = Registrations::default();
        all.register(registration(PluginRole::Node, "p", "a"));
        assert_eq!(all.register(registration(PluginRole::Node, "p", "a")), None);
        let moved = Registration { socket: "/else".into(), ..registration(PluginRole::Node, "p", "a") };
        assert_eq!(all.register(moved).map(|c| c.kind), Some(ChangeKind::Registered));
        assert_eq!(all.current(&key()).map(|r| r.socket.clone()), Some("/else".into()));
    }

    proptest! {
        /// Starts and stops of one plugin's allocations in any order: the newest remaining one serves, and nothing
        /// remains once all have stopped.
        #[test]
        fn any_interleaving_leaves_the_newest_that_runs(steps in prop::collection::vec((0u8..4, any::<bool>()), 0..60)) {
            let mut all = Registrations::default();
            let mut model: Vec<String> = Vec::new();
            for (n, start) in steps {
                let alloc = format!("alloc-{n}");
                if start {
                    let event = all.register(registration(PluginRole::Node, "p", &alloc));
                    prop_assert_eq!(event.is_some(), !model.contains(&alloc));
                    if !model.contains(&alloc) {
                        model.push(alloc);
                    }
                } else {
                    let event = all.deregister(&key(), &alloc.as_str().into());
                    prop_assert_eq!(event.is_some(), model.contains(&alloc));
                    model.retain(|a| *a != alloc);
                }
                prop_assert_eq!(serving(&all), model.last().map(String::as_str));
            }
        }

        #[test]
        fn what_is_stored_is_what_comes_back(names in prop::collection::vec("[a-c]", 0..6)) {
            let mut all = Registrations::default();
            for (n, name) in names.iter().enumerate() {
                all.register(registration(PluginRole::Controller, name, &n.to_string()));
            }
            let bytes = rmp_serde::to_vec_named(&all).unwrap();
            prop_assert_eq!(rmp_serde::from_slice::<Registrations>(&bytes).unwrap(), all);
        }
    }
}
