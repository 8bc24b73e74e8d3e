//! Control groups of version 2: the tests of the crates that use them run in a machine that has no version 1.

use anyhow::{Context, Result, ensure};
use caravan_testkit::vm::{Bench, Machine, MachineOptions, System, story};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The timeout of the tests of a crate by emulation on a busy host.
const TESTS_TIMEOUT: Duration = Duration::from_secs(1200);

/// A program that cargo built.
struct Built {
    /// The name of the crate's target: `drivers` of `tests/drivers.rs`, the crate's own name of its unit tests.
    target: String,
    path: PathBuf,
}

/// Builds all test programs and the programs that they start. The build is that of `make test`, because a package
/// alone would be built again with other features of its dependencies.
fn test_programs() -> Result<Vec<Built>> {
    let output = caravan_testkit::cargo()
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format=json"])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cargo cannot build the tests");
    let mut programs = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if let (Some(path), Some(target)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        {
            programs.push(Built { target: target.to_owned(), path: path.into() });
        }
    }
    Ok(programs)
}

fn find<'a>(programs: &'a [Built], target: &str, is_test: bool) -> Result<&'a PathBuf> {
    let fits = |built: &&Built| {
        let is_in_deps = built.path.parent().is_some_and(|dir| dir.ends_with("deps"));
        built.target == target && is_in_deps == is_test
    };
    programs.iter().find(fits).map(|built| &built.path).with_context(|| format!("no program {target}"))
}

/// Runs a test program in the machine and returns the number of its tests that passed.
fn run_tests(machine: &Machine, program: &Path, arguments: &[&str]) -> Result<usize> {
    let name = program.file_name().context("a program without a name")?.to_string_lossy().into_owned();
    let command = [&[name.as_str(), "--test-threads=2"], arguments].concat();
    let output = machine.run_with(&command, b"", TESTS_TIMEOUT)?.ok()?;
    let passed = output.stdout.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok"));
    Ok(passed.count())
}

/// Returns a machine with test programs only: the agent need not be built.
fn machine(programs: Vec<PathBuf>) -> MachineOptions {
    MachineOptions {
        name: "groups".to_owned(),
        system: System::Busybox,
        memory: 2048,
        cpus: 2,
        disks: Vec::new(),
        cables: Vec::new(),
        programs,
        kernel_arguments: String::new(),
    }
}

#[test]
fn groups_of_version_two_hold_limit_and_count() -> Result<()> {
    story("groups-of-version-two", |bench| {
        let built = test_programs()?;
        let sys = find(&built, "caravan_sys", true)?;
        let machine = bench.booted(machine(vec![sys.clone()]))?;
        let passed = run_tests(&machine, sys, &["cgroup::"])?;
        ensure!(passed >= 36, "only {passed} tests");
        // The tests of version 2 return early where version 2 is not the only version.
        let left = machine.sh("ls -d /sys/fs/cgroup/caravan-test-* 2>/dev/null || true")?;
        ensure!(left.is_empty(), "groups are left: {left}");
        Ok(())
    })
}

/// Returns a machine with the tests of drivers, and the path of the test program.
fn machine_for_drivers(bench: &Bench) -> Result<(Machine, PathBuf)> {
    let built = test_programs()?;
    let drivers = find(&built, "drivers", true)?;
    let shim = find(&built, "caravan-driver-shim", false)?;
    // The tests of isolation call the kernel by perl, and need a program that is no link to busybox.
    let tools = ["/usr/bin/perl", "/usr/bin/id"].map(PathBuf::from);
    let machine = bench.booted(machine([&[drivers.clone(), shim.clone()][..], &tools].concat()))?;
    link_shim(&machine, shim)?;
    Ok((machine, drivers.clone()))
}

/// Links a shim to its path on the host, which its test program contains.
fn link_shim(machine: &Machine, shim: &Path) -> Result<()> {
    let (path, name) = (shim.display(), shim.file_name().context("no name")?.display());
    let dir = shim.parent().context("no directory")?.display();
    machine.sh(&format!("mkdir -p {dir} && ln -sf /usr/bin/{name} {path}")).map(drop)
}

/// Runs the same stories of drivers as on version 1: conformance, isolation, resources.
#[test]
fn drivers_conform_on_version_two() -> Result<()> {
    story("drivers-on-version-two", |bench| {
        let (machine, drivers) = machine_for_drivers(bench)?;
        // The machine contains neither a Java virtual machine nor an emulator.
        let passed = run_tests(&machine, &drivers, &["--skip=java::", "--skip=qemu::"])?;
        ensure!(passed >= 30, "only {passed} tests");
        let left = machine.sh("find /sys/fs/cgroup/caravan-test -mindepth 1 -type d 2>/dev/null || true")?;
        ensure!(left.is_empty(), "groups are left: {left}");
        Ok(())
    })
}

/// Runs the supervisor's tests, with output, leases and namespaces.
#[test]
fn shims_work_on_version_two() -> Result<()> {
    crate::more("shims-on-version-two", |bench| {
        let built = test_programs()?;
        let tests = find(&built, "shim", true)?;
        let shim = find(&built, "caravan-shim", false)?;
        let machine = bench.booted(machine(vec![tests.clone(), shim.clone()]))?;
        link_shim(&machine, shim)?;
        let passed = run_tests(&machine, tests, &[])?;
        ensure!(passed >= 20, "only {passed} tests");
        Ok(())
    })
}

/// The script that replaces version 2 by version 1, with a separate mount for each controller.
const TO_VERSION_ONE: &str = "umount /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; \
    for c in cpu cpuacct cpuset memory devices freezer pids; do \
      mkdir /sys/fs/cgroup/$c && mount -t cgroup -o $c none /sys/fs/cgroup/$c; \
    done";

/// Prints the times of a line such as `fifty tasks on v2: start 900 ms, end 600 ms` for `cargo xtask bench machine`.
fn print_figures(line: &str) -> Result<()> {
    let (title, times) = line.split_once(": ").context("no colon")?;
    for time in times.split(", ") {
        let [what, value, unit] = time.split(' ').collect::<Vec<_>>()[..] else { continue };
        let (case, value) = (format!("{title}, {what}"), value.parse::<f64>()?);
        println!("{}", serde_json::json!({ "bench": "machine", "case": case, "value": value, "unit": unit }));
    }
    Ok(())
}

/// Prints the times of 50 tasks on both versions, and runs the tests of groups on a version 1 of the same kernel.
#[test]
fn fifty_tasks_on_both_versions() -> Result<()> {
    crate::more("fifty-tasks", |bench| {
        let machine = machine_for_drivers(bench)?;
        let (machine, drivers) = (&machine.0, &machine.1);
        let run = |filter: &str| -> Result<String> {
            let name =
                drivers.file_name().context("a program without a name")?.to_string_lossy().into_owned();
            let command = [name.as_str(), filter, "--nocapture", "--test-threads=1"];
            Ok(machine.run_with(&command, b"", TESTS_TIMEOUT)?.ok()?.stdout)
        };
        let figures =
            |text: &str| text.lines().filter(|line| line.contains("fifty tasks on")).collect::<String>();
        let two = run("groups::fifty")?;
        machine.sh("rmdir /sys/fs/cgroup/caravan-test")?;
        machine.sh(TO_VERSION_ONE)?;
        let one = run("groups::")?;
        let (one, two) = (figures(&one), figures(&two));
        println!("{one}\n{two}");
        for text in [&one, &two] {
            print_figures(text)?;
        }
        ensure!(one.contains("on v1") && two.contains("on v2"), "{one} {two}");
        Ok(())
    })
}
