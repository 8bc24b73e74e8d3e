//! Expansion of volumes, in use or after their release, and the reported state in the meantime.

use crate::{id_of, run_job, run_plugin};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, Writer, eventually, writer_job};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Creates the volume `data` as an ext4 image of this size in MiB, or expands it.
fn create(agent: &Agent, mebibytes: u32) -> Result<caravan_testkit::Output> {
    let path = agent.dir().join("data.hcl");
    let spec = caravan_testkit::volume_spec("data", "single-node-writer");
    std::fs::write(
        &path,
        format!("{spec}capacity_min = \"{mebibytes}MiB\"\nparameters {{\n fs = \"ext4\"\n}}\n"),
    )?;
    agent.caravan(&["volume", "create", &path.to_string_lossy()])
}

fn writer(id: &str, driver: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: driver.into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: format!("from-{id}"),
    })
}

/// Returns the size of the file system at a path of the host.
fn size(path: &str) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path).with_context(|| format!("look at {path}"))?;
    Ok(stat.blocks() * stat.fragment_size())
}

fn mounted_at(agent: &Agent) -> Result<String> {
    let below = agent.dir().to_string_lossy().into_owned();
    let mounts = caravan_testkit::mounts_below(&below)?;
    mounts.into_iter().find(|m| m.contains("/per-alloc/")).context("nothing is mounted")
}

#[test]
fn a_volume_grows_with_or_between_its_writers_and_is_explained() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create(&agent, 16)?.ok()?;
    run_job(&agent, "one", &writer("one", "raw_exec"))?;
    let alloc = id_of(&agent.wait_alloc("one", "running")?)?;
    let mount = mounted_at(&agent)?;
    ensure!(size(&mount)? < 20 * MIB, "it is {} at first", size(&mount)?);

    let asked = create(&agent, 48)?;
    if asked.code == 0 {
        let after = agent.get(&format!("/v1/allocation/{alloc}"))?;
        let running = after["ClientStatus"] == "running" && after["TaskStates"]["writer"]["Restarts"] == 0;
        ensure!(running, "{after}");
    } else {
        // Expanding a mounted ext4 file system needs a capability (CAP_SYS_RESOURCE) that the plugin
        // does not have everywhere. Without it, the volume is expanded after its release.
        ensure!(asked.all().contains("once its last claim has ended"), "{asked:?}");
        let reported = agent.get("/v1/volume/csi/data/explain")?;
        ensure!(reported["Summary"].as_str().is_some_and(|s| s.contains("until nobody uses")), "{reported}");
        agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
        agent.wait_no_claims("data")?;
        run_job(&agent, "two", &writer("two", "raw_exec"))?;
        agent.wait_alloc("two", "running")?;
    }
    eventually("the file system to grow", || {
        let now = size(&mounted_at(&agent)?)?;
        if now > 30 * MIB { Ok(()) } else { bail!("it has {now} bytes") }
    })?;
    let volume = agent.volume("data")?;
    ensure!(volume["Capacity"].as_u64() >= Some(48 * MIB), "{volume}");
    ensure!(volume["CaravanPhase"] == "ready", "{volume}");

    // A larger minimum is accepted as an expansion; a smaller maximum is refused.
    let refused = {
        let path = agent.dir().join("small.hcl");
        let spec = caravan_testkit::volume_spec("data", "single-node-writer");
        std::fs::write(&path, format!("{spec}capacity_max = \"20MB\"\nparameters {{\n fs = \"ext4\"\n}}\n"))?;
        agent.caravan(&["volume", "create", &path.to_string_lossy()])?
    };
    ensure!(
        refused.all().contains("max requested capacity (20 MB) less than or equal to current"),
        "{refused:?}"
    );

    let reported: Value = eventually("the fill", || {
        let reported = agent.get("/v1/volume/csi/data/explain")?;
        let fill = reported["Usage"].as_object().and_then(|by_node| by_node.values().next().cloned());
        match fill {
            Some(fill) if fill["TotalBytes"].as_u64() > Some(30 * MIB) => Ok(reported),
            _ => bail!("{reported}"),
        }
    })?;
    ensure!(reported["Summary"] == "in use by 1 allocation", "{reported}");
    let text = agent.caravan(&["volume", "explain", "data"])?.ok()?.stdout;
    for part in ["in use by 1 allocation", "expanding", "mounted", "Used"] {
        ensure!(text.contains(part), "{part:?} in {text}");
    }
    let status = agent.caravan(&["volume", "status", "data"])?.ok()?.stdout;
    ensure!(status.contains("Available"), "{status}");
    let metrics = agent.get("/v1/metrics")?;
    let has = |list: &str, name: &str| {
        metrics[list].as_array().is_some_and(|all| all.iter().any(|m| m["Name"] == name))
    };
    ensure!(has("Gauges", "nomad.volumes.used_bytes") && has("Samples", "nomad.volumes.call"), "{metrics}");
    Ok(())
}
