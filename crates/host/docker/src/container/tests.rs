//! Tests of the descriptions of containers.

use super::*;
use bollard::models::{MountBindOptionsPropagationEnum, MountType};
use caravan_drivers::conformance::sample;
use caravan_drivers::{Mount, Port, Propagation};
use serde_json::{Value, json};
use std::path::Path;

const V1: Facts = Facts { cgroup_v2: false, processors: 4, is_podman: false };
const V2: Facts = Facts { cgroup_v2: true, processors: 4, is_podman: false };

fn task() -> TaskConfig {
    let mut task = sample(Path::new("/allocs"), "a1", "web", Value::Null);
    task.task_name = "web/x".into();
    task.env.remove("PATH");
    task.resources = Resources { cpu_mhz: 500, memory_mb: 64, memory_max_mb: None, node_cpu_mhz: 4000 };
    task.dirs.state_dir = "/state/web".into();
    task.logs = None;
    task
}

fn config(more: &Value) -> Config {
    let mut all = json!({"image": "busybox:1"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Config::read(&all).unwrap()
}

fn describe(task: &TaskConfig, more: &Value, options: &Value) -> Result<ContainerCreateBody> {
    body(task, &config(more), &DockerOptions::read(options).unwrap(), V1, "sha256:1")
}

fn host(task: &TaskConfig, more: &Value) -> HostConfig {
    describe(task, more, &json!({})).unwrap().host_config.unwrap()
}

fn refusal(task: &TaskConfig, more: &Value, options: &Value) -> String {
    describe(task, more, options).unwrap_err().to_string()
}

#[test]
fn a_plain_task_has_the_defaults() {
    let made = describe(&task(), &json!({}), &json!({})).unwrap();
    assert_eq!(name(&task()), "web_x-a1");
    assert_eq!(made.image.as_deref(), Some("sha256:1"));
    assert_eq!((made.cmd, made.entrypoint, made.user, made.healthcheck), (None, None, None, None));
    assert_eq!(made.env, Some(vec!["GREETING=hello".to_owned()]));
    let host = made.host_config.unwrap();
    assert_eq!(
        host.binds.unwrap(),
        [
            "/allocs/a1/alloc:/alloc",
            "/allocs/a1/web/local:/local",
            "/allocs/a1/web/secrets:/secrets",
            "/allocs/a1/alloc/logs:/alloc/logs:ro"
        ]
    );
    assert_eq!((host.cap_add, host.cap_drop), (None, Some(vec!["NET_RAW".to_owned()])));
    let logs = host.log_config.unwrap();
    assert_eq!(logs.typ.as_deref(), Some("json-file"));
    assert_eq!(logs.config.unwrap()["max-size"], "2m");
    let podman = Facts { is_podman: true, ..V1 };
    let size = |more: Value| {
        let made = body(&task(), &config(&more), &DockerOptions::default(), podman, "i").unwrap();
        made.host_config.unwrap().log_config.unwrap().config.unwrap()["max-size"].clone()
    };
    assert_eq!(size(json!({})), "100m");
    assert_eq!(size(json!({"logging": {"type": "json-file", "config": {"max-size": "3m"}}})), "3m");
    assert_eq!(host.network_mode.as_deref(), Some("default"));
    assert_eq!((host.cpu_shares, host.cpuset_cpus, host.cpu_quota), (Some(500), None, None));
    assert_eq!((host.pids_limit, host.privileged), (Some(-1), Some(false)));
    assert!(host.cgroup_parent.is_none() && host.restart_policy.is_none());
}

#[test]
fn memory_follows_the_table() {
    let mib = |mb: i64| Some(mb << 20);
    let cases = [
        // Reserved, largest, hard limit of the task; then limit and reservation.
        (64, None, None, mib(64), None),
        (64, Some(128), None, mib(128), mib(64)),
        (64, None, Some(256), mib(256), mib(64)),
        (64, Some(128), Some(96), mib(128), mib(64)),
        (64, Some(Resources::NO_MEMORY_LIMIT), None, None, mib(64)),
        (64, Some(Resources::NO_MEMORY_LIMIT), Some(256), None, mib(64)),
        // Engines accept no less than 6 MiB.
        (1, None, None, mib(6), None),
    ];
    for (reserved, largest, hard, limit, reservation) in cases {
        let mut task = task();
        (task.resources.memory_mb, task.resources.memory_max_mb) = (reserved, largest);
        let made = host(&task, &json!({"memory_hard_limit": hard}));
        let case = (reserved, largest, hard);
        assert_eq!(
            (made.memory, made.memory_swap, made.memory_reservation),
            (limit, limit, reservation),
            "{case:?}"
        );
        assert_eq!(made.memory_swappiness, Some(0), "{case:?}");
    }
    let error = refusal(&task(), &json!({"memory_hard_limit": 10}), &json!({}));
    assert!(error.contains("task memory requirements exceed driver hard limit of 10 MB"), "{error}");
    let made = body(&task(), &config(&json!({})), &DockerOptions::default(), V2, "i").unwrap();
    assert_eq!(made.host_config.unwrap().memory_swappiness, None);
}

#[test]
fn processors_are_shared_or_limited() {
    let mut task = task();
    task.resources.cpu_mhz = 1;
    assert_eq!(host(&task, &json!({})).cpu_shares, Some(2));
    // A node with more MHz than the kernel has shares.
    (task.resources.cpu_mhz, task.resources.node_cpu_mhz) = (300_000, 524_288);
    assert_eq!(host(&task, &json!({})).cpu_shares, Some(150_000));
    (task.resources.cpu_mhz, task.resources.node_cpu_mhz) = (1000, 4000);
    let made = host(&task, &json!({"cpu_hard_limit": true}));
    assert_eq!((made.cpu_period, made.cpu_quota), (Some(100_000), Some(100_000)));
    let made = host(&task, &json!({"cpu_hard_limit": true, "cpu_cfs_period": 50_000}));
    assert_eq!((made.cpu_period, made.cpu_quota), (Some(50_000), Some(50_000)));
    task.processors = Processors::Own("1,3".into());
    assert_eq!(host(&task, &json!({})).cpuset_cpus.as_deref(), Some("1,3"));
}

#[test]
fn processes_are_limited_by_task_and_node() {
    let limit = |task_limit: Value, node: Value| {
        describe(&task(), &json!({"pids_limit": task_limit}), &json!({"pids_limit": node}))
            .map(|made| made.host_config.unwrap().pids_limit.unwrap())
            .map_err(|error| error.to_string())
    };
    assert_eq!(limit(json!(null), json!(null)), Ok(-1));
    assert_eq!(limit(json!(10), json!(null)), Ok(10));
    assert_eq!(limit(json!(null), json!(20)), Ok(20));
    assert_eq!(limit(json!(10), json!(20)), Ok(10));
    let error = limit(json!(30), json!(20)).unwrap_err();
    assert!(
        error.contains("pids_limit cannot be greater than nomad plugin config pids_limit: 20"),
        "{error}"
    );
}

#[test]
fn capabilities_follow_the_list_of_the_node() {
    let caps = |more: Value, allowed: Value| {
        let made = describe(&task(), &more, &json!({"allow_caps": allowed})).unwrap().host_config.unwrap();
        (made.cap_add.unwrap_or_default(), made.cap_drop.unwrap_or_default())
    };
    let (add, drop) = caps(json!({"cap_add": ["CAP_Net_Raw"]}), json!(["all"]));
    assert_eq!((add, drop), (vec!["NET_RAW".to_owned()], vec![]));
    let (add, drop) = caps(json!({"cap_drop": ["all"], "cap_add": ["chown"]}), json!(["chown", "kill"]));
    assert_eq!(add, ["CHOWN"]);
    assert!(drop.contains(&"ALL".to_owned()) && drop.contains(&"MKNOD".to_owned()), "{drop:?}");
    assert!(!drop.contains(&"CHOWN".to_owned()) && !drop.contains(&"KILL".to_owned()), "{drop:?}");
    let error = refusal(&task(), &json!({"cap_add": ["SYS_ADMIN", "cap_net_admin"]}), &json!({}));
    assert!(error.contains("does not allow the following capabilities: sys_admin, net_admin"), "{error}");
}

#[test]
fn namespaces_need_the_consent_of_the_node() {
    let more = json!({"pid_mode": "host", "ipc_mode": "container:x"});
    assert!(refusal(&task(), &more, &json!({})).contains("cannot apply \"pid_mode\""));
    let allowed = json!({"allowed_modes": {"pid": ["host"], "ipc": ["container:*"]}});
    for options in [allowed, json!({"allow_privileged": true})] {
        let made = describe(&task(), &more, &options).unwrap().host_config.unwrap();
        assert_eq!((made.pid_mode.as_deref(), made.ipc_mode.as_deref()), (Some("host"), Some("container:x")));
    }
    for key in ["uts_mode", "userns_mode"] {
        assert!(refusal(&task(), &json!({key: "host"}), &json!({})).contains(key));
    }
}

#[test]
fn settings_reach_the_engine() {
    let made = describe(
        &task(),
        &json!({
            "command": "sh", "args": ["-c", "x"], "entrypoint": ["/e"], "work_dir": "/w", "hostname": "h",
            "tty": true, "interactive": true, "init": true, "readonly_rootfs": true, "shm_size": 1024,
            "oom_score_adj": 5, "group_add": ["video"], "runtime": "runc", "cgroupns": "private",
            "sysctl": {"net.core.somaxconn": "99"}, "storage_opt": {"size": "1G"},
            "ulimit": {"nofile": "10:20"}, "security_opt": ["no-new-privileges", "label:disable"],
            "healthchecks": {"disable": true}, "extra_hosts": ["a:1.2.3.4"], "dns_servers": ["9.9.9.9"],
            "dns_search_domains": ["x.y"], "dns_options": ["ndots:1"],
            "devices": [{"host_path": "/dev/null", "container_path": "/dev/n", "cgroup_permissions": "rw"}],
            "logging": {"type": "local"},
        }),
        &json!({}),
    )
    .unwrap();
    assert_eq!(made.cmd.unwrap(), ["sh", "-c", "x"]);
    assert_eq!(made.entrypoint.unwrap(), ["/e"]);
    assert_eq!((made.working_dir.as_deref(), made.hostname.as_deref()), (Some("/w"), Some("h")));
    assert_eq!((made.tty, made.open_stdin), (Some(true), Some(true)));
    assert_eq!(made.healthcheck.unwrap().test.unwrap(), ["NONE"]);
    let host = made.host_config.unwrap();
    assert_eq!((host.init, host.readonly_rootfs, host.shm_size), (Some(true), Some(true), Some(1024)));
    assert_eq!((host.oom_score_adj, host.runtime.as_deref()), (Some(5), Some("runc")));
    assert_eq!(host.cgroupns_mode, Some(HostConfigCgroupnsModeEnum::PRIVATE));
    assert_eq!(host.sysctls.unwrap()["net.core.somaxconn"], "99");
    assert_eq!(host.storage_opt.unwrap()["size"], "1G");
    let limits = host.ulimits.unwrap();
    assert_eq!(
        (limits[0].name.as_deref(), limits[0].soft, limits[0].hard),
        (Some("nofile"), Some(10), Some(20))
    );
    assert_eq!(host.security_opt.unwrap(), ["no-new-privileges", "label=disable"]);
    assert_eq!(host.extra_hosts.unwrap(), ["a:1.2.3.4"]);
    assert_eq!(
        (host.dns.unwrap(), host.dns_search.unwrap()),
        (vec!["9.9.9.9".to_owned()], vec!["x.y".to_owned()])
    );
    assert_eq!(host.dns_options.unwrap(), ["ndots:1"]);
    assert_eq!(host.devices.unwrap()[0].cgroup_permissions.as_deref(), Some("rw"));
    assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("local"));
}

#[test]
fn a_filter_of_system_calls_is_sent_by_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("filter.json");
    std::fs::write(&path, "{ \"defaultAction\":\n \"SCMP_ACT_ALLOW\" }").unwrap();
    let made = host(&task(), &json!({"security_opt": [format!("seccomp={}", path.display())]}));
    assert_eq!(made.security_opt.unwrap(), ["seccomp={\"defaultAction\":\"SCMP_ACT_ALLOW\"}"]);
    let error = refusal(&task(), &json!({"security_opt": ["seccomp=/no/such/file"]}), &json!({}));
    assert!(error.contains("opening seccomp profile (/no/such/file) failed"), "{error}");
}

#[test]
fn labels_are_those_of_the_node_and_the_job() {
    let made = describe(
        &task(),
        &json!({"labels": {"a": "b", "com.hashicorp.nomad.alloc_id": "forged"}}),
        &json!({"extra_labels": ["job_*", "parent*", "task_name"]}),
    )
    .unwrap();
    let mut labels: Vec<_> = made.labels.unwrap().into_iter().collect();
    labels.sort();
    let expected = [
        ("a", "b"),
        ("caravan.node_id", "node-1"),
        ("caravan.task_id", "a1/web/1"),
        ("com.hashicorp.nomad.alloc_id", "a1"),
        ("com.hashicorp.nomad.job_id", "job"),
        ("com.hashicorp.nomad.job_name", "the job"),
        ("com.hashicorp.nomad.task_name", "web/x"),
    ];
    assert_eq!(labels, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn mounts_have_their_kinds_and_propagation() {
    let mut task = task();
    for (path, propagation) in
        [("/p", Propagation::Private), ("/h", Propagation::HostToTask), ("/b", Propagation::Bidirectional)]
    {
        task.mounts.push(Mount {
            host_path: format!("/host{path}").into(),
            task_path: path.into(),
            read_only: true,
            propagation,
        });
    }
    let made = describe(
        &task,
        &json!({"mount": [
            {"type": "bind", "source": "local/x", "target": "/x", "bind_options": {"propagation": "rslave"}},
            {"type": "tmpfs", "target": "/t", "tmpfs_options": {"size": 4096, "mode": 448}},
            {"target": "/v", "source": "v", "volume_options": {"no_copy": true, "labels": {"l": "1"},
                "driver_config": {"name": "local", "options": {"o": "p"}}}},
        ], "volumes": ["/etc:/etc2:ro", "data:/d"]}),
        &json!({"volumes": {"enabled": true, "selinuxlabel": "z"}}),
    )
    .unwrap()
    .host_config
    .unwrap();
    let mounts = made.mounts.unwrap();
    let propagation = |index: usize| mounts[index].bind_options.as_ref().and_then(|bind| bind.propagation);
    assert_eq!(propagation(0), Some(MountBindOptionsPropagationEnum::RPRIVATE));
    assert_eq!(propagation(1), Some(MountBindOptionsPropagationEnum::RSLAVE));
    assert_eq!(propagation(2), Some(MountBindOptionsPropagationEnum::RSHARED));
    assert_eq!(propagation(3), Some(MountBindOptionsPropagationEnum::RSLAVE));
    assert_eq!(mounts[3].source.as_deref(), Some("/allocs/a1/web/local/x"));
    let tmpfs = mounts[4].tmpfs_options.as_ref().unwrap();
    assert_eq!(
        (mounts[4].typ, tmpfs.size_bytes, tmpfs.mode),
        (Some(MountType::TMPFS), Some(4096), Some(448))
    );
    let volume = mounts[5].volume_options.as_ref().unwrap();
    assert_eq!((volume.no_copy, &volume.labels.as_ref().unwrap()["l"]), (Some(true), &"1".to_owned()));
    assert_eq!(volume.driver_config.as_ref().unwrap().options.as_ref().unwrap()["o"], "p");
    let binds = made.binds.unwrap();
    assert_eq!(binds[3], "/allocs/a1/alloc/logs:/alloc/logs:ro,z");
    assert_eq!(binds[4..], ["/etc:/etc2:ro,z", "/allocs/a1/web/data:/d:z"]);
}

#[test]
fn sources_outside_of_the_allocation_are_refused() {
    let mount = |source: &str| json!({"mount": {"type": "bind", "source": source, "target": "/x"}});
    for more in [
        json!({"volumes": ["/etc:/x"]}),
        json!({"volumes": ["../../../etc:/x"]}),
        mount("/etc"),
        mount("local/../../../a2"),
    ] {
        let error = refusal(&task(), &more, &json!({}));
        assert!(error.contains("volumes are not enabled; cannot mount host path"), "{error}");
    }
    assert!(describe(&task(), &mount("../alloc/data"), &json!({})).is_ok());
    let named = json!({"volumes": ["v:/x"], "volume_driver": "local"});
    let error = refusal(&task(), &named, &json!({}));
    assert!(error.contains("volumes are not enabled; cannot use volume driver \"local\""), "{error}");
    let made = describe(&task(), &named, &json!({"volumes": {"enabled": true}})).unwrap();
    assert_eq!(made.host_config.unwrap().binds.unwrap()[4], "v:/x");
}

#[test]
fn ports_are_published_for_both_protocols() {
    let mut task = task();
    let port = |label: &str, value, to| Port { label: label.into(), value, to, host_ip: "10.0.0.1".into() };
    task.ports = vec![port("http", 25_001, 80), port("same", 25_002, 0), port("other", 25_003, 0)];
    let made = describe(&task, &json!({"ports": ["http", "same"]}), &json!({})).unwrap();
    let mut exposed = made.exposed_ports.unwrap();
    exposed.sort();
    assert_eq!(exposed, ["25002/tcp", "25002/udp", "80/tcp", "80/udp"]);
    let bindings = made.host_config.unwrap().port_bindings.unwrap();
    let binding = &bindings["80/udp"].as_ref().unwrap()[0];
    assert_eq!((binding.host_ip.as_deref(), binding.host_port.as_deref()), (Some("10.0.0.1"), Some("25001")));
    assert!(made.env.unwrap().contains(&"NOMAD_PORT_http=80".to_owned()));
    // The namespace of the host or of another container has its own ports.
    for mode in ["host", "container:x"] {
        let made = describe(&task, &json!({"ports": ["http"], "network_mode": mode}), &json!({})).unwrap();
        assert_eq!(made.exposed_ports, None);
    }
    let error = refusal(&task, &json!({"ports": ["none"]}), &json!({}));
    assert!(error.contains("Port \"none\" not found, check network block"), "{error}");
    let error = refusal(&task, &json!({"port_map": {"http": 80}}), &json!({}));
    assert!(error.contains("'port_map' cannot map group network ports"), "{error}");
}

#[test]
fn an_endpoint_belongs_to_the_named_network() {
    let made = describe(
        &task(),
        &json!({"network_mode": "blue", "network_aliases": ["a"], "ipv4_address": "10.1.2.3",
            "ipv6_address": "fd00::3", "mac_address": "02:00:00:00:00:01"}),
        &json!({}),
    )
    .unwrap();
    let endpoints = made.networking_config.unwrap().endpoints_config.unwrap();
    let endpoint = &endpoints["blue"];
    assert_eq!(endpoint.aliases.as_ref().unwrap(), &["a"]);
    assert_eq!(endpoint.mac_address.as_deref(), Some("02:00:00:00:00:01"));
    let addresses = endpoint.ipam_config.as_ref().unwrap();
    assert_eq!(
        (addresses.ipv4_address.as_deref(), addresses.ipv6_address.as_deref()),
        (Some("10.1.2.3"), Some("fd00::3"))
    );
}

#[test]
fn a_task_of_a_group_with_a_network_joins_it() {
    let network = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Some(NetworkIsolation { labels, ..NetworkIsolation::default() })
    };
    let more = json!({"extra_hosts": ["db:10.0.0.9"], "dns_servers": ["10.0.0.1"], "ports": ["http"]});
    let mut task = TaskConfig { network: network(&[(HOLDER, "c1")]), ..task() };
    task.ports = vec![Port { label: "http".into(), value: 80, ..Port::default() }];
    let made = describe(&task, &more, &json!({})).unwrap();
    let found = made.host_config.unwrap();
    assert_eq!(found.network_mode.as_deref(), Some("container:c1"));
    assert_eq!((found.extra_hosts, found.dns, found.port_bindings), (None, None, None));
    let targets: Vec<_> = found.mounts.unwrap().into_iter().filter_map(|mount| mount.target).collect();
    assert_eq!(targets, ["/etc/hosts", "/etc/resolv.conf"]);
    // The group's resolver replaces the task's.
    let dns = caravan_drivers::Dns { servers: vec!["10.0.0.53".into()], ..Default::default() };
    let mut resolved = TaskConfig { dns: Some(dns), ..task.clone() };
    let found = describe(&resolved, &json!({}), &json!({})).unwrap().host_config.unwrap();
    let targets: Vec<_> = found.mounts.unwrap().into_iter().filter_map(|mount| mount.target).collect();
    assert_eq!((found.dns, targets.join(" ").as_str()), (None, "/etc/hosts /etc/resolv.conf"));
    resolved.network = None;
    assert_eq!(host(&resolved, &json!({"dns_servers": ["9.9.9.9"]})).dns.unwrap(), ["10.0.0.53"]);
    // A task that names a network joins that network.
    let own = json!({"network_mode": "blue", "extra_hosts": ["db:10.0.0.9"]});
    let found = host(&task, &own);
    assert_eq!(found.network_mode.as_deref(), Some("blue"));
    assert_eq!(
        (found.extra_hosts.map(|all| all.len()), found.mounts.map(|all| all.len())),
        (Some(1), Some(0))
    );
    task.network = network(&[]);
    let error = refusal(&task, &json!({}), &json!({}));
    assert!(error.contains("another driver made"), "{error}");
}
