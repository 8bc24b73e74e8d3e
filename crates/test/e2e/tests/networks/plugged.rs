//! Networks of mode `cni/NAME`, by a plugin that records its calls and by the reference plugins.

use super::bridge::World;
use super::{id_of, lines};
use crate::run_job;
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, Host, Switch, eventually};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A directory with configurations and plugins.
struct Plugins {
    dir: tempfile::TempDir,
}

impl Plugins {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("config"))?;
        fs::create_dir(dir.path().join("bin"))?;
        let recorder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host/networks/tests/recorder.sh");
        symlink(recorder, dir.path().join("bin/recorder"))?;
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Configures the network `MyNet` of the recorder.
    fn record(&self) -> Result<()> {
        let log = self.path("log");
        let text = format!(
            r#"{{"name":"MyNet","cniVersion":"1.1.0","plugins":[{{"type":"recorder","log":"{}",
                "capabilities":{{"portMappings":true}}}}]}}"#,
            log.display()
        );
        Ok(fs::write(self.path("config/50-mine.conflist"), text)?)
    }

    /// Returns the calls of the recorder with a command.
    fn calls(&self, command: &str) -> Vec<(String, Value)> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks(2).filter(|pair| pair.len() == 2);
        let calls = pairs.filter(|pair| pair[0].starts_with(&format!("recorder {command} ")));
        calls.map(|pair| (pair[0].to_owned(), serde_json::from_str(pair[1]).unwrap_or_default())).collect()
    }

    fn options(&self, path: &str) -> AgentOptions {
        let extra = format!(
            "client {{\n cni_path = \"{path}\"\n cni_config_dir = \"{}\"\n}}",
            self.path("config").display()
        );
        AgentOptions { extra, ..AgentOptions::default() }
    }

    fn agent(&self) -> Result<Agent> {
        Agent::with(self.options(&self.path("bin").display().to_string()))
    }
}

fn job(id: &str, driver: &str, mode: &str, script: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    network {{
      mode = "{mode}"
      port "http" {{
        static = 25002
        to     = 8080
      }}
      cni {{
        args = {{
          "OWN" = "${{NOMAD_GROUP_NAME}}"
        }}
      }}
    }}
    restart {{
      attempts = 0
    }}
    reschedule {{
      attempts = 0
    }}
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "{script}"]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 64
      }}
    }}
  }}
}}
"#
    )
}

/// Waits until the node offers a network of a mode.
fn until_offered(agent: &Agent, mode: &str) -> Result<Value> {
    eventually(&format!("the node to offer {mode}"), || {
        let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
        let networks = node["NodeResources"]["Networks"].as_array().cloned().unwrap_or_default();
        ensure!(networks.iter().any(|network| network["Mode"] == mode), "{networks:?}");
        Ok(node)
    })
}

#[test]
fn a_plugin_makes_and_removes_the_network_of_an_allocation() -> Result<()> {
    let plugins = Plugins::new()?;
    plugins.record()?;
    fs::write(plugins.path("config/60-bad.conflist"), "{")?;
    let result = r#"{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"x"}],
        "ips":[{"address":"10.99.0.7/24","interface":0},{"address":"fd00:99::7/64","interface":0}],
        "dns":{"nameservers":["10.99.0.53"],"search":["cni.test"]}}"#;
    fs::write(plugins.path("result"), result)?;
    let mut agent = plugins.agent()?;
    let node = until_offered(&agent, "cni/MyNet")?;
    ensure!(node["Attributes"]["plugins.cni.version.recorder"] == "v9.8.7", "{}", node["Attributes"]);
    let modes = node["NodeResources"]["NodeNetworks"].as_array().cloned().unwrap_or_default();
    ensure!(modes.iter().any(|network| network["Mode"] == "cni/MyNet"), "{modes:?}");
    eventually("the event about the bad file", || {
        let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
        ensure!(node["Events"].to_string().contains("60-bad.conflist"), "{}", node["Events"]);
        Ok(())
    })?;

    let script = "cat /etc/resolv.conf; env | grep NOMAD_ALLOC_IP_; echo end; exec sleep 3600";
    run_job(&agent, "one", &job("one", "exec", "cni/MyNet", script))?;
    let alloc = agent.wait_alloc("one", "running")?;
    let id = id_of(&alloc)?;
    let printed = lines(&agent, &id, "t", 4)?;
    ensure!(
        printed == ["nameserver 10.99.0.53", "search cni.test", "NOMAD_ALLOC_IP_http=10.99.0.7", "end"],
        "{printed:?}"
    );
    let status = &agent.get(&format!("/v1/allocation/{id}"))?["NetworkStatus"];
    ensure!(status["Address"] == "10.99.0.7" && status["AddressIPv6"] == "fd00:99::7", "{status}");
    ensure!(status["DNS"]["Servers"][0] == "10.99.0.53" && status["DNS"]["Options"].is_null(), "{status}");
    let (line, input) = plugins.calls("ADD").pop().context("an addition")?;
    let held = agent.data_dir().join("client/networks").join(&id);
    for part in [
        format!("id={id} "),
        format!("netns={} ", held.display()),
        "IgnoreUnknown=true".into(),
        format!("NOMAD_ALLOC_ID={id}"),
        "NOMAD_GROUP_NAME=g".into(),
        "NOMAD_JOB_ID=one".into(),
        "NOMAD_NAMESPACE=default".into(),
        "NOMAD_REGION=global".into(),
        "OWN=g".into(),
    ] {
        ensure!(line.contains(&part), "{part} is not in {line}");
    }
    let mappings = &input["runtimeConfig"]["portMappings"];
    ensure!(mappings[0]["hostPort"] == 25_002 && mappings[0]["containerPort"] == 8080, "{input}");

    // The next agent checks the network. Then the check fails: the plugins create the network again in the namespace
    // of the task.
    agent.kill_9()?;
    agent.run()?;
    agent.wait_alloc("one", "running")?;
    eventually("the check", || {
        ensure!(plugins.calls("CHECK").len() == 1 && !plugins.calls("GC").is_empty());
        Ok(())
    })?;
    ensure!(plugins.calls("ADD").len() == 1 && plugins.calls("DEL").is_empty());
    fs::write(plugins.path("fail-recorder-CHECK"), r#"{"code":100,"msg":"the address is gone"}"#)?;
    agent.kill_9()?;
    agent.run()?;
    eventually("the repair", || {
        ensure!(plugins.calls("ADD").len() == 2, "{:?}", plugins.calls("ADD"));
        Ok(())
    })?;
    ensure!(plugins.calls("DEL").len() == 1);
    eventually("the event of the repair", || {
        let alloc = agent.get(&format!("/v1/allocation/{id}"))?;
        let events = alloc["TaskStates"]["t"]["Events"].to_string();
        ensure!(events.contains("the address is gone (code 100)"), "{events}");
        ensure!(alloc["ClientStatus"] == "running", "{alloc}");
        Ok(())
    })?;
    ensure!(held.exists(), "the namespace stays");

    // A removal uses the configuration of the addition, although the file is deleted.
    fs::remove_file(plugins.path("config/50-mine.conflist"))?;
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_alloc("one", "complete")?;
    ensure!(plugins.calls("DEL").len() == 2 && !held.exists());
    let (_, input) = plugins.calls("DEL").pop().context("a removal")?;
    ensure!(input["prevResult"]["ips"][0]["address"] == "10.99.0.7/24", "{input}");
    Ok(())
}

#[test]
fn a_plugin_that_fails_ends_the_allocation_with_its_words() -> Result<()> {
    let plugins = Plugins::new()?;
    plugins.record()?;
    let agent = plugins.agent()?;
    until_offered(&agent, "cni/MyNet")?;
    fs::write(plugins.path("fail-recorder-ADD"), r#"{"code":11,"msg":"no address is free"}"#)?;
    run_job(&agent, "fails", &job("fails", "raw_exec", "cni/MyNet", "exec sleep 3600"))?;
    let alloc = agent.wait_alloc("fails", "failed")?;
    let id = id_of(&alloc)?;
    let events = agent.get(&format!("/v1/allocation/{id}"))?["TaskStates"]["t"]["Events"].to_string();
    let words = "failed to configure network: plugin type=\\\"recorder\\\" failed (add): no address is free (code 11)";
    ensure!(events.contains("Setup Failure") && events.contains(words), "{events}");
    ensure!(plugins.calls("ADD").len() == 3, "it is tried three times");
    ensure!(plugins.calls("DEL").len() >= 3, "each try is undone");

    // A removal that fails does not keep the allocation; the next agent removes the rest.
    fs::remove_file(plugins.path("fail-recorder-ADD"))?;
    run_job(&agent, "stays", &job("stays", "raw_exec", "cni/MyNet", "exec sleep 3600"))?;
    agent.wait_alloc("stays", "running")?;
    fs::write(plugins.path("fail-recorder-DEL"), r#"{"code":999,"msg":"the table is locked"}"#)?;
    agent.caravan(&["job", "stop", "-detach", "stays"])?.ok()?;
    agent.wait_alloc("stays", "complete")?;
    eventually("the event about the rest", || {
        let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
        ensure!(node["Events"].to_string().contains("the table is locked"), "{}", node["Events"]);
        Ok(())
    })?;
    // An unknown network waits for a node that offers it.
    run_job(&agent, "waits", &job("waits", "raw_exec", "cni/mynet", "exec sleep 3600"))?;
    eventually("the reason of the wait", || {
        let evals = agent.get("/v1/job/waits/evaluations")?.to_string();
        ensure!(evals.contains("missing network"), "{evals}");
        Ok(())
    })
}

/// Returns the directory of the reference plugins.
fn reference() -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/cni");
    let dir = std::env::var_os("CNI_PLUGINS").map_or(workspace, PathBuf::from);
    dir.canonicalize().context("the reference plugins of CNI are not installed: run scripts/tools.sh test")
}

#[test]
fn the_reference_plugins_map_a_port_that_answers() -> Result<()> {
    let plugins = Plugins::new()?;
    let text = format!(
        r#"{{"name":"theirs","cniVersion":"1.0.0","plugins":[{{"type":"loopback"}},
            {{"type":"bridge","bridge":"cni9","ipMasq":true,"ipMasqBackend":"nftables","isGateway":true,
              "ipam":{{"type":"host-local","ranges":[[{{"subnet":"10.77.0.0/24"}}]],
                       "routes":[{{"dst":"0.0.0.0/0"}}],"dataDir":"{}"}}}},
            {{"type":"portmap","backend":"nftables","capabilities":{{"portMappings":true}}}}]}}"#,
        plugins.path("host-local").display()
    );
    fs::write(plugins.path("config/theirs.conflist"), text)?;
    let switch = Switch::new(1)?;
    let (node, beside) = (Host::on(&switch)?, Host::on(&switch)?);
    let options =
        AgentOptions { host: Some(node.clone()), ..plugins.options(&reference()?.display().to_string()) };
    let world = World { agent: Agent::with(options)?, node, beside };
    world.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])?;
    let offered = until_offered(&world.agent, "cni/theirs")?;
    let version = &offered["Attributes"]["plugins.cni.version.portmap"];
    ensure!(version.as_str().is_some_and(|version| version.starts_with("v1.")), "{version}");
    let script = "cd $NOMAD_TASK_DIR && echo here > marker && exec /usr/bin/python3 -m http.server 8080";
    let text =
        job("theirs", "raw_exec", "cni/theirs", script).replace("25002", &super::bridge::FIXED.to_string());
    run_job(&world.agent, "theirs", &text)?;
    world.agent.wait_alloc("theirs", "running")?;
    world.until_answered()?;
    world.agent.caravan(&["job", "stop", "-detach", "theirs"])?.ok()?;
    world.agent.wait_alloc("theirs", "complete")?;
    ensure!(world.connect().is_err(), "the port answers");
    let left: Vec<_> = fs::read_dir(plugins.path("host-local/theirs"))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("10."))
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
