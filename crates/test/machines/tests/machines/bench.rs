//! The bench itself: channel, disks, switch, saved machines, artifacts.

use crate::more;
use anyhow::{Context, Result, ensure};
use caravan_testkit::eventually;
use caravan_testkit::vm::{Disk, EtherSwitch, MachineOptions, directory, story};
use std::sync::Arc;

#[test]
fn commands_files_and_disks() -> Result<()> {
    story("commands-files-and-disks", |bench| {
        let options =
            MachineOptions { disks: vec![Disk::ext4(64), Disk::blank(8)], ..MachineOptions::new("a") };
        let machine = bench.booted(options)?;
        let output = machine.run_with(&["sh", "-c", "cat; echo err >&2; exit 7"], b"in\n", TIMEOUT)?;
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (7, "in\n", "err\n"));
        assert_eq!(machine.run(&["sh", "-c", "kill -9 $$"])?.code, 128 + 9);
        let error = machine.run(&["/no/such/program"]).unwrap_err();
        ensure!(format!("{error:#}").contains("/no/such/program"), "{error:#}");

        // A file larger than all buffers on the way.
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        machine.put("/var/lib/new/file", 0o640, &content)?;
        ensure!(machine.get("/var/lib/new/file")? == content, "the file differs");
        assert_eq!(machine.sh("stat -c %a /var/lib/new/file")?, "640\n");
        assert_eq!(
            machine.sh("stat -f -c %T /var/lib; blockdev --getsize64 /dev/vdc")?,
            "ext2/ext3\n8388608\n"
        );
        // The machine has only control groups of version 2.
        assert_eq!(
            machine.sh("grep -c cgroup2 /proc/mounts; grep -c ' cgroup ' /proc/mounts || true")?,
            "1\n0\n"
        );

        // A background process does not hold up the command that starts it.
        machine.sh("sleep 1000 & echo $! > /run/sleeper")?;
        let version = machine.caravan(&["version"])?.ok()?.stdout;
        ensure!(version.contains("Caravan"), "{version:?}");

        Ok(())
    })
}

/// Checks that files survive a reset, which is also a part of the story `restarts`.
#[test]
fn files_survive_a_reset() -> Result<()> {
    more("files-survive-a-reset", |bench| {
        let machine = bench.booted(MachineOptions::new("a"))?;
        machine.put("/var/lib/new/file", 0o640, b"content")?;
        machine.sh("echo x > /run/file; sync")?;
        let before = machine.boot_id();
        machine.reset()?;
        ensure!(machine.boot_id() != before, "the boot id is the same");
        ensure!(machine.get("/var/lib/new/file")? == b"content", "the file differs after the reset");
        ensure!(machine.get("/run/file").is_err(), "/run survived");
        Ok(())
    })
}

#[test]
fn cables_of_a_switch() -> Result<()> {
    more("cables-of-a-switch", |bench| {
        let switch = Arc::new(EtherSwitch::new()?);
        let options =
            |name| MachineOptions { cables: vec![Arc::clone(&switch)], ..MachineOptions::new(name) };
        let (a, b) = (bench.booted(options("a"))?, bench.booted(options("b"))?);
        a.sh("ip addr add 10.9.0.1/24 dev eth0; ip link set eth0 up")?;
        b.sh("ip addr add 10.9.0.2/24 dev eth0; ip link set eth0 up")?;
        let ping = || a.run(&["ping", "-c", "1", "-W", "2", "10.9.0.2"]);
        eventually("a ping", || ping()?.ok())?;
        b.set_link(0, false)?;
        ping()?.failed()?;
        b.set_link(0, true)?;
        eventually("a ping after the cable was plugged in", || ping()?.ok())?;
        Ok(())
    })
}

#[test]
fn a_failed_story_leaves_its_artifacts() -> Result<()> {
    let result = story("fails", |bench| {
        let machine = bench.booted(MachineOptions::new("m"))?;
        machine.sh("echo the-log > /var/log/of-the-story")?;
        machine.sh("sh -c 'kill -SEGV $$' || true; ls /var/crash/core.*")?;
        machine.sh("exit 3").map(drop)
    });
    let error = format!("{:#}", result.err().context("the story passed")?);
    ensure!(error.contains("story fails") && error.contains("exit code 3"), "{error}");
    let at = directory()?.join("failed/fails");
    let report = std::process::Command::new("tar").arg("-tzf").arg(at.join("m/report.tar.gz")).output()?;
    let report = String::from_utf8(report.stdout)?;
    for name in ["var/log/of-the-story", "var/crash/core.", "run/report/dmesg"] {
        ensure!(report.contains(name), "no {name} in {report}");
    }
    ensure!(at.join("m/console").is_file(), "no console");
    Ok(std::process::Command::new("rm").arg("-r").arg(at).status().map(drop)?)
}

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
