//! The lines that the runner prints.

use super::job::{End, Outcome, log, results};
use anyhow::{Result, bail};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Prints the line of a program that ended, and the log of one that failed.
pub(super) fn line(outcome: &Outcome, number: usize, count: usize) {
    let Outcome { name, end, passed, took, .. } = outcome;
    let seconds = took.as_secs_f64();
    let result = match end {
        End::Passed => "passed".to_owned(),
        End::Unstable(tests) => format!("passed, UNSTABLE: {}", tests.join(", ")),
        End::Failed(status) => format!("FAILED, {status}"),
        End::TimedOut(_) => "FAILED, timed out".to_owned(),
        End::NotRun(reason) => format!("FAILED, {reason}"),
    };
    println!("[{number:2}/{count}] {name:40} {passed:4} tests {seconds:7.1} s  {result}");
    if !is_passed(end) {
        let text = std::fs::read(&outcome.log).unwrap_or_default();
        println!("---- {name}");
        // A closed output loses only text: the summary still fails.
        let _ = std::io::stdout().write_all(&text);
        println!("---- end of {name}");
    }
}

/// Returns whether a program counts as passed.
fn is_passed(end: &End) -> bool {
    matches!(end, End::Passed | End::Unstable(_))
}

/// Prints the programs that run, with the tests that have passed so far.
pub(super) fn progress(running: &[(String, Instant)], logs: &Path) {
    for (name, since) in running {
        let text = std::fs::read(log(logs, name)).unwrap_or_default();
        let (passed, failed) = results(&String::from_utf8_lossy(&text));
        let seconds = since.elapsed().as_secs();
        println!("... {name}: {passed} passed, {} failed after {seconds} s", failed.len());
    }
}

/// Prints all failures, and fails if there are any.
pub(super) fn summary(outcomes: &[Outcome], took: Duration) -> Result<()> {
    let passed: usize = outcomes.iter().map(|outcome| outcome.passed).sum();
    let broken: Vec<&Outcome> = outcomes.iter().filter(|outcome| !is_passed(&outcome.end)).collect();
    let (minutes, seconds) = (took.as_secs() / 60, took.as_secs() % 60);
    println!("{passed} tests passed in {} programs, {minutes} min {seconds} s", outcomes.len());
    for Outcome { name, end, log, .. } in outcomes {
        let End::Unstable(tests) = end else { continue };
        println!("UNSTABLE {name}: failed beside other programs, passed alone (log: {})", log.display());
        tests.iter().for_each(|test| println!("    {test}"));
    }
    if broken.is_empty() {
        return Ok(());
    }
    for Outcome { name, end, failed, log, .. } in &broken {
        println!("FAILED {name} (log: {})", log.display());
        failed.iter().for_each(|test| println!("    {test}"));
        match end {
            End::TimedOut(unfinished) => {
                unfinished.iter().for_each(|test| println!("    {test}: not ended"));
            }
            End::NotRun(reason) => println!("    {reason}"),
            End::Failed(status) if failed.is_empty() => println!("    no test failed; {status}"),
            End::Failed(_) | End::Passed | End::Unstable(_) => {}
        }
    }
    bail!("{} of {} test programs failed", broken.len(), outcomes.len())
}
