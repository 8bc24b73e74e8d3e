//! Mutable parameters, and their effects on existing volumes.

use crate::support::{
    Plugin,
    volumes::{Volume, class, device, map, mounted, request},
};
use caravan_csi::{Class, CsiClient};
use caravan_proto::csi::{self, controller_client::ControllerClient};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

const MIB: u64 = 1 << 20;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

/// Returns the bytes that the image of a volume uses on the host.
fn taken(plugin: &Plugin, volume: &Volume) -> u64 {
    let image = plugin.path("state/data").join(format!("{}.img", volume.id()));
    fs::metadata(image).expect("it is there").blocks() * 512
}

async fn again(client: &CsiClient) {
    while let Err(error) = client.probe().await {
        assert!(error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn the_mode_of_the_top_changes_at_once_or_with_the_next_mount() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    for (name, parameters) in [("plain", &[][..]), ("sized", &[("fs", "ext4")])] {
        let volume = Volume::make(&client, request(name, 16 * MIB, &mounted(), parameters)).await;
        let (staging, target) =
            (plugin.make(&format!("staging-{name}")), plugin.path(&format!("target-{name}")));
        volume.modify(&[("mode", "0750")]).await.expect("it is modified");
        volume.stage(&staging).await.expect("it is staged");
        volume.publish(&staging, &target, false).await.expect("it is published");
        assert_eq!(mode(&target), 0o750, "{name}: with the next mount");
        for _ in 0..2 {
            volume.modify(&[("mode", "1777")]).await.expect("it is modified");
            assert_eq!(mode(&target), 0o1777, "{name}: in use");
        }
        // A change by a task is kept, even if calls are repeated.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).expect("it is ours");
        volume.modify(&[("mode", "1777")]).await.expect("it is so already");
        volume.publish(&staging, &target, false).await.expect("it is published");
        assert_eq!(mode(&target), 0o700, "{name}");

        // The plugin is killed between the record and the change: the next mount sets the mode.
        plugin.end(Signal::KILL);
        let record = plugin.path("state/records").join(format!("{}.json", volume.id()));
        let text = fs::read_to_string(&record).expect("it is on disk");
        fs::write(&record, text.replace("\"opened\": true", "\"opened\": false")).expect("it is ours");
        plugin.restart();
        again(&client).await;
        volume.modify(&[("mode", "1777")]).await.expect("the repeated call goes on");
        assert_eq!(mode(&target), 0o1777, "{name}");

        for wrong in [("mode", "rwx"), ("mode", "7777"), ("size", "1"), ("space", "fat")] {
            assert_eq!(class(volume.modify(&[wrong]).await), Some(Class::InvalidArgument));
            let half_right = volume.modify(&[("mode", "0700"), wrong]).await;
            assert_eq!(class(half_right), Some(Class::InvalidArgument));
        }
        assert_eq!(mode(&target), 0o1777, "nothing of a wrong call is carried out");
        volume.unpublish(&target).await;
        volume.unstage(&staging).await;
        volume.delete().await;
    }
}

#[tokio::test]
async fn thick_volumes_have_their_room_and_thin_ones_give_it_back() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    for (name, capability, parameters) in
        [("image", mounted(), &[("fs", "ext4")][..]), ("disk", device(), &[])]
    {
        let size = 64 * MIB;
        let volume = Volume::make(&client, request(name, size, &capability, parameters)).await;
        assert!(taken(&plugin, &volume) < size / 2, "{name}: it is thin");
        let (staging, target) =
            (plugin.make(&format!("staging-{name}")), plugin.path(&format!("target-{name}")));
        volume.stage(&staging).await.expect("it is staged");
        volume.publish(&staging, &target, false).await.expect("it is published");
        let content = if name == "disk" { target.clone() } else { target.join("file") };
        let file = fs::File::options()
            .read(true)
            .write(true)
            .create(name != "disk")
            .truncate(false)
            .open(&content)
            .expect("it can be opened");
        file.write_all_at(&vec![7; 4 << 20], 0).and_then(|()| file.sync_all()).expect("there is room");

        for _ in 0..2 {
            volume.modify(&[("space", "thick")]).await.expect("there is room, in use and all");
            assert!(taken(&plugin, &volume) >= size, "{name}: it is thick");
        }
        volume.expand(2 * size, 0).await.ok();
        volume.modify(&[("space", "thin")]).await.expect("it is modified");
        drop(file);
        volume.unpublish(&target).await;
        volume.unstage(&staging).await;
        // The space is released at the latest with the next use.
        volume.stage(&staging).await.expect("it is staged");
        assert!(taken(&plugin, &volume) < size / 2, "{name}: {} bytes", taken(&plugin, &volume));
        volume.publish(&staging, &target, false).await.expect("it is published");
        let mut read = [0; 4096];
        let file = fs::File::open(&content).expect("it is there");
        file.read_exact_at(&mut read, (4 << 20) - 4096).expect("it can be read");
        assert_eq!(read, [7; 4096], "{name}: what was written is kept");
        drop(file);
        volume.unpublish(&target).await;
        volume.unstage(&staging).await;

        volume.modify(&[("space", "thick")]).await.expect("there is room");
        let grown = volume.expand(3 * size, 0).await.expect("it grows");
        assert!(taken(&plugin, &volume) >= grown.capacity_bytes, "{name}: what it grew is thick as well");
        volume.delete().await;
    }
}

#[tokio::test]
async fn a_volume_can_be_made_with_parameters_that_change_later() {
    let plugin = Plugin::start(&[]);
    let address = format!("unix://{}", plugin.socket().display());
    let channel: Channel = Endpoint::from_shared(address).expect("it is an address").connect_lazy();
    let mut controller = ControllerClient::new(channel);
    use csi::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
    let capability = csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    };
    let creation = |mutable: &[(&str, &str)]| csi::CreateVolumeRequest {
        name: "data".to_owned(),
        volume_capabilities: vec![capability.clone()],
        mutable_parameters: map(mutable),
        ..Default::default()
    };
    let wrong = controller.create_volume(creation(&[("space", "thick")])).await;
    assert_eq!(wrong.expect_err("a directory takes no room").code(), Code::InvalidArgument);
    let made = controller.create_volume(creation(&[("mode", "0700")])).await.expect("it is made");
    let id = made.into_inner().volume.expect("it is told").volume_id;
    let top = plugin.path("state/data").join(&id);
    assert_eq!(mode(&top), 0o700);
    let modification = csi::ControllerModifyVolumeRequest {
        volume_id: id.clone(),
        mutable_parameters: map(&[("mode", "0755")]),
        ..Default::default()
    };
    controller.controller_modify_volume(modification).await.expect("it is modified");
    assert_eq!(mode(&top), 0o755);

    // A repeated creation returns the existing volume, even after a modification; a different one is refused.
    controller.create_volume(creation(&[("mode", "0700")])).await.expect("it is there");
    assert_eq!(mode(&top), 0o755);
    let other = controller.create_volume(creation(&[("mode", "0755")])).await;
    assert_eq!(other.expect_err("it was made otherwise").code(), Code::AlreadyExists);

    for (mutable, confirmed) in
        [(&[("mode", "0755")][..], true), (&[], true), (&[("mode", "0700")], false), (&[("a", "b")], false)]
    {
        let request = csi::ValidateVolumeCapabilitiesRequest {
            volume_id: id.clone(),
            volume_capabilities: vec![capability.clone()],
            mutable_parameters: map(mutable),
            ..Default::default()
        };
        let answer = controller.validate_volume_capabilities(request).await.expect("it answers").into_inner();
        assert_eq!(answer.confirmed.map(|found| found.mutable_parameters), confirmed.then(|| map(mutable)));
    }
}
