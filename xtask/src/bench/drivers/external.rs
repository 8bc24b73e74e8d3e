//! Measures the agent's share of the start of a task of an external driver: the pipes, the collector of the output,
//! and the stored handle.

use super::{ROUNDS, print};
use crate::bench::agent::millis;
use crate::bench::median;
use anyhow::{Context, Result};
use caravan_drivers::conformance::sample_with_dirs;
use caravan_drivers::{ShimCommand, TaskConfig};
use caravan_plugins::{Block, Catalog, Options};
use caravan_proto::plugins::driver::driver_client::DriverClient;
use caravan_proto::plugins::driver::{DestroyTaskRequest, StartTaskRequest, TaskConfig as Sent};
use caravan_testkit::{example_plugin, program};
use serde_json::json;
use std::path::Path;
use std::time::Instant;
use tonic::transport::Endpoint;

/// Prints the time of a start through the adapter, and of the plugin's own call.
pub(super) fn starts() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(measure())
}

async fn measure() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let plugins = dir.path().join("plugins");
    std::fs::create_dir(&plugins)?;
    std::fs::copy(example_plugin("exampledriver"), plugins.join("exampledriver"))?;
    let catalog = Catalog::load(&Options {
        plugin_dir: Some(plugins),
        is_configured: true,
        blocks: [("exampledriver".to_owned(), Block::default())].into(),
        state_dir: dir.path().join("state"),
        shim: ShimCommand { program: program(), args: vec!["shim".into()] },
        built_in: Default::default(),
        allowed: Default::default(),
        cores: Vec::new(),
        timing: Default::default(),
    })
    .await;
    let driver = catalog.drivers.first().context("the example driver is there")?;
    driver.fingerprint().await;
    let socket =
        std::fs::read_dir(dir.path().join("state/exampledriver/run"))?.next().context("a socket")??;
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.path().display()))?;
    let mut own = DriverClient::new(endpoint.connect().await?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let config = task(dir.path(), &format!("plain-{round}"))?;
        let request = StartTaskRequest { task: Some(sent(&config)) };
        let begun = Instant::now();
        own.start_task(request).await?;
        theirs.push(millis(begun));
        own.destroy_task(DestroyTaskRequest { task_id: config.id.0, force: true }).await?;

        let config = task(dir.path(), &format!("task-{round}"))?;
        let id = config.id.clone();
        let begun = Instant::now();
        driver.start(config).await?;
        ours.push(millis(begun));
        driver.destroy(&id, true).await?;
    }
    driver.shutdown().await;
    let (ours, theirs) = (median(ours), median(theirs));
    print("external start by the plugin itself, median", theirs, "ms");
    print("external start by the driver, median", ours, "ms");
    print("external start above the plugin's own time", ours - theirs, "ms");
    Ok(())
}

/// Returns a task as the plugin receives it.
fn sent(task: &TaskConfig) -> Sent {
    // The MessagePack form of {"command": "/bin/sleep", "args": ["3600"]} (https://msgpack.org).
    let config = b"\x82\xa7command\xaa/bin/sleep\xa4args\x91\xa43600".to_vec();
    Sent {
        id: task.id.0.clone(),
        name: task.task_name.clone(),
        alloc_id: task.alloc_id.clone(),
        msgpack_driver_config: config,
        alloc_dir: task.dirs.task_dir.parent().unwrap_or(Path::new("/")).display().to_string(),
        stdout_path: "/dev/null".into(),
        stderr_path: "/dev/null".into(),
        ..Default::default()
    }
}

fn task(dir: &Path, name: &str) -> Result<TaskConfig> {
    let config = json!({"command": "/bin/sleep", "args": ["3600"]});
    let mut task = sample_with_dirs(dir, "alloc", name, config)?;
    task.dirs.state_dir = dir.join("tasks").join(name);
    Ok(task)
}
