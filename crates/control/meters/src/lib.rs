//! Counters and timings since the start of the agent, by name and labels, in bounded memory.
//!
//! Components record events with [`Meters::count`] and [`Meters::time`]; the endpoint `/v1/metrics` reads all of them
//! with [`Meters::readings`]. Values derived from the state are not stored here: each request computes them.

mod recent;

pub use recent::{QUANTILES, Quantiles, Recent};

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of series. Labels may contain names of jobs, which accumulate over time. Beyond this number,
/// the least recently updated series is removed.
pub const MAX_SERIES: usize = 2048;

/// Label names with their values.
pub type Labels = Vec<(&'static str, String)>;

/// The statistics of the values of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: f64,
    /// The sum of the squares of the values.
    pub sum_of_squares: f64,
    /// The smallest value; 0 without values.
    pub min: f64,
    /// The largest value; 0 without values.
    pub max: f64,
}

impl Aggregate {
    /// Returns the statistics of `count` values of one.
    pub fn counted(count: u64) -> Self {
        let sum = whole(count);
        let one = if count > 0 { 1.0 } else { 0.0 };
        Self { count, sum, sum_of_squares: sum, min: one, max: one }
    }

    /// Adds a value.
    pub fn note(&mut self, value: f64) {
        (self.min, self.max) = match self.count {
            0 => (value, value),
            _ => (self.min.min(value), self.max.max(value)),
        };
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    /// Adds a duration, in milliseconds.
    pub fn note_time(&mut self, took: Duration) {
        self.note(took.as_secs_f64() * 1000.0);
    }

    /// Returns the mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.count > 0 { self.sum / whole(self.count) } else { 0.0 }
    }

    /// Returns the standard deviation of the sample; 0 with fewer than two values.
    pub fn deviation(&self) -> f64 {
        let n = whole(self.count);
        match self.count {
            0 | 1 => 0.0,
            _ => ((self.sum_of_squares - self.sum * self.sum / n) / (n - 1.0)).max(0.0).sqrt(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn whole(n: u64) -> f64 {
    n as f64
}

/// A name with labels, and the statistics of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name without a prefix, words joined by dots: `worker.submit_plan`.
    pub name: &'static str,
    /// The labels, ordered by name.
    pub labels: Labels,
    /// The statistics of the values; durations in milliseconds.
    pub values: Aggregate,
    /// The quantiles of the latest values of a sample; absent for a counter.
    pub quantiles: Quantiles,
}

/// All series at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// The series of events.
    pub counters: Vec<Series>,
    /// The series of durations.
    pub samples: Vec<Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Counter,
    Sample,
}

type Key = (Kind, &'static str, Labels);

/// The stored state of a series.
#[derive(Debug, Default)]
struct Row {
    values: Aggregate,
    recent: Recent,
    /// The clock at the last value.
    at: u64,
}

#[derive(Debug, Default)]
struct Kept {
    series: BTreeMap<Key, Row>,
    /// A counter of all values, which shows the series that was updated least recently.
    clock: u64,
}

/// The counters and timings of one agent. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Meters(Arc<Mutex<Kept>>);

impl Meters {
    /// Records one event.
    pub fn count(&self, name: &'static str, labels: &[(&'static str, &str)]) {
        self.note(Kind::Counter, name, labels, 1.0);
    }

    /// Records a duration.
    pub fn time(&self, name: &'static str, took: Duration, labels: &[(&'static str, &str)]) {
        self.note(Kind::Sample, name, labels, took.as_secs_f64() * 1000.0);
    }

    /// Returns all series, ordered by name and labels.
    pub fn readings(&self) -> Readings {
        let mut reported = Readings::default();
        let now = Instant::now();
        for ((kind, name, labels), row) in &self.kept().series {
            let quantiles = row.recent.quantiles(now);
            let series = Series { name, labels: labels.clone(), values: row.values, quantiles };
            match kind {
                Kind::Counter => reported.counters.push(series),
                Kind::Sample => reported.samples.push(series),
            }
        }
        reported
    }

    fn note(&self, kind: Kind, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut kept = self.kept();
        kept.clock += 1;
        let now = kept.clock;
        let key = (kind, name, labels);
        if kept.series.len() >= MAX_SERIES && !kept.series.contains_key(&key) {
            let oldest = kept.series.iter().min_by_key(|(_, row)| row.at).map(|(key, _)| key.clone());
            oldest.map(|key| kept.series.remove(&key));
        }
        let row = kept.series.entry(key).or_default();
        row.values.note(value);
        row.at = now;
        if kind == Kind::Sample {
            row.recent.note(Instant::now(), value);
        }
    }

    /// Locks the series. Each holder makes one complete change, so a panic leaves no partial change.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_summed_up() {
        let mut values = Aggregate::default();
        assert_eq!((values.mean(), values.deviation()), (0.0, 0.0));
        for millis in [2, 4] {
            values.note_time(Duration::from_millis(millis));
        }
        assert_eq!(
            (values.count, values.sum, values.min, values.max, values.mean()),
            (2, 6.0, 2.0, 4.0, 3.0)
        );
        assert!((values.deviation() - 2f64.sqrt()).abs() < 1e-9);
        assert_eq!(Aggregate::counted(3).max, 1.0);
        assert_eq!(Aggregate::counted(0).max, 0.0);
    }

    #[test]
    fn series_differ_by_kind_name_and_labels() {
        let meters = Meters::default();
        meters.count("a", &[("job", "x")]);
        meters.clone().count("a", &[("job", "x")]);
        meters.count("a", &[("job", "y")]);
        meters.time("a", Duration::from_millis(5), &[]);
        let reported = meters.readings();
        let counts: Vec<_> =
            reported.counters.iter().map(|s| (s.labels[0].1.as_str(), s.values.count)).collect();
        assert_eq!(counts, [("x", 2), ("y", 1)]);
        assert_eq!((reported.samples.len(), reported.samples[0].values.sum), (1, 5.0));
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let meters = Meters::default();
        for n in 0..2 * MAX_SERIES {
            meters.count("often", &[]);
            meters.count("once", &[("job", &n.to_string())]);
        }
        let reported = meters.readings();
        assert_eq!(reported.counters.len(), MAX_SERIES);
        let often = reported.counters.iter().find(|s| s.name == "often");
        assert_eq!(often.map(|s| s.values.count), Some(2 * MAX_SERIES as u64));
    }
}
