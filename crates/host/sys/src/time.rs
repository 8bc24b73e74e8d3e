//! Clocks and the id of the current boot.

use crate::{Error, Result};
use rustix::time::{ClockId, clock_gettime};
use std::io::Read;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time of `CLOCK_BOOTTIME` in nanoseconds: includes suspended time, never goes backwards, starts at zero at each
/// boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Returns the current time.
    pub fn now() -> Self {
        let t = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Returns the time this long after, at most the maximum.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the duration from `earlier` to this time; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the wall clock, which may step at any moment. Use it for display, calendars and expiry; measure durations
/// that protect data with [`BootTime`].
pub fn wall_now() -> SystemTime {
    #[cfg(debug_assertions)]
    if let Some(offset) = stepped::offset() {
        return stepped::add(real_now(), offset);
    }
    real_now()
}

#[expect(clippy::disallowed_methods, reason = "every other reader of the wall clock calls this module")]
fn real_now() -> SystemTime {
    SystemTime::now()
}

/// Returns the wall clock as nanoseconds since the epoch; 0 before it.
pub fn wall_nanos() -> i64 {
    let since = wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Environment variable with the path of a file that contains seconds to add to the wall clock of this process and
/// its children. Tests use it to step the clock of a running agent; builds without debug assertions ignore it.
pub const CLOCK_STEP_VARIABLE: &str = "CARAVAN_TEST_CLOCK_STEP";

/// Steps of the wall clock in tests.
#[cfg(debug_assertions)]
mod stepped {
    use super::{CLOCK_STEP_VARIABLE, Duration, SystemTime};
    use std::path::PathBuf;
    use std::sync::OnceLock;

    /// The path of the file, read once, so that later changes of the environment do not change the clock.
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

    /// Returns the seconds to add now; `None` without the variable or while the file contains no number.
    pub(super) fn offset() -> Option<i64> {
        let file = FILE.get_or_init(|| std::env::var_os(CLOCK_STEP_VARIABLE).map(PathBuf::from)).as_ref()?;
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    pub(super) fn add(now: SystemTime, seconds: i64) -> SystemTime {
        let span = Duration::from_secs(seconds.unsigned_abs());
        let moved = if seconds < 0 { now.checked_sub(span) } else { now.checked_add(span) };
        moved.unwrap_or(now)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_step_goes_either_way() {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
            let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            assert_eq!((since(add(now, 120)), since(add(now, -60))), (1120, 940));
            let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1000);
            assert_eq!(add(early, i64::MIN), early, "beyond what a clock can show");
            assert_eq!(offset(), None);
        }
    }
}

/// Returns the CPU time that all threads of this process have used.
pub fn process() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Returns the id of this boot (random(4)). Process ids and boot times must not be compared across boots.
pub fn boot_id() -> Result<String> {
    static READ: OnceLock<String> = OnceLock::new();
    if let Some(id) = READ.get() {
        return Ok(id.clone());
    }
    let path = "/proc/sys/kernel/random/boot_id";
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|mut f| f.read_to_string(&mut text))
        .map_err(Error::path("read", path))?;
    Ok(READ.get_or_init(|| text.trim().to_owned()).clone())
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
