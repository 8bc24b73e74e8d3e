//! The clocks, timers and tasks of this crate and of openraft: tokio's, unless a simulation replaces them.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[cfg(not(feature = "simulation"))]
mod machine {
    pub(crate) use openraft_rt_tokio::TokioRuntime as Runtime;
    pub(crate) use tokio::time::{sleep_until, timeout};

    /// Reads the monotonic clock.
    pub(crate) fn now() -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}

#[cfg(not(feature = "simulation"))]
pub(crate) use machine::{Runtime, now, sleep_until, timeout};

#[cfg(feature = "simulation")]
pub(crate) use crate::sim::{Runtime, now, sleep_until, timeout};

/// Returns the total time for which this machine was suspended: `CLOCK_MONOTONIC` does not advance meanwhile.
pub(crate) fn suspended() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(suspended) = crate::sim::suspended() {
        return suspended;
    }
    let clock = |id| {
        let time = clock_gettime(id);
        let part = |n: i64| u64::try_from(n).unwrap_or(0);
        Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
    };
    // In this order, so that a delay in between makes the difference smaller.
    let boot = clock(ClockId::Boottime);
    boot.saturating_sub(clock(ClockId::Monotonic))
}

/// Returns whether a test planted a fault in this crate; see `sim::Plant`.
#[cfg(feature = "simulation")]
macro_rules! planted {
    ($fault:ident) => {
        $crate::sim::is_planted($crate::sim::Plant::$fault)
    };
}

/// Returns `false`: only the simulation plants faults.
#[cfg(not(feature = "simulation"))]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

pub(crate) use planted;
