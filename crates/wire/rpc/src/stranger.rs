//! Limits on strangers: peers that have not proved their identity.
//!
//! Any process that reaches the port can claim to be a node that is not registered yet. Until the node is
//! registered, its messages are small, its calls few, and all such peers share one amount of memory.

use crate::{Code, RpcError};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of a stranger's encoded request, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// Maximum total size of the requests of all strangers in progress, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of calls in progress of one stranger.
const MAX_CALLS: usize = 8;
/// Maximum number of connections of strangers.
const MAX_CONNECTIONS: usize = 128;

/// The limits that all strangers share; clones share them.
#[derive(Clone, Debug)]
pub struct Strangers(Arc<Room>);

#[derive(Debug)]
struct Room {
    connections: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// The connections that entered as strangers.
    inside: Mutex<Vec<Weak<Inner>>>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self::new(MAX_CONNECTIONS, MAX_BYTES)
    }
}

impl Strangers {
    /// Creates limits for this many connections, and this many bytes of requests at a time.
    pub fn new(connections: usize, bytes: usize) -> Self {
        Self(Arc::new(Room {
            connections: Arc::new(Semaphore::new(connections)),
            bytes: Arc::new(Semaphore::new(bytes)),
            inside: Mutex::default(),
        }))
    }

    /// Releases the places of peers that have proved their identity and made no call since. For example, a node registers
    /// through a server that has not applied the registration yet, and its next call is a heartbeat seconds later.
    fn release_proved(&self) {
        self.0.inside.lock().retain(|inner| inner.upgrade().is_some_and(|inner| !inner.has_proved()));
    }

    /// Accepts a connection. `proved` returns whether the peer has proved its identity meanwhile.
    pub(crate) fn enter(
        &self,
        proved: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Stranger, RpcError> {
        let place = || self.0.connections.clone().try_acquire_owned();
        let connection = place().or_else(|_| {
            self.release_proved();
            place().map_err(|_| {
                RpcError::unavailable(
                    "this server has as many connections of nodes that it does not know as it may",
                )
            })
        })?;
        let inner = Arc::new(Inner {
            room: self.clone(),
            connection: Mutex::new(Some(connection)),
            calls: AtomicUsize::new(0),
            is_proved: AtomicBool::new(false),
            proved: Box::new(proved),
        });
        let mut inside = self.0.inside.lock();
        if inside.len() == inside.capacity() {
            inside.retain(|inner| inner.strong_count() > 0);
        }
        inside.push(Arc::downgrade(&inner));
        drop(inside);
        Ok(Stranger(inner))
    }
}

/// A connection whose peer has not proved its identity; clones share it.
#[derive(Clone)]
pub(crate) struct Stranger(Arc<Inner>);

struct Inner {
    room: Strangers,
    /// Released once the peer has proved its identity.
    connection: Mutex<Option<OwnedSemaphorePermit>>,
    calls: AtomicUsize,
    is_proved: AtomicBool,
    proved: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stranger").field("is_proved", &self.0.is_proved).finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns whether the peer has proved its identity. The connection then releases its place.
    fn has_proved(&self) -> bool {
        if !self.is_proved.load(Ordering::Relaxed) {
            if !(self.proved)() {
                return false;
            }
            self.is_proved.store(true, Ordering::Relaxed);
            // The lock is safe after a panic, because no holder leaves a partial change.
            self.connection.lock().take();
        }
        true
    }
}

impl Stranger {
    /// Begins a call. Returns `None` once the peer has proved its identity, because the limits then no longer apply.
    pub(crate) fn call(&self) -> Result<Option<Guest>, RpcError> {
        let inner = &self.0;
        if inner.has_proved() {
            return Ok(None);
        }
        let guest = Guest { stranger: self.clone(), held: Mutex::new(Held::default()) };
        if inner.calls.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS {
            return Err(RpcError::new(
                Code::Permission,
                format!("a node that is not registered may have {MAX_CALLS} calls in progress"),
            ));
        }
        Ok(Some(guest))
    }
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    permits: Option<OwnedSemaphorePermit>,
}

/// The call of a stranger, until dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    stranger: Stranger,
    held: Mutex<Held>,
}

impl Guest {
    /// Reserves memory for a part of the request, until the call ends.
    fn take(&self, length: usize) -> Result<(), io::Error> {
        let full = |text: &str| Err(io::Error::other(text.to_owned()));
        let mut held = self.held.lock();
        held.bytes += length;
        if held.bytes > MAX_MESSAGE_BYTES {
            return full("the request of a node that is not registered is too large");
        }
        let count = u32::try_from(length).map_err(io::Error::other)?;
        match self.stranger.0.room.0.bytes.clone().try_acquire_many_owned(count) {
            Ok(permit) => {
                match &mut held.permits {
                    Some(permits) => permits.merge(permit),
                    none => *none = Some(permit),
                }
                Ok(())
            }
            Err(_) => full("this server has no room for more requests of nodes that are not registered"),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stranger.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request body whose bytes are counted while it is read.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) body: Incoming,
    pub(crate) guest: Option<Arc<Guest>>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(frame) = frame else { return Poll::Ready(None) };
        let frame = frame?;
        if let (Some(guest), Some(data)) = (&self.guest, frame.data_ref()) {
            guest.take(data.len())?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body whose drop ends its call.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) body: tonic::body::Body,
    pub(crate) _guest: Arc<Guest>,
}

impl Body for Answered {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_share_what_there_is() {
        let room = Strangers::new(2, 100);
        let (one, two) = (room.enter(|| false).unwrap(), room.enter(|| false).unwrap());
        assert!(room.enter(|| false).is_err());
        let (first, second) = (one.call().unwrap().unwrap(), two.call().unwrap().unwrap());
        first.take(60).unwrap();
        assert!(second.take(60).is_err(), "the other one has it");
        drop(first);
        second.take(40).unwrap();
        drop((one, second, two));
        assert!(room.enter(|| false).is_ok());
        assert_eq!(room.0.bytes.available_permits(), 100);
    }

    #[test]
    fn a_stranger_has_few_calls_until_it_has_proved_itself() {
        let known = Arc::new(AtomicBool::new(false));
        let asked = known.clone();
        let room = Strangers::new(1, 1 << 30);
        let stranger = room.enter(move || asked.load(Ordering::Relaxed)).unwrap();
        let mut guests: Vec<Guest> = (0..MAX_CALLS).map(|_| stranger.call().unwrap().unwrap()).collect();
        assert_eq!(stranger.call().unwrap_err().code, Code::Permission);
        guests.pop();
        let guest = stranger.call().unwrap().unwrap();
        assert!(guest.take(MAX_MESSAGE_BYTES + 1).is_err());
        known.store(true, Ordering::Relaxed);
        assert!(stranger.call().unwrap().is_none());
        assert!(room.enter(|| false).is_ok(), "its place is free");
        known.store(false, Ordering::Relaxed);
        assert!(stranger.call().unwrap().is_none(), "what was proved stays");
    }

    #[test]
    fn a_place_is_free_once_its_peer_has_proved_its_identity() {
        let strangers = Strangers::new(1, MAX_BYTES);
        let proof = Arc::new(AtomicBool::new(false));
        let shown = Arc::clone(&proof);
        let first = strangers.enter(move || shown.load(Ordering::Relaxed)).unwrap();
        assert!(strangers.enter(|| false).is_err());
        // The peer makes no further call.
        proof.store(true, Ordering::Relaxed);
        let second = strangers.enter(|| false).unwrap();
        assert!(strangers.enter(|| false).is_err());
        drop(second);
        strangers.enter(|| false).unwrap();
        assert!(first.call().unwrap().is_none());
    }
}
