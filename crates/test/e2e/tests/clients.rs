//! Published clients in other languages, each through a whole session. They are downloaded from their
//! registries into the target directory once.

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The Python client and its version.
const PYTHON_CLIENT: &str = "python-nomad==2.1.0";

/// Returns the directory in which clients are kept between runs.
fn kept(name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| caravan_testkit::workspace("target"), PathBuf::from);
    let dir = target.join("clients").join(name);
    fs::create_dir_all(&dir)?;
    Ok(fs::canonicalize(dir)?)
}

fn sources(name: &str) -> PathBuf {
    caravan_testkit::workspace("crates/test/e2e/clients").join(name)
}

/// Runs a tool; the error for a missing tool explains how to install it.
fn run(command: &mut Command, how_to_get_it: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{name} is not installed: {how_to_get_it}")
        }
        Err(error) => return Err(error).with_context(|| format!("run {name}")),
    };
    ensure!(
        output.status.success(),
        "{command:?} ended with {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

fn agent() -> Result<Agent> {
    Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })
}

fn ensure_over(output: &Output, agent: &Agent) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.trim() == "the session is over", "{text}\n--- log of the agent\n{}", agent.log_tail());
    Ok(())
}

/// Creates a Python environment with the client.
fn python(dir: &Path) -> Result<PathBuf> {
    let python = dir.join("bin/python");
    let done = dir.join(PYTHON_CLIENT);
    if done.exists() {
        return Ok(python);
    }
    let get = "apt-get install python3 python3-venv";
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir), get)?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", PYTHON_CLIENT]), get)?;
    File::create(done)?;
    Ok(python)
}

#[test]
fn the_published_client_for_python_goes_through_a_session() -> Result<()> {
    let python = python(&kept("python")?)?;
    let agent = agent()?;
    let port = agent.address().rsplit(':').next().context("no port")?.to_owned();
    let mut command = Command::new(python);
    command.arg(sources("python").join("session.py")).arg(port).env_remove("NOMAD_ADDR");
    let output =
        run(&mut command, "").with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))?;
    ensure_over(&output, &agent)
}

/// Returns the search path with the directories in which distributions install Go.
fn go_path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/local/go/bin:/usr/lib/go/bin"
}

/// Builds a Go program in the module of the session.
fn go_build(arguments: &[&str], program: &Path, package: &str) -> Result<()> {
    let path = go_path();
    let go = path.split(':').map(|dir| Path::new(dir).join("go")).find(|go| go.is_file());
    let mut build = Command::new(go.unwrap_or_else(|| PathBuf::from("go")));
    build.args(arguments).arg("-o").arg(program).arg(package).current_dir(sources("go")).env("PATH", path);
    run(&mut build, "apt-get install golang, or https://go.dev/dl").map(drop)
}

/// Tests of the published Go client that fail here for a known reason.
const NOT_HELD: [(&str, &str); 5] = [
    ("TestRegionsList", "there is one region"),
    ("TestAgentTrace", "a trace is of a Go program"),
    ("TestAgentProfile", "a heap profile is of a Go program"),
    ("TestNodes_Info", "it fails where a node registers within the second in which the test begins"),
    (
        "TestAcquireLock_MultipleInstances",
        "it counts events of a lock in memory within 15 ms, without a server",
    ),
];

/// Returns the names of the failed top-level tests; lines of subtests are indented.
fn failed_tests(output: &str) -> Vec<String> {
    let name = |line: &str| line.strip_prefix("--- FAIL: ")?.split(' ').next().map(str::to_owned);
    output.lines().filter_map(name).collect()
}

#[test]
fn the_tests_of_the_published_client_for_go_pass() -> Result<()> {
    let dir = kept("go-tests")?;
    // Without this file name the tests mistake their own program for the agent.
    let (program, bin) = (dir.join("api.test"), dir.join("bin"));
    go_build(&["test", "-c"], &program, "github.com/hashicorp/nomad/api")?;
    // The tests start agents by the name of Nomad's program.
    fs::create_dir_all(&bin)?;
    let link = bin.join("nomad");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(fs::canonicalize(caravan_testkit::program())?, &link)?;
    let suite = |only: &str| -> Result<String> {
        let names: Vec<&str> = NOT_HELD.iter().map(|(name, _)| *name).collect();
        let mut command = Command::new(&program);
        command
            .arg(format!("-test.skip=^({})$", names.join("|")))
            .args(["-test.parallel=2", "-test.timeout=20m"]);
        command.arg(format!("-test.run={only}")).current_dir(&dir).stdin(Stdio::null());
        command.env("PATH", format!("{}:{}", bin.display(), go_path()));
        for name in ["NOMAD_ADDR", "NOMAD_TOKEN", "NOMAD_NAMESPACE", "NOMAD_REGION"] {
            command.env_remove(name);
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success() || !failed_tests(&text).is_empty(), "{text}");
        Ok(text)
    };
    let failed = failed_tests(&suite(".")?);
    if failed.is_empty() {
        return Ok(());
    }
    // Some tests wait only a few seconds: on a busy machine they are retried.
    let again = suite(&format!("^({})$", failed.join("|")))?;
    ensure!(failed_tests(&again).is_empty(), "{again}");
    Ok(())
}

#[test]
fn the_published_client_for_go_goes_through_a_session() -> Result<()> {
    let program = kept("go")?.join("session");
    go_build(&["build"], &program, ".")?;
    let agent = agent()?;
    let mut command = Command::new(program);
    command.arg(format!("http://{}", agent.address())).env_remove("NOMAD_ADDR");
    let output =
        run(&mut command, "").with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))?;
    ensure_over(&output, &agent)
}
