//! The fork server: its shims outlive it, and it does not outlive its agent.

use super::*;

/// A fork server whose program has a separate path, so that its processes can be found.
struct Server {
    dir: tempfile::TempDir,
    shims: ForkServer,
}

impl Server {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("shim");
        // A child process writes the copy. A file that this process writes is inherited open by the forks of
        // concurrent tests, and such a program cannot be executed (ETXTBSY).
        let copied = std::process::Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_caravan-driver-shim"))
            .arg(&program)
            .status()
            .unwrap();
        assert!(copied.success());
        let shims = ForkServer::new(ShimCommand { program, args: vec![] });
        Self { dir, shims }
    }

    fn driver(&self) -> RawExecDriver {
        let options = RawExecOptions { enabled: true, ..RawExecOptions::default() };
        RawExecDriver::new(options, self.shims.clone())
    }

    /// Returns the processes that run as fork servers.
    fn pids(&self) -> Vec<u32> {
        let program = self.dir.path().join("shim");
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
                && std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name == "caravan-fork\n")
        })
        .collect()
    }
}

fn shim_of(handle: &caravan_drivers::TaskHandle) -> u32 {
    u32::try_from(handle.state["shim"]["pid"].as_u64().unwrap()).unwrap()
}

#[tokio::test]
async fn a_killed_fork_server_is_replaced_and_its_shims_continue() {
    let (world, server) = (World::new(Kind::Raw), Server::new());
    let driver = server.driver();
    let first = world.script("first", "echo up; sleep 100000");
    driver.start(first.clone()).await.unwrap();
    let [pid] = server.pids()[..] else { panic!("{:?}", server.pids()) };
    let process = PidFd::open(pid).unwrap().unwrap();
    process.send_signal(9).unwrap();
    assert!(process.wait_exit(Some(TIMEOUT)).unwrap());

    let second = world.script("second", "exit 3");
    driver.start(second.clone()).await.unwrap();
    assert_eq!(driver.wait(&second.id).await.unwrap().exit_code, 3);
    assert_eq!(driver.inspect(&first.id).await.unwrap().state, TaskState::Running);
    until("output", || world.output("first") == "up\n").await;
    driver.stop(&first.id, Duration::ZERO, None).await.unwrap();
    assert_eq!(server.pids().len(), 1);
}

#[tokio::test]
async fn drivers_share_a_fork_server_which_ends_with_them() {
    let (world, server) = (World::new(Kind::Raw), Server::new());
    assert!(server.pids().is_empty(), "a server without tasks");
    let (one, other) = (server.driver(), server.driver());
    let (first, second) = (world.script("first", "true"), world.script("second", "true"));
    let (started, also) = tokio::join!(one.start(first.clone()), other.start(second.clone()));
    for handle in [started.unwrap(), also.unwrap()] {
        let shim = format!("/proc/{}", shim_of(&handle));
        until("the shim is reaped", || !Path::new(&shim).exists()).await;
    }
    assert_eq!(server.pids().len(), 1);
    let Server { dir, shims } = server;
    drop((one, other, shims));
    let server = Server { dir, shims: shim() };
    until("the server ends", || server.pids().is_empty()).await;
}

/// The `oom_score_adj` of the stopped server. Its shims inherit the value, which distinguishes them from those of
/// other tests.
const MARK: &str = "123\n";

/// Returns the marked children of this process that have ended and were not reaped.
fn zombies() -> Vec<u32> {
    let is_zombie_shim = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        let own = std::process::id().to_string();
        let marked =
            std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).is_ok_and(|value| value == MARK);
        marked && fields.next() == Some("Z") && fields.next() == Some(&own)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_zombie_shim).collect()
}

/// Returns whether a server has a socket with a request that it has not received.
fn has_unread_request(server: u32) -> bool {
    let opened = rustix::process::Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
    let opened = rustix::process::pidfd_open(opened, rustix::process::PidfdFlags::empty()).unwrap();
    let descriptors = std::fs::read_dir(format!("/proc/{server}/fd")).unwrap().flatten();
    descriptors
        .filter(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .any(|entry| {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            let flags = rustix::process::PidfdGetfdFlags::empty();
            let socket = rustix::process::pidfd_getfd(&opened, number, flags).unwrap();
            let mut polled = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut polled, Some(&now)).unwrap() > 0
        })
}

#[tokio::test]
async fn a_shim_whose_id_is_never_answered_is_reaped() {
    let (world, server) = (World::new(Kind::Raw), Server::new());
    let driver = Arc::new(server.driver());
    let first = world.script("first", "true");
    driver.start(first.clone()).await.unwrap();
    driver.wait(&first.id).await.unwrap();
    let [pid] = server.pids()[..] else { panic!("{:?}", server.pids()) };
    let process = PidFd::open(pid).unwrap().unwrap();
    process.send_signal(nix::libc::SIGSTOP).unwrap();
    std::fs::write(format!("/proc/{pid}/oom_score_adj"), MARK).unwrap();

    // The server receives the request, and forks the shim, only after the end of the starting future.
    let second = world.script("second", "true");
    let starting = tokio::spawn({
        let (driver, second) = (Arc::clone(&driver), second.clone());
        async move { driver.start(second).await.map(drop) }
    });
    until("the request is sent", || has_unread_request(pid)).await;
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    process.send_signal(nix::libc::SIGCONT).unwrap();
    assert!(process.wait_exit(Some(TIMEOUT)).unwrap(), "the server cannot answer");
    until("the shim is reaped", || zombies().is_empty()).await;

    driver.start(second.clone()).await.unwrap();
    assert_eq!(driver.wait(&second.id).await.unwrap().exit_code, 0);
}
