//! Small tools that several crates share.

mod build;
mod keyed_lock;
pub mod percent;

pub use build::Build;
pub use keyed_lock::{KeyedGuard, KeyedLock};
