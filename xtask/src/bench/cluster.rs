//! Measures three servers on this machine: leader changes, writes, reads, nodes, growth, a fleet.

mod connection;
mod failover;
mod growth;
mod nodes;
mod rates;

use super::agent::build;
use super::figure;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// The sizes of the measurements. The defaults take about twenty minutes.
struct Sizes {
    /// The number of leaders that are killed.
    kills: usize,
    /// The number of ordered transfers.
    transfers: usize,
    /// The number of simulated nodes.
    nodes: usize,
    /// The number of writes whose log must stay bounded.
    writes: usize,
    /// The size of the state that an empty server receives, in MB.
    state: usize,
    /// The number of allocations of a fleet on one server; three servers receive a quarter of them.
    allocs: usize,
}

/// The flags for sizes.
pub(super) const FLAGS: [&str; 6] =
    ["--kills N", "--transfers N", "--nodes N", "--writes N", "--state MB", "--allocs N"];

impl Sizes {
    fn from_arguments(arguments: &[String]) -> Result<Self> {
        let mut sizes = Self {
            kills: 200,
            transfers: 20,
            nodes: 10_000,
            writes: 1_000_000,
            state: 500,
            allocs: 2_000_000,
        };
        let mut rest = arguments.iter().skip(1);
        while let Some(flag) = rest.next() {
            let field = match flag.as_str() {
                "--kills" => &mut sizes.kills,
                "--transfers" => &mut sizes.transfers,
                "--nodes" => &mut sizes.nodes,
                "--writes" => &mut sizes.writes,
                "--state" => &mut sizes.state,
                "--allocs" => &mut sizes.allocs,
                "--debug" | "--check" | "--keep" => continue,
                unknown if unknown.starts_with("--") => {
                    bail!("{unknown} is no flag of this bench; known: {}", FLAGS.join(", "));
                }
                // The name of the part.
                _ => continue,
            };
            let value = rest.next().with_context(|| format!("{flag} needs a number"))?;
            *field = value.parse().with_context(|| format!("{flag} {value}: not a number"))?;
        }
        Ok(sizes)
    }
}

/// Runs all parts, or the named one. A size of zero omits its part.
pub fn run(arguments: &[String], release: bool) -> Result<()> {
    let sizes = Sizes::from_arguments(arguments)?;
    let part = arguments.get(1).map(String::as_str).filter(|word| !word.starts_with("--"));
    if let Some(part) = part
        && !["failover", "rates", "nodes", "growth", "fleet"].contains(&part)
    {
        bail!("there is no part {part:?}; known: failover, rates, nodes, growth, fleet");
    }
    let is_asked = |name: &str| part.is_none_or(|part| part == name);
    build(release)?;
    if is_asked("failover") {
        failover::run(sizes.kills, sizes.transfers)?;
    }
    if is_asked("rates") {
        rates::run()?;
    }
    if is_asked("nodes") && sizes.nodes > 0 {
        nodes::run(sizes.nodes)?;
    }
    if is_asked("growth") {
        growth::run(sizes.state, sizes.writes)?;
    }
    if is_asked("fleet") && sizes.allocs > 0 {
        super::scheduler::fleet(sizes.allocs, release)?;
    }
    Ok(())
}

fn print(case: &str, value: f64, unit: &str) {
    figure("cluster", case, value, unit);
}

/// Returns the value below which a percentage of the values is.
fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or(f64::NAN)
}

/// Returns the size of all files below a directory, in MB.
fn size_of(dir: &Path) -> Result<f64> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    Ok(bytes_below(dir)? as f64 / 1e6)
}

fn bytes_below(dir: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}
