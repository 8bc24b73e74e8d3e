//! Runs scripts, a shell or the whole-system tests in a virtual machine. `cargo xtask vm` builds and runs it.

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::vm::{Disk, Machine, MachineOptions};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "usage: caravan-vm [--memory MIB] [--cpus N] [--with PROGRAM]... run SCRIPT | shell | e2e [FILTER]...";
/// The timeout of a script or of the whole-system tests, for which a person waits.
const TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);
/// The size of `/var/lib` and of the tests' `/tmp` in MiB, of which only the used part takes space.
const DISK: u64 = 8192;

fn main() -> Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options = MachineOptions { disks: vec![Disk::ext4(DISK)], ..MachineOptions::new("machine") };
    while arguments.first().is_some_and(|first| first.starts_with("--")) {
        ensure!(arguments.len() > 1, "{} needs a value\n{USAGE}", arguments[0]);
        let (flag, value) = (arguments.remove(0), arguments.remove(0));
        let number = || value.parse::<u32>().with_context(|| format!("{flag} {value}: not a number"));
        match flag.as_str() {
            "--memory" => options.memory = number()?,
            "--cpus" => options.cpus = number()?,
            "--with" => options.programs.push(PathBuf::from(value)),
            _ => bail!("unknown flag {flag}\n{USAGE}"),
        }
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", script] => run(options, script),
        ["shell"] => shell(options),
        ["e2e", filters @ ..] => e2e(options, filters),
        _ => bail!("{USAGE}"),
    }
}

/// Runs a script of the host in a machine. Returns its exit code.
fn run(options: MachineOptions, script: &str) -> Result<ExitCode> {
    let text = std::fs::read(script).with_context(|| format!("read {script}"))?;
    let machine = Machine::start(options)?;
    machine.put("/root/script", 0o755, &text)?;
    execute(&machine, &["sh", "/root/script"])
}

/// Runs each line of the standard input as a script, all in the same machine.
fn shell(options: MachineOptions) -> Result<ExitCode> {
    let machine = Machine::start(options)?;
    eprintln!("each line is a script of its own; the end of the input ends the machine");
    for line in std::io::stdin().lock().lines() {
        execute(&machine, &["sh", "-c", &line?])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn execute(machine: &Machine, command: &[&str]) -> Result<ExitCode> {
    let output = machine.run_with(command, b"", TIMEOUT)?;
    std::io::stdout().write_all(output.stdout.as_bytes())?;
    std::io::stderr().write_all(output.stderr.as_bytes())?;
    Ok(u8::try_from(output.code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs the whole-system tests that match the filters, one after the other.
fn e2e(mut options: MachineOptions, filters: &[&str]) -> Result<ExitCode> {
    let tests = build_tests()?;
    options.programs.extend([tests.clone(), caravan_testkit::test_plugin(), caravan_testkit::fault_plugin()]);
    let machine = Machine::start(options)?;
    let name = tests.file_name().context("a test without a name")?.to_string_lossy().into_owned();
    // Agents of tests work below /tmp.
    let prepare = "mkdir -p /var/lib/tmp; chmod 1777 /var/lib/tmp; mount --bind /var/lib/tmp /tmp; ulimit -n 65536; \
        export CARAVAN_BIN=/usr/bin/caravan CARAVAN_TESTPLUGIN_BIN=/usr/bin/caravan-testplugin; exec \"$@\"";
    let mut command = vec!["sh", "-c", prepare, "e2e", name.as_str(), "--test-threads=1"];
    command.extend(filters);
    execute(&machine, &command)
}

/// Builds the whole-system tests with cargo; returns the path of their program.
fn build_tests() -> Result<PathBuf> {
    let mut command = caravan_testkit::cargo();
    command.args(["test", "--package", "caravan-e2e", "--test", "e2e", "--no-run", "--message-format=short"]);
    let output = command.output().context("run cargo test")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "the whole-system tests cannot be built:\n{text}");
    // The last line of cargo: Executable tests/main.rs (target/debug/deps/e2e-0123456789abcdef)
    let path = text
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_suffix(')')?.rsplit_once('(').map(|(_, path)| path));
    let path = caravan_testkit::workspace("").join(path.context("cargo names no program")?);
    Ok(path)
}
