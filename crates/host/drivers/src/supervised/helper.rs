//! Processes of the shim's program that serve a driver next to a task, such as guards and collectors.

use super::ShimCommand;
use caravan_sys::process::ProcessIdentity;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;

/// A helper process that is ready.
#[derive(Debug)]
pub struct Helper {
    /// The standard input of the process, for further messages.
    pub input: ChildStdin,
    /// The process; absent if it ended immediately.
    pub process: Option<ProcessIdentity>,
}

impl ShimCommand {
    /// Starts a helper, sends its first messages, and waits until it answers with the byte that means "ready". Its own
    /// messages are appended to the file `log` (0600). The helper has no environment, and outlives the agent.
    ///
    /// # Errors
    /// If the program cannot be started, ends early, answers another byte, or takes longer than `limit`.
    pub async fn start_helper(
        &self,
        purpose: &str,
        log: &Path,
        messages: &[u8],
        ready: u8,
        limit: Duration,
    ) -> io::Result<Helper> {
        let log = File::options().append(true).create(true).mode(0o600).open(log)?;
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.args)
            .arg(purpose)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        // Read before any task waits for the child, so the id is the child's.
        let identity = child.id().map(ProcessIdentity::read).transpose().map_err(io::Error::other)?.flatten();
        let purpose = purpose.to_owned();
        tokio::spawn(async move {
            let status = child.wait().await;
            tracing::debug!(?status, purpose, "helper process ended");
        });
        let (Some(mut input), Some(mut output)) = (input, output) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let begun = async {
            input.write_all(messages).await?;
            input.flush().await?;
            output.read_u8().await
        };
        match tokio::time::timeout(limit, begun).await {
            Ok(Ok(byte)) if byte == ready => Ok(Helper { input, process: identity }),
            Ok(Ok(_)) => Err(io::ErrorKind::InvalidData.into()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
