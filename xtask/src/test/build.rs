//! The build of all programs and tests, as cargo reports it.

use super::job::Job;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A message of cargo. Other kinds than `compiler-artifact` lack these fields.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    package: String,
    target: String,
    folder: PathBuf,
    executable: PathBuf,
}

/// Everything that cargo built.
#[derive(Debug, Default)]
pub(super) struct Built {
    tests: Vec<TestProgram>,
    /// Programs and examples by name.
    programs: BTreeMap<String, PathBuf>,
}

/// Builds all targets of the workspace in one run of cargo, so that all of them share the features of dependencies.
pub(super) fn all() -> Result<Built> {
    let mut cargo = caravan_testkit::cargo();
    cargo.args(["build", "--workspace", "--all-targets", "--locked"]);
    cargo.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("run cargo")?;
    let output = child.stdout.take().context("the output of cargo")?;
    let mut built = Built::default();
    for line in BufReader::new(output).lines() {
        built.add(&line?)?;
    }
    let status = child.wait().context("wait for cargo")?;
    ensure!(status.success(), "the build failed");
    if built.tests.is_empty() {
        bail!("cargo reported no test programs");
    }
    Ok(built)
}

impl Built {
    /// Adds the executable of a message, if it has one.
    fn add(&mut self, line: &str) -> Result<()> {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("a message of cargo: {line}"))?;
        if message.reason != "compiler-artifact" {
            return Ok(());
        }
        let Message {
            manifest_path: Some(manifest),
            target: Some(target),
            profile: Some(profile),
            executable: Some(executable),
            ..
        } = message
        else {
            return Ok(());
        };
        if !profile.test {
            self.programs.insert(target.name, executable);
            return Ok(());
        }
        let folder = manifest.parent().context("a manifest is in a folder")?.to_owned();
        let package = package(&folder);
        // The tests of a library and of a program with one name are two programs.
        let kind = target.kind.first().map_or("", String::as_str);
        let target = match kind {
            "test" => target.name,
            "lib" | "proc-macro" => "lib".to_owned(),
            kind => format!("{kind} {}", target.name),
        };
        self.tests.push(TestProgram { package, target, folder, executable });
        Ok(())
    }

    /// Returns a job for each test program. The tests receive the paths of the built programs, which they would
    /// otherwise build themselves.
    pub(super) fn jobs(self, filters: &[String]) -> Vec<Job> {
        let mut variables = Vec::new();
        let known = [
            ("CARAVAN_BIN", "caravan"),
            ("CARAVAN_TESTPLUGIN_BIN", "caravan-testplugin"),
            ("CARAVAN_GUEST_BIN", "caravan-guest"),
        ];
        for (variable, program) in known {
            let path = self.programs.get(program).map(|path| (variable, path.clone()));
            variables.extend(path.filter(|_| std::env::var_os(variable).is_none()));
        }
        let examples = self.programs.get("exampledriver").and_then(|path| path.parent());
        variables.extend(examples.map(|folder| ("CARAVAN_EXAMPLES_DIR", folder.to_owned())));
        let mut tests = self.tests;
        tests.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
        let job = |test: TestProgram| Job::tests(&test.package, &test.target, &test.executable, &test.folder);
        tests.into_iter().map(job).map(|job| job.with(&variables, filters)).collect()
    }
}

/// Returns the name of a package by its folder.
fn package(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.as_str() {
        "caravan" | "xtask" => name,
        _ => format!("caravan-{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_of_cargo() {
        let mut built = Built::default();
        let mut add = |manifest: &str, kind: &str, name: &str, test: bool, executable: Option<&str>| {
            let message = json!({
                "reason": "compiler-artifact", "package_id": "p", "manifest_path": manifest,
                "target": {"name": name, "kind": [kind]}, "profile": {"test": test}, "executable": executable,
            });
            built.add(&message.to_string()).unwrap();
        };
        add("/r/crates/core/lang/Cargo.toml", "lib", "caravan_lang", false, None);
        add("/r/crates/core/lang/Cargo.toml", "lib", "caravan_lang", true, Some("/t/deps/caravan_lang-1"));
        add("/r/crates/edge/caravan/Cargo.toml", "bin", "caravan", false, Some("/t/caravan"));
        add("/r/crates/edge/caravan/Cargo.toml", "bin", "caravan", true, Some("/t/deps/caravan-1"));
        add("/r/crates/test/e2e/Cargo.toml", "test", "e2e", true, Some("/t/deps/e2e-1"));
        built.add(r#"{"reason":"build-finished","success":true}"#).unwrap();
        assert_eq!(built.programs.get("caravan"), Some(&PathBuf::from("/t/caravan")));
        let names: Vec<String> = built.jobs(&[]).iter().map(Job::name).collect();
        assert_eq!(names, ["caravan/bin caravan", "caravan-e2e/e2e", "caravan-lang/lib"]);
    }
}
