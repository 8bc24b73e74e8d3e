//! The settings of a container from its job and its node.

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

#[tokio::test(flavor = "multi_thread")]
async fn settings_hold_inside_of_the_container() {
    let world = World::with(json!({"volumes": {"enabled": true}}));
    let driver = world.docker();
    let script = "hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; ulimit -n; ulimit -Hn; pwd; id -G; \
        grep -c two /etc/hosts; touch /x 2>/dev/null || echo ro; cat /proc/1/comm; ls -l /dev/null2 | head -c 10; echo; \
        grep NoNewPrivs /proc/self/status | tr -dc 01; echo; cat /proc/self/oom_score_adj; \
        grep ' /tmp2 ' /proc/mounts | head -c 5; echo; echo x > /dev/null2 && echo written";
    let config = world.config(
        "t",
        json!({"command": "sh", "args": ["-c", script], "hostname": "inner", "work_dir": "/tmp",
            "sysctl": {"net.ipv4.ip_unprivileged_port_start": "99"}, "ulimit": {"nofile": "100:200"},
            "group_add": ["video"], "extra_hosts": ["two:10.0.0.2"], "readonly_rootfs": true,
            "security_opt": ["no-new-privileges", "seccomp=unconfined"], "oom_score_adj": 7,
            "devices": [{"host_path": "/dev/null", "container_path": "/dev/null2"}],
            "mount": {"type": "tmpfs", "target": "/tmp2", "tmpfs_options": {"size": 65536}}}),
    );
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let result = driver.wait(&id).await.unwrap();
    let text = world.output("t");
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "inner",
        "99",
        "100",
        "200",
        "/tmp",
        "0 44",
        "1",
        "ro",
        "sh",
        "crw-rw-rw-",
        "1",
        "7",
        "tmpfs",
        "written",
    ];
    assert_eq!(lines, expected, "{result:?}");
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_the_engine_refuses_leave_no_container() {
    let world = World::new();
    let driver = world.docker();
    for (more, words) in [
        (json!({"sysctl": {"no.such.key": "1"}}), "no.such.key"),
        (json!({"ulimit": {"nosuch": "1:1"}}), "NOSUCH"),
        (json!({"devices": [{"host_path": "/dev/absent"}]}), "/dev/absent"),
        (json!({"network_mode": "absent"}), "absent"),
        (json!({"work_dir": "relative"}), "relative"),
        (json!({"logging": {"type": "absent"}}), "absent"),
    ] {
        let mut config = world.script("t", "true");
        config.driver_config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = driver.start(config).await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
        assert!(world.engine.containers().unwrap().is_empty(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_propagate_as_they_say() {
    let world = World::with(json!({"allow_privileged": true, "volumes": {"enabled": true}}));
    let shared = world.dir.path().join("shared");
    std::fs::create_dir_all(shared.join("out")).unwrap();
    std::fs::create_dir_all(shared.join("in")).unwrap();
    let bound = caravan_sys::mount::make_shared_tree(&shared).unwrap();
    let driver = world.docker();
    // The task mounts below a shared path, and the host sees it.
    let mut config = world.config("t", json!({"privileged": true, "command": "sh",
        "args": ["-c", "mount -t tmpfs none /b/out && touch /b/out/made; echo mounted; until [ -e /h/in/host ]; do sleep 0.02; done; echo seen"]}));
    for (path, propagation) in [("/b", Propagation::Bidirectional), ("/h", Propagation::HostToTask)] {
        let (host_path, task_path) = (shared.clone(), path.into());
        config.mounts.push(Mount { host_path, task_path, read_only: false, propagation });
    }
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    until("the task's mount on the host", || shared.join("out/made").exists()).await;
    // The host mounts below the path, and the task sees it.
    let mount = |arguments: &[&std::ffi::OsStr]| {
        let status = std::process::Command::new("mount").args(arguments).status().unwrap();
        assert!(status.success());
    };
    mount(&["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), shared.join("in").as_os_str()]);
    std::fs::write(shared.join("in/host"), "").unwrap();
    until("the host's mount in the task", || world.output("t") == "mounted\nseen\n").await;
    driver.destroy(&id, true).await.unwrap();
    for below in ["in", "out"] {
        caravan_sys::mount::unmount(&shared.join(below), caravan_sys::mount::Unmount::Lazy).unwrap();
    }
    if bound {
        caravan_sys::mount::unmount(&shared, caravan_sys::mount::Unmount::Lazy).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_port_answers() {
    for kind in [EngineKind::Docker, EngineKind::Podman] {
        let world = World::with_options(kind, json!({}));
        world.engine.docker(&["network", "create", "--subnet", "10.213.0.0/24", "blue"]).unwrap();
        let driver = world.docker();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = "while true; do echo hello | nc -l -p $NOMAD_PORT_http; done";
        let mut config = world.config(
            "web",
            json!({"ports": ["http"], "command": "sh", "args": ["-c", server],
            "network_mode": "blue", "network_aliases": ["web"], "ipv4_address": "10.213.0.9"}),
        );
        config.ports =
            vec![Port { label: "http".into(), value: port, to: 8080, host_ip: "127.0.0.1".into() }];
        let id = config.id.clone();
        let handle = driver.start(config).await.unwrap();
        let network = handle.network.unwrap();
        assert_eq!((network.ip.as_str(), network.advertise), ("10.213.0.9", true));
        let read = |address: String| {
            let mut text = String::new();
            if let Ok(mut stream) = std::net::TcpStream::connect(address) {
                let _cut = std::io::Read::read_to_string(&mut stream, &mut text);
            }
            text
        };
        until("an answer on the host's port", || read(format!("127.0.0.1:{port}")) == "hello\n").await;
        until("an answer on the container's address", || read("10.213.0.9:8080".into()) == "hello\n").await;
        // A second task in the namespace of the first.
        let mode = format!("container:web-{}", world.alloc);
        let config = world.config("beside", json!({"network_mode": mode, "command": "sh", "args": ["-c", "until nc 127.0.0.1 8080; do sleep 0.05; done"]}));
        let beside = config.id.clone();
        driver.start(config).await.unwrap();
        driver.wait(&beside).await.unwrap();
        assert_eq!(world.output("beside"), "hello\n");
        for id in [beside, id] {
            driver.destroy(&id, true).await.unwrap();
        }
        world.engine.docker(&["network", "rm", "blue"]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_follow_the_shared_processors() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let world = World::new();
    let driver = world.docker();
    driver.share_processors("0-1");
    let shared = world.script("shared", FOREVER);
    driver.start(shared.clone()).await.unwrap();
    let mut own = world.script("own", FOREVER);
    own.processors = Processors::Own("1".into());
    driver.start(own.clone()).await.unwrap();
    let cpus = |task: &str| world.inspect(task, "{{.HostConfig.CpusetCpus}}");
    assert_eq!((cpus("shared"), cpus("own")), ("0-1".into(), "1".into()));
    driver.share_processors("0");
    let status = format!("/proc/{}/status", world.inspect("shared", "{{.State.Pid}}"));
    until("the container to move", || {
        std::fs::read_to_string(&status).unwrap().contains("Cpus_allowed_list:\t0\n")
    })
    .await;
    assert_eq!(cpus("shared"), "0");
    assert_eq!(cpus("own"), "1");
    for config in [shared, own] {
        driver.destroy(&config.id, true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_uses_the_signal_of_the_image() {
    let world = World::new();
    world.engine.change_stop_signal(ContainerEngine::IMAGE, "usr1:1", "SIGUSR1").unwrap();
    let driver = world.docker();
    let script = "trap 'exit 8' USR1; trap 'exit 9' USR2; echo ready; while true; do sleep 0.02; done";
    for (signal, code) in [(None, 8), (Some("SIGUSR2"), 9)] {
        let config = world.config("t", json!({"image": "usr1:1", "command": "sh", "args": ["-c", script]}));
        let id = config.id.clone();
        driver.start(config).await.unwrap();
        until("its first output", || world.output("t").ends_with("ready\n")).await;
        driver.stop(&id, TIMEOUT, signal).await.unwrap();
        assert_eq!(driver.wait(&id).await.unwrap().exit_code, code);
        driver.destroy(&id, false).await.unwrap();
        std::fs::remove_file(world.dir.path().join(&world.alloc).join("alloc/logs/t.stdout.0")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_cannot_be_read_is_reported() {
    let world = World::new();
    let driver = world.docker();
    let mut events = driver.events().unwrap();
    for (logging, collected) in [("none", false), ("local", true)] {
        let config = world
            .config(logging, json!({"logging": {"type": logging}, "command": "echo", "args": ["hello"]}));
        let id = config.id.clone();
        driver.start(config).await.unwrap();
        assert!(driver.wait(&id).await.unwrap().is_success());
        assert_eq!(world.output(logging), if collected { "hello\n" } else { "" });
        driver.destroy(&id, false).await.unwrap();
    }
    let event = events.try_recv().unwrap();
    assert!(event.task_name == "none" && event.message.contains("the output cannot be read"), "{event:?}");
    assert!(events.try_recv().is_err());
    // A terminal has one output.
    let config =
        world.config("tty", json!({"tty": true, "command": "sh", "args": ["-c", "echo out; echo err >&2"]}));
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    driver.wait(&id).await.unwrap();
    assert_eq!(world.output("tty"), "out\r\nerr\r\n");
    driver.destroy(&id, false).await.unwrap();
}
