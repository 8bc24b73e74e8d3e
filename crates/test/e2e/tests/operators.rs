//! Operators' tools: debug bundles, stored logs, configurations, and the files of stopped agents.

use crate::{id_of, run_job};
use anyhow::{Context as _, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A text that occurs nowhere else.
const SECRET: &str = "hunter2-in-no-other-place";

fn sleeper(id: &str) -> String {
    format!(
        "job \"{id}\" {{\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", \"exec sleep 600\"]\n }}\n resources {{\n cpu = 20\n memory = 16\n }}\n }}\n }}\n}}\n"
    )
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("JSON expected: {text}"))
}

#[test]
fn the_files_of_a_stopped_agent_are_read_and_tell_no_secret() -> Result<()> {
    let mut agent = Agent::start()?;
    run_job(&agent, "sleeper", &sleeper("sleeper"))?;
    let alloc = id_of(&agent.wait_alloc("sleeper", "running")?)?;
    agent.caravan(&["var", "put", "-out", "none", "app/config", &format!("key={SECRET}")])?.ok()?;
    let token = agent.request("PUT", "/v1/acl/bootstrap", None)?;
    ensure!(token.status != 200, "access control is off");
    let data = agent.data_dir().to_string_lossy().into_owned();
    let snapshot = agent.dir().join("state.snap").to_string_lossy().into_owned();
    agent.caravan(&["operator", "snapshot", "save", &snapshot])?.ok()?;

    // The state of a snapshot.
    let state = agent.caravan(&["operator", "snapshot", "state", &snapshot])?.ok()?.stdout;
    let whole = fs::read(&snapshot)?;
    let redacted = agent.caravan(&["operator", "snapshot", "redact", &snapshot])?.ok()?;
    ensure!(redacted.stdout.starts_with("Snapshot redacted: it holds no key material"), "{}", redacted.all());
    let before = fs::read(&snapshot)?;
    ensure!(before != whole, "the sealed root keys are removed");
    let again = agent.caravan(&["operator", "snapshot", "redact", &snapshot])?.ok()?;
    ensure!(
        again.stdout.contains("the file is unchanged") && fs::read(&snapshot)? == before,
        "{}",
        again.all()
    );
    agent.caravan(&["operator", "snapshot", "redact", &data])?.failed()?;
    // Files in use by an agent are refused.
    for args in [["operator", "raft", "info", &data].as_slice(), &["operator", "client-state", &data]] {
        let used = agent.caravan(args)?.failed()?;
        let reported =
            ["in use", "is used", "another agent using"].iter().any(|words| used.stderr.contains(words));
        ensure!(reported, "{}", used.all());
    }
    agent.stop()?;

    let info = agent.caravan(&["operator", "raft", "info", &data])?.ok()?.stdout;
    ensure!(info.contains("Last index") && info.contains("JobRegister"), "{info}");
    let reported = json(&agent.caravan(&["operator", "raft", "info", "-json", &data])?.ok()?.stdout)?;
    let last = reported["LastIndex"].as_u64().context("an index")?;
    let lines = agent.caravan(&["operator", "raft", "logs", &data])?.ok()?.stdout;
    let entries: Vec<Value> = lines.lines().map(json).collect::<Result<_>>()?;
    ensure!(entries.last().is_some_and(|entry| entry["Index"] == last), "{lines}");
    let of = |kind: &str| entries.iter().find(|entry| entry["CommandType"] == kind);
    ensure!(of("JobRegister").is_some_and(|entry| entry["Body"]["job"]["ID"] == "sleeper"), "{lines}");
    let raft = agent.caravan(&["operator", "raft", "state", &data])?.ok()?.stdout;
    let client = agent.caravan(&["operator", "client-state", &data])?.ok()?.stdout;
    for (text, what) in [(&state, "snapshot"), (&raft, "log")] {
        let reported = json(text)?;
        ensure!(
            reported["Jobs"][0]["ID"] == "sleeper" && reported["Allocs"][0]["ID"] == alloc.as_str(),
            "{what}: {text}"
        );
        ensure!(reported["Variables"][0]["items"] == "<redacted>", "{what}: {}", reported["Variables"]);
    }
    // An earlier state, without the job.
    let registered = of("JobRegister").and_then(|entry| entry["Index"].as_u64()).context("an index")?;
    for supplied in
        [format!("-last-index={}", registered - 1), format!("-last-index=-{}", last - registered + 1)]
    {
        let earlier = json(&agent.caravan(&["operator", "raft", "state", &supplied, &data])?.ok()?.stdout)?;
        ensure!(earlier["Jobs"].as_array().is_some_and(Vec::is_empty), "{supplied}: {}", earlier["Jobs"]);
    }
    let reported = json(&client)?;
    let own = &reported["Allocations"][alloc.as_str()];
    ensure!(
        own["Alloc"]["JobID"] == "sleeper" && own["Tasks"]["t"]["RemoteState"]["State"] == "running",
        "{client}"
    );
    for text in [&state, &lines, &raft, &client, &info] {
        ensure!(!text.contains(SECRET), "{text}");
    }
    // The agent starts as if its files had not been read.
    agent.run()?;
    agent.wait_alloc("sleeper", "running")?;
    let item = agent.caravan(&["var", "get", "-item", "key", "app/config"])?.ok()?;
    ensure!(item.stdout == SECRET, "{}", item.all());
    agent.caravan(&["job", "stop", "-detach", "sleeper"])?.ok()?;
    Ok(())
}

/// Returns the command `operator debug` in a directory.
fn debug(agent: &Agent, dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(["operator", "debug"])
        .args(args)
        .current_dir(dir)
        .env("CARAVAN_ADDR", format!("http://{}", agent.address()))
        .stdin(Stdio::null());
    command
}

/// Unpacks the only archive in a directory and checks its mode. Returns the directory that holds all its files.
fn unpacked(dir: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let names: Vec<String> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    let archives: Vec<&String> = names.iter().filter(|name| name.ends_with(".tar.gz")).collect();
    let [archive] = archives.as_slice() else { bail!("one archive expected: {names:?}") };
    ensure!(archive.starts_with("nomad-debug-"), "{archive}");
    ensure!(fs::metadata(dir.join(archive))?.permissions().mode() & 0o777 == 0o600);
    let done = Command::new("tar").args(["-xzf", archive]).current_dir(dir).status()?;
    ensure!(done.success());
    Ok(dir.join(archive.trim_end_matches(".tar.gz")))
}

#[test]
fn a_debug_bundle_tells_of_the_cluster_and_of_no_secret() -> Result<()> {
    let extra = "acl {\n  enabled = true\n}\n".to_owned();
    let agent = Agent::launch(AgentOptions { extra, ..AgentOptions::default() })?;
    let mut token = String::new();
    eventually("the first token", || {
        let made = agent.caravan(&["acl", "bootstrap", "-json"])?.ok()?;
        token = json(&made.stdout)?["SecretID"].as_str().context("a token")?.to_owned();
        Ok(())
    })?;
    let mut node = String::new();
    eventually("the node to be ready", || {
        let shown = agent.caravan(&["node", "status", "-token", &token, "-json"])?.ok()?;
        let nodes = json(&shown.stdout)?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        node = nodes[0]["ID"].as_str().context("an id")?.to_owned();
        Ok(())
    })?;
    let dir = agent.dir().join("bundle");
    fs::create_dir(&dir)?;
    let refused = debug(&agent, &dir, &["-duration", "1s"]).output()?;
    ensure!(refused.status.code() == Some(1) && fs::read_dir(&dir)?.next().is_none());

    let args = [
        "-token",
        &token,
        "-duration",
        "2s",
        "-interval",
        "1s",
        "-event-topic",
        "all",
        "-pprof-duration",
        "0s",
        "-verbose",
        "-log-level",
        "TRACE",
    ];
    let child = debug(&agent, &dir, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // A change occurs during the capture.
    agent
        .caravan(&["var", "put", "-token", &token, "-out", "none", "app/config", &format!("key={SECRET}")])?
        .ok()?;
    let done = child.wait_with_output()?;
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.code() == Some(0), "{out}{err}");
    for line in [
        "Starting debugger...",
        "Capturing cluster data...",
        "Capture interval 0001",
        "Created debug archive: ",
    ] {
        ensure!(out.contains(line), "{line:?} is not in {out}{err}");
    }
    let top = unpacked(&dir)?;
    let read = |name: &str| fs::read_to_string(top.join(name)).with_context(|| name.to_owned());
    ensure!(json(&read("interval/0001/nodes.json")?)?[0]["ID"] == node.as_str());
    ensure!(json(&read("cluster/agent-self.json")?)?["stats"]["nomad"]["leader"] == "true");
    ensure!(json(&read(&format!("client/{node}/node.json"))?)?["Status"] == "ready");
    ensure!(!read(&format!("client/{node}/monitor.log"))?.starts_with("Error: "));
    let index: Vec<String> = serde_json::from_str(&read("index.json")?)?;
    for name in [
        "cluster/cli-flags.json",
        "cluster/eventstream.json",
        "cluster/leader.json",
        "cluster/members.json",
        "cluster/namespaces.json",
        "cluster/regions.json",
        "cluster/version.json",
        "interval/0000/allocations.json",
        "interval/0000/csi-plugins.json",
        "interval/0000/csi-volumes.json",
        "interval/0000/deployments.json",
        "interval/0000/evaluations.json",
        "interval/0000/host-volumes.json",
        "interval/0000/jobs.json",
        "interval/0000/metrics.json",
        "interval/0000/operator-autopilot-health.json",
        "interval/0000/operator-raft.json",
        "interval/0000/operator-scheduler.json",
    ] {
        ensure!(index.iter().any(|known| known == name), "{name} is not in {index:?}");
        for line in read(name)?.lines() {
            ensure!(!line.contains(&token) && !line.contains(SECRET), "{name}: {line}");
        }
        if name.starts_with("interval/") {
            ensure!(json(&read(name)?)?.get("Error").is_none(), "{name}: {}", read(name)?);
        }
    }
    ensure!(read("cluster/eventstream.json")?.contains("app/config"), "the change is not among the events");
    ensure!(read("index.html")?.contains("interval/0001/nodes.json"));
    Ok(())
}

#[test]
fn a_debug_bundle_that_is_interrupted_holds_what_there_was() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let dir = agent.dir().join("bundle");
    fs::create_dir(&dir)?;
    let reported = dir.join("said.txt");
    let mut child = debug(&agent, &dir, &["-duration", "10m", "-pprof-duration", "0s", "-max-nodes", "1"])
        .stdout(fs::File::create(&reported)?)
        .stderr(Stdio::null())
        .spawn()?;
    let id = Pid::from_raw(i32::try_from(child.id())?);
    eventually("the first interval", || {
        let text = fs::read_to_string(&reported)?;
        if text.contains("Capture interval 0000") { Ok(()) } else { bail!("{text}") }
    })?;
    kill(id, Signal::SIGINT)?;
    ensure!(child.wait()?.code() == Some(0));
    let text = fs::read_to_string(&reported)?;
    ensure!(text.contains("Interrupted after ") && text.contains("Created debug archive: "), "{text}");
    let top = unpacked(&dir)?;
    ensure!(top.join("cluster/agent-self.json").is_file() && top.join("index.json").is_file());
    // As a directory on request, and without nodes.
    let out = agent.dir().join("out");
    fs::create_dir(&out)?;
    let args =
        ["-duration", "0s", "-pprof-duration", "0s", "-node-id", "none", "-output", &out.to_string_lossy()];
    let done = debug(&agent, &dir, &args).output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    ensure!(done.status.success() && text.contains("Created debug directory: "), "{text}");
    let made = fs::read_dir(&out)?.next().context("a directory")??.path();
    ensure!(made.join("interval/0000/jobs.json").is_file() && !made.join("client").exists());
    // Mistakes are reported before any request.
    for args in
        [["-duration", "soon"], ["-event-topic", "Job:"], ["-node-id", "zz"], ["-server-id", "nobody"]]
    {
        ensure!(debug(&agent, &dir, &args).output()?.status.code() == Some(1), "{args:?}");
    }
    Ok(())
}

#[test]
fn what_was_kept_of_the_log_is_shown() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("agent.log");
    let agent = Agent::with(AgentOptions {
        extra: format!("log_file = \"{}\"\nlog_level = \"DEBUG\"\n", file.display()),
        ..AgentOptions::default()
    })?;
    let node = agent.node_id()?;
    for args in [
        ["monitor", "export", "-on-disk"].as_slice(),
        &["monitor", "export", "-on-disk", "-node-id", &node[..8]],
        &["monitor", "export", "-on-disk", "-server-id", "leader"],
    ] {
        let shown = agent.caravan(args)?.ok()?.stdout;
        let first = fs::read_to_string(&file)?.lines().next().context("a line")?.to_owned();
        ensure!(shown.lines().next() == Some(&first), "{args:?}: {shown}");
    }
    let wrong = agent.caravan(&["monitor", "export"])?.failed()?;
    ensure!(wrong.stderr.contains("One of -service-name and -on-disk"), "{}", wrong.all());
    let wrong = agent.caravan(&["monitor", "export", "-service-name", "a b"])?.failed()?;
    ensure!(wrong.stderr.contains("is not the name of a service"), "{}", wrong.all());
    let other = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let none = other.caravan(&["monitor", "export", "-on-disk"])?.failed()?;
    ensure!(none.stderr.contains("keeps no log on disk"), "{}", none.all());
    Ok(())
}

#[test]
fn configurations_are_checked_without_an_agent() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let validate = |paths: &[&str]| -> Result<(i32, String, String)> {
        let done = Command::new(program()).args(["config", "validate"]).args(paths).output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr)))
    };
    let good = file("good.hcl", "data_dir = \"/var/lib/caravan\"\nserver {\n  enabled = true\n}\n")?;
    let (code, out, err) = validate(&[&good])?;
    ensure!((code, out.as_str()) == (0, "Configuration is valid!\n"), "{out}{err}");
    ensure!(err.contains("WARNING: mTLS is not configured"), "{err}");
    let (code, out, err) = validate(&[&dir.path().to_string_lossy()])?;
    ensure!(code == 0, "{out}{err}");
    let bad = file("bad.hcl", "server {\n  enabled = \"maybe\"\n}\n")?;
    let (code, out, err) = validate(&[&good, &bad])?;
    ensure!(
        code == 1 && out.is_empty() && err.contains("bad.hcl:2") && err.contains("enabled"),
        "{out}{err}"
    );
    let ports = file("ports.json", r#"{"ports": {"http": 70000}}"#)?;
    let (code, _, err) = validate(&[&good, &ports])?;
    ensure!(code == 1 && err.contains("ports.json: ports.http: 70000 is not a port"), "{err}");
    let (code, _, err) = validate(&[])?;
    ensure!(code == 1 && err.contains("config validate -help"), "{err}");
    Ok(())
}

#[test]
fn the_servers_of_a_client_are_listed() -> Result<()> {
    let server = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let client = Agent::with(AgentOptions {
        server: false,
        servers: vec![server.rpc_address()],
        ..AgentOptions::default()
    })?;
    let shown = client.caravan(&["node", "config", "-servers"])?.ok()?;
    ensure!(shown.stdout.trim() == server.rpc_address(), "{}", shown.all());
    // A server without a client has no list of servers.
    let none = server.caravan(&["node", "config", "-servers"])?.failed()?;
    ensure!(none.stderr.starts_with("Error querying server list: "), "{}", none.all());
    // The client changes to another server, which can call it.
    let second = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    client.caravan(&["node", "config", "-update-servers", &second.rpc_address()])?.ok()?;
    let shown = client.caravan(&["node", "config", "-servers"])?.ok()?;
    ensure!(shown.stdout.trim() == second.rpc_address(), "{}", shown.all());
    let id = eventually("the node at the other server", || {
        let nodes = second.get("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        nodes[0]["ID"].as_str().map(str::to_owned).context("an id")
    })?;
    eventually("the way back to the node", || {
        second.get(&format!("/v1/client/stats?node_id={id}")).map(drop)
    })?;
    let own = server.rpc_address();
    // A server that does not answer is not added to the list, which would cut the client off.
    let closed = format!("127.0.0.1:{}", caravan_testkit::free_port()?);
    let wrong = client.caravan(&["node", "config", "-update-servers", &closed])?.failed()?;
    ensure!(wrong.stderr.contains("400") && wrong.stderr.contains(&closed), "{}", wrong.all());
    let shown = client.caravan(&["node", "config", "-servers"])?.ok()?;
    ensure!(shown.stdout.trim() == second.rpc_address(), "{}", shown.all());
    client.caravan(&["node", "config", "-update-servers", &closed, &second.rpc_address()])?.ok()?;
    let shown = client.caravan(&["node", "config", "-servers"])?.ok()?;
    ensure!(shown.stdout.trim() == second.rpc_address(), "{}", shown.all());
    let wrong = client.caravan(&["node", "config", "-update-servers"])?.failed()?;
    ensure!(wrong.stderr.contains("at least one server"), "{}", wrong.all());
    let both = Agent::start()?;
    let same = both.rpc_address();
    both.caravan(&["node", "config", "-update-servers", &same])?.ok()?;
    let other = both.caravan(&["node", "config", "-update-servers", &own])?.failed()?;
    ensure!(other.stderr.starts_with("Error updating server list: "), "{}", other.all());
    let node = both.node_id()?;
    let claims = both.caravan(&["node", "identity", "get", "-json", &node[..8]])?.ok()?;
    ensure!(claims.stdout.contains(&node), "{}", claims.all());
    both.caravan(&["node", "identity", "renew", &node[..8]])?.ok()?;
    let systems = both.caravan(&["node", "status", "-os", "-per-page", "1"])?.ok()?.stdout;
    ensure!(systems.lines().next().is_some_and(|heading| heading.contains("OS")), "{systems}");
    Ok(())
}

#[test]
fn variables_come_from_files() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    agent.caravan(&["var", "put", "app/config", "user=u", "pass=p"])?.ok()?;
    // The shown variable can be changed and written again, because it includes its index.
    let shown = agent.caravan(&["var", "get", "-out", "hcl", "app/config"])?.ok()?.stdout;
    let path = agent.dir().join("v.hcl");
    fs::write(&path, shown.replace("\"u\"", "\"changed\""))?;
    let file = format!("@{}", path.display());
    let written =
        agent.caravan(&["var", "put", "-out", "go-template", "-template", "{{.Items.user}}", &file])?.ok()?;
    ensure!(written.stdout == "changed\n", "{}", written.all());
    let again = agent.caravan(&["var", "put", &file])?.failed()?;
    ensure!(again.stderr.contains("Check-and-Set conflict"), "{}", again.all());
    let reported =
        json(&agent.caravan(&["var", "put", "-force", "app/config", &file, "pass=q"])?.ok()?.stdout)?;
    ensure!(reported["Items"]["pass"] == "q" && reported["Items"]["user"] == "changed", "{reported}");
    Ok(())
}
