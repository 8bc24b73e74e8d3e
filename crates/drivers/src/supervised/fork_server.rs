//! The agent's side of the fork server, which forks a shim for each task (`crates/shim/src/fork_server.rs`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use caravan_shim::FORK_SERVER;
use caravan_sys::process::PidFd;
use caravan_sys::socket::send_descriptors;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// Timeout of a fork, which takes less than a millisecond. A server that exceeds the timeout is replaced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The program that serves as shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments that start the program as a shim.
    pub args: Vec<String>,
}

impl Default for ShimCommand {
    /// Returns the running program itself, which works even after an update has replaced its file.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec!["shim".into()] }
    }
}

/// The fork server of an agent. It starts with the first task, and again if it was killed. All drivers of an agent share
/// one.
#[derive(Debug, Clone)]
pub struct ForkServer {
    command: ShimCommand,
    /// The connection to the running server.
    server: Arc<Mutex<Option<UnixStream>>>,
}

/// A forked shim, a child of this process.
#[derive(Debug)]
pub(super) struct Forked {
    /// The conversation: it reads its specification from the other end, and writes its report to it.
    pub(super) conversation: UnixStream,
    /// The process.
    pub(super) process: Arc<PidFd>,
}

impl ForkServer {
    /// Creates the value; no process starts yet.
    pub fn new(command: ShimCommand) -> Self {
        Self { command, server: Arc::default() }
    }

    /// Forks a shim that writes its messages to `log`. The caller reaps the process ([`reap`]).
    pub(super) async fn fork(&self, log: File) -> io::Result<Forked> {
        let log = OwnedFd::from(log);
        let mut server = self.server.lock().await;
        // Taken: if this future is dropped before the answer is read, the next request needs another server.
        let answered = match server.take() {
            None => None,
            Some(running) => request(running, &log)
                .await
                .inspect_err(|error| tracing::warn!(%error, "the fork server is gone: starting another"))
                .ok(),
        };
        let answered = match answered {
            Some(answered) => answered,
            None => request(self.start()?, &log).await?,
        };
        *server = Some(answered.server);
        drop(server);
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let process = match answered.pid {
            0 => return Err(io::Error::other("the fork failed; shim.log has the reason")),
            pid => PidFd::open(pid).map_err(io::Error::other)?.ok_or_else(gone)?,
        };
        Ok(Forked { conversation: answered.conversation, process: Arc::new(process) })
    }

    fn start(&self) -> io::Result<UnixStream> {
        let (near, far) = BlockingStream::pair()?;
        near.set_nonblocking(true)?;
        let mut child = tokio::process::Command::new(&self.command.program)
            .args(&self.command.args)
            .arg(FORK_SERVER)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(far))
            .stdout(Stdio::null())
            .spawn()?;
        tokio::spawn(async move {
            let status = child.wait().await;
            tracing::debug!(?status, "fork server ended");
        });
        UnixStream::from_std(near)
    }
}

/// The answer of a fork server.
struct Answered {
    server: UnixStream,
    conversation: UnixStream,
    /// 0 if the fork failed.
    pid: u32,
}

/// Sends a request and returns the answer. Each request has its own conversation: if the answer is lost, the shim that
/// may exist reads the end of its conversation and ends.
async fn request(mut server: UnixStream, log: &OwnedFd) -> io::Result<Answered> {
    let (near, far) = BlockingStream::pair()?;
    near.set_nonblocking(true)?;
    let conversation = UnixStream::from_std(near)?;
    let ask = async {
        let descriptors = [far.as_fd(), log.as_fd()];
        server.async_io(Interest::WRITABLE, || send_descriptors(&server, &descriptors)).await?;
        server.read_u32().await
    };
    let pid = tokio::time::timeout(ANSWER_TIMEOUT, ask).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(Answered { server, conversation, pid })
}

/// Waits until a child has ended, and reaps it.
pub(super) async fn reap(process: Arc<PidFd>) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "the replacement is unsafe for the sake of types that close early, which an OwnedFd never does"
    )]
    let register = |fd: OwnedFd| AsyncFd::with_interest(fd, Interest::READABLE);
    let ended = register(process.as_fd().try_clone_to_owned()?)?;
    loop {
        let mut ready = ended.readable().await?;
        if process.reap().map_err(io::Error::other)? {
            return Ok(());
        }
        ready.clear_ready();
    }
}
