//! The part of the member table that the server uses.

use crate::runtime;
use caravan_members::View;
use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The table of all known servers.
pub trait Directory: fmt::Debug + Send + Sync + 'static {
    /// Returns a receiver of the table and its changes.
    fn changes(&self) -> watch::Receiver<Arc<View>>;

    /// Announces the cluster of this server, and the server's number in it, to the other servers.
    fn announce(&self, cluster: Uuid, number: u64);

    /// Marks a server that has failed as left.
    fn force_leave(&self, name: String) -> BoxFuture<'static, ()>;
}

impl Directory for caravan_members::Handle {
    fn changes(&self) -> watch::Receiver<Arc<View>> {
        self.changes()
    }

    fn announce(&self, cluster: Uuid, number: u64) {
        let Some(own) = self.own() else { return };
        let (mut tags, this) = (own.server_tags(), self.clone());
        if (tags.cluster, tags.number) == (Some(cluster), Some(number)) {
            return;
        }
        (tags.cluster, tags.number) = (Some(cluster), Some(number));
        runtime::spawn(async move {
            if let Err(error) = this.set_tags(tags).await {
                tracing::warn!(%error, "the cluster of this server could not be reported to other servers");
            }
        });
    }

    fn force_leave(&self, name: String) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move {
            // The membership stops only with the agent.
            let _ = caravan_members::Handle::force_leave(&this, &name, false).await;
        })
    }
}

/// The empty table of a server that runs alone.
#[derive(Debug)]
pub struct NoDirectory(watch::Sender<Arc<View>>);

impl Default for NoDirectory {
    fn default() -> Self {
        Self(watch::Sender::new(Arc::default()))
    }
}

impl Directory for NoDirectory {
    fn changes(&self) -> watch::Receiver<Arc<View>> {
        self.0.subscribe()
    }

    fn announce(&self, _cluster: Uuid, _number: u64) {}

    fn force_leave(&self, _name: String) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
