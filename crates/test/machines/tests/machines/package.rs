//! The Debian package under systemd: the commands of `docs/guide/install.md`, and a running job over an upgrade and a
//! restart of the machine. systemd must not retry mistakes for ever.

use crate::main_job::{
    DRIVERS, TIMEOUT, all_is_well, check_bare_directories, publications, run_plugin, task_pids, writer,
};
use crate::more;
use anyhow::{Context, Result, ensure};
use caravan_testkit::vm::{Machine, MachineOptions};
use caravan_testkit::{cargo, eventually_within, program, workspace};
use std::path::Path;
use std::process::Command;

/// Drivers that the configuration of the package leaves off.
const MORE_CONFIG: &str = "plugin \"raw_exec\" {\n  config {\n    enabled = true\n  }\n}\nplugin \"exec\" {\n  config {\n    \
    allow_privileged_plugins = true\n  }\n}\nserver {\n  lease_ttl = \"10m\"\n}\n";

/// Returns the commands of a section of the guide, in order.
fn commands(section: &str) -> Result<Vec<String>> {
    let guide = std::fs::read_to_string(workspace("docs/guide/install.md"))?;
    let start = guide.find(&format!("## {section}\n")).with_context(|| format!("no section {section}"))?;
    let text = &guide[start + 3..];
    let text = &text[..text.find("\n## ").unwrap_or(text.len())];
    let mut commands = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match line {
            "```sh" => is_inside = true,
            "```" => is_inside = false,
            command if is_inside => commands.push(command.to_owned()),
            _ => (),
        }
    }
    ensure!(!commands.is_empty(), "section {section} has no commands");
    Ok(commands)
}

/// Runs the commands of a section as a user would, and returns their output.
fn follow(machine: &Machine, section: &str) -> Result<String> {
    let mut text = String::new();
    for command in commands(section)? {
        let output = machine.run(&["sh", "-c", &format!("cd /root; {command}")])?.ok();
        text += &output.with_context(|| format!("{command}\n{}", journal(machine)))?.all();
    }
    Ok(text)
}

fn journal(machine: &Machine) -> String {
    let journal = machine.run(&["journalctl", "-u", "caravan", "--no-pager", "-n", "60", "-o", "cat"]);
    journal.map(|output| output.all()).unwrap_or_default()
}

/// Packs the program, without its symbols, and returns the package.
fn package(directory: &Path) -> Result<Vec<u8>> {
    let stripped = directory.join("caravan");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(program()).status().context("strip")?;
    ensure!(status.success(), "strip ended with {status}");
    let mut pack = cargo();
    pack.args(["run", "--quiet", "--locked", "-p", "xtask", "--", "package", "--program"]).arg(&stripped);
    pack.arg("--out").arg(directory).env("SOURCE_DATE_EPOCH", "1700000000");
    let status = pack.status().context("run cargo")?;
    ensure!(status.success(), "cargo xtask package ended with {status}");
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            return Ok(std::fs::read(path)?);
        }
    }
    anyhow::bail!("there is no package")
}

/// Returns a value that systemd shows of the service.
fn show(machine: &Machine, property: &str) -> Result<String> {
    let shown = machine.run(&["systemctl", "show", "caravan", "--value", "-p", property])?.ok()?;
    Ok(shown.stdout.trim().to_owned())
}

#[test]
fn the_guide_leads_from_the_package_to_its_removal() -> Result<()> {
    more("install-guide", |bench| {
        let directory = tempfile::tempdir_in(caravan_testkit::vm::directory()?)?;
        let machine = bench.booted(MachineOptions { memory: 2048, ..MachineOptions::with_systemd("m") })?;
        let package = package(directory.path())?;
        machine.put("/root/target/package/caravan_0.1.0_amd64.deb", 0o644, &package)?;
        let text = follow(&machine, "Install")?;
        ensure!(text.contains("Caravan v"), "{text}");
        ensure!(machine.run(&["systemctl", "is-enabled", "caravan"])?.code != 0, "the service is enabled");
        ensure!(machine.run(&["systemctl", "is-active", "caravan"])?.code != 0, "the service is active");

        machine.put("/etc/caravan.d/tests.hcl", 0o640, MORE_CONFIG.as_bytes())?;
        let text = follow(&machine, "Start")?;
        ensure!(text.contains("ready"), "no node is ready: {text}");
        let socket = machine.sh("stat -c '%a %U:%G' /run/caravan-api/api.sock")?;
        assert_eq!(socket.trim(), "660 root:caravan");
        run_plugin(&machine)?;
        for (driver, name) in DRIVERS {
            machine.create_volume(name, "single-node-writer")?;
            machine.run_job(name, &writer(driver, name))?;
        }
        all_is_well(&machine)?;
        let pids = task_pids(&machine)?;

        // systemd reads its units again and starts itself again: it leaves the tree of control groups alone.
        machine.sh("systemctl daemon-reload; systemctl daemon-reexec; systemctl reload caravan")?;
        all_is_well(&machine)?;
        assert_eq!(task_pids(&machine)?, pids, "systemd ended tasks");

        let before = publications(&machine)?;
        follow(&machine, "Upgrade")?;
        machine.wait_agent()?;
        all_is_well(&machine)?;
        assert_eq!(task_pids(&machine)?, pids, "the upgrade ended tasks");
        assert_eq!(publications(&machine)?, before, "the upgrade published volumes");

        mistakes_are_not_retried(&machine)?;
        all_is_well(&machine)?;
        assert_eq!(task_pids(&machine)?, pids, "a mistake ended tasks");

        machine.reboot()?;
        machine.wait_agent()?;
        all_is_well(&machine)?;
        check_bare_directories(&machine)?;

        let text = follow(&machine, "Remove")?;
        ensure!(text.contains("/var/lib/caravan is kept"), "{text}");
        machine.sh("test ! -e /usr/bin/caravan; test -d /var/lib/volumes; test -d /var/lib/caravan")?;
        machine.sh("! getent group caravan")?;
        ensure!(machine.sh("ls /etc/caravan.d")?.contains("tests.hcl"), "a file of the operator is gone");
        Ok(())
    })
}

/// Checks a mistake in the configuration and a port of another agent: one sentence in the journal, exit code 78, and
/// no further start.
fn mistakes_are_not_retried(machine: &Machine) -> Result<()> {
    for (make, repair, sentence) in [
        ("echo 'bogus = 1' > /etc/caravan.d/zz.hcl", "rm /etc/caravan.d/zz.hcl", "bogus"),
        (
            "systemd-run --unit=taken --service-type=notify --property=NotifyAccess=all sh -c \
                'caravan agent -dev -data-dir=/run/other & sleep 100000' && sleep 1",
            "systemctl kill --signal=KILL taken; systemctl stop taken; systemctl reset-failed taken || true",
            "4646",
        ),
    ] {
        machine.sh("systemctl stop caravan")?;
        machine.sh(make)?;
        ensure!(machine.run(&["systemctl", "start", "caravan"])?.code != 0, "the agent started");
        eventually_within(TIMEOUT, "the service to fail", || {
            let state = show(machine, "ActiveState")?;
            ensure!(state == "failed", "the service is {state}: {}", journal(machine));
            Ok(())
        })?;
        let (status, restarts) = (show(machine, "ExecMainStatus")?, show(machine, "NRestarts")?);
        ensure!(
            status == "78" && restarts == "0",
            "status {status}, {restarts} restarts: {}",
            journal(machine)
        );
        let text = machine.sh("journalctl -u caravan -n 20 --no-pager")?;
        ensure!(text.contains(sentence), "no {sentence:?} in {text}");
        machine.sh(repair)?;
        machine.sh("systemctl reset-failed caravan; systemctl start caravan")?;
        machine.wait_agent()?;
    }
    Ok(())
}
