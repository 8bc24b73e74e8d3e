//! The plugin as a real process: the interface's own test suite, and what that suite does not try.

mod life;
mod private_root;
mod support;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use support::{Plugin, is_asleep, until};

const INSTALL: &str =
    "GOBIN=$PWD/.tools/bin go install github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.4.0";

/// From `CSI_SANITY`, the workspace's tools, or the search path.
fn csi_sanity() -> PathBuf {
    if let Some(path) = std::env::var_os("CSI_SANITY") {
        return PathBuf::from(path);
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(workspace.join(".tools/bin"))
        .chain(std::env::split_paths(&search))
        .map(|directory| directory.join("csi-sanity"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("csi-sanity is not installed; in the workspace's root run\n  {INSTALL}"))
}

fn sanity(flags: &[&str], suite_flags: &[&str]) {
    let plugin = Plugin::start(flags);
    // While it connects, csi-sanity 5.4.0 looks at the state of its connection twice in a row, and when
    // the connection gets ready between the two looks, waits a minute and fails. So the connection gets
    // ready only once csi-sanity waits for it.
    plugin.signal(Signal::STOP);
    let suite = Command::new(csi_sanity())
        .arg(format!("--csi.endpoint={}", plugin.socket().display()))
        .arg(format!("--csi.mountdir={}", plugin.path("mount").display()))
        .arg(format!("--csi.stagingdir={}", plugin.path("staging").display()))
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
    assert!(text.contains("0 Failed"), "{text}");
    assert_eq!(plugin.mounts(), Vec::<String>::new(), "mounts are left");
}

#[test]
fn sanity_of_directories() {
    sanity(&[], &[]);
}

#[test]
fn sanity_with_controller_publish() {
    sanity(&["--controller-publish", "--max-volumes=3"], &["--csi.testnodevolumeattachlimit"]);
}

#[test]
fn sanity_of_enforced_ext4() {
    sanity(&["--enforce-size", "--fs=ext4"], &["--csi.testvolumesize=67108864"]);
}

#[test]
fn sanity_without_staging() {
    sanity(&["--no-stage", "--no-topology"], &[]);
}
