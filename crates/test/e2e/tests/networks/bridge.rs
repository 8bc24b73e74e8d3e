//! Networks of mode `bridge`, on hosts in separate network namespaces.

use super::restart;
use crate::run_job;
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, Host, Switch, eventually};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// The port of the node that leads to the first task.
pub(super) const FIXED: u16 = 25_001;

/// A node with an agent, and a second host that reaches the node.
pub(super) struct World {
    pub(super) agent: Agent,
    pub(super) node: Host,
    pub(super) beside: Host,
}

impl World {
    fn start() -> Result<Self> {
        Self::with(AgentOptions::default())
    }

    pub(super) fn with(options: AgentOptions) -> Result<Self> {
        let switch = Switch::new(1)?;
        let (node, beside) = (Host::on(&switch)?, Host::on(&switch)?);
        let agent = Agent::with(AgentOptions { host: Some(node.clone()), ..options })?;
        Ok(Self { agent, node, beside })
    }

    /// Connects with the fixed port of the node from the other host.
    pub(super) fn connect(&self) -> Result<TcpStream> {
        let to = SocketAddr::from((self.node.address(), FIXED));
        let stream = self.beside.inside(|| TcpStream::connect_timeout(&to, Duration::from_secs(2)))??;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    /// Returns the status line of a request to the fixed port of the node.
    pub(super) fn ask(&self) -> Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(b"GET /marker HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        ensure!(
            text.starts_with("HTTP/1.") && text.contains(" 200 ") && text.ends_with("here\n"),
            "{text:?}"
        );
        Ok(text)
    }

    pub(super) fn until_answered(&self) -> Result<()> {
        eventually("the mapped port to answer", || self.ask().map(drop))
    }

    /// Runs a program in the network of the node.
    pub(super) fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self.node.inside(|| Command::new(program).args(args).output())??;
        ensure!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the node has an event that begins with a text.
    fn until_event(&self, begins: &str) -> Result<()> {
        eventually(&format!("the event {begins:?}"), || {
            let node = self.agent.get(&format!("/v1/node/{}", self.agent.node_id()?))?;
            let events = node["Events"].as_array().cloned().unwrap_or_default();
            let found = events.iter().any(|e| e["Message"].as_str().is_some_and(|m| m.starts_with(begins)));
            ensure!(found, "{events:?}");
            Ok(())
        })
    }

    /// Returns the remains of allocations in the network of the node.
    pub(super) fn left(&self) -> Result<String> {
        let ports = self.run("nft", &["list", "table", "inet", "caravan-nomad"])?;
        let ports = ports.lines().filter(|line| line.contains("comment") && line.contains(" : "));
        let links = self.run("ip", &["-o", "link", "show", "master", "nomad"])?;
        let spaces = std::fs::read_dir(self.agent.data_dir().join("client/networks"))?;
        let spaces: Vec<String> = spaces
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        Ok(format!("{}{links}{}", ports.collect::<Vec<_>>().join("\n"), spaces.join(" ")))
    }
}

fn job(driver: &str, count: usize) -> String {
    let ports = match count {
        1 => format!("port \"http\" {{\n static = {FIXED}\n to = 8080\n }}"),
        _ => "port \"http\" {\n to = 8080\n }".to_owned(),
    };
    format!(
        r#"
job "pair" {{
  group "g" {{
    count = {count}
    network {{
      mode = "bridge"
      {ports}
    }}
    service {{
      name         = "inner"
      provider     = "nomad"
      port         = "http"
      address_mode = "alloc"
      check {{
        type     = "http"
        path     = "/marker"
        interval = "1s"
        timeout  = "1s"
      }}
    }}
    task "server" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "readlink /proc/self/ns/net; env | grep NOMAD_ALLOC_ | sort; cd $NOMAD_TASK_DIR && echo here > marker && exec /usr/bin/python3 -m http.server 8080"]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 64
      }}
    }}
    task "other" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "readlink /proc/self/ns/net; exec sleep 3600"]
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

fn first_line(agent: &Agent, alloc: &str, task: &str) -> Result<String> {
    eventually(&format!("the output of {task}"), || {
        let text = agent.logs(alloc, task, "stdout")?;
        text.lines().next().map(ToOwned::to_owned).context("no line yet")
    })
}

fn id_of(alloc: &Value) -> Result<String> {
    Ok(alloc["ID"].as_str().context("the allocation has an id")?.to_owned())
}

#[test]
fn tasks_share_a_network_whose_port_answers_through_flushes_and_restarts() -> Result<()> {
    for driver in crate::DRIVERS {
        let mut world = World::start()?;
        run_job(&world.agent, "pair", &job(driver, 1))?;
        let id = id_of(&world.agent.wait_alloc("pair", "running")?)?;
        world.until_answered().with_context(|| driver.to_owned())?;

        let inside = first_line(&world.agent, &id, "server")?;
        ensure!(first_line(&world.agent, &id, "other")? == inside, "{driver}: they share it");
        let exec = ["alloc", "exec", "-task", "other", &id, "readlink", "/proc/self/ns/net"];
        ensure!(world.agent.caravan(&exec)?.ok()?.stdout.trim() == inside, "{driver}");
        let alloc = world.agent.get(&format!("/v1/allocation/{id}"))?;
        let status = &alloc["NetworkStatus"];
        ensure!(status["InterfaceName"] == "eth0" && status["Address"] == "172.26.64.2", "{status}");
        let printed = world.agent.logs(&id, "server", "stdout")?;
        for line in [
            "NOMAD_ALLOC_ADDR_http=172.26.64.2:8080",
            "NOMAD_ALLOC_INTERFACE_http=eth0",
            "NOMAD_ALLOC_IP_http=172.26.64.2",
        ] {
            ensure!(printed.lines().any(|own| own == line), "{driver}: {line} is not in {printed}");
        }
        let services = eventually("the service", || {
            let all = world.agent.get("/v1/service/inner")?;
            ensure!(all.as_array().is_some_and(|all| all.len() == 1), "{all}");
            Ok(all)
        })?;
        ensure!(services[0]["Address"] == "172.26.64.2" && services[0]["Port"] == 8080, "{services}");
        eventually("the check to reach into the namespace", || {
            let checks = world.agent.get(&format!("/v1/client/allocation/{id}/checks"))?;
            let passes = checks.as_object().is_some_and(|all| all.values().any(|c| c["Status"] == "success"));
            ensure!(passes, "{checks}");
            Ok(())
        })?;

        // A firewall program flushes all rules.
        world.run("nft", &["flush", "ruleset"])?;
        world.until_answered()?;
        world.until_event("Network repaired: packet rules")?;
        world.run("ip", &["link", "delete", "nomad"])?;
        world.until_answered()?;
        world.until_event("Network repaired: the bridge")?;

        // A connection outlives the agent, and the next agent leaves it alone.
        let mut open = world.connect()?;
        world.agent.kill_9()?;
        world.ask()?;
        world.agent.run()?;
        world.agent.wait_alloc("pair", "running")?;
        world.ask()?;
        open.write_all(b"GET /marker HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        open.read_to_string(&mut text)?;
        ensure!(text.ends_with("here\n"), "{text:?}");
        let after = world.agent.get(&format!("/v1/allocation/{id}"))?;
        ensure!(after["NetworkStatus"] == *status, "{after}");
        restart(&world.agent, &id, "other")?;
        eventually("the restarted task", || {
            let text = world.agent.logs(&id, "other", "stdout")?;
            ensure!(text.lines().count() == 2 && text.lines().all(|line| line == inside), "{text}");
            Ok(())
        })?;

        world.agent.caravan(&["job", "stop", "-detach", "pair"])?.ok()?;
        world.agent.wait_alloc("pair", "complete")?;
        // The status reports that the port is free, so nothing remains by now.
        ensure!(world.connect().is_err(), "{driver}: the port answers");
        let left = world.left()?;
        ensure!(left.is_empty(), "{driver}: {left}");
    }
    Ok(())
}

#[test]
fn an_agent_that_is_killed_while_allocations_stop_leaves_nothing() -> Result<()> {
    let mut world = World::start()?;
    run_job(&world.agent, "pair", &job("raw_exec", 6))?;
    eventually("six allocations", || {
        let all = world.agent.allocs("pair")?;
        let running = all.iter().filter(|alloc| alloc["ClientStatus"] == "running").count();
        ensure!(running == 6, "{running} run");
        Ok(())
    })?;
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    for alloc in world.agent.allocs("pair")? {
        let alloc = world.agent.get(&format!("/v1/allocation/{}", id_of(&alloc)?))?;
        addresses.push(alloc["NetworkStatus"]["Address"].as_str().context("an address")?.parse()?);
    }
    addresses.sort_unstable();
    addresses.dedup();
    ensure!(addresses.len() == 6, "{addresses:?}");
    world.agent.caravan(&["job", "stop", "-detach", "pair"])?.ok()?;
    world.agent.kill_9()?;
    world.agent.run()?;
    eventually("all allocations to end", || {
        let all = world.agent.allocs("pair")?;
        ensure!(all.iter().all(|alloc| alloc["ClientStatus"] == "complete"), "{all:?}");
        Ok(())
    })?;
    let left = world.left()?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}
