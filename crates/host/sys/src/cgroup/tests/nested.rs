//! Groups that a task makes in its own group.

use super::devices::hierarchies;
use super::*;

#[test]
fn processes_in_groups_below_count_and_end() {
    for hierarchy in hierarchies() {
        let version = hierarchy.version();
        let path = PathBuf::from(format!("caravan-test-{}-nested-{version}", std::process::id()));
        let group = Cgroup::create(&hierarchy, &path).unwrap();
        let below = Cgroup::create(&hierarchy, &path.join("a/b")).unwrap();
        assert!(group.is_empty().unwrap());
        let mut child = Kills(Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap());
        below.add(child.0.id(), &BTreeMap::new()).unwrap();
        assert!(!group.is_empty().unwrap(), "{version}");
        assert!(group.pids().unwrap().contains(&child.0.id()), "{version}");
        assert!(group.remove().is_err(), "{version}: a group with processes is removed");
        group.kill().unwrap();
        assert!(!child.0.wait().unwrap().success());
        assert!(group.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
        // The kernel of version 1 reports a group without processes as busy for a moment.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while let Err(error) = group.remove() {
            assert!(std::time::Instant::now() < deadline, "{version}: {error}");
            std::thread::yield_now();
        }
        assert!(!group.exists() && !below.exists(), "{version}");
    }
}

/// Linux before 5.14 has no `cgroup.kill`.
#[test]
fn processes_end_without_the_file_for_it() {
    for hierarchy in hierarchies() {
        let Hierarchy::V2(_) = hierarchy else { continue };
        let path = PathBuf::from(format!("caravan-test-{}-nokill", std::process::id()));
        let group = Cgroup::create(&hierarchy, &path).unwrap();
        let below = Cgroup::create(&hierarchy, &path.join("below")).unwrap();
        let script = "while :; do sh -c 'sleep 60 & sleep 60 & wait' & sleep 0.01; done";
        let mut child = Kills(Command::new("sh").args(["-c", script]).spawn().unwrap());
        below.add(child.0.id(), &BTreeMap::new()).unwrap();
        group.kill_one_by_one().unwrap();
        assert!(!child.0.wait().unwrap().success());
        assert!(group.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
        group.remove().unwrap();
    }
}

#[test]
fn a_process_out_of_memory_below_is_counted() {
    let Some((group, path)) = real("oom-below") else { return };
    let hierarchy = Hierarchy::detect().unwrap().unwrap();
    let below = Cgroup::create(&hierarchy, &path.join("below")).unwrap();
    let refused =
        below.set_limits(&Limits { memory_max: Some(16 << 20), swap_max: Some(0), ..Limits::default() });
    assert!(refused.is_empty(), "{refused:?}");
    let grow = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}";
    super::devices::output(&below, grow);
    assert!(below.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
    assert!(group.oom_kills().unwrap() >= 1);
    below.remove().unwrap();
    if let Hierarchy::V2(_) = hierarchy {
        assert!(group.oom_kills().unwrap() >= 1, "the group that counted is removed");
    }
    group.remove().unwrap();
}
