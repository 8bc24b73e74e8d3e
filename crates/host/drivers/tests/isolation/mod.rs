//! The rights of a task of exec, tested from inside: privileges, system calls, devices, and the options that relax
//! each.

use super::{Kind, World, exec, shim};
use caravan_drivers::conformance::Fixture;
use caravan_drivers::{
    Driver, ExecDriver, ExecOptions, Health, IsolationOptions, Mount, Propagation, TaskConfig,
};
use caravan_sys::cgroup::Hierarchy;
use nix::libc;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

const EPERM: i32 = libc::EPERM;

/// Runs a shell script to its end and returns its output. `change` edits the task first.
async fn output(driver: &dyn Driver, script: &str, change: impl FnOnce(&mut TaskConfig)) -> String {
    let world = World::new(Kind::Exec);
    let mut config = world.script("t", &format!("{{ {script}; }} 2>&1"));
    change(&mut config);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    driver.wait(&id).await.unwrap();
    driver.destroy(&id, true).await.unwrap();
    world.output("t")
}

fn add(capabilities: &'static [&'static str]) -> impl FnOnce(&mut TaskConfig) {
    move |config| config.driver_config["cap_add"] = json!(capabilities)
}

fn as_root(config: &mut TaskConfig) {
    config.user = Some("root".into());
}

/// Returns the driver of a node that allows every option.
fn open() -> ExecDriver {
    let options = ExecOptions {
        isolation: IsolationOptions { allow_caps: vec!["all".into()], ..IsolationOptions::default() },
        allow_privileged_plugins: true,
        ..ExecOptions::default()
    };
    ExecDriver::new(options, shim())
}

/// Returns a command that prints the errno of a system call, or 0 for success. It uses perl, which these hosts have.
fn call(number: libc::c_long, arguments: &str) -> String {
    format!("perl -e '$r = syscall({number}{arguments}); print $r == -1 ? $!+0 : 0, \"\\n\"'")
}

#[tokio::test]
async fn privileges_are_given_up_unless_they_are_asked_for() {
    let status =
        "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapAmb):' /proc/self/status | tr -d '\\t' | tr '\\n' ' '";
    let none = "0000000000000000";
    let (usual, open) = (exec(), open());
    assert_eq!(
        output(&*usual, status, |_| {}).await,
        format!("CapEff:{none} CapAmb:{none} NoNewPrivs:1 Seccomp:2 ")
    );
    let root = output(&*usual, status, as_root).await;
    assert!(root.ends_with("NoNewPrivs:0 Seccomp:2 "), "{root}");
    let named = output(&*usual, status, add(&["chown"])).await;
    assert_eq!(named, "CapEff:0000000000000001 CapAmb:0000000000000001 NoNewPrivs:0 Seccomp:2 ");
    // `all` names no capability: the task has them, but program files add none.
    let all = output(&*usual, status, add(&["all"])).await;
    assert!(all.ends_with("NoNewPrivs:1 Seccomp:2 ") && !all.starts_with(&format!("CapEff:{none}")), "{all}");
    let plugin = output(&open, status, |config| config.privileged_mounts = true).await;
    assert!(plugin.ends_with("NoNewPrivs:0 Seccomp:0 "), "{plugin}");
    // A program that is run in the task later is confined as well.
    let world = World::new(Kind::Exec);
    let config = world.config("t", json!({"command": "sleep", "args": ["100000"]}));
    let id = config.id.clone();
    usual.start(config).await.unwrap();
    let command: Vec<String> = ["sh", "-c", status].map(str::to_owned).into();
    let beside = usual.exec(&id, &command, super::TIMEOUT).await.unwrap();
    let text = String::from_utf8(beside.stdout).unwrap();
    assert!(text.ends_with("NoNewPrivs:1 Seccomp:2 "), "{text}");
    usual.destroy(&id, true).await.unwrap();
}

#[tokio::test]
async fn set_user_id_programs_have_no_effect() {
    let world = World::new(Kind::Exec);
    let driver = world.driver();
    // A setuid program in the task's own directory, as an artifact may bring it, and those of the host.
    let mut config = world.script(
        "t",
        "/local/suid -u; /local/suid -ru; grep -E ' /(usr|bin) ' /proc/self/mountinfo | grep -cv nosuid; \
         grep -E '^([^ ]+ ){4}/(alloc|secrets|volume)? ' /proc/self/mountinfo | grep -cv nosuid; \
         grep -E '^([^ ]+ ){4}/(alloc|secrets|volume)? ' /proc/self/mountinfo | grep -cv nodev",
    );
    let program = config.dirs.task_dir.join("local/suid");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).unwrap();
    let volume = tempfile::tempdir().unwrap();
    config.mounts.push(Mount {
        host_path: volume.path().to_owned(),
        task_path: "/volume".into(),
        read_only: false,
        propagation: Propagation::HostToTask,
    });
    let run = async |config: TaskConfig| {
        let id = config.id.clone();
        driver.start(config).await.unwrap();
        driver.wait(&id).await.unwrap();
        driver.destroy(&id, true).await.unwrap();
    };
    run(config.clone()).await;
    assert_eq!(world.output("t"), "65534\n65534\n0\n0\n0\n");
    // Adding a capability by name permits privileges from program files.
    config.driver_config["cap_add"] = json!(["chown"]);
    config.task_name = "named".into();
    config.logs.as_mut().unwrap().stdout = "named.stdout".into();
    run(config).await;
    // The root, `/alloc` and the volume.
    let named = world.output("named");
    assert!(named.starts_with("0\n65534\n0\n") && named.ends_with("\n0\n"), "{named}");
    assert!(named.lines().nth(3).is_some_and(|count| count >= "3"), "{named}");
}

#[tokio::test]
async fn calls_for_the_machine_are_refused_to_root_too() {
    let calls = [
        (libc::SYS_unshare, ", 0x10000000"),
        (libc::SYS_mount, ", 0, 0, 0, 0, 0"),
        (libc::SYS_umount2, ", 0, 0"),
        (libc::SYS_setns, ", 0, 0"),
        (libc::SYS_pivot_root, ", 0, 0"),
        (libc::SYS_bpf, ", 0, 0, 0"),
        (libc::SYS_keyctl, ", 0, 0"),
        (libc::SYS_add_key, ", 0, 0, 0, 0, 0"),
        (libc::SYS_request_key, ", 0, 0, 0, 0"),
        (libc::SYS_kexec_load, ", 0, 0, 0, 0"),
        (libc::SYS_init_module, ", 0, 0, 0"),
        (libc::SYS_finit_module, ", 0, 0, 0"),
        (libc::SYS_perf_event_open, ", 0, 0, 0, 0, 0"),
        (libc::SYS_userfaultfd, ", 0"),
        (libc::SYS_swapon, ", 0, 0"),
        (libc::SYS_settimeofday, ", 0, 0"),
        (libc::SYS_open_by_handle_at, ", 0, 0, 0"),
        // io_uring_setup
        (425, ", 1, 0"),
        // A user namespace by clone(2), and a socket of the kernel's crypto API.
        (libc::SYS_clone, ", 0x10000000, 0, 0, 0, 0"),
        (libc::SYS_socket, ", 38, 5, 0"),
    ];
    let script = calls.map(|(number, arguments)| call(number, arguments)).join("; ");
    for change in [as_root, |_: &mut TaskConfig| {}] {
        let answers = output(&*exec(), &script, change).await;
        assert_eq!(answers, format!("{EPERM}\n").repeat(calls.len()));
    }
    // Calls that the filter does not list fail as if the kernel did not have them.
    let newer = format!("{}; {}", call(435, ", 0, 0"), call(5000, ""));
    assert_eq!(output(&*exec(), &newer, as_root).await, format!("{0}\n{0}\n", libc::ENOSYS));
    let commands = "unshare -U true; echo $?; unshare -m true; echo $?; mount -t tmpfs x /tmp; echo $?";
    let words = output(&*exec(), commands, as_root).await;
    assert!(!words.contains("\n0\n") && words.contains("Operation not permitted"), "{words}");
}

#[tokio::test]
async fn a_capability_by_name_opens_what_goes_with_it() {
    let mount =
        "mkdir -p /tmp/m && mount -t tmpfs x /tmp/m && echo mounted && unshare -m true && echo unshared";
    let with = |change: fn(&mut TaskConfig)| output_of_open(mount, change);
    assert_eq!(
        with(|config| {
            as_root(config);
            config.driver_config["cap_add"] = json!(["sys_admin"]);
        })
        .await,
        "mounted\nunshared\n"
    );
    let without = with(as_root).await;
    assert!(!without.contains("mounted\n"), "{without}");
    // Users other than root get the capability too, by the ambient set.
    let time = call(libc::SYS_settimeofday, ", 0, 0");
    assert_eq!(output(&open(), &time, add(&["sys_time"])).await, "0\n");
    assert_eq!(output(&open(), &time, |_| {}).await, format!("{EPERM}\n"));
    // The error names a capability that the node does not allow.
    let mut config = World::new(Kind::Exec).script("t", "true");
    config.driver_config["cap_add"] = json!(["sys_admin"]);
    let error = exec().start(config).await.unwrap_err().to_string();
    assert!(error.contains("does not allow the following capabilities on this node: sys_admin"), "{error}");
}

async fn output_of_open(script: &str, change: fn(&mut TaskConfig)) -> String {
    output(&open(), script, |config| {
        // The directory below is the task's own.
        std::fs::create_dir_all(config.dirs.task_dir.join("tmp")).unwrap();
        change(config);
    })
    .await
}

#[tokio::test]
async fn only_harmless_devices_can_be_used() {
    let script = "ls /dev | tr '\\n' ' '; echo; for d in null zero full random urandom tty; do \
         test -c /dev/$d || echo no $d; done; head -c 4 /dev/urandom | wc -c; \
         for n in 'c 1 1' 'b 7 0' 'c 10 237'; do \
           for at in /local /dev/shm /alloc; do \
             rm -f $at/x; mknod $at/x $n 2>/dev/null && head -c 1 $at/x 2>/dev/null && echo read $at $n; \
           done; \
         done; echo done";
    let text = output(&*exec(), script, as_root).await;
    let expected = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero \n4\ndone\n";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn privileged_plugins_take_the_nodes_consent() {
    let mut config = World::new(Kind::Exec).script("t", "true");
    config.privileged_mounts = true;
    let error = exec().start(config).await.unwrap_err().to_string();
    assert!(error.contains("does not allow privileged plugins on this node"), "{error}");
    assert!(error.contains("allow_privileged_plugins"), "{error}");
    let attribute = "driver.exec.privileged_plugins";
    let closed = exec().fingerprint().await;
    assert!(closed.state == Health::Healthy && !closed.attributes.contains_key(attribute));
    assert_eq!(open().fingerprint().await.attributes[attribute], "true");
}

#[tokio::test]
async fn capabilities_and_device_rules_are_in_the_fingerprint() {
    let attribute = "driver.exec.allow_caps";
    let usual = exec().fingerprint().await.attributes[attribute].clone();
    assert_eq!(usual.split(',').count(), 13, "{usual}");
    assert!(usual.split(',').is_sorted() && usual.contains("net_bind_service"), "{usual}");
    assert_eq!(open().fingerprint().await.attributes[attribute], "all");
    let mechanism = match Hierarchy::detect().unwrap().unwrap() {
        Hierarchy::V1(_) => "controller",
        Hierarchy::V2(_) => "program",
    };
    assert_eq!(exec().fingerprint().await.attributes["driver.exec.device_rules"], mechanism);
}

/// Threads, timers, sockets, pipes, epoll, shared memory and subprocesses, which language runtimes use.
#[tokio::test]
async fn common_programs_run() {
    let python = "import threading, subprocess, socket, select, mmap, tempfile, os, time, signal, asyncio\n\
        t = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(8)]\n\
        [x.start() for x in t]; [x.join() for x in t]\n\
        assert subprocess.run([\"echo\", \"x\"], capture_output=True).stdout == b\"x\\n\"\n\
        a, b = socket.socketpair(); a.send(b\"1\"); e = select.epoll(); e.register(b, 1); assert e.poll(1)\n\
        s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()\n\
        mmap.mmap(-1, 4096).close(); os.memfd_create(\"m\"); os.sched_getaffinity(0)\n\
        asyncio.run(asyncio.sleep(0.001)); os.getrandom(8); os.pidfd_open(os.getpid())\n\
        print(\"python\")";
    let node = "const {Worker} = require(\"worker_threads\"); const fs = require(\"fs\");\n\
        const w = new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(1)\", {eval: true});\n\
        w.on(\"message\", () => require(\"child_process\").exec(\"true\", e => fs.readFile(\"/etc/passwd\", f => \
        console.log(e || f || \"node\"))))";
    let programs = [
        (
            "bash",
            "bash -c 'x=$(echo sub | cat); (exit 3); test $? = 3; echo bash' | cat".to_owned(),
            "bash\n",
        ),
        (
            "perl",
            "perl -e 'my $p = fork // die; exit 0 unless $p; waitpid $p, 0; print \"perl\\n\"'".to_owned(),
            "perl\n",
        ),
        ("/usr/bin/python3", format!("/usr/bin/python3 -c '{python}'"), "python\n"),
        ("/usr/bin/node", format!("/usr/bin/node -e '{node}'"), "node\n"),
    ];
    for (program, script, expected) in programs {
        let there = output(&*exec(), &format!("command -v {program} >/dev/null && echo there"), |_| {}).await;
        if there != "there\n" {
            continue;
        }
        let more = |config: &mut TaskConfig| config.resources.memory_mb = 1024;
        assert_eq!(output(&*exec(), &script, more).await, expected, "{program}");
    }
}
