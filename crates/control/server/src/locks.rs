//! Locks on variables: held as long as their holders renew them (docs/reference/http-api.md, section 5.9).
//!
//! The holder of each lock is in the shared state. The renewal deadline is known to this server only, and starts again
//! when the server starts.

use crate::core::Core;
use crate::runtime::{self, select};
use caravan_state::{Table, Topic};
use caravan_types::command::Change;
use caravan_types::variable::{LockUse, Variable, VariableKey, VariableLock};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
struct Held {
    id: String,
    until: Instant,
}

/// Tracks the renewals of locks; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    core: Core,
    held: Arc<Mutex<BTreeMap<VariableKey, Held>>>,
    renewed: Arc<Notify>,
}

/// How long a lock is held after a renewal: its TTL, and the delay in which no other holder gets it.
fn patience(lock: &VariableLock) -> std::time::Duration {
    lock.ttl.0.to_std() + lock.lock_delay.0.to_std()
}

impl Locks {
    pub(crate) fn new(core: Core) -> Self {
        Self { core, held: Arc::default(), renewed: Arc::default() }
    }

    /// A panic leaves only complete entries.
    fn held(&self) -> MutexGuard<'_, BTreeMap<VariableKey, Held>> {
        self.held.lock()
    }

    /// Records a renewal by the holder.
    pub(crate) fn renew(&self, key: &VariableKey, lock: &VariableLock) {
        let held = Held { id: lock.id.clone(), until: runtime::now() + patience(lock) };
        self.held().insert(key.clone(), held);
        self.renewed.notify_one();
    }

    /// Releases locks that are not renewed, until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut watch = self.core.store.watch().on(Topic::Table(Table::Variables)).start();
        loop {
            let next = self.settle().await;
            let due = async {
                match next {
                    Some(at) => runtime::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            select! {
                () = cancel.cancelled() => return,
                () = watch.changed() => {}
                () = self.renewed.notified() => {}
                () = due => {}
            }
        }
    }

    /// Releases expired locks; returns the time of the next check.
    async fn settle(&self) -> Option<Instant> {
        let root = self.core.snapshot();
        let locked: BTreeMap<VariableKey, VariableLock> =
            root.locked_variables().map(|(key, lock)| (key.clone(), lock.clone())).collect();
        let (now, mut over) = (runtime::now(), Vec::new());
        let next = {
            let mut held = self.held();
            held.retain(|key, known| locked.get(key).is_some_and(|lock| lock.id == known.id));
            for (key, lock) in &locked {
                let known = held
                    .entry(key.clone())
                    .or_insert_with(|| Held { id: lock.id.clone(), until: now + patience(lock) });
                if known.until <= now {
                    over.push((key.clone(), lock.id.clone()));
                }
            }
            held.values().map(|known| known.until).filter(|until| *until > now).min()
        };
        for (key, id) in over {
            let variable = Box::new(Variable { key: key.clone(), ..Variable::default() });
            let lock = LockUse::Release(id);
            let change = Change::VariableWrite { variable, check_index: None, lock };
            match self.core.propose(change).await {
                Ok(_) => tracing::info!(variable = %key, "the lock was not renewed and is given up"),
                Err(error) => tracing::warn!(variable = %key, %error, "the lock cannot be given up"),
            }
        }
        next
    }
}
