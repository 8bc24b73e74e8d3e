//! Tests of the simulation of servers with their real services.

use caravan_simulation::{Outcome, service};
use std::process::Command;

/// The number of seeds in each run of the tests. `cargo xtask simulate servers --service --seeds N` runs other seeds.
const SEEDS: u64 = 8;
/// The number of seeds among which each planted fault is found.
const SEARCHED: u64 = 40;
/// The first seed to try for each planted fault, which finds it. A change of the servers can change the
/// traces of seeds. `cargo xtask simulate servers --service --seeds 40 --fault all` prints new seeds.
const FOUND: [(&str, u64); 8] = [
    ("no-quorum-round", 1),
    ("wall-clock-fence", 14),
    ("no-floor", 13),
    ("no-term", 25),
    ("no-failover", 1),
    ("unproved-read", 9),
    ("unproved-discard", 6),
    ("stale-before-recovery", 6),
];

#[test]
fn a_seed_of_services_has_one_trace_in_any_process() {
    let (seed, again) = (service::run(1, None), service::run(1, None));
    assert_eq!(seed.trace, again.trace);
    let output = Command::new(env!("CARGO_BIN_EXE_caravan-simulation"))
        .args(["--service", "--from", "1", "--seeds", "1", "--jobs", "1", "--trace"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(&seed.trace.join("\n")), "another process has another trace:\n{printed}");
}

#[test]
fn services_keep_their_promises_in_all_seeds() {
    for seed in 1..=SEEDS {
        let Outcome { trace, violation, .. } = service::run(seed, None);
        assert_eq!(violation, None, "seed {seed}\n{}", trace.join("\n"));
    }
}

#[test]
fn each_planted_fault_of_the_services_is_found() {
    for (name, fault) in service::FAULTS {
        let (_, first) = FOUND.into_iter().find(|(found, _)| *found == name).unwrap();
        let mut seeds = [first].into_iter().chain((1..=SEARCHED).filter(|seed| *seed != first));
        let found = seeds.find_map(|seed| Some((seed, service::run(seed, Some(fault)).violation?)));
        let (seed, violation) = found.unwrap_or_else(|| panic!("{SEARCHED} seeds do not find {name}"));
        println!("{name}: seed {seed}: {violation}");
    }
}
