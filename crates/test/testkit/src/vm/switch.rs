//! An Ethernet switch in this process, which joins machines without a change to the host's network.

use anyhow::{Context, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

/// The number of frames that wait for a machine that does not read; further frames are lost, as on a real switch.
const MAX_QUEUE: usize = 1024;
/// The maximum length of a valid frame: QEMU sends at most 64 KiB and headers.
const MAX_FRAME: usize = 70_000;

type Ports = Arc<Mutex<HashMap<u64, SyncSender<Arc<Vec<u8>>>>>>;

/// A switch. Each frame reaches all other machines on the switch.
#[derive(Debug)]
pub struct EtherSwitch {
    directory: tempfile::TempDir,
    closed: Arc<AtomicBool>,
}

impl EtherSwitch {
    /// Creates a switch without machines.
    ///
    /// # Errors
    /// Fails if its socket cannot be created.
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("caravan-switch-").tempdir()?;
        let listener = UnixListener::bind(path(directory.path())).context("create the socket of a switch")?;
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        std::thread::spawn(move || {
            let ports = Ports::default();
            for (number, stream) in (0..).zip(listener.incoming()) {
                let Ok(stream) = stream else { continue };
                if is_closed.load(Ordering::Relaxed) {
                    break;
                }
                // A machine whose socket cannot be cloned has no network.
                let _ = connect(number, stream, &ports);
            }
        });
        Ok(Self { directory, closed })
    }

    /// Returns the socket to which QEMU connects.
    pub(super) fn socket(&self) -> PathBuf {
        path(self.directory.path())
    }
}

impl Drop for EtherSwitch {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // The connection wakes the thread, which then finds the switch closed.
        let _ = UnixStream::connect(self.socket());
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join("switch")
}

fn connect(number: u64, mut stream: UnixStream, ports: &Ports) -> Result<()> {
    let mut out = stream.try_clone()?;
    let (sender, receiver) = sync_channel::<Arc<Vec<u8>>>(MAX_QUEUE);
    ports.lock().insert(number, sender);
    std::thread::spawn(move || {
        for frame in receiver {
            if out.write_all(&frame).is_err() {
                break;
            }
        }
    });
    let ports = Arc::clone(ports);
    std::thread::spawn(move || {
        while let Some(frame) = next(&mut stream) {
            let frame = Arc::new(frame);
            for (port, sender) in ports.lock().iter() {
                if *port != number {
                    // If the queue is full, the frame is lost.
                    let _ = sender.try_send(Arc::clone(&frame));
                }
            }
        }
        ports.lock().remove(&number);
    });
    Ok(())
}

/// Reads a frame with its length, which is big-endian (QEMU's `-netdev stream`).
fn next(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let count = usize::try_from(u32::from_be_bytes(length)).ok()?;
    if count > MAX_FRAME {
        return None;
    }
    let mut frame = length.to_vec();
    frame.resize(4 + count, 0);
    stream.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reaches_all_others() -> Result<()> {
        let switch = EtherSwitch::new()?;
        let connect = || UnixStream::connect(switch.socket());
        let (mut a, mut b, mut c) = (connect()?, connect()?, connect()?);
        let send = |from: &mut UnixStream, text: &[u8]| -> Result<()> {
            from.write_all(&u32::try_from(text.len())?.to_be_bytes())?;
            Ok(from.write_all(text)?)
        };
        // The switch has a port for a machine from its first frame on at the latest.
        let received = |from: &mut UnixStream, to: &mut UnixStream, text: &[u8]| -> Result<()> {
            to.set_read_timeout(Some(std::time::Duration::from_millis(50)))?;
            crate::eventually("a frame", || {
                send(from, text)?;
                let frame = next(to).context("no frame")?;
                anyhow::ensure!(frame[4..] == *text, "another frame: {frame:?}");
                Ok(())
            })
        };
        received(&mut a, &mut b, b"from a")?;
        received(&mut a, &mut c, b"from a")?;
        received(&mut c, &mut a, b"from c")?;
        Ok(())
    }
}
