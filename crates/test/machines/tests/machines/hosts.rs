//! Unusual hosts: a kernel that lacks features, a time zone, clocks that creep, file systems of which only one is
//! full.

use crate::main_job::{TIMEOUT, all_is_well, start, task_pids, writer, writes};
use crate::more;
use anyhow::{Context, Result, ensure};
use caravan_testkit::eventually_within;
use caravan_testkit::vm::{AGENT_CONFIG, Disk, Machine, MachineOptions};

#[test]
fn a_kernel_without_overlay_ipv6_and_user_namespaces() -> Result<()> {
    more("small-kernel", |bench| {
        let kernel_arguments = "ipv6.disable=1 module_blacklist=overlay".to_owned();
        let machine = bench.booted(MachineOptions { kernel_arguments, ..MachineOptions::new("m") })?;
        machine.sh("echo 0 > /proc/sys/user/max_user_namespaces; test ! -e /proc/net/if_inet6")?;
        ensure!(machine.run(&["grep", "-q", "overlay", "/proc/filesystems"])?.code != 0, "overlay is there");
        start(&machine)?;
        all_is_well(&machine)
    })
}

#[test]
fn the_clock_creeps_and_leaps() -> Result<()> {
    more("creeping-clock", |bench| {
        let machine = bench.booted(MachineOptions::new("m"))?;
        start(&machine)?;
        let pids = task_pids(&machine)?;
        // As with NTP, the clock runs faster, then slower, by a tenth. A tick has 10,000 µs by default.
        for tick in [11_000, 9_000, 10_000] {
            machine.sh(&format!("adjtimex -q -t {tick}; sleep 5"))?;
            all_is_well(&machine)?;
        }
        // As at a leap second, one second occurs twice, or is missing.
        for seconds in ["- 1", "+ 1"] {
            machine.sh(&format!("date -s @$(( $(date +%s) {seconds} ))"))?;
            all_is_well(&machine)?;
        }
        // Another time zone.
        machine.end_agent("INT")?;
        machine.start_agent_by(&["env", "TZ=EAST-11"])?;
        all_is_well(&machine)?;
        assert_eq!(task_pids(&machine)?, pids, "the tasks have other process ids");
        Ok(())
    })
}

/// Fills a file system.
fn fill(machine: &Machine, dir: &str) -> Result<()> {
    machine.run(&["dd", "if=/dev/zero", &format!("of={dir}/fill"), "bs=1M"])?.failed()?;
    machine.run(&["sh", "-c", &format!("while echo x >> {dir}/fill; do :; done 2>/dev/null")])?;
    Ok(())
}

#[test]
fn logs_and_allocations_are_full_alone() -> Result<()> {
    more("full-alone", |bench| {
        // Each allocation requests 300 MB.
        let disks = vec![Disk::ext4(2048), Disk::ext4(1400)];
        let machine = bench.booted(MachineOptions { disks, ..MachineOptions::new("m") })?;
        machine.configure_agent("")?;
        let config = String::from_utf8(machine.get(AGENT_CONFIG)?)?;
        let config = config.replacen("client {", "client {\n  alloc_dir = \"/srv/alloc\"", 1);
        machine
            .sh("mkdir -p /srv/alloc; mount /dev/vdc /srv/alloc; mount -t tmpfs -o size=2m none /var/log")?;
        machine.put(AGENT_CONFIG, 0o644, config.as_bytes())?;
        machine.start_agent()?;
        crate::main_job::run_plugin(&machine)?;
        machine.create_volume("w-raw", "single-node-writer")?;
        machine.run_job("w-raw", &writer("raw_exec", "w-raw"))?;
        machine.wait_running("w-raw")?;

        // The agent's log is full: the agent continues without a log.
        fill(&machine, "/var/log")?;
        writes(&machine, "w-raw")?;
        machine.caravan(&["job", "status", "w-raw"])?.ok()?;
        machine.sh("rm /var/log/fill; : > /var/log/agent.log")?;

        // The allocations' directory is full: the running task continues with its volume, and a new allocation
        // reports the reason of its wait.
        fill(&machine, "/srv/alloc")?;
        writes(&machine, "w-raw")?;
        machine.create_volume("more", "single-node-writer")?;
        machine.run_job("more", &writer("raw_exec", "more"))?;
        eventually_within(TIMEOUT, "the reason at the allocation", || {
            let allocs = machine.api("/v1/job/more/allocations")?;
            let text = allocs.to_string();
            ensure!(text.contains("No space left") || text.contains("no space left"), "no reason in {text}");
            Ok(())
        })
        .with_context(|| machine.agent_log_tail())?;
        machine.sh("rm /srv/alloc/fill")?;
        machine.wait_running("more")?;
        writes(&machine, "more")?;
        writes(&machine, "w-raw").map(drop)
    })
}
