//! Histograms over `u64` with buckets that grow by powers of two, four to each.
//!
//! openraft counts its batch sizes with a crate of this name. That crate builds lookup tables for every resolution at
//! first
//! use: 27 MiB that stay resident, almost the whole budget of an idle agent. The workspace replaces it by this crate
//! (`[patch.crates-io]`), which has only the interface that openraft uses. `docs/adr/0001-consensus.md` names the
//! condition under which this crate can be removed.

use std::fmt;
use std::marker::PhantomData;

/// The number of buckets for each power of two. Values below this number have one bucket each.
const STEP: usize = 4;
const STEP_BITS: usize = 2;
const BUCKETS: usize = STEP + (u64::BITS as usize - STEP_BITS) * STEP;

/// A count of values by bucket. `T` has no use here; it belongs to the interface that this crate replaces.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: Vec<u64>,
    label: PhantomData<fn() -> T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Histogram<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Histogram").field(&self.percentile_stats()).finish()
    }
}

impl<T> Histogram<T> {
    /// Returns an empty histogram, which takes no memory for buckets before the first value.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: Vec::new(), label: PhantomData }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts one value `times` times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        let bucket = bucket(value);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(times);
    }

    /// Returns the number of counted values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the smallest value of the bucket that contains the value at a rank of `permille` thousandths; 0
    /// without values.
    #[must_use]
    pub fn permille(&self, permille: u64) -> u64 {
        let total = u128::from(self.total());
        let rank = (total * u128::from(permille)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return smallest(bucket);
            }
        }
        0
    }

    /// Returns the usual percentiles.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats {
            samples: self.total(),
            p0_1: self.permille(1),
            p1: self.permille(10),
            p5: self.permille(50),
            p10: self.permille(100),
            p50: self.permille(500),
            p90: self.permille(900),
            p99: self.permille(990),
            p99_9: self.permille(999),
        }
    }
}

/// Returns the bucket of a value: exact below [`STEP`], then by the highest bit and the two bits after it.
fn bucket(value: u64) -> usize {
    let high = (u64::BITS - value.leading_zeros()) as usize;
    if high <= STEP_BITS {
        return usize::try_from(value).unwrap_or(0);
    }
    let shift = high - STEP_BITS - 1;
    let step = usize::try_from(value >> shift).unwrap_or(0) - STEP;
    (STEP + shift * STEP + step).min(BUCKETS - 1)
}

fn smallest(bucket: usize) -> u64 {
    if bucket < STEP {
        return bucket as u64;
    }
    let (shift, step) = ((bucket - STEP) / STEP, (bucket - STEP) % STEP);
    ((STEP + step) as u64) << shift
}

/// The percentiles of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PercentileStats {
    /// The number of counted values.
    pub samples: u64,
    /// The value at 0.1 percent.
    pub p0_1: u64,
    /// The value at 1 percent.
    pub p1: u64,
    /// The value at 5 percent.
    pub p5: u64,
    /// The value at 10 percent.
    pub p10: u64,
    /// The value below which half of the samples lie.
    pub p50: u64,
    /// The value at 90 percent.
    pub p90: u64,
    /// The value at 99 percent.
    pub p99: u64,
    /// The value at 99.9 percent.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, p50, p90, p99, p99_9, .. } = self;
        write!(f, "n={samples} p50={p50} p90={p90} p99={p99} p99.9={p99_9}")
    }
}

/// A text with one line for each histogram.
#[derive(Clone, Debug, Default)]
pub struct AsciiChart(Vec<(String, PercentileStats)>);

impl AsciiChart {
    /// Returns an empty chart.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the chart with another histogram, under a name.
    #[must_use]
    pub fn add<T>(mut self, name: impl Into<String>, histogram: Histogram<T>) -> Self {
        self.0.push((name.into(), histogram.percentile_stats()));
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, stats) in &self.0 {
            writeln!(f, "{name:>24}: {stats}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for bucket_index in 0..BUCKETS {
            let first = smallest(bucket_index);
            assert_eq!(bucket(first), bucket_index);
            if first > 0 {
                assert_eq!(bucket(first - 1), bucket_index - 1);
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_right_to_a_quarter() {
        let mut histogram = Histogram::<()>::new();
        assert_eq!(histogram.permille(500), 0);
        for value in 1..=1000 {
            histogram.record(value);
        }
        histogram.record_n(1_000_000, 10);
        let stats = histogram.percentile_stats();
        assert_eq!(stats.samples, 1010);
        assert!((400..=512).contains(&stats.p50), "{stats}");
        assert!(stats.p99_9 >= 786_432, "{stats}");
    }
}
