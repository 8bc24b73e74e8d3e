//! A connection that holds back writes while its task drives calls, so that all of them are sent in one write.
//!
//! h2 flushes the head of a request before its body, and the body before its end. Each write costs a system call, and
//! often a wakeup of the receiver.

use crate::io::BoxIo;
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of held bytes. Larger writes are sent immediately, without a copy.
const MAX_HELD: usize = 16 * 1024;

/// Whether writes are held back; shared between the connection and its task.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    closed: bool,
    bytes: Vec<u8>,
    /// Number of held bytes that were sent already.
    written: usize,
}

impl Gate {
    /// Holds back writes from now on.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Lets writes through. Returns whether bytes are held back: the next flush of the connection sends them.
    pub(super) fn open(&self) -> bool {
        let mut held = self.0.lock();
        held.closed = false;
        !held.bytes.is_empty()
    }
}

/// The connection below HTTP/2.
pub(super) struct Corked {
    io: BoxIo,
    gate: Gate,
}

impl Corked {
    pub(super) fn new(io: BoxIo, gate: Gate) -> Self {
        Self { io, gate }
    }

    /// Holds back a write if the gate is closed and there is room. Returns the length of a held write.
    fn hold(&self, slices: &[IoSlice<'_>]) -> Option<usize> {
        let mut held = self.gate.0.lock();
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if !held.closed || held.bytes.len() + length > MAX_HELD {
            return None;
        }
        slices.iter().for_each(|slice| held.bytes.extend_from_slice(slice));
        Some(length)
    }

    /// Writes the held bytes.
    fn poll_release(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.gate.0.lock();
        while held.written < held.bytes.len() {
            let written = ready!(Pin::new(&mut self.io).poll_write(task, &held.bytes[held.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            held.written += written;
        }
        held.bytes.clear();
        held.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Corked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(task, buffer)
    }
}

impl AsyncWrite for Corked {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(length) = self.hold(&[IoSlice::new(bytes)]) {
            return Poll::Ready(Ok(length));
        }
        ready!(self.poll_release(task))?;
        Pin::new(&mut self.io).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(length) = self.hold(slices) {
            return Poll::Ready(Ok(length));
        }
        ready!(self.poll_release(task))?;
        Pin::new(&mut self.io).poll_write_vectored(task, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.gate.0.lock().closed {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_release(task))?;
        Pin::new(&mut self.io).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(task))?;
        Pin::new(&mut self.io).poll_shutdown(task)
    }
}
