//! Small tools that several crates share.

mod keyed_lock;
pub mod percent;

pub use keyed_lock::{KeyedGuard, KeyedLock};
