//! The test's end of the channel into a machine. Requests of several threads get responses in any order.

use super::protocol::{FAILED, Frame, GET};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The time for which one attempt to reach a machine waits before the next one connects. QEMU discards the bytes of a
/// closed connection, so that no attempt leaves a partial request.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The time for which a call waits before it checks that the machine still responds. A kernel under
/// emulation can hang permanently, for example after a lost timer interrupt, and some calls take twenty
/// minutes.
const LIFE_INTERVAL: Duration = Duration::from_secs(30);
/// The time in which a machine on a busy host responds.
const LIFE_TIMEOUT: Duration = Duration::from_secs(120);
/// The file that the first request of a connection reads: its content differs between starts of a machine
/// (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

type Pending = Arc<Mutex<HashMap<u32, Sender<Frame>>>>;

/// A connection to the helper in a machine.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    writer: Mutex<UnixStream>,
    pending: Pending,
    next: AtomicU32,
}

impl Channel {
    /// Connects until the helper responds. Returns the channel and the machine's boot id.
    pub(super) fn open(path: &Path, deadline: Instant) -> Result<(Self, String)> {
        loop {
            let attempt = Self::connect(path).and_then(|channel| {
                let boot_id = channel.call(GET, vec![BOOT_ID.into()], ATTEMPT)?;
                let boot_id = boot_id.parts.into_iter().next().context("a response without content")?;
                Ok((channel, String::from_utf8(boot_id)?.trim().to_owned()))
            });
            match attempt {
                Ok(open) => return Ok(open),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).context("the machine does not answer");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path)?;
        let (mut reader, writer) = (stream.try_clone()?, stream.try_clone()?);
        let pending = Pending::default();
        let waiting = Arc::clone(&pending);
        std::thread::spawn(move || {
            while let Ok(frame) = Frame::read_from(&mut reader) {
                if let Some(sender) = waiting.lock().remove(&frame.id) {
                    // The caller's deadline may have passed.
                    let _ = sender.send(frame);
                }
            }
            // The callers receive the end of their senders.
            waiting.lock().clear();
        });
        let next = AtomicU32::new(std::process::id().rotate_left(16));
        Ok(Self { stream, writer: Mutex::new(writer), pending, next })
    }

    /// Sends a request and waits for its response.
    pub(super) fn call(&self, kind: i32, parts: Vec<Vec<u8>>, timeout: Duration) -> Result<Frame> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        self.pending.lock().insert(id, sender);
        {
            let mut writer = self.writer.lock();
            writer.set_write_timeout(Some(timeout))?;
            Frame { id, code: kind, parts }.write_to(&mut *writer).context("write to the machine")?;
        }
        let answer = self.wait(&receiver, timeout);
        self.pending.lock().remove(&id);
        let answer = answer?.with_context(|| format!("no response of the machine within {timeout:?}"))?;
        if answer.code == FAILED {
            let reason = answer.parts.first().map(|part| String::from_utf8_lossy(part).into_owned());
            bail!("in the machine: {}", reason.unwrap_or_default());
        }
        Ok(answer)
    }
}

impl Channel {
    /// Waits for a response, as long as the machine responds to other requests.
    fn wait(
        &self,
        response: &Receiver<Frame>,
        timeout: Duration,
    ) -> Result<std::result::Result<Frame, RecvTimeoutError>> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // The check also waits for its complete timeout.
            let is_long = left > LIFE_TIMEOUT;
            match response.recv_timeout(if is_long { LIFE_INTERVAL } else { left }) {
                Err(RecvTimeoutError::Timeout) if is_long => self.prove_life()?,
                other => return Ok(other),
            }
        }
    }

    fn prove_life(&self) -> Result<()> {
        self.call(GET, vec![BOOT_ID.into()], LIFE_TIMEOUT).context("the machine hangs").map(drop)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Ends the reader's thread; the connection may be broken already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
