//! The agent's side of the fork server, which forks a shim for each task (`crates/host/shim/src/fork_server.rs`).

use caravan_shim::FORK_SERVER;
use caravan_sys::limits;
use caravan_sys::process::PidFd;
use caravan_sys::socket::send_descriptors;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// Timeout of a fork, which takes less than a millisecond. A server that exceeds the timeout is replaced.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The program that serves as shim.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug)]
pub struct ForkServer {
    command: ShimCommand,
    /// The connection to the running server.
    server: Arc<Mutex<Option<UnixStream>>>,
}

/// A forked shim, a child of this process.
#[derive(Debug)]
pub(super) struct Forked {
    /// The conversation: the shim reads its specification from the other end, and writes its report to that end.
    pub(super) conversation: UnixStream,
    /// The process.
    pub(super) process: Arc<PidFd>,
}

impl ForkServer {
    /// Creates the value; no process starts yet.
    pub fn new(command: ShimCommand) -> Self {
        Self { command, server: Arc::default() }
    }

    /// Forks a shim that writes its messages to `log`. The shim is reaped when it ends before this process, even if
    /// the returned future is dropped or fails.
    pub(super) async fn fork(&self, log: File) -> io::Result<Forked> {
        let log = OwnedFd::from(log);
        let mut server = self.server.lock().await;
        // Taken: if this future is dropped before the answer is read, the next request needs another server.
        let answered = match server.take() {
            None => None,
            Some(running) => request(running, &log)
                .await
                .inspect_err(|error| tracing::warn!(%error, "the fork server failed: starting another"))
                .ok(),
        };
        let answered = match answered {
            Some(answered) => answered,
            None => request(self.start()?, &log).await?,
        };
        let Answered { server: running, mut conversation, pid } = answered;
        *server = Some(running);
        drop(server);
        if pid == 0 {
            return Err(io::Error::other("the fork failed; shim.log has the reason"));
        }
        let process = reap_when_ended(pid)?;
        // The id that `collect` would have needed. A shim writes it before anything else.
        match tokio::time::timeout(ANSWER_TIMEOUT, conversation.read_u32()).await {
            Ok(id) => {
                id?;
            }
            Err(_) => {
                let _gone = process.send_signal(super::SIGKILL);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(Forked { conversation, process })
    }

    fn start(&self) -> io::Result<UnixStream> {
        let (near, far) = BlockingStream::pair()?;
        near.set_nonblocking(true)?;
        let mut child = tokio::process::Command::new(&self.command.program)
            .args(&self.command.args)
            .arg(FORK_SERVER)
            .args(limits::inherited_open_files().map(|soft| soft.to_string()))
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
    let mut unanswered = Unanswered(Some(UnixStream::from_std(near)?));
    let ask = async {
        let descriptors = [far.as_fd(), log.as_fd()];
        server.async_io(Interest::WRITABLE, || send_descriptors(&server, &descriptors)).await?;
        server.read_u32().await
    };
    let pid = tokio::time::timeout(ANSWER_TIMEOUT, ask).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let conversation = unanswered.0.take().ok_or(io::ErrorKind::NotConnected)?;
    Ok(Answered { server, conversation, pid })
}

/// The conversation of a request without an answer. Dropped with the conversation in it, it reaps the shim that the
/// server may have forked nevertheless.
struct Unanswered(Option<UnixStream>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        // Without a runtime this process is about to end, and its children no longer belong to it.
        if let (Some(conversation), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                let collected = collect(conversation).await;
                tracing::debug!(?collected, "an unanswered request was cleaned up");
            });
        }
    }
}

/// Ends and reaps the shim of an unanswered request. Waits until the other end of the conversation is closed: by the
/// shim, or by a server that ends without a fork.
async fn collect(mut conversation: UnixStream) -> io::Result<()> {
    conversation.shutdown().await?;
    match conversation.read_u32().await {
        Ok(pid) => reap(open(pid)?).await,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a shim that was not reaped yet.
fn open(pid: u32) -> io::Result<Arc<PidFd>> {
    let process = PidFd::open(pid).map_err(io::Error::other)?;
    process.map(Arc::new).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Starts to wait for the end of a shim, and returns the shim.
fn reap_when_ended(pid: u32) -> io::Result<Arc<PidFd>> {
    let process = open(pid)?;
    let ending = Arc::clone(&process);
    tokio::spawn(async move {
        let reaped = reap(ending).await;
        tracing::trace!(pid, ?reaped, "shim ended");
    });
    Ok(process)
}

/// Waits until a child has ended, and reaps it.
async fn reap(process: Arc<PidFd>) -> io::Result<()> {
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
