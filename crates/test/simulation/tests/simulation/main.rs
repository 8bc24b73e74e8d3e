//! The simulation of servers: the same seed gives the same trace, no seed fails, and each planted fault is found.

mod service;

use caravan_simulation::{Fault, Outcome, first_violation, processors, run};
use std::process::Command;

/// The seeds of each run of the tests. `cargo xtask simulate servers --seeds N` runs others.
const SEEDS: u64 = 200;
/// The seeds in which each planted fault must be found. All are found in the first 20 seeds now.
const FAULT_SEEDS: u64 = 100;

#[test]
fn a_seed_has_one_trace_in_any_process() {
    let (seed, again) = (run(5, None), run(5, None));
    assert_eq!(seed.trace, again.trace);
    let output = Command::new(env!("CARGO_BIN_EXE_caravan-simulation"))
        .args(["--seed", "5", "--jobs", "1", "--trace"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(&seed.trace.join("\n")), "another process has another trace:\n{printed}");
    assert_ne!(run(6, None).hash, seed.hash);
}

#[test]
fn servers_keep_their_promises_in_all_seeds() {
    if let Some(Outcome { seed, trace, violation, .. }) =
        first_violation(1..1 + SEEDS, processors(), |seed| run(seed, None))
    {
        panic!("seed {seed}: {violation:?}\n{}", trace.join("\n"));
    }
}

#[test]
fn each_planted_fault_is_found() {
    for (name, fault) in Fault::ALL {
        let found = first_violation(1..1 + FAULT_SEEDS, processors(), |seed| run(seed, Some(fault)));
        let Some(Outcome { seed, violation, .. }) = found else {
            panic!("{name} was not found in {FAULT_SEEDS} seeds");
        };
        println!("{name}: seed {seed}: {}", violation.unwrap_or_default());
    }
}
