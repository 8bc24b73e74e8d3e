//! Small tools that servers and clients share.

mod keyed_lock;

pub use keyed_lock::{KeyedGuard, KeyedLock};
