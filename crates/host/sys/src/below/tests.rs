use super::*;
use crate::mount::{Propagation, bind, is_mount_point, mount_tmpfs, set_propagation};
use std::ffi::OsStr;
use std::fs;

/// A directory whose mounts are unmounted when the test ends.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path.canonicalize().unwrap()
    }

    fn tmpfs(&self, name: &str) -> PathBuf {
        let path = self.dir(name);
        mount_tmpfs(&path, 1 << 20, 0o755).unwrap();
        fs::write(path.join("canary"), "kept").unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let root = self.0.path().canonicalize().unwrap();
        for entry in deepest_first(&MountTable::read().unwrap(), &root) {
            let _left = unmount(&entry.target, Unmount::Lazy);
        }
    }
}

fn foreign(dir: &Path) -> Outcome {
    end_mounts(dir, |_| Treatment::Foreign).unwrap()
}

#[test]
fn a_bind_is_ended_and_its_source_kept() {
    let scratch = Scratch::new();
    let (tree, outside) = (scratch.dir("tree"), scratch.dir("outside"));
    fs::write(outside.join("canary"), "kept").unwrap();
    let (first, nested) = (scratch.dir("tree/a"), scratch.dir("tree/a/b"));
    bind(&outside, &nested, false).unwrap();
    bind(&outside, &first, false).unwrap();
    // The nested mount is not reachable until the other one is unmounted.
    let outcome = foreign(&tree);
    assert_eq!(outcome.left, []);
    assert_eq!(outcome.ended.len(), 2);
    assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "kept");
    assert_eq!(foreign(&tree), Outcome::default());
    assert_eq!(foreign(&tree.join("nothing/there")), Outcome::default());
}

#[test]
fn what_is_only_in_memory_stays_and_what_is_mounted_elsewhere_too_goes() {
    let scratch = Scratch::new();
    let (tree, memory) = (scratch.dir("tree"), scratch.tmpfs("tree/memory"));
    let outcome = foreign(&tree);
    assert_eq!(outcome.ended, Vec::<PathBuf>::new());
    assert_eq!(outcome.left.len(), 1);
    assert_eq!((&outcome.left[0].path, &outcome.left[0].reason), (&memory, &LeftReason::InMemory));
    let words = outcome.left[0].to_string();
    assert!(words.ends_with("(tmpfs, tmpfs): its content is only in memory and would be lost"), "{words}");
    // With two mounts of it below the directory, one remains.
    bind(&memory, &scratch.dir("tree/again"), false).unwrap();
    let outcome = foreign(&tree);
    assert_eq!((outcome.ended.len(), outcome.left.len()), (1, 1));
    assert_eq!(fs::read_to_string(outcome.left[0].path.join("canary")).unwrap(), "kept");
    bind(&outcome.left[0].path, &scratch.dir("elsewhere"), false).unwrap();
    assert_eq!(foreign(&tree).left, []);
    assert_eq!(fs::read_to_string(scratch.dir("elsewhere").join("canary")).unwrap(), "kept");
}

#[test]
fn mounts_beneath_another_are_ended_after_it() {
    let scratch = Scratch::new();
    let (tree, outside) = (scratch.dir("tree"), scratch.dir("outside"));
    fs::create_dir(outside.join("below")).unwrap();
    let (at, nested) = (scratch.dir("tree/a/b"), scratch.dir("tree/a/b").join("below"));
    bind(&outside, &at, false).unwrap();
    bind(&outside, &nested, false).unwrap();
    bind(&outside, &tree.join("a"), false).unwrap();
    let outcome = foreign(&tree);
    assert_eq!(outcome, Outcome { ended: vec![tree.join("a"), nested, at], left: vec![] });
}

#[test]
fn an_empty_file_system_in_memory_is_no_loss() {
    let scratch = Scratch::new();
    let memory = scratch.tmpfs("tree/memory");
    fs::remove_file(memory.join("canary")).unwrap();
    assert_eq!(foreign(&scratch.dir("tree")), Outcome { ended: vec![memory], left: vec![] });
}

#[test]
fn a_mount_in_use_stays_with_all_that_is_above_it() {
    let scratch = Scratch::new();
    let (tree, outside) = (scratch.dir("tree"), scratch.dir("outside"));
    fs::create_dir(outside.join("below")).unwrap();
    let above = scratch.dir("tree/above");
    bind(&outside, &above, false).unwrap();
    bind(&outside, &above.join("below"), false).unwrap();
    let open = fs::File::create(above.join("below/open")).unwrap();
    let outcome = foreign(&tree);
    assert_eq!(outcome.ended, Vec::<PathBuf>::new());
    let left: Vec<_> = outcome.left.iter().map(|left| (left.path.clone(), left.reason.clone())).collect();
    assert_eq!(left, [(above.join("below"), LeftReason::InUse)], "reported once, for what keeps it");
    drop(open);
    assert_eq!(foreign(&tree).ended.len(), 2);
}

#[test]
fn own_mounts_go_also_in_use_but_never_with_a_mount_of_others_below() {
    let scratch = Scratch::new();
    let (tree, own) = (scratch.dir("tree"), scratch.tmpfs("tree/secrets"));
    let below = scratch.tmpfs("tree/secrets/below");
    let treat = |found: Found<'_>| match found.entry.target == own && !found.covers {
        true => Treatment::Own,
        false => Treatment::Foreign,
    };
    let outcome = end_mounts(&tree, treat).unwrap();
    assert!(outcome.ended.is_empty() && outcome.left.len() == 1, "{outcome:?}");
    assert_eq!(fs::read_to_string(below.join("canary")).unwrap(), "kept");
    unmount(&below, Unmount::Now).unwrap();
    // Another party's mount covers the caller's own one.
    mount_tmpfs(&own, 1 << 20, 0o755).unwrap();
    fs::write(own.join("canary"), "kept").unwrap();
    let outcome = end_mounts(&tree, treat).unwrap();
    assert!(outcome.ended.is_empty() && outcome.left.len() == 1, "{outcome:?}");
    unmount(&own, Unmount::Now).unwrap();
    let _open = fs::File::create(own.join("open")).unwrap();
    let outcome = end_mounts(&tree, treat).unwrap();
    assert_eq!((outcome.ended, outcome.left), (vec![own], vec![]));
}

#[test]
fn what_the_caller_keeps_is_not_touched() {
    let scratch = Scratch::new();
    let (tree, outside) = (scratch.dir("tree"), scratch.dir("outside"));
    let (kept, used) = (scratch.dir("tree/kept"), scratch.dir("tree/used"));
    bind(&outside, &kept, false).unwrap();
    bind(&outside, &used, false).unwrap();
    let treat = |found: Found<'_>| match found.entry.target == kept {
        true => Treatment::Keep,
        false => Treatment::Used("a volume needs it"),
    };
    let outcome = end_mounts(&tree, treat).unwrap();
    assert!(is_mount_point(&kept).unwrap() && is_mount_point(&used).unwrap());
    assert!(outcome.ended.is_empty() && outcome.left.len() == 1, "{outcome:?}");
    assert_eq!(outcome.left[0].reason.to_string(), "a volume needs it");
}

/// Unmounting a shared mount also unmounts its copies in peers, so a process that uses a copy prevents the unmount.
#[test]
fn a_use_of_a_propagated_copy_counts() {
    let scratch = Scratch::new();
    let (tree, peer, outside) = (scratch.dir("tree"), scratch.dir("peer"), scratch.dir("outside"));
    bind(&tree, &tree, false).unwrap();
    set_propagation(&tree, Propagation::Shared, false).unwrap();
    bind(&tree, &peer, false).unwrap();
    fs::create_dir(tree.join("work")).unwrap();
    bind(&outside, &tree.join("work"), false).unwrap();
    let open = fs::File::create(peer.join("work/open")).unwrap();
    let treat = |found: Found<'_>| match found.entry.target == tree {
        true => Treatment::Keep,
        false => Treatment::Foreign,
    };
    let outcome = end_mounts(&tree, treat).unwrap();
    assert_eq!(outcome.left.len(), 1, "{outcome:?}");
    drop(open);
    assert_eq!(end_mounts(&tree, treat).unwrap().ended, [tree.join("work")]);
    assert!(!is_mount_point(&peer.join("work")).unwrap());
}

#[test]
fn odd_names_are_found() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let (tree, outside) = (scratch.dir("tree"), scratch.dir("outside"));
    for name in [&b"a b\\c\td\ne"[..], b"\xff\xfe"] {
        let at = tree.join(OsStr::from_bytes(name));
        fs::create_dir(&at).unwrap();
        bind(&outside, &at, false).unwrap();
        assert_eq!(foreign(&tree).ended, [at]);
    }
}

#[test]
fn work_that_hangs_keeps_its_path_until_it_is_over_and_no_longer() {
    let path = Path::new("/hangs/in/a/test");
    let (go, wait) = mpsc::channel::<()>();
    let limit = Duration::from_millis(50);
    assert_eq!(within(path, limit, move || wait.recv().is_ok()), Err(LeftReason::Silent));
    assert_eq!(within(path, UNMOUNT_TIMEOUT, || ()), Err(LeftReason::Silent), "the first is not over");
    assert_eq!(within(Path::new("/another"), UNMOUNT_TIMEOUT, || 7), Ok(7));
    go.send(()).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while within(path, UNMOUNT_TIMEOUT, || ()) != Ok(()) {
        assert!(std::time::Instant::now() < deadline, "the path is never free");
        std::thread::yield_now();
    }
}

/// Work that ends at the timeout of its caller still frees the path.
#[test]
fn work_that_is_over_as_its_caller_gives_up_does_not_keep_its_path() {
    let path = Path::new("/ends/in/time/or/not");
    for round in 0..500 {
        let _either = within(path, Duration::from_micros(round % 100), || ());
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while WORKING.lock().unwrap().contains(path) {
            assert!(std::time::Instant::now() < deadline, "round {round}");
            std::thread::yield_now();
        }
    }
}
