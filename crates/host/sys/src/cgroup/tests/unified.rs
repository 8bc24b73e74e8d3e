//! Version 2, with all controllers. Runs where version 2 is the only one.

use super::*;

fn unified() -> Option<Hierarchy> {
    Hierarchy::detect().unwrap().filter(|hierarchy| matches!(hierarchy, Hierarchy::V2(_)))
}

fn text(group: &Cgroup, file: &str) -> String {
    let Kind::V2(group) = &group.kind else { panic!("not version 2") };
    std::fs::read_to_string(group.dir().join(file))
        .unwrap_or_else(|e| panic!("{file}: {e}"))
        .trim()
        .to_owned()
}

#[test]
fn limits_are_written_as_the_kernel_reads_them() {
    let Some(hierarchy) = unified() else { return };
    let path = PathBuf::from(format!("caravan-test-{}-limits/a.b", std::process::id()));
    let group = Cgroup::create(&hierarchy, &path).unwrap();
    let limits = Limits {
        cpu_shares: Some(1024),
        cpu_quota: Some(CpuQuota { quota_us: 150_000, period_us: 100_000 }),
        memory_max: Some(64 << 20),
        memory_high: Some(48 << 20),
        memory_reserved: Some(32 << 20),
        swap_max: Some(0),
        pids_max: Some(50),
        ..Limits::default()
    };
    let refused = group.set_limits(&limits);
    assert!(refused.is_empty(), "{refused:?}");
    for (file, expected) in [
        ("cpu.weight", "39"),
        ("cpu.max", "150000 100000"),
        ("memory.max", "67108864"),
        ("memory.high", "50331648"),
        ("memory.low", "33554432"),
        ("pids.max", "50"),
    ] {
        assert_eq!(text(&group, file), expected, "{file}");
    }
    let Kind::V2(inner) = &group.kind else { panic!("not version 2") };
    if inner.dir().join("memory.swap.max").exists() {
        assert_eq!(text(&group, "memory.swap.max"), "0");
    }
    let weighs = inner.dir().join("io.weight").exists() || inner.dir().join("io.bfq.weight").exists();
    let refused = group.set_limits(&Limits { io_weight: Some(200), ..Limits::default() });
    assert_eq!(refused.is_empty(), weighs, "{refused:?}");
    if inner.dir().join("io.weight").exists() {
        assert_eq!(text(&group, "io.weight"), "default 200");
    }
    group.remove().unwrap();
    Cgroup::at(&hierarchy, path.parent().unwrap()).unwrap().remove().unwrap();
}

#[test]
fn a_limit_that_the_kernel_refuses_is_reported_with_its_file() {
    let Some(hierarchy) = unified() else { return };
    let path = PathBuf::from(format!("caravan-test-{}-refused", std::process::id()));
    let group = Cgroup::create(&hierarchy, &path).unwrap();
    let quota = Some(CpuQuota { quota_us: 1, period_us: 1 });
    let refused = group.set_limits(&Limits { cpu_quota: quota, ..Limits::default() });
    assert_eq!(refused.len(), 1);
    assert!(refused[0].to_string().ends_with("cpu.max"), "{}", refused[0]);
    group.remove().unwrap();
}

#[test]
fn usage_has_processor_time_memory_and_pressure() {
    let Some(hierarchy) = unified() else { return };
    let path = PathBuf::from(format!("caravan-test-{}-usage", std::process::id()));
    let group = Cgroup::create(&hierarchy, &path).unwrap();
    super::devices::output(&group, "x=$(head -c 3000000 /dev/zero | tr '\\0' x); echo ${#x}");
    let usage = group.usage().unwrap();
    assert!(usage.cpu_total > Duration::ZERO && usage.cpu_total >= usage.cpu_user, "{usage:?}");
    assert_eq!(usage.pids, 0);
    let is_measured = std::fs::read_to_string("/proc/pressure/memory").is_ok();
    assert_eq!(usage.pressure.memory.is_some(), is_measured, "{usage:?}");
    assert_eq!(usage.pressure.cpu.is_some(), is_measured, "{usage:?}");
    if let Kind::V2(inner) = &group.kind
        && inner.dir().join("memory.peak").exists()
    {
        assert!(usage.memory_peak > 1 << 20, "{usage:?}");
    }
    group.remove().unwrap();
}

/// The kernel protects no more memory of a group than the groups above reserve.
#[test]
fn reserved_memory_is_reserved_by_the_groups_above() {
    let Some(hierarchy) = unified() else { return };
    let top = PathBuf::from(format!("caravan-test-{}-low", std::process::id()));
    let reserve = |name: &str, bytes| {
        let group = Cgroup::create(&hierarchy, &top.join("parent").join(name)).unwrap();
        let limits = Limits { memory_reserved: Some(bytes), ..Limits::default() };
        assert!(group.set_limits(&limits).is_empty());
        group
    };
    let above = [Cgroup::at(&hierarchy, &top).unwrap(), Cgroup::at(&hierarchy, &top.join("parent")).unwrap()];
    let one = reserve("one", 8 << 20);
    assert_eq!(above.each_ref().map(|group| text(group, "memory.low")), ["8388608", "8388608"]);
    let other = reserve("other", 4 << 20);
    assert_eq!(above.each_ref().map(|group| text(group, "memory.low")), ["12582912", "12582912"]);
    one.remove().unwrap();
    other.remove().unwrap();
    reserve("third", 1 << 20).remove().unwrap();
    assert_eq!(above.each_ref().map(|group| text(group, "memory.low")), ["1048576", "1048576"]);
    above[0].remove().unwrap();
}

#[test]
fn a_frozen_group_stands_still() {
    let Some(hierarchy) = unified() else { return };
    let path = PathBuf::from(format!("caravan-test-{}-frozen", std::process::id()));
    let group = Cgroup::create(&hierarchy, &path).unwrap();
    let mut child = Kills(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    group.add(child.0.id(), &BTreeMap::new()).unwrap();
    let Kind::V2(inner) = &group.kind else { panic!("not version 2") };
    inner.freeze(true).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !text(&group, "cgroup.events").contains("frozen 1") {
        assert!(Instant::now() < deadline, "{}", text(&group, "cgroup.events"));
        std::thread::yield_now();
    }
    // A frozen process dies by a kill of its group.
    group.kill().unwrap();
    assert!(!child.0.wait().unwrap().success());
    assert!(group.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
    group.remove().unwrap();
}

/// The first group from Linux 6.7 on is a partition; before, its processors are only its own list.
#[test]
fn own_processors_leave_all_other_groups_where_the_kernel_can() {
    let Some(hierarchy) = unified() else { return };
    let parent = PathBuf::from(format!("caravan-test-{}-own", std::process::id()));
    let Some(all) = SharedCpus::available(&hierarchy, &parent).filter(|all| all.as_str() != "0") else {
        return;
    };
    let group = Cgroup::create(&hierarchy, &parent.join("own")).unwrap();
    let limits = Limits { cpus: Some("1".into()), own_cpus: true, ..Limits::default() };
    let refused = group.set_limits(&limits);
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(text(&group, "cpuset.cpus.effective"), "1");
    let state = text(&group, "cpuset.cpus.partition");
    let Kind::V2(inner) = &group.kind else { panic!("not version 2") };
    if inner.dir().join("cpuset.cpus.exclusive").exists() && !place::is_managed() {
        assert_eq!(state, "root");
        let root = Cgroup { kind: Kind::V2(v2::Group::at(Path::new("/sys/fs/cgroup"), Path::new(""))) };
        assert!(!text(&root, "cpuset.cpus.effective").contains('1'));
        // The processors still belong to tasks.
        let listed = SharedCpus::available(&hierarchy, &parent).unwrap();
        assert!(listed.contains('1'), "{listed}");
    } else {
        assert_eq!(state, "member");
    }
    group.remove().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let effective =
        || std::fs::read_to_string("/sys/fs/cgroup/cpuset.cpus.effective").unwrap().trim().to_owned();
    while effective() != all {
        assert!(Instant::now() < deadline, "{} instead of {all}", effective());
        std::thread::yield_now();
    }
    Cgroup::at(&hierarchy, &parent).unwrap().remove().unwrap();
}

#[test]
fn a_place_is_found_and_a_group_is_vacated() {
    let Some(hierarchy) = unified() else { return };
    let survey = Survey::read().unwrap().unwrap();
    assert!(!survey.read_only && survey.own.is_some(), "{survey:?}");
    assert!(survey.controllers.contains("memory") && survey.controllers.contains("pids"), "{survey:?}");
    if !place::is_managed() {
        assert_eq!(Place::find(&survey), Place::Top);
    }
    let path = PathBuf::from(format!("caravan-test-{}-vacated", std::process::id()));
    let group = Cgroup::create(&hierarchy, &path).unwrap();
    let mut child = Kills(Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap());
    group.add(child.0.id(), &BTreeMap::new()).unwrap();
    vacate(&hierarchy, &path, "agent").unwrap();
    vacate(&hierarchy, &path, "agent").unwrap();
    let agent = Cgroup::at(&hierarchy, &path.join("agent")).unwrap();
    assert!(agent.pids().unwrap().contains(&child.0.id()));
    // The group itself has no process now, so that its other children can have limits.
    let task = Cgroup::create(&hierarchy, &path.join("task")).unwrap();
    let refused = task.set_limits(&Limits { memory_max: Some(64 << 20), ..Limits::default() });
    assert!(refused.is_empty(), "{refused:?}");
    group.kill().unwrap();
    child.0.wait().unwrap();
    assert!(group.kill_until_empty(1000, Duration::from_millis(5)).unwrap());
    group.remove().unwrap();
}

#[test]
fn a_job_names_a_group_by_either_path() {
    for path in ["a/b", "/a/b", "/sys/fs/cgroup/a/b"] {
        assert_eq!(
            below_mount(Path::new("/sys/fs/cgroup"), Path::new(path)),
            Path::new("/sys/fs/cgroup/a/b")
        );
    }
}
