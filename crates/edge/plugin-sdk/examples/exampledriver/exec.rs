//! Commands next to a task: with its environment, in its directory.

use crate::beside::{self, Streams};
use crate::driver::TaskConfig;
use caravan_plugin_sdk::{ExecInput, ExecOutput, ExecResult, ExitResult, Task, TaskError};
use nix::fcntl::OFlag;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// The size of one message, in bytes.
const CHUNK: usize = 32 * 1024;
/// The time in which output that was written before the end of a command is read. A process that the command left
/// behind holds the pipes open, and does not delay the end further.
const REST: Duration = Duration::from_millis(100);
/// The maximum size of such output in bytes: no pipe and no terminal holds more (`F_SETPIPE_SZ` of fcntl(2)).
const REST_SIZE: usize = 1024 * 1024;
/// The character that ends the input on a terminal (VEOF of termios(3)).
const END_OF_INPUT: &[u8] = b"\x04";

fn prepare(task: &Task<TaskConfig>, words: &[String], streams: Streams) -> Result<Command, TaskError> {
    if words.is_empty() {
        return Err(TaskError::failed("the command is empty"));
    }
    Ok(beside::command(task, words, streams))
}

/// Runs a command to its end.
pub async fn once(
    task: &Task<TaskConfig>,
    words: &[String],
    timeout: Duration,
) -> Result<ExecResult, TaskError> {
    let mut command = prepare(task, words, Streams::Pipes)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(TaskError::failed)?;
    let id = child.id();
    let mut running = pin!(child.wait_with_output());
    let group = Group::new(id);
    let Ok(output) = tokio::time::timeout(timeout, &mut running).await else {
        return Err(TaskError::failed(format!("the command did not end within {timeout:?}")));
    };
    group.release();
    let output = output.map_err(TaskError::failed)?;
    Ok(ExecResult { stdout: output.stdout, stderr: output.stderr, exit: output.status.into() })
}

/// The process group of a running command. Dropping the value kills the group. The value is dropped before the
/// command is reaped, so that the id still names the command's group.
struct Group(Option<Pid>);

impl Group {
    fn new(leader: Option<u32>) -> Self {
        Self(leader.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Keeps the processes alive that an ended command left behind.
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.take()
            && let Err(errno) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%errno, "a command has no process group");
        }
    }
}

/// Runs a command with three pipes.
pub async fn on_pipes(
    task: &Task<TaskConfig>,
    words: &[String],
    input: Receiver<ExecInput>,
    output: ExecOutput,
) -> Result<ExitResult, TaskError> {
    let mut command = prepare(task, words, Streams::Pipes)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(TaskError::failed)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = CancellationToken::new();
    let copying = async {
        tokio::join!(
            copy(stdout, &output, Channel::Stdout, &ended),
            copy(stderr, &output, Channel::Stderr, &ended),
        );
    };
    run(&mut child, copying, feed(stdin, input), &ended).await
}

/// Runs a command on a new terminal.
pub async fn on_terminal(
    task: &Task<TaskConfig>,
    words: &[String],
    input: Receiver<ExecInput>,
    output: ExecOutput,
) -> Result<ExitResult, TaskError> {
    let mut command = prepare(task, words, Streams::Terminal)?;
    let (master, slave) = open_terminal().map_err(TaskError::failed)?;
    let another = || slave.try_clone().map_err(TaskError::failed);
    command.stdin(another()?).stdout(another()?).stderr(another()?);
    let mut child = command.spawn().map_err(TaskError::failed)?;
    // The output ends when the last process closes its side of the terminal, and this one has several copies.
    drop((command, slave));
    let ended = CancellationToken::new();
    let copying = async {
        let (mut buffer, mut rest) = (vec![0; CHUNK], REST_SIZE);
        while let Some(count) = unless_left(read(&master, &mut buffer), &ended, &mut rest).await {
            if !output.stdout(buffer[..count].to_vec()).await {
                return;
            }
        }
    };
    run(&mut child, copying, feed_terminal(&master, input), &ended).await
}

/// Waits for the end of a command, and for the output that it wrote before.
async fn run(
    child: &mut Child,
    copying: impl Future<Output = ()>,
    feeding: impl Future<Output = ()>,
    ended: &CancellationToken,
) -> Result<ExitResult, TaskError> {
    let group = Group::new(child.id());
    let (mut copying, mut feeding) = (pin!(copying), pin!(feeding));
    let (mut is_copied, mut is_fed) = (false, false);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(TaskError::failed)?,
            () = &mut copying, if !is_copied => is_copied = true,
            () = &mut feeding, if !is_fed => is_fed = true,
        }
    };
    group.release();
    ended.cancel();
    if !is_copied {
        copying.await;
    }
    Ok(status.into())
}

/// Returns the length of the next output; `None` at its end, or when the command has ended without further output.
async fn unless_left(
    read: impl Future<Output = io::Result<usize>>,
    ended: &CancellationToken,
    rest: &mut usize,
) -> Option<usize> {
    let passed = async {
        ended.cancelled().await;
        tokio::time::sleep(REST).await;
    };
    let count = tokio::select! {
        biased;
        count = read => count.ok().filter(|count| *count > 0)?,
        () = passed => return None,
    };
    if ended.is_cancelled() {
        *rest = rest.checked_sub(count)?;
    }
    Some(count)
}

async fn feed(stdin: Option<ChildStdin>, mut input: Receiver<ExecInput>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(message) = input.recv().await {
        match message {
            ExecInput::Data(bytes) => {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            ExecInput::Close => return,
            ExecInput::Resize { .. } => {}
        }
    }
}

/// The stream of the caller that a chunk of output goes to.
#[derive(Clone, Copy)]
enum Channel {
    Stdout,
    Stderr,
}

async fn copy<R: AsyncRead + Unpin>(
    from: Option<R>,
    output: &ExecOutput,
    to: Channel,
    ended: &CancellationToken,
) {
    let Some(mut from) = from else { return };
    let (mut buffer, mut rest) = (vec![0; CHUNK], REST_SIZE);
    while let Some(count) = unless_left(from.read(&mut buffer), ended, &mut rest).await {
        let bytes = buffer[..count].to_vec();
        let is_sent = match to {
            Channel::Stdout => output.stdout(bytes).await,
            Channel::Stderr => output.stderr(bytes).await,
        };
        if !is_sent {
            return;
        }
    }
}

/// Returns both sides of a new terminal. No other command that starts now inherits them.
fn open_terminal() -> io::Result<(AsyncFd<File>, File)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = nix::pty::posix_openpt(flags)?;
    nix::pty::grantpt(&master)?;
    nix::pty::unlockpt(&master)?;
    let name = nix::pty::ptsname_r(&master)?;
    let slave = File::options().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(name)?;
    let master = File::from(master.as_fd().try_clone_to_owned()?);
    fcntl_setfl(&master, OFlags::NONBLOCK)?;
    #[expect(deprecated, reason = "the other function is unsafe; the value owns its descriptor")]
    let master = AsyncFd::new(master)?;
    Ok((master, slave))
}

async fn read(terminal: &AsyncFd<File>, buffer: &mut [u8]) -> io::Result<usize> {
    terminal.async_io(Interest::READABLE, |mut file| file.read(buffer)).await
}

async fn feed_terminal(terminal: &AsyncFd<File>, mut input: Receiver<ExecInput>) {
    while let Some(message) = input.recv().await {
        let result = match message {
            ExecInput::Data(bytes) => write(terminal, &bytes).await,
            ExecInput::Close => write(terminal, END_OF_INPUT).await,
            ExecInput::Resize { rows, columns } => resize(terminal, rows, columns),
        };
        if let Err(error) = result {
            tracing::debug!(error = &error as &dyn std::error::Error, "a terminal has no reader");
            return;
        }
    }
}

fn resize(terminal: &AsyncFd<File>, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal.get_ref(), size)?)
}

async fn write(terminal: &AsyncFd<File>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = terminal.async_io(Interest::WRITABLE, |mut file| file.write(bytes)).await?;
        bytes = &bytes[count..];
    }
    Ok(())
}
