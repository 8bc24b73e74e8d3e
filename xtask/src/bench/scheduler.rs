//! Measures decisions of the scheduler, and a whole server with simulated clients; each in a separate process.

use anyhow::{Context, Result, bail};

/// The numbers of nodes and allocations for the whole server.
const FLEETS: [(&str, &str); 2] = [("10000", "200000"), ("10000", "1000000")];

/// Measures single decisions. With `fill` or `e2e`, measures state and scheduler alone, or a whole server, while a
/// cluster fills. Numbers after that replace the default nodes and allocations.
pub fn run(arguments: &[String], release: bool) -> Result<()> {
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with("--")).collect();
    let program = |name: &'static str, arguments: &[&str]| program(name, arguments, release);
    match arguments[..] {
        [] => program("caravan-sim", &["bench"]),
        ["fill", ref numbers @ ..] if numbers.len() == 2 => {
            program("caravan-sim", &[&["fill"][..], numbers].concat())
        }
        ["fill"] => {
            FLEETS.iter().try_for_each(|(nodes, allocs)| program("caravan-sim", &["fill", nodes, allocs]))
        }
        ["e2e"] => FLEETS.iter().try_for_each(|(nodes, allocs)| program("caravan-fleet", &[nodes, allocs])),
        ["e2e", ref numbers @ ..] => program("caravan-fleet", numbers),
        _ => bail!("usage: bench scheduler [fill [NODES ALLOCATIONS] | e2e [NODES ALLOCATIONS ...]]"),
    }
}

/// Measures a fleet: with this number of allocations on one server, and with a quarter of it on three servers.
pub(super) fn fleet(allocs: usize, release: bool) -> Result<()> {
    let nodes = "6100";
    program("caravan-fleet", &[nodes, &allocs.to_string()], release)?;
    program("caravan-fleet", &[nodes, &(allocs / 4).to_string(), "--servers", "3"], release)
}

fn program(name: &'static str, arguments: &[&str], release: bool) -> Result<()> {
    let mut command = caravan_testkit::cargo();
    command.args(["run", "--quiet", "--package", name, "--bin", name]);
    if release {
        command.arg("--release");
    }
    let status = command.arg("--").args(arguments).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the bench of the scheduler failed");
    }
    Ok(())
}
