//! Tests in which tasks plant links, hard links and FIFOs, and replace directories, while root writes below them.

use super::templates::place::Places;
use super::users::{TaskUser, Users};
use super::{identity, payload};
use crate::alloc_dir::TaskDir;
use crate::task_api;
use base64::Engine as _;
use caravan_sys::dir::{Access, Dir, Owner};
use caravan_types::acl::Secret;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::{DispatchPayload, Job, Task};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const ROUNDS: usize = 400;
const USER: Owner = Owner { uid: Some(65534), gid: Some(65534) };

/// A guard that stops the thread that plants files.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The directories of a task, and a file of root outside of them.
struct World {
    _base: tempfile::TempDir,
    dirs: TaskDir,
    outside: PathBuf,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("web"), shared: base.path().join("alloc") };
        let outside = base.path().join("outside");
        for dir in [&dirs.local().join("deep/er"), &dirs.secrets(), &dirs.shared.join("data"), &outside] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(outside.join("canary"), "precious content").unwrap();
        fs::set_permissions(&outside, PermissionsExt::from_mode(0o700)).unwrap();
        Self { _base: base, dirs, outside }
    }

    /// Replaces a file atomically with a planted one.
    fn plant(&self, file: &Path, round: usize) {
        let (canary, beside) = (self.outside.join("canary"), file.with_extension("beside"));
        let _gone = fs::remove_file(&beside);
        match round % 4 {
            0 => symlink(&canary, &beside).unwrap(),
            1 => symlink(&self.outside, &beside).unwrap(),
            2 => fs::hard_link(&canary, &beside).unwrap(),
            _ => mknodat(CWD, &beside, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        }
        // The directory may be a link now, or a written file may have the name of a directory.
        let _either = fs::rename(&beside, file);
    }

    /// Calls `write` some hundred times while files are planted and directories are replaced by links, and a last
    /// time without interference.
    fn race(&self, files: &[&str], dirs: &[&str], write: impl Fn() -> Result<(), String>) {
        let at = |names: &[&str]| names.iter().map(|name| self.dirs.root.join(name)).collect::<Vec<_>>();
        let (files, dirs) = (at(files), at(dirs));
        for dir in &dirs {
            symlink(&self.outside, dir.with_extension("way")).unwrap();
        }
        let swap = || {
            for dir in &dirs {
                renameat_with(CWD, dir, CWD, dir.with_extension("way"), RenameFlags::EXCHANGE).unwrap();
            }
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops_when_the_writer_panics = Stop(&stop);
            scope.spawn(|| {
                for round in 0.. {
                    for file in &files {
                        self.plant(file, round);
                    }
                    swap();
                    // Ends with the directories in their original places.
                    if round % 2 == 1 && stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..ROUNDS {
                // Fails if a directory is a link at that moment.
                let _either = write();
            }
        });
        self.check();
        write().unwrap();
        self.check();
    }

    fn check(&self) {
        let canary = self.outside.join("canary");
        let seen = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            (meta.uid(), meta.gid(), meta.mode() & 0o7777)
        };
        assert_eq!((seen(&self.outside), seen(&canary)), ((0, 0, 0o700), (0, 0, 0o644)));
        assert_eq!(fs::read_to_string(&canary).unwrap(), "precious content");
        let names: Vec<_> = fs::read_dir(&self.outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        // Planted entries may have been moved here by the task through its own link; files written by root may not.
        assert!(names.iter().all(|name| *name == "canary"), "{names:?}");
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.dirs.root.join(file)).unwrap()
    }
}

#[test]
fn payloads_reach_nothing_outside() {
    for (file, dirs) in
        [("input", &[][..]), ("deep/er/input", &["local/deep"]), ("deep/x/input", &["local/deep"])]
    {
        let world = World::new();
        let encoded = base64::engine::general_purpose::STANDARD.encode("payload");
        let job = Job { payload: encoded, ..Job::default() };
        let task = Task { dispatch_payload: Some(DispatchPayload { file: file.into() }), ..Task::default() };
        let files: &[&str] = if dirs.is_empty() { &["local/input"] } else { &[] };
        world.race(files, dirs, || payload::write(&world.dirs, &job, &task));
        assert_eq!(world.text(&format!("local/{file}")), "payload");
    }
}

#[test]
fn identities_and_their_renewals_reach_nothing_outside() {
    for (path, files, dirs) in [
        ("", &["secrets/nomad_token", "secrets/.nomad_token.tmp"][..], &[][..]),
        ("local/id", &["local/id"], &[]),
        ("local/deep/er/id", &[], &["local/deep"]),
        ("local/deep/new/id", &[], &["local/deep"]),
    ] {
        let world = World::new();
        let mut spec = IdentitySpec { file: true, ..IdentitySpec::default_one() };
        spec.filepath = path.into();
        let signed = vec![(spec, Secret::new("jwt"))];
        world.race(files, dirs, || identity::write(&world.dirs, &signed, USER));
        assert_eq!(world.text(if path.is_empty() { "secrets/nomad_token" } else { path }), "jwt");
    }
}

#[test]
fn templates_neither_write_nor_read_anything_outside() {
    let access = Access { mode: 0o640, owner: USER };
    for (path, files, dirs) in [
        ("local/conf", &["local/conf"][..], &[][..]),
        ("local/deep/conf", &[], &["local/deep"]),
        ("local/deep/er/conf", &[], &["local/deep"]),
        ("local/deep/new/conf", &[], &["local/deep"]),
    ] {
        let world = World::new();
        let places = Places::new(world.dirs.clone(), false, Users::new(vec![TaskUser::Nobody]));
        world.race(files, dirs, || {
            if let Ok(Some(bytes)) = places.read(path) {
                assert_ne!(bytes, b"precious content", "{path}");
            }
            places.write(path, b"rendered", access)
        });
        assert_eq!(world.text(path), "rendered");
    }
}

#[tokio::test]
async fn sockets_of_the_api_reach_nothing_outside() {
    let world = World::new();
    world.race(&["secrets/api.sock"], &[], || {
        let secrets = Dir::open(&world.dirs.secrets()).map_err(|error| error.to_string())?;
        task_api::bind(&secrets).map(drop).map_err(|error| error.to_string())
    });
    tokio::net::UnixStream::connect(world.dirs.secrets().join("api.sock")).await.unwrap_err();
}
