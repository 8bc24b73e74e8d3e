//! `cargo xtask bench machine`: figures of a virtual machine with control groups of version 2 (crate `machines`).

use super::kept;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// The stories that print figures.
const STORIES: [&str; 2] = ["figures::", "groups::fifty"];

/// Runs the stories that print figures, and passes their figures on.
pub(super) fn run(release: bool) -> Result<()> {
    let mut command = caravan_testkit::cargo();
    command.env("CARAVAN_VM_STORIES", "all").args([
        "test",
        "--package",
        "caravan-machines",
        "--test",
        "machines",
    ]);
    if release {
        command.arg("--release");
    }
    command.args(["--", "--nocapture", "--test-threads=1"]).args(STORIES).stdout(Stdio::piped());
    let mut child = command.spawn().context("run cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        // The harness prints the name of a test on the same line.
        let Some(begin) = line.find("{\"bench\"") else { continue };
        if let Ok(figure) = serde_json::from_str(&line[begin..]) {
            println!("{}", &line[begin..]);
            kept::record(figure);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "the stories ended with {status}");
    Ok(())
}
