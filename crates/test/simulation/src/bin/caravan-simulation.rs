//! Runs seeds of the simulation of servers; see `cargo xtask simulate`.

use caravan_simulation::{Fault, Outcome, run, service};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const USAGE: &str =
    "usage: caravan-simulation [--service] [--from N] [--seeds N] [--jobs N] [--fault NAME] [--trace]";

struct Options {
    from: u64,
    seeds: u64,
    jobs: u64,
    fault: Option<String>,
    trace: bool,
    /// Whether the real services run, in place of their short forms.
    service: bool,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { from: 1, seeds: 200, jobs: 2, fault: None, trace: false, service: false };
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
        let value = arguments.next().ok_or_else(|| anyhow::anyhow!("{flag} needs a value\n{USAGE}"))?;
        match flag.as_str() {
            "--from" => options.from = value.parse()?,
            "--seeds" => options.seeds = value.parse()?,
            "--jobs" => options.jobs = value.parse()?,
            "--fault" => options.fault = Some(value),
            _ => anyhow::bail!("there is no flag {flag}\n{USAGE}"),
        }
    }
    Ok(options)
}

/// Returns the fault of a name.
fn find<F: Copy>(name: Option<&str>, all: &[(&str, F)]) -> anyhow::Result<Option<F>> {
    let Some(name) = name else { return Ok(None) };
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let found = all.iter().find(|(known, _)| *known == name);
    let (_, fault) = found.ok_or_else(|| anyhow::anyhow!("the faults are: {}", known.join(", ")))?;
    Ok(Some(*fault))
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    let name = options.fault.as_deref();
    if options.service {
        let fault = find(name, &service::FAULTS)?;
        return all(&options, |seed| service::run(seed, fault));
    }
    let fault = find(name, &Fault::ALL)?;
    all(&options, |seed| run(seed, fault))
}

/// Runs all seeds.
fn all(options: &Options, run: impl Fn(u64) -> Outcome + Sync) -> anyhow::Result<()> {
    let began = Instant::now();
    let next = AtomicU64::new(options.from);
    let failed: Mutex<Vec<Outcome>> = Mutex::default();
    let hashes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.from + options.seeds {
                        return;
                    }
                    let outcome = run(seed);
                    hashes.fetch_xor(outcome.hash, Ordering::Relaxed);
                    if options.trace {
                        println!("{}\nseed {seed}: {:?}", outcome.trace.join("\n"), outcome.counts);
                    }
                    if let Some(violation) = &outcome.violation {
                        println!("seed {seed}: {violation}");
                        failed.lock().expect("no thread panics").push(outcome);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner()?;
    failed.sort_by_key(|outcome| outcome.seed);
    if let Some(first) = failed.first().filter(|_| !options.trace) {
        println!("trace of seed {}:\n{}", first.seed, first.trace.join("\n"));
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} failed, {:.2} seeds a second, hash {:016x}",
        options.seeds,
        failed.len(),
        options.seeds as f64 / seconds,
        hashes.into_inner()
    );
    anyhow::ensure!(failed.is_empty(), "{} of {} seeds failed", failed.len(), options.seeds);
    Ok(())
}
