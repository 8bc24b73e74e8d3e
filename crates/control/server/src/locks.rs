//! Locks on variables: holders keep them by renewals (docs/reference/http-api.md, section 5.9).
//!
//! The holder of each lock is in the shared state. One leader term alone has the renewal deadlines, which start again
//! with the next term.

use crate::core::Core;
use crate::error::ServerError;
use crate::runtime::{self, select};
use crate::variables::VariableFault;
use caravan_state::{Table, Topic};
use caravan_types::command::Change;
use caravan_types::variable::{LockUse, Variable, VariableKey, VariableLock, VariableMetadata};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, RwLock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pause before a release that failed is retried.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Held {
    id: String,
    until: Instant,
}

/// The tracker of lock renewals; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    core: Core,
    held: Arc<Mutex<BTreeMap<VariableKey, Held>>>,
    renewed: Arc<Notify>,
    /// The lock that is held for writing while the release of a variable's lock is in progress.
    releasing: Arc<RwLock<()>>,
}

/// Returns the time for which a lock is held after a renewal: its TTL, and the delay in which no other holder gets
/// the lock.
fn patience(lock: &VariableLock) -> Duration {
    lock.ttl.0.to_std() + lock.lock_delay.0.to_std()
}

impl Locks {
    pub(crate) fn new(core: Core) -> Self {
        Self { core, held: Arc::default(), renewed: Arc::default(), releasing: Arc::default() }
    }

    /// Locks the table of held locks. A panic of a lock holder leaves only complete entries.
    fn held(&self) -> MutexGuard<'_, BTreeMap<VariableKey, Held>> {
        self.held.lock()
    }

    /// Renews a lock for its holder. Returns `None` if another holder has the lock.
    ///
    /// The response promises the holder that no other caller gets the lock for its TTL. Therefore a quorum round that
    /// begins after the request proves that this server leads. For example, a leader without contact to the other
    /// servers could otherwise confirm the lock of its holder. Meanwhile, the next leader could give the lock to
    /// another holder.
    ///
    /// # Errors
    /// If the variable does not exist, its lock is not held, or this server does not lead the term.
    pub(crate) async fn extend(
        &self,
        key: &VariableKey,
        id: &str,
    ) -> Result<Option<VariableMetadata>, ServerError> {
        self.core.log.read_quorum().await.map_err(|error| match error {
            caravan_consensus::Error::NoQuorum => ServerError::NotLeader,
            error => error.into(),
        })?;
        if self.core.term.map(crate::core::Term::number) != Some(self.core.log.metrics().term) {
            return Err(ServerError::NotLeader);
        }
        // A release that was decided earlier takes effect first.
        let _settled = self.releasing.read().await;
        let root = self.core.snapshot();
        let row = root.variable(key).ok_or(VariableFault::NothingToRenew)?;
        let lock = row.lock.as_ref().ok_or(VariableFault::NotLocked)?;
        if lock.id != id {
            return Ok(None);
        }
        self.renew(key, lock);
        Ok(Some(row.metadata()))
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
        {
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
        }
        let mut failed = false;
        for (key, id) in over {
            failed |= !self.release(key, id).await;
        }
        let now = runtime::now();
        let next = self.held().values().map(|known| known.until).filter(|until| *until > now).min();
        let retry = failed.then(|| now + PAUSE);
        [next, retry].into_iter().flatten().min()
    }

    /// Releases a lock, unless it was renewed meanwhile. Returns whether the release needs no retry.
    async fn release(&self, key: VariableKey, id: String) -> bool {
        let _releasing = self.releasing.write().await;
        let now = runtime::now();
        let is_over = self.held().get(&key).is_some_and(|known| known.id == id && known.until <= now);
        if !is_over {
            return true;
        }
        let variable = Box::new(Variable { key: key.clone(), ..Variable::default() });
        let change = Change::VariableWrite { variable, check_index: None, lock: LockUse::Release(id) };
        match self.core.propose(change).await {
            Ok(_) => tracing::info!(variable = %key, "the lock was not renewed and was released"),
            Err(error) => {
                tracing::warn!(variable = %key, %error, "the lock cannot be released; retrying");
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Term;
    use caravan_types::duration::GoDuration;

    /// Returns a core with a variable whose lock has a TTL, and the key of the variable.
    async fn locked(ttl: Duration) -> (Core, VariableKey) {
        let core = Core::in_memory().await;
        let key = VariableKey::new("default", "v");
        let lock = VariableLock {
            id: "a".into(),
            ttl: GoDuration(caravan_types::Nanos::from_std(ttl)),
            ..VariableLock::default()
        };
        let variable = Variable { key: key.clone(), lock: Some(lock), ..Variable::default() };
        let lock = LockUse::Acquire;
        let change = Change::VariableWrite { variable: Box::new(variable), check_index: None, lock };
        core.commit(change).await.unwrap();
        (core, key)
    }

    fn is_held(core: &Core, key: &VariableKey) -> bool {
        core.snapshot().variable(key).is_some_and(|row| row.lock.is_some())
    }

    /// The first release fails because it belongs to a later term.
    #[tokio::test]
    async fn a_release_that_failed_is_made_later() {
        let (core, key) = locked(Duration::ZERO).await;
        let failing = Locks::new(core.in_term(Term::new(1_000)));
        let next = failing.settle().await.expect("the release is tried again");
        assert!(is_held(&core, &key) && next <= runtime::now() + PAUSE);
        let locks = Locks { core: core.clone(), ..failing };
        assert_eq!(locks.settle().await, None);
        assert!(!is_held(&core, &key));
    }

    #[tokio::test]
    async fn a_lock_is_renewed_by_the_leader_of_the_term_only() {
        let (core, key) = locked(Duration::from_secs(3600)).await;
        let locks = Locks::new(core.clone());
        assert!(locks.extend(&key, "a").await.unwrap().is_some());
        assert!(locks.extend(&key, "b").await.unwrap().is_none());
        let earlier = Locks::new(core.in_term(Term::new(1_000)));
        assert!(matches!(earlier.extend(&key, "a").await, Err(ServerError::NotLeader)));
    }

    #[tokio::test]
    async fn a_renewal_waits_for_a_release_that_is_on_its_way() {
        let (core, key) = locked(Duration::from_secs(3600)).await;
        let locks = Locks::new(core.clone());
        let releasing = locks.releasing.clone().write_owned().await;
        let (waiting, renewed) = (locks.clone(), key.clone());
        let renewal = tokio::spawn(async move { waiting.extend(&renewed, "a").await });
        let variable = Box::new(Variable { key: key.clone(), ..Variable::default() });
        let lock = LockUse::Release("a".into());
        core.commit(Change::VariableWrite { variable, check_index: None, lock }).await.unwrap();
        drop(releasing);
        assert!(renewal.await.unwrap().is_err(), "the lock is free");
    }
}
