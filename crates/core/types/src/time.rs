//! Times and durations in the forms that clients read.
//!
//! Three forms exist on the wire (docs/reference/http-api.md, section 2.1): durations are integer nanoseconds
//! ([`Nanos`]), some times are integer nanoseconds since the epoch ([`UnixNanos`]), others are RFC 3339
//! text with `null` for "never" ([`Time`]).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::time::Duration;

/// A duration in nanoseconds; may be negative where a job file permits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// The duration of zero.
    pub const ZERO: Self = Self(0);

    /// Returns a duration of whole seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
    /// Returns a duration of whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    /// Returns a standard duration; a negative duration becomes zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
    /// Converts a standard duration; saturates instead of overflowing.
    pub fn from_std(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Nanos {
    /// Formats the duration in Go's notation, for example `1h0m0s`, `1.5s`, `300ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0;
        if total == 0 {
            return f.write_str("0s");
        }
        if total < 0 {
            f.write_str("-")?;
        }
        let n = total.unsigned_abs();
        if n < 1_000_000_000 {
            let (unit, name) = match n {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "µs"),
                _ => (1_000_000, "ms"),
            };
            return write!(f, "{}{}", decimal(n, unit), name);
        }
        let (hours, minutes) = (n / 3_600_000_000_000, n / 60_000_000_000 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(n % 60_000_000_000, 1_000_000_000))
    }
}

fn decimal(n: u64, unit: u64) -> String {
    let (whole, rest) = (n / unit, n % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let text = format!("{whole}.{rest:0digits$}");
    text.trim_end_matches('0').to_owned()
}

/// Nanoseconds since the epoch, an integer on every wire; 0 means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Returns the instant after a duration; saturates instead of overflowing.
    pub fn plus(self, duration: Nanos) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
    /// Returns the duration since `earlier`; negative if this instant is before it.
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    /// Returns whether this is "never".
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
    /// Returns the whole seconds since the epoch.
    pub fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }
    /// Returns the same instant in the textual form.
    pub fn to_time(self) -> Time {
        Time(self.0)
    }
}

/// A point of `CLOCK_BOOTTIME` (clock_gettime(2)) of the machine that reads it, in nanoseconds; the clock never
/// steps.
///
/// Waits that guard data are measured with this clock. A point has no meaning on another machine or after the next
/// boot.
/// So it is no [`UnixNanos`], and cannot be written into a record or a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// Returns the point a number of nanoseconds after the boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Returns the point after a duration; saturates. A negative duration adds nothing.
    pub fn plus(self, duration: Nanos) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.0).unwrap_or(0)))
    }
    /// Returns the duration since `earlier`; zero if this point is not after it.
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(i64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(i64::MAX))
    }
}

/// A time that JSON shows as RFC 3339 text (`null` when zero) and MessagePack as integer nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Returns whether this is "never".
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
    /// Returns the same instant as integer nanoseconds.
    pub fn to_unix(self) -> UnixNanos {
        UnixNanos(self.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(stamp) => write!(f, "{stamp}"),
            Err(_) => f.write_str("(out of range)"),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_i64(self.0);
        }
        if self.0 == 0 {
            return serializer.serialize_none();
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i64::deserialize(deserializer).map(Time);
        }
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(Self(0));
        };
        if text.is_empty() || text.starts_with("0001-01-01") {
            return Ok(Self(0));
        }
        let stamp: jiff::Timestamp =
            text.parse().map_err(|_| de::Error::custom(format!("\"{text}\" is not an RFC 3339 time")))?;
        Ok(Self(i64::try_from(stamp.as_nanosecond()).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_like_go() {
        for (n, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (300_000_000, "300ms"),
            (1_090_000_000, "1.09s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (-15_000_000_000, "-15s"),
        ] {
            assert_eq!(Nanos(n).to_string(), text);
        }
    }

    #[test]
    fn points_since_the_boot_are_compared_and_never_wrap() {
        let (early, late) = (BootInstant::from_nanos(5), BootInstant::from_nanos(9));
        assert_eq!((late.since(early), early.since(late)), (Nanos(4), Nanos::ZERO));
        assert_eq!((early.plus(Nanos(4)), early.plus(Nanos(-1))), (late, early));
        assert_eq!(BootInstant::from_nanos(u64::MAX).since(BootInstant::default()), Nanos(i64::MAX));
    }

    #[test]
    fn time_is_text_in_json_and_integer_in_messagepack() {
        let t = Time(1_795_247_919_850_012_702);
        let json = serde_json::to_string(&t).unwrap();
        assert_eq!(json, "\"2026-11-21T07:58:39.850012702Z\"");
        assert_eq!(serde_json::from_str::<Time>(&json).unwrap(), t);
        assert_eq!(serde_json::to_string(&Time(0)).unwrap(), "null");
        assert_eq!(serde_json::from_str::<Time>("null").unwrap(), Time(0));
        let packed = rmp_serde::to_vec_named(&t).unwrap();
        assert_eq!(rmp_serde::from_slice::<Time>(&packed).unwrap(), t);
    }
}
