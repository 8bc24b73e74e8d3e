//! The ages of rows, which ignore steps of the wall clock.
//!
//! Rows carry wall times. For example, the wall clock of a server is set forward by a day, so every row is
//! immediately a day older. Allocations would be collected, and drains would reach their deadline. [`Aging`] detects
//! such a step by comparing two clocks. It ignores the step until everything written before the step is old without
//! it.

use crate::core::{Core, Moment};
use caravan_types::{BootInstant, Nanos, UnixNanos};
use parking_lot::Mutex;
use std::sync::Arc;

/// The smallest difference between two readings that is a step; smaller differences are drift.
const MIN_STEP: i64 = 1_000_000_000;
/// The minimum time for which a step is kept: deadlines of drains and deployments may be this far ahead.
const MIN_KEPT: Nanos = Nanos(24 * 3600 * 1_000_000_000);

/// The steps of the wall clock that this server has observed; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Aging(Arc<Mutex<Steps>>);

impl Aging {
    /// Returns an empty record. `longest` is the greatest age that callers compare.
    pub(crate) fn new(longest: Nanos) -> Self {
        Self(Arc::new(Mutex::new(Steps { kept: longest.max(MIN_KEPT), last: None, forward: Vec::new() })))
    }
}

#[derive(Debug)]
struct Steps {
    /// The time for which a step is ignored.
    kept: Nanos,
    last: Option<Moment>,
    /// The observed forward steps of the clock: the time of each, and its size in nanoseconds.
    forward: Vec<(BootInstant, i64)>,
}

impl Steps {
    /// Records a reading of the clocks and returns the wall time without the forward steps.
    fn read(&mut self, moment: Moment) -> UnixNanos {
        if let Some(last) = self.last.replace(moment) {
            let step =
                moment.wall.0.saturating_sub(last.wall.0).saturating_sub(moment.boot.since(last.boot).0);
            if step >= MIN_STEP {
                self.forward.push((moment.boot, step));
            } else if step <= -MIN_STEP {
                self.set_back(step.saturating_neg());
            }
        }
        self.forward.retain(|(at, _)| moment.boot.since(*at) < self.kept);
        let left_out: i64 = self.forward.iter().fold(0, |sum, (_, by)| sum.saturating_add(*by));
        UnixNanos(moment.wall.0.saturating_sub(left_out))
    }

    /// Cancels the last forward steps by a backward step.
    fn set_back(&mut self, mut by: i64) {
        while let Some((_, last)) = self.forward.last_mut() {
            if *last > by {
                *last -= by;
                return;
            }
            by -= *last;
            self.forward.pop();
        }
    }
}

impl Core {
    /// Returns the time with which the wall times of rows are compared to decide whether a row is old.
    pub(crate) fn aged(&self) -> UnixNanos {
        let moment = self.clock.read();
        // Each lock holder makes one complete change, so a panic leaves the data consistent.
        self.aging.0.lock().read(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn steps() -> Steps {
        Steps { kept: Nanos(24 * HOUR), last: None, forward: Vec::new() }
    }

    fn at(boot_hours: i64, wall_hours: i64) -> Moment {
        let boot = BootInstant::from_nanos(5).plus(Nanos(boot_hours * HOUR));
        Moment { wall: UnixNanos(wall_hours * HOUR), boot }
    }

    fn hours(time: UnixNanos) -> i64 {
        time.0 / HOUR
    }

    #[test]
    fn a_step_forward_makes_nothing_old() {
        let mut steps = steps();
        assert_eq!(hours(steps.read(at(0, 100))), 100);
        assert_eq!(hours(steps.read(at(1, 101))), 101);
        // The clock is set forward by two days.
        assert_eq!(hours(steps.read(at(2, 150))), 102);
        assert_eq!(hours(steps.read(at(3, 151))), 103);
        // Rows from before the step have reached the greatest age.
        assert_eq!(hours(steps.read(at(26, 174))), 174);
    }

    #[test]
    fn a_step_back_undoes_steps_forward() {
        let mut steps = steps();
        steps.read(at(0, 100));
        steps.read(at(1, 149));
        assert_eq!(hours(steps.read(at(2, 102))), 102);
        // A backward step alone delays the collection of rows.
        assert_eq!(hours(steps.read(at(3, 50))), 50);
        assert_eq!(hours(steps.read(at(4, 61))), 51);
    }

    #[tokio::test]
    async fn the_server_leaves_the_steps_of_its_clock_out() {
        let (core, clock) = Core::with_clock(at(0, 100)).await;
        assert_eq!(hours(core.aged()), 100);
        *clock.lock() = at(1, 1000);
        assert_eq!((hours(core.aged()), hours(core.now())), (101, 1000));
    }

    #[test]
    fn drift_is_no_step() {
        let mut steps = steps();
        let moment = at(0, 100);
        steps.read(moment);
        let later = Moment { wall: moment.wall.plus(Nanos(HOUR + 400_000_000)), ..at(1, 0) };
        assert_eq!(steps.read(later), later.wall);
    }
}
