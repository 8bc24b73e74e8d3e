//! A few chaos schedules (`caravan_testkit::chaos`); `cargo xtask chaos --seeds N` runs more. Also tests the
//! harness itself.

use anyhow::{Result, bail, ensure};
use caravan_testkit::chaos::{ChaosOptions, SUITE_SEEDS, run_seeds};
use caravan_testkit::cluster::{Cluster, ClusterOptions, FaultPlugin, Stamper, stamper_job};
use caravan_testkit::{eventually, workspace};
use serde_json::json;

/// Runs the schedules of the suite, and returns the first failure.
fn schedules(seeds: &[u64], options: &ChaosOptions) -> Result<()> {
    let artifacts = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace("target"), Into::into);
    let mut failed = Vec::new();
    run_seeds(seeds.iter().copied(), options, &artifacts.join("chaos"), |_, result| {
        failed.extend(result.err());
    })?;
    match failed.pop() {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

#[test]
fn schedules_of_chaos_end_in_order() -> Result<()> {
    schedules(&SUITE_SEEDS, &ChaosOptions::default())
}

/// Runs schedules that also kill, suspend and cut off servers.
#[test]
fn schedules_of_chaos_with_three_servers_end_in_order() -> Result<()> {
    schedules(&[2, 18], &ChaosOptions { servers: 3, subnet: 7, ..ChaosOptions::default() })
}

fn stamper(version: u32) -> String {
    stamper_job(&Stamper {
        id: "w".into(),
        driver: "raw_exec".into(),
        volume: "v".into(),
        access_mode: "single-node-writer".into(),
        count: 1,
        version,
        broken_mount: "hold".into(),
    })
}

/// Starts a cluster with one node, a fault plugin and a volume.
fn world(attach: bool, images: bool) -> Result<Cluster> {
    let mut cluster = Cluster::start(&ClusterOptions { nodes: 1, ..ClusterOptions::default() })?;
    cluster.run_plugin(&FaultPlugin { images, ..FaultPlugin::new("p", attach, true, &[]) })?;
    cluster.create_volume("v", "p", "single-node-writer")?;
    Ok(cluster)
}

/// Waits until the newest allocation of the writer runs and has its mount. Returns the allocation.
fn mounted(cluster: &Cluster) -> Result<String> {
    eventually("the writer to run on its mount", || {
        let allocs = cluster.server().allocs("w")?;
        let Some(alloc) = allocs.iter().find(|a| a["ClientStatus"] == "running") else { bail!("{allocs:?}") };
        let id = alloc["ID"].as_str().unwrap_or_default().to_owned();
        let mounts = cluster.nodes()[0].volume_mounts()?;
        if mounts.iter().any(|m| m.contains(&id)) { Ok(id) } else { bail!("{mounts:?}") }
    })
}

fn all_gone(cluster: &Cluster) -> Result<()> {
    cluster.stop_job("w", false)?;
    cluster.server().wait_no_claims("v")?;
    let left = cluster.nodes()[0].volume_mounts()?;
    ensure!(left.is_empty(), "{left:?}");
    cluster.server().caravan(&["volume", "delete", "v"])?.ok().map(drop)
}

#[test]
fn a_machine_loses_power_and_its_writer_comes_back() -> Result<()> {
    let mut cluster = world(true, false)?;
    cluster.run_job("w", &stamper(1))?;
    mounted(&cluster)?;
    eventually("stamps", || if cluster.san("p").stamps("v")?.is_empty() { bail!("none") } else { Ok(()) })?;
    cluster.node(0).power_off()?;
    ensure!(cluster.nodes()[0].volume_mounts()?.is_empty(), "mounts outlived the machine");
    let before = cluster.san("p").stamps("v")?.len();
    cluster.node(0).start_agent()?;
    mounted(&cluster)?;
    eventually("stamps of after the boot", || {
        let now = cluster.san("p").stamps("v")?.len();
        if now > before { Ok(()) } else { bail!("{now}") }
    })?;
    ensure!(cluster.nodes()[0].stamps_on_local_disk()?.is_empty());
    all_gone(&cluster)
}

#[test]
fn a_plugin_fails_hangs_and_dies_on_command() -> Result<()> {
    let cluster = world(false, false)?;
    cluster.san("p").set_faults(&[
        json!({ "call": "NodeStageVolume", "action": "fail", "code": "Internal", "times": 1 }),
        json!({ "call": "NodeStageVolume", "action": "exit", "when": "after", "times": 1 }),
        json!({ "call": "NodePublishVolume", "action": "fail", "when": "after", "times": 1 }),
        json!({ "call": "NodePublishVolume", "action": "hang", "when": "after", "times": 1 }),
    ])?;
    cluster.run_job("w", &stamper(1))?;
    eventually("a call to hang", || {
        let text = std::fs::read_to_string(cluster.san("p").dir().join("faults.json"))?;
        let rules: serde_json::Value = serde_json::from_str(&text)?;
        let used = rules.as_array().is_some_and(|all| all.iter().all(|rule| rule["times"] == 0));
        if used { Ok(()) } else { bail!("{text}") }
    })?;
    cluster.san("p").set_faults(&[])?;
    mounted(&cluster)?;
    all_gone(&cluster)
}

#[test]
fn volumes_of_the_fault_plugin_may_be_images() -> Result<()> {
    let cluster = world(true, true)?;
    cluster.run_job("w", &stamper(1))?;
    mounted(&cluster)?;
    all_gone(&cluster)
}
