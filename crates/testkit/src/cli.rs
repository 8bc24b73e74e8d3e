//! The program itself, run as a user runs it.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// What a command printed and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit code, -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The output, if the command succeeded.
    ///
    /// # Errors
    /// If it did not, with everything that it printed.
    pub fn ok(self) -> Result<Self> {
        if self.code != 0 {
            bail!("exit code {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr);
        }
        Ok(self)
    }
    /// The output, if the command failed.
    ///
    /// # Errors
    /// If it succeeded.
    pub fn failed(self) -> Result<Self> {
        if self.code == 0 {
            bail!("succeeded unexpectedly\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        }
        Ok(self)
    }
    /// Both streams.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static TEST_PLUGIN: OnceLock<PathBuf> = OnceLock::new();

/// Uses a program that is there already; the first call counts.
pub fn use_program(path: &std::path::Path) {
    // A second call, or one after the first use, changes nothing.
    let _ = PROGRAM.set(path.to_owned());
}

/// Uses plugins for tests that are there already, named by the first of them; the first call counts.
pub fn use_test_plugin(path: &std::path::Path) {
    // As above.
    let _ = TEST_PLUGIN.set(path.to_owned());
}

/// Path of the program under test: `$CARAVAN_BIN`, or built once by cargo in the profile of the tests.
///
/// # Panics
/// If it cannot be built: no test can run then.
pub fn program() -> PathBuf {
    PROGRAM.get_or_init(|| build().expect("the program under test can be built")).clone()
}

fn build() -> Result<PathBuf> {
    match std::env::var_os("CARAVAN_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => cargo_build("caravan"),
    }
}

/// Path of the plugin that does everything in other ways than the bundled one (crate `testplugin`):
/// `$CARAVAN_TESTPLUGIN_BIN`, or built once by cargo in the profile of the tests.
///
/// # Panics
/// If it cannot be built: no test of it can run then.
pub fn test_plugin() -> PathBuf {
    let build = || match std::env::var_os("CARAVAN_TESTPLUGIN_BIN") {
        Some(path) => PathBuf::from(path),
        None => cargo_build("caravan-testplugin").expect("the plugin for tests can be built"),
    };
    TEST_PLUGIN.get_or_init(build).clone()
}

/// Path of the plugin that fails on command (crate `testplugin`), which is also the writer that stamps
/// volumes; built with the other.
///
/// # Panics
/// If it cannot be built: no test of it can run then.
pub fn fault_plugin() -> PathBuf {
    test_plugin().with_file_name("caravan-faultplugin")
}

/// Builds a package's program of the same name.
fn cargo_build(package: &str) -> Result<PathBuf> {
    // The test runs from <target>/<profile>/deps.
    let test = std::env::current_exe()?;
    let profile =
        test.parent().and_then(|deps| deps.parent()).context("the test is not in a target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", package]);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.current_dir(crate::workspace("")).status().context("run cargo build")?;
    if !status.success() {
        bail!("cargo build --package {package} failed");
    }
    Ok(profile.join(package))
}
