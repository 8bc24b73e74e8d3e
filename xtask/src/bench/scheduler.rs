//! How fast evaluations are decided, in a process of its own.

use anyhow::{Context, Result, bail};
use std::process::Command;

pub fn run(release: bool) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "caravan-sim", "--bin", "caravan-sim"]);
    if release {
        command.arg("--release");
    }
    let status = command.args(["--", "bench"]).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the bench of the scheduler failed");
    }
    Ok(())
}
