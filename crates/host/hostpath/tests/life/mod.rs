//! Volumes through their whole life, including crashes, with the client that the orchestrator uses.

use crate::support::{Plugin, outcome};
use caravan_csi::*;
use rustix::process::Signal;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

fn capability() -> VolumeCapability {
    VolumeCapability::file_system(AccessMode::SingleNodeWriter)
}

fn create(name: &str, bytes: u64, parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: bytes }),
        capabilities: vec![capability()],
        parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Default::default()
    }
}

fn stage(volume: &CreatedVolume, staging: &Path) -> NodeStageRequest {
    NodeStageRequest {
        volume_id: volume.volume_id.clone(),
        publish_context: StringMap::new(),
        staging_target_path: staging.to_owned(),
        capability: capability(),
        secrets: Secrets::default(),
        context: volume.context.clone(),
    }
}

fn unstage(volume: &CreatedVolume, staging: &Path) -> NodeUnstageRequest {
    NodeUnstageRequest { volume_id: volume.volume_id.clone(), staging_target_path: staging.to_owned() }
}

fn publish(
    volume: &CreatedVolume,
    staging: Option<&Path>,
    target: &Path,
    readonly: bool,
) -> NodePublishRequest {
    NodePublishRequest {
        volume_id: volume.volume_id.clone(),
        publish_context: StringMap::new(),
        staging_target_path: staging.map(Path::to_owned),
        target_path: target.to_owned(),
        capability: capability(),
        readonly,
        secrets: Secrets::default(),
        context: volume.context.clone(),
    }
}

fn unpublish(volume: &CreatedVolume, target: &Path) -> NodeUnpublishRequest {
    NodeUnpublishRequest { volume_id: volume.volume_id.clone(), target_path: target.to_owned() }
}

fn delete(volume: &CreatedVolume) -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: volume.volume_id.clone(), secrets: Secrets::default() }
}

fn class<T: std::fmt::Debug>(result: Result<T, CsiError>) -> Option<Class> {
    result.expect_err("it is refused").class()
}

fn error_kind(result: io::Result<()>) -> io::ErrorKind {
    result.expect_err("it is refused").kind()
}

#[test]
fn the_socket_is_closed_to_others_and_gone_after_the_end() {
    let mut plugin = Plugin::start(&[]);
    let mode = fs::metadata(plugin.socket()).expect("it serves").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, text) = outcome(plugin.command());
    assert_eq!(code, Some(1));
    assert!(text.contains("another process serves on"), "{text}");

    assert_eq!(plugin.end(Signal::TERM).code(), Some(0));
    assert!(!plugin.socket().exists());

    // The socket of a killed process is replaced.
    plugin.restart();
    plugin.end(Signal::KILL);
    assert!(plugin.socket().exists());
    plugin.restart();
    assert_eq!(plugin.end(Signal::INT).code(), Some(0));
    assert!(!plugin.socket().exists());
}

#[test]
fn a_wrong_command_line_ends_with_a_sentence() {
    let plugin = Plugin::start(&[]);
    let mut command = plugin.command();
    command.arg("--fs=ntfs");
    assert_eq!(
        outcome(command),
        (Some(2), "caravan plugin hostpath: --fs is ext4 or xfs, not \"ntfs\"\n".to_owned())
    );
}

#[tokio::test]
async fn a_directory_volume_survives_a_killed_plugin() {
    let mut plugin = Plugin::start(&[]);
    let client = plugin.client();
    let volume = client.create_volume(create("data", 1 << 20, &[])).await.expect("it is made");
    assert_eq!(volume.capacity_bytes, 1 << 20);
    assert_eq!(volume.accessible_topology.len(), 1);
    let (staging, parent) = (plugin.make("staging/ns/data/rw"), plugin.make("per-alloc/a1/data"));
    let (writer, reader) = (parent.join("rw"), parent.join("ro"));

    let too_early = client.node_publish(publish(&volume, Some(&staging), &writer, false)).await;
    assert_eq!(class(too_early), Some(Class::FailedPrecondition));
    client.node_stage(stage(&volume, &staging)).await.expect("it is staged");
    client.node_publish(publish(&volume, Some(&staging), &writer, false)).await.expect("it is published");
    client.node_publish(publish(&volume, Some(&staging), &reader, true)).await.expect("it is published");
    fs::write(writer.join("file"), "written").expect("the writer writes");
    assert_eq!(error_kind(fs::write(reader.join("file"), "no")), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(reader.join("file")).expect("the reader reads"), "written");
    assert_eq!(plugin.mounts().len(), 3);

    plugin.end(Signal::KILL);
    plugin.restart();

    // The client reconnects to the new process by itself.
    while let Err(error) = client.probe().await {
        assert!(error.is_retryable(), "{error}");
    }

    // Repeated calls change nothing; different ones are recognized.
    assert_eq!(client.create_volume(create("data", 1 << 20, &[])).await.as_ref(), Ok(&volume));
    assert_eq!(class(client.create_volume(create("data", 1 << 21, &[])).await), Some(Class::AlreadyExists));
    client.node_stage(stage(&volume, &staging)).await.expect("it is staged");
    client.node_publish(publish(&volume, Some(&staging), &reader, true)).await.expect("it is published");
    let differently = client.node_publish(publish(&volume, Some(&staging), &reader, false)).await;
    assert_eq!(class(differently), Some(Class::AlreadyExists));
    assert_eq!(plugin.mounts().len(), 3);
    assert_eq!(class(client.delete_volume(delete(&volume)).await), Some(Class::FailedPrecondition));

    let stats = NodeStatsRequest {
        volume_id: volume.volume_id.clone(),
        volume_path: writer.clone(),
        staging_target_path: None,
    };
    let stats = client.node_get_volume_stats(stats).await.expect("it is mounted");
    assert!(stats.bytes.expect("bytes are counted").total > 0);

    for target in [&writer, &reader, &writer] {
        client.node_unpublish(unpublish(&volume, target)).await.expect("it is unpublished");
        assert!(!target.exists());
    }
    for _ in 0..2 {
        client.node_unstage(unstage(&volume, &staging)).await.expect("it is unstaged");
    }
    assert!(staging.is_dir(), "the staging directory belongs to the caller");
    assert_eq!(plugin.mounts(), Vec::<String>::new());
    for _ in 0..2 {
        client.delete_volume(delete(&volume)).await.expect("it is deleted");
    }
    assert_eq!(fs::read_dir(plugin.path("state/data")).expect("it is there").count(), 0);
    assert_eq!(class(client.node_stage(stage(&volume, &staging)).await), Some(Class::NotFound));
}

#[tokio::test]
async fn an_enforced_volume_is_full_when_it_is_full_and_keeps_its_data() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let request = create("data", 16 << 20, &[("enforce", "true")]);
    let volume = client.create_volume(request).await.expect("it is made");
    assert_eq!(volume.capacity_bytes, 16 << 20);
    let (first, second, parent) =
        (plugin.make("staging 1"), plugin.make("staging-2"), plugin.make("targets"));
    let (one, two) = (parent.join("one"), parent.join("two"));

    client.node_stage(stage(&volume, &first)).await.expect("it is staged");
    client.node_publish(publish(&volume, Some(&first), &one, false)).await.expect("it is published");
    assert_eq!(fs::metadata(&one).expect("it is there").permissions().mode() & 0o777, 0o777);
    fs::write(one.join("file"), "written").expect("there is room");
    assert_eq!(error_kind(fs::write(one.join("large"), vec![0; 17 << 20])), io::ErrorKind::StorageFull);
    fs::remove_file(one.join("large")).expect("it can be removed");

    // A second staging path shows the same file system, and outlives the first.
    client.node_stage(stage(&volume, &second)).await.expect("it is staged");
    client.node_publish(publish(&volume, Some(&second), &two, true)).await.expect("it is published");
    client.node_unpublish(unpublish(&volume, &one)).await.expect("it is unpublished");
    client.node_unstage(unstage(&volume, &first)).await.expect("it is unstaged");
    assert_eq!(fs::read_to_string(two.join("file")).expect("it is there"), "written");
    client.node_unpublish(unpublish(&volume, &two)).await.expect("it is unpublished");
    client.node_unstage(unstage(&volume, &second)).await.expect("it is unstaged");
    assert_eq!(plugin.mounts(), Vec::<String>::new());

    client.node_stage(stage(&volume, &first)).await.expect("it is staged");
    assert_eq!(fs::read_to_string(first.join("file")).expect("it is there"), "written");
    client.node_unstage(unstage(&volume, &first)).await.expect("it is unstaged");
    client.delete_volume(delete(&volume)).await.expect("it is deleted");
}

#[tokio::test]
async fn controller_publish_comes_first_and_ends_old_contexts() {
    let plugin = Plugin::start(&["--controller-publish"]);
    let client = plugin.client();
    let volume = client.create_volume(create("data", 1 << 20, &[])).await.expect("it is made");
    let staging = plugin.make("staging");
    let attach = ControllerPublishRequest {
        volume_id: volume.volume_id.clone(),
        node_id: "node-1".to_owned(),
        capability: capability(),
        readonly: false,
        secrets: Secrets::default(),
        context: volume.context.clone(),
    };
    let detach = ControllerUnpublishRequest {
        volume_id: volume.volume_id.clone(),
        node_id: "node-1".to_owned(),
        secrets: Secrets::default(),
    };
    let with = |publish_context: &StringMap| NodeStageRequest {
        publish_context: publish_context.clone(),
        ..stage(&volume, &staging)
    };

    let without = client.node_stage(stage(&volume, &staging)).await;
    assert_eq!(class(without), Some(Class::FailedPrecondition));
    let other = ControllerPublishRequest { node_id: "node-2".to_owned(), ..attach.clone() };
    assert_eq!(class(client.controller_publish(other).await), Some(Class::NotFound));

    let old = client.controller_publish(attach.clone()).await.expect("it is published");
    assert_eq!(client.controller_publish(attach.clone()).await.as_ref(), Ok(&old));
    assert_eq!(class(client.delete_volume(delete(&volume)).await), Some(Class::FailedPrecondition));
    let page = client.list_volumes(0, "").await.expect("it lists");
    assert_eq!(page.entries[0].published_node_ids, ["node-1"]);
    client.controller_unpublish(detach.clone()).await.expect("it is unpublished");
    client.controller_unpublish(detach.clone()).await.expect("it is unpublished");

    let new = client.controller_publish(attach).await.expect("it is published");
    assert_eq!(class(client.node_stage(with(&old)).await), Some(Class::FailedPrecondition));
    client.node_stage(with(&new)).await.expect("it is staged");
    client.node_unstage(unstage(&volume, &staging)).await.expect("it is unstaged");
    client.controller_unpublish(detach).await.expect("it is unpublished");
    client.delete_volume(delete(&volume)).await.expect("it is deleted");
}

#[tokio::test]
async fn one_call_at_a_time_for_a_volume_and_pages_for_a_list() {
    let plugin = Plugin::start(&["--no-stage"]);
    let client = plugin.client();
    let mut volumes = Vec::new();
    for name in ["a", "b", "c"] {
        volumes.push(client.create_volume(create(name, 0, &[])).await.expect("it is made"));
    }
    let mut ids = Vec::new();
    let mut token = Some(String::new());
    while let Some(from) = token {
        let page = client.list_volumes(2, &from).await.expect("it lists");
        ids.extend(page.entries.into_iter().map(|entry| entry.volume.volume_id));
        token = page.next_token;
    }
    let mut expected: Vec<String> = volumes.iter().map(|volume| volume.volume_id.clone()).collect();
    expected.sort();
    assert_eq!(ids, expected);
    assert_eq!(class(client.list_volumes(0, "elsewhere").await), Some(Class::Aborted));

    // The holder of the lock, here the test, counts as another operation in progress.
    let (volume, target) = (&volumes[0], plugin.path("target"));
    let lock: PathBuf = plugin.path("state/locks").join(&volume.volume_id);
    let lock = fs::File::options().write(true).open(lock).expect("it was locked before");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("it is free");
    let error = client.node_publish(publish(volume, None, &target, false)).await.expect_err("it is busy");
    assert_eq!(error.class(), Some(Class::Aborted));
    assert!(error.is_retryable());
    drop(lock);

    client.node_publish(publish(volume, None, &target, false)).await.expect("it is free");
    // A mount of another volume is not unmounted.
    let others = client.node_unpublish(unpublish(&volumes[1], &target)).await;
    assert_eq!(class(others), Some(Class::Internal));
    client.node_unpublish(unpublish(volume, &target)).await.expect("it is unpublished");

    // A target with content that is not a mount is kept.
    let kept = plugin.make("kept");
    fs::write(kept.join("file"), "keep").expect("it can be written");
    let refused = client.node_unpublish(unpublish(volume, &kept)).await;
    assert_eq!(class(refused), Some(Class::Internal));
    assert!(kept.join("file").exists());
}

#[tokio::test]
async fn a_creation_that_was_cut_off_is_made_anew() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let request = create("data", 8 << 20, &[("fs", "ext4")]);
    let volume = client.create_volume(request.clone()).await.expect("it is made");
    let record = plugin.path("state/records").join(format!("{}.json", volume.volume_id));
    let image = plugin.path("state/data").join(format!("{}.img", volume.volume_id));

    let text = fs::read_to_string(&record).expect("it is on disk");
    fs::write(&record, text.replace("\"ready\"", "\"creating\"")).expect("it can be written");
    fs::write(&image, "half an image").expect("it can be written");
    assert_eq!(client.list_volumes(0, "").await.expect("it lists").entries, []);
    assert_eq!(client.create_volume(request.clone()).await.as_ref(), Ok(&volume));
    assert_eq!(fs::metadata(&image).expect("it is there").len(), 8 << 20);

    // Data without a record may belong to a user, so it is not overwritten.
    fs::remove_file(&record).expect("it is there");
    let error = client.create_volume(request).await.expect_err("the data is there");
    assert!(error.to_string().contains("is there without a record; it is kept"), "{error}");
    assert!(image.exists());
}

#[tokio::test]
async fn a_missing_program_is_named_and_nothing_is_left_of_the_attempt() {
    let mut plugin = Plugin::prepare(&[]);
    let mut command = plugin.command();
    command.env("PATH", plugin.path("no-programs"));
    plugin.start_command(command);
    let client = plugin.client();
    let error = client.create_volume(create("data", 8 << 20, &[("fs", "ext4")])).await.expect_err("no mkfs");
    assert_eq!(
        error.to_string(),
        "CreateVolume failed with INTERNAL: mkfs.ext4 failed: it is not installed here (package e2fsprogs)"
    );
    for directory in ["state/records", "state/data", "state/locks"] {
        assert_eq!(fs::read_dir(plugin.path(directory)).expect("it is there").count(), 0, "{directory}");
    }
    client.create_volume(create("data", 0, &[])).await.expect("a directory needs no program");
}
