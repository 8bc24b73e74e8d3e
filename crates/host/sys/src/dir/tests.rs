use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

fn n(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn world() -> (tempfile::TempDir, Dir) {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir_all(base.path().join("in/sub")).unwrap();
    fs::create_dir_all(base.path().join("out")).unwrap();
    fs::write(base.path().join("out/canary"), "kept").unwrap();
    let dir = Dir::open(&base.path().join("in")).unwrap();
    (base, dir)
}

#[test]
fn nothing_below_leads_out() {
    let (base, dir) = world();
    let out = base.path().join("out");
    symlink(&out, base.path().join("in/abs")).unwrap();
    symlink("../out", base.path().join("in/rel")).unwrap();
    symlink("sub", base.path().join("in/inner")).unwrap();
    symlink(out.join("canary"), base.path().join("in/link")).unwrap();
    for path in ["abs", "rel", "inner", "..", "../out", "/", "sub/../../out"] {
        assert!(dir.enter(Path::new(path), Mounts::Follow).is_err(), "{path}");
        assert!(dir.make(Path::new(path).join("x").as_path(), Access::mode(0o755), Mounts::Follow).is_err());
    }
    for name in ["..", ".", "", "a/b", "/x", "sub/"] {
        assert!(dir.create(n(name), Access::mode(0o600)).is_err(), "{name}");
        assert!(dir.replace(n(name), b"", Access::mode(0o600)).is_err(), "{name}");
        assert!(
            dir.remove_file(n(name)).is_err() && dir.remove_tree(n(name), Seals::Keep).is_err(),
            "{name}"
        );
    }
    assert!(dir.read(Path::new("link"), Mounts::Follow).is_err());
    assert!(dir.create(n("link"), Access::mode(0o600)).is_err());
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(out.join("canary")).unwrap(), "kept");
}

#[test]
fn a_replaced_file_is_a_new_one() {
    let (base, dir) = world();
    let (canary, at) = (base.path().join("out/canary"), base.path().join("in/file"));
    let access = Access { mode: 0o640, owner: Owner::new(65534, 65534) };
    for plant in ["none", "link", "hard", "fifo"] {
        match plant {
            "link" => symlink(&canary, &at).unwrap(),
            "hard" => fs::hard_link(&canary, &at).unwrap(),
            "fifo" => {
                let mode = rustix::fs::Mode::RWXU;
                rustix::fs::mknodat(CWD, &at, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            _ => {}
        }
        dir.replace(n("file"), plant.as_bytes(), access).unwrap();
        let meta = fs::symlink_metadata(&at).unwrap();
        assert!(meta.is_file() && meta.nlink() == 1, "{plant}");
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 65534, 65534), "{plant}");
        assert_eq!(fs::read_to_string(&at).unwrap(), plant);
        fs::remove_file(&at).unwrap();
    }
    let meta = fs::metadata(&canary).unwrap();
    assert_eq!((fs::read_to_string(&canary).unwrap().as_str(), meta.uid()), ("kept", 0));
    assert_eq!(dir.names().unwrap(), ["sub"], "no temporary file is left");
}

#[test]
fn a_directory_is_no_file_to_replace() {
    let (_base, dir) = world();
    assert!(dir.replace(n("sub"), b"", Access::mode(0o600)).is_err());
    assert_eq!(dir.names().unwrap(), ["sub"], "no temporary file is left");
    let long = "x".repeat(255);
    dir.replace(n(&long), b"", Access::mode(0o600)).unwrap();
}

#[test]
fn only_regular_files_are_read() {
    let (base, dir) = world();
    rustix::fs::mknodat(CWD, base.path().join("in/fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    for name in ["fifo", "sub", "missing"] {
        assert!(dir.read(Path::new(name), Mounts::Follow).is_err(), "{name}");
    }
    fs::write(base.path().join("in/sub/file"), "12345").unwrap();
    assert_eq!(dir.read_all(Path::new("sub/file"), 5, Mounts::Refuse).unwrap(), b"12345");
    assert!(dir.read_all(Path::new("sub/file"), 4, Mounts::Refuse).is_err());
}

#[test]
fn new_directories_have_their_access_and_old_ones_keep_theirs() {
    let (base, dir) = world();
    let access = Access { mode: 0o1777, owner: Owner::new(65534, 65534) };
    dir.make(Path::new("sub/a/b"), access, Mounts::Refuse).unwrap();
    let mode = |path: &str| fs::metadata(base.path().join("in").join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("sub"), mode("sub/a"), mode("sub/a/b")), (0o755, 0o1777, 0o1777));
}

#[test]
fn mounts_are_followed_only_on_request() {
    let (base, dir) = world();
    let at = base.path().join("in/sub");
    crate::mount::mount_tmpfs(&at, 1 << 20, 0o700).unwrap();
    let follow = dir.enter(Path::new("sub"), Mounts::Follow).is_ok();
    let refuse = dir.enter(Path::new("sub"), Mounts::Refuse);
    let removed = dir.remove_dir(n("sub"));
    crate::mount::unmount(&at, crate::mount::Unmount::Now).unwrap();
    assert!(follow && refuse.is_err());
    assert!(matches!(removed, Err(Error::Mounted { .. })), "{removed:?}");
}

/// Creates an entry that a task may place where the agent expects its own file or directory.
fn plant(what: &str, at: &Path, canary: &Path) {
    match what {
        "link" => symlink(canary, at).unwrap(),
        "relative" => symlink("../out/canary", at).unwrap(),
        "dangling" => symlink("/nonexistent/file", at).unwrap(),
        "hard" => fs::hard_link(canary, at).unwrap(),
        "fifo" => rustix::fs::mknodat(CWD, at, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
        "device" => {
            let null = rustix::fs::makedev(1, 3);
            rustix::fs::mknodat(CWD, at, rustix::fs::FileType::CharacterDevice, Mode::RWXU, null).unwrap();
        }
        other => panic!("{other}"),
    }
}

const PLANTS: [&str; 7] = ["link", "relative", "dangling", "hard", "fifo", "socket", "device"];

#[test]
fn a_file_or_a_link_is_put_in_place_of_anything() {
    let (base, dir) = world();
    let (canary, at) = (base.path().join("out/canary"), base.path().join("in/file"));
    for what in PLANTS {
        plant(what, &at, &canary);
        let mut file = dir.put(n("file"), Access::mode(0o644)).unwrap();
        file.write_all(b"ours").unwrap();
        assert_eq!(fs::read_to_string(&at).unwrap(), "ours", "{what}");
        fs::remove_file(&at).unwrap();
        plant(what, &at, &canary);
        dir.link(n("file"), Path::new("/target"), Owner::new(7, 8)).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("/target"), "{what}");
        let meta = fs::symlink_metadata(&at).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (7, 8));
        fs::remove_file(&at).unwrap();
    }
    let meta = fs::metadata(&canary).unwrap();
    assert_eq!((fs::read_to_string(&canary).unwrap().as_str(), meta.uid(), meta.nlink()), ("kept", 0, 1));
    assert!(dir.put(n("sub"), Access::mode(0o600)).is_err());
    assert_eq!(dir.names().unwrap(), ["sub"], "no temporary file is left");
}

#[test]
fn handles_open_anything_without_an_effect() {
    let (base, dir) = world();
    let canary = base.path().join("out/canary");
    for what in PLANTS {
        let at = base.path().join("in").join(what);
        plant(what, &at, &canary);
        let handle = dir.handle(Path::new(what), Mounts::Follow);
        match what {
            "link" | "relative" | "dangling" => {
                let error = crate::describe(&handle.unwrap_err());
                assert!(error.contains(what) && error.contains("symbolic link"), "{error}");
            }
            "hard" => {
                let file = handle.unwrap().read().unwrap();
                let meta = file.metadata().unwrap();
                assert!(refuse_foreign_link(&meta, &[7], &at).is_err());
                assert!(refuse_foreign_link(&meta, &[0], &at).is_ok());
            }
            _ => {
                let handle = handle.unwrap();
                assert!(handle.read().is_err() && handle.append().is_err(), "{what}");
                handle.set_access(Access { mode: 0o604, owner: Owner::new(7, 8) }).unwrap();
                let meta = fs::symlink_metadata(&at).unwrap();
                assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (7, 8, 0o604), "{what}");
            }
        }
    }
    let file = dir.create(n("plain"), Access::mode(0o600)).unwrap();
    drop(file);
    dir.handle(Path::new("plain"), Mounts::Refuse).unwrap().append().unwrap().write_all(b"x").unwrap();
    assert_eq!(dir.handle(Path::new("sub"), Mounts::Refuse).unwrap().kind().unwrap(), Kind::Directory);
}

#[test]
fn links_are_followed_where_that_is_asked_for_and_only_below() {
    let (base, dir) = world();
    let top = base.path().join("in");
    for (target, name) in
        [("sub", "inner"), ("../out", "outer"), ("/etc", "absolute"), ("../in/sub", "round")]
    {
        symlink(target, top.join(name)).unwrap();
    }
    fs::write(top.join("sub/file"), "text").unwrap();
    let mut text = String::new();
    dir.open_linked(Path::new("inner/file")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    let made = dir.make_linked(Path::new("inner/a/b"), Access::mode(0o755)).unwrap();
    made.replace(n("x"), b"x", Access::mode(0o600)).unwrap();
    assert!(top.join("sub/a/b/x").exists());
    for name in ["outer", "absolute", "round"] {
        assert!(dir.enter_linked(Path::new(name)).is_err(), "{name}");
        assert!(dir.open_linked(&Path::new(name).join("file")).is_err(), "{name}");
        assert!(dir.make_linked(&Path::new(name).join("new"), Access::mode(0o755)).is_err(), "{name}");
    }
    assert_eq!(fs::read_dir(base.path().join("out")).unwrap().count(), 1);
}

/// A process that repeatedly swaps a directory with a link to another place cannot redirect the agent.
#[test]
fn a_swapped_directory_never_leads_out() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (base, dir) = world();
    let (top, out) = (base.path().join("in"), base.path().join("out"));
    symlink(&out, top.join("way")).unwrap();
    let stop = AtomicBool::new(false);
    let exchange = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, top.join("sub"), CWD, top.join("way"), flags).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange();
            }
        });
        for _ in 0..2000 {
            // Either name may be the link now.
            for way in ["sub", "way"] {
                if let Ok(sub) = dir.make(Path::new(way), Access::mode(0o777), Mounts::Refuse) {
                    sub.set_access(Access { mode: 0o777, owner: Owner::new(7, 7) }).unwrap();
                    sub.replace(n("file"), b"x", Access::mode(0o666)).unwrap();
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let meta = fs::metadata(&out).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o755));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}
