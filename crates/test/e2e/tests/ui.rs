//! The web page: a session of a user in Chromium against a real agent.

use crate::tenancy::Guarded;
use crate::tls::Certificates;
use crate::{create_volume, run_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Plugin, Writer, browser, eventually, plugin_job, writer_job};
use serde_json::json;
use std::fs;

/// Runs a script of the page's tests.
fn session(agent: &Agent, script: &str, secrets: &[&str]) -> Result<()> {
    browser::session(script, &format!("http://{}", agent.address()), secrets, &[])
        .with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))
}

/// Returns the options of an agent whose terminals read no files of the user that runs the tests. A page that closes
/// ends the shell. A shell that has just run `pyenv init` from `.bashrc` leaves its lock behind, for which each later
/// shell waits a minute.
fn options() -> AgentOptions {
    AgentOptions { dev: true, env: vec![("HOME".into(), "/nonexistent".into())], ..AgentOptions::default() }
}

/// Starts an agent that runs the job `writer` with the volume `data` of the plugin `hostpath`.
fn agent_with_writer() -> Result<Agent> {
    let agent = Agent::with(options())?;
    run_job(&agent, "hostpath", &plugin_job(&Plugin { driver: "raw_exec".into(), args: Vec::new() }))?;
    agent.wait_plugin("hostpath")?;
    create_volume(&agent, "data", "single-node-writer")?;
    run_job(&agent, "writer", &job("writer"))?;
    agent.wait_alloc("writer", "running")?;
    Ok(agent)
}

fn job(id: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: "written by allocation".into(),
    })
}

#[test]
fn a_user_acts_on_jobs_files_and_volumes() -> Result<()> {
    session(&agent_with_writer()?, "verbs.mjs", &[])
}

/// Starts an agent as [`agent_with_writer`] does, with the job `reader`, which waits for the volume.
fn agent_with_reader() -> Result<Agent> {
    let agent = agent_with_writer()?;
    run_job(&agent, "reader", &job("reader"))?;
    eventually("the second job to wait for the volume", || {
        let evals = agent.get("/v1/job/reader/evaluations")?.to_string();
        if evals.contains("blocked") { Ok(()) } else { bail!("{evals}") }
    })?;
    Ok(agent)
}

#[test]
fn a_user_finds_out_what_waits_and_acts() -> Result<()> {
    session(&agent_with_reader()?, "story.mjs", &[])
}

#[test]
fn a_user_sees_storage_as_a_picture_and_acts_in_rows() -> Result<()> {
    let agent = agent_with_reader()?;
    let map = agent.get("/v1/caravan/storage?namespace=*")?;
    ensure!(map["Blocked"][0]["JobID"] == "reader" && map["Facts"]["hostpath"]["Waiting"] == 1, "{map}");
    // A node has three names: its id, the beginning of its id, and its name.
    let node = agent.get("/v1/nodes")?[0].clone();
    let (id, name) = (node["ID"].as_str().context("an id")?, node["Name"].as_str().context("a name")?);
    for (query, number) in [
        (format!("node={id}&plugin=hostpath"), 1),
        (format!("node={}", &id[..8]), 1),
        (format!("node={name}&phase=mounted"), 1),
        ("node=elsewhere".to_owned(), 0),
        ("plugin=other".to_owned(), 0),
    ] {
        let claims = agent.get(&format!("/v1/caravan/claims?{query}"))?;
        ensure!(claims.as_array().map(Vec::len) == Some(number), "{query}: {claims}");
    }
    session(&agent, "storage.mjs", &[])
}

/// Checks the names, texts and keys that users and their tools rely on.
#[test]
fn the_page_keeps_its_names() -> Result<()> {
    session(&agent_with_reader()?, "names.mjs", &[])
}

#[test]
fn a_terminal_goes_on_while_other_pages_are_looked_at() -> Result<()> {
    session(&agent_with_writer()?, "drawer.mjs", &[])
}

/// Returns a group whose tasks write a line to each output, then ticks with numbers.
fn talking_group(name: &str, count: usize, tasks: &[&str]) -> String {
    let script = "echo hello from $NOMAD_TASK_NAME of $NOMAD_GROUP_NAME; \
                  echo warning of $NOMAD_TASK_NAME of $NOMAD_GROUP_NAME >&2; n=0; while sleep 0.3; do n=$((n + 1)); echo tick $n; done";
    let task = |task: &&str| {
        format!(
            "task \"{task}\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n \
             kill_timeout = \"1s\"\n logs {{\n max_files = 1\n max_file_size = 1\n }}\n \
             resources {{\n cpu = 10\n memory = 10\n }}\n }}\n"
        )
    };
    let tasks: String = tasks.iter().map(task).collect();
    format!("group \"{name}\" {{\n count = {count}\n ephemeral_disk {{\n size = 10\n }}\n {tasks} }}\n")
}

#[test]
fn a_user_follows_the_log_of_a_group() -> Result<()> {
    let agent = Agent::with(options())?;
    let groups = talking_group("front", 2, &["server", "helper"]) + &talking_group("back", 1, &["server"]);
    run_job(&agent, "web", &format!("job \"web\" {{\n {groups} }}\n"))?;
    run_job(&agent, "many", &format!("job \"many\" {{\n {} }}\n", talking_group("g", 9, &["t"])))?;
    eventually("all allocations to run", || {
        let running = |job: &str| -> Result<usize> {
            let allocs = agent.get(&format!("/v1/job/{job}/allocations"))?;
            let rows = allocs.as_array().context("a list")?;
            Ok(rows.iter().filter(|row| row["ClientStatus"] == "running").count())
        };
        ensure!((running("web")?, running("many")?) == (3, 9), "some allocations do not run");
        Ok(())
    })?;
    session(&agent, "grouplog.mjs", &[])
}

/// Checks the page's own routes: an overview with reasons, the storage map, the usage of nodes, the caller's rights.
#[test]
fn one_call_answers_what_waits() -> Result<()> {
    let agent = Agent::with(options())?;
    run_job(&agent, "hostpath", &plugin_job(&Plugin { driver: "raw_exec".into(), args: Vec::new() }))?;
    agent.wait_plugin("hostpath")?;
    create_volume(&agent, "data", "single-node-writer")?;
    let map = agent.get("/v1/caravan/storage?namespace=*")?;
    ensure!(map["Volumes"][0]["ID"] == "data" && map["Plugins"][0]["ID"] == "hostpath", "{map}");
    let usage = agent.get("/v1/caravan/nodes/usage")?;
    ensure!(usage["CPU"][0].as_i64() > Some(0) && usage["Allocations"][0] == 1, "{usage}");
    let plugin = agent.get("/v1/plugin/csi/hostpath/explain")?;
    ensure!(plugin["Volumes"]["ready"] == 1 && plugin["Calls"] == json!([]), "{plugin}");
    let node = usage["ID"][0].as_str().context("a node")?;
    let drained = agent.get(&format!("/v1/caravan/what-if?node={node}:drain"))?;
    ensure!(drained["Moves"] == json!([]) && drained["Skipped"] == 0, "{drained}");
    let overview = agent.get("/v1/caravan/overview?namespace=*")?;
    ensure!(overview["Nodes"]["ready"] == 1 && overview["Jobs"]["running"] == 1, "{overview}");
    let rights = agent.get("/v1/acl/token/self?capabilities=true")?;
    ensure!(rights["CaravanCapabilities"]["Management"] == true, "{rights}");
    Ok(())
}

#[test]
fn a_missing_right_costs_a_panel_not_the_page() -> Result<()> {
    let guarded = Guarded::start_with_short_tokens()?;
    let limited = guarded.token(
        "limited",
        "namespace \"default\" {\n  policy = \"read\"\n  variables {\n\
         path \"app/*\" { capabilities = [\"read\"] }\n\
         path \"app/own\" { capabilities = [\"read\", \"write\"] }\n  }\n}\n",
    )?;
    let job = json!({"Job": {
        "ID": "web", "Name": "web", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Tasks": [{
            "Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/sleep", "args": ["3600"]}
        }]}]
    }});
    let answer = guarded.as_root("PUT", "/v1/jobs", Some(&job))?;
    ensure!(answer.status == 200, "{answer:?}");
    session(&guarded.agent, "rights.mjs", &[&guarded.root, &limited])
}

/// Checks TLS with HTTP/2, proxies with a prefix, a balancer of two versions, the policy of the page, its themes.
#[test]
fn a_user_reaches_the_page_over_tls_and_through_proxies() -> Result<()> {
    let certificates = Certificates::make()?;
    let agent =
        Agent::launch(AgentOptions { extra: certificates.block("server", "http = true"), ..options() })?;
    let (address, ca) = (format!("https://{}", agent.address()), certificates.ca());
    let env = [("CARAVAN_ADDR", address.as_str()), ("CARAVAN_CACERT", ca.as_str())];
    crate::tls::answers(&certificates, &agent, &env)?;
    fs::write(certificates.path("web.nomad.hcl"), crate::script_job("web", "exec sleep 3600"))?;
    certificates.run(&env, &["job", "run", "web.nomad.hcl"])?.ok()?;
    let certificate = certificates.path("global-server-nomad.pem").display().to_string();
    browser::session("outside.mjs", &address, &[&certificate], &[("NODE_EXTRA_CA_CERTS", ca.as_str())])
        .with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))
}
