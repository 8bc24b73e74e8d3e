//! `cargo xtask simulate servers`: runs seeds of the simulation of servers (`crates/test/simulation`).

use anyhow::{Context, Result, bail};

pub fn run(arguments: &[String]) -> Result<()> {
    let Some(("servers", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) else {
        bail!(
            "usage: cargo xtask simulate servers [--service] [--release] [--seeds N] [--from N] [--seed N] [--jobs N] \
             [--minutes N] [--fault NAME|all] [--trace]"
        )
    };
    let mut command = caravan_testkit::cargo();
    command.args(["run", "--quiet", "--package", "caravan-simulation", "--bin", "caravan-simulation"]);
    if rest.iter().any(|argument| argument == "--release") {
        command.arg("--release");
    }
    let rest = rest.iter().filter(|argument| *argument != "--release");
    let status = command.arg("--").args(rest).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the simulation of servers failed");
    }
    Ok(())
}
