//! Device rules, tested on every hierarchy of the machine: a hybrid has both versions.

use super::*;
use crate::mount::DeviceKind;
use crate::mountinfo::Device;
use std::process::Stdio;

/// The kernel's log: a character device that no program needs, with the number 1:11 on every host.
const LOG: Device = Device { major: 1, minor: 11 };

pub(super) fn hierarchies() -> Vec<Hierarchy> {
    let table = MountTable::read().unwrap();
    let unified = table.entries().iter().find(|e| e.fs_type == "cgroup2");
    let unified = unified.map(|entry| Hierarchy::V2(entry.target.clone()));
    let detected = Hierarchy::from_mounts(&table);
    detected
        .into_iter()
        .chain(unified.filter(|_| table.entries().iter().any(|e| e.fs_type == "cgroup")))
        .collect()
}

/// Runs a shell script in a group and returns its output.
pub(super) fn output(group: &Cgroup, script: &str) -> String {
    let mut child = Command::new("sh")
        .args(["-c", &format!("read go; {{ {script}; }} 2>/dev/null")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    group.add(child.id(), &BTreeMap::new()).unwrap();
    drop(child.stdin.take());
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_group_uses_the_devices_of_its_rules_only() {
    for hierarchy in hierarchies() {
        let version = hierarchy.version();
        let path = PathBuf::from(format!("caravan-test-{}-devices-{version}", std::process::id()));
        let group = Cgroup::create(&hierarchy, &path).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let node = dir.path().join("log");
        let status = Command::new("mknod").arg(&node).args(["c", "1", "11"]).status().unwrap();
        assert!(status.success());
        let node = node.display();
        let script = format!(
            "echo x >/dev/null && echo null; head -c 2 /dev/urandom | wc -c; \
             (exec 3<{node}) && echo read; (exec 3>{node}) && echo write; (exec 3<>{node}) && echo both; \
             mknod {node}2 c 1 11 && rm {node}2 && echo create"
        );
        let uses = |group: &Cgroup| -> Vec<String> {
            output(group, &script).split_whitespace().map(str::to_owned).collect()
        };
        let basic = ["null", "2"];
        let with = |more: &[&'static str]| [&basic[..], more].concat();
        assert_eq!(uses(&group), with(&["read", "write", "both", "create"]), "{version}: no rules");
        // A rule of a group that is not limited limits nothing.
        let read = DeviceRule::using(DeviceKind::Character, LOG, false);
        group.allow_device(read).unwrap();
        assert_eq!(uses(&group), with(&["read", "write", "both", "create"]), "{version}: a rule alone");
        assert!(group.restrict_devices(&[]).unwrap().is_empty());
        assert_eq!(uses(&group), with(&[]), "{version}: basic rules");
        group.allow_device(read).unwrap();
        assert_eq!(uses(&group), with(&["read"]), "{version}: reading");
        group.allow_device(DeviceRule::using(DeviceKind::Character, LOG, true)).unwrap();
        assert_eq!(uses(&group), with(&["read", "write", "both"]), "{version}: writing");
        // A block device of the same number is another device.
        let block = DeviceRule::using(DeviceKind::Block, LOG, true);
        assert!(group.restrict_devices(&[block]).unwrap().is_empty());
        assert_eq!(uses(&group), with(&[]), "{version}: another kind");
        let all = DeviceRule { minor: None, access: DeviceAccess::ALL, ..read };
        assert!(group.restrict_devices(&[all]).unwrap().is_empty());
        assert_eq!(uses(&group), with(&["read", "write", "both", "create"]), "{version}: any number");
        // Groups below have no more than the group.
        if let Hierarchy::V2(_) = hierarchy {
            group.restrict_devices(&[]).unwrap();
            let below = Cgroup::create(&hierarchy, &path.join("below")).unwrap();
            assert_eq!(uses(&below), with(&[]), "{version}: a group below");
        }
        group.remove().unwrap();
    }
}

#[test]
fn machines_report_how_devices_are_limited() {
    for hierarchy in hierarchies() {
        let mechanism = device_mechanism(&hierarchy);
        match hierarchy {
            Hierarchy::V1(controllers) if controllers.contains_key("devices") => {
                assert_eq!(mechanism, Ok(DeviceMechanism::Controller));
            }
            Hierarchy::V1(_) => assert_eq!(mechanism, Err(DeviceRefusal::NoController)),
            Hierarchy::V2(_) => assert_eq!(mechanism, Ok(DeviceMechanism::Program)),
        }
    }
    let without = Hierarchy::V1(BTreeMap::new());
    assert_eq!(device_mechanism(&without), Err(DeviceRefusal::NoController));
    let group = Cgroup::at(&without, Path::new("x")).unwrap();
    let error = group.restrict_devices(&[]).unwrap_err().to_string();
    assert_eq!(error, "the use of devices cannot be limited: the host has no devices controller");
}
