//! The node's lease: the time until which its tasks may use single-writer volumes (docs/design/volumes.md).

use crate::ClientError;
use caravan_shim::lease::{Lease, LeaseWriter, Term};
use caravan_sys::time::BootTime;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Name of the lease file in the client's state directory.
const FILE: &str = "lease";

/// The lease and the file that shims read. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct NodeLease {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    writer: LeaseWriter,
    lease: watch::Sender<Lease>,
}

impl NodeLease {
    /// Opens the lease that an earlier agent had in this boot; its remaining time continues to run.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, ClientError> {
        let path = state_dir.join(FILE);
        let (writer, lease) = LeaseWriter::open(&path).map_err(ClientError::Lease)?;
        Ok(Self { inner: Arc::new(Inner { path, writer, lease: watch::Sender::new(lease) }) })
    }

    fn now(&self) -> Lease {
        *self.inner.lease.borrow()
    }

    /// Renews the lease after an answered call that was sent at `sent`: it then holds for `ttl` from that time.
    pub(crate) fn renew(&self, sent: BootTime, ttl: Duration) {
        let before = self.now();
        let now = BootTime::now();
        let lease = before.renewed(sent, ttl, now);
        // The file comes first: this process must never assume a longer lease than the shims can read.
        if let Err(error) = self.inner.writer.write(lease) {
            tracing::error!(%error, "the node's lease cannot be written: tasks that need it will end");
            return;
        }
        self.inner.lease.send_replace(lease);
        if lease.began != before.began && before != Lease::default() {
            tracing::info!(term = lease.began.0, "the node has a lease again");
        }
    }

    /// Returns the time at which the newest answered call was sent; `None` without an answered call in this boot.
    pub(crate) fn last_contact(&self) -> Option<BootTime> {
        Some(self.now().heard).filter(|at| *at != BootTime::default())
    }

    /// Returns the current term, if the lease holds.
    pub(crate) fn term(&self) -> Option<u64> {
        let lease = self.now();
        lease.holds(BootTime::now()).then_some(lease.began.0)
    }

    /// Returns a term in the form that is passed to shims.
    pub(crate) fn for_shim(&self, began: u64) -> Term {
        Term { file: self.inner.path.clone(), began }
    }

    /// Waits until the node has a lease; returns its term.
    pub(crate) async fn granted(&self) -> u64 {
        let mut changes = self.inner.lease.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(term) = self.term() {
                return term;
            }
            // This value owns the sender, so it is never dropped.
            let _ = changes.changed().await;
        }
    }

    /// Waits until a term has ended.
    pub(crate) async fn over(&self, term: u64) {
        let mut changes = self.inner.lease.subscribe();
        loop {
            let lease = *changes.borrow_and_update();
            let now = BootTime::now();
            if lease.began.0 != term || !lease.holds(now) {
                return;
            }
            tokio::select! {
                // This value owns the sender, so it is never dropped.
                _ = changes.changed() => {}
                () = tokio::time::sleep(lease.deadline.since(now)) => {}
            }
        }
    }

    /// Waits until the servers have not answered for this span; waits for ever if they never did in this boot.
    pub(crate) async fn silent_for(&self, span: Duration) {
        let mut changes = self.inner.lease.subscribe();
        loop {
            changes.borrow_and_update();
            let left = self.last_contact().map(|last| last.after(span).since(BootTime::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            tokio::select! {
                // This value owns the sender, so it is never dropped.
                _ = changes.changed() => {}
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_term_goes_on_while_it_is_renewed_and_another_agent_takes_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let lease = NodeLease::open(dir.path()).unwrap();
        assert_eq!((lease.term(), lease.last_contact()), (None, None));
        let sent = BootTime::now();
        lease.renew(sent, Duration::from_secs(3600));
        let term = lease.granted().await;
        lease.renew(BootTime::now(), Duration::from_secs(3600));
        assert_eq!(lease.term(), Some(term));
        drop(lease);
        let lease = NodeLease::open(dir.path()).unwrap();
        assert_eq!(lease.term(), Some(term));
        assert!(lease.last_contact() >= Some(sent));
        lease.silent_for(Duration::ZERO).await;
        // Shortened into the past: the lease has run out.
        lease.renew(sent, Duration::ZERO);
        lease.over(term).await;
        lease.renew(BootTime::now(), Duration::from_secs(3600));
        assert_ne!(lease.granted().await, term);
        lease.over(term).await;
    }
}
