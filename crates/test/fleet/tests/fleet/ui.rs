//! The web page over a large state: its budgets, measured in Chromium.

use anyhow::{Context, Result, bail, ensure};
use caravan_fleet::{Cluster, Setup, Size, Web, fill, plain_nodes};
use std::path::Path;
use std::process::{Command, Stdio};

/// The browser of the tests (package `chromium`).
const BROWSER: &str = "/usr/bin/chromium";

/// The size of the state; `cargo xtask bench ui` measures ten times as many nodes.
const SIZE: Size = Size { nodes: 1000, allocs: 5000, each: 100, volumes: 300 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_keeps_its_budgets() -> Result<()> {
    if !Path::new(BROWSER).exists() {
        bail!("{BROWSER} is missing: scripts/tools.sh test installs it");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../ui");
    if !folder.join("node_modules/playwright-core").exists() {
        let status =
            Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder).status();
        let status = status.context("npm is not installed: scripts/tools.sh test installs Node")?;
        ensure!(status.success(), "npm ci ended with {status}");
    }
    let setup = Setup { nodes: plain_nodes(SIZE), workers: 2, dir: None, heartbeat: None };
    let mut cluster = Cluster::start(&setup).await?;
    fill(&mut cluster, SIZE).await?;
    let web = Web::start(&cluster, ([127, 0, 0, 1], 0).into()).await?;
    let address = format!("http://{}", web.address);
    let output = tokio::task::spawn_blocking(move || {
        let script = folder.join("e2e/scale.mjs");
        Command::new("node").arg(script).arg(address).stdin(Stdio::null()).output()
    });
    let output = output.await?.context("node is not installed: scripts/tools.sh test installs it")?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && text.trim_end().ends_with("the session is over"), "{text}\n{errors}");
    drop(web);
    cluster.stop().await?;
    Ok(())
}
