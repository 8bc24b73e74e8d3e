//! `cargo xtask bench <name>`: measurements, one JSON object a line on standard output.

mod agent;
mod api;
mod build;
mod cluster;
mod drivers;
mod kept;
mod machine;
mod networks;
mod scheduler;
mod ui;
mod volumes;

use self::kept::Figure;
use anyhow::{Result, bail};

/// The names of all benches.
const NAMES: &str = "agent, api, build, cluster, drivers, hcl, machine, networks, scheduler, ui, volumes";

/// Runs a bench by name. `--debug` uses the debug build instead of a release build. `--check` fails if memory or a
/// multiple of the yardstick grew by more than a fifth above the figure that the repository keeps. `--keep` replaces
/// the kept figures.
pub fn run(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("usage: cargo xtask bench NAME [PART] [--debug] [--check] [--keep]");
        println!("names: {NAMES}");
        println!("cluster: failover, rates, nodes, growth or fleet, and {}", cluster::FLAGS.join(", "));
        return Ok(());
    }
    let release = !arguments.iter().any(|argument| argument == "--debug");
    run_one(arguments, release)?;
    kept::finish(kept::Use::from_arguments(arguments), release)
}

fn run_one(arguments: &[String], release: bool) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("agent") => agent::run(release),
        Some("api") => api::run(release),
        Some("build") => build::run(release),
        Some("cluster") => cluster::run(arguments, release),
        Some("drivers") => drivers::run(release),
        Some("hcl") => example("caravan-hcl", "bench", release),
        Some("machine") => machine::run(release),
        Some("networks") => networks::run(release),
        Some("scheduler") => scheduler::run(&arguments[1..], release),
        Some("ui") => ui::run(&arguments[1..], release),
        Some("volumes") => volumes::run(release),
        Some(other) => bail!("there is no bench {other:?}; known: {NAMES}"),
        None => bail!("which bench? known: {NAMES}"),
    }
}

/// Runs a bench that is an example of its crate, so that only that crate is built.
fn example(package: &str, name: &str, release: bool) -> Result<()> {
    let mut cargo = caravan_testkit::cargo();
    cargo.args(["run", "--quiet", "--package", package, "--example", name]);
    if release {
        cargo.arg("--release");
    }
    if !cargo.status()?.success() {
        bail!("the bench did not run to its end");
    }
    Ok(())
}

/// Prints one figure.
fn figure(bench: &str, case: &str, value: f64, unit: &str) {
    let value = (value * 100.0).round() / 100.0;
    let figure = Figure { bench: bench.to_owned(), case: case.to_owned(), value, unit: unit.to_owned() };
    match serde_json::to_string(&figure) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("{case}: {error}"),
    }
    kept::record(figure);
}

/// Returns the median.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
