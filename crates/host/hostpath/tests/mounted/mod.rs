//! Mounts inside the data of a volume: a task that uses the volume made them, and deleting the volume must not empty
//! the mounted file systems.

use crate::support::{
    Plugin,
    volumes::{Volume, mounted, request},
};
use caravan_csi::{Class, CsiError, DeleteSnapshotRequest, DeleteVolumeRequest, Secrets};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount},
    process::Signal,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The kind of mount in the volume.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bind,
    Memory,
    Device,
}

/// A mount that contains a file.
struct Foreign {
    at: PathBuf,
    kind: Kind,
    image: PathBuf,
    source: PathBuf,
}

impl Foreign {
    fn make(plugin: &Plugin, kind: Kind, at: &Path) -> Self {
        let (image, source) = (plugin.path("image"), plugin.make("source"));
        match kind {
            Kind::Bind => mount_bind(&source, at).expect("it is bound"),
            Kind::Memory => {
                mount("tmpfs", at, "tmpfs", MountFlags::empty(), c"size=1m").expect("it is mounted");
            }
            Kind::Device => {
                let file = fs::File::create(&image).expect("it is made");
                file.set_len(8 << 20).expect("it grows");
                run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), &image]);
                run("mount", &["-o".as_ref(), "loop".as_ref(), &image, at]);
            }
        }
        fs::create_dir_all(at.join("deep")).expect("it is writable");
        fs::write(at.join("deep/canary"), "kept").expect("it is writable");
        Self { at: at.to_owned(), kind, image, source }
    }

    fn assert_whole(&self) {
        let text = fs::read_to_string(self.at.join("deep/canary"));
        assert_eq!(text.expect("it is there"), "kept", "{:?}", self.kind);
    }

    fn end(&self) {
        unmount(&self.at, UnmountFlags::NOFOLLOW).expect("nobody uses it");
        let _ = (fs::remove_file(&self.image), fs::remove_file(self.source.join("deep/canary")));
        let _ = fs::remove_dir(self.source.join("deep"));
    }
}

fn run(program: &str, args: &[&Path]) {
    let status = Command::new(program).args(args).status().expect("it starts");
    assert!(status.success(), "{program}");
}

const KINDS: [Kind; 3] = [Kind::Bind, Kind::Memory, Kind::Device];

fn refused_at<T: std::fmt::Debug>(result: Result<T, CsiError>, at: &Path) {
    let error = result.expect_err("it is refused");
    assert_eq!(error.class(), Some(Class::FailedPrecondition), "{error}");
    let words = error.to_string();
    assert!(words.contains(&at.display().to_string()), "{words}");
}

#[tokio::test]
async fn a_volume_with_a_mount_inside_is_not_deleted() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    for kind in KINDS {
        let volume = Volume::make(&client, request("v", 0, &mounted(), &[])).await;
        let data = plugin.path("state/data").join(volume.id());
        fs::create_dir_all(data.join("a/b")).expect("it is made");
        fs::write(data.join("file"), "x").expect("it is written");
        for below in ["a/b", "a", ""] {
            let foreign = Foreign::make(&plugin, kind, &data.join(below).components().collect::<PathBuf>());
            let delete = DeleteVolumeRequest { volume_id: volume.id(), secrets: Secrets::default() };
            refused_at(client.delete_volume(delete).await, &foreign.at);
            foreign.assert_whole();
            foreign.end();
            assert!(data.join("file").exists(), "nothing of the volume is gone: it is as usable as before");
        }
        volume.delete().await;
        assert!(!data.exists());
    }
}

#[tokio::test]
async fn a_snapshot_with_a_mount_inside_is_not_deleted() {
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let volume = Volume::make(&client, request("v", 0, &mounted(), &[])).await;
    for kind in KINDS {
        let snapshot = volume.snapshot("s").await.expect("it is taken");
        let data = plugin.path("state/data").join(&snapshot.snapshot_id);
        fs::create_dir(data.join("a")).expect("it is made");
        let foreign = Foreign::make(&plugin, kind, &data.join("a"));
        let delete = || DeleteSnapshotRequest {
            snapshot_id: snapshot.snapshot_id.clone(),
            secrets: Secrets::default(),
        };
        refused_at(client.delete_snapshot(delete()).await, &foreign.at);
        foreign.assert_whole();
        foreign.end();
        client.delete_snapshot(delete()).await.expect("it is deleted");
        assert!(!data.exists());
    }
}

/// The deletion had begun before the mount was made. The plugin's next start completes it, but deletes nothing in the
/// mount.
#[tokio::test]
async fn what_is_tidied_at_the_start_is_not_emptied_through_a_mount() {
    let mut plugin = Plugin::start(&[]);
    let volume = Volume::make(&plugin.client(), request("v", 0, &mounted(), &[])).await;
    let (data, id) = (plugin.path("state/data").join(volume.id()), volume.id());
    let record = plugin.path("state/records").join(format!("{id}.json"));
    let text = fs::read_to_string(&record).expect("it is there");
    assert!(text.contains("\"ready\""), "{text}");
    fs::write(&record, text.replace("\"ready\"", "\"deleting\"")).expect("it is written");
    fs::create_dir(data.join("a")).expect("it is made");
    plugin.end(Signal::TERM);
    let foreign = Foreign::make(&plugin, Kind::Bind, &data.join("a"));
    plugin.restart();
    foreign.assert_whole();
    let delete = || DeleteVolumeRequest { volume_id: id.clone(), secrets: Secrets::default() };
    refused_at(plugin.client().delete_volume(delete()).await, &foreign.at);
    foreign.assert_whole();
    foreign.end();
    plugin.client().delete_volume(delete()).await.expect("it is deleted");
    assert!(!data.exists() && !record.exists());
}
