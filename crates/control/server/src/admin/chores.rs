//! The periodic maintenance of operators' objects: it activates prepublished keys and removes expired tokens.

use super::Admin;
use crate::runtime::{self, Interval, select};
use caravan_state::{Table, Topic};
use caravan_types::Nanos;
use caravan_types::operator::RootKeyState;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval between checks for expired tokens.
const ROUND: Duration = Duration::from_secs(300);
/// The longest wait for a key, so that a step of the clock is noticed.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The service that performs the maintenance on the leader.
#[derive(Debug)]
pub(crate) struct Chores(Admin);

/// The service that loads root keys from the state, on every server.
#[derive(Debug)]
pub(crate) struct KeyLoader(Admin);

impl KeyLoader {
    pub(crate) fn new(admin: Admin) -> Self {
        Self(admin)
    }

    /// Loads root keys until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut keys = self.0.core.store.watch().on(Topic::Table(Table::RootKeys)).start();
        loop {
            // A server without the key of the cluster has not been admitted yet.
            if self.0.core.keyring.cluster_key().is_some() {
                self.0.load_keys(&self.0.core.snapshot());
            }
            select! {
                () = cancel.cancelled() => return,
                () = keys.changed() => {}
            }
        }
    }
}

impl Chores {
    pub(crate) fn new(admin: Admin) -> Self {
        Self(admin)
    }

    /// Performs the maintenance until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut keys = self.0.core.store.watch().on(Topic::Table(Table::RootKeys)).start();
        let mut round = Interval::new(ROUND);
        self.0.drop_parts_of_earlier_terms().await;
        loop {
            select! {
                () = cancel.cancelled() => return,
                () = keys.changed() => self.settle_keys().await,
                () = runtime::sleep(self.until_publish()) => self.settle_keys().await,
                _ = round.tick() => {
                    if let Err(error) = self.0.collect_expired().await {
                        tracing::warn!(%error, "expired tokens could not be deleted; retrying");
                    }
                }
            }
        }
    }

    async fn settle_keys(&self) {
        if let Err(error) = self.0.settle_keys().await {
            tracing::warn!(%error, "the root keys could not be written or activated");
        }
    }

    /// Returns the time until a prepublished key becomes active.
    fn until_publish(&self) -> Duration {
        let (root, now) = (self.0.core.snapshot(), self.0.core.now());
        let ahead = root.root_keys().filter(|key| key.state == RootKeyState::Prepublished);
        let next = ahead.map(|key| key.publish_time.since(now)).min();
        next.map_or(MAX_WAIT, |wait| wait.max(Nanos::from_millis(1)).to_std().min(MAX_WAIT))
    }
}
