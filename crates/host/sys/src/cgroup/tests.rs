use super::*;
use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::Instant;

mod devices;
mod nested;
mod unified;

const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

#[test]
fn a_hybrid_is_version_one() {
    let Some(Hierarchy::V1(controllers)) = Hierarchy::from_mounts(&MountTable::parse(HYBRID).unwrap()) else {
        panic!("not version 1")
    };
    let names: Vec<&str> = controllers.keys().map(String::as_str).collect();
    assert_eq!(names, ["cpu", "cpuacct", "memory"]);
    assert_eq!(controllers["cpu"], controllers["cpuacct"]);
    let group = Cgroup::at(&Hierarchy::V1(controllers), Path::new("a/b")).unwrap();
    let Kind::V1(group) = &group.kind else { panic!("not version 1") };
    assert_eq!(group.dirs().count(), 2);
}

#[test]
fn a_lone_unified_mount_is_version_two() {
    let table = MountTable::parse("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n").unwrap();
    assert_eq!(Hierarchy::from_mounts(&table).unwrap().version(), "v2");
    assert_eq!(Hierarchy::from_mounts(&MountTable::default()), None);
}

#[test]
fn paths_cannot_leave_the_hierarchy() {
    let hierarchy = Hierarchy::V2("/sys/fs/cgroup".into());
    for path in ["", "/abs", "a/../../b"] {
        assert!(Cgroup::at(&hierarchy, Path::new(path)).is_err(), "{path:?}");
    }
}

struct Kills(Child);

impl Drop for Kills {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn real(name: &str) -> Option<(Cgroup, PathBuf)> {
    let hierarchy = Hierarchy::detect().unwrap()?;
    let path = PathBuf::from(format!("caravan-test-{}-{name}", std::process::id()));
    Some((Cgroup::create(&hierarchy, &path).unwrap(), path))
}

#[test]
fn holds_limits_counts_and_kills_a_tree_of_processes() {
    let Some((group, _)) = real("kill") else { return };
    let limits = Limits {
        cpu_shares: Some(500),
        memory_max: Some(64 << 20),
        memory_reserved: Some(32 << 20),
        pids_max: Some(100),
        swap_max: Some(0),
        cpu_quota: Some(CpuQuota { quota_us: 50_000, period_us: 100_000 }),
        ..Limits::default()
    };
    let refused = group.set_limits(&limits);
    assert!(refused.is_empty(), "{refused:?}");
    let refused = group.restrict_devices(&[]).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let child = Kills(Command::new("sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().unwrap());
    group.add(child.0.id(), &BTreeMap::new()).unwrap();
    assert!(group.pids().unwrap().contains(&child.0.id()));
    assert!(group.usage().unwrap().pids >= 1);
    assert_eq!(group.oom_kills().unwrap(), 0);
    group.kill().unwrap();
    let mut child = child;
    child.0.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !group.is_empty().unwrap() {
        assert!(Instant::now() < deadline, "processes survive: {:?}", group.pids());
        std::thread::yield_now();
    }
    group.remove().unwrap();
    group.remove().unwrap();
    assert!(!group.exists());
    assert!(group.is_empty().unwrap());
    group.kill().unwrap();
}

#[test]
fn a_process_out_of_memory_is_counted() {
    let Some((group, _)) = real("oom") else { return };
    let refused = group.set_limits(&Limits { memory_max: Some(16 << 20), ..Limits::default() });
    assert!(refused.is_empty(), "{refused:?}");
    // The shell waits for a line, so that it is in the group before it uses memory.
    let mut child = Command::new("sh")
        .args(["-c", "read go; x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    group.add(child.id(), &BTreeMap::new()).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(group.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
    assert!(group.oom_kills().unwrap() >= 1);
    group.remove().unwrap();
}

#[test]
fn version_two_kills_in_one_step_where_it_is_mounted() {
    let table = MountTable::read().unwrap();
    let Some(mount) = table.entries().iter().find(|e| e.fs_type == "cgroup2") else { return };
    let hierarchy = Hierarchy::V2(mount.target.clone());
    let path = PathBuf::from(format!("caravan-test-{}-v2", std::process::id()));
    let group = Cgroup::create(&hierarchy, &path).unwrap();
    let child = Kills(Command::new("sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().unwrap());
    group.add(child.0.id(), &BTreeMap::new()).unwrap();
    assert!(group.pids().unwrap().contains(&child.0.id()));
    group.usage().unwrap();
    group.kill().unwrap();
    let mut child = child;
    assert!(!child.0.wait().unwrap().success());
    assert!(group.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
    group.remove().unwrap();
    assert!(!group.exists());
}

#[test]
fn processors_are_given_shared_and_taken_back() {
    let Some(hierarchy) = Hierarchy::detect().unwrap() else { return };
    let parent = PathBuf::from(format!("caravan-test-{}-cpus", std::process::id()));
    let Some(all) = SharedCpus::available(&hierarchy, &parent) else { return };
    let shared = SharedCpus::open(&hierarchy, &parent).unwrap();
    let own = Cgroup::create(&hierarchy, &parent.join("own")).unwrap();
    let first: String = all.chars().take_while(char::is_ascii_digit).collect();
    let limits = Limits { cpus: Some(first.clone()), ..Limits::default() };
    assert!(own.set_limits(&limits).is_empty());
    let allowed = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    };
    let mut one = Kills(Command::new("sleep").arg("60").spawn().unwrap());
    let mut other = Kills(Command::new("sleep").arg("60").spawn().unwrap());
    own.add(one.0.id(), &BTreeMap::new()).unwrap();
    assert_eq!(allowed(one.0.id()), first);
    let sharing = Cgroup::create(&hierarchy, &parent.join("sharing")).unwrap();
    let elsewhere: BTreeMap<String, PathBuf> =
        shared.group().map(|path| ("cpuset".to_owned(), path.to_owned())).into_iter().collect();
    sharing.add(other.0.id(), &elsewhere).unwrap();
    let except = BTreeSet::from(["own".to_owned()]);
    for cpus in [&first, &all] {
        shared.set(cpus, &except).unwrap();
        assert_eq!((allowed(one.0.id()), &allowed(other.0.id())), (first.clone(), cpus));
    }
    for child in [&mut one.0, &mut other.0] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    own.remove().unwrap();
    sharing.remove().unwrap();
    shared.remove().unwrap();
    Cgroup::at(&hierarchy, &parent).unwrap().remove().unwrap();
}

#[test]
fn processors_that_there_are_not_are_refused_and_hold_nobody() {
    let Some((group, path)) = real("nocpus") else { return };
    let hierarchy = Hierarchy::detect().unwrap().unwrap();
    if SharedCpus::available(&hierarchy, Path::new("")).is_some() {
        let limits = Limits { cpus: Some("60000".into()), ..Limits::default() };
        assert_eq!(group.set_limits(&limits).len(), 1);
        let child = Kills(Command::new("sleep").arg("60").spawn().unwrap());
        group.add(child.0.id(), &BTreeMap::new()).unwrap();
        drop(child);
    }
    Cgroup::at(&hierarchy, &path).unwrap().remove().unwrap();
}
