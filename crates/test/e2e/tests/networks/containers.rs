//! Networks of mode `bridge` that a container engine holds, which tasks of other drivers join.

use super::bridge::{FIXED, World};
use super::{held, id_of, restart};
use crate::external::with_examples;
use crate::run_job;
use anyhow::{Context, Result, ensure};
use caravan_testkit::{AgentOptions, ContainerEngine, EngineKind, eventually};
use std::io::{Read as _, Write as _};

/// The tasks of the group in addition to the server, each with its driver.
const OTHERS: [(&str, &str); 5] =
    [("beside", "docker"), ("inner", "exec"), ("raw", "raw_exec"), ("outer", "example"), ("machine", "java")];

/// An engine on the node of a world. The engine is dropped last.
struct Node {
    world: World,
    engine: ContainerEngine,
    _plugins: tempfile::TempDir,
}

impl Node {
    fn start(kind: EngineKind) -> Result<Self> {
        let engine = ContainerEngine::start_kind(kind)?;
        let plugins = tempfile::tempdir()?;
        let more = format!(
            "plugin \"docker\" {{\n config {{\n endpoint = \"{}\"\n infra_image = \"{}\"\n }}\n}}\n\
             plugin \"raw_exec\" {{\n config {{\n enabled = true\n }}\n}}",
            engine.endpoint(),
            engine.import_idle()?
        );
        let extra = with_examples(plugins.path(), &more)?;
        let world = World::with(AgentOptions { extra, ..AgentOptions::default() })?;
        Ok(Self { world, engine, _plugins: plugins })
    }

    /// Returns the namespace of a task, as a command in the task sees it.
    fn namespace(&self, alloc: &str, task: &str) -> Result<String> {
        let busybox = if task == "server" || task == "beside" { &["busybox"][..] } else { &[] };
        let words = [
            &["alloc", "exec", "-t=false", "-task", task, alloc],
            busybox,
            &["readlink", "/proc/self/ns/net"],
        ];
        Ok(self.world.agent.caravan(&words.concat())?.ok()?.stdout.trim().to_owned())
    }

    /// Waits until all tasks run in one namespace, which is not `old`, and the port answers. Returns the namespace.
    fn until_joined(&self, alloc: &str, tasks: &[(&str, &str)], old: Option<&str>) -> Result<String> {
        let joined = eventually("all tasks to be in one namespace", || {
            let shared = self.namespace(alloc, "server")?;
            ensure!(shared.starts_with("net:") && Some(shared.as_str()) != old, "the server is in {shared}");
            for (task, driver) in tasks {
                let own = self.namespace(alloc, task).with_context(|| (*driver).to_owned())?;
                ensure!(own == shared, "{driver}: {task} is in {own}, the server in {shared}");
            }
            Ok(shared)
        })?;
        self.world.until_answered()?;
        Ok(joined)
    }

    /// Checks that nothing remains of an allocation.
    fn check_nothing_left(&self) -> Result<()> {
        ensure!(self.world.connect().is_err(), "the port answers");
        let left = self.world.left()?;
        ensure!(left.is_empty(), "{left}");
        ensure!(self.engine.containers()?.is_empty(), "{:?}", self.engine.containers()?);
        Ok(())
    }
}

fn task(name: &str, driver: &str) -> String {
    let config = match driver {
        "docker" => format!(
            "image = \"{}\"\n command = \"sh\"\n args = [\"-c\", \"trap 'exit 0' TERM; sleep 100000 & wait\"]",
            ContainerEngine::IMAGE
        ),
        // A program of the Java runtime that listens.
        "java" => "class = \"sun.rmi.registry.RegistryImpl\"\n args = [\"1099\"]".to_owned(),
        _ => "command = \"/bin/sleep\"\n args = [\"100000\"]".to_owned(),
    };
    let memory = if driver == "java" { 256 } else { 32 };
    format!(
        r#"
    task "{name}" {{
      driver       = "{driver}"
      kill_timeout = "1s"
      config {{
        {config}
      }}
      resources {{
        cpu    = 20
        memory = {memory}
      }}
    }}
"#
    )
}

fn job(others: &[(&str, &str)]) -> String {
    let others: String = others.iter().map(|(name, driver)| task(name, driver)).collect();
    format!(
        r#"
job "mixed" {{
  group "g" {{
    network {{
      mode = "bridge"
      port "http" {{
        static = {FIXED}
        to     = 8080
      }}
    }}
    restart {{
      attempts = 20
      interval = "10m"
      delay    = "1s"
      mode     = "delay"
    }}
    task "server" {{
      driver       = "docker"
      kill_timeout = "1s"
      config {{
        image   = "{image}"
        command = "sh"
        args    = ["-c", "env | grep NOMAD_ALLOC_IP_ ; cat /etc/hosts; exec busybox httpd -f -p 8080 -h /local"]
        ports   = ["http"]
      }}
      template {{
        data        = "here\n"
        destination = "local/marker"
      }}
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
    {others}
  }}
}}
"#,
        image = ContainerEngine::IMAGE
    )
}

#[test]
fn tasks_of_all_drivers_share_the_network_of_a_container() -> Result<()> {
    let mut node = Node::start(EngineKind::Docker)?;
    run_job(&node.world.agent, "mixed", &job(&OTHERS))?;
    let id = id_of(&node.world.agent.wait_alloc("mixed", "running")?)?;
    let shared = node.until_joined(&id, &OTHERS, None)?;
    let status = node.world.agent.get(&format!("/v1/allocation/{id}"))?["NetworkStatus"].clone();
    let address = status["Address"].as_str().context("an address")?.to_owned();
    ensure!(address == "172.26.64.2" && status["InterfaceName"] == "eth0", "{status}");
    let printed = node.world.agent.logs(&id, "server", "stdout")?;
    ensure!(printed.contains(&format!("NOMAD_ALLOC_IP_http={address}")), "{printed}");
    ensure!(printed.lines().any(|line| line.starts_with(&format!("{address} "))), "{printed}");
    // The program of the virtual machine is reached from a container, without a port of the node.
    let script = "echo | nc 127.0.0.1 1099 >/dev/null && echo reached";
    eventually("the virtual machine", || {
        let words = ["alloc", "exec", "-t=false", "-task", "beside", &id, "sh", "-c", script];
        let out = node.world.agent.caravan(&words)?;
        ensure!(out.stdout.trim() == "reached", "{}", out.all());
        Ok(())
    })?;

    // Each restart of a task finds the same network.
    for (task, _) in OTHERS.iter().chain(&[("server", "docker")]) {
        node.world.agent.caravan(&["alloc", "restart", &id, task])?.ok()?;
    }
    ensure!(node.until_joined(&id, &OTHERS, None)? == shared, "a restart replaced the network");

    // A connection outlives the agent, and the next agent leaves it alone.
    let mut open = node.world.connect()?;
    node.world.agent.kill_9()?;
    node.world.ask()?;
    node.world.agent.run()?;
    node.world.agent.wait_alloc("mixed", "running")?;
    node.world.ask()?;
    open.write_all(b"GET /marker HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    open.read_to_string(&mut text)?;
    ensure!(text.ends_with("here\n"), "{text:?}");
    ensure!(node.until_joined(&id, &OTHERS, None)? == shared, "the next agent replaced the network");

    // The engine restarts, and its containers with it: the tasks of other drivers follow into the new namespace.
    node.engine.halt()?;
    node.engine.resume()?;
    let next = node.until_joined(&id, &OTHERS, Some(&shared))?;
    let after = node.world.agent.get(&format!("/v1/allocation/{id}"))?;
    ensure!(after["NetworkStatus"] == status, "{after}");
    let events = after["TaskStates"]["inner"]["Events"].to_string();
    ensure!(events.contains("The network of the allocation was made again"), "{events}");

    // The engine restarts while the agent is dead.
    node.world.agent.kill_9()?;
    node.engine.halt()?;
    node.engine.resume()?;
    node.world.agent.run()?;
    node.until_joined(&id, &OTHERS, Some(&next))?;

    node.world.agent.caravan(&["job", "stop", "-detach", "mixed"])?.ok()?;
    node.world.agent.wait_alloc("mixed", "complete")?;
    ensure!(!held(&node.world.agent, &id).exists(), "the namespace is held");
    node.check_nothing_left()
}

#[test]
fn a_group_has_its_ports_with_other_engines() -> Result<()> {
    for kind in [EngineKind::Live, EngineKind::Podman] {
        let mut node = Node::start(kind)?;
        let others = [("beside", "docker"), ("inner", "exec")];
        run_job(&node.world.agent, "mixed", &job(&others))?;
        let id = id_of(&node.world.agent.wait_alloc("mixed", "running")?)?;
        let shared = node.until_joined(&id, &others, None).with_context(|| format!("{kind:?}"))?;
        // Containers and their connections continue without the engine.
        let mut open = node.world.connect()?;
        node.engine.kill()?;
        node.engine.resume()?;
        open.write_all(b"GET /marker HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        open.read_to_string(&mut text)?;
        ensure!(text.ends_with("here\n"), "{kind:?}: {text:?}");
        restart(&node.world.agent, &id, "beside")?;
        ensure!(node.until_joined(&id, &others, None)? == shared, "{kind:?}");
        // Another program removes the container that holds the network. Podman refuses while others use it.
        if matches!(kind, EngineKind::Live) {
            node.engine.docker(&["rm", "-f", &format!("nomad_init_{id}")])?;
            node.world.ask().with_context(|| format!("{kind:?}: the tasks keep their namespace"))?;
            node.world.agent.caravan(&["alloc", "restart", &id, "beside"])?.ok()?;
            node.until_joined(&id, &others, Some(&shared)).with_context(|| format!("{kind:?}"))?;
        }
        node.world.agent.caravan(&["job", "stop", "-detach", "mixed"])?.ok()?;
        node.world.agent.wait_alloc("mixed", "complete")?;
        node.check_nothing_left().with_context(|| format!("{kind:?}"))?;
    }
    Ok(())
}

/// Kills the agent in each round a little later after the start and after the stop of the job.
#[test]
fn an_agent_that_dies_leaves_neither_containers_nor_rules() -> Result<()> {
    let mut node = Node::start(EngineKind::Docker)?;
    let others = [("inner", "exec")];
    for round in 0..4 {
        run_job(&node.world.agent, "mixed", &job(&others))?;
        for _ in 0..round * 3 {
            node.world.agent.get("/v1/jobs")?;
        }
        // The first sign of the engine's part: the container is being created.
        eventually("the container", || {
            let is_begun = round % 2 == 1 || !node.engine.containers()?.is_empty();
            ensure!(is_begun, "no container");
            Ok(())
        })?;
        node.world.agent.kill_9()?;
        node.world.agent.run()?;
        let id = id_of(&node.world.agent.wait_alloc("mixed", "running")?)?;
        node.until_joined(&id, &others, None)?;
        ensure!(node.engine.containers()?.len() == 2, "{:?}", node.engine.containers()?);
        node.world.agent.caravan(&["job", "stop", "-detach", "-purge", "mixed"])?.ok()?;
        for _ in 0..round * 3 {
            node.world.agent.get("/v1/jobs")?;
        }
        node.world.agent.kill_9()?;
        node.world.agent.run()?;
        eventually("nothing to be left", || node.check_nothing_left())?;
    }
    Ok(())
}
