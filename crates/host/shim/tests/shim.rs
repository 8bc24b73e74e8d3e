//! Tests the shim from the agent's view: real processes, real tasks, its socket and its files.

use caravan_shim::lease::{Lease, LeaseWriter, Term};
use caravan_shim::protocol::{Reply, Request, Started, encode, read_message};
use caravan_shim::spec::{CgroupSpec, CommandSpec, IsolationSpec, LogSpec, MountPropagation, MountSpec};
use caravan_shim::{ExitRecord, Opening, SOCKET_FILE, StartReport, TaskSpec, VERSION};
use caravan_sys::cgroup::{Cgroup, Hierarchy};
use caravan_sys::mount::{Unmount, is_mount_point, make_shared_tree, mount_tmpfs, unmount};
use caravan_sys::process::PidFd;
use caravan_sys::time::BootTime;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(120);

struct World {
    dir: tempfile::TempDir,
    shim: Option<Child>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["task/local", "task/tmp", "logs"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Self { dir, shim: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spec(&self, script: &str) -> TaskSpec {
        let unique =
            self.dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        TaskSpec {
            task_id: "alloc/web".into(),
            state_dir: self.path("state"),
            command: CommandSpec {
                program: "sh".into(),
                args: vec!["-c".into(), script.into()],
                env: [("PATH".into(), "/usr/bin:/bin".into()), ("GREETING".into(), "hello".into())].into(),
                cwd: self.path("task"),
                base: None,
                search: vec![],
            },
            user: None,
            logs: Some(LogSpec {
                dir: self.path("logs"),
                stdout: "web.stdout".into(),
                stderr: "web.stderr".into(),
                max_files: 3,
                max_bytes: 1 << 20,
            }),
            cgroup: Some(CgroupSpec {
                path: PathBuf::from("caravan-test").join(unique),
                cpu_shares: Some(100),
                memory_max: Some(64 << 20),
                memory_reserved: None,
                swap_max: Some(0),
                pids_max: None,
                cpus: None,
                own_cpus: false,
                elsewhere: BTreeMap::new(),
            }),
            rlimits: vec![],
            oom_score_adj: None,
            isolation: None,
            network: None,
            lease: None,
        }
    }

    fn isolated(&self, script: &str) -> TaskSpec {
        let mut spec = self.spec(script);
        spec.command.cwd = "/".into();
        let same = |path: &str| (PathBuf::from(path), PathBuf::from(path));
        spec.isolation = Some(IsolationSpec {
            root: self.path("task"),
            host_paths: ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/no-such-path"].map(same).into(),
            mounts: vec![],
            devices: vec![],
            hidden: vec![],
            private_pids: true,
            private_ipc: true,
            hostname: None,
            // chown, dac_override, fowner, kill, setgid, setuid, mknod.
            capabilities: 1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 27,
            ambient: 0,
            privileged: false,
            filtered: true,
            no_new_privileges: false,
        });
        spec
    }

    fn start(&mut self, spec: &TaskSpec) -> Result<Started, String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_caravan-shim"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .env_clear()
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&encode(&Opening { version: VERSION }).unwrap()).unwrap();
        input.write_all(&encode(spec).unwrap()).unwrap();
        drop(input);
        let report = read_message(&mut child.stdout.take().unwrap()).unwrap();
        self.shim = Some(child);
        match report {
            StartReport::Started(started) => Ok(started),
            StartReport::Failed { message } => Err(message),
        }
    }

    fn client(&self) -> Peer {
        let mut stream = caravan_sys::socket::connect(&self.path("state").join(SOCKET_FILE)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(&encode(&Opening { version: VERSION }).unwrap()).unwrap();
        let welcome: Reply = read_message(&mut stream).unwrap();
        assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
        Peer(stream)
    }

    fn record(&mut self) -> ExitRecord {
        let shim = self.shim.as_mut().unwrap();
        let handle = PidFd::open(shim.id()).unwrap().unwrap();
        assert!(handle.wait_exit(Some(DEADLINE)).unwrap(), "the shim does not end");
        assert!(shim.wait().unwrap().success());
        ExitRecord::read(&self.path("state")).unwrap().expect("an exit record")
    }

    fn output(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("logs").join(name)).unwrap_or_default()
    }

    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < deadline, "never happened: {what}");
            std::thread::yield_now();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(shim) = &mut self.shim {
            let _ = shim.kill();
            let _ = shim.wait();
        }
        if let Ok(Some(hierarchy)) = Hierarchy::detect() {
            let path = self.spec("").cgroup.unwrap().path;
            if let Ok(cgroup) = Cgroup::at(&hierarchy, &path) {
                let _ = cgroup.kill_until_empty(1000, Duration::from_millis(2));
                let _ = cgroup.remove();
            }
        }
    }
}

struct Peer(UnixStream);

impl Peer {
    fn send(&mut self, request: &Request) {
        self.0.write_all(&encode(request).unwrap()).unwrap();
    }

    fn reply(&mut self) -> Reply {
        read_message(&mut self.0).unwrap()
    }

    fn ask(&mut self, request: &Request) -> Reply {
        self.send(request);
        self.reply()
    }

    fn stop(&mut self, timeout_ms: u64) -> ExitRecord {
        match self.ask(&Request::Stop { signal: 15, timeout_ms }) {
            Reply::Exited(record) => record,
            other => panic!("not an end: {other:?}"),
        }
    }

    fn exec(&mut self, command: &[&str], input: &str) -> (String, String, i32) {
        self.send(&Request::Exec { command: command.iter().map(|s| (*s).to_owned()).collect(), tty: false });
        if !input.is_empty() {
            self.send(&Request::Input { data: input.into() });
        }
        self.send(&Request::Input { data: vec![] });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match self.reply() {
                Reply::Output { stderr: false, data } => out.extend(data),
                Reply::Output { stderr: true, data } => err.extend(data),
                Reply::OutputClosed { .. } => {}
                Reply::ExecExited { exit_code, .. } => {
                    return (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), exit_code);
                }
                other => panic!("not from a program: {other:?}"),
            }
        }
    }
}

#[test]
fn a_task_ends_by_itself_and_leaves_its_record_and_logs() {
    let mut world = World::new();
    let started = world.start(&world.spec("echo $GREETING; pwd; echo oops >&2; exit 7")).unwrap();
    assert_eq!(started.degraded, Vec::<String>::new());
    let record = world.record();
    assert_eq!((record.exit_code, record.signal, record.oom_killed), (7, 0, false));
    assert_eq!(
        (record.shim, record.task, record.task_id.as_str()),
        (started.shim, started.task, "alloc/web")
    );
    assert_eq!(world.output("web.stdout.0"), format!("hello\n{}\n", world.path("task").display()));
    assert_eq!(world.output("web.stderr.0"), "oops\n");
    assert!(!world.path("state").join(SOCKET_FILE).exists());
}

#[test]
fn large_output_arrives_whole_in_rotated_files() {
    let mut world = World::new();
    let mut spec = world.spec("i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done");
    let logs = spec.logs.as_mut().unwrap();
    (logs.max_files, logs.max_bytes) = (100, 10_000);
    world.start(&spec).unwrap();
    assert_eq!(world.record().exit_code, 0);
    let all: String = (0..100).map(|n| world.output(&format!("web.stdout.{n}"))).collect();
    let expected: String = (0..20000).map(|i| format!("line-{i}\n")).collect();
    assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing() {
    let mut world = World::new();
    let mut spec = world.spec("");
    spec.command.program = "no-such-program".into();
    let error = world.start(&spec).unwrap_err();
    assert!(error.contains("\"no-such-program\" not found in the task's directory or PATH"), "{error}");
    spec.command.program = "sh".into();
    spec.command.cwd = "/no/such/dir".into();
    let error = world.start(&spec).unwrap_err();
    assert!(error.contains("cannot change to the working directory /no/such/dir: No such file"), "{error}");
    assert!(!world.path("state").join(SOCKET_FILE).exists());
    let hierarchy = Hierarchy::detect().unwrap().unwrap();
    assert!(!Cgroup::at(&hierarchy, &spec.cgroup.unwrap().path).unwrap().exists());
}

#[test]
fn stop_is_done_when_nothing_is_left_even_of_stubborn_and_daemonised_processes() {
    let mut world = World::new();
    let script = "trap '' TERM; (trap '' TERM; setsid sleep 300 & setsid sleep 301 &) ; echo up; while :; do sleep 300; done";
    let spec = world.spec(script);
    world.start(&spec).unwrap();
    world.until("output", || world.output("web.stdout.0") == "up\n");
    let record = world.client().stop(1);
    assert!(!world.path("state").join(SOCKET_FILE).exists(), "the next shim's socket would be removed");
    assert_eq!(record.signal, 9);
    let hierarchy = Hierarchy::detect().unwrap().unwrap();
    let cgroup = Cgroup::at(&hierarchy, &spec.cgroup.unwrap().path).unwrap();
    assert!(cgroup.is_empty().unwrap() && !cgroup.exists());
    assert_eq!(world.record(), record);
}

#[test]
fn a_signal_reaches_the_task_and_a_polite_one_ends_it() {
    let mut world = World::new();
    world
        .start(&world.spec("trap 'echo got' USR1; trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done"))
        .unwrap();
    world.until("output", || world.output("web.stdout.0") == "up\n");
    let mut client = world.client();
    assert_eq!(client.ask(&Request::Status), Reply::Status { running: true });
    assert_eq!(client.ask(&Request::Signal { signal: 10 }), Reply::Done);
    world.until("the trap", || world.output("web.stdout.0") == "up\ngot\n");
    let Reply::Usage(usage) = client.ask(&Request::Usage) else { panic!("no usage") };
    assert!(usage.memory > 0 && usage.pids > 0, "{usage:?}");
    assert_eq!(client.stop(20_000).exit_code, 5);
}

#[test]
fn programs_run_beside_the_task_with_input_and_output() {
    let mut world = World::new();
    world.start(&world.spec("sleep 300")).unwrap();
    let mut client = world.client();
    let (out, err, code) = client.exec(&["sh", "-c", "cat; echo $GREETING; echo bad >&2; exit 3"], "in\n");
    assert_eq!((out.as_str(), err.as_str(), code), ("in\nhello\n", "bad\n", 3));
    let (out, _, code) = client.exec(&["head", "-c", "3000000", "/dev/zero"], "");
    assert_eq!((out.len(), code), (3_000_000, 0));
    let reply = client.ask(&Request::Exec { command: vec!["no-such".into()], tty: false });
    assert!(matches!(&reply, Reply::Failed { message } if message.contains("no-such")), "{reply:?}");
    client.send(&Request::Exec { command: vec!["sleep".into(), "300".into()], tty: false });
    world.client().stop(5000);
}

#[test]
fn programs_may_have_a_terminal() {
    let mut world = World::new();
    world.start(&world.spec("sleep 300")).unwrap();
    let mut client = world.client();
    let script =
        "test -t 0 && test -t 2 && read line && echo got $line; stty size; cat; echo end >&2; exit 4";
    client.send(&Request::Exec { command: vec!["sh".into(), "-c".into(), script.into()], tty: true });
    client.send(&Request::Resize { rows: 33, columns: 99 });
    client.send(&Request::Input { data: b"word\n".to_vec() });
    client.send(&Request::Input { data: vec![] });
    let mut reported = Vec::new();
    let code = loop {
        match client.reply() {
            Reply::Output { stderr: false, data } => reported.extend(data),
            Reply::OutputClosed { stderr: false } => {}
            Reply::ExecExited { exit_code, .. } => break exit_code,
            other => panic!("not from a program on a terminal: {other:?}"),
        }
    };
    let reported = String::from_utf8(reported).unwrap();
    assert!(reported.contains("got word\r\n33 99\r\n") && reported.ends_with("end\r\n"), "{reported:?}");
    assert_eq!(code, 4);
    world.client().stop(5000);
}

#[test]
fn another_version_is_refused_with_a_sentence() {
    let mut world = World::new();
    world.start(&world.spec("sleep 300")).unwrap();
    let mut stream = caravan_sys::socket::connect(&world.path("state").join(SOCKET_FILE)).unwrap();
    stream.write_all(&encode(&Opening { version: 99 }).unwrap()).unwrap();
    let reply: Reply = read_message(&mut stream).unwrap();
    assert!(matches!(&reply, Reply::Failed { message } if message.contains("version 99")), "{reply:?}");
    world.client().stop(5000);
}

#[test]
fn a_task_that_needs_too_much_memory_is_marked() {
    let mut world = World::new();
    let mut spec = world.spec("x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}");
    spec.cgroup.as_mut().unwrap().memory_max = Some(16 << 20);
    world.start(&spec).unwrap();
    let record = world.record();
    assert!(record.oom_killed, "{record:?}");
}

#[test]
fn a_task_dies_with_its_lease_and_not_before() {
    let mut world = World::new();
    let (writer, _) = LeaseWriter::open(&world.path("lease")).unwrap();
    let mut spec = world.spec("echo up; sleep 300");
    let began = BootTime::now();
    spec.lease = Some(Term { file: world.path("lease"), began: began.0 });
    let until = |deadline| writer.write(Lease { deadline, began, heard: began }).unwrap();
    let error = world.start(&spec).unwrap_err();
    assert!(error.contains("has passed"), "{error}");

    until(BootTime::now().after(Duration::from_secs(3600)));
    world.start(&spec).unwrap();
    assert_eq!(world.client().ask(&Request::Status), Reply::Status { running: true });
    world.client().stop(5000);
    assert_eq!(world.record().reason, None);

    until(BootTime::now().after(Duration::from_millis(300)));
    world.start(&spec).unwrap();
    // The lease was renewed in time, so the first deadline passes without effect.
    let end = BootTime::now().after(Duration::from_millis(700));
    until(end);
    let record = world.record();
    assert!(BootTime::now() >= end);
    assert_eq!(record.signal, 9);
    assert!(record.lease_passed && record.reason.unwrap().contains("lease"), "no reason");
}

#[test]
fn a_lease_that_was_given_anew_is_not_the_task_s() {
    let mut world = World::new();
    let (writer, _) = LeaseWriter::open(&world.path("lease")).unwrap();
    let mut spec = world.spec("echo up; sleep 300");
    let began = BootTime::now();
    spec.lease = Some(Term { file: world.path("lease"), began: began.0 });
    let first = Lease { deadline: began.after(Duration::from_millis(500)), began, heard: began };
    writer.write(first).unwrap();
    world.start(&spec).unwrap();
    // The machine slept: the agent woke first and renewed the lease before the shim checked it.
    let now = BootTime::now();
    writer.write(Lease { deadline: now.after(Duration::from_secs(3600)), began: now, heard: now }).unwrap();
    let record = world.record();
    assert!(record.lease_passed && record.signal == 9, "{record:?}");
    let error = world.start(&spec).unwrap_err();
    assert!(error.contains("has passed"), "{error}");
}

#[test]
fn a_killed_shim_takes_the_task_s_first_process_with_it_and_leaves_no_record() {
    let mut world = World::new();
    let started = world.start(&world.spec("echo up; sleep 300")).unwrap();
    let task = PidFd::open(started.task.pid).unwrap().unwrap();
    let shim = world.shim.as_mut().unwrap();
    shim.kill().unwrap();
    shim.wait().unwrap();
    assert!(task.wait_exit(Some(DEADLINE)).unwrap());
    assert_eq!(ExitRecord::read(&world.path("state")).unwrap(), None);
}

#[test]
fn an_isolated_task_sees_its_own_root_processes_and_few_capabilities() {
    let mut world = World::new();
    std::fs::create_dir_all(world.path("task/private")).unwrap();
    std::fs::write(world.path("task/private/secret"), "x").unwrap();
    std::fs::write(world.path("task/local/file"), "mine\n").unwrap();
    let script = "\
        cat /local/file; \
        touch /usr/x 2>/dev/null || echo usr-read-only; \
        ls /private | wc -l; \
        ls -d /root /home 2>/dev/null | wc -l; \
        grep CapBnd /proc/self/status | cut -f2; \
        echo 1 2>/dev/null >/proc/sys/kernel/panic || echo proc-read-only; \
        mount -t tmpfs none /tmp 2>/dev/null || echo no-mount; \
        mknod /local/dev c 1 3; (echo x 2>/dev/null >/local/dev) 2>/dev/null || echo no-device; \
        mknod /local/disk b 7 0 2>/dev/null || echo no-node; \
        echo x >/dev/null && head -c 2 /dev/zero | wc -c; \
        ps -e 2>/dev/null | wc -l; \
        kill -9 1 2>/dev/null; echo $$; exit 4";
    let mut spec = world.isolated(script);
    spec.isolation.as_mut().unwrap().hidden.push("/private".into());
    let begun = Instant::now();
    let started = world.start(&spec).unwrap();
    eprintln!("isolated start took {:?}", begun.elapsed());
    assert_eq!(started.degraded, Vec::<String>::new());
    let record = world.record();
    let out = world.output("web.stdout.0");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(record.exit_code, 4, "{out} {}", world.output("web.stderr.0"));
    assert_eq!(lines[..3], ["mine", "usr-read-only", "0"], "{out}");
    assert_eq!(lines[3], "0");
    assert_eq!(lines[4], "00000000080000eb");
    assert_eq!(lines[5..10], ["proc-read-only", "no-mount", "no-device", "no-node", "2"], "{out}");
    // The task is not the first process of its namespace, so signals work as usual. Few ids are in use.
    let pid: u32 = lines.last().unwrap().parse().unwrap();
    assert!(pid > 1 && pid < 50, "{pid}");
    let table = caravan_sys::mountinfo::MountTable::read().unwrap();
    let left: Vec<_> = table.under(world.dir.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_isolated_task_gets_signals_and_programs_beside_it() {
    let mut world = World::new();
    let mut spec = world.isolated("");
    (spec.command.program, spec.command.args) = ("sleep".into(), vec!["300".into()]);
    world.start(&spec).unwrap();
    let mut client = world.client();
    let (out, err, code) =
        client.exec(&["sh", "-c", "ls /; cat /proc/1/comm; grep CapEff /proc/self/status"], "");
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.contains("local\n") && out.contains("caravan-hold\n") && out.contains("080000eb"), "{out}");
    // Without a handler, the task still ends immediately, well before the kill.
    let record = client.stop(3_600_000);
    assert_eq!((record.exit_code, record.signal), (0, 15));
}

#[test]
fn an_isolated_task_of_another_user_has_no_capabilities() {
    let mut world = World::new();
    let mut spec = world.isolated("id -u; id -g; grep CapEff /proc/self/status | cut -f2");
    spec.user = Some(caravan_shim::spec::UserSpec { uid: 65534, gid: 65534, groups: vec![] });
    world.start(&spec).unwrap();
    world.record();
    assert_eq!(world.output("web.stdout.0"), "65534\n65534\n0000000000000000\n");
    spec.isolation.as_mut().unwrap().ambient = 1;
    world.start(&spec).unwrap();
    world.record();
    assert!(world.output("web.stdout.0").ends_with("65534\n65534\n0000000000000001\n"));
}

#[test]
fn a_task_may_share_the_host_s_processes() {
    let mut world = World::new();
    let mut spec =
        world.isolated("cat /proc/$$/comm; kill -0 $SHIM && echo sees; (setsid sleep 300 &); exit 2");
    let isolation = spec.isolation.as_mut().unwrap();
    (isolation.private_pids, isolation.private_ipc) = (false, false);
    spec.command.env.insert("SHIM".into(), std::process::id().to_string());
    let started = world.start(&spec).unwrap();
    let record = world.record();
    assert_eq!((record.exit_code, record.task), (2, started.task));
    assert_eq!(world.output("web.stdout.0"), "sh\nsees\n");
}

#[test]
fn limits_of_the_kernel_are_set_or_told() {
    let mut world = World::new();
    let mut spec = world.spec("ulimit -n; cat /proc/self/oom_score_adj");
    spec.rlimits.push(caravan_shim::spec::RlimitSpec {
        resource: caravan_shim::spec::RlimitResource::OpenFiles,
        soft: Some(123),
        hard: Some(456),
    });
    spec.oom_score_adj = Some(77);
    let started = world.start(&spec).unwrap();
    assert_eq!(started.degraded, Vec::<String>::new());
    world.record();
    assert_eq!(world.output("web.stdout.0"), "123\n77\n");
    // Out of the range of any process.
    spec.oom_score_adj = Some(5000);
    let started = world.start(&spec).unwrap();
    assert!(started.degraded[0].contains("oom_score_adj 5000 could not be set"), "{:?}", started.degraded);
    assert_eq!(world.record().exit_code, 0);
}

fn mounted(path: &Path) -> bool {
    is_mount_point(path).unwrap_or(false)
}

#[test]
fn mounts_travel_as_asked() {
    let mut world = World::new();
    let tree = world.path("tree");
    for name in ["private", "down", "both", "plain"] {
        std::fs::create_dir_all(tree.join(name).join("m")).unwrap();
    }
    std::fs::create_dir_all(tree.join("both/up")).unwrap();
    make_shared_tree(&tree).unwrap();
    let _cleanup = Cleanup(vec![tree.join("both/up"), tree.clone()]);

    let mut spec = world.isolated("mount -t tmpfs none /v/both/up && echo mounted; sleep 300");
    let isolation = spec.isolation.as_mut().unwrap();
    isolation.privileged = true;
    isolation.capabilities = !0;
    isolation.mounts = [
        ("private", MountPropagation::Private, false),
        ("down", MountPropagation::HostToTask, false),
        ("both", MountPropagation::Bidirectional, false),
        ("plain", MountPropagation::Private, true),
    ]
    .map(|(name, propagation, read_only)| MountSpec {
        host: tree.join(name),
        task: Path::new("/v").join(name),
        read_only,
        propagation,
    })
    .into();
    world.start(&spec).unwrap();
    world.until("the task's mount", || world.output("web.stdout.0") == "mounted\n");
    assert!(mounted(&tree.join("both/up")), "a bidirectional mount did not reach the host");

    for name in ["private", "down", "both"] {
        mount_tmpfs(&tree.join(name).join("m"), 1 << 20, 0o755).unwrap();
    }
    let mut client = world.client();
    let seen = "for n in private down both; do grep -q \" /v/$n/m \" /proc/self/mountinfo && echo $n; done; \
                touch /v/plain/x 2>/dev/null || echo read-only; test -b /dev/loop0 -o -c /dev/loop-control && echo devices";
    assert_eq!(client.exec(&["sh", "-c", seen], "").0, "down\nboth\nread-only\ndevices\n");
    for name in ["private", "down", "both"] {
        assert!(unmount(&tree.join(name).join("m"), Unmount::Now).unwrap(), "{name} is held");
    }
    client.stop(5000);
    world.record();
    // The task's mount is also the host's: it outlives the task, as a staged volume must.
    assert!(mounted(&tree.join("both/up")));

    // The plugin's next run unmounts the mount of the previous run.
    spec.command.args[1] = "umount /v/both/up && echo unmounted".into();
    world.start(&spec).unwrap();
    world.record();
    assert!(world.output("web.stdout.0").ends_with("unmounted\n"), "{}", world.output("web.stderr.0"));
    assert!(!mounted(&tree.join("both/up")));
}

#[test]
fn a_bidirectional_mount_of_what_is_not_shared_is_refused() {
    let mut world = World::new();
    std::fs::create_dir_all(world.path("alone")).unwrap();
    caravan_sys::mount::bind(&world.path("alone"), &world.path("alone"), false).unwrap();
    let _cleanup = Cleanup(vec![world.path("alone")]);
    caravan_sys::mount::set_propagation(
        &world.path("alone"),
        caravan_sys::mount::Propagation::Private,
        false,
    )
    .unwrap();
    let mut spec = world.isolated("true");
    spec.isolation.as_mut().unwrap().mounts.push(MountSpec {
        host: world.path("alone"),
        task: "/v".into(),
        read_only: false,
        propagation: MountPropagation::Bidirectional,
    });
    let error = world.start(&spec).unwrap_err();
    assert!(error.contains("cannot be bidirectional"), "{error}");
}

#[test]
fn a_mount_point_that_cannot_be_made_is_explained() {
    let mut world = World::new();
    std::fs::create_dir_all(world.path("data")).unwrap();
    let mut spec = world.isolated("true");
    spec.isolation.as_mut().unwrap().mounts.push(MountSpec {
        host: world.path("data"),
        task: "/usr/no/such/place".into(),
        read_only: false,
        propagation: MountPropagation::Private,
    });
    let error = world.start(&spec).unwrap_err();
    assert!(error.contains("/usr/no/such/place does not exist on the host"), "{error}");
}

#[test]
fn links_that_a_task_left_lead_nowhere_outside() {
    let mut world = World::new();
    let outside = world.path("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::create_dir_all(world.path("data")).unwrap();
    std::os::unix::fs::symlink(&outside, world.path("task/var")).unwrap();
    let mut spec = world.isolated("true");
    spec.isolation.as_mut().unwrap().mounts.push(MountSpec {
        host: world.path("data"),
        task: "/var/made".into(),
        read_only: false,
        propagation: MountPropagation::Private,
    });
    let _either = world.start(&spec);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

struct Cleanup(Vec<PathBuf>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = unmount(path, Unmount::Lazy);
        }
    }
}
