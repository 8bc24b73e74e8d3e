//! Clocks and the boot they belong to.

use std::io::Read;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Result};

/// A point of `CLOCK_BOOTTIME` in nanoseconds: counts suspended time too, never goes back, starts anew each boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Now.
    pub fn now() -> Self {
        let t = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// The point this long after, at most the end of time.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long from `earlier` to this point; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Processor time that this process has used, all its threads together.
pub fn process() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// The id of this boot (random(4)): pids and boot times mean nothing across two of them.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|mut f| f.read_to_string(&mut text))
        .map_err(Error::path("read", path))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_used() {
        let before = process();
        std::hint::black_box((0..100_000_u64).fold(0, |sum, n| std::hint::black_box(sum + n)));
        assert!(process() > before);
    }

    #[test]
    fn boot_clock_advances_and_the_boot_id_stays() {
        let first = BootTime::now();
        assert!(BootTime::now() >= first);
        assert_eq!(first.after(Duration::from_secs(2)).since(first), Duration::from_secs(2));
        assert_eq!(first.since(first.after(Duration::from_secs(2))), Duration::ZERO);
        let id = boot_id().unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(id, boot_id().unwrap());
    }
}
