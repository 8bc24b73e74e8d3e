//! Commands about volumes with a real plugin: snapshots, volumes created from them, secrets that no output contains.

use crate::{create_volume, id_of, run_job, run_plugin};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, Writer, eventually, volume_spec, writer_job};
use std::fs;
use std::path::Path;

/// A text that occurs nowhere else.
const SECRET: &str = "hunter2-in-no-other-place";

fn writer(id: &str, volume: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: "raw_exec".into(),
        volume: volume.into(),
        access_mode: "single-node-writer".into(),
        word: format!("from-{id}"),
    })
}

fn wait_output(agent: &Agent, alloc: &str, needle: &str) -> Result<()> {
    eventually(&format!("{needle:?} in the output"), || {
        let text = agent.logs(alloc, "writer", "stdout")?;
        if text.contains(needle) { Ok(()) } else { bail!("output so far: {text:?}") }
    })
}

fn create(agent: &Agent, id: &str, more: &str) -> Result<caravan_testkit::Output> {
    let path = agent.dir().join(format!("{id}.hcl"));
    fs::write(&path, format!("{}\n{more}\n", volume_spec(id, "single-node-writer")))?;
    agent.caravan(&["volume", "create", &path.to_string_lossy()])
}

#[test]
fn what_was_written_is_in_the_snapshot_and_in_the_clone() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    run_job(&agent, "one", &writer("one", "data"))?;
    let one = id_of(&agent.wait_alloc("one", "running")?)?;
    wait_output(&agent, &one, "from-one 2")?;
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_no_claims("data")?;

    // Repeating the command creates no second snapshot.
    for _ in 0..2 {
        let made = agent.caravan(&["volume", "snapshot", "create", "data", "first"])?.ok()?;
        ensure!(made.stdout.starts_with("Snapshot ID"), "{}", made.all());
    }
    let listed = agent.get("/v1/volumes/snapshot?plugin_id=hostpath")?;
    ensure!(listed["Snapshots"].as_array().is_some_and(|list| list.len() == 1), "{listed}");
    let Some(snapshot) = listed["Snapshots"][0]["ID"].as_str().map(str::to_owned) else { bail!("{listed}") };
    let shown = agent.caravan(&["volume", "snapshot", "list", "-plugin", "host"])?.ok()?;
    ensure!(shown.stdout.contains(&snapshot), "{}", shown.all());

    create(&agent, "restored", &format!("snapshot_id = \"{snapshot}\""))?.ok()?;
    create(&agent, "copy", "clone_id = \"data\"")?.ok()?;
    for volume in ["restored", "copy"] {
        let job = format!("reads-{volume}");
        run_job(&agent, &job, &writer(&job, volume))?;
        let alloc = id_of(&agent.wait_alloc(&job, "running")?)?;
        wait_output(&agent, &alloc, "from-one 2")?;
        agent.caravan(&["job", "stop", "-detach", &job])?.ok()?;
        agent.wait_no_claims(volume)?;
    }
    for _ in 0..2 {
        let gone = agent.caravan(&["volume", "snapshot", "delete", "hostpath", &snapshot])?.ok()?;
        ensure!(gone.all().trim().is_empty(), "{}", gone.all());
    }
    for volume in ["data", "restored", "copy"] {
        agent.caravan(&["volume", "delete", volume])?.ok()?;
    }
    let left = agent.caravan(&["volume", "snapshot", "list", "-plugin", "hostpath"])?.ok()?;
    ensure!(left.all().contains("No snapshots found"), "{}", left.all());
    Ok(())
}

fn holds(dir: &Path, needle: &str) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let found = match path.is_dir() {
            true => holds(&path, needle)?,
            false => fs::read(&path)?.windows(needle.len()).any(|window| window == needle.as_bytes()),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn secrets_are_in_no_file_and_in_no_answer() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    // The volume waits for the variable with its secret.
    let more =
        format!("secrets {{ given = \"{SECRET}\" }}\nsecrets_from {{ token = \"storage/array#key\" }}");
    let waits = create(&agent, "data", &more)?.failed()?;
    ensure!(waits.all().contains("waits for variable \"storage/array\""), "{}", waits.all());
    agent.caravan(&["var", "put", "-out", "none", "storage/array", &format!("key={SECRET}")])?.ok()?;
    eventually("the volume to be made", || {
        let volume = agent.volume("data")?;
        if volume["CaravanPhase"] == "ready" { Ok(()) } else { bail!("{volume}") }
    })?;
    fs::remove_file(agent.dir().join("data.hcl"))?;
    run_job(&agent, "one", &writer("one", "data"))?;
    agent.wait_alloc("one", "running")?;
    for path in ["/v1/volume/csi/data", "/v1/volumes?type=csi", "/v1/vars", "/v1/allocations", "/v1/metrics"]
    {
        ensure!(!agent.get(path)?.to_string().contains(SECRET), "{path}");
    }
    ensure!(!agent.log().contains(SECRET), "a secret is in the agent's log");
    ensure!(!holds(&agent.data_dir().join("server"), SECRET)?, "a secret is in the servers' files");
    // The next agent can open the sealed secrets.
    agent.kill_9()?;
    agent.run()?;
    let item = agent.caravan(&["var", "get", "-item", "key", "storage/array"])?.ok()?;
    ensure!(item.stdout == SECRET, "{}", item.all());
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_no_claims("data")?;
    agent.wait_plugin("hostpath")?;
    agent.caravan(&["volume", "delete", "data"])?.ok()?;
    Ok(())
}

#[test]
fn one_storage_is_one_volume_unless_all_of_them_only_read() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "golden", "single-node-reader-only")?;
    let storage = agent.volume("golden")?["ExternalID"].as_str().unwrap_or_default().to_owned();
    let register = |id: &str, mode: &str, more: &str| {
        let path = agent.dir().join(format!("{id}-again.hcl"));
        fs::write(&path, format!("{}\nexternal_id = \"{storage}\"\n{more}\n", volume_spec(id, mode)))?;
        agent.caravan(&["volume", "register", &path.to_string_lossy()])
    };
    let reads = "single-node-reader-only";
    for more in ["", "shared_storage = true"] {
        let text = register("copy", reads, more)?.failed()?.all();
        ensure!(text.contains("(volume \"golden\" in namespace \"default\")"), "{text}");
    }
    // The volume that was created first must declare shared storage as well.
    let path = agent.dir().join("golden-shared.hcl");
    fs::write(&path, format!("{}\nshared_storage = true\n", volume_spec("golden", reads)))?;
    agent.caravan(&["volume", "register", &path.to_string_lossy()])?.ok()?;
    register("copy", reads, "shared_storage = true")?.ok()?;
    let text = register("copy", "single-node-writer", "shared_storage = true")?.failed()?.all();
    ensure!(text.contains("CaravanSharedStorage"), "{text}");
    let shown = agent.caravan(&["volume", "status", "copy"])?.ok()?.stdout;
    ensure!(
        shown.lines().any(|line| line.starts_with("Shared Storage") && line.ends_with("true")),
        "{shown}"
    );
    let text = agent.caravan(&["volume", "delete", "copy"])?.failed()?.all();
    ensure!(text.contains("only deregistered") && text.contains("volume \"golden\""), "{text}");
    agent.caravan(&["volume", "deregister", "copy"])?.ok()?;
    // An id that is too long to be mounted never reaches a plugin.
    let text = create(&agent, &"x".repeat(240), "")?.all();
    ensure!(!text.contains("cannot name a directory"), "{text}");
    let long = "y".repeat(300);
    let path = agent.dir().join("long.hcl");
    fs::write(&path, volume_spec(&long, reads))?;
    let text = agent.caravan(&["volume", "create", &path.to_string_lossy()])?.failed()?.all();
    ensure!(text.contains("volume id") && text.contains("longer than 255 bytes"), "{text}");
    let listed = agent.get("/v1/volumes/external?plugin_id=hostpath")?;
    ensure!(!listed.to_string().contains("yyyy"), "{listed}");
    agent.caravan(&["volume", "delete", "golden"])?.ok().map(drop)
}
