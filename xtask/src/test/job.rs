//! One test program: its run, its log, and the results that its log shows.

use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which a program counts as hung. The longest one takes a third of it on two idle processors.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Packages of stories, which wait for processes more than they compute: two tests for each processor.
const STORIES: [&str; 2] = ["caravan-e2e", "caravan-docker"];
/// The folder of crates whose failed tests are not repeated: their tests depend on no clock, process or disk.
const PURE: &str = "crates/core";
/// The largest number of failed tests of a program that are repeated. More of them are no accident of the load.
const MAX_REPEATED: usize = 3;
/// The interval at which the runner checks whether a program has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A program to run.
#[derive(Debug)]
pub(super) struct Job {
    package: String,
    target: String,
    command: Command,
    /// Whether failed tests run again, alone: their processes and timers share two processors with other tests.
    repeatable: bool,
}

/// The result of a program.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The package and the target.
    pub(super) name: String,
    pub(super) end: End,
    /// The number of tests that passed.
    pub(super) passed: usize,
    /// The names of tests that failed.
    pub(super) failed: Vec<String>,
    pub(super) took: Duration,
    pub(super) log: PathBuf,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    /// Some tests failed next to other programs and passed alone.
    Unstable(Vec<String>),
    /// The program failed with this exit status.
    Failed(String),
    /// The runner ended the program after the timeout; the tests that had not ended.
    TimedOut(Vec<String>),
    /// The program did not run.
    NotRun(String),
}

impl Job {
    /// Returns the job of a test program, which runs in the folder of its package as under `cargo test`.
    pub(super) fn tests(package: &str, target: &str, executable: &Path, folder: &Path) -> Self {
        let mut command = Command::new(executable);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        if std::env::var_os("CARGO").is_none() {
            command.env("CARGO", "cargo");
        }
        if std::env::var_os("RUST_TEST_THREADS").is_none() && STORIES.contains(&package) {
            let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            command.env("RUST_TEST_THREADS", (2 * processors).to_string());
        }
        let repeatable = !folder.parent().is_some_and(|parent| parent.ends_with(PURE));
        Self { package: package.to_owned(), target: target.to_owned(), command, repeatable }
    }

    /// Returns the job of all tests in documentation.
    pub(super) fn documentation() -> Self {
        let mut command = caravan_testkit::cargo();
        command.args(["test", "--workspace", "--doc", "--locked"]);
        Self {
            package: "workspace".to_owned(),
            target: "documentation".to_owned(),
            command,
            repeatable: false,
        }
    }

    /// Sets variables and selects tests.
    pub(super) fn with(mut self, variables: &[(&str, PathBuf)], filters: &[String]) -> Self {
        self.command.envs(variables.iter().map(|(name, path)| (name, path))).args(filters);
        self
    }

    /// Returns the package and the target.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }

    /// Runs the program to its end.
    pub(super) fn run(&mut self, logs: &Path) -> Outcome {
        let (name, began) = (self.name(), Instant::now());
        let log = log(logs, &name);
        let end = self.execute(&log).unwrap_or_else(|error| End::NotRun(format!("{error:#}")));
        let text = std::fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let (passed, failed) = results(&text);
        Outcome { name, end, passed, failed, took: began.elapsed(), log }
    }

    /// Returns whether the failed tests of the outcome run again.
    pub(super) fn repeats(&self, outcome: &Outcome) -> bool {
        self.repeatable
            && matches!(outcome.end, End::Failed(_))
            && (1..=MAX_REPEATED).contains(&outcome.failed.len())
    }

    /// Runs the failed tests of an outcome again, one after the other. The log of the first run is kept.
    pub(super) fn repeat(&mut self, outcome: Outcome, logs: &Path) -> Outcome {
        let log = log(logs, &format!("{}-again", self.name()));
        self.command.arg("--exact").args(&outcome.failed).env("RUST_TEST_THREADS", "1");
        let end = self.execute(&log);
        let text = std::fs::read(&log).unwrap_or_default();
        let (passed, failed) = results(&String::from_utf8_lossy(&text));
        match end {
            Ok(End::Passed) if passed >= outcome.failed.len() => {
                let end = End::Unstable(outcome.failed);
                Outcome { end, passed: outcome.passed + passed, failed, ..outcome }
            }
            _ => outcome,
        }
    }

    fn execute(&mut self, log: &Path) -> Result<End> {
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        self.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // A separate process group: the processes of a hung program are ended with it.
        let mut child = self.command.process_group(0).spawn().context("starting the program")?;
        match wait(&mut child, PROGRAM_TIMEOUT)? {
            Some(status) if status.success() => Ok(End::Passed),
            Some(status) => Ok(End::Failed(status.to_string())),
            None => {
                let group = format!("-{}", child.id());
                Command::new("kill").args(["-KILL", "--", &group]).status().context("ending the program")?;
                child.wait()?;
                Ok(End::TimedOut(self.unfinished(log)))
            }
        }
    }

    /// Returns the tests of the program that its log does not show as ended.
    fn unfinished(&self, log: &Path) -> Vec<String> {
        let listed = Command::new(self.command.get_program()).args(["--list", "--format", "terse"]).output();
        let listed =
            listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let ended = |name: &str| text.lines().any(|line| line.starts_with(&format!("test {name} ... ")));
        names.filter(|name| !ended(name)).map(str::to_owned).collect()
    }
}

/// Waits for the end of a process, but not longer than the timeout.
fn wait(child: &mut Child, timeout: Duration) -> Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(None)
}

/// Returns the path of a program's log.
pub(super) fn log(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{}.log", name.replace(['/', ' '], "-")))
}

/// Returns the number of tests that passed and the names of the failed ones.
pub(super) fn results(log: &str) -> (usize, Vec<String>) {
    let (mut passed, mut failed, mut summed) = (0, Vec::new(), 0);
    for line in log.lines() {
        let summary = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(" passed;"));
        let number = summary.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<usize>().ok());
        summed += number.unwrap_or_default();
        // Output of other processes may precede the line of a test.
        let Some((_, test)) = line.split_once("test ").filter(|(before, _)| before.is_empty()) else {
            continue;
        };
        match test.rsplit_once(" ... ") {
            Some((_, "ok")) => passed += 1,
            Some((name, "FAILED")) => failed.push(name.to_owned()),
            _ => {}
        }
    }
    // Output of a process that a test starts may be between the name of the test and its result.
    (passed.max(summed), failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { package: "p".to_owned(), target: "t".to_owned(), command, repeatable: true }
    }

    #[test]
    fn the_log_of_a_program_shows_its_results() {
        let logs = tempfile::tempdir().unwrap();
        let outcome = job("echo 'test a::b ... ok'; echo 'test c ... FAILED' >&2; exit 101").run(logs.path());
        assert_eq!((outcome.passed, outcome.failed), (1, vec!["c".to_owned()]));
        assert!(matches!(outcome.end, End::Failed(_)), "{:?}", outcome.end);
        assert_eq!(outcome.name, "p/t");
        let between = "echo 'test a ...     Finished'; echo ok; echo 'test result: ok. 1 passed; 0 failed;'";
        assert_eq!(job(between).run(logs.path()).passed, 1);
        let outcome = job("exit 0").run(logs.path());
        assert_eq!((outcome.end, outcome.passed), (End::Passed, 0));
        let mut missing = Job::tests("p", "t", Path::new("/nothing"), Path::new("/"));
        assert!(matches!(missing.run(logs.path()).end, End::NotRun(_)));
    }

    #[test]
    fn a_story_that_passes_by_itself_is_unstable() {
        let logs = tempfile::tempdir().unwrap();
        // The second run has the name of the test as an argument of `sh`.
        let mut passing =
            job("[ $# -gt 0 ] && { echo 'test a ... ok'; exit; }; echo 'test a ... FAILED'; exit 101");
        let outcome = passing.run(logs.path());
        assert!(passing.repeats(&outcome));
        let outcome = passing.repeat(outcome, logs.path());
        assert_eq!((outcome.end, outcome.passed), (End::Unstable(vec!["a".to_owned()]), 1));

        let mut failing = job("echo 'test a ... FAILED'; exit 101");
        let first = failing.run(logs.path());
        let outcome = failing.repeat(first, logs.path());
        assert!(matches!(outcome.end, End::Failed(_)), "{:?}", outcome.end);

        let mut many = job("for t in a b c d; do echo \"test $t ... FAILED\"; done; exit 101");
        let outcome = many.run(logs.path());
        assert!(!many.repeats(&outcome));
    }

    #[test]
    fn tests_of_pure_crates_are_not_repeated() {
        let repeatable = |folder| Job::tests("p", "t", Path::new("/t"), Path::new(folder)).repeatable;
        assert!(!repeatable("/r/crates/core/state"));
        assert!(repeatable("/r/crates/control/consensus") && repeatable("/r/xtask"));
    }

    #[test]
    fn a_program_that_hangs_has_an_end() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::from_millis(50)).unwrap(), None);
        child.kill().unwrap();
        assert!(wait(&mut child, Duration::from_secs(60)).unwrap().is_some());
    }
}
