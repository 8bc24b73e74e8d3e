//! Formats values for people: times, ages, sizes, ids, JSON.

use caravan_types::time::{Nanos, Time, UnixNanos};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

/// The current time and the zone in which a command shows times.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The time at which the command started.
    pub(crate) now: UnixNanos,
    /// The zone in which times are shown.
    pub(crate) zone: TimeZone,
}

impl Clock {
    /// Reads the system's clock and zone.
    pub(crate) fn read() -> Self {
        let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
        Self { now: UnixNanos(now), zone: TimeZone::system() }
    }

    /// Formats a time to the second: `2026-11-21T09:22:37Z`.
    pub(crate) fn time(&self, at: UnixNanos) -> String {
        let Ok(stamp) = Timestamp::from_nanosecond(i128::from(at.0)) else {
            return "(out of range)".into();
        };
        let zoned = stamp.to_zoned(self.zone.clone());
        let offset = zoned.offset().seconds();
        let text = zoned.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        if offset == 0 {
            return text + "Z";
        }
        let sign = if offset < 0 { '-' } else { '+' };
        format!("{text}{sign}{:02}:{:02}", offset.abs() / 3600, offset.abs() / 60 % 60)
    }

    /// Formats an optional time; `N/A` if absent.
    pub(crate) fn maybe(&self, at: Time) -> String {
        if at.is_zero() { "N/A".into() } else { self.time(at.to_unix()) }
    }

    /// Formats the current time to the second.
    pub(crate) fn stamp(&self) -> String {
        self.time(self.now)
    }

    /// Formats the age of a time: `2m5s ago`.
    pub(crate) fn ago(&self, at: UnixNanos) -> String {
        if at.is_zero() {
            return "<none>".into();
        }
        format!("{} ago", coarse(self.now.since(at)))
    }

    /// Formats a time for a table: its age, or the time itself if `verbose`.
    pub(crate) fn when(&self, at: UnixNanos, verbose: bool) -> String {
        if verbose { self.time(at) } else { self.ago(at) }
    }
}

/// Formats a time to the nanosecond: `2026-11-21 09:23:40.881275954 +0000 UTC`.
pub(crate) fn go_time(at: Time) -> String {
    let Ok(stamp) = Timestamp::from_nanosecond(i128::from(at.0)) else { return "(out of range)".into() };
    let text = stamp.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S%.f").to_string();
    format!("{text} +0000 UTC")
}

/// Formats a duration by its two largest units: `1h3m`, `2d`, `0s`. Negative durations show as `0s`.
pub(crate) fn coarse(duration: Nanos) -> String {
    const UNITS: [(i64, &str); 6] =
        [(31_536_000, "y"), (2_592_000, "mo"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let secs = (duration.0 / 1_000_000_000).max(0);
    let Some(first) = UNITS.iter().position(|(unit, _)| secs >= *unit) else {
        return "0s".into();
    };
    let (unit, name) = UNITS[first];
    let mut out = format!("{}{name}", secs / unit);
    if let Some((next, name)) = UNITS.get(first + 1) {
        let rest = secs % unit / next;
        if rest > 0 {
            out.push_str(&format!("{rest}{name}"));
        }
    }
    out
}

/// Formats a size in binary units: `3.1 MiB`, `24 GiB`, `0 B`.
#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let value = (value * 10.0).round() / 10.0;
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Formats a number of mebibytes in binary units.
pub(crate) fn mib(n: i64) -> String {
    bytes(u64::try_from(n).unwrap_or(0).saturating_mul(1024 * 1024))
}

/// Formats an id: shortened unless `verbose`.
pub(crate) fn id(id: &str, verbose: bool) -> String {
    if verbose { id.to_owned() } else { id.get(..8).unwrap_or(id).to_owned() }
}

/// Returns `s` unless the count is 1.
pub(crate) fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Formats JSON as Nomad prints it: indented by four spaces, keys sorted.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    json_as_declared(&sorted(serde_json::to_value(value)?))
}

/// Formats JSON indented by four spaces, with keys in the order of the type's fields.
pub(crate) fn json_as_declared<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<(String, Value)> = map.into_iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(pairs.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a clock in UTC that shows the given time.
    pub(crate) fn clock(at: &str) -> Clock {
        let stamp: Timestamp = at.parse().unwrap();
        Clock { now: UnixNanos(i64::try_from(stamp.as_nanosecond()).unwrap()), zone: TimeZone::UTC }
    }

    #[test]
    fn times_are_shown_in_seconds_and_in_the_zone() {
        let mut clock = clock("2026-11-21T09:22:37.85Z");
        assert_eq!(clock.stamp(), "2026-11-21T09:22:37Z");
        clock.zone = TimeZone::fixed(jiff::tz::offset(-3));
        assert_eq!(clock.stamp(), "2026-11-21T06:22:37-03:00");
        assert_eq!(clock.maybe(Time(0)), "N/A");
    }

    #[test]
    fn ages_have_at_most_two_units() {
        for (secs, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (125, "2m5s"), (3_780, "1h3m"), (90_000, "1d1h"), (-5, "0s")]
        {
            assert_eq!(coarse(Nanos::from_secs(secs)), text);
        }
        let clock = clock("2026-11-21T09:22:37Z");
        assert_eq!(clock.ago(UnixNanos(clock.now.0 - 2_500_000_000)), "2s ago");
    }

    #[test]
    fn sizes_are_binary() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3_250_586, "3.1 MiB"),
            (10 * 1024 * 1024, "10 MiB"),
            (24 << 30, "24 GiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn json_is_indented_by_four_with_sorted_keys() {
        let value = serde_json::json!({"b": [1], "a": null});
        assert_eq!(json(&value).unwrap(), "{\n    \"a\": null,\n    \"b\": [\n        1\n    ]\n}");
    }
}
