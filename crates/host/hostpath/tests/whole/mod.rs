//! Expansion, snapshots, clones, devices and groups; and recovery after the plugin was killed in between.

use crate::support::{
    Plugin, until,
    volumes::{Volume, class, device, from, mounted, request},
};
use caravan_csi::*;
use rustix::process::Signal;
use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};

const MIB: u64 = 1 << 20;

/// Returns whether this process, and so the plugin, may expand a mounted ext4 file system.
fn may_grow_mounted() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it is told");
    u64::from_str_radix(set.trim(), 16).expect("it is a number") >> 24 & 1 == 1
}

fn device_size(path: &Path) -> u64 {
    let mut device = fs::File::open(path).expect("it is a device");
    io::Seek::seek(&mut device, io::SeekFrom::End(0)).expect("it has an end")
}

#[tokio::test]
async fn an_image_grows_mounted_and_unmounted() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    for (name, fs, size) in [("e", "ext4", 32 * MIB), ("x", "xfs", 320 * MIB)] {
        let volume = Volume::make(&client, request(name, size, &mounted(), &[("fs", fs)])).await;
        let (staging, target) =
            (plugin.make(&format!("staging-{name}")), plugin.path(&format!("target-{name}")));

        // The volume is not in use: the file system is expanded at the next mount.
        let expanded = volume.expand(2 * size, 0).await.expect("it grows");
        assert_eq!((expanded.capacity_bytes, expanded.node_expansion_required), (2 * size, true));
        volume.stage(&staging).await.expect("it is staged");
        volume.publish(&staging, &target, false).await.expect("it is published");
        assert!(volume.usage(&target).await.total > size, "{fs} fills the image");
        fs::write(target.join("file"), "kept").expect("there is room");

        assert_eq!(class(volume.expand(0, size).await), Some(Class::OutOfRange), "it does not shrink");
        assert_eq!(class(volume.expand_on_node(&target, 3 * size).await), Some(Class::OutOfRange));
        assert_eq!(volume.expand(size, 0).await.expect("it is met").capacity_bytes, 2 * size);

        // The volume is in use: it is expanded immediately, if this process has the privilege.
        if fs == "xfs" || may_grow_mounted() {
            assert!(volume.expand(3 * size, 0).await.expect("it grows").node_expansion_required);
            for _ in 0..2 {
                let grown = volume.expand_on_node(&target, 3 * size).await.expect("it grows");
                assert_eq!(grown, 3 * size);
            }
        } else {
            let error = volume.expand(3 * size, 0).await.expect_err("it is mounted");
            assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
            volume.unpublish(&target).await;
            volume.unstage(&staging).await;
            volume.expand(3 * size, 0).await.expect("it grows");
            volume.stage(&staging).await.expect("it is staged");
            volume.publish(&staging, &target, false).await.expect("it is published");
        }
        assert!(volume.usage(&target).await.total > 2 * size, "{fs} fills the image");
        assert_eq!(fs::read_to_string(target.join("file")).expect("it is there"), "kept");
        volume.unpublish(&target).await;
        volume.unstage(&staging).await;
        volume.delete().await;
    }
    until("the loop devices are freed", || plugin.loop_devices().is_empty());
}

#[tokio::test]
async fn a_device_is_a_device_and_grows_in_use() {
    for flags in [&[][..], &["--no-stage"]] {
        let mut plugin = Plugin::start(flags);
        let client = plugin.client();
        let volume = Volume::make(&client, request("disk", 8 * MIB, &device(), &[])).await;
        let (staging, writer, reader) =
            (plugin.make("staging"), plugin.path("writer"), plugin.path("reader"));
        if flags.is_empty() {
            let too_early = volume.publish(&staging, &writer, false).await;
            assert_eq!(class(too_early), Some(Class::FailedPrecondition));
            volume.stage(&staging).await.expect("it is staged");
        }
        for _ in 0..2 {
            volume.publish(&staging, &writer, false).await.expect("it is published");
        }
        assert!(fs::metadata(&writer).expect("it is there").file_type().is_block_device());
        assert_eq!(device_size(&writer), 8 * MIB);
        let mut opened = fs::OpenOptions::new().read(true).write(true).open(&writer).expect("it is a device");
        opened.write_all(b"block").and_then(|()| opened.sync_all()).expect("it takes writes");

        // A read-only mount would not prevent writes to a device, so the device itself is read-only.
        volume.publish(&staging, &reader, true).await.expect("it is published");
        let mut read = [0; 5];
        fs::File::open(&reader).and_then(|mut device| device.read_exact(&mut read)).expect("it can be read");
        assert_eq!(&read, b"block");
        let denied = fs::OpenOptions::new().write(true).open(&reader).and_then(|device| {
            device.write_all_at(&[0; 4096], 0)?;
            device.sync_all()
        });
        assert!(denied.is_err(), "it cannot be written");

        // After a kill of the plugin, nothing is lost and nothing is created twice.
        let before = (plugin.mounts(), plugin.loop_devices());
        plugin.end(Signal::KILL);
        plugin.restart();
        while let Err(error) = client.probe().await {
            assert!(error.is_retryable(), "{error}");
        }
        volume.publish(&staging, &writer, false).await.expect("it is published");
        assert_eq!((plugin.mounts(), plugin.loop_devices()), before);

        assert!(!volume.expand(16 * MIB, 0).await.expect("it grows").node_expansion_required);
        assert_eq!(volume.expand_on_node(&writer, 16 * MIB).await.expect("it grew"), 16 * MIB);
        assert_eq!(device_size(&writer), 16 * MIB);
        assert_eq!(volume.usage(&writer).await.total, 16 * MIB);

        drop(opened);
        for target in [&writer, &reader, &writer] {
            volume.unpublish(target).await;
            assert!(!target.exists());
        }
        volume.unstage(&staging).await;
        assert_eq!(fs::read_dir(&staging).expect("it belongs to the caller").count(), 0);
        assert_eq!(plugin.mounts(), Vec::<String>::new());
        until("the loop devices are freed", || plugin.loop_devices().is_empty());
        volume.delete().await;
        assert_eq!(fs::read_dir(plugin.path("state/data")).expect("it is there").count(), 0);
    }
}

#[tokio::test]
async fn a_loop_device_that_a_killed_plugin_left_is_freed_at_the_start() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    let volume = Volume::make(&client, request("disk", 8 * MIB, &device(), &[])).await;
    let image = plugin.path("state/data").join(format!("{}.img", volume.id()));
    plugin.end(Signal::KILL);
    // Simulates a kill between the creation of the device and the mount.
    let status = Command::new("losetup").arg("--find").arg(&image).status().expect("losetup runs");
    assert!(status.success());
    assert_eq!(plugin.loop_devices().len(), 1);
    plugin.restart();
    until("the loop devices are freed", || plugin.loop_devices().is_empty());
}

#[tokio::test]
async fn what_was_half_done_when_the_plugin_was_killed_is_ended_at_the_start() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    let half = Volume::make(&client, request("half", 8 * MIB, &mounted(), &[("fs", "ext4")])).await;
    let gone = Volume::make(&client, request("gone", 0, &mounted(), &[])).await;
    let kept = Volume::make(&client, request("kept", 8 * MIB, &mounted(), &[("fs", "ext4")])).await;
    let snapshot = kept.snapshot("cut").await.expect("it is made");
    let staging = plugin.make("staging");
    kept.stage(&staging).await.expect("it is staged");
    plugin.end(Signal::KILL);

    let edit = |directory: &str, id: &str, from: &str, to: &str| {
        let path = plugin.path("state").join(directory).join(format!("{id}.json"));
        let text = fs::read_to_string(&path).expect("it is on disk");
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).expect("it can be written");
    };
    edit("records", &half.id(), "\"ready\"", "\"creating\"");
    edit("records", &gone.id(), "\"ready\"", "\"deleting\"");
    edit("snapshots", &snapshot.snapshot_id, "\"ready\"", "\"creating\"");
    // The plugin had frozen a file system for a copy: without the thaw, every writer would hang.
    edit("records", &kept.id(), "\"frozen\": false", "\"frozen\": true");
    let status = Command::new("fsfreeze").arg("--freeze").arg(&staging).status().expect("fsfreeze runs");
    assert!(status.success());
    fs::write(plugin.path("state/records").join(format!("{}.json.new", kept.id())), "{").expect("our own");

    plugin.restart();
    fs::write(staging.join("file"), "it goes on").expect("it takes writes again");
    let names = |directory: &str| {
        let entries = fs::read_dir(plugin.path("state").join(directory)).expect("it is there");
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("records"), [format!("{}.json", kept.id())]);
    assert_eq!(names("snapshots"), Vec::<String>::new());
    assert_eq!(names("data"), [format!("{}.img", kept.id())]);
}

#[tokio::test]
async fn snapshots_and_clones_are_copies_of_a_moment() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    for (name, capability, parameters) in
        [("plain", mounted(), &[][..]), ("ext4", mounted(), &[("fs", "ext4")]), ("disk", device(), &[])]
    {
        let volume = Volume::make(&client, request(name, 16 * MIB, &capability, parameters)).await;
        let staging = plugin.make(&format!("staging-{name}"));
        let (target, other) = (plugin.path(&format!("target-{name}")), plugin.path(&format!("other-{name}")));
        let content = |target: &Path| if name == "disk" { target.to_owned() } else { target.join("file") };
        let write = |target: &Path, text: &str| {
            let file = fs::OpenOptions::new()
                .write(true)
                .create(name != "disk")
                .truncate(false)
                .open(content(target))
                .expect("it can be opened");
            file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync_all()).expect("it takes writes");
        };
        let read = |target: &Path| {
            let mut text = [0; 5];
            let file = fs::File::open(content(target)).expect("it can be opened");
            file.read_exact_at(&mut text, 0).expect("it can be read");
            String::from_utf8_lossy(&text).into_owned()
        };
        volume.stage(&staging).await.expect("it is staged");
        volume.publish(&staging, &target, false).await.expect("it is published");
        write(&target, "first");

        if name == "disk" {
            // The file system of the tests cannot share blocks: a copy of a device in use would mix states.
            let error = volume.snapshot("cut-disk").await.err();
            if error.is_some() {
                assert_eq!(error.and_then(|error| error.class()), Some(Class::FailedPrecondition));
                volume.unpublish(&target).await;
                volume.unstage(&staging).await;
            }
        }
        let cut = format!("cut-{name}");
        let snapshot = volume.snapshot(&cut).await.expect("it is made");
        assert!(snapshot.ready_to_use && snapshot.created.is_some());
        assert_eq!((snapshot.size_bytes, &snapshot.source_volume_id), (16 * MIB, &volume.id()));
        volume.stage(&staging).await.expect("it is staged");
        volume.publish(&staging, &target, false).await.expect("it is published");
        write(&target, "after");

        // The same name returns the same snapshot, also after a kill.
        plugin.end(Signal::KILL);
        plugin.restart();
        while let Err(error) = client.probe().await {
            assert!(error.is_retryable(), "{error}");
        }
        assert_eq!(volume.snapshot(&cut).await.as_ref(), Ok(&snapshot));
        let by_id =
            GetSnapshotRequest { snapshot_id: snapshot.snapshot_id.clone(), secrets: Secrets::default() };
        assert_eq!(client.get_snapshot(by_id).await.as_ref(), Ok(&snapshot));
        let found = ListSnapshotsRequest { source_volume_id: volume.id(), ..Default::default() };
        assert_eq!(
            client.list_snapshots(found).await.expect("it lists").entries,
            std::slice::from_ref(&snapshot)
        );

        volume.unpublish(&target).await;
        volume.unstage(&staging).await;
        let clone = Volume::make(
            &client,
            from(ContentSource::Volume(volume.id()), &format!("clone-{name}"), &capability),
        )
        .await;
        // The clone is independent: it needs neither the volume nor the snapshot.
        volume.delete().await;
        let source = ContentSource::Snapshot(snapshot.snapshot_id.clone());
        let again = from(source.clone(), &format!("restored-{name}"), &capability);
        let restored = Volume::make(&client, again.clone()).await;
        assert_eq!(
            (restored.made.content_source.as_ref(), restored.made.capacity_bytes),
            (Some(&source), 16 * MIB)
        );
        let delete = DeleteSnapshotRequest { snapshot_id: snapshot.snapshot_id, secrets: Secrets::default() };
        for _ in 0..2 {
            client.delete_snapshot(delete.clone()).await.expect("it is deleted");
        }
        assert_eq!(client.create_volume(again).await.as_ref(), Ok(&restored.made), "it is there already");
        assert_eq!(
            class(client.create_volume(from(source, "none", &capability)).await),
            Some(Class::NotFound)
        );
        for (copy, target, expected) in [(&restored, &target, "first"), (&clone, &other, "after")] {
            let staging = plugin.make(&format!("staging-{expected}-{name}"));
            copy.stage(&staging).await.expect("it is staged");
            copy.publish(&staging, target, false).await.expect("it is published");
            assert_eq!(read(target), expected, "{name}");
            write(target, "other");
        }
        assert_eq!(read(&other), "other");
        for (copy, target, expected) in [(&restored, &target, "first"), (&clone, &other, "after")] {
            copy.unpublish(target).await;
            copy.unstage(&plugin.path(&format!("staging-{expected}-{name}"))).await;
            copy.delete().await;
        }
    }
    assert_eq!(plugin.mounts(), Vec::<String>::new());
    until("the loop devices are freed", || plugin.loop_devices().is_empty());
    for directory in ["records", "snapshots", "data", "locks"] {
        assert_eq!(fs::read_dir(plugin.path("state").join(directory)).expect("it is there").count(), 0);
    }
}

/// On a file system that can share blocks, a copy uses no space and is atomic, even of a device that is being written
/// to.
#[tokio::test]
async fn copies_share_blocks_where_the_file_system_can() {
    let mut plugin = Plugin::prepare(&[]);
    let (image, state) = (plugin.path("xfs.img"), plugin.make("state"));
    fs::File::create(&image).and_then(|file| file.set_len(400 * MIB)).expect("our own");
    for (program, arguments) in [
        (
            "mkfs.xfs",
            vec!["-q".to_owned(), "-m".to_owned(), "reflink=1".to_owned(), image.display().to_string()],
        ),
        (
            "mount",
            vec![
                "-o".to_owned(),
                "loop".to_owned(),
                image.display().to_string(),
                state.display().to_string(),
            ],
        ),
    ] {
        assert!(Command::new(program).args(arguments).status().expect("it runs").success(), "{program}");
    }
    plugin.restart();
    let client = plugin.client();
    let volume = Volume::make(&client, request("disk", 128 * MIB, &device(), &[])).await;
    let (staging, target) = (plugin.make("staging"), plugin.path("target"));
    volume.stage(&staging).await.expect("it is staged");
    volume.publish(&staging, &target, false).await.expect("it is published");
    let file = fs::OpenOptions::new().write(true).open(&target).expect("it is a device");
    file.write_all_at(&vec![7; 96 << 20], 0).and_then(|()| file.sync_all()).expect("there is room");
    // Five times 96 MiB would not fit.
    for number in 0..4 {
        volume.snapshot(&format!("cut-{number}")).await.expect("it is made, in use and all");
    }
    drop(file);
    volume.unpublish(&target).await;
    volume.unstage(&staging).await;
}

#[tokio::test]
async fn a_mount_group_owns_the_top_of_a_volume_and_what_is_made_there() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    for (name, parameters) in [("plain", &[][..]), ("sized", &[("fs", "ext4")])] {
        let mut capability = mounted();
        capability.mount.volume_mount_group = "4321".to_owned();
        let volume = Volume::make(&client, request(name, 16 * MIB, &capability, parameters)).await;
        let (staging, target) =
            (plugin.make(&format!("staging-{name}")), plugin.path(&format!("target-{name}")));
        volume.stage(&staging).await.expect("it is staged");
        volume.publish(&staging, &target, false).await.expect("it is published");
        let top = fs::metadata(&target).expect("it is there");
        assert_eq!((top.gid(), top.mode() & 0o2070), (4321, 0o2070));
        fs::write(target.join("file"), "").expect("it can be written");
        assert_eq!(fs::metadata(target.join("file")).expect("it is there").gid(), 4321);
        volume.unpublish(&target).await;
        volume.unstage(&staging).await;
        volume.delete().await;
    }
}

#[tokio::test]
async fn calls_side_by_side_for_one_volume_do_not_mix() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let volume = Volume::make(&client, request("sized", 16 * MIB, &mounted(), &[("fs", "ext4")])).await;
    let (staging, parent) = (plugin.make("staging"), plugin.make("targets"));
    volume.stage(&staging).await.expect("it is staged");
    let targets: Vec<PathBuf> = (0..4).map(|number| parent.join(number.to_string())).collect();
    for target in &targets {
        let tries = [volume.publish(&staging, target, false), volume.publish(&staging, target, false)];
        let [first, second] = tries;
        for outcome in <[_; 2]>::from(tokio::join!(first, second)) {
            assert!(outcome.is_ok() || class(outcome) == Some(Class::Aborted));
        }
        volume.publish(&staging, target, false).await.expect("it is published");
    }
    assert_eq!(plugin.mounts().len(), 1 + targets.len(), "none is mounted twice");
    for target in &targets {
        volume.unpublish(target).await;
    }
    volume.unstage(&staging).await;
}
