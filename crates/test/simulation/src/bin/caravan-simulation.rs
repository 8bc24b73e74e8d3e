//! Runs of seeds of the simulation of servers; see `cargo xtask simulate`.

use anyhow::{Context, ensure};
use caravan_simulation::{Fault, Outcome, first_violation, processors, run, run_seeds, service};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::ops::{ControlFlow, Range};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: caravan-simulation [--service] [--from N] [--seeds N] [--seed N] [--jobs N] [--minutes N] \
                     [--fault NAME|all] [--trace]";
/// The interval at which the progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// A function that runs a seed.
type Run = Box<dyn Fn(u64) -> Outcome + Sync>;

struct Options {
    from: u64,
    seeds: u64,
    jobs: usize,
    minutes: u64,
    faults: Vec<(&'static str, Run)>,
    trace: bool,
    /// Whether the real services run, instead of their short forms.
    service: bool,
}

impl Options {
    fn range(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.seeds)
    }
}

fn options() -> anyhow::Result<Options> {
    let (jobs, faults) = (processors(), Vec::new());
    let mut options = Options { from: 1, seeds: 200, jobs, minutes: 0, faults, trace: false, service: false };
    let mut fault = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        if flag == "--trace" {
            options.trace = true;
            continue;
        }
        if flag == "--service" {
            options.service = true;
            continue;
        }
        let value = arguments.next().with_context(|| format!("{flag} needs a value\n{USAGE}"))?;
        if flag == "--fault" {
            fault = Some(value);
            continue;
        }
        let number: u64 = value.parse().with_context(|| format!("{flag} {value}: not a number"))?;
        match flag.as_str() {
            "--from" => options.from = number,
            "--seeds" => options.seeds = number,
            "--seed" => (options.from, options.seeds) = (number, 1),
            "--jobs" => options.jobs = usize::try_from(number)?,
            "--minutes" => options.minutes = number,
            _ => anyhow::bail!("there is no flag {flag}\n{USAGE}"),
        }
    }
    ensure!(options.jobs > 0, "--jobs 0: at least one thread is needed");
    ensure!(options.seeds > 0, "--seeds 0: at least one seed is needed");
    if let Some(name) = fault {
        options.faults = match options.service {
            true => {
                named(&name, &service::FAULTS, |fault| Box::new(move |seed| service::run(seed, Some(fault))))?
            }
            false => named(&name, &Fault::ALL, |fault| Box::new(move |seed| run(seed, Some(fault))))?,
        };
    }
    Ok(options)
}

/// Returns the faults with a name, or all faults.
fn named<F: Copy>(
    name: &str,
    faults: &[(&'static str, F)],
    planted: impl Fn(F) -> Run,
) -> anyhow::Result<Vec<(&'static str, Run)>> {
    let known: Vec<&str> = faults.iter().map(|(name, _)| *name).collect();
    let found = faults.iter().filter(|(fault, _)| name == "all" || *fault == name);
    let found: Vec<_> = found.map(|(name, fault)| (*name, planted(*fault))).collect();
    ensure!(!found.is_empty(), "--fault {name}: the faults are: all, {}", known.join(", "));
    Ok(found)
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    if options.faults.is_empty() { run_clean(&options) } else { look_for_faults(&options) }
}

/// The counts of a run of seeds.
struct Progress {
    passed: u64,
    failed: Vec<u64>,
    hash: u64,
    shown: Instant,
}

/// Runs the seeds without a planted fault. A violation fails the run.
fn run_clean(options: &Options) -> anyhow::Result<()> {
    let began = Instant::now();
    let progress = Progress { passed: 0, failed: Vec::new(), hash: 0, shown: began };
    let progress = Mutex::new(progress);
    let clean = |seed| if options.service { service::run(seed, None) } else { run(seed, None) };
    run_seeds(options.range(), options.jobs, clean, |outcome| {
        let mut progress = progress.lock().expect("no thread panics");
        progress.hash ^= outcome.hash;
        if options.trace {
            println!("{}\nseed {}: {:?}", outcome.trace.join("\n"), outcome.seed, outcome.counts);
        }
        if let Some(violation) = &outcome.violation {
            report(options, &outcome, violation, !options.trace && progress.failed.is_empty());
            progress.failed.push(outcome.seed);
        } else {
            progress.passed += 1;
        }
        if progress.shown.elapsed() >= PROGRESS_INTERVAL {
            progress.shown = Instant::now();
            let done = progress.passed + progress.failed.len() as u64;
            let speed = done as f64 / began.elapsed().as_secs_f64();
            let failed = progress.failed.len();
            eprintln!("{done} of {} seeds, {failed} failed, {speed:.2} seeds a second", options.seeds);
        }
        let over = options.minutes > 0 && began.elapsed() >= Duration::from_secs(60 * options.minutes);
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let Progress { passed, mut failed, hash, .. } = progress.into_inner()?;
    failed.sort_unstable();
    println!(
        "{}",
        json!({ "simulate": {
            "from": options.from,
            "passed": passed,
            "failed": failed,
            "seconds": rounded(began.elapsed()),
            "processor_seconds": rounded(processor_time()),
            "hash": format!("{hash:016x}"),
        } })
    );
    ensure!(failed.is_empty(), "{} seeds failed, {passed} passed: {failed:?}", failed.len());
    Ok(())
}

/// Prints a violation, and the command that repeats it.
fn report(options: &Options, outcome: &Outcome, violation: &str, whole: bool) {
    if whole {
        eprintln!("{}", outcome.trace.join("\n"));
    }
    let seed = outcome.seed;
    let service = if options.service { " --service" } else { "" };
    eprintln!("seed {seed}: {violation}");
    eprintln!("repeat it with: cargo xtask simulate servers{service} --seed {seed} --trace");
}

/// Plants one fault after the other, and searches the first seed that finds it. A fault that is not found
/// fails the run.
fn look_for_faults(options: &Options) -> anyhow::Result<()> {
    let mut missed = Vec::new();
    for (name, fault) in &options.faults {
        let (began, spent) = (Instant::now(), processor_time());
        let found = first_violation(options.range(), options.jobs, fault);
        if let Some(outcome) = found.as_ref().filter(|_| options.trace) {
            println!("{}", outcome.trace.join("\n"));
        }
        println!(
            "{}",
            json!({ "fault": {
                "name": name,
                "seed": found.as_ref().map(|outcome| outcome.seed),
                "violation": found.as_ref().and_then(|outcome| outcome.violation.clone()),
                "seconds": rounded(began.elapsed()),
                "processor_seconds": rounded(processor_time().saturating_sub(spent)),
            } })
        );
        if found.is_none() {
            missed.push(*name);
        }
    }
    ensure!(missed.is_empty(), "not found in {} seeds: {}", options.seeds, missed.join(", "));
    Ok(())
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}
