//! `cargo xtask chaos`: random schedules against real agents, reproducible by their seed.

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::chaos::{ChaosOptions, render, run_seeds};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    from: u64,
    seeds: u64,
    jobs: u8,
    steps: usize,
    nodes: usize,
    servers: usize,
    minutes: u64,
}

fn asked(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { from: 1, seeds: 1, jobs: 1, steps: 12, nodes: 2, servers: 1, minutes: 0 };
    let mut rest = args.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().with_context(|| format!("{flag} needs a number"))?;
        let number: u64 = value.parse().with_context(|| format!("{flag} {value}: not a number"))?;
        match flag.as_str() {
            "--seed" => (asked.from, asked.seeds) = (number, 1),
            "--seeds" => asked.seeds = number,
            "--from" => asked.from = number,
            "--jobs" => asked.jobs = u8::try_from(number)?,
            "--steps" => asked.steps = usize::try_from(number)?,
            "--servers" => asked.servers = usize::try_from(number)?,
            "--nodes" => asked.nodes = usize::try_from(number)?,
            "--minutes" => asked.minutes = number,
            other => {
                bail!(
                    "unknown flag {other:?}; known: --seed --seeds --from --jobs --steps --nodes --servers --minutes"
                )
            }
        }
    }
    ensure!(asked.jobs > 0 && asked.nodes > 0, "at least one cluster and one node are needed");
    ensure!(asked.servers > 0, "at least one server is needed");
    Ok(asked)
}

/// Builds the programs of the clusters, unless `$CARAVAN_BIN` and `$CARAVAN_TESTPLUGIN_BIN` name them. Returns the
/// directory for the logs of failures.
fn prepare() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| caravan_testkit::workspace("target"), PathBuf::from);
    let supplied = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let (Some(program), Some(plugin)) = (supplied("CARAVAN_BIN"), supplied("CARAVAN_TESTPLUGIN_BIN")) {
        // Nodes run the fault plugin, which is expected next to the test plugin.
        let faults = plugin.with_file_name("caravan-faultplugin");
        ensure!(faults.is_file(), "{} is missing: build it with caravan-testplugin", faults.display());
        caravan_testkit::use_program(&program);
        caravan_testkit::use_test_plugin(&plugin);
        return Ok(target.join("chaos"));
    }
    let mut build = caravan_testkit::cargo();
    build.args(["build", "--quiet", "--package", "caravan", "--package", "caravan-testplugin"]);
    let status = build.status().context("run cargo build")?;
    ensure!(status.success(), "cargo build failed");
    caravan_testkit::use_program(&target.join("debug/caravan"));
    caravan_testkit::use_test_plugin(&target.join("debug/caravan-testplugin"));
    Ok(target.join("chaos"))
}

/// Runs the schedules of the requested seeds.
pub fn run(args: &[String]) -> Result<()> {
    let asked = asked(args)?;
    let artifacts = prepare()?;
    let began = Instant::now();
    // Each cluster takes the next seed, so that no cluster waits for another.
    let left = Mutex::new(asked.from..asked.from + asked.seeds);
    let over = || asked.minutes > 0 && began.elapsed().as_secs() >= asked.minutes * 60;
    let next = || if over() { None } else { left.lock().ok()?.next() };
    let passed = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| -> Result<()> {
        let clusters: Vec<_> = (0..asked.jobs)
            .map(|number| {
                let options = ChaosOptions {
                    nodes: asked.nodes,
                    servers: asked.servers,
                    steps: asked.steps,
                    subnet: 1 + number % 250,
                    ..ChaosOptions::default()
                };
                let (artifacts, failed, passed, next) = (&artifacts, &failed, &passed, &next);
                scope.spawn(move || {
                    run_seeds(std::iter::from_fn(next), &options, artifacts, |seed, result| {
                        println!("{}", render(seed, &result));
                        if let Err(error) = result {
                            // The lines are printed together, because other clusters print in the meantime.
                            eprintln!("{error:?}\n");
                            if let Ok(mut failed) = failed.lock() {
                                failed.push(seed);
                            }
                        } else {
                            passed.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
            })
            .collect();
        for cluster in clusters {
            cluster.join().map_err(|_| anyhow::anyhow!("a cluster's thread panicked"))??;
        }
        Ok(())
    })?;
    let failed = failed.into_inner().unwrap_or_default();
    let passed = passed.into_inner();
    let seconds = began.elapsed().as_secs();
    let summary = json!({ "from": asked.from, "passed": passed, "failed": failed, "seconds": seconds });
    let summary = json!({ "chaos": summary });
    println!("{summary}");
    ensure!(failed.is_empty(), "{} schedules failed, {passed} passed: {failed:?}", failed.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        let asked = |line: &str| asked(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let expected = Asked { from: 7, seeds: 1, jobs: 1, steps: 12, nodes: 2, servers: 1, minutes: 0 };
        assert_eq!(asked("--seed 7").unwrap(), expected);
        let expected = Asked { from: 5, seeds: 200, jobs: 3, steps: 12, nodes: 3, servers: 5, minutes: 50 };
        let line = "--seeds 200 --from 5 --jobs 3 --nodes 3 --servers 5 --minutes 50";
        assert_eq!(asked(line).unwrap(), expected);
        assert!(asked("--seeds").is_err() && asked("--seeds x").is_err() && asked("--jobs 0").is_err());
    }
}
