//! The main job: a plugin, its volumes, and a writer under each driver, in a machine that restarts.

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::vm::{Machine, MachineOptions, story};
use caravan_testkit::{Plugin, Writer, eventually_within, plugin_job, writer_job};
use std::time::Duration;

/// Both drivers that run processes. Each has a job and a volume of this name.
pub(crate) const DRIVERS: [(&str, &str); 2] = [("raw_exec", "w-raw"), ("exec", "w-exec")];
/// The timeout of a condition in an emulated machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// Starts the agent, the plugin, and a writer with a volume under each driver.
pub(crate) fn start(machine: &Machine) -> Result<()> {
    machine.configure_agent("")?;
    machine.start_agent()?;
    run_plugin(machine)?;
    for (driver, name) in DRIVERS {
        machine.create_volume(name, "single-node-writer")?;
        machine.run_job(name, &writer(driver, name))?;
    }
    for (_, name) in DRIVERS {
        machine.wait_running(name)?;
        writes(machine, name)?;
    }
    Ok(())
}

/// Runs the bundled plugin and waits until it is healthy.
pub(crate) fn run_plugin(machine: &Machine) -> Result<()> {
    run_plugin_with(machine, "")
}

/// Runs the bundled plugin with a further part of its group.
pub(crate) fn run_plugin_with(machine: &Machine, part: &str) -> Result<()> {
    let args = vec!["--state-dir=/var/lib/volumes".to_owned()];
    let job = plugin_job(&Plugin { driver: "raw_exec".to_owned(), args });
    let job = job.replacen("task \"plugin\"", &format!("{part}task \"plugin\""), 1);
    machine.run_job("hostpath", &job)?;
    machine.wait_plugin("hostpath")
}

/// Returns a writer's job.
pub(crate) fn writer(driver: &str, name: &str) -> String {
    writer_job(&Writer {
        id: name.to_owned(),
        driver: driver.to_owned(),
        volume: name.to_owned(),
        access_mode: "single-node-writer".to_owned(),
        word: name.to_owned(),
    })
}

/// Returns the only file that a writer writes, as the machine mounts it.
pub(crate) fn log_of(machine: &Machine, name: &str) -> Result<String> {
    let find = "find /var/lib/caravan/client/csi -path '*/per-alloc/*' -name log | grep \"/$1/\"";
    let found = machine.run(&["sh", "-c", find, "find", name])?.ok()?.stdout;
    let mut lines = found.lines();
    match (lines.next(), lines.next()) {
        (Some(path), None) => Ok(path.to_owned()),
        _ => bail!("files of {name}: {found:?}"),
    }
}

fn lines(machine: &Machine, name: &str) -> Result<usize> {
    let path = log_of(machine, name)?;
    machine.sh(&format!("wc -l < '{path}'"))?.trim().parse().context("no number")
}

/// Waits until a writer has written more lines. Returns their number.
pub(crate) fn writes(machine: &Machine, name: &str) -> Result<usize> {
    let mut before = None;
    eventually_within(TIMEOUT, &format!("more lines of {name}"), || {
        let now = lines(machine, name)?;
        let first = *before.get_or_insert(now);
        ensure!(now > first, "{now} lines");
        Ok(now)
    })
    .with_context(|| machine.agent_log_tail())
}

/// Returns the process ids of the plugin and of the tasks' shells, in order.
pub(crate) fn task_pids(machine: &Machine) -> Result<Vec<u32>> {
    // A shell that starts a program is two processes of one command line until the second one runs the program.
    eventually_within(TIMEOUT, "one process of each task", || {
        let processes = machine.processes()?;
        let pids_of = |text: &str| -> Result<u32> {
            // The command line of the shim contains its task too, so the beginning is compared.
            let mut found = processes.iter().filter(|(_, line)| {
                line.contains(text)
                    && (line.starts_with("/bin/sh -c") || line.starts_with("/usr/bin/caravan plugin"))
            });
            match (found.next(), found.next()) {
                (Some((id, _)), None) => Ok(*id),
                _ => bail!("not one process of {text}: {processes:#?}"),
            }
        };
        ["caravan plugin hostpath", "echo w-raw", "echo w-exec"].into_iter().map(pids_of).collect()
    })
}

/// Returns the number of calls that have published volumes, from the log of the plugin.
pub(crate) fn publications(machine: &Machine) -> Result<usize> {
    let count =
        "cat /var/lib/caravan/alloc/*/alloc/logs/*.std* | grep -c 'call=\"NodePublishVolume\"' || true";
    let published = machine.sh(count)?.trim().parse().context("no number")?;
    ensure!(published >= DRIVERS.len(), "the plugin logs {published} publications");
    Ok(published)
}

/// Fails if a file was written below a mount point: into the bare directory that a mount covers.
pub(crate) fn check_bare_directories(machine: &Machine) -> Result<()> {
    // A bind mount that is not recursive shows the directories that the mounts below the disk cover.
    let look = "mkdir -p /mnt/bare; mount --bind /var/lib /mnt/bare; \
        find /mnt/bare/caravan/client/csi /mnt/bare/caravan/alloc -name log -type f || true; umount /mnt/bare";
    let found = machine.sh(look)?;
    ensure!(found.is_empty(), "written into bare directories:\n{found}");
    Ok(())
}

#[test]
fn restarts() -> Result<()> {
    story("restarts", |bench| {
        let machine = bench.machine(MachineOptions::new("m"))?;
        start(&machine)?;

        // The agent is killed: the tasks continue.
        let pids = task_pids(&machine)?;
        machine.end_agent("KILL")?;
        machine.start_agent()?;
        for (_, name) in DRIVERS {
            machine.wait_running(name)?;
            writes(&machine, name)?;
        }
        assert_eq!(task_pids(&machine)?, pids, "the tasks have other process ids");

        // The machine restarts in order, then by a reset. The agent starts with it.
        machine.put("/etc/rc.local", 0o755, AT_START.as_bytes())?;
        machine.put("/etc/rc.stop", 0o755, AT_STOP.as_bytes())?;
        for in_order in [true, false] {
            let (boot_id, before) = (machine.boot_id(), lines_of_all(&machine)?);
            machine.sh("sync")?;
            if in_order {
                machine.reboot()?
            } else {
                machine.reset()?
            }
            ensure!(machine.boot_id() != boot_id, "the boot id is the same");
            machine.wait_agent()?;
            for ((_, name), before) in DRIVERS.into_iter().zip(before) {
                machine.wait_running(name)?;
                let now = writes(&machine, name)?;
                ensure!(now > before, "{name} had {before} lines and has {now}");
            }
            check_bare_directories(&machine)?;
            one_mount_each(&machine)?;
        }
        Ok(())
    })
}

/// The script that starts the agent with the machine.
pub(crate) const AT_START: &str = "#!/bin/sh\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root\nrm -f /run/agent.pid\n\
    setsid sh -c 'echo $$ > /run/agent.pid; exec caravan agent -config /etc/caravan.hcl' </dev/null >>/var/log/agent.log 2>&1 &\n";
/// The script that ends the agent before the machine.
pub(crate) const AT_STOP: &str = "#!/bin/sh\nagent=$(cat /run/agent.pid)\nkill -INT $agent\n\
    while kill -0 $agent 2>/dev/null; do usleep 50000; done\n";

fn lines_of_all(machine: &Machine) -> Result<Vec<usize>> {
    DRIVERS.into_iter().map(|(_, name)| lines(machine, name)).collect()
}

/// Fails unless each volume is published once.
pub(crate) fn one_mount_each(machine: &Machine) -> Result<()> {
    let mounts = machine.sh("cat /proc/self/mountinfo")?;
    for (_, name) in DRIVERS {
        let is_published = |line: &&str| line.contains("/per-alloc/") && line.contains(&format!("/{name}/"));
        let found: Vec<&str> = mounts.lines().filter(is_published).collect();
        ensure!(found.len() == 1, "mounts of {name}: {found:#?}");
    }
    Ok(())
}

/// Fails unless all jobs run and write, each with one mount.
pub(crate) fn all_is_well(machine: &Machine) -> Result<()> {
    for (_, name) in DRIVERS {
        machine.wait_running(name)?;
        writes(machine, name)?;
    }
    one_mount_each(machine)
}
