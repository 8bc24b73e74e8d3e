//! Power cuts: an agent's disk is cut off at any moment of a random schedule. Every change that the agent
//! acknowledged before the cut exists afterwards.

mod check;
mod history;
mod schedule;

use crate::{main_job, more, runs_all};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::Rng;
use caravan_testkit::vm::writelog::WriteLog;
use caravan_testkit::vm::{Bench, Disk, Machine, MachineOptions, story};
use history::History;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// The variable with the number of schedules.
const SCHEDULES: &str = "CARAVAN_VM_SCHEDULES";
/// The variable with the first seed.
const FROM: &str = "CARAVAN_VM_FROM";
/// The size of the disk in MiB.
const DISK: u64 = 1024;
/// A part of the plugin's job: a schedule waits for the plugin after each restart of a machine.
const QUICK_RESTARTS: &str =
    "restart {\n attempts = 1000\n interval = \"1h\"\n delay = \"200ms\"\n mode = \"delay\"\n}\n";
/// The program that runs an agent whose flushes do nothing.
const PLANTED: [&str; 2] = ["caravan-guest", "nosync"];

fn options(name: &str) -> MachineOptions {
    MachineOptions { disks: vec![Disk::ext4(DISK).logged()], ..MachineOptions::new(name) }
}

/// A schedule that has run: its acknowledgements and the log of the disk.
struct Run {
    history: History,
    log: WriteLog,
    /// The first entry that belongs to the schedule.
    begin: usize,
    /// The directory in which the disk's log is kept if a check fails.
    files: tempfile::TempDir,
}

/// Saves a machine with a healthy plugin, from which all schedules begin.
fn prepare(bench: &Bench, to: &Path) -> Result<()> {
    let machine = bench.booted(options("prepare"))?;
    machine.configure_agent("")?;
    machine.start_agent()?;
    main_job::run_plugin_with(&machine, QUICK_RESTARTS)?;
    machine.save(to)?;
    bench.discard(machine);
    Ok(())
}

/// Runs a schedule on a copy of the saved machine.
fn run(bench: &Bench, saved: &Path, seed: u64, planted: bool) -> Result<Run> {
    let machine = bench.restored(options(&format!("seed-{seed}")), saved)?;
    if planted {
        machine.end_agent("KILL")?;
        machine.start_agent_by(&PLANTED)?;
    }
    let begin = machine.log_length(0)?;
    let history = schedule::run(&machine, seed)?;
    // The last writes of the log are complete when the disk is at rest.
    machine.suspend()?;
    let files = tempfile::tempdir_in(caravan_testkit::vm::directory()?)?;
    for (from, to) in [(machine.log_path(0), "log"), (machine.base_path(0), "base")] {
        std::fs::rename(from, files.path().join(to))?;
    }
    bench.discard(machine);
    let log = WriteLog::open(&files.path().join("log"))?;
    let begin = log.entries_within(begin);
    Ok(Run { history, log, begin, files })
}

/// Returns a cut after the beginning of a schedule: half of them right after an acknowledgement.
fn choose(run: &Run, rng: &mut Rng) -> usize {
    let acknowledged = run.history.acknowledgements();
    let end = run.log.entries().len();
    if !acknowledged.is_empty() && rng.percent(50) {
        return run.log.entries_within(*rng.pick(&acknowledged)).min(end);
    }
    run.begin + rng.index((end - run.begin).max(1))
}

/// Creates the image of a cut on the checker's disk, and checks it.
fn check(run: &Run, cut: usize, seed: u64, checker: &Machine) -> Result<()> {
    let image = checker.image_path(0);
    // The same file, because QEMU has it open.
    let base = run.files.path().join("base");
    let copied = Command::new("cp").args(["--sparse=always"]).arg(&base).arg(&image).status()?;
    ensure!(copied.success(), "cp ended with {copied}");
    let outcome = run.log.replay(cut, seed, &File::options().write(true).open(&image)?)?;
    let at = match run.log.entries().get(cut) {
        Some(entry) => entry.begin,
        None => u64::MAX,
    };
    check::check(checker, &run.history.at(at), &format!("{seed:032x}"))
        .with_context(|| format!("cut at entry {cut} of {}: {outcome:?}", run.log.entries().len()))
}

/// Runs schedules; each has some cuts.
fn schedules(bench: &Bench, seeds: impl Iterator<Item = u64>, cuts: u64) -> Result<()> {
    let saved = tempfile::tempdir_in(caravan_testkit::vm::directory()?)?;
    prepare(bench, saved.path())?;
    let checker = check::checker(bench, DISK)?;
    for seed in seeds {
        let run = run(bench, saved.path(), seed, false).with_context(|| format!("seed {seed}"))?;
        let mut rng = Rng::new(seed);
        for number in 0..cuts {
            let cut = choose(&run, &mut rng);
            let result = check(&run, cut, rng.number(), &checker);
            println!(
                "power cut: seed {seed}, cut {number} at entry {cut}: {}",
                if result.is_ok() { "ok" } else { "failed" }
            );
            if let Err(error) = result {
                let kept = bench.artifacts()?;
                std::fs::create_dir_all(&kept)?;
                for name in ["log", "base"] {
                    let _ = std::fs::rename(run.files.path().join(name), kept.join(name));
                }
                return Err(error.context(format!("seed {seed}\n{}", run.history)));
            }
        }
    }
    Ok(())
}

fn number(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text}: not a number")),
        Err(_) => Ok(default),
    }
}

#[test]
fn acknowledged_changes_survive_a_power_cut() -> Result<()> {
    story("power-cuts", |bench| {
        let count = number(SCHEDULES, if runs_all() { 200 } else { 1 })?;
        let from = number(FROM, 1)?;
        schedules(bench, from..from + count, if runs_all() { 2 } else { 1 })
    })
}

#[test]
fn an_acknowledgement_before_the_flush_is_found() -> Result<()> {
    more("planted-power-cut", |bench| {
        let saved = tempfile::tempdir_in(caravan_testkit::vm::directory()?)?;
        prepare(bench, saved.path())?;
        let checker = check::checker(bench, DISK)?;
        for seed in 1..=3 {
            let run = run(bench, saved.path(), seed, true)?;
            let mut rng = Rng::new(seed);
            for _ in 0..5 {
                let cut = choose(&run, &mut rng);
                if let Err(error) = check(&run, cut, rng.number(), &checker) {
                    println!("found: {error:#}");
                    return Ok(());
                }
            }
        }
        bail!("no check found that acknowledged changes were not on disk")
    })
}
