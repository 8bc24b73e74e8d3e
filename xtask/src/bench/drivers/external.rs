//! Measures what the agent adds to the start of a task of an external driver: the pipes, the collector of the output,
//! and the stored handle.

use super::{ROUNDS, print};
use crate::bench::agent::millis;
use crate::bench::median;
use anyhow::{Context, Result};
use caravan_drivers::{LogConfig, Processors, Resources, ShimCommand, TaskConfig, TaskDirs, TaskId};
use caravan_plugins::{Block, Catalog, Options};
use caravan_proto::plugins::driver::driver_client::DriverClient;
use caravan_proto::plugins::driver::{DestroyTaskRequest, StartTaskRequest, TaskConfig as Sent};
use caravan_testkit::{example_plugin, program};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    let base = dir.join("alloc");
    let (shared, task_dir) = (base.join("alloc"), base.join(name));
    for dir in [shared.join("logs"), task_dir.join("local"), task_dir.join("secrets")] {
        std::fs::create_dir_all(dir)?;
    }
    Ok(TaskConfig {
        id: TaskId(format!("alloc/{name}/1")),
        alloc_id: "alloc".into(),
        task_name: name.into(),
        job_id: "job".into(),
        job_name: "job".into(),
        parent_job_id: String::new(),
        group_name: "group".into(),
        namespace: "default".into(),
        node_id: "node".into(),
        node_name: "node".into(),
        driver_config: json!({"command": "/bin/sleep", "args": ["3600"]}),
        env: BTreeMap::new(),
        resources: Resources::default(),
        processors: Processors::Any,
        ports: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        device_env: BTreeMap::new(),
        user: None,
        dirs: TaskDirs {
            state_dir: dir.join("tasks").join(name),
            shared_alloc_dir: shared.clone(),
            task_dir,
        },
        logs: Some(LogConfig {
            dir: shared.join("logs"),
            stdout: format!("{name}.stdout"),
            stderr: format!("{name}.stderr"),
            max_files: 1,
            max_file_size_mb: 1,
        }),
        network: None,
        cgroup_parent: PathBuf::from("caravan-bench"),
        lease: None,
        privileged_mounts: false,
    })
}
