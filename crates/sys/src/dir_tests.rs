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
                rustix::fs::mknodat(CWD, &at, FileType::Fifo, mode, 0).unwrap();
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
    rustix::fs::mknodat(CWD, base.path().join("in/fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
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
