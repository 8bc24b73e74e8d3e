//! The agent's configuration from files and flags, its effects, and shutdowns of agents.

use crate::recovery::process_with;
use crate::{create_volume, id_of, run_job, run_plugin, script_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Writer, eventually, mounts_below, process_alive, writer_job};
use nix::sys::signal::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn sleeper(id: &str) -> String {
    script_job(id, "while :; do sleep 0.2; done")
}

#[test]
fn files_a_directory_json_and_flags_make_one_node() -> Result<()> {
    let args = ["-node-class", "big", "-meta", "row=2", "-log-level", "WARN", "-dc", "dc7"];
    let agent = Agent::with(AgentOptions {
        extra: r#"{
            "name": "from-json",
            "client": {
                "meta": {"rack": "r1"},
                "reserved": {"cpu": 100, "memory": 128, "disk": 64, "reserved_ports": "22,8000-8002"},
                "options": {"driver.denylist": "exec"},
                "min_dynamic_port": 21000
            },
            "plugin": [{"mock_driver": {"config": {}}}]
        }"#
        .into(),
        args: args.map(str::to_owned).to_vec(),
        ..AgentOptions::default()
    })?;
    let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
    ensure!(
        node["Name"] == "from-json" && node["NodeClass"] == "big" && node["Datacenter"] == "dc7",
        "{node}"
    );
    ensure!(node["Meta"]["rack"] == "r1" && node["Meta"]["row"] == "2", "{}", node["Meta"]);
    let reserved = &node["ReservedResources"];
    ensure!(reserved["Cpu"]["CpuShares"] == 100 && reserved["Memory"]["MemoryMB"] == 128, "{reserved}");
    ensure!(reserved["Disk"]["DiskMB"] == 64, "{reserved}");
    ensure!(reserved["Networks"]["ReservedHostPorts"] == "22,8000-8002", "{reserved}");
    ensure!(node["NodeResources"]["MinDynamicPort"] == 21000, "{}", node["NodeResources"]);
    let drivers = &node["Drivers"];
    ensure!(drivers["raw_exec"]["Healthy"] == true && drivers["mock_driver"]["Healthy"] == true, "{drivers}");
    ensure!(drivers.get("exec").is_none(), "a driver on the deny list is there: {drivers}");
    let own = agent.get("/v1/agent/self")?;
    ensure!(own["config"]["LogLevel"] == "WARN" && own["config"]["NodeName"] == "from-json", "{own}");
    let log = agent.log();
    ensure!(!log.contains("DEBUG") && !log.contains(" INFO"), "{log}");
    Ok(())
}

#[test]
fn a_driver_that_is_off_is_named_by_the_job_that_wants_it() -> Result<()> {
    let agent = Agent::with(AgentOptions {
        extra: "plugin \"raw_exec\" {\n config {\n enabled = false\n }\n}\n".into(),
        ..AgentOptions::default()
    })?;
    run_job(&agent, "raw", &sleeper("raw"))?;
    eventually("the job to say what is missing", || {
        let out = agent.caravan(&["job", "status", "raw"])?.ok()?;
        if out.stdout.contains("missing drivers") { Ok(()) } else { bail!("{}", out.stdout) }
    })
}

#[test]
fn mistakes_end_the_agent_with_a_sentence() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let taken_port = taken.local_addr()?.port().to_string();
    let rpc_taken = format!("ports {{\n rpc = {taken_port}\n}}\n");
    let cases: [(&str, &[&str], &[&str]); 13] = [
        ("ports {\n http = 70000\n}\n", &[], &["ports.http", "70000"]),
        (&rpc_taken, &[], &["RPC", &taken_port, "in use"]),
        ("data_dir = \"some/where\"\n", &[], &["data_dir", "some/where", "absolute"]),
        ("server {\n bootstrap_expect = -1\n}\n", &[], &["bootstrap_expect", "-1 is not between"]),
        ("log_level = \"LOUD\"\n", &[], &["log_level", "LOUD"]),
        ("client {\n  enabld = true\n}\n", &[], &["extra.hcl:2", "enabld", "\"enabled\""]),
        ("{\n  \"clint\": {}\n}", &[], &["extra.json:2", "clint", "\"client\""]),
        ("name = \n", &[], &["extra.hcl:", "A value is expected"]),
        ("plugin \"raw_exec\" {\n config {\n enabld = true\n }\n}\n", &[], &["raw_exec", "enabld"]),
        ("client {\n min_dynamic_port = 40000\n}\n", &[], &["min_dynamic_port", "40000"]),
        ("", &["-bnd", "x"], &["-bnd", "-bind"]),
        ("", &["-config", "/nonexistent/agent.hcl"], &["/nonexistent/agent.hcl", "No such file"]),
        ("", &["-meta", "rack"], &["-meta", "KEY=VALUE"]),
    ];
    for (extra, args, words) in cases {
        let args = args.iter().map(|a| (*a).to_owned()).collect();
        let mut agent = Agent::launch(AgentOptions { extra: extra.into(), args, ..AgentOptions::default() })?;
        let code = agent.wait_end()?;
        let log = agent.log();
        ensure!(code == 78, "{extra}: exit code {code}\n{log}");
        for word in words {
            ensure!(log.contains(word), "{extra}: no {word:?} in\n{log}");
        }
        ensure!(!log.contains("panicked"), "{log}");
        let left = mounts_below(&agent.dir().to_string_lossy())?;
        ensure!(left.is_empty(), "{extra}: mounts are left: {left:?}");
    }
    Ok(())
}

#[test]
fn one_data_directory_serves_one_agent() -> Result<()> {
    let server = Agent::start()?;
    let second = |client_only: bool, first: &Agent| -> Result<()> {
        let dir = first.data_dir();
        let mut second = Agent::launch(AgentOptions {
            server: !client_only,
            servers: vec![server.rpc_address()],
            extra: format!("data_dir = \"{}\"\n", dir.display()),
            ..AgentOptions::default()
        })?;
        ensure!(second.wait_end()? == 78);
        let log = second.log();
        ensure!(log.contains(&*dir.to_string_lossy()) && log.contains("another"), "{log}");
        Ok(())
    };
    second(false, &server)?;
    let client = Agent::with(AgentOptions::client_of(&server))?;
    second(true, &client)?;
    // The agents that started first are not affected.
    for agent in [&server, &client] {
        run_job(agent, "still", &sleeper("still"))?;
        agent.wait_alloc("still", "running")?;
    }
    Ok(())
}

#[test]
fn a_client_without_an_answer_ends_after_its_attempts() -> Result<()> {
    // No process listens at this address.
    let nobody = format!("127.0.0.1:{}", caravan_testkit::free_port()?);
    let join = |entry: &str, max: u32| {
        let retry = format!("retry_join = [\"{entry}\"]\n retry_max = {max}\n retry_interval = \"300ms\"");
        AgentOptions {
            server: false,
            extra: format!("client {{\n server_join {{\n {retry}\n }}\n}}\n"),
            ..AgentOptions::default()
        }
    };
    for (entry, word) in [(nobody.as_str(), nobody.as_str()), ("exec=/bin/false", "exit status: 1")] {
        let mut agent = Agent::launch(join(entry, 2))?;
        let code = agent.wait_end()?;
        let log = agent.log();
        ensure!(code == 1, "{entry}: exit code {code}\n{log}");
        for word in ["client.server_join.retry_join", "no server could be joined", word] {
            ensure!(log.contains(word), "{entry}: no {word:?} in\n{log}");
        }
    }
    // A program may print the first servers after the start of the agent.
    let server = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let list = server.dir().join("servers.txt");
    let client = Agent::launch(join(&format!("exec=/bin/cat {}", list.display()), 0))?;
    eventually("the warning", || match client.log().contains("no server answers") {
        true => Ok(()),
        false => bail!("{}", client.log()),
    })?;
    fs::write(&list, server.rpc_address())?;
    eventually("the node", || match server.get("/v1/nodes")?.as_array().map(Vec::len) {
        Some(1) => Ok(()),
        _ => bail!("{}", client.log_tail()),
    })
}

/// Returns all paths at and below a directory, without following links.
fn tree(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(tree(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[test]
fn state_is_for_the_agents_eyes_only_and_outlives_it() -> Result<()> {
    let mut agent = Agent::start()?;
    run_job(&agent, "kept", &sleeper("kept"))?;
    let alloc = id_of(&agent.wait_alloc("kept", "running")?)?;
    for part in ["server", "client"] {
        for path in tree(&agent.data_dir().join(part))? {
            let meta = fs::symlink_metadata(&path)?;
            let mode = meta.permissions().mode() & 0o777;
            let expected = if meta.is_dir() { 0o700 } else { 0o600 };
            ensure!(mode == expected, "{} has mode {mode:o}", path.display());
        }
    }
    let (task, node) = (process_with(&alloc)?, agent.node_id()?);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        agent.stop_by(signal)?;
        ensure!(process_with(&alloc)? == task, "the task ended with the agent by {signal}");
        agent.run()?;
        ensure!(agent.node_id()? == node && id_of(&agent.wait_alloc("kept", "running")?)? == alloc);
        ensure!(process_with(&alloc)? == task, "the task was restarted after {signal}");
    }
    Ok(())
}

/// Returns the cgroups whose name contains `name`, in all hierarchies.
fn control_groups(name: &str) -> Result<Vec<PathBuf>> {
    let below = mounts_below("/sys/fs/cgroup")?;
    let mut found = Vec::new();
    for mount in below {
        let dir = Path::new(&mount).join("caravan");
        if dir.is_dir() {
            // Cgroups of other tests appear and disappear in the meantime.
            let groups = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path()));
            found.extend(groups.filter(|path| path.to_string_lossy().contains(name)));
        }
    }
    Ok(found)
}

/// Returns the directory of a development agent: its name has the process id and an unpredictable part.
fn development_dir(pid: u32) -> Result<PathBuf> {
    let prefix = format!("caravan-dev-{pid}-");
    let mut entries = fs::read_dir(std::env::temp_dir())?.filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix));
    entries.find(named).ok_or_else(|| anyhow::anyhow!("there is no {prefix}..."))
}

#[test]
fn a_development_agent_leaves_nothing() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
        let dir = development_dir(agent.pid())?;
        run_plugin(&agent, "raw_exec", &[])?;
        create_volume(&agent, "data", "single-node-writer")?;
        let text = writer_job(&Writer {
            id: "w".into(),
            driver: "exec".into(),
            volume: "data".into(),
            access_mode: "single-node-writer".into(),
            word: "w".into(),
        });
        run_job(&agent, "w", &text)?;
        let exec = id_of(&agent.wait_alloc("w", "running")?)?;
        run_job(&agent, "raw", &sleeper("raw"))?;
        let raw = id_of(&agent.wait_alloc("raw", "running")?)?;
        let tasks = [process_with(&exec)?.0, process_with(&raw)?.0];
        ensure!(!control_groups(&exec)?.is_empty(), "the task has no control group: nothing is tested");
        agent.stop_by(signal)?;
        for pid in tasks {
            ensure!(!process_alive(pid), "task {pid} outlived the agent");
        }
        let mounts = mounts_below(&dir.to_string_lossy())?;
        ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
        ensure!(!dir.exists(), "{} is left: {:?}", dir.display(), tree(&dir));
        for alloc in [&exec, &raw] {
            let groups = control_groups(alloc)?;
            ensure!(groups.is_empty(), "control groups are left: {groups:?}");
        }
        let left = processes_of(&dir)?;
        ensure!(left.is_empty(), "processes are left: {left:?}");
    }
    Ok(())
}

/// Returns the command lines of processes that name a directory.
fn processes_of(dir: &Path) -> Result<Vec<String>> {
    let dir = dir.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(line) = fs::read(entry?.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&dir) {
            found.push(line);
        }
    }
    Ok(found)
}
