use super::*;
use crate::alloc_dir::{AllocDir, Secrets, own_user};
use caravan_sys::mount::{self, Unmount};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn dirs(base: &Path) -> TaskDir {
    TaskDir { root: base.join("a1/web"), shared: base.join("a1/alloc") }
}

#[test]
fn destinations_in_the_allocation_stay_and_others_are_rooted_at_the_task() {
    let dirs = dirs(Path::new("/data/alloc"));
    let at = |text: &str| place(Path::new(text), &dirs);
    assert_eq!(at("/data/alloc/a1/alloc/data/vol"), Path::new("/data/alloc/a1/alloc/data/vol"));
    assert_eq!(at("/srv/data"), Path::new("/data/alloc/a1/web/srv/data"));
    assert_eq!(at("local/data"), Path::new("/data/alloc/a1/web/local/data"));
    assert_eq!(at("/secrets"), Path::new("/data/alloc/a1/web/secrets"));
    assert_eq!(at("/"), Path::new("/data/alloc/a1/web"));
    // `..` is resolved as in a chroot: it never leads out.
    assert_eq!(at("/srv/../../etc"), Path::new("/data/alloc/a1/web/etc"));
    assert_eq!(at("/data/alloc/a1/web/../alloc/vol"), Path::new("/data/alloc/a1/alloc/vol"));
    assert_eq!(at("/data/alloc/a1/../b2/web"), Path::new("/data/alloc/a1/web/data/alloc/b2/web"));
}

#[test]
fn a_volume_may_cover_any_directory_of_the_task_and_uncovers_it_again() {
    let (base, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(volume.path().join("f"), "x").unwrap();
    let dir = AllocDir::new(base.path(), &"a1".into());
    dir.build().unwrap();
    let dirs = dir.build_task("web", Secrets { size_mb: 0, user: own_user(), mode: 0o700 }).unwrap();
    fs::write(dirs.secrets().join("token"), "t").unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
    let covered = [dirs.secrets(), dirs.private(), dirs.local(), dirs.shared.clone(), dirs.root.clone()];
    let before: Vec<u32> = covered.iter().map(|p| mode(p)).collect();
    for target in &covered {
        let wish = Mount {
            host_path: volume.path().to_owned(),
            task_path: target.clone(),
            read_only: false,
            propagation: Propagation::Private,
        };
        let wishes = std::slice::from_ref(&wish);
        // Twice: the first mount represents a mount that a crash of the agent left.
        let _left = Binds::make(wishes, &dirs).unwrap();
        let mut binds = Binds::make(wishes, &dirs).unwrap();
        assert_eq!(fs::read_to_string(target.join("f")).unwrap(), "x", "{}", target.display());
        binds.undo();
        // Undoing binds that an earlier agent did not create ends no mount of the task's own.
        Binds::adopt(wishes, &dirs).undo();
        assert!(!target.join("f").exists(), "{}", target.display());
    }
    assert_eq!(covered.iter().map(|p| mode(p)).collect::<Vec<_>>(), before);
    assert_eq!(fs::read_to_string(dirs.secrets().join("token")).unwrap(), "t");
    dir.destroy().unwrap();
}

proptest! {
    #[test]
    fn no_destination_leads_out(text in "[a-z./]{0,40}") {
        let dirs = dirs(Path::new("/d"));
        let path = place(Path::new(&text), &dirs);
        prop_assert!(path.starts_with("/d/a1") && path != Path::new("/d/a1"));
    }
}

#[test]
fn a_volume_is_bound_protected_and_gone_again() {
    let base = tempfile::tempdir().unwrap();
    let dirs = dirs(base.path());
    fs::create_dir_all(&dirs.root).unwrap();
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("f"), "x").unwrap();
    let wish = Mount {
        host_path: volume.path().to_owned(),
        task_path: "/srv".into(),
        read_only: true,
        propagation: Propagation::Private,
    };
    let mut binds = Binds::make(std::slice::from_ref(&wish), &dirs).unwrap();
    let inside = dirs.root.join("srv/f");
    assert_eq!(fs::read_to_string(&inside).unwrap(), "x");
    assert!(fs::write(&inside, "y").is_err(), "read-only holds");
    let again = Binds::make(std::slice::from_ref(&wish), &dirs).unwrap();
    assert_eq!(again.targets.len(), 1);
    binds.undo();
    assert!(!dirs.root.join("srv").exists());
}

fn wish_of(volume: &Path, place: &str) -> Mount {
    Mount {
        host_path: volume.to_owned(),
        task_path: place.into(),
        read_only: false,
        propagation: Propagation::Private,
    }
}

#[test]
fn a_link_that_leads_out_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (dirs, elsewhere) = (dirs(base.path()), tempfile::tempdir().unwrap());
    fs::create_dir_all(&dirs.root).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dirs.root.join("srv")).unwrap();
    let wish = wish_of(base.path(), "/srv/data");
    let error = Binds::make(std::slice::from_ref(&wish), &dirs).unwrap_err();
    assert!(error.contains("web/srv") && error.contains("/srv/data"), "{error}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing is made behind the link");
    // Undoing does not follow links either: foreign mounts behind a link stay.
    let behind = elsewhere.path().join("data");
    fs::create_dir_all(&behind).unwrap();
    mount::mount_tmpfs(&behind, 1 << 20, 0o755).unwrap();
    Binds::adopt(&[wish], &dirs).undo();
    assert!(mount::is_mount_point(&behind).unwrap());
    mount::unmount(&behind, Unmount::Lazy).unwrap();
}

/// A file behind a link keeps its mode and owner and is not removed, whether a volume is bound or undone there.
#[test]
fn targets_of_every_kind_that_a_task_plants_are_left_alone() {
    let (base, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = dirs(base.path());
    fs::create_dir_all(&dirs.root).unwrap();
    let device = volume.path().join("device");
    fs::write(&device, "block").unwrap();
    let outside = base.path().join("outside");
    fs::create_dir_all(outside.join("empty")).unwrap();
    fs::write(outside.join("file"), "").unwrap();
    fs::set_permissions(outside.join("empty"), fs::Permissions::from_mode(0o700)).unwrap();
    let fifo = |at: &Path| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
    };
    let link = |target: PathBuf| move |at: &Path| std::os::unix::fs::symlink(&target, at).unwrap();
    let hard = |at: &Path| fs::hard_link(outside.join("file"), at).unwrap();
    let plants: [&dyn Fn(&Path); 7] = [
        &hard,
        &link(outside.join("empty")),
        &link("../../../outside/empty".into()),
        &link(outside.join("none")),
        &link(outside.join("file")),
        &link("/".into()),
        &fifo,
    ];
    let above = dirs.root.join("srv");
    for (i, plant) in plants.iter().enumerate() {
        for (place, source) in [("/srv", volume.path()), ("/srv", device.as_path())] {
            plant(&above);
            let wishes = [wish_of(source, place)];
            let error = Binds::make(&wishes, &dirs).unwrap_err();
            assert!(error.contains("/srv"), "{error}");
            Binds::adopt(&wishes, &dirs).undo();
            assert!(above.symlink_metadata().is_ok(), "{i}: it is the task's own");
            fs::remove_file(&above).unwrap();
        }
    }
    let meta = fs::metadata(outside.join("empty")).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, fs::read_dir(&outside).unwrap().count()), (0o700, 2));
    fs::write(outside.join("file"), "not sealed").unwrap();
    assert_eq!(fs::metadata("/").unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_file_target_is_bound_protected_and_gone_again() {
    let (base, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = dirs(base.path());
    fs::create_dir_all(&dirs.root).unwrap();
    let device = volume.path().join("device");
    fs::write(&device, "block").unwrap();
    let wishes = [wish_of(&device, "/dev/disk")];
    for _ in 0..2 {
        let mut binds = Binds::make(&wishes, &dirs).unwrap();
        let at = dirs.root.join("dev/disk");
        assert_eq!(fs::read_to_string(&at).unwrap(), "block");
        mount::unmount(&at, Unmount::Lazy).unwrap();
        assert!(fs::write(&at, "lost").is_err(), "without its mount nothing is written");
        binds.undo();
        assert!(!at.exists());
    }
}

/// A task moves a directory above its volume: the volume is unmounted all the same.
#[test]
fn a_volume_that_was_moved_is_ended() {
    let (base, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = dirs(base.path());
    fs::create_dir_all(dirs.local()).unwrap();
    let mut binds = Binds::make(&[wish_of(volume.path(), "local/a/vol")], &dirs).unwrap();
    fs::rename(dirs.local().join("a"), base.path().join("moved")).unwrap();
    assert!(mount::is_mount_point(&base.path().join("moved/vol")).unwrap());
    binds.undo();
    let table = caravan_sys::mountinfo::MountTable::read().unwrap();
    assert_eq!(table.under(&base.path().canonicalize().unwrap()).count(), 0);
}

/// A sibling task replaces directories by links while volumes are bound and undone.
#[test]
fn swapped_directories_take_no_volume_outside() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (base, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = dirs(base.path());
    let outside = base.path().join("outside");
    fs::create_dir_all(dirs.local().join("a/vol")).unwrap();
    fs::create_dir_all(outside.join("vol")).unwrap();
    fs::set_permissions(outside.join("vol"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&outside, dirs.local().join("way")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            while !stop.load(Ordering::Relaxed) {
                let (one, other) = (dirs.local().join("a"), dirs.local().join("way"));
                rustix::fs::renameat_with(cwd, one, cwd, other, flags).unwrap();
            }
        });
        for _ in 0..300 {
            let wishes = [wish_of(volume.path(), "local/a/vol"), wish_of(volume.path(), "local/way/vol")];
            for wish in &wishes {
                if let Ok(mut binds) = Binds::make(std::slice::from_ref(wish), &dirs) {
                    assert!(!mount::is_mount_point(&outside.join("vol")).unwrap());
                    binds.undo();
                }
            }
            Binds::adopt(&wishes, &dirs).undo();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let table = caravan_sys::mountinfo::MountTable::read().unwrap();
    assert_eq!(table.under(&base.path().canonicalize().unwrap()).count(), 0, "no mount is left");
    let meta = fs::metadata(outside.join("vol")).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, fs::read_dir(&outside).unwrap().count()), (0o700, 1));
}
