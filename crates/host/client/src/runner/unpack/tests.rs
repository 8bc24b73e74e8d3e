use super::*;
use crate::runner::users::{KnownUsers, TaskUser, Users};
use caravan_sys::dir::{Dir, Owner};
use caravan_sys::tree::{self, Seals};
use std::fs::{self, File};
use std::io::SeekFrom;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn tree(dir: &Path) -> Tree {
    let base = Dir::open(dir).unwrap();
    Tree::make(&base, Path::new("to"), Owners::One(Owner::default())).unwrap()
}

const LIMITS: Limits = Limits { bytes: 1 << 30, bytes_text: Cow::Borrowed("1 GiB"), entries: 100 };

fn run(tree: &Tree, kind: Archive, inner: &str, mut file: File) -> io::Result<()> {
    file.seek(SeekFrom::Start(0)).unwrap();
    let stop = AtomicBool::new(false);
    let mut unpack = Unpack::new(tree, Path::new(inner), &stop, LIMITS, OutwardLinks::Refuse);
    match kind {
        Archive::Tar => unpack.tar(file),
        Archive::Zip => unpack.zip(file),
    }
}

#[derive(Clone, Copy)]
enum Archive {
    Tar,
    Zip,
}

/// Returns a tar archive of (name, kind, link or content), with names unchanged.
fn tar_of(entries: &[(&str, tar::EntryType, &str)]) -> File {
    let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o4755);
        header.set_entry_type(*kind);
        let name = name.as_bytes();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        let is_file = kind.is_file();
        if !is_file && !kind.is_dir() {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_size(if is_file { content.len() as u64 } else { 0 });
        header.set_cksum();
        builder.append(&header, if is_file { content.as_bytes() } else { b"" }).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn archives_are_unpacked() {
    use tar::EntryType as T;
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let archive = tar_of(&[
        ("./top/", T::Directory, ""),
        ("top/a", T::Regular, "A"),
        ("top/sub/b", T::Regular, "B"),
        ("top/sub/link", T::Symlink, "../a"),
        ("top/hard", T::Link, "top/a"),
        ("other", T::Regular, "O"),
    ]);
    run(&tree, Archive::Tar, "top", archive.try_clone().unwrap()).unwrap();
    let to = dir.path().join("to");
    let read = |path: &str| fs::read_to_string(to.join(path)).unwrap();
    assert_eq!(
        (read("a"), read("sub/b"), read("sub/link"), read("hard")),
        ("A".into(), "B".into(), "A".into(), "A".into())
    );
    assert!(!to.join("other").exists());
    assert_eq!(fs::metadata(to.join("a")).unwrap().permissions().mode() & 0o7777, 0o755);
    // A second time, over existing files, and the whole archive.
    run(&tree, Archive::Tar, "", archive).unwrap();
    assert!(to.join("top/a").exists() && to.join("other").exists());
}

#[test]
fn zip_archives_are_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let mut writer = zip::ZipWriter::new(tempfile::tempfile().unwrap());
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o750);
    writer.start_file("d/a", options).unwrap();
    writer.write_all(b"A").unwrap();
    let file = writer.finish().unwrap();
    run(&tree, Archive::Zip, "", file).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("to/d/a")).unwrap(), "A");
    for bad in ["../x", "/x", "d/../../x"] {
        let mut writer = zip::ZipWriter::new(tempfile::tempfile().unwrap());
        writer.start_file(bad, options).unwrap();
        writer.write_all(b"bad").unwrap();
        assert!(run(&tree, Archive::Zip, "", writer.finish().unwrap()).is_err(), "{bad}");
    }
    assert!(!dir.path().join("x").exists());
}

#[test]
fn no_archive_reaches_out() {
    use tar::EntryType as T;
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    symlink(&outside, dir.path().join("to/way")).unwrap();
    symlink(outside.join("kept"), dir.path().join("to/file")).unwrap();
    for entries in [
        vec![("../x", T::Regular, "bad")],
        vec![("/x", T::Regular, "bad")],
        vec![("a/../../x", T::Regular, "bad")],
        vec![("way/x", T::Regular, "bad")],
        vec![("l", T::Symlink, "../outside"), ("l/x", T::Regular, "bad")],
        vec![("l", T::Symlink, "/etc")],
        vec![("d/l", T::Symlink, "../../outside")],
        vec![("e", T::Symlink, "."), ("e/f", T::Symlink, "..")],
        vec![("h", T::Link, "../outside/kept")],
        vec![("h", T::Link, "file")],
        vec![("pipe", T::Fifo, "")],
        vec![("dev", T::Char, "")],
    ] {
        assert!(run(&tree, Archive::Tar, "", tar_of(&entries)).is_err(), "{entries:?}");
    }
    // A link in place of the file is replaced.
    run(&tree, Archive::Tar, "", tar_of(&[("file", T::Regular, "new")])).unwrap();
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let many: Vec<_> = (0..=LIMITS.entries).map(|_| ("d", T::Directory, "")).collect();
    assert!(run(&tree, Archive::Tar, "", tar_of(&many)).is_err());
}

/// Another user writes to the directory while an archive is unpacked there.
#[test]
fn what_is_planted_in_the_way_is_replaced_and_never_written_to() {
    use tar::EntryType as T;
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let (canary, at) = (dir.path().join("canary"), dir.path().join("to/file"));
    fs::write(&canary, "kept").unwrap();
    let fifo = |at: &Path| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
    };
    let plants: [&dyn Fn(&Path); 5] = [
        &|at| symlink(&canary, at).unwrap(),
        &|at| symlink("../canary", at).unwrap(),
        &|at| symlink("/nonexistent/file", at).unwrap(),
        &|at| fs::hard_link(&canary, at).unwrap(),
        &fifo,
    ];
    for plant in plants {
        plant(&at);
        run(&tree, Archive::Tar, "", tar_of(&[("file", T::Regular, "ours")])).unwrap();
        assert_eq!(fs::read_to_string(&at).unwrap(), "ours");
        fs::remove_file(&at).unwrap();
        plant(&at);
        run(&tree, Archive::Tar, "", tar_of(&[("file", T::Symlink, "a")])).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("a"));
        fs::remove_file(&at).unwrap();
    }
    // A hard link in the archive to a file that is not of the archive.
    fs::hard_link(&canary, &at).unwrap();
    assert!(run(&tree, Archive::Tar, "", tar_of(&[("x", T::Link, "file")])).is_err());
    let meta = fs::metadata(&canary).unwrap();
    assert_eq!((fs::read_to_string(&canary).unwrap().as_str(), meta.uid()), ("kept", 0));
}

#[test]
fn a_directory_that_is_swapped_all_the_time_leads_nowhere() {
    use tar::EntryType as T;
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let (outside, top) = (dir.path().join("outside"), dir.path().join("to"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "kept").unwrap();
    fs::create_dir(top.join("d")).unwrap();
    symlink(&outside, top.join("way")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                rustix::fs::renameat_with(cwd, top.join("d"), cwd, top.join("way"), flags).unwrap();
            }
        });
        let entries = [("d/a", T::Regular, "ours"), ("d/sub/", T::Directory, ""), ("d/l", T::Symlink, "a")];
        for _ in 0..300 {
            let _failed_or_not = run(&tree, Archive::Tar, "", tar_of(&entries));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

fn limited(limits: Limits, archive: impl Read) -> io::Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    Unpack::new(&tree(dir.path()), Path::new(""), &stop, limits, OutwardLinks::Refuse).tar(archive)
}

#[test]
fn there_is_a_limit_to_bytes_entries_and_names() {
    use tar::EntryType as T;
    let limits = |bytes, entries| Limits { bytes, bytes_text: Cow::Borrowed("ten bytes"), entries };
    let archive = || {
        let mut file = tar_of(&[("a", T::Regular, "12345"), ("b", T::Regular, "12345")]);
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    };
    limited(limits(10, 2), archive()).unwrap();
    assert!(limited(limits(9, 2), archive()).unwrap_err().to_string().contains("larger than ten bytes"));
    assert!(limited(limits(10, 1), archive()).unwrap_err().to_string().contains("more than 1 files"));
    // A name of 100 GB, which the reader would keep in memory.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(T::GNULongName);
    header.as_old_mut().name[..5].copy_from_slice(b"a/b/c");
    header.set_size(100_000_000_000);
    header.set_cksum();
    let endless = header.as_bytes().as_slice().chain(io::repeat(b'x'));
    let error = limited(limits(u64::MAX, 10), endless).unwrap_err().to_string();
    assert!(error.contains("header of an entry is larger"), "{error}");
}

#[test]
fn owners_are_users_of_the_allocation_and_no_bits_lend_rights() {
    let dir = tempfile::tempdir().unwrap();
    let base = Dir::open(dir.path()).unwrap();
    let users = Users::new(vec![TaskUser::Named("1234:1234".into())]).known();
    let unpack = |owners: Owners| {
        let tree = Tree::make(&base, Path::new("to"), owners).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        for (name, uid) in [("own", 1234), ("roots", 0), ("foreign", 33)] {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o6755);
            header.set_uid(uid);
            header.set_gid(uid);
            header.set_size(0);
            builder.append_data(&mut header, name, io::empty()).unwrap();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o7755);
            builder.append_data(&mut header, format!("{name}.d"), io::empty()).unwrap();
        }
        let stop = AtomicBool::new(false);
        let mut unpack = Unpack::new(&tree, Path::new(""), &stop, LIMITS, OutwardLinks::LeaveOut);
        unpack.tar(builder.into_inner().unwrap().as_slice()).unwrap();
        ["own", "roots", "foreign"].map(|name| {
            let meta = |name: String| fs::metadata(dir.path().join("to").join(name)).unwrap();
            let (file, directory) = (meta(name.to_owned()), meta(format!("{name}.d")));
            assert_eq!((file.mode() & 0o7777, directory.mode() & 0o7777), (0o755, 0o1755), "{name}");
            assert_eq!((file.uid(), file.gid()), (directory.uid(), directory.gid()), "{name}");
            (file.uid(), file.gid())
        })
    };
    assert_eq!(unpack(Owners::Of(users)), [(1234, 1234); 3]);
    tree::remove(&dir.path().join("to"), Seals::Keep).unwrap();
    let root = Users::new(vec![TaskUser::Agent]).known();
    assert_eq!(unpack(Owners::Of(root)), [(1234, 1234), (0, 0), (33, 33)]);
    tree::remove(&dir.path().join("to"), Seals::Keep).unwrap();
    assert_eq!(unpack(Owners::Of(KnownUsers::default())), [(65534, 65534); 3]);
}

#[test]
fn links_that_lead_out_are_left_out_where_that_is_asked_for() {
    use tar::EntryType as T;
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    let mut archive = tar_of(&[
        ("d/in", T::Symlink, "../a"),
        ("d/out", T::Symlink, "../../x"),
        ("absolute", T::Symlink, "/etc/passwd"),
        ("a", T::Regular, "A"),
    ]);
    archive.seek(SeekFrom::Start(0)).unwrap();
    let stop = AtomicBool::new(false);
    let mut unpack = Unpack::new(&tree, Path::new(""), &stop, LIMITS, OutwardLinks::LeaveOut);
    unpack.tar(archive).unwrap();
    assert_eq!(unpack.left_out(), 2);
    let to = dir.path().join("to");
    assert_eq!(fs::read_to_string(to.join("d/in")).unwrap(), "A");
    assert!(to.join("d/out").symlink_metadata().is_err() && to.join("absolute").symlink_metadata().is_err());
}
