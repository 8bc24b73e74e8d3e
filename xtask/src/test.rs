//! `cargo xtask test`: builds all programs and tests of the workspace once, then runs the test programs side by side.
//!
//! `cargo test` runs one program after the other, so the processor idles while one test of a program waits. It also
//! leaves some programs to the tests, each of which cargo then builds with other features of the dependencies.

mod build;
mod job;
mod report;

use self::job::{Job, Outcome};
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The time without a finished program after which the running ones are printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// Programs that take long, longest first: they start first. The others follow in the order of their names.
const LONGEST: [&str; 5] = [
    "caravan-e2e/e2e",
    "caravan-machines/machines",
    "caravan-simulation/simulation",
    "caravan-client/client",
    "caravan-docker/docker",
];

/// The number of programs that run at a time.
const PROGRAMS: usize = 2;

/// Builds and runs the tests. Words that are no flags select tests by parts of their names, as for libtest.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(flag) = arguments.iter().find(|argument| argument.starts_with('-')) {
        bail!("unknown flag {flag:?}; usage: cargo xtask test [PART-OF-A-NAME]...");
    }
    let began = Instant::now();
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| caravan_testkit::workspace("target"), PathBuf::from);
    let logs = target.join("test-logs");
    std::fs::create_dir_all(&logs).context("creating the folder of logs")?;
    let built = build::all()?;
    let mut jobs: Vec<Job> = built.jobs(arguments);
    jobs.sort_by_key(|job| LONGEST.iter().position(|name| *name == job.name()).unwrap_or(LONGEST.len()));
    if arguments.is_empty() {
        jobs.push(Job::documentation());
    }
    println!("built in {} s; {} test programs", began.elapsed().as_secs(), jobs.len());
    let (mut jobs, outcomes) = side_by_side(jobs, &logs);
    let outcomes = outcomes.into_iter().map(|outcome| again(&mut jobs, outcome, &logs)).collect::<Vec<_>>();
    report::summary(&outcomes, began.elapsed())
}

/// Runs the few failed stories of a program again, after all programs have ended. A story that passes then is
/// reported as unstable: the run passes, and the story or the program needs a fix.
fn again(jobs: &mut [Job], outcome: Outcome, logs: &Path) -> Outcome {
    let job = jobs.iter_mut().find(|job| job.name() == outcome.name && job.repeats(&outcome));
    match job {
        Some(job) => {
            println!("{}: repeating {}", outcome.name, outcome.failed.join(", "));
            job.repeat(outcome, logs)
        }
        None => outcome,
    }
}

/// Runs all jobs, a few at a time, and prints a line for each that ends. Returns the jobs and their outcomes.
fn side_by_side(jobs: Vec<Job>, logs: &Path) -> (Vec<Job>, Vec<Outcome>) {
    let count = jobs.len();
    let queue = Mutex::new(VecDeque::from(jobs));
    let running = Mutex::new(Vec::<(String, Instant)>::new());
    let (ended, outcomes) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            let (queue, running, ended) = (&queue, &running, ended.clone());
            scope.spawn(move || {
                // A lock is poisoned only when another of these threads panicked; then the scope panics too.
                let next = || queue.lock().ok()?.pop_front();
                while let Some(mut job) = next() {
                    let name = job.name();
                    if let Ok(mut running) = running.lock() {
                        running.push((name.clone(), Instant::now()));
                    }
                    let outcome = job.run(logs);
                    if let Ok(mut running) = running.lock() {
                        running.retain(|(other, _)| *other != name);
                    }
                    if ended.send((job, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(ended);
        let (mut jobs, mut all) = (Vec::new(), Vec::new());
        loop {
            match outcomes.recv_timeout(PROGRESS_INTERVAL) {
                Ok((job, outcome)) => {
                    report::line(&outcome, all.len() + 1, count);
                    jobs.push(job);
                    all.push(outcome);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Ok(running) = running.lock() {
                        report::progress(&running, logs);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return (jobs, all),
            }
        }
    })
}
