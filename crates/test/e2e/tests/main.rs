//! Whole-system tests: every test starts its own agents as processes, on its own ports and
//! directories, and observes them from outside. The tests need root, as the agent does.

mod alike;
mod artifacts;
mod basics;
mod chaos;
mod clients;
mod config;
mod conformance;
mod cores;
mod deployments;
mod docker;
mod drain;
mod errors;
mod examples;
mod exec;
mod external;
mod fence;
mod growth;
mod habits;
mod host_volumes;
mod hosts;
mod linearizable;
mod metrics;
mod mounts;
mod networks;
mod node_identity;
mod operate;
mod operators;
mod outages;
mod plugins;
mod reached;
mod recovery;
mod regions;
mod reload;
mod remote;
mod removal;
mod replay;
mod rights;
mod scheduling;
mod scripts;
mod servers;
mod services;
mod startup;
mod streams;
mod task_dirs;
mod task_templates;
mod templates;
mod tenancy;
mod third_party;
mod tls;
mod transcripts;
mod ui;
mod verbs;
mod volume_check;
mod volumes;

use anyhow::{Result, anyhow};
use caravan_testkit::{Agent, Plugin, plugin_job, volume_spec};
use std::fs;

/// Both drivers that run real processes.
const DRIVERS: [&str; 2] = ["raw_exec", "exec"];

/// Writes a job file and runs it without waiting for the allocation.
fn run_job(agent: &Agent, name: &str, text: &str) -> Result<()> {
    let path = agent.dir().join(format!("{name}.nomad.hcl"));
    fs::write(&path, text)?;
    agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.ok()?;
    Ok(())
}

/// Returns a service job whose task runs a script under raw_exec.
fn script_job(id: &str, script: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "service"
  group "g" {{
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

/// Returns a batch job whose task runs a script, and fails permanently at the first failure; `more` extends the task.
fn batch_job(id: &str, driver: &str, script: &str, more: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "batch"
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "t" {{
      driver = "{driver}"
      {more}
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
  }}
}}
"#
    )
}

/// Returns arguments that keep the bundled plugin's volumes inside the test's own directory. Under exec, the plugin's
/// root directory is there already.
fn plugin_args(agent: &Agent, driver: &str) -> Vec<String> {
    match driver {
        "raw_exec" => vec![format!("--state-dir={}", agent.dir().join("volumes").display())],
        _ => Vec::new(),
    }
}

/// Runs the bundled plugin and waits until it is healthy.
fn run_plugin(agent: &Agent, driver: &str, more: &[&str]) -> Result<()> {
    let mut args = plugin_args(agent, driver);
    args.extend(more.iter().map(|a| (*a).to_owned()));
    run_job(agent, "hostpath", &plugin_job(&Plugin { driver: driver.to_owned(), args }))?;
    agent.wait_plugin("hostpath").map(drop)
}

/// Creates a volume by the command line.
fn create_volume(agent: &Agent, id: &str, access_mode: &str) -> Result<()> {
    let path = agent.dir().join(format!("{id}.hcl"));
    fs::write(&path, volume_spec(id, access_mode))?;
    agent.caravan(&["volume", "create", &path.to_string_lossy()])?.ok()?;
    Ok(())
}

/// Returns the id of an allocation.
fn id_of(alloc: &serde_json::Value) -> Result<String> {
    alloc["ID"].as_str().map(str::to_owned).ok_or_else(|| anyhow!("an allocation without an id: {alloc}"))
}
