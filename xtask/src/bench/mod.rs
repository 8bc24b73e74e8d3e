//! `cargo xtask bench <name>`: measurements, one JSON object a line on standard output.

mod agent;
mod api;
mod scheduler;
mod volumes;

use anyhow::{Result, bail};
use serde_json::json;

/// Runs a bench by name. `--debug` uses the debug build instead of a release build, to test the bench
/// itself; its figures are meaningless then.
pub fn run(arguments: &[String]) -> Result<()> {
    let release = !arguments.iter().any(|argument| argument == "--debug");
    match arguments.first().map(String::as_str) {
        Some("agent") => agent::run(release),
        Some("api") => api::run(release),
        Some("hcl") => hcl(release),
        Some("scheduler") => scheduler::run(&arguments[1..], release),
        Some("volumes") => volumes::run(release),
        Some(other) => {
            bail!("there is no bench {other:?}; known: agent, api, hcl, scheduler, volumes")
        }
        None => bail!("which bench? known: agent, api, hcl, scheduler, volumes"),
    }
}

/// Measures the parser of job files. The bench is an example of its crate, so only that crate is built.
fn hcl(release: bool) -> Result<()> {
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--package", "caravan-hcl", "--example", "bench"]);
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
    println!(
        "{}",
        json!({ "bench": bench, "case": case, "value": (value * 100.0).round() / 100.0, "unit": unit })
    );
}

/// Returns the median.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
