//! The bundled plugin passes the conformance run for CSI plugins.

use anyhow::{Context, Result, ensure};
use caravan_testkit::{
    conformance::{self, Outcome, Report, Settings},
    eventually, mounts_below, program, test_plugin, workspace,
};
use std::{
    fs::File,
    process::{Child, Command, Stdio},
};

/// A plugin, which ends with the test.
struct Plugin(Child);

impl Drop for Plugin {
    fn drop(&mut self) {
        // The plugin may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn settings(directory: &std::path::Path) -> Settings {
    Settings { size: 32 << 20, directory: directory.to_owned(), ..Settings::default() }
}

/// Returns all violations of the specification, for the error text.
fn failures(report: &Report) -> String {
    let failed = report.findings().iter().filter(|finding| finding.outcome == Outcome::Failed);
    failed.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_bundled_plugin_by_its_endpoint() -> Result<()> {
    for flags in [&[][..], &["--controller-publish", "--enforce-size"], &["--no-stage", "--no-topology"]] {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("csi.sock");
        let log = File::create(directory.path().join("log"))?;
        let plugin = Command::new(program())
            .args(["plugin", "hostpath", "--node-id=node-1"])
            .arg(format!("--endpoint={}", socket.display()))
            .arg(format!("--state-dir={}", directory.path().join("state").display()))
            .args(flags)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start the plugin")?;
        let plugin = Plugin(plugin);
        eventually("the plugin's socket", || Ok(socket.metadata().map(drop)?))?;
        let mut report = Report::new(|_| {});
        conformance::endpoint(&socket.display().to_string(), &settings(directory.path()), &mut report)?;
        drop(plugin);
        ensure!(report.is_good(), "with {flags:?}:\n{}", failures(&report));
        let done = |outcome| report.findings().iter().filter(|finding| finding.outcome == outcome).count();
        ensure!(
            done(Outcome::Passed) > 300,
            "only {} checks were made with {flags:?}",
            done(Outcome::Passed)
        );
        let reported = report
            .findings()
            .iter()
            .any(|finding| finding.words.contains("answers ABORTED when calls overlap"));
        ensure!(reported, "the plugin's habit is told");
        let left = mounts_below(&directory.path().display().to_string())?;
        ensure!(left.is_empty(), "mounts are left: {left:?}");
    }
    Ok(())
}

/// Checks that a violation of the specification is a failure, and that behaviour that the specification leaves open
/// is only reported.
#[test]
fn a_plugin_with_habits_and_a_fault() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("csi.sock");
    let log = File::create(directory.path().join("log"))?;
    let plugin = Command::new(test_plugin())
        .args(["--nodeid=node-1", "--stage-mounts", "--gone-is-not-found", "--strict-delete"])
        .arg(format!("--endpoint=unix://{}", socket.display()))
        .arg(format!("--statedir={}", directory.path().join("state").display()))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("start the plugin")?;
    let plugin = Plugin(plugin);
    eventually("the plugin's socket", || Ok(socket.metadata().map(drop)?))?;
    let mut report = Report::new(|_| {});
    conformance::endpoint(&socket.display().to_string(), &settings(directory.path()), &mut report)?;
    drop(plugin);
    let has = |outcome, check: &str, words: &str| {
        report.findings().iter().any(|finding| {
            finding.outcome == outcome && finding.check.ends_with(check) && finding.words.contains(words)
        })
    };
    ensure!(!report.is_good(), "a deletion that fails the second time breaks the specification");
    ensure!(
        has(Outcome::Failed, "DeleteVolume of what does not exist", "NOT_FOUND"),
        "{}",
        failures(&report)
    );
    ensure!(has(Outcome::Note, "NodeUnpublishVolume again", "NOT_FOUND"), "{:?}", report.findings());
    ensure!(has(Outcome::NotOffered, "controller EXPAND_VOLUME", ""), "{:?}", report.findings());
    ensure!(has(Outcome::Passed, "the volume reads what was written", ""), "{}", failures(&report));
    Ok(())
}

#[test]
fn the_bundled_plugin_as_a_job() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut report = Report::new(|finding| println!("{finding}"));
    let file = workspace("examples/hostpath-plugin.nomad.hcl");
    conformance::job(&file, None, &crate::DRIVERS, &settings(directory.path()), &mut report)?;
    ensure!(report.is_good(), "{}", failures(&report));
    Ok(())
}
