//! The life of a volume: created, claimed, written, reused, read, deleted; with the plugin and
//! its consumers under every pair of drivers.

use crate::{DRIVERS, create_volume, id_of, run_job, run_plugin};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, Writer, eventually, mounts_below, writer_job};

fn writer(id: &str, driver: &str, mode: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: driver.into(),
        volume: "data".into(),
        access_mode: mode.into(),
        word: format!("from-{id}"),
    })
}

fn wait_output(agent: &Agent, alloc: &str, needle: &str) -> Result<String> {
    eventually(&format!("{needle:?} in the output"), || {
        let text = agent.logs(alloc, "writer", "stdout")?;
        if text.contains(needle) { Ok(text) } else { bail!("output so far: {text:?}") }
    })
}

fn no_consumer_mounts(agent: &Agent) -> Result<()> {
    eventually("no mount of a volume to be left", || {
        let below = agent.dir().to_string_lossy().into_owned();
        let left: Vec<String> = mounts_below(&below)?
            .into_iter()
            .filter(|m| m.contains("/per-alloc/") || m.contains("/staging/") || m.ends_with("/local/data"))
            .collect();
        if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
    })
}

fn whole_life(plugin_driver: &str, consumer_driver: &str, plugin_args: &[&str]) -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, plugin_driver, plugin_args)?;
    create_volume(&agent, "data", "single-node-writer")?;

    run_job(&agent, "one", &writer("one", consumer_driver, "single-node-writer"))?;
    let one = id_of(&agent.wait_alloc("one", "running")?)?;
    wait_output(&agent, &one, "from-one 2")?;
    let volume = agent.volume("data")?;
    ensure!(volume["WriteAllocs"].as_object().is_some_and(|w| w.contains_key(&one)), "{volume}");
    ensure!(volume["AccessMode"] == "single-node-writer", "{volume}");

    // A second writer waits and shows the reason.
    run_job(&agent, "two", &writer("two", consumer_driver, "single-node-writer"))?;
    eventually("the second writer to wait with its reason", || {
        let evals = agent.get("/v1/job/two/evaluations")?;
        let text = evals.to_string();
        if text.contains("blocked") && text.contains("data") { Ok(()) } else { bail!("{text}") }
    })?;
    ensure!(agent.allocs("two")?.is_empty());

    // The agent is killed and starts again, without effect on the writer.
    let before = agent.logs(&one, "writer", "stdout")?.lines().count();
    agent.kill_9()?;
    agent.run()?;
    eventually("the writer to go on", || {
        let text = agent.logs(&one, "writer", "stdout")?;
        ensure!(text.lines().count() > before + 2, "{} lines", text.lines().count());
        let numbers: Vec<u64> =
            text.lines().filter_map(|l| l.strip_prefix("from-one ")?.parse().ok()).collect();
        ensure!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "lines were lost or doubled: {numbers:?}");
        Ok(())
    })?;
    let alloc = agent.get(&format!("/v1/allocation/{one}"))?;
    ensure!(alloc["TaskStates"]["writer"]["Restarts"] == 0, "{alloc}");

    // The next allocation reads the data.
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    let two = id_of(&agent.wait_alloc("two", "running")?)?;
    let text = wait_output(&agent, &two, "from-two 1")?;
    ensure!(
        text.contains("from-one 1\n") && text.contains("from-one 2\n"),
        "what the first wrote is there: {text}"
    );

    // Released and deleted.
    agent.caravan(&["job", "stop", "-detach", "two"])?.ok()?;
    agent.wait_no_claims("data")?;
    no_consumer_mounts(&agent)?;
    agent.caravan(&["volume", "delete", "data"])?.ok()?;
    ensure!(agent.request("GET", "/v1/volume/csi/data", None)?.status == 404);
    Ok(())
}

#[test]
fn raw_exec_plugin_raw_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[0], DRIVERS[0], &[])
}

#[test]
fn raw_exec_plugin_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[0], DRIVERS[1], &[])
}

#[test]
fn exec_plugin_raw_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[1], DRIVERS[0], &[])
}

#[test]
fn exec_plugin_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[1], DRIVERS[1], &[])
}

#[test]
fn with_controller_publish() -> Result<()> {
    whole_life(DRIVERS[0], DRIVERS[1], &["--controller-publish"])
}

#[test]
fn a_job_that_waits_for_a_volume_runs_once_it_is_created() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    run_job(&agent, "early", &writer("early", "raw_exec", "single-node-writer"))?;
    eventually("the evaluation to wait for the volume", || {
        let evals = agent.get("/v1/job/early/evaluations")?.to_string();
        if evals.contains("csi-volume:default:data") { Ok(()) } else { bail!("{evals}") }
    })?;
    create_volume(&agent, "data", "single-node-writer")?;
    agent.wait_alloc("early", "running").map(drop)
}

#[test]
fn stopping_one_reader_leaves_the_other_its_mount() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "multi-node-multi-writer")?;
    for id in ["one", "two"] {
        run_job(&agent, id, &writer(id, "raw_exec", "multi-node-multi-writer"))?;
    }
    agent.wait_alloc("one", "running")?;
    let two = id_of(&agent.wait_alloc("two", "running")?)?;
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_alloc("one", "complete")?;
    let before = agent.logs(&two, "writer", "stdout")?.lines().count();
    eventually("the other to go on writing", || {
        let now = agent.logs(&two, "writer", "stdout")?.lines().count();
        if now > before + 3 { Ok(()) } else { bail!("{now} lines") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "two"])?.ok()?;
    agent.wait_no_claims("data")?;
    no_consumer_mounts(&agent)
}

#[test]
fn a_volume_with_a_size_limit_is_an_image() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    let path = agent.dir().join("data.hcl");
    let spec = caravan_testkit::volume_spec("data", "single-node-writer");
    std::fs::write(
        &path,
        format!(
            "{spec}capacity_min = \"16MiB\"\ncapacity_max = \"16MiB\"\nparameters {{\n fs = \"ext4\"\n}}\n"
        ),
    )?;
    agent.caravan(&["volume", "create", &path.to_string_lossy()])?.ok()?;
    let text = writer("full", "raw_exec", "single-node-writer").replace(
        "cat $NOMAD_TASK_DIR/data/log",
        "dd if=/dev/zero of=$NOMAD_TASK_DIR/data/big bs=1M count=64 2>/dev/null || echo the volume is full; cat $NOMAD_TASK_DIR/data/log",
    );
    run_job(&agent, "full", &text)?;
    let alloc = id_of(&agent.wait_alloc("full", "running")?)?;
    wait_output(&agent, &alloc, "the volume is full").map(drop)
}

#[test]
fn the_same_create_again_makes_nothing_new() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    let first = agent.volume("data")?["ExternalID"].clone();
    create_volume(&agent, "data", "single-node-writer")?;
    ensure!(agent.volume("data")?["ExternalID"] == first);
    let listed = agent.get("/v1/volumes/external?plugin_id=hostpath")?;
    ensure!(listed["Volumes"].as_array().is_some_and(|v| v.len() == 1), "{listed}");
    Ok(())
}

#[test]
fn an_update_of_the_only_writer_is_no_failure_and_hands_the_volume_over() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    run_job(&agent, "w", &writer("w", "raw_exec", "single-node-writer"))?;
    let old = id_of(&agent.wait_alloc("w", "running")?)?;
    wait_output(&agent, &old, "from-w 1")?;
    let path = agent.dir().join("w.nomad.hcl");
    std::fs::write(&path, writer("w", "raw_exec", "single-node-writer").replace("from-w", "newer-w"))?;
    agent.caravan(&["job", "run", &path.to_string_lossy()])?.ok()?;
    let new = eventually("the new version to run", || {
        let newest = agent.wait_alloc("w", "running")?;
        let id = id_of(&newest)?;
        if id == old { bail!("still the old one") } else { Ok(id) }
    })?;
    let text = wait_output(&agent, &new, "newer-w 1")?;
    ensure!(text.contains("from-w 1\n"), "what the old version wrote is there: {text}");
    Ok(())
}
