//! What a container gets from its job and its node.

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn out_of_memory_is_reported() {
    let world = World::new();
    let driver = world.docker();
    let mut config = world.script("t", "x=a; while true; do x=$x$x; done");
    config.resources.memory_mb = 16;
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert!(result.oom_killed && result.exit_code == 137, "{result:?}");
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_published_by_label() {
    let world = World::new();
    let driver = world.docker();
    let mut config = world
        .config("t", json!({"ports": ["http"], "command": "sh", "args": ["-c", "echo $NOMAD_PORT_http"]}));
    config.ports = vec![Port { label: "http".into(), value: 25_001, to: 8080, host_ip: "127.0.0.1".into() }];
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    driver.wait(&id).await.unwrap();
    assert_eq!(world.output("t"), "8080\n");
    let bindings = world.inspect("t", "{{json .HostConfig.PortBindings}}");
    assert!(
        bindings.contains("\"8080/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"25001\"}]"),
        "{bindings}"
    );
    assert!(bindings.contains("8080/udp"), "{bindings}");
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_does_not_allow_is_refused() {
    let world = World::new();
    let driver = world.docker();
    for (more, words) in [
        (json!({"privileged": true}), "Docker privileged mode is disabled"),
        (json!({"cap_add": ["SYS_ADMIN"]}), "does not allow the following capabilities: sys_admin"),
        (json!({"pid_mode": "host"}), "cannot apply \"pid_mode\" configuration"),
        (json!({"runtime": "kata"}), "requested runtime \"kata\" is not allowed"),
        (json!({"volumes": ["/etc:/x"]}), "volumes are not enabled; cannot mount host path: \"/etc\""),
        (json!({"volumes": ["local/../../../..:/x"]}), "volumes are not enabled"),
        (json!({"volumes": ["local/link:/x"]}), "volumes are not enabled"),
        (json!({"mount": [{"target": "/x", "source": "v"}]}), "volumes are not enabled; cannot mount volume"),
        (json!({"ports": ["http"]}), "Port \"http\" not found, check network block"),
        (json!({"image": "caravan-test:none"}), "Failed to pull"),
        (json!({"image": "UPPER"}), "does not match registry specification"),
        (json!({"memory_hard_limit": 10}), "exceed driver hard limit of 10 MB"),
    ] {
        let config = world.config("t", more.clone());
        let _there = std::os::unix::fs::symlink("/etc", config.dirs.task_dir.join("local/link"));
        let error = driver.start(config).await.unwrap_err();
        assert!(error.to_string().contains(words), "{more}: {error}");
    }
    assert!(world.engine.containers().unwrap().is_empty());
    // A container of another owner stays.
    let name = format!("t-{}", world.alloc);
    world
        .engine
        .docker(&["create", "--network", "none", "--name", &name, ContainerEngine::IMAGE, "sh"])
        .unwrap();
    let error = driver.start(world.script("t", "true")).await.unwrap_err();
    assert!(error.to_string().contains("another owner"), "{error}");
    assert_eq!(world.engine.containers().unwrap(), [name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_what_its_job_grants() {
    let world =
        World::with(json!({"extra_labels": ["job*", "task_name"], "allow_caps": ["chown", "net_raw"]}));
    let driver = world.docker();
    let volume = world.dir.path().join("volume:with a colon");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("data"), "kept\n").unwrap();
    let mut config = world.config(
        "t",
        json!({"command": "sh", "args": ["-c", "cat /srv/data; touch /srv/x || echo ro; touch /alloc/logs/x || echo ro;
            echo $GREETING >/local/made; id -u; sleep 60"], "labels": [{"a": "b"}], "cap_add": ["net_raw"],
            "cap_drop": ["chown"], "ulimit": {"nofile": "100:200"}, "hostname": "h", "work_dir": "/tmp",
            "mount": [{"type": "tmpfs", "target": "/t", "tmpfs_options": [{"size": 4096}]}], "pids_limit": 50}),
    );
    config.user = Some("nobody".into());
    config.resources.memory_max_mb = Some(128);
    config.mounts.push(Mount {
        host_path: volume,
        task_path: "/srv".into(),
        read_only: true,
        propagation: Propagation::Private,
    });
    std::fs::set_permissions(
        config.dirs.task_dir.join("local"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let id = config.id.clone();
    let handle = driver.start(config.clone()).await.unwrap();
    assert!(handle.pid.is_some());
    until("its output", || world.output("t").ends_with("65534\n")).await;
    assert_eq!(world.output("t"), "kept\nro\nro\n65534\n");
    assert_eq!(std::fs::read_to_string(config.dirs.task_dir.join("local/made")).unwrap(), "hello\n");
    let host = |field: &str| world.inspect("t", &format!("{{{{.HostConfig.{field}}}}}"));
    assert_eq!(host("Memory"), (128_u64 << 20).to_string());
    assert_eq!(host("MemorySwap"), host("Memory"));
    assert_eq!(host("MemoryReservation"), (64_u64 << 20).to_string());
    assert_eq!(host("CpuShares"), "100");
    assert_eq!(host("PidsLimit"), "50");
    assert_eq!(host("CapAdd"), "[NET_RAW]");
    assert!(host("CapDrop").contains("CHOWN") && host("CapDrop").contains("MKNOD"), "{}", host("CapDrop"));
    assert_eq!(host("LogConfig.Type"), "json-file");
    let labels: Value = serde_json::from_str(&world.inspect("t", "{{json .Config.Labels}}")).unwrap();
    assert_eq!(labels["com.hashicorp.nomad.job_name"], "the job");
    assert_eq!(labels["com.hashicorp.nomad.alloc_id"], world.alloc.as_str());
    assert_eq!((&labels["a"], labels.get("com.hashicorp.nomad.namespace")), (&json!("b"), None));
    let usage = driver.usage(&id).await.unwrap();
    assert!(usage.memory > 0 && usage.pids > 0, "{usage:?}");
    driver.destroy(&id, true).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
}
