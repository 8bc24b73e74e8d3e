//! The simulation of servers: the same seed gives the same trace, no seed fails, and each planted fault is found.

mod service;

use caravan_simulation::{Fault, Outcome, run};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The seeds of each run of the tests. `cargo xtask simulate servers --seeds N` runs others.
const SEEDS: u64 = 16;
/// The seeds in which a planted fault of [`FOUND`] must be found.
const FAULT_SEEDS: u64 = 20;
/// The faults that few seeds find. docs/design/testing.md names the others.
const FOUND: [&str; 8] = [
    "vote-not-saved",
    "leader-restore",
    "long-lease",
    "wall-clock-fence",
    "no-floor",
    "first-seen-founding",
    "no-term",
    "key-before-log",
];

/// Runs seeds on all processors until one fails, and returns the first failure.
fn first_failure(seeds: u64, fault: Option<Fault>) -> Option<Outcome> {
    let (next, found) = (AtomicU64::new(1), Mutex::new(None::<Outcome>));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds || found.lock().unwrap().is_some() {
                        return;
                    }
                    let outcome = run(seed, fault);
                    if outcome.violation.is_some() {
                        found.lock().unwrap().get_or_insert(outcome);
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn a_seed_has_one_trace_in_any_process() {
    let (seed, again) = (run(5, None), run(5, None));
    assert_eq!(seed.trace, again.trace);
    let output = Command::new(env!("CARGO_BIN_EXE_caravan-simulation"))
        .args(["--from", "5", "--seeds", "1", "--jobs", "1", "--trace"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(&seed.trace.join("\n")), "another process has another trace:\n{printed}");
    assert_ne!(run(6, None).hash, seed.hash);
}

#[test]
fn servers_keep_their_promises_in_all_seeds() {
    if let Some(Outcome { seed, trace, violation, .. }) = first_failure(SEEDS, None) {
        panic!("seed {seed}: {violation:?}\n{}", trace.join("\n"));
    }
}

#[test]
fn planted_faults_are_found() {
    for (name, fault) in Fault::ALL.into_iter().filter(|(name, _)| FOUND.contains(name)) {
        let found = first_failure(FAULT_SEEDS, Some(fault));
        let Some(Outcome { seed, violation, .. }) = found else {
            panic!("{name} was not found in {FAULT_SEEDS} seeds");
        };
        println!("{name}: seed {seed}: {}", violation.unwrap_or_default());
    }
}
