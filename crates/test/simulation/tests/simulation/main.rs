//! Tests of the simulation of servers: a seed has one trace, no seed fails, and each planted fault is found.

mod service;

use caravan_simulation::{Fault, Outcome, first_violation, processors, run};
use std::process::Command;

/// The number of seeds in each run of the tests. `cargo xtask simulate servers --seeds N` runs other seeds.
const SEEDS: u64 = 200;
/// The number of seeds among which each planted fault is found.
const SEARCHED: u64 = 500;
/// The first seed to try for each planted fault, which finds it. A change of the servers can change the
/// traces of seeds. `cargo xtask simulate servers --seeds 500 --fault all` prints new seeds.
const FOUND: [(&str, u64); 14] = [
    ("ack-before-flush", 6),
    ("vote-not-saved", 2),
    ("truncation-lost", 5),
    ("leader-restore", 3),
    ("long-lease", 4),
    ("no-quorum-round", 7),
    ("wall-clock-fence", 2),
    ("no-floor", 1),
    ("number-reused", 162),
    ("first-seen-founding", 1),
    ("command-skipped", 6),
    ("no-term", 6),
    ("key-before-log", 1),
    ("stale-before-recovery", 1),
];

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
        let (_, first) = FOUND.into_iter().find(|(found, _)| *found == name).unwrap();
        let search = |seeds| first_violation(seeds, processors(), |seed| run(seed, Some(fault)));
        let found = search(first..first + 1).or_else(|| search(1..1 + SEARCHED));
        let Some(Outcome { seed, violation, .. }) = found else {
            panic!("{SEARCHED} seeds do not find {name}");
        };
        println!("{name}: seed {seed}: {}", violation.unwrap_or_default());
    }
}
