//! The servers that a client may connect to.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// Addresses of servers, `host:port`. Clones share one list, which may change while connections are open. Connections
/// to a removed server are closed.
#[derive(Clone, Debug)]
pub struct Targets {
    list: Arc<watch::Sender<Vec<String>>>,
    /// Addresses that are tried when no server of the list responds. The servers may have moved, and a
    /// configured name may resolve to their new addresses.
    fallback: Arc<Mutex<Vec<String>>>,
}

impl From<Vec<String>> for Targets {
    fn from(list: Vec<String>) -> Self {
        Self { list: Arc::new(watch::Sender::new(list)), fallback: Arc::default() }
    }
}

impl Targets {
    /// Returns the servers, in the order in which they are tried.
    pub fn list(&self) -> Vec<String> {
        self.list.borrow().clone()
    }

    /// Replaces the list.
    pub fn set(&self, list: Vec<String>) {
        self.list.send_replace(list);
    }

    /// Sets the addresses that are tried when no server of the list responds.
    pub fn set_fallback(&self, addresses: Vec<String>) {
        *self.fallback.lock() = addresses;
    }

    /// Returns the fallback addresses that are not in the list.
    pub(crate) fn others(&self) -> Vec<String> {
        let fallback = self.fallback.lock();
        fallback.iter().filter(|address| !self.has(address)).cloned().collect()
    }

    /// Inserts a fallback address at the front of the list, because its server responded and no server of
    /// the list did.
    pub(crate) fn adopt(&self, address: &str) {
        self.list.send_modify(|list| list.insert(0, address.to_owned()));
    }

    pub(crate) fn has(&self, target: &str) -> bool {
        self.list.borrow().iter().any(|known| known == target)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Vec<String>> {
        self.list.subscribe()
    }
}
