//! The latest values of a sample, and their quantiles. Pure: the time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The quantiles that a summary contains.
pub const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// The values at [`QUANTILES`]; `None` without recent values.
pub type Quantiles = Option<[f64; 3]>;

/// The time for which a value counts.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of values per series, which bounds its memory.
const MAX_VALUES: usize = 128;

/// The latest values of a sample, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent(VecDeque<(Instant, f64)>);

impl Recent {
    /// Adds a value.
    pub fn note(&mut self, now: Instant, value: f64) {
        if self.0.len() == MAX_VALUES {
            self.0.pop_front();
        }
        self.0.push_back((now, value));
    }

    /// Adds a duration, in milliseconds.
    pub fn note_time(&mut self, now: Instant, took: Duration) {
        self.note(now, took.as_secs_f64() * 1000.0);
    }

    /// Returns the quantiles of the values of the last minute, by the nearest rank.
    pub fn quantiles(&self, now: Instant) -> Quantiles {
        let lately = |(at, _): &&(Instant, f64)| now.saturating_duration_since(*at) <= WINDOW;
        let mut values: Vec<f64> = self.0.iter().filter(lately).map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        // The rank is computed in thousandths, so that it is a whole number.
        let ranked = |thousandths: usize| {
            let rank = (values.len() * thousandths).div_ceil(1000).max(1);
            values.get(rank - 1).copied()
        };
        Some([ranked(500)?, ranked(900)?, ranked(990)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_last_minute() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut recent = Recent::default();
        assert_eq!(recent.quantiles(at(0)), None);
        recent.note(at(0), 1000.0);
        assert_eq!(recent.quantiles(at(0)), Some([1000.0; 3]));
        for value in 1..=100u32 {
            recent.note(at(61), f64::from(value));
        }
        assert_eq!(recent.quantiles(at(61)), Some([50.0, 90.0, 99.0]));
        assert_eq!(recent.quantiles(at(200)), None);
    }

    #[test]
    fn the_newest_values_are_kept() {
        let now = Instant::now();
        let mut recent = Recent::default();
        for value in 0..3 * MAX_VALUES {
            recent.note(now, if value < MAX_VALUES { 1.0 } else { 2.0 });
        }
        assert_eq!(recent.0.len(), MAX_VALUES);
        assert_eq!(recent.quantiles(now), Some([2.0; 3]));
    }
}
