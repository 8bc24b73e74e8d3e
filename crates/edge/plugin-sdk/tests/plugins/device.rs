//! A device plugin.

use crate::host::{Plugin, within};
use caravan_proto::plugins::device::{
    DeviceGroup, DeviceSpec, FingerprintRequest, Mount, ReserveRequest, StatsRequest,
};
use caravan_proto::plugins::structs::attribute::Value;
use serde_json::json;
use std::fs;

fn states(groups: &[DeviceGroup]) -> Vec<(&str, bool, &str)> {
    let devices = groups.iter().flat_map(|group| &group.devices);
    devices.map(|device| (device.id.as_str(), device.healthy, device.health_description.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    let plugin = Plugin::start("exampledevice", dir.path()).await.unwrap();
    plugin.configure(&json!({ "dir": files, "node": "/dev/null" })).await.unwrap();
    let mut stream = within(plugin.device().fingerprint(FingerprintRequest {})).await.unwrap().into_inner();
    let none = within(stream.message()).await.unwrap().unwrap();
    assert!(none.device_group.is_empty());

    fs::create_dir(&files).unwrap();
    fs::write(dir.path().join("new"), "healthy\n").unwrap();
    fs::rename(dir.path().join("new"), files.join("a")).unwrap();
    let one = within(stream.message()).await.unwrap().unwrap();
    let group = &one.device_group[0];
    let name = (group.vendor.as_str(), group.device_type.as_str(), group.device_name.as_str());
    assert_eq!(name, ("caravan", "file", "mock"));
    assert_eq!(states(&one.device_group), [("a", true, "")]);
    assert_eq!(group.attributes["bytes"].value, Some(Value::IntVal(8)));

    fs::write(dir.path().join("new"), "fan is broken").unwrap();
    fs::rename(dir.path().join("new"), files.join("a")).unwrap();
    let broken = within(stream.message()).await.unwrap().unwrap();
    assert_eq!(states(&broken.device_group), [("a", false, "fan is broken")]);
    fs::remove_file(files.join("a")).unwrap();
    let none = within(stream.message()).await.unwrap().unwrap();
    assert!(none.device_group.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_reserved_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(files.join(name), "healthy").unwrap();
    }
    let plugin = Plugin::start("exampledevice", dir.path()).await.unwrap();
    let early = ReserveRequest { device_ids: vec!["a".into()] };
    let error = within(plugin.device().reserve(early)).await.unwrap_err();
    assert!(error.message().contains("not configured"), "{error}");
    plugin.configure(&json!({ "dir": files, "node": "/dev/null" })).await.unwrap();

    let request = ReserveRequest { device_ids: vec!["a".into(), "c".into()] };
    let reserved = within(plugin.device().reserve(request)).await.unwrap().into_inner();
    let reserved = reserved.container_res.unwrap();
    assert_eq!(reserved.envs["CARAVAN_FILE_DEVICES"], "a,c");
    let mount = Mount {
        task_path: "/caravan/devices/a".into(),
        host_path: files.join("a").display().to_string(),
        read_only: true,
    };
    assert_eq!((reserved.mounts.len(), &reserved.mounts[0]), (2, &mount));
    let device = DeviceSpec {
        task_path: "/dev/caravan-c".into(),
        host_path: "/dev/null".into(),
        permissions: "rw".into(),
    };
    assert_eq!(reserved.devices[1], device);
    let unknown = ReserveRequest { device_ids: vec!["a".into(), "x".into()] };
    let error = within(plugin.device().reserve(unknown)).await.unwrap_err();
    assert_eq!(error.message(), "unknown device IDs: x");

    let collection_interval = Some(prost_types::Duration { seconds: 0, nanos: 10_000_000 });
    let mut stream =
        within(plugin.device().stats(StatsRequest { collection_interval })).await.unwrap().into_inner();
    for _ in 0..2 {
        let stats = within(stream.message()).await.unwrap().unwrap();
        let instance = &stats.groups[0].instance_stats["b"];
        assert_eq!(instance.summary.as_ref().unwrap().int_numerator_val, Some(7));
        assert_eq!(instance.stats.as_ref().unwrap().attributes["healthy"].bool_val, Some(true));
        assert!(instance.timestamp.is_some());
    }
}
