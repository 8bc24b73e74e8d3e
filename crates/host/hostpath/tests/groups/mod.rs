//! Snapshots of several volumes at one moment.

use crate::support::{
    Plugin, until,
    volumes::{Volume, class, device, from, mounted, request},
};
use caravan_csi::{Class, ContentSource, DeleteSnapshotRequest, ListSnapshotsRequest, Secrets};
use caravan_proto::csi::{self, group_controller_client::GroupControllerClient};
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

const MIB: u64 = 1 << 20;

/// Returns a client of a plugin's group controller, which connects at the first call.
fn groups(plugin: &Plugin) -> GroupControllerClient<Channel> {
    let address = format!("unix://{}", plugin.socket().display());
    GroupControllerClient::new(Endpoint::from_shared(address).expect("it is an address").connect_lazy())
}

fn creation(name: &str, volumes: &[&Volume]) -> csi::CreateVolumeGroupSnapshotRequest {
    csi::CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: volumes.iter().map(|volume| volume.id()).collect(),
        ..Default::default()
    }
}

async fn create(
    plugin: &Plugin,
    name: &str,
    volumes: &[&Volume],
) -> Result<csi::VolumeGroupSnapshot, Status> {
    let answer = groups(plugin).create_volume_group_snapshot(creation(name, volumes)).await?;
    Ok(answer.into_inner().group_snapshot.expect("there is a group"))
}

async fn get(plugin: &Plugin, id: &str, snapshots: &[String]) -> Result<csi::VolumeGroupSnapshot, Status> {
    let request = csi::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: snapshots.to_vec(),
        ..Default::default()
    };
    let answer = groups(plugin).get_volume_group_snapshot(request).await?;
    Ok(answer.into_inner().group_snapshot.expect("there is a group"))
}

async fn delete(plugin: &Plugin, id: &str, snapshots: &[String]) -> Result<(), Status> {
    let request = csi::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.to_owned(),
        snapshot_ids: snapshots.to_vec(),
        ..Default::default()
    };
    groups(plugin).delete_volume_group_snapshot(request).await.map(|_| ())
}

fn members(group: &csi::VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

fn refused<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.expect_err("it is refused");
    (status.code(), status.message().to_owned())
}

/// Stages and publishes a volume for writing.
async fn in_use(plugin: &Plugin, volume: &Volume, name: &str) -> (PathBuf, PathBuf) {
    let (staging, target) = (plugin.make(&format!("staging-{name}")), plugin.path(&format!("target-{name}")));
    volume.stage(&staging).await.expect("it is staged");
    volume.publish(&staging, &target, false).await.expect("it is published");
    (staging, target)
}

fn left(plugin: &Plugin, directory: &str) -> usize {
    fs::read_dir(plugin.path("state").join(directory)).expect("it is there").count()
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_all()
}

#[tokio::test]
async fn a_group_is_one_thing_until_it_is_deleted() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    let plain = Volume::make(&client, request("plain", 0, &mounted(), &[])).await;
    let image = Volume::make(&client, request("image", 16 * MIB, &mounted(), &[("fs", "ext4")])).await;
    let disk = Volume::make(&client, request("disk", 4 * MIB, &device(), &[])).await;
    let (staging, target) = in_use(&plugin, &image, "image").await;
    write(&target.join("file"), "first").expect("it takes writes");

    let all = [&plain, &image, &disk];
    let group = create(&plugin, "cut", &all).await.expect("it is made");
    assert!(group.ready_to_use && group.creation_time.is_some());
    assert_eq!(group.snapshots.len(), 3);
    for snapshot in &group.snapshots {
        assert_eq!(snapshot.group_snapshot_id, group.group_snapshot_id);
        assert_eq!((snapshot.creation_time, snapshot.ready_to_use), (group.creation_time, true));
    }
    let sources: BTreeSet<String> =
        group.snapshots.iter().map(|snapshot| snapshot.source_volume_id.clone()).collect();
    assert_eq!(sources, all.iter().map(|volume| volume.id()).collect());
    write(&target.join("file"), "after").expect("nothing is held still any more");

    // The same name returns the same group, in any order of volumes, and after a crash; with other volumes it is
    // refused.
    plugin.end(Signal::KILL);
    plugin.restart();
    assert_eq!(create(&plugin, "cut", &[&disk, &plain, &image]).await.expect("it is there"), group);
    assert_eq!(refused(create(&plugin, "cut", &[&plain]).await).0, Code::AlreadyExists);
    let (id, ids) = (group.group_snapshot_id.clone(), members(&group));
    assert_eq!(get(&plugin, &id, &ids).await.expect("it is there"), group);
    assert_eq!(refused(get(&plugin, &id, &ids[1..]).await).0, Code::InvalidArgument);
    assert_eq!(refused(delete(&plugin, &id, &ids[1..]).await).0, Code::InvalidArgument);

    // A member is a normal snapshot, except that it cannot be deleted alone.
    while let Err(error) = client.probe().await {
        assert!(error.is_retryable(), "{error}");
    }
    let listed = client.list_snapshots(ListSnapshotsRequest::default()).await.expect("it lists").entries;
    assert_eq!(listed.len(), 3);
    let of_image = ids
        .iter()
        .zip(&group.snapshots)
        .find(|(_, snapshot)| snapshot.source_volume_id == image.id())
        .map(|(id, _)| id.clone())
        .expect("it is a member");
    let alone = DeleteSnapshotRequest { snapshot_id: of_image.clone(), secrets: Secrets::default() };
    assert_eq!(class(client.delete_snapshot(alone).await), Some(Class::InvalidArgument));
    let source = ContentSource::Snapshot(of_image);
    let restored = Volume::make(&client, from(source.clone(), "restored", &mounted())).await;
    let (other_staging, other) = in_use(&plugin, &restored, "restored").await;
    assert_eq!(fs::read_to_string(other.join("file")).expect("it is there"), "first");

    for _ in 0..2 {
        delete(&plugin, &id, &ids).await.expect("it is deleted");
    }
    assert_eq!(refused(get(&plugin, &id, &ids).await).0, Code::NotFound);
    let again = client.create_volume(from(source, "none", &mounted())).await;
    assert_eq!(class(again), Some(Class::NotFound));
    for (volume, staging, target) in [(&image, &staging, &target), (&restored, &other_staging, &other)] {
        volume.unpublish(target).await;
        volume.unstage(staging).await;
    }
    for volume in [&plain, &image, &disk, &restored] {
        volume.delete().await;
    }
    for directory in ["records", "snapshots", "groups", "data", "locks"] {
        assert_eq!(left(&plugin, directory), 0, "{directory}");
    }
}

#[tokio::test]
async fn what_cannot_be_cut_at_one_moment_is_refused_and_nothing_is_left_or_held() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let plain = Volume::make(&client, request("plain", 0, &mounted(), &[])).await;
    let image = Volume::make(&client, request("image", 16 * MIB, &mounted(), &[("fs", "ext4")])).await;
    let (one, two) = (
        Volume::make(&client, request("one", 4 * MIB, &device(), &[])).await,
        Volume::make(&client, request("two", 4 * MIB, &device(), &[])).await,
    );
    let (_, mounted_at) = in_use(&plugin, &image, "image").await;
    let (_, directory) = in_use(&plugin, &plain, "plain").await;
    let (code, words) = refused(create(&plugin, "cut", &[&plain, &image]).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(words.contains("is a directory, published for writing"), "{words}");
    plain.unpublish(&directory).await;

    in_use(&plugin, &one, "one").await;
    in_use(&plugin, &two, "two").await;
    let (code, words) = refused(create(&plugin, "cut", &[&image, &one, &two]).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(words.contains("more than one of the volumes is in use as a device"), "{words}");

    for (volumes, expected) in [
        (vec![], Code::InvalidArgument),
        (vec![image.id(), image.id()], Code::InvalidArgument),
        (vec![image.id(), "none".to_owned()], Code::NotFound),
    ] {
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: "cut".to_owned(),
            source_volume_ids: volumes,
            ..Default::default()
        };
        let answer = groups(&plugin).create_volume_group_snapshot(request).await;
        assert_eq!(refused(answer.map(|_| ())).0, expected);
    }

    write(&mounted_at.join("file"), "it goes on").expect("it takes writes");
    let group = create(&plugin, "cut", &[&plain, &image]).await.expect("nobody writes to the directory");
    delete(&plugin, &group.group_snapshot_id, &members(&group)).await.expect("it is deleted");
    for directory in ["snapshots", "groups"] {
        assert_eq!(left(&plugin, directory), 0, "{directory}");
    }
}

/// The rest of an unfinished group is removed with its lock file. The call that creates the group again must hold a
/// lock on the new file. Otherwise another process would remove the new group as unfinished.
#[tokio::test]
async fn who_makes_a_group_anew_holds_its_lock() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let volume = Volume::make(&client, request("a", 16 * MIB, &mounted(), &[("fs", "ext4")])).await;
    let first = create(&plugin, "both", &[&volume]).await.expect("it is made");
    let record = plugin.path("state/groups").join(format!("{}.json", first.group_snapshot_id));
    let text = fs::read_to_string(&record).expect("there is a record");
    let creating = text.replace("\"ready\"", "\"creating\"");
    assert_ne!(creating, text);
    fs::write(&record, creating).expect("it is written");
    let again = create(&plugin, "both", &[&volume]).await.expect("it is made anew");
    assert_eq!(again.group_snapshot_id, first.group_snapshot_id);
    let lock = plugin.path("state/locks").join(&again.group_snapshot_id);
    assert!(lock.exists(), "the lock of the group is gone");
    delete(&plugin, &again.group_snapshot_id, &members(&again)).await.expect("it is deleted");
    assert_eq!(left(&plugin, "groups"), 0);
}

/// Kills the plugin at random moments of a group's creation.
#[tokio::test]
async fn a_group_that_is_cut_off_is_made_anew_and_holds_nothing_still() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    let mut volumes = Vec::new();
    let mut places = Vec::new();
    for name in ["a", "b"] {
        let volume = Volume::make(&client, request(name, 16 * MIB, &mounted(), &[("fs", "ext4")])).await;
        places.push(in_use(&plugin, &volume, name).await);
        volumes.push(volume);
    }
    let both: Vec<&Volume> = volumes.iter().collect();
    for round in 0..12_u64 {
        for (number, (_, target)) in places.iter().enumerate() {
            write(&target.join("file"), &format!("{round}-{number}")).expect("it takes writes");
        }
        let name = format!("cut-{round}");
        let moment = Duration::from_micros(1_500 * (round + 1));
        let cut_off = tokio::time::timeout(moment, create(&plugin, &name, &both)).await;
        plugin.end(Signal::KILL);
        plugin.restart();
        for (_, target) in &places {
            // The thaw may happen soon after the start, when no program of the killed plugin runs any more.
            write(&target.join("other"), "it goes on").expect("the start lets go what was held still");
        }
        let group = loop {
            match create(&plugin, &name, &both).await {
                Ok(group) => break group,
                // A program that the killed plugin had started still holds a lock.
                Err(status) if status.code() == Code::Aborted => tokio::task::yield_now().await,
                Err(status) => panic!("{status:?}\n{}", plugin.log()),
            }
        };
        if let Ok(Ok(answered)) = cut_off {
            assert_eq!(answered, group, "what was answered stays");
        }
        let ids = members(&group);
        delete(&plugin, &group.group_snapshot_id, &ids).await.expect("it is deleted");
    }
    // The next start completes a deletion that had begun.
    let group = create(&plugin, "last", &both).await.expect("it is made");
    plugin.end(Signal::KILL);
    let record = plugin.path("state/groups").join(format!("{}.json", group.group_snapshot_id));
    let text = fs::read_to_string(&record).expect("it is on disk");
    fs::write(&record, text.replace("\"ready\"", "\"deleting\"")).expect("it can be written");
    plugin.restart();
    for directory in ["snapshots", "groups"] {
        until("the deletion is ended", || left(&plugin, directory) == 0);
    }
    while let Err(error) = client.probe().await {
        assert!(error.is_retryable(), "{error}");
    }
    for (volume, (staging, target)) in volumes.iter().zip(&places) {
        volume.unpublish(target).await;
        volume.unstage(staging).await;
        volume.delete().await;
    }
    assert_eq!(left(&plugin, "data"), 0);
    until("the loop devices are freed", || plugin.loop_devices().is_empty());
}

/// A mount in the data of one member prevents the deletion of the whole group.
#[tokio::test]
async fn a_group_with_a_mount_inside_is_not_deleted() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let first = Volume::make(&client, request("first", 0, &mounted(), &[])).await;
    let second = Volume::make(&client, request("second", 0, &mounted(), &[])).await;
    let group = create(&plugin, "cut", &[&first, &second]).await.expect("it is made");
    let (id, ids) = (group.group_snapshot_id.clone(), members(&group));
    let source = plugin.make("source");
    fs::write(source.join("canary"), "kept").expect("it is written");
    let at = plugin.path("state/data").join(&ids[1]).join("a");
    fs::create_dir(&at).expect("it is made");
    rustix::mount::mount_bind(&source, &at).expect("it is bound");
    let (code, words) = refused(delete(&plugin, &id, &ids).await);
    assert!(code == Code::FailedPrecondition && words.contains(&at.display().to_string()), "{code} {words}");
    assert_eq!(fs::read_to_string(source.join("canary")).expect("it is there"), "kept");
    assert_eq!(get(&plugin, &id, &ids).await.expect("it is there"), group);
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::NOFOLLOW).expect("nobody uses it");
    delete(&plugin, &id, &ids).await.expect("it is deleted");
}
