use super::*;
use crate::mount::{Unmount, bind, mount_tmpfs, unmount};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a racing thread, also after a failed assertion.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _left = unmount(&self.0, Unmount::Lazy);
    }
}

fn tree(base: &Path) -> PathBuf {
    let tree = base.join("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::write(tree.join("a/file"), "x").unwrap();
    fs::write(tree.join("a/b/c/file"), "x").unwrap();
    tree
}

fn outside(base: &Path) -> PathBuf {
    let outside = base.join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::write(outside.join("deep/canary"), "kept").unwrap();
    outside
}

fn assert_whole(outside: &Path) {
    assert_eq!(fs::read_to_string(outside.join("deep/canary")).unwrap(), "kept");
}

#[test]
fn removes_files_links_sockets_and_directories() {
    let base = tempfile::tempdir().unwrap();
    let (tree, outside) = (tree(base.path()), outside(base.path()));
    symlink(&outside, tree.join("a/link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    fs::hard_link(outside.join("deep/canary"), tree.join("hard")).unwrap();
    assert!(remove(&tree, Seals::Keep).unwrap());
    assert!(!tree.exists());
    assert!(!remove(&tree, Seals::Keep).unwrap());
    assert!(!remove(&tree.join("a/b"), Seals::Keep).unwrap());
    assert_whole(&outside);
}

#[test]
fn a_link_is_removed_and_never_followed() {
    let base = tempfile::tempdir().unwrap();
    let outside = outside(base.path());
    symlink(&outside, base.path().join("link")).unwrap();
    assert!(remove(&base.path().join("link"), Seals::Keep).unwrap());
    assert_whole(&outside);
}

#[test]
fn a_path_without_a_name_is_refused() {
    for path in ["/", "..", "a/.."] {
        assert!(remove(Path::new(path), Seals::Keep).is_err(), "{path}");
    }
}

#[test]
fn a_mount_keeps_every_entry_and_is_named() {
    let base = tempfile::tempdir().unwrap();
    let (tree, outside) = (tree(base.path()), outside(base.path()));
    for target in ["", "a", "a/b/c", "a/file"] {
        let at = tree.join(target);
        let source = if target == "a/file" { outside.join("deep/canary") } else { outside.clone() };
        let at = if target.is_empty() { tree.clone() } else { at };
        bind(&source, &at, false).unwrap();
        let mounted = Mounted(at.clone());
        let error = remove(&tree, Seals::Lift).unwrap_err();
        assert!(matches!(&error, Error::Mounted { path, .. } if *path == at), "{error:?}");
        drop(mounted);
        assert_whole(&outside);
        assert!(tree.join("a/b/c/file").exists() && tree.join("a/file").exists());
    }
    mount_tmpfs(&tree.join("a"), 1 << 20, 0o700).unwrap();
    let mounted = Mounted(tree.join("a"));
    fs::write(tree.join("a/canary"), "kept").unwrap();
    assert!(remove(&tree, Seals::Keep).is_err());
    assert_eq!(fs::read_to_string(tree.join("a/canary")).unwrap(), "kept");
    drop(mounted);
    assert!(remove(&tree, Seals::Keep).unwrap());
}

/// The descriptors protect the data, even if the mount table does not show the mount.
#[test]
fn a_mount_that_the_table_did_not_show_stays_whole() {
    let base = tempfile::tempdir().unwrap();
    let (tree, outside) = (tree(base.path()), outside(base.path()));
    for target in ["a/b/c", "a"] {
        bind(&outside, &tree.join(target), false).unwrap();
        let mounted = Mounted(tree.join(target));
        let parent = openat(CWD, base.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut removal =
            Removal { root: &parent, shown: tree.clone(), levels: Vec::new(), seals: Seals::Keep };
        let error = removal.run(c"tree".to_owned()).unwrap_err();
        assert!(matches!(&error, Error::Mounted { path, .. } if *path == tree.join(target)), "{error:?}");
        drop(mounted);
        assert_whole(&outside);
    }
}

#[test]
fn a_mount_that_appears_while_a_removal_runs_stays_whole() {
    let base = tempfile::tempdir().unwrap();
    let outside = outside(base.path());
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                for n in [7, 50, 93] {
                    let at = base.path().join(format!("tree/{n}"));
                    if bind(&outside, &at, false).is_ok() {
                        let _left = unmount(&at, Unmount::Lazy);
                    }
                }
            }
        });
        let ended = EndOnDrop(&end);
        for _ in 0..60 {
            for n in 0..100 {
                let _exists = fs::create_dir_all(base.path().join(format!("tree/{n}")));
            }
            // May fail or succeed, because mounts appear and disappear.
            let _either = remove(&base.path().join("tree"), Seals::Keep);
            assert_whole(&outside);
        }
        drop(ended);
    });
    assert!(remove(&base.path().join("tree"), Seals::Keep).is_ok());
}

#[test]
fn a_directory_that_is_swapped_for_a_link_leads_nowhere() {
    let base = tempfile::tempdir().unwrap();
    let outside = outside(base.path());
    let end = AtomicBool::new(false);
    let (at, aside) = (base.path().join("tree/x"), base.path().join("tree/y"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let _raced = fs::rename(&at, &aside);
                let _raced = symlink(&outside, &at);
                let _raced = fs::remove_file(&at);
                let _raced = fs::rename(&aside, &at);
            }
        });
        let ended = EndOnDrop(&end);
        for _ in 0..300 {
            let _raced = fs::create_dir_all(base.path().join("tree/x/deep"));
            let _raced = fs::write(base.path().join("tree/x/deep/file"), "doomed");
            let _either = remove(&base.path().join("tree"), Seals::Keep);
            assert_whole(&outside);
        }
        drop(ended);
    });
}

#[test]
fn a_directory_that_is_moved_away_takes_the_removal_nowhere() {
    let base = tempfile::tempdir().unwrap();
    let (tree, outside) = (tree(base.path()), outside(base.path()));
    let parent = openat(CWD, base.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut removal = Removal { root: &parent, shown: tree.clone(), levels: Vec::new(), seals: Seals::Keep };
    let Removed::Directory(dir) = removal.remove_entry(&parent, c"tree").unwrap() else { panic!() };
    let dir = removal.enter(&parent, c"tree".to_owned(), dir).unwrap();
    let (name, below) = removal.empty(&dir).unwrap().unwrap();
    let below = removal.enter(&dir, name, below).unwrap();
    fs::rename(tree.join("a"), outside.join("a")).unwrap();
    // The entries in "a" may be removed, but nothing above its new place.
    let error = removal.leave(below).unwrap_err();
    assert!(error.to_string().contains("tree/a"), "{error}");
    assert_whole(&outside);
}

#[test]
fn a_deep_tree_takes_neither_stack_nor_descriptors() {
    let base = tempfile::tempdir().unwrap();
    let mut dir = openat(CWD, base.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = openat(&dir, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    assert!(remove(&base.path().join("d"), Seals::Keep).unwrap());
}

#[test]
fn seals_are_lifted_on_request_only() {
    let base = tempfile::tempdir().unwrap();
    let tree = tree(base.path());
    fs::write(tree.join("empty"), "").unwrap();
    let sealed = crate::seal::seal_directory(&tree.join("a/b/c")).unwrap();
    crate::seal::seal_beneath(&tree.join("empty")).unwrap();
    if sealed == crate::seal::Seal::Immutable {
        assert!(remove(&tree, Seals::Keep).is_err());
    }
    assert!(remove(&tree, Seals::Lift).unwrap());
}
