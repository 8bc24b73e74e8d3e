//! `cargo xtask bench <name>`: figures, one JSON object a line on standard output.

mod agent;

use anyhow::{Result, bail};
use serde_json::json;

/// Runs a bench by name.
pub fn run(name: Option<&str>) -> Result<()> {
    match name {
        Some("agent") => agent::run(),
        Some(other) => bail!("there is no bench {other:?}; known: agent"),
        None => bail!("which bench? known: agent"),
    }
}

/// Prints one figure.
fn figure(bench: &str, case: &str, value: f64, unit: &str) {
    println!(
        "{}",
        json!({ "bench": bench, "case": case, "value": (value * 100.0).round() / 100.0, "unit": unit })
    );
}

/// The middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
