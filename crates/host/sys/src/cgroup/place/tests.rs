use super::*;

/// A host of systemd with version 2 only.
const UNIFIED: &str = "\
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
31 23 0:27 / /sys/fs/pstore rw,nosuid,nodev,noexec,relatime shared:10 - pstore pstore rw
";

/// A host of systemd with version 1, and with the unified tree in addition.
const HYBRID: &str = "\
25 18 0:21 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
26 25 0:22 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
27 25 0:23 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
30 25 0:26 / /sys/fs/cgroup/cpuset rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpuset
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/devices rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,devices
33 25 0:29 / /sys/fs/cgroup/freezer rw,nosuid,nodev,noexec,relatime shared:18 - cgroup cgroup rw,freezer
34 25 0:30 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:19 - cgroup cgroup rw,memory
35 25 0:31 / /sys/fs/cgroup/pids rw,nosuid,nodev,noexec,relatime shared:20 - cgroup cgroup rw,pids
";

const HYBRID_OWN: &str = "\
11:memory:/system.slice/caravan.service
5:devices:/system.slice/caravan.service
1:name=systemd:/system.slice/caravan.service
0::/system.slice/caravan.service
";

/// A container of an engine on version 1: its part of each tree, read-only.
const READ_ONLY_V1: &str = "\
790 789 0:90 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
791 790 0:95 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
792 791 0:23 /docker/5f0c /sys/fs/cgroup/systemd ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,xattr,name=systemd
793 791 0:30 /docker/5f0c /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:19 - cgroup cgroup rw,memory
794 791 0:28 /docker/5f0c /sys/fs/cgroup/devices ro,nosuid,nodev,noexec,relatime master:17 - cgroup cgroup rw,devices
";

/// A container of an engine on version 2, without privileges.
const READ_ONLY_V2: &str = "\
520 519 0:62 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
521 520 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot
";

/// A container whose mount shows a part of the tree, without a separate namespace.
const PART: &str = "\
521 520 0:26 /machine.slice/box.scope /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw
";

const ALL: &str = "cpuset cpu io memory hugetlb pids rdma misc\n";

fn survey(mounts: &str, own: &str, controllers: &str) -> Survey {
    let table = MountTable::parse(mounts).unwrap();
    Survey::new(&table, own, |_| controllers.to_owned()).unwrap()
}

fn names(survey: &Survey) -> Vec<&str> {
    survey.controllers.iter().map(String::as_str).collect()
}

#[test]
fn a_host_of_systemd_has_version_two() {
    let found = survey(UNIFIED, "0::/system.slice/caravan.service/agent\n", ALL);
    assert_eq!(found.hierarchy, Hierarchy::V2("/sys/fs/cgroup".into()));
    assert_eq!(names(&found), ["cpu", "cpuset", "io", "memory", "pids"]);
    assert!(!found.read_only);
    assert_eq!(found.own, Some("system.slice/caravan.service/agent".into()));
}

#[test]
fn a_hybrid_has_its_controllers_on_version_one() {
    let found = survey(HYBRID, HYBRID_OWN, "");
    assert_eq!(found.hierarchy.version(), "v1");
    assert_eq!(names(&found), ["cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"]);
    assert!(!found.read_only && found.own.is_none());
    // Version 1 alone is the same without the unified tree.
    let legacy: String = HYBRID
        .lines()
        .filter(|line| !line.contains("cgroup2"))
        .fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(survey(&legacy, HYBRID_OWN, ""), found);
}

#[test]
fn a_hierarchy_of_version_one_without_controllers_is_no_version_one() {
    let named: String = HYBRID
        .lines()
        .filter(|line| line.contains("cgroup2") || line.contains("name=systemd"))
        .fold(String::new(), |text, line| text + line + "\n");
    let found = survey(&named, HYBRID_OWN, ALL);
    assert_eq!(found.hierarchy, Hierarchy::V2("/sys/fs/cgroup/unified".into()));
    assert_eq!(found.own, Some("system.slice/caravan.service".into()));
}

#[test]
fn a_container_with_read_only_groups_is_recognized() {
    let found = survey(READ_ONLY_V1, "4:memory:/docker/5f0c\n", "");
    assert!(found.read_only && found.hierarchy.version() == "v1");
    let found = survey(READ_ONLY_V2, "0::/\n", "cpu memory pids\n");
    assert!(found.read_only && found.hierarchy.version() == "v2");
    assert_eq!(names(&found), ["cpu", "memory", "pids"]);
}

#[test]
fn a_writable_mount_comes_before_a_read_only_one() {
    let second = "522 520 0:26 / /run/cgroup rw,relatime - cgroup2 cgroup rw\n";
    for both in [format!("{READ_ONLY_V2}{second}"), format!("{second}{READ_ONLY_V2}")] {
        let found = survey(&both, "0::/\n", ALL);
        assert_eq!((found.hierarchy, found.read_only), (Hierarchy::V2("/run/cgroup".into()), false));
    }
}

#[test]
fn the_root_of_a_container_is_the_top_of_its_tree() {
    let writable = READ_ONLY_V2.replace("/sys/fs/cgroup ro,", "/sys/fs/cgroup rw,");
    let found = survey(&writable, "0::/\n", ALL);
    assert!(!found.read_only);
    assert_eq!(found.own, Some(PathBuf::new()));
    let found = survey(PART, "0::/machine.slice/box.scope/shell\n", ALL);
    assert_eq!(found.own, Some("shell".into()));
    // A process outside the mounted part.
    for outside in ["0::/user.slice\n", "0::/../other\n", "1:name=systemd:/\n", ""] {
        assert_eq!(survey(PART, outside, ALL).own, None, "{outside:?}");
    }
    assert_eq!(Survey::new(&MountTable::default(), "0::/\n", |_| String::new()), None);
}

#[test]
fn the_manager_keeps_what_it_does_not_delegate() {
    let decide = |own: &str, managed, delegated: &[&str]| {
        Place::decide(Some(Path::new(own)), managed, |group| delegated.iter().any(|d| group == Path::new(d)))
    };
    let unit = "system.slice/caravan.service";
    let below = "system.slice/caravan.service/agent";
    assert_eq!(decide(below, false, &[unit]), Place::Top);
    assert_eq!(decide(below, true, &[unit]), Place::Delegated(unit.into()));
    // The unit has no separate group for the agent, or delegates nothing.
    assert_eq!(decide(unit, true, &[unit]), Place::Requested);
    assert_eq!(decide(unit, true, &[]), Place::Requested);
    assert_eq!(decide("user.slice/user-0.slice/session-1.scope", true, &[]), Place::Requested);
    let session = "user.slice/user-7.slice/user@7.service";
    assert_eq!(decide(&format!("{session}/app.slice/a.service"), true, &[session]), Place::Requested);
    assert_eq!(Place::decide(None, true, |_| true), Place::Requested);
    // The root of a container is not delegated by its own manager.
    assert_eq!(decide("", true, &[""]), Place::Requested);
}

#[test]
fn nothing_moves_out_of_the_root_of_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchy = Hierarchy::V2(dir.path().to_owned());
    vacate(&hierarchy, Path::new(""), "agent").unwrap();
    assert!(!dir.path().join("agent").exists());
}
