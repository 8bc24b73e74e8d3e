//! Tests the plugin as a real process: with the interface's own test suite, and beyond it.

mod groups;
mod killed;
mod life;
mod modified;
mod mounted;
mod private_root;
mod support;
mod whole;

use rustix::process::Signal;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use support::{Plugin, is_asleep, until};

const INSTALL: &str =
    "GOBIN=$PWD/.tools/bin go install github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.4.0";

/// Returns the suite's path from `CSI_SANITY`, the workspace's tools, or the search path.
fn csi_sanity() -> PathBuf {
    if let Some(path) = std::env::var_os("CSI_SANITY") {
        return PathBuf::from(path);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(workspace.join(".tools/bin"))
        .chain(std::env::split_paths(&search))
        .map(|directory| directory.join("csi-sanity"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("csi-sanity is not installed; in the workspace's root run\n  {INSTALL}"))
}

/// Runs the suite. `mutable` is a mutable parameter. `skips` lists the suite's reasons for skipped cases and their
/// numbers; any other skip is a failure, so that no case is skipped unnoticed.
fn sanity(flags: &[&str], suite_flags: &[&str], mutable: &str, skips: &[&[(&str, usize)]]) {
    let plugin = Plugin::start(flags);
    let report = plugin.path("report.json");
    let parameters = plugin.path("mutable.yaml");
    fs::write(&parameters, mutable).expect("the directory is our own");
    // While it connects, csi-sanity 5.4.0 reads the state of its connection twice in a row. If the connection becomes
    // ready in between, csi-sanity waits a minute and fails. So the plugin is stopped until csi-sanity waits for the
    // connection.
    plugin.signal(Signal::STOP);
    let suite = Command::new(csi_sanity())
        .arg(format!("--csi.endpoint={}", plugin.socket().display()))
        .arg(format!("--csi.mountdir={}", plugin.path("mount").display()))
        .arg(format!("--csi.stagingdir={}", plugin.path("staging").display()))
        .arg(format!("--csi.testvolumemutableparameters={}", parameters.display()))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .arg("--ginkgo.no-color")
        .args(suite_flags)
        .stdout(Stdio::piped())
        .spawn()
        .expect("csi-sanity starts");
    until("csi-sanity waits for its connection", || plugin.is_connected_to() && is_asleep(suite.id()));
    plugin.signal(Signal::CONT);
    let output = suite.wait_with_output().expect("csi-sanity ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "csi-sanity failed with {flags:?}:\n{text}\n{}", plugin.log());
    assert_eq!(plugin.mounts(), Vec::<String>::new(), "mounts are left");
    until("the loop devices are freed", || plugin.loop_devices().is_empty());

    let report: Value =
        serde_json::from_slice(&fs::read(report).expect("there is a report")).expect("it is JSON");
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for case in report[0]["SpecReports"].as_array().expect("there are cases") {
        if case["LeafNodeType"] != "It" {
            continue;
        }
        let state = case["State"].as_str().unwrap_or_default();
        *states.entry(state.to_owned()).or_default() += 1;
        if state == "skipped" {
            let reason = case["Failure"]["Message"].as_str().unwrap_or_default();
            *reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }
    let expected: BTreeMap<String, usize> =
        skips.concat().iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
    assert_eq!(reasons, expected, "cases that were left out, with {flags:?}");
    let left_out: usize = expected.values().sum();
    // The suite itself disables one case.
    let (passed, skipped) = (CASES - left_out, left_out);
    let expected = [("passed", passed), ("pending", 1), ("skipped", skipped)].into_iter();
    let expected = expected.filter(|(_, count)| *count > 0).map(|(state, count)| (state.to_owned(), count));
    assert_eq!(states, expected.collect());
}

/// Number of cases of the suite that can run.
const CASES: usize = 91;

/// Skipped cases without `--controller-publish`.
const NO_ATTACHING: [(&str, usize); 3] = [
    ("ControllerPublishVolume not supported", 7),
    ("ControllerUnpublishVolume not supported", 1),
    ("Controller Publish, UnpublishVolume not supported", 2),
];

/// Skipped cases without staging.
const NO_STAGING: [(&str, usize); 2] =
    [("NodeStageVolume not supported", 3), ("NodeUnstageVolume not supported", 2)];

/// A case that needs a node with a volume limit.
const NO_LIMIT: [(&str, usize); 1] = [("testnodevolumeattachlimit not enabled", 1)];

const EXT4: [&str; 2] = ["--csi.testvolumesize=67108864", "--csi.testvolumeexpandsize=134217728"];
const XFS: [&str; 2] = ["--csi.testvolumesize=335544320", "--csi.testvolumeexpandsize=402653184"];
const BLOCK: [&str; 3] = [
    "--csi.testvolumeaccesstype=block",
    "--csi.testvolumesize=67108864",
    "--csi.testvolumeexpandsize=134217728",
];

/// Mutable parameters: of volumes with a top directory, and of volumes with enforced size.
const MODE: &str = "mode: \"0750\"\n";
const SPACE: &str = "space: thick\n";

#[test]
fn sanity_of_directories() {
    sanity(&[], &[], MODE, &[&NO_ATTACHING]);
}

#[test]
fn sanity_with_controller_publish() {
    let flags = ["--controller-publish", "--max-volumes=3"];
    sanity(&flags, &["--csi.testnodevolumeattachlimit"], MODE, &[]);
}

#[test]
fn sanity_of_enforced_ext4() {
    sanity(&["--enforce-size", "--fs=ext4"], &EXT4, SPACE, &[&NO_ATTACHING]);
}

#[test]
fn sanity_of_enforced_xfs_with_controller_publish() {
    sanity(&["--controller-publish", "--enforce-size", "--fs=xfs"], &XFS, SPACE, &[&NO_LIMIT]);
}

#[test]
fn sanity_of_block_devices() {
    sanity(&["--controller-publish"], &BLOCK, SPACE, &[&NO_LIMIT]);
}

#[test]
fn sanity_of_block_devices_without_staging() {
    sanity(&["--no-stage"], &BLOCK, SPACE, &[&NO_ATTACHING, &NO_STAGING]);
}

#[test]
fn sanity_without_staging() {
    sanity(&["--no-stage", "--no-topology"], &[], MODE, &[&NO_ATTACHING, &NO_STAGING]);
}
