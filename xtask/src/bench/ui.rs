//! Measures the web page over 10,000 nodes, 100,000 allocations and 1,000 volumes in Chromium.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Serves a fleet and runs the measurements of `ui/e2e/scale.mjs`. The arguments are flags of `caravan-fleet serve`.
pub fn run(arguments: &[String], release: bool) -> Result<()> {
    let flags: Vec<&String> = arguments.iter().filter(|argument| *argument != "--debug").collect();
    let mut command = caravan_testkit::cargo();
    command.args(["run", "--quiet", "--package", "caravan-fleet", "--bin", "caravan-fleet"]);
    if release {
        command.arg("--release");
    }
    let mut fleet = command
        .args(["--", "serve"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let measured = measure(fleet.stdout.take().context("the fleet has no output")?);
    // The fleet ends with its input.
    drop(fleet.stdin.take());
    let status = fleet.wait()?;
    measured?;
    ensure!(status.success(), "the fleet ended with {status}");
    Ok(())
}

fn measure(output: impl std::io::Read) -> Result<()> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let first: Value = serde_json::from_str(&line).with_context(|| format!("the fleet printed {line:?}"))?;
    let Some(address) = first["address"].as_str() else { bail!("the fleet printed {first}") };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    let status = Command::new("node").arg(root.join("ui/e2e/scale.mjs")).arg(address).status();
    let status = status.context("node is not installed: scripts/tools.sh ui installs Node")?;
    ensure!(status.success(), "the measurements ended with {status}");
    Ok(())
}
