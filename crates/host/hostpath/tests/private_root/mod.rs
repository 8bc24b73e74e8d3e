//! The plugin in its own root, as a task has it under an isolating driver. The host's directories that it needs are
//! bind-mounted there, and one shared mount, the plugin's root, propagates its mounts to the host.

use crate::support::Plugin;
use caravan_csi::*;
use rustix::{
    mount::{MountPropagationFlags, mount_bind, mount_change},
    process::Signal,
};
use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

/// A script that creates a root below `$1` with mounts at three paths, and executes the plugin there: the plugin's
/// root `$2` at /local/csi, the socket's directory `$3` at /csi and the program `$4` at /plugin.
const ENTER: &str = r#"
set -e
mount --make-private "$(findmnt -n -o TARGET -T "$1")"
mount -t tmpfs root "$1"
for directory in usr bin sbin lib lib64 etc dev proc; do
    [ -e "/$directory" ] || continue
    if [ -L "/$directory" ]; then
        cp -a "/$directory" "$1/$directory"
    else
        mkdir "$1/$directory"
        mount --rbind "/$directory" "$1/$directory"
    fi
done
mkdir -p "$1/local/csi" "$1/csi" "$1/tmp"
mount --rbind "$2" "$1/local/csi"
mount --rbind "$3" "$1/csi"
touch "$1/plugin"
mount --bind "$4" "$1/plugin"
root=$1
shift 4
exec chroot "$root" /plugin "$@"
"#;

fn enter(plugin: &Plugin) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation=unchanged", "sh", "-c", ENTER, "enter"])
        .args([plugin.make("new-root"), plugin.path("plugin-root"), plugin.make("socket")])
        .arg(env!("CARGO_BIN_EXE_caravan-hostpath"))
        .args(["--node-id=node-1", "--endpoint=unix:///csi/csi.sock"])
        .env_remove("RUST_LOG")
        .env_remove("CARAVAN_HOSTPATH_STATE");
    command
}

#[tokio::test]
async fn mounts_reach_the_host_and_outlive_the_plugin() {
    let mut plugin = Plugin::prepare(&[]);
    let host = plugin.make("plugin-root");
    mount_bind(&host, &host).expect("the directory is our own");
    mount_change(&host, MountPropagationFlags::SHARED).expect("it is a mount");
    let socket = plugin.path("socket/csi.sock");
    plugin.start_command(enter(&plugin));
    let client = CsiClient::new(&socket, Deadlines::default());

    for (name, parameters) in
        [("plain", StringMap::new()), ("sized", [("enforce".into(), "true".into())].into())]
    {
        let capability = VolumeCapability::file_system(AccessMode::SingleNodeWriter);
        let create = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 16 << 20, limit_bytes: 0 }),
            capabilities: vec![capability.clone()],
            parameters,
            ..Default::default()
        };
        let volume = client.create_volume(create).await.expect("it is made");
        assert!(host.join("hostpath-state/records").is_dir(), "the state is where the host keeps it");

        let (staging, target) = (format!("staging/{name}"), format!("target-{name}"));
        fs::create_dir_all(host.join(&staging)).expect("the directory is our own");
        let inside = PathBuf::from("/local/csi");
        let stage = NodeStageRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: StringMap::new(),
            staging_target_path: inside.join(&staging),
            capability: capability.clone(),
            secrets: Secrets::default(),
            context: StringMap::new(),
        };
        let publish = NodePublishRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: StringMap::new(),
            staging_target_path: Some(inside.join(&staging)),
            target_path: inside.join(&target),
            capability,
            readonly: false,
            secrets: Secrets::default(),
            context: StringMap::new(),
        };
        client.node_stage(stage.clone()).await.expect("it is staged");
        client.node_publish(publish.clone()).await.expect("it is published");
        let file = host.join(&target).join("file");
        fs::write(&file, "from the host").expect("the volume is there, and open to everyone");
        assert_eq!(
            fs::metadata(host.join(&target)).expect("it is there").permissions().mode() & 0o777,
            0o777
        );

        // The next plugin gets a new root, and finds the mounts of the previous plugin.
        plugin.end(Signal::KILL);
        assert_eq!(fs::read_to_string(&file).expect("the mount is still there"), "from the host");
        plugin.start_command(enter(&plugin));
        while let Err(error) = client.probe().await {
            assert!(error.is_retryable(), "{error}");
        }
        let before = plugin.mounts();
        client.node_stage(stage).await.expect("it is staged");
        client.node_publish(publish).await.expect("it is published");
        assert_eq!(plugin.mounts(), before, "nothing is mounted twice");

        let unpublish =
            NodeUnpublishRequest { volume_id: volume.volume_id.clone(), target_path: inside.join(&target) };
        client.node_unpublish(unpublish).await.expect("it is unpublished");
        assert_eq!(fs::metadata(host.join(&target)).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        let unstage = NodeUnstageRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: inside.join(&staging),
        };
        client.node_unstage(unstage).await.expect("it is unstaged");
        assert_eq!(plugin.mounts(), [host.display().to_string()], "only the plugin's root is left");
        let delete = DeleteVolumeRequest { volume_id: volume.volume_id, secrets: Secrets::default() };
        client.delete_volume(delete).await.expect("it is deleted");
    }
}
