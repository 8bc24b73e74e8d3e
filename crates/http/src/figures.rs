//! Counters and samples of metrics: what was measured since the agent started, in the shape that clients know.

use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Measured values, as far as they are told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) sum_of_squares: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Aggregate {
    /// So many times one.
    pub(crate) fn counted(count: u64) -> Self {
        let sum = whole(count);
        let one = if count > 0 { 1.0 } else { 0.0 };
        Self { count, sum, sum_of_squares: sum, min: one, max: one }
    }

    fn note(&mut self, value: f64) {
        (self.min, self.max) = match self.count {
            0 => (value, value),
            _ => (self.min.min(value), self.max.max(value)),
        };
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    /// The shape of a counter and of a sample; `seconds` is the time in which it was measured.
    pub(crate) fn shape(&self, name: &str, seconds: f64, labels: &Value) -> Value {
        let n = whole(self.count);
        let mean = if self.count > 0 { self.sum / n } else { 0.0 };
        let variance = match self.count {
            0 | 1 => 0.0,
            _ => ((self.sum_of_squares - self.sum * self.sum / n) / (n - 1.0)).max(0.0),
        };
        json!({
            "Name": name,
            "Count": self.count,
            "Rate": if seconds > 0.0 { self.sum / seconds } else { 0.0 },
            "Sum": self.sum,
            "Min": self.min,
            "Max": self.max,
            "Mean": mean,
            "Stddev": variance.sqrt(),
            "Labels": labels,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn whole(n: u64) -> f64 {
    n as f64
}

/// The requests that were answered; streams count when they begin.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Aggregate>);

impl Requests {
    /// Notes how long an answer took.
    pub(crate) fn note(&self, took: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(took.as_secs_f64() * 1000.0);
    }

    /// How many there were, and how many milliseconds each took.
    pub(crate) fn told(&self) -> Aggregate {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_summed_up() {
        let requests = Requests::default();
        assert_eq!(requests.told().shape("n", 0.0, &json!({}))["Mean"], 0.0);
        for millis in [2, 4] {
            requests.note(Duration::from_millis(millis));
        }
        let told = requests.told().shape("n", 3.0, &json!({}));
        assert_eq!((&told["Count"], &told["Sum"], &told["Rate"]), (&json!(2), &json!(6.0), &json!(2.0)));
        assert_eq!((&told["Min"], &told["Max"], &told["Mean"]), (&json!(2.0), &json!(4.0), &json!(3.0)));
        assert!((told["Stddev"].as_f64().unwrap() - 2f64.sqrt()).abs() < 1e-9);
        assert_eq!(Aggregate::counted(3).shape("n", 0.0, &json!({}))["Max"], 1.0);
    }
}
