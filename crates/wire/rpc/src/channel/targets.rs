//! The servers that a client may connect to.

use std::sync::Arc;
use tokio::sync::watch;

/// Addresses of servers, `host:port`. Clones share one list, which may change while connections are open. Connections
/// to a removed server are closed.
#[derive(Clone, Debug)]
pub struct Targets(Arc<watch::Sender<Vec<String>>>);

impl From<Vec<String>> for Targets {
    fn from(list: Vec<String>) -> Self {
        Self(Arc::new(watch::Sender::new(list)))
    }
}

impl Targets {
    /// Returns the servers, in the order in which they are tried.
    pub fn list(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Replaces the list.
    pub fn set(&self, list: Vec<String>) {
        self.0.send_replace(list);
    }

    pub(crate) fn has(&self, target: &str) -> bool {
        self.0.borrow().iter().any(|known| known == target)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Vec<String>> {
        self.0.subscribe()
    }
}
