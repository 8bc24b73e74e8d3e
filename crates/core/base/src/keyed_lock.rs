//! Locks that are named by a key.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

type Locks<K> = Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>;

/// One lock for each key: at most one guard of a key exists at a time. Waiters of a key are served in the order of
/// their calls. The lock uses memory only for keys with a holder or waiters. Clones share their locks.
pub struct KeyedLock<K: Eq + Hash>(Arc<Locks<K>>);

/// The exclusive right to a key, which is released on drop.
#[must_use = "the lock is released when the guard is dropped"]
pub struct KeyedGuard<K: Eq + Hash> {
    // Fields are dropped in this order: the lock is released before its entry is removed.
    _held: OwnedMutexGuard<()>,
    _entry: Entry<K>,
}

/// A use of the lock of a key, by its holder or a waiter. The last one removes the lock.
struct Entry<K: Eq + Hash> {
    locks: Arc<Locks<K>>,
    key: K,
    lock: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl<K: Eq + Hash + Clone> KeyedLock<K> {
    /// Returns the lock of a key unless it is held or waited for.
    pub fn try_lock(&self, key: &K) -> Option<KeyedGuard<K>> {
        let entry = Entry::new(&self.0, key);
        let held = entry.lock().try_lock_owned().ok()?;
        Some(KeyedGuard { _held: held, _entry: entry })
    }

    /// Waits for the lock of a key. A wait that is dropped leaves nothing behind.
    pub async fn lock(&self, key: &K) -> KeyedGuard<K> {
        let entry = Entry::new(&self.0, key);
        let held = entry.lock().lock_owned().await;
        KeyedGuard { _held: held, _entry: entry }
    }

    /// Waits for the lock of a key, but not longer than `timeout`. A lock that is free is returned also when
    /// `timeout` is zero.
    pub async fn lock_within(&self, key: &K, timeout: Duration) -> Option<KeyedGuard<K>> {
        tokio::time::timeout(timeout, self.lock(key)).await.ok()
    }
}

impl<K: Eq + Hash + Clone> Entry<K> {
    fn new(locks: &Arc<Locks<K>>, key: &K) -> Self {
        let lock = guard(locks).entry(key.clone()).or_default().clone();
        Self { locks: locks.clone(), key: key.clone(), lock: Some(lock) }
    }

    fn lock(&self) -> Arc<tokio::sync::Mutex<()>> {
        self.lock.clone().expect("the lock of an entry is taken only by its drop")
    }
}

impl<K: Eq + Hash> Drop for Entry<K> {
    fn drop(&mut self) {
        let mut locks = guard(&self.locks);
        drop(self.lock.take());
        // Entries are created under the same lock, so no other caller can begin to use this one now.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

/// Locks the table. Each holder makes one complete change, so a panic leaves no partial change.
fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl<K: Eq + Hash> Default for KeyedLock<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash> Clone for KeyedLock<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Eq + Hash + fmt::Debug> fmt::Debug for KeyedLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(guard(&self.0).keys()).finish()
    }
}

impl<K: Eq + Hash + fmt::Debug> fmt::Debug for KeyedGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyedGuard").field(&self._entry.key).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    impl<K: Eq + Hash> KeyedLock<K> {
        fn entries(&self) -> usize {
            guard(&self.0).len()
        }
    }

    #[tokio::test]
    async fn keys_are_apart_and_nothing_is_left_of_them() {
        let locks = KeyedLock::default();
        let one = locks.try_lock(&1).unwrap();
        let two = locks.lock(&2).await;
        assert!(locks.try_lock(&1).is_none() && locks.clone().try_lock(&2).is_none());
        assert_eq!(locks.entries(), 2);
        drop(one);
        assert!(locks.try_lock(&1).is_some());
        assert!(locks.lock_within(&2, Duration::ZERO).await.is_none());
        drop(two);
        assert!(locks.lock_within(&2, Duration::ZERO).await.is_some());
        assert_eq!(locks.entries(), 0);
    }

    #[tokio::test]
    async fn waiters_are_served_in_their_order() {
        let locks = KeyedLock::default();
        let first = locks.lock(&"v").await;
        let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..5 {
            let (locks, order) = (locks.clone(), order.clone());
            tokio::spawn(async move {
                let _guard = locks.lock(&"v").await;
                order.send(n).unwrap();
            });
            // Lets the task begin its wait: the runtime has one thread.
            tokio::task::yield_now().await;
        }
        drop((first, order));
        for n in 0..5 {
            assert_eq!(served.recv().await, Some(n));
        }
        assert_eq!(served.recv().await, None);
        assert_eq!(locks.entries(), 0);
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_keeps_nobody_out() {
        let locks = KeyedLock::default();
        let held = locks.lock(&"v").await;
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(locks.lock(&"v"))).collect();
        for wait in &mut waits {
            assert!(futures_pending(wait).await);
        }
        // The lock passes to the first waiter, which is dropped before it runs again.
        drop(held);
        assert!(locks.try_lock(&"v").is_none(), "waiters come first");
        drop(waits.remove(0));
        let second = waits.remove(0).await;
        drop(waits);
        assert!(locks.try_lock(&"v").is_none());
        drop(second);
        assert_eq!(locks.entries(), 0);
        assert!(locks.try_lock(&"v").is_some());
    }

    /// Polls a future once, and returns whether it is pending.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
        })
        .await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_at_a_time_under_load_with_waits_that_end_early() {
        let (locks, inside) = (KeyedLock::default(), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
        let tasks: Vec<_> = (0_usize..64)
            .map(|n| {
                let (locks, inside, key) = (locks.clone(), inside.clone(), n % 2);
                tokio::spawn(async move {
                    for turn in 0..20 {
                        let timeout = Duration::from_micros(((n * 31 + turn * 17) % 200) as u64);
                        let guard = match turn % 3 {
                            0 => Some(locks.lock(&key).await),
                            1 => locks.lock_within(&key, timeout).await,
                            _ => locks.try_lock(&key),
                        };
                        if guard.is_some() {
                            assert_eq!(inside[key].fetch_add(1, Ordering::SeqCst), 0);
                            tokio::task::yield_now().await;
                            assert_eq!(inside[key].fetch_sub(1, Ordering::SeqCst), 1);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(locks.entries(), 0);
    }

    #[test]
    fn a_panic_releases_the_lock() {
        let locks = KeyedLock::default();
        let inner = locks.clone();
        let panicked = std::thread::spawn(move || {
            let _guard = inner.try_lock(&1).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(locks.try_lock(&1).is_some());
    }
}
