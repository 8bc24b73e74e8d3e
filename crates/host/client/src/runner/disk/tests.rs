use super::*;
use crate::runner::users::{TaskUser, Users};
use caravan_sys::tree;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn filled(root: &Path) {
    for part in ["alloc/data/deep", "web/local", "web/secrets", "gone/local"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    fs::write(root.join("alloc/data/deep/file"), "shared").unwrap();
    fs::write(root.join("web/local/own"), "own").unwrap();
    fs::write(root.join("web/secrets/token"), "secret").unwrap();
    fs::set_permissions(root.join("web/local/own"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("own", root.join("web/local/link")).unwrap();
}

fn taken(from: &Path, to: &Path, tasks: &[String]) -> Result<(), String> {
    adopt(&Dir::open(from).unwrap(), &Dir::open(to).unwrap(), tasks).map_err(words)
}

fn packed(root: &Path, users: &Users) -> Vec<u8> {
    let mut packed = Vec::new();
    pack::write(root, &["web".to_owned()], users, &mut packed).unwrap();
    packed
}

fn unpacked(archive: &[u8], into: &Path) -> io::Result<u64> {
    let users = Users::new(vec![TaskUser::Agent]).known();
    unpack(archive, &Dir::open(into.parent().unwrap()).unwrap(), into.file_name().unwrap(), limits(1), users)
}

#[test]
fn data_is_moved_once_and_overwrites_nothing() {
    let base = tempfile::tempdir().unwrap();
    let (old, new) = (base.path().join("old"), base.path().join("new"));
    filled(&old);
    fs::create_dir_all(new.join("alloc/data")).unwrap();
    let tasks = ["web".to_owned(), "fresh".to_owned()];
    for _ in 0..2 {
        taken(&old, &new, &tasks).unwrap();
        assert_eq!(fs::read_to_string(new.join("alloc/data/deep/file")).unwrap(), "shared");
        assert_eq!(fs::read_to_string(new.join("web/local/link")).unwrap(), "own");
    }
    assert!(!new.join("web/secrets").exists() && !new.join("fresh").exists());
    // The successor has started to write already.
    filled(&old);
    fs::write(new.join("web/local/own"), "newer").unwrap();
    taken(&old, &new, &tasks).unwrap();
    assert_eq!(fs::read_to_string(new.join("web/local/own")).unwrap(), "newer");
}

#[test]
fn data_is_packed_and_unpacked_with_modes_and_links() {
    let base = tempfile::tempdir().unwrap();
    let (old, new) = (base.path().join("old"), base.path().join("new"));
    filled(&old);
    let packed = packed(&old, &Users::default());
    fs::create_dir_all(new.join("left over")).unwrap();
    unpacked(&packed, &new).unwrap();
    assert_eq!(fs::read_to_string(new.join("alloc/data/deep/file")).unwrap(), "shared");
    assert_eq!(fs::read_link(new.join("web/local/link")).unwrap(), Path::new("own"));
    let mode = fs::metadata(new.join("web/local/own")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(!new.join("web/secrets").exists() && !new.join("gone").exists());
    assert!(!new.join("left over").exists());
    // A cut archive is an error, not an empty disk.
    assert!(unpacked(&packed[..packed.len() / 2], &new).is_err());
    // An archive that exceeds the limit is an error too.
    fs::write(old.join("web/local/large"), vec![0; 1 << 20]).unwrap();
    let large = super::tests::packed(&old, &Users::default());
    assert!(unpacked(&large, &new).unwrap_err().to_string().contains("whose size is 1 MiB"));
}

/// A host directory that no task may see, and links of all kinds to it in place of each part.
#[test]
fn nothing_outside_is_packed_or_moved() {
    let base = tempfile::tempdir().unwrap();
    let (old, new, outside) = (base.path().join("old"), base.path().join("new"), base.path().join("outside"));
    fs::create_dir_all(outside.join("local")).unwrap();
    for path in ["canary", "local/canary"] {
        fs::write(outside.join(path), "precious content").unwrap();
    }
    fs::create_dir(&new).unwrap();
    let tasks = ["web".to_owned()];
    for (part, target) in [
        ("alloc/data", outside.clone()),
        ("alloc/data", "../../outside".into()),
        ("alloc/data", outside.join("none")),
        ("alloc/data", outside.join("canary")),
        ("alloc", outside.clone()),
        ("web/local", outside.clone()),
        ("web/local", "../secrets".into()),
        ("web", outside.clone()),
    ] {
        filled(&old);
        tree::remove(&old.join(part), Seals::Keep).unwrap();
        symlink(&target, old.join(part)).unwrap();
        let error = pack::write(&old, &tasks, &Users::default(), io::sink()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("symbolic link"), "{part}: {error}");
        let error = taken(&old, &new, &tasks).unwrap_err();
        assert!(error.contains(part) && error.contains("symbolic link"), "{part}: {error}");
        tree::remove(&old, Seals::Keep).unwrap();
    }
    // Below a part, links are archived unchanged and special files not at all.
    filled(&old);
    let data = old.join("alloc/data");
    symlink(&outside, data.join("way")).unwrap();
    fs::hard_link(outside.join("canary"), data.join("hard")).unwrap();
    let node = |name: &str, kind| {
        let device = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(rustix::fs::CWD, data.join(name), kind, rustix::fs::Mode::RWXU, device).unwrap();
    };
    node("fifo", rustix::fs::FileType::Fifo);
    node("device", rustix::fs::FileType::CharacterDevice);
    drop(std::os::unix::net::UnixListener::bind(data.join("socket")).unwrap());
    let nobody = Users::new(vec![TaskUser::Nobody]);
    let archive = packed(&old, &nobody);
    let text = String::from_utf8_lossy(&archive);
    assert!(!text.contains("precious content"));
    let names: Vec<String> = tar::Archive::new(archive.as_slice())
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    for gone in ["hard", "fifo", "device", "socket"] {
        assert!(!names.contains(&format!("alloc/data/{gone}")), "{names:?}");
    }
    assert_eq!(unpacked(&archive, &base.path().join("unpacked")).unwrap(), 1, "the link that leads out");
    // For a task that runs as root, the file may be its own.
    assert!(String::from_utf8_lossy(&packed(&old, &Users::new(vec![TaskUser::Agent]))).contains("precious"));
    let meta = fs::metadata(outside.join("canary")).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777, fs::read_dir(&outside).unwrap().count()), (0, 0o644, 2));
}

#[test]
fn mounts_are_no_part_of_a_disk() {
    let base = tempfile::tempdir().unwrap();
    let old = base.path().join("old");
    filled(&old);
    for part in ["alloc/data/deep", "web/local"] {
        caravan_sys::mount::mount_tmpfs(&old.join(part), 1 << 20, 0o755).unwrap();
        fs::write(old.join(part).join("volume"), "of a volume").unwrap();
    }
    let archive = packed(&old, &Users::default());
    assert!(!String::from_utf8_lossy(&archive).contains("of a volume"));
    for part in ["alloc/data/deep", "web/local"] {
        caravan_sys::mount::unmount(&old.join(part), caravan_sys::mount::Unmount::Now).unwrap();
    }
    assert!(String::from_utf8_lossy(&packed(&old, &Users::default())).contains("shared"));
}

#[test]
fn a_tree_that_is_too_deep_is_refused_and_needs_no_stack() {
    let base = tempfile::tempdir().unwrap();
    let old = base.path().join("old");
    filled(&old);
    let mut at = Dir::open(&old.join("alloc/data")).unwrap();
    for _ in 0..2000 {
        at = at.make(Path::new("d"), Access::mode(0o755), Mounts::Refuse).unwrap();
    }
    let error = pack::write(&old, &[], &Users::default(), io::sink()).unwrap_err().to_string();
    assert!(error.contains("more than 128 directories"), "{error}");
    Dir::open(base.path()).unwrap().remove_tree(OsStr::new("old"), Seals::Keep).unwrap();
}

#[test]
fn directories_that_are_swapped_while_they_are_packed_lead_nowhere() {
    use std::sync::atomic::Ordering;
    let base = tempfile::tempdir().unwrap();
    let (old, outside) = (base.path().join("old"), base.path().join("outside"));
    filled(&old);
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "precious content").unwrap();
    let data = old.join("alloc/data");
    symlink(&outside, data.join("way")).unwrap();
    fs::write(data.join("plain"), "plain").unwrap();
    symlink(outside.join("file"), data.join("link")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            while !stop.load(Ordering::Relaxed) {
                for (one, other) in [("deep", "way"), ("plain", "link")] {
                    rustix::fs::renameat_with(cwd, data.join(one), cwd, data.join(other), flags).unwrap();
                }
            }
        });
        for _ in 0..300 {
            let archive = packed(&old, &Users::default());
            assert!(!String::from_utf8_lossy(&archive).contains("precious content"));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
