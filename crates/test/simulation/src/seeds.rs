//! Runs of many seeds, on several threads.

use crate::Outcome;
use parking_lot::Mutex;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs seeds in ascending order, one on each of `jobs` threads at a time, and passes each outcome to
/// `each` immediately. After a break, no further seed begins; the seeds in progress are completed, so the
/// lowest seed that breaks is always reported.
pub fn run_seeds(
    seeds: Range<u64>,
    jobs: usize,
    run: impl Fn(u64) -> Outcome + Sync,
    each: impl Fn(Outcome) -> ControlFlow<()> + Sync,
) {
    let (left, over) = (Mutex::new(seeds), AtomicBool::new(false));
    let next = || if over.load(Ordering::SeqCst) { None } else { left.lock().next() };
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    if each(run(seed)).is_break() {
                        over.store(true, Ordering::SeqCst);
                    }
                }
            });
        }
    });
}

/// Returns the outcome of the lowest seed with a violation.
pub fn first_violation(
    seeds: Range<u64>,
    jobs: usize,
    run: impl Fn(u64) -> Outcome + Sync,
) -> Option<Outcome> {
    let found: Mutex<Option<Outcome>> = Mutex::new(None);
    run_seeds(seeds, jobs, run, |outcome| {
        if outcome.violation.is_none() {
            return ControlFlow::Continue(());
        }
        let mut found = found.lock();
        if found.as_ref().is_none_or(|before| outcome.seed < before.seed) {
            *found = Some(outcome);
        }
        ControlFlow::Break(())
    });
    found.into_inner()
}

/// Returns the number of processors.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
