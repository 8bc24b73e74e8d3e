//! The host volumes of a node with plugins and records, over several lives of the agent.

use super::{HostVolumeFault, HostVolumeRecord, HostVolumes, RecordPhase, check_fixed, within};
use crate::config::ClientConfig;
use crate::node::NodeState;
use crate::state::{Identity, Store};
use caravan_sys::mount::{Restrictions, Unmount, mount_fs, unmount};
use caravan_types::host_volume::HostVolume;
use caravan_types::job::HostAccess;
use caravan_types::node::{HostVolumeInfo, Node, NodeSecret};
use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A plugin that succeeds, unless a file changes that: `fail` makes it fail, `mumble` succeed without output.
const PLUGIN: &str = r#"#!/bin/sh
base="$DHV_PLUGIN_DIR/.."
case "$1" in
fingerprint) echo '{"version":"1.0.0"}' ;;
create)
  if [ -e "$base/fail" ]; then echo '{"error":"no room"}'; exit 4; fi
  /bin/mkdir -p "$base/made-$DHV_VOLUME_ID"
  if [ -e "$base/mumble" ]; then echo mumble; exit 0; fi
  echo "{\"path\":\"$base/made-$DHV_VOLUME_ID\",\"bytes\":5}"
  ;;
delete)
  if [ -e "$base/fail" ]; then exit 1; fi
  /bin/rm -rf "$base/made-$DHV_VOLUME_ID"
  ;;
esac
"#;

struct Agent {
    volumes: HostVolumes,
    node: NodeState,
    store: Store,
    cancel: CancellationToken,
}

impl Agent {
    /// Starts an agent on a directory and waits for its first pass.
    async fn start(dir: &Path) -> Self {
        Self::start_with(dir, "fixed").await
    }

    /// Starts an agent like [`Agent::start`], with a configured volume of this name.
    async fn start_with(dir: &Path, name: &str) -> Self {
        let mut config = ClientConfig::new(dir, "n");
        let fixed = HostVolumeInfo { name: name.into(), path: "/srv".into(), ..HostVolumeInfo::default() };
        config.host_volumes.insert(name.into(), fixed);
        let state = dir.join("client");
        fs::create_dir_all(&state).unwrap();
        let (store, loaded) = Store::open(Some(&state)).unwrap();
        let identity =
            Identity { node_id: "n1".into(), secret: NodeSecret::new("s"), signed: Default::default() };
        let node = NodeState::new(Node { host_volumes: config.host_volumes.clone(), ..Node::default() });
        let volumes = HostVolumes::new(&config, &identity, store.clone(), node.clone(), loaded.host_volumes);
        let cancel = CancellationToken::new();
        tokio::spawn(volumes.clone().run(cancel.clone()));
        volumes.first_pass(Duration::from_secs(60)).await;
        Self { volumes, node, store, cancel }
    }

    fn stop(self) {
        self.cancel.cancel();
        self.store.close();
    }

    fn offered(&self) -> Vec<String> {
        self.node.get().host_volumes.keys().cloned().collect()
    }
}

fn volume(id: &str, name: &str, plugin: &str) -> HostVolume {
    HostVolume {
        namespace: "default".into(),
        id: id.into(),
        name: name.into(),
        plugin_id: plugin.into(),
        ..HostVolume::default()
    }
}

fn install(dir: &Path) {
    let plugins = dir.join("host_volume_plugins");
    fs::create_dir(&plugins).unwrap();
    let path = plugins.join("mine");
    fs::write(&path, PLUGIN).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    fs::write(plugins.join("plain"), "no program").unwrap();
}

/// One test for all operations that start programs: a script that is being written while another thread starts a
/// process cannot be run (`ETXTBSY`).
#[tokio::test]
async fn volumes_outlive_the_agent_and_are_offered_only_once_they_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    let agent = Agent::start(dir.path()).await;
    let attributes = agent.node.get().attributes.clone();
    assert_eq!(attributes["plugins.host_volume.mine.version"], "1.0.0");
    assert_eq!(attributes["plugins.host_volume.mkdir.version"], "0.0.1");
    assert!(!attributes.contains_key("plugins.host_volume.plain.version"));

    let made = agent.volumes.create(volume("v1", "data", "mine")).await.unwrap();
    assert_eq!(made.capacity_bytes, 5);
    agent.volumes.create(volume("v2", "other", "mkdir")).await.unwrap();
    assert_eq!(agent.offered(), ["data", "fixed", "other"]);
    assert_eq!(agent.node.get().host_volumes["data"].id, "v1");
    let namespace = "default".into();
    assert_eq!(
        agent.volumes.path(&namespace, "data", HostAccess::Any).unwrap().0,
        Path::new(&made.host_path)
    );
    assert!(agent.volumes.path(&"elsewhere".into(), "data", HostAccess::Any).is_none());
    assert!(agent.volumes.path(&namespace, "fixed", HostAccess::Any).is_some());
    for (wrong, words) in [
        (volume("v3", "data", "mine"), "volume name already exists on this node"),
        (volume("v3", "x", "none"), "no such plugin: \"none\""),
        (volume("v3", "x", "../bin/sh"), "no such plugin: \"../bin/sh\""),
        (volume("v3", "x", "plain"), "plugin not executable: \"plain\""),
        (volume("..", "x", "mkdir"), "volume id \"..\" cannot be the name of a directory"),
    ] {
        assert_eq!(agent.volumes.create(wrong).await.unwrap_err().to_string(), words);
    }

    // A refusal leaves nothing, and neither does a success without output (docs/design/rough-edges.md, 41).
    fs::write(dir.path().join("fail"), "").unwrap();
    let fault = agent.volumes.create(volume("v4", "x", "mine")).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "error creating volume \"v4\" with plugin \"mine\": exit status 4: no room"
    );
    assert!(!fault.outcome_unknown());
    fs::remove_file(dir.path().join("fail")).unwrap();
    fs::write(dir.path().join("mumble"), "").unwrap();
    let fault = agent.volumes.create(volume("v4", "x", "mine")).await.unwrap_err();
    assert!(fault.to_string().contains("error parsing create output as json"), "{fault}");
    assert!(!fault.outcome_unknown() && !dir.path().join("made-v4").exists());
    fs::remove_file(dir.path().join("mumble")).unwrap();
    // A failed update leaves the volume unchanged, and so does a failed deletion.
    fs::write(dir.path().join("fail"), "").unwrap();
    agent.volumes.create(volume("v1", "data", "mine")).await.unwrap_err();
    agent.volumes.delete(volume("v1", "data", "mine")).await.unwrap_err();
    assert_eq!(agent.offered(), ["data", "fixed", "other"]);
    agent.stop();

    // One volume's plugin fails at the next start: the other volume is offered, this one is not.
    let agent = Agent::start(dir.path()).await;
    assert_eq!(agent.offered(), ["fixed", "other"]);
    assert!(agent.volumes.path(&namespace, "data", HostAccess::Any).is_none());
    fs::remove_file(dir.path().join("fail")).unwrap();
    fs::remove_dir(dir.path().join("made-v1")).unwrap();
    let waiting = agent.volumes.settled(&namespace, "data", || {});
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
    assert_eq!(agent.offered(), ["data", "fixed", "other"]);
    assert!(dir.path().join("made-v1").exists(), "made again by its plugin");
    agent.volumes.delete(volume("v1", "data", "mine")).await.unwrap();
    agent.volumes.delete(volume("v1", "data", "mine")).await.unwrap();
    assert!(!dir.path().join("made-v1").exists());
    agent.stop();
    let agent = Agent::start(dir.path()).await;
    assert_eq!(agent.offered(), ["fixed", "other"]);
    agent.stop();
}

/// The agent stopped during a creation and a deletion: neither volume is offered, both operations can be repeated.
#[tokio::test]
async fn what_was_cut_off_is_not_offered() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path()).await;
    for (id, phase) in [("v1", RecordPhase::Creating), ("v2", RecordPhase::Deleting)] {
        let record = HostVolumeRecord {
            volume: volume(id, id, "mkdir"),
            host_path: dir.path().join("host_volumes").join(id).display().to_string(),
            phase,
        };
        agent.store.put_host_volume(&record).done().await.unwrap();
    }
    agent.stop();
    let agent = Agent::start(dir.path()).await;
    assert_eq!(agent.offered(), ["fixed"]);
    agent.volumes.create(volume("v1", "v1", "mkdir")).await.unwrap();
    agent.volumes.delete(volume("v2", "v2", "mkdir")).await.unwrap();
    assert_eq!(agent.offered(), ["fixed", "v1"]);
    agent.stop();
}

#[tokio::test]
async fn a_registered_directory_must_be_there_and_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there");
    let row = HostVolume { host_path: there.display().to_string(), ..volume("v1", "there", "") };
    let agent = Agent::start(dir.path()).await;
    let fault = agent.volumes.register(row.clone()).await.unwrap_err();
    assert!(matches!(fault, HostVolumeFault::Path { .. }), "{fault}");
    let words = format!(
        "could not verify host path for \"there\": stat {}: no such file or directory",
        there.display()
    );
    assert_eq!(fault.to_string(), words);
    fs::create_dir(&there).unwrap();
    agent.volumes.register(row.clone()).await.unwrap();
    assert_eq!(agent.offered(), ["fixed", "there"]);
    agent.volumes.delete(row).await.unwrap();
    assert!(there.exists() && agent.offered() == ["fixed"]);
    agent.stop();
}

#[tokio::test]
async fn no_volume_hides_one_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path()).await;
    let taken = agent.volumes.create(volume("v1", "fixed", "mkdir")).await.unwrap_err();
    assert_eq!(taken.to_string(), "volume name already exists on this node");
    assert_eq!(agent.node.get().host_volumes["fixed"].id, "");
    let namespace = "default".into();
    assert!(agent.volumes.path(&namespace, "fixed", HostAccess::Any).is_some());
    assert!(agent.volumes.path(&namespace, "fixed", HostAccess::Created).is_none());
    // A volume that was created before the configuration contained one of the same name.
    let made = agent.volumes.create(volume("v2", "later", "mkdir")).await.unwrap();
    assert!(agent.volumes.path(&namespace, "later", HostAccess::Created).is_some());
    agent.stop();
    let agent = Agent::start_with(dir.path(), "later").await;
    assert_eq!(agent.node.get().host_volumes["later"].id, "");
    let found = agent.volumes.path(&namespace, "later", HostAccess::Any).unwrap().0;
    assert_ne!(found, Path::new(&made.host_path));
    assert!(agent.volumes.path(&namespace, "later", HostAccess::Created).is_none());
    agent.stop();
}

#[test]
fn directories_of_the_configuration_must_exist() {
    let with = |path: &str| {
        let info = HostVolumeInfo { path: path.into(), ..HostVolumeInfo::default() };
        check_fixed(&[("a".to_owned(), info)].into())
    };
    with("/").unwrap();
    let text = with("/nowhere/at/all").unwrap_err().to_string();
    assert!(text.starts_with("failed to validate volume a, err: stat /nowhere/at/all: "), "{text}");
    assert!(with("").unwrap_err().to_string().contains("missing path"));
}

#[tokio::test]
async fn a_file_system_that_does_not_answer_is_reported_and_waited_for() {
    let (dir, hung) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let agent = Agent::start(dir.path()).await;
    let limit = Duration::from_secs(60);
    for path in ["/", "/no/such/path"] {
        agent.volumes.answered(Path::new(path), limit, || panic!("{path} does not answer")).await;
    }
    // Without a daemon that reads the device, each request to the mount hangs (fuse(4)).
    let Ok(device) = fs::File::options().read(true).write(true).open("/dev/fuse") else { return };
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    mount_fs("fuse", hung.path(), Restrictions::default(), &data).unwrap();
    let mut reported = false;
    let waited = agent.volumes.answered(hung.path(), Duration::from_millis(50), || {
        reported = true;
        // Closing the device ends all requests with an error, which is an answer.
        drop(device);
    });
    tokio::time::timeout(limit, waited).await.unwrap();
    assert!(reported);
    unmount(hung.path(), Unmount::Lazy).unwrap();
}

#[test]
fn a_call_that_hangs_is_abandoned() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    assert_eq!(within(Duration::from_millis(20), move || wait.recv().is_ok()), None);
    drop(release);
    assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
}
