//! Tasks with reserved CPUs, and tasks with a time limit.

use crate::run_job;
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use std::fs;

/// Returns a job whose task prints its CPUs and then sleeps.
fn pinned(id: &str, driver: &str, resources: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "echo \"$NOMAD_CPU_CORES\" > $NOMAD_TASK_DIR/given; grep Cpus_allowed_list /proc/self/status | cut -f2 > $NOMAD_TASK_DIR/cpus; exec sleep 3600"]
      }}
      kill_timeout = "1s"
      resources {{
        memory = 16
        {resources}
      }}
    }}
  }}
}}
"#
    )
}

/// The cgroups of this test, because other agents on this machine assign CPUs too. Dropping the value removes them.
struct Groups(String);

impl Drop for Groups {
    fn drop(&mut self) {
        let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for parent in controllers.map(|entry| entry.path().join(&self.0)) {
            let below = fs::read_dir(&parent).into_iter().flatten().flatten().map(|entry| entry.path());
            for group in below.filter(|path| path.is_dir()).chain([parent.clone()]) {
                // A missing or non-empty cgroup is left alone.
                let _ = fs::remove_dir(group);
            }
        }
    }
}

fn agent(groups: &Groups) -> Result<Agent> {
    let extra = format!("client {{\n  cgroup_parent = \"/{}\"\n}}\n", groups.0);
    Agent::with(AgentOptions { extra, ..AgentOptions::default() })
}

fn says(agent: &Agent, alloc: &str, file: &str) -> Result<String> {
    eventually(&format!("{file} to be written"), || {
        let read = agent.caravan(&["alloc", "fs", alloc, &format!("t/local/{file}")])?.ok()?;
        ensure!(read.stdout.ends_with('\n'), "not yet");
        Ok(read.stdout.trim_end_matches('\n').to_owned())
    })
}

#[test]
fn cores_are_given_to_one_task_and_the_next_one_waits() -> Result<()> {
    let groups = Groups(format!("caravan-e2e-{}-cores", std::process::id()));
    let agent = agent(&groups)?;
    let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
    let cpu = &node["NodeResources"]["Cpu"];
    let all = cpu["ReservableCpuCores"].as_array().cloned().unwrap_or_default();
    if all.len() < 2 {
        // The machine has one CPU, or no cgroups for CPUs.
        return Ok(());
    }
    ensure!(
        node["Attributes"]["cpu.reservablecores"].as_str() == Some(&all.len().to_string()),
        "{}",
        node["Attributes"]
    );
    ensure!(node["Attributes"]["numa.node.count"].is_string(), "{}", node["Attributes"]);
    run_job(&agent, "own", &pinned("own", "exec", "cores = 1\n numa {\n affinity = \"require\"\n }"))?;
    let own = agent.wait_alloc("own", "running")?;
    let id = own["ID"].as_str().unwrap_or_default();
    let own = agent.get(&format!("/v1/allocation/{id}"))?;
    let supplied = &own["AllocatedResources"]["Tasks"]["t"]["Cpu"];
    let core = supplied["ReservedCores"][0].as_u64().context("a core is reserved")?;
    let share = cpu["CpuShares"].as_u64().unwrap_or(0) / cpu["TotalCpuCores"].as_u64().unwrap_or(1);
    ensure!(supplied["CpuShares"] == share, "{supplied}");
    ensure!(says(&agent, id, "given")? == core.to_string());
    ensure!(says(&agent, id, "cpus")? == core.to_string());

    // A task without reserved CPUs runs on the others.
    run_job(&agent, "shared", &pinned("shared", "raw_exec", "cpu = 20"))?;
    let shared = agent.wait_alloc("shared", "running")?;
    let id = shared["ID"].as_str().unwrap_or_default();
    ensure!(says(&agent, id, "given")? == " ");
    let cpus = says(&agent, id, "cpus")?;
    let cpus = caravan_types::cores::parse(&cpus)?;
    ensure!(!cpus.is_empty() && !cpus.iter().any(|cpu| u64::from(*cpu) == core), "{cpus:?}");

    // The job requests more CPUs than the machine has.
    let path = agent.dir().join("more.hcl");
    fs::write(&path, pinned("more", "raw_exec", &format!("cores = {}", all.len())))?;
    let planned = agent.caravan(&["job", "plan", "-diff=false", &path.to_string_lossy()])?;
    ensure!(planned.stdout.contains("not enough cores"), "{}", planned.all());
    // A block without effect is refused.
    fs::write(&path, pinned("more", "raw_exec", "cpu = 20\n numa {\n affinity = \"prefer\"\n }"))?;
    let refused = agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?;
    ensure!(refused.code == 1 && refused.stderr.contains("needs cores"), "{}", refused.all());
    Ok(())
}

#[test]
fn a_batch_job_ends_when_its_time_is_over() -> Result<()> {
    let agent = Agent::start()?;
    let text = pinned("limited", "raw_exec", "cpu = 20")
        .replacen("job \"limited\" {", "job \"limited\" {\n  type = \"batch\"", 1)
        .replacen("group \"g\" {", "group \"g\" {\n    max_run_duration = \"1s\"", 1);
    run_job(&agent, "limited", &text)?;
    let over = agent.wait_alloc("limited", "complete")?;
    ensure!(over["ClientDescription"] == "allocation exceeded max_run_duration", "{over}");
    let job = eventually("the job to be dead", || {
        let job = agent.get("/v1/job/limited")?;
        ensure!(job["Status"] == "dead", "{}", job["Status"]);
        Ok(job)
    })?;
    ensure!(job["TaskGroups"][0]["MaxRunDuration"] == 1_000_000_000_i64, "{job}");
    let shown = agent.caravan(&["alloc", "status", over["ID"].as_str().unwrap_or_default()])?.ok()?;
    ensure!(shown.stdout.contains("allocation exceeded max_run_duration"), "{}", shown.all());
    let allocs = agent.get("/v1/job/limited/allocations")?;
    ensure!(allocs.as_array().is_some_and(|list| list.len() == 1), "it is not made anew: {allocs}");
    Ok(())
}
