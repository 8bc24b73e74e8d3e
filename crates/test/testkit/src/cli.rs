//! Runs of the program as by a user.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The output and exit code of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code, -1 if a signal ended the command.
    pub code: i32,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl Output {
    /// Returns the output if the command succeeded.
    ///
    /// # Errors
    /// Fails with the whole output if the command failed.
    pub fn ok(self) -> Result<Self> {
        if self.code != 0 {
            bail!("exit code {}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr);
        }
        Ok(self)
    }
    /// Returns the output if the command failed.
    ///
    /// # Errors
    /// Fails if the command succeeded.
    pub fn failed(self) -> Result<Self> {
        if self.code == 0 {
            bail!("succeeded unexpectedly\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        }
        Ok(self)
    }
    /// Returns both streams.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
static TEST_PLUGIN: OnceLock<PathBuf> = OnceLock::new();
static GUEST: OnceLock<PathBuf> = OnceLock::new();
static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
static NEXT: OnceLock<PathBuf> = OnceLock::new();

/// Sets an existing program to test; only the first call has an effect.
pub fn use_program(path: &std::path::Path) {
    // A second call, or a call after the first use, has no effect.
    let _ = PROGRAM.set(path.to_owned());
}

/// Sets existing test plugins by the path of the first one; only the first call has an effect.
pub fn use_test_plugin(path: &std::path::Path) {
    // A second call, or a call after the first use, has no effect.
    let _ = TEST_PLUGIN.set(path.to_owned());
}

/// Returns the path of the program under test: `$CARAVAN_BIN`, or built once by cargo in the profile of the tests.
///
/// # Panics
/// Panics if the program cannot be built: then no test can run.
pub fn program() -> PathBuf {
    PROGRAM.get_or_init(|| build().expect("the program under test can be built")).clone()
}

fn build() -> Result<PathBuf> {
    match std::env::var_os("CARAVAN_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => cargo_build("caravan"),
    }
}

/// Returns the path of the plugin that differs from the bundled one in all respects (crate `testplugin`). The path
/// is `$CARAVAN_TESTPLUGIN_BIN`, or the plugin is built once by cargo in the profile of the tests.
///
/// # Panics
/// Panics if the plugin cannot be built: then none of its tests can run.
pub fn test_plugin() -> PathBuf {
    let build = || match std::env::var_os("CARAVAN_TESTPLUGIN_BIN") {
        Some(path) => PathBuf::from(path),
        None => cargo_build("caravan-testplugin").expect("the plugin for tests can be built"),
    };
    TEST_PLUGIN.get_or_init(build).clone()
}

/// Returns the path of the plugin that fails on command (crate `testplugin`), which is also the writer that stamps
/// volumes. It is built together with the other plugin.
///
/// # Panics
/// Panics if the plugin cannot be built: then none of its tests can run.
pub fn fault_plugin() -> PathBuf {
    test_plugin().with_file_name("caravan-faultplugin")
}

/// Returns the path of an example of crate `plugin-sdk` (`exampledriver`, `exampledevice`): in
/// `$CARAVAN_EXAMPLES_DIR`, or built once by cargo in the profile of the tests.
///
/// # Panics
/// Panics if the examples cannot be built: then none of their tests can run.
pub fn example_plugin(name: &str) -> PathBuf {
    let build = || match std::env::var_os("CARAVAN_EXAMPLES_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => cargo_build_targets("caravan-plugin-sdk", &["--examples"])
            .expect("the examples of plugins can be built")
            .join("examples"),
    };
    EXAMPLES.get_or_init(build).join(name)
}

/// Returns the path of the program that represents the next version (`next-version`, an example of crate `agent`). It
/// is in `$CARAVAN_EXAMPLES_DIR`, or built once by cargo in the profile of the tests, and runs agents only.
///
/// # Panics
/// Panics if the program cannot be built: then no upgrade can be tested.
pub fn next_program() -> PathBuf {
    let build = || match std::env::var_os("CARAVAN_EXAMPLES_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => cargo_build_targets("caravan-agent", &["--example", "next-version"])
            .expect("the program of the next version can be built")
            .join("examples"),
    };
    NEXT.get_or_init(build).join("next-version")
}

/// Sets an existing helper for virtual machines; only the first call has an effect.
pub fn use_guest(path: &std::path::Path) {
    // A second call, or a call after the first use, has no effect.
    let _ = GUEST.set(path.to_owned());
}

/// Returns the path of the helper in virtual machines (`src/bin/caravan-guest.rs`): `$CARAVAN_GUEST_BIN`, or built
/// once by cargo in the profile of the tests.
///
/// # Panics
/// Panics if the helper cannot be built: then no machine can be used.
pub fn guest() -> PathBuf {
    let build = || match std::env::var_os("CARAVAN_GUEST_BIN") {
        Some(path) => PathBuf::from(path),
        None => cargo_build_program("caravan-testkit", "caravan-guest")
            .expect("the helper for machines can be built"),
    };
    GUEST.get_or_init(build).clone()
}

/// Returns a command that runs cargo, at the root of the workspace. The variables that cargo sets for a
/// test are removed: some packages name them as inputs of their build. They would be built again, with all
/// packages that depend on them.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::workspace(""));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// Builds the program of a package, which has the same name.
fn cargo_build(package: &str) -> Result<PathBuf> {
    cargo_build_program(package, package)
}

/// Builds a package; returns the path of one of its programs.
fn cargo_build_program(package: &str, program: &str) -> Result<PathBuf> {
    Ok(cargo_build_targets(package, &[])?.join(program))
}

/// Builds some targets of a package; returns the folder of the profile.
fn cargo_build_targets(package: &str, targets: &[&str]) -> Result<PathBuf> {
    // A test runs from <target>/<profile>/deps, a tool from <target>/<profile>.
    let test = std::env::current_exe()?;
    let mut profile = test.parent().context("the test is not in a target folder")?;
    if profile.ends_with("deps") {
        profile = profile.parent().context("the test is not in a target folder")?;
    }
    let mut command = cargo();
    command.args(["build", "--quiet", "--package", package]).args(targets);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.status().context("run cargo build")?;
    if !status.success() {
        bail!("cargo build --package {package} failed");
    }
    Ok(profile.to_owned())
}
