//! Runs seeds of the simulation of servers; see `cargo xtask simulate`.

use caravan_simulation::{Fault, Outcome, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const USAGE: &str = "usage: caravan-simulation [--from N] [--seeds N] [--jobs N] [--fault NAME] [--trace]";

struct Options {
    from: u64,
    seeds: u64,
    jobs: u64,
    fault: Option<Fault>,
    trace: bool,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { from: 1, seeds: 200, jobs: 2, fault: None, trace: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        if flag == "--trace" {
            options.trace = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| anyhow::anyhow!("{flag} needs a value\n{USAGE}"))?;
        match flag.as_str() {
            "--from" => options.from = value.parse()?,
            "--seeds" => options.seeds = value.parse()?,
            "--jobs" => options.jobs = value.parse()?,
            "--fault" => {
                let found = Fault::ALL.iter().find(|(name, _)| *name == value);
                let known = Fault::ALL.map(|(name, _)| name).join(", ");
                let (_, fault) = found.ok_or_else(|| anyhow::anyhow!("the faults are: {known}"))?;
                options.fault = Some(*fault);
            }
            _ => anyhow::bail!("there is no flag {flag}\n{USAGE}"),
        }
    }
    Ok(options)
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
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
                    let outcome = run(seed, options.fault);
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
