//! A cache of answers for dashboards and scripts that poll the same lists.
//! An answer is valid only for the exact state that produced it and for the same token. A cached answer therefore
//! never shows more than a fresh one.

use crate::compress::Coding;
use bytes::Bytes;
use caravan_state::Root;
use http::{HeaderMap, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Maximum bytes of all kept answers, and of the largest one.
const BUDGET: usize = 32 * 1024 * 1024;
const LARGEST: usize = 8 * 1024 * 1024;

/// Maximum age of an answer, because tokens expire with time and not with a state change.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The parts of a request that make answers differ although the state is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The path and query as received.
    pub(crate) uri: String,
    pub(crate) coding: Option<Coding>,
    /// All headers that identify the caller.
    pub(crate) credentials: Vec<Bytes>,
    /// Whether this server leads, because answers report whether there is a leader.
    pub(crate) is_leader: bool,
}

/// An encoded answer.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The cached answers.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    of: Weak<Root>,
    answers: HashMap<Key, (Instant, Ready)>,
    bytes: usize,
}

impl Answers {
    /// Locks the cache.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }

    /// Returns the answer that was produced from this state, if there is one.
    pub(crate) fn get(&self, root: &Arc<Root>, key: &Key, now: Instant) -> Option<Ready> {
        let kept = self.lock();
        if !std::ptr::eq(kept.of.as_ptr(), Arc::as_ptr(root)) {
            return None;
        }
        let (made, ready) = kept.answers.get(key)?;
        (now.saturating_duration_since(*made) < MAX_AGE).then(|| ready.clone())
    }

    /// Stores an answer. `root` is the newest state from before the answer was produced; answers from
    /// older states are dropped.
    pub(crate) fn put(&self, root: &Arc<Root>, key: Key, now: Instant, ready: Ready) {
        if ready.body.len() > LARGEST {
            return;
        }
        let mut kept = self.lock();
        // The weak pointer prevents reuse of the address.
        if !std::ptr::eq(kept.of.as_ptr(), Arc::as_ptr(root)) || kept.bytes + ready.body.len() > BUDGET {
            *kept = Kept { of: Arc::downgrade(root), ..Kept::default() };
        }
        kept.bytes += ready.body.len();
        if let Some(old) = kept.answers.insert(key, (now, ready)) {
            kept.bytes -= old.1.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uri: &str) -> Key {
        Key { uri: uri.to_owned(), coding: None, credentials: Vec::new(), is_leader: true }
    }

    fn ready(body: &'static str) -> Ready {
        Ready { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn an_answer_is_good_for_its_state_and_its_asker_only() {
        let (cache, now) = (Answers::default(), Instant::now());
        let (one, two) = (Arc::new(Root::default()), Arc::new(Root::default()));
        assert!(cache.get(&one, &key("/a"), now).is_none());
        cache.put(&one, key("/a"), now, ready("x"));
        assert_eq!(cache.get(&one, &key("/a"), now).unwrap().body, "x");
        assert!(cache.get(&two, &key("/a"), now).is_none());
        assert!(cache.get(&one, &key("/a"), now + MAX_AGE).is_none());
        let other = Key { credentials: vec![Bytes::from_static(b"token")], ..key("/a") };
        assert!(cache.get(&one, &other, now).is_none());
        cache.put(&two, key("/b"), now, ready("y"));
        assert!(cache.get(&one, &key("/a"), now).is_none());
        assert_eq!(cache.get(&two, &key("/b"), now).unwrap().body, "y");
    }
}
