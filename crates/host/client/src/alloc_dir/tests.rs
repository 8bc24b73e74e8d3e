use super::*;
use caravan_sys::mount::{Unmount, bind, is_mount_point, unmount};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

const NOBODY: u32 = 65534;

fn secrets() -> Secrets {
    Secrets { size_mb: 0, user: Owner::new(NOBODY, NOBODY), mode: 0o700 }
}

fn seen(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.permissions().mode() & 0o7777)
}

fn check_modes(dir: &AllocDir, task: &TaskDir) {
    for (path, access) in [
        (dir.root().to_owned(), (0, 0o755)),
        (dir.shared(), (0, 0o1777)),
        (dir.shared().join("data"), (0, 0o777)),
        (dir.logs(), (0, 0o777)),
        (dir.shared().join("tmp"), (0, 0o777)),
        (task.root.clone(), (0, 0o1777)),
        (task.local(), (0, 0o777)),
        (task.root.join("tmp"), (0, 0o1777)),
        (task.secrets(), (NOBODY, 0o700)),
        (task.private(), (0, 0o700)),
    ] {
        assert_eq!(seen(&path), access, "{}", path.display());
    }
}

#[test]
fn directories_are_built_twice_and_destroyed_whole() {
    let base = tempfile::tempdir().unwrap();
    let dir = AllocDir::new(base.path(), &"a1".into());
    for _ in 0..2 {
        dir.build().unwrap();
        let web = dir.build_task("web", secrets()).unwrap();
        assert!(is_mount_point(&web.secrets()).unwrap() && is_mount_point(&web.private()).unwrap());
        check_modes(&dir, &web);
    }
    fs::write(dir.task("web").secrets().join("token"), "t").unwrap();
    dir.destroy().unwrap();
    assert!(!dir.root().exists());
    let table = MountTable::read().unwrap();
    assert_eq!(table.under(base.path()).count(), 0);
    dir.destroy().unwrap();
}

/// Earlier agents created all directories with the owner nobody and access for every user.
#[test]
fn directories_of_an_earlier_agent_get_owners_and_modes() {
    let base = tempfile::tempdir().unwrap();
    let dir = AllocDir::new(base.path(), &"a1".into());
    let web = dir.task("web");
    let old = ["alloc/data", "alloc/logs", "alloc/tmp", "web/local", "web/secrets", "web/private", "web/tmp"];
    for path in old {
        fs::create_dir_all(dir.root().join(path)).unwrap();
    }
    for (path, mode) in [
        ("alloc", 0o777),
        ("alloc/data", 0o777),
        ("alloc/logs", 0o777),
        ("alloc/tmp", 0o777),
        ("web", 0o777),
        ("web/local", 0o777),
    ] {
        let path = dir.root().join(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for (path, mode) in [(web.secrets(), 0o777), (web.private(), 0o700)] {
        mount_tmpfs(&path, 1 << 20, mode).unwrap();
    }
    fs::write(web.secrets().join("token"), "t").unwrap();
    dir.build().unwrap();
    dir.build_task("web", secrets()).unwrap();
    check_modes(&dir, &web);
    assert_eq!(fs::read_to_string(web.secrets().join("token")).unwrap(), "t");
    let table = MountTable::read().unwrap();
    assert_eq!(table.under(&base.path().canonicalize().unwrap()).count(), 2, "nothing is mounted twice");
    dir.destroy().unwrap();
}

/// Replaces a directory as a task could; `outside` is a path outside the allocation.
fn plant(what: &str, at: &Path, outside: &Path) {
    match what {
        "absolute" => symlink(outside, at).unwrap(),
        "relative" => symlink("../../../outside", at).unwrap(),
        "dangling" => symlink(outside.join("none"), at).unwrap(),
        "to a file" => symlink(outside.join("canary"), at).unwrap(),
        "hard" => fs::hard_link(outside.join("canary"), at).unwrap(),
        "fifo" => {
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, at, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        }
        other => panic!("{other}"),
    }
}

const PLANTS: [&str; 6] = ["absolute", "relative", "dangling", "to a file", "hard", "fifo"];

fn outside_of(base: &Path) -> PathBuf {
    let outside = base.join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("canary"), "kept").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
    outside
}

fn check_outside(outside: &Path, what: &str) {
    assert_eq!((seen(outside), seen(&outside.join("canary"))), ((0, 0o700), (0, 0o644)), "{what}");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1, "{what}");
    assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "kept", "{what}");
}

#[test]
fn nothing_in_the_place_of_a_directory_is_followed_and_it_is_named() {
    let base = tempfile::tempdir().unwrap();
    let outside = outside_of(base.path());
    let dir = AllocDir::new(&base.path().join("allocs"), &"a1".into());
    fs::create_dir_all(dir.root().parent().unwrap()).unwrap();
    for what in PLANTS {
        for part in
            ["alloc/data", "alloc/logs", "alloc/tmp", "web/local", "web/tmp", "web/secrets", "web/private"]
        {
            dir.build().unwrap();
            dir.build_task("web", secrets()).unwrap();
            let at = dir.root().join(part);
            // Tasks cannot end these mounts, but a task of an earlier agent may have run before they existed.
            if is_mount_point(&at).unwrap() {
                // Lazily: another test may be reading the file systems of all mounts.
                unmount(&at, Unmount::Lazy).unwrap();
            }
            fs::rename(&at, base.path().join("away")).unwrap();
            plant(what, &at, &outside);
            let built = dir.build().and_then(|()| dir.build_task("web", secrets()).map(drop));
            let error = caravan_sys::describe(&built.unwrap_err());
            assert!(error.contains(part), "{what}: {error}");
            check_outside(&outside, what);
            fs::remove_file(&at).unwrap();
            tree::remove(&base.path().join("away"), Seals::Keep).unwrap();
        }
    }
    dir.destroy().unwrap();
}

#[test]
fn tasks_cannot_rename_what_the_agent_made() {
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = AllocDir::new(base.path(), &"a1".into());
    dir.build().unwrap();
    let web = dir.build_task("web", secrets()).unwrap();
    let script = "cd $0 || exit 9
        for d in web/local web/tmp web/secrets web/private alloc/data alloc/logs alloc/tmp web alloc; do
            mv $d $d.away 2>/dev/null && echo renamed $d
            rmdir $d 2>/dev/null && echo removed $d
            chmod 700 $d 2>/dev/null && [ $d != web/secrets ] && echo changed $d
        done
        for d in web web/local web/tmp web/secrets alloc alloc/data alloc/logs alloc/tmp; do
            echo text > $d/new && mv $d/new $d/newer && rm $d/newer || echo cannot write to $d
        done";
    let command = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/bin/sh", "-c", script])
        .arg(dir.root())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&command.stdout).into_owned() + &String::from_utf8_lossy(&command.stderr);
    assert_eq!(text, "");
    check_modes(&dir, &web);
    dir.destroy().unwrap();
}

#[test]
fn a_volume_over_a_directory_keeps_its_owner_and_mode() {
    let base = tempfile::tempdir().unwrap();
    let dir = AllocDir::new(base.path(), &"a1".into());
    dir.build().unwrap();
    let web = dir.build_task("web", secrets()).unwrap();
    let covered = [dir.shared().join("data"), dir.logs(), web.local(), web.secrets(), web.private()];
    for path in &covered {
        mount_tmpfs(path, 1 << 20, 0o750).unwrap();
    }
    dir.build().unwrap();
    dir.build_task("web", secrets()).unwrap();
    for path in &covered {
        assert_eq!(seen(path), (0, 0o750), "{}", path.display());
    }
    for path in [web.root.clone(), dir.shared()] {
        mount_tmpfs(&path, 1 << 20, 0o750).unwrap();
        dir.build().unwrap();
        dir.build_task("web", secrets()).unwrap();
        assert_eq!(
            (seen(&path), fs::read_dir(&path).unwrap().count()),
            ((0, 0o750), 0),
            "{}",
            path.display()
        );
        unmount(&path, Unmount::Now).unwrap();
    }
    dir.destroy().unwrap();
}

/// A process keeps replacing directories by links. A directory may get a new owner, the canary must not.
#[test]
fn swapped_directories_lead_nowhere() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let base = tempfile::tempdir().unwrap();
    let outside = outside_of(base.path());
    let dir = AllocDir::new(base.path(), &"a1".into());
    dir.build().unwrap();
    let web = dir.build_task("web", secrets()).unwrap();
    let swaps = [dir.shared().join("data"), dir.logs(), web.local(), web.root.join("tmp")];
    for path in &swaps {
        symlink(&outside, path.with_extension("way")).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            let cwd = rustix::fs::CWD;
            while !stop.load(Ordering::Relaxed) {
                for path in &swaps {
                    rustix::fs::renameat_with(cwd, path, cwd, path.with_extension("way"), flags).unwrap();
                }
            }
        });
        for _ in 0..500 {
            // Fails if the path is a link at that moment.
            let _built = dir.build();
            let _built = dir.build_task("web", secrets());
        }
        stop.store(true, Ordering::Relaxed);
    });
    check_outside(&outside, "race");
    dir.destroy().unwrap();
}

/// A task may be root and mount below its directory, or be a plugin whose task directory has shared propagation.
#[test]
fn what_others_mounted_below_is_never_emptied() {
    let base = tempfile::tempdir().unwrap();
    let outside = base.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary"), "kept").unwrap();
    let allocs = base.path().join("alloc");
    fs::create_dir(&allocs).unwrap();
    let dir = AllocDir::new(&allocs, &"a1".into());
    for place in ["alloc/data/x", "web/local/x", "web/secrets/x", "web/x", "web", ""] {
        dir.build().unwrap();
        let web = dir.build_task("web", Secrets { size_mb: 1, ..secrets() }).unwrap();
        let at = dir.root().join(place).components().collect::<PathBuf>();
        fs::create_dir_all(&at).unwrap();
        mount_tmpfs(&at, 1 << 20, 0o755).unwrap();
        fs::write(at.join("canary"), "kept").unwrap();
        let error = dir.destroy().unwrap_err();
        let words = format!("{} (tmpfs, tmpfs): its content is only in memory", at.display());
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(fs::read_to_string(at.join("canary")).unwrap(), "kept", "{place}");
        fs::remove_file(at.join("canary")).unwrap();
        bind(&outside, &at, false).unwrap();
        let open = fs::File::open(at.join("canary")).unwrap();
        assert!(dir.destroy().unwrap_err().to_string().contains("a process uses it"));
        drop(open);
        dir.destroy().unwrap();
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "kept", "{place}");
        assert!(!dir.root().exists() && !web.root.exists());
    }
}
