//! Sessions of users in Chromium: the scripts in `ui/e2e`.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// The browser of the tests (package `chromium`).
const BROWSER: &str = "/usr/bin/chromium";

/// Installs the packages of the page's tests, if the lock file has changed since the last installation.
fn packages(folder: &Path) -> Result<()> {
    let changed = |name: &str| folder.join(name).metadata().and_then(|found| found.modified());
    let installed = changed("node_modules/.package-lock.json");
    if installed.is_ok_and(|at| changed("package-lock.json").is_ok_and(|lock| lock <= at)) {
        return Ok(());
    }
    let status = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder).status();
    let status = status.context("npm is not installed: scripts/tools.sh test installs Node")?;
    ensure!(status.success(), "npm ci ended with {status}");
    Ok(())
}

/// Runs a script of the page's tests against an agent. The script receives the address and the arguments.
///
/// # Errors
/// Fails if a tool is missing, or an expectation of the script is not met. The error has the script's output.
pub fn session(script: &str, address: &str, arguments: &[&str], env: &[(&str, &str)]) -> Result<()> {
    if !Path::new(BROWSER).exists() {
        bail!("{BROWSER} is missing: scripts/tools.sh test installs it");
    }
    let folder = crate::workspace("ui");
    packages(&folder)?;
    let output = Command::new("node")
        .arg(folder.join("e2e").join(script))
        .arg(address)
        .args(arguments)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .context("node is not installed: scripts/tools.sh test installs it")?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(
        output.status.success() && text.trim().ends_with("the session is over"),
        "{script}: {text}\n{errors}"
    );
    Ok(())
}
