//! The life of a machine around the main job: suspension, memory pressure, full disks, clocks, names, interfaces,
//! mount options, an upgrade of the program.

use crate::main_job::{TIMEOUT, all_is_well, publications, run_plugin, start, task_pids, writer, writes};
use crate::more;
use anyhow::{Context, Result, ensure};
use caravan_testkit::eventually_within;
use caravan_testkit::vm::{Bench, EtherSwitch, Machine, MachineOptions};
use std::sync::Arc;
use std::time::Duration;

/// Runs a story with the main job.
fn with_main_job(name: &str, body: impl FnOnce(&Bench, &Machine) -> Result<()>) -> Result<()> {
    more(name, |bench| {
        let machine = bench.booted(MachineOptions::new("m"))?;
        start(&machine)?;
        body(bench, &machine)
    })
}

#[test]
fn an_upgrade_keeps_the_tasks() -> Result<()> {
    with_main_job("upgrade", |_, machine| {
        let pids = task_pids(machine)?;
        let before = publications(machine)?;
        // A package manager renames the new program over the old one.
        machine.sh("cp /usr/bin/caravan /usr/bin/caravan.new; mv /usr/bin/caravan.new /usr/bin/caravan")?;
        machine.end_agent("INT")?;
        machine.start_agent()?;
        all_is_well(machine)?;
        assert_eq!(task_pids(machine)?, pids, "the tasks have other process ids");
        assert_eq!(publications(machine)?, before, "the upgrade published volumes");
        Ok(())
    })
}

#[test]
fn the_clock_steps() -> Result<()> {
    with_main_job("clock", |_, machine| {
        let pids = task_pids(machine)?;
        for seconds in ["+ 3600", "- 7200"] {
            machine.sh(&format!("date -s @$(( $(date +%s) {seconds} ))"))?;
            all_is_well(machine)?;
        }
        assert_eq!(task_pids(machine)?, pids, "the tasks have other process ids");
        Ok(())
    })
}

/// The configuration of a client of the server on the other machine.
const CLIENT: &str = r#"
bind_addr = "10.9.0.2"
log_level = "DEBUG"
data_dir  = "/var/lib/caravan"
addresses {
  http = "127.0.0.1"
}
advertise {
  http = "10.9.0.2"
}
client {
  enabled = true
  servers = ["10.9.0.1:4647"]
}
plugin "raw_exec" {
  config {
    enabled = true
  }
}
"#;

/// The configuration of a server for another machine.
const SERVER: &str = r#"
bind_addr = "10.9.0.1"
log_level = "DEBUG"
data_dir  = "/var/lib/caravan"
addresses {
  http = "127.0.0.1"
}
advertise {
  http = "10.9.0.1"
}
server {
  enabled          = true
  bootstrap_expect = 1
  heartbeat_grace  = "2s"
  min_heartbeat_ttl = "2s"
}
"#;

#[test]
fn a_suspension_beyond_the_lease() -> Result<()> {
    more("suspension", |bench| {
        let switch = Arc::new(EtherSwitch::new()?);
        let options =
            |name| MachineOptions { cables: vec![Arc::clone(&switch)], ..MachineOptions::new(name) };
        let (server, client) = (bench.booted(options("server"))?, bench.booted(options("client"))?);
        for (machine, number, config) in [(&server, 1, SERVER), (&client, 2, CLIENT)] {
            machine.sh(&format!("ip addr add 10.9.0.{number}/24 dev eth0; ip link set eth0 up"))?;
            machine.put(caravan_testkit::vm::AGENT_CONFIG, 0o644, config.as_bytes())?;
        }
        server.launch_agent(&[])?;
        client.launch_agent(&[])?;
        let node = |status: &str| {
            eventually_within(TIMEOUT, &format!("the node to be {status}"), || {
                let nodes = server.api("/v1/nodes")?;
                ensure!(nodes[0]["Status"] == status, "nodes: {nodes}");
                Ok(())
            })
            .with_context(|| format!("{}\n--- client\n{}", server.agent_log_tail(), client.agent_log_tail()))
        };
        node("ready")?;
        run_plugin(&server)?;
        server.create_volume("w-raw", "single-node-writer")?;
        server.run_job("w-raw", &writer("raw_exec", "w-raw"))?;
        server.wait_running("w-raw")?;
        writes(&client, "w-raw")?;

        // All clocks of the machine stop, so that its agent sees no time pass.
        client.suspend()?;
        node("down")?;
        client.resume()?;
        node("ready")?;
        server.wait_running("w-raw")?;
        writes(&client, "w-raw")?;
        eventually_within(TIMEOUT, "one writer", || {
            let writers = client.processes()?;
            let writers = writers.iter().filter(|(_, line)| line.starts_with("/bin/sh -c cat")).count();
            ensure!(writers == 1, "{writers} writers");
            Ok(())
        })
    })
}

#[test]
fn names_and_interfaces_change() -> Result<()> {
    more("names", |bench| {
        let cables = vec![Arc::new(EtherSwitch::new()?)];
        let machine = bench.booted(MachineOptions { cables, ..MachineOptions::new("m") })?;
        machine.sh("ip addr add 10.9.0.1/24 dev eth0; ip link set eth0 up")?;
        start(&machine)?;
        let pids = task_pids(&machine)?;
        let node = node(&machine)?;
        machine
            .sh("ip link set eth0 down; ip link set eth0 name lan0; ip link set lan0 up; hostname renamed")?;
        machine.sh("for all in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $all; done")?;
        all_is_well(&machine)?;
        machine.end_agent("KILL")?;
        machine.start_agent()?;
        all_is_well(&machine)?;
        assert_eq!(task_pids(&machine)?, pids, "the tasks have other process ids");
        assert_eq!(self::node(&machine)?, node, "the node has another id");
        Ok(())
    })
}

fn node(machine: &Machine) -> Result<String> {
    let own = machine.api("/v1/agent/self")?;
    own["stats"]["client"]["node_id"].as_str().map(str::to_owned).context("the agent has no node")
}

#[test]
fn mounts_without_devices_and_set_user_id() -> Result<()> {
    more("nosuid", |bench| {
        let machine = bench.booted(MachineOptions::new("m"))?;
        machine
            .sh("mount -o remount,nosuid,nodev,noexec /var/lib; mount -o remount,noexec,nosuid,nodev /tmp")?;
        start(&machine)?;
        all_is_well(&machine)
    })
}

#[test]
fn memory_runs_out() -> Result<()> {
    with_main_job("memory", |_, machine| {
        let pids = task_pids(machine)?;
        // A process outside of all tasks takes memory until the kernel ends a process. The kernel must overcommit,
        // because it would otherwise refuse a request for more memory than the machine has.
        let eat = "echo 1 > /proc/sys/vm/overcommit_memory; echo 900 > /proc/self/oom_score_adj; \
            exec dd if=/dev/zero of=/dev/null bs=1500M";
        let eater = machine.run(&["sh", "-c", eat])?;
        ensure!(eater.code == 128 + 9, "the process was not killed: {eater:?}");
        all_is_well(machine)?;
        assert_eq!(task_pids(machine)?, pids, "the tasks have other process ids");

        // A task takes more than its share.
        let job = r#"
job "eater" {
  type = "batch"
  group "g" {
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "exec dd if=/dev/zero of=/dev/null bs=300M"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
  }
}
"#;
        machine.run_job("eater", job)?;
        eventually_within(TIMEOUT, "the task to fail for want of memory", || {
            let allocs = machine.api("/v1/job/eater/allocations")?;
            let alloc = &allocs[0];
            ensure!(alloc["ClientStatus"] == "failed", "the allocation is {}", alloc["ClientStatus"]);
            let events = alloc["TaskStates"]["t"]["Events"].to_string();
            ensure!(events.contains("OOM"), "no event names the reason: {events}");
            Ok(())
        })?;
        all_is_well(machine)
    })
}

#[test]
fn the_disk_is_full() -> Result<()> {
    with_main_job("full-disk", |_, machine| {
        machine.run(&["dd", "if=/dev/zero", "of=/var/lib/fill", "bs=1M"])?.failed()?;
        machine.run(&["sh", "-c", "while echo x >> /var/lib/fill; do :; done"])?;
        // The agent survives or ends with a sentence; a supervisor starts it again.
        let job = writer("raw_exec", "w-raw").replace("\"w-raw\"", "\"more\"");
        let path = "/run/more.hcl";
        machine.put(path, 0o644, job.as_bytes())?;
        let _ =
            machine.run_with(&["caravan", "job", "run", "-detach", path], b"", Duration::from_secs(60))?;
        machine.sh("rm /var/lib/fill")?;
        let alive = machine.run(&["sh", "-c", "kill -0 $(cat /run/agent.pid)"])?.code == 0;
        if !alive {
            machine.start_agent()?;
        }
        machine.wait_agent()?;
        all_is_well(machine)
    })
}
