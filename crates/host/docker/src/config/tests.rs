use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::path::Path;

fn error(value: &Value) -> String {
    Config::read(value).unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    let config = Config::read(&json!({
        "image": "https://r:5000/a/b:1", "command": "sh", "args": ["-c", 1], "entrypoint": ["/e"], "work_dir": "/w",
        "hostname": "h", "force_pull": "true", "load": "i.tar",
        "auth": [{"username": "u", "password": "p", "email": "e", "server_address": "s"}], "auth_soft_fail": true,
        "image_pull_timeout": "1m", "container_exists_attempts": 3, "privileged": true, "cap_add": ["x"],
        "cap_drop": ["all"], "security_opt": ["no-new-privileges", "seccomp=/f", "apparmor:x", "seccomp=unconfined"],
        "readonly_rootfs": true, "init": true, "interactive": true, "tty": true, "pid_mode": "host",
        "ipc_mode": "host", "uts_mode": "host", "userns_mode": "host", "cgroupns": "private",
        "cpu_hard_limit": true, "cpu_cfs_period": 5000, "cpuset_cpus": "0", "memory_hard_limit": 512,
        "pids_limit": 9, "oom_score_adj": 5, "shm_size": 1024, "ulimit": [{"nofile": "1:2", "core": "0"}],
        "sysctl": {"a": "b"}, "storage_opt": [{"size": "1G"}], "labels": [{"a": "1"}, {"b": "2"}],
        "logging": {"driver": "local", "config": {"x": 1}}, "healthchecks": {"disable": true},
        "devices": [{"host_path": "/dev/null", "cgroup_permissions": "r"}],
        "mount": [{"type": "bind", "source": "a", "target": "/t", "readonly": true,
            "bind_options": [{"propagation": "rshared"}]}],
        "mounts": [{"target": "/v", "source": "v", "volume_options": {"no_copy": true, "labels": {"l": "1"},
            "driver_config": {"name": "n", "options": {"o": "1"}}}},
            {"type": "tmpfs", "target": "/m", "tmpfs_options": {"size": 5, "mode": 448}}],
        "volumes": ["a:/b", "/c:/d:ro,z"], "runtime": "runc", "group_add": ["g"],
        "extra_hosts": ["h:1.2.3.4"], "dns_servers": ["1.1.1.1", "x"], "dns_search_domains": ["d"],
        "dns_options": ["ndots:1"], "network_mode": "n", "network_aliases": ["al"], "ipv4_address": "10.0.0.2",
        "ipv6_address": "fd00::1", "mac_address": "02:00:00:00:00:01", "advertise_ipv6_address": true,
        "ports": ["http"], "port_map": [{"db": 5432}], "volume_driver": "",
    }))
    .unwrap();
    assert_eq!(config.image, "r:5000/a/b:1");
    assert_eq!(config.security_opt[1], SecurityOpt::SeccompFile("/f".into()));
    assert_eq!(config.security_opt[2], SecurityOpt::Plain("apparmor=x".into()));
    assert_eq!(config.security_opt[3], SecurityOpt::Plain("seccomp=unconfined".into()));
    let ulimits: Vec<_> = config.limits.ulimits.iter().map(|u| (u.name.as_str(), u.soft, u.hard)).collect();
    assert_eq!(ulimits, [("core", 0, 0), ("nofile", 1, 2)]);
    assert_eq!(config.devices[0].container, "/dev/null");
    assert_eq!(config.mounts.len(), 3);
    assert_eq!(config.mounts[2].kind, MountKind::Tmpfs { size: Some(5), mode: Some(448) });
    assert_eq!(config.volumes[1].mode, "ro,z");
    assert_eq!(config.network.dns_servers, ["1.1.1.1"]);
    assert_eq!(config.network.port_map["db"], 5432);
    assert_eq!(config.labels.len(), 2);
    assert!(!format!("{config:?}").contains("\"p\""), "passwords are not in debug output");
}

#[test]
fn wrong_values_are_named() {
    for (bad, needle) in [
        (json!({}), "\"image\" of driver docker is required"),
        (json!({"image": "A b"}), "does not match registry specification"),
        (json!({"image": "a", "comand": "x"}), "no config key \"comand\""),
        (json!({"image": "a", "command": " x"}), "extra white space"),
        (json!({"image": "a", "command": "  "}), "command empty"),
        (json!({"image": "a", "auth": {"user": "x"}}), "no config key \"auth.user\""),
        (json!({"image": "a", "ulimit": {"nofile": ""}}), "cannot be empty"),
        (json!({"image": "a", "ulimit": {"nofile": "x:1"}}), "Malformed soft ulimit nofile: x:1"),
        (json!({"image": "a", "ulimit": {"nofile": "1:x"}}), "Malformed hard ulimit nofile: 1:x"),
        (json!({"image": "a", "security_opt": ["x"]}), "invalid security_opt: \"x\""),
        (json!({"image": "a", "devices": [{}]}), "host path must be set"),
        (
            json!({"image": "a", "devices": [{"host_path": "/d", "cgroup_permissions": "x"}]}),
            "invalid cgroup permission",
        ),
        (json!({"image": "a", "mount": {"type": "nfs", "target": "/t"}}), "invalid mount type"),
        (
            json!({"image": "a", "mount": {"type": "tmpfs", "target": "/t", "source": "x"}}),
            "must be \"\" for tmpfs",
        ),
        (json!({"image": "a", "mount": {"type": "bind", "target": "/t"}}), "\"mount.source\""),
        (json!({"image": "a", "volumes": ["a"]}), "not <src>:<destination> format"),
        (
            json!({"image": "a", "cpu_hard_limit": true, "cpu_cfs_period": 1_000_001}),
            "invalid value for cpu_cfs_period",
        ),
        (json!({"image": "a", "isolation": "hyperv"}), "\"isolation\""),
        (json!({"image": "a", "ipv4_address": "x"}), "failed to parse ipv4_address \"x\""),
        (json!({"image": "a", "port_map": {"x": 70000}}), "\"port_map\""),
        (json!({"image": "a", "cgroupns": "x"}), "\"cgroupns\""),
        (json!({"image": "a", "tty": "perhaps"}), "\"tty\""),
    ] {
        let error = error(&bad);
        assert!(error.contains(needle), "{error}");
    }
}

#[test]
fn sources_are_taken_below_the_task() {
    let dir = Path::new("/a/t");
    assert_eq!(expand(dir, "local/x"), Path::new("/a/t/local/x"));
    assert_eq!(expand(dir, "../../../../etc"), Path::new("/etc"));
    assert_eq!(expand(dir, "/etc/./x"), Path::new("/etc/x"));
}

const KEYS: [&str; 12] = [
    "image", "args", "mount", "volumes", "ulimit", "devices", "auth", "logging", "port_map", "cap_add",
    "tty", "odd",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:/=. ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("source|target|type|config|name|username|[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_block_is_read_or_refused(map in prop::collection::btree_map(prop::sample::select(&KEYS[..]), any_value(), 0..8)) {
        let value = Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        let odd = value.get("odd").is_some_and(|value| !value.is_null());
        let read = Config::read(&value);
        prop_assert!(!(odd && read.is_ok()));
        if let Err(error) = read {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn expanded_sources_are_clean(source in "[a./]{0,20}") {
        let path = expand(Path::new("/x/y"), &source);
        prop_assert!(path.is_absolute());
        prop_assert!(!path.components().any(|part| part.as_os_str() == ".."));
    }
}
