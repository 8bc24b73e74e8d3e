//! `operator volume-check`: reads the state of a stopped agent without the agent.

use crate::{create_volume, run_job, run_plugin};
use anyhow::{Result, ensure};
use caravan_testkit::{Agent, Writer, writer_job};

#[test]
fn the_state_of_a_stopped_agent_is_sound() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    run_job(
        &agent,
        "one",
        &writer_job(&Writer {
            id: "one".into(),
            driver: "raw_exec".into(),
            volume: "data".into(),
            access_mode: "single-node-writer".into(),
            word: "hello".into(),
        }),
    )?;
    agent.wait_alloc("one", "running")?;
    let data = agent.data_dir().display().to_string();

    // While the agent runs, its state is locked.
    let busy = agent.caravan(&["operator", "volume-check", &data])?;
    ensure!(busy.code == 2 && busy.stderr.contains("is in use by another process"), "{}", busy.all());

    // Killed while the claim is in use: the state is consistent.
    agent.kill_9()?;
    let sound = agent.caravan(&["operator", "volume-check", &data])?.ok()?;
    ensure!(sound.stdout.contains(": 1 volumes, 1 claims"), "{}", sound.all());
    let json = agent.caravan(&["operator", "volume-check", "-json", &data])?.ok()?;
    let report: serde_json::Value = serde_json::from_str(&json.stdout)?;
    ensure!(report["Claims"] == 1 && report["Findings"].as_array().is_some_and(Vec::is_empty), "{report}");

    // The agent continues from the same state.
    agent.run()?;
    agent.wait_alloc("one", "running")?;
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_no_claims("data")?;
    agent.stop()?;
    let sound = agent.caravan(&["operator", "volume-check", &data])?.ok()?;
    ensure!(sound.stdout.contains(": 1 volumes, 0 claims"), "{}", sound.all());

    let nothing = agent.caravan(&["operator", "volume-check", "/proc/version"])?;
    ensure!(nothing.code == 2 && nothing.stderr.contains("not a state snapshot"), "{}", nothing.all());
    Ok(())
}
