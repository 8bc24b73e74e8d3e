//! The state machine: the caller's trait, and its adapter to openraft.

use crate::BoxError;
use crate::blocking::blocking;
use crate::log::LogStore;
use crate::raft::{LogId, Output, RaftSnapshot, SnapshotMeta, StoredMembership, TypeConfig};
use crate::snapshot::{Inbox, SnapshotData, SnapshotStore};
use futures::{Stream, StreamExt};
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// A function that writes an encoded state without its first bytes, and returns these bytes.
type Encode = Box<dyn FnOnce(&mut dyn Write) -> Result<Vec<u8>, BoxError> + Send>;

/// A captured state that is encoded later, on another thread.
pub struct Capture {
    /// The number of bytes that `encode` returns.
    head: usize,
    encode: Encode,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("head", &self.head).finish_non_exhaustive()
    }
}

impl Capture {
    /// Captures a state that is encoded in memory.
    pub fn whole(encode: impl FnOnce() -> Result<Vec<u8>, BoxError> + Send + 'static) -> Self {
        let encode: Encode = Box::new(|out| {
            out.write_all(&encode()?)?;
            Ok(Vec::new())
        });
        Self { head: 0, encode }
    }

    /// Captures a state that is encoded in pieces, so that the whole encoding is never in memory. `encode`
    /// writes all but the first `head` bytes and returns these: they may depend on the rest, such as its
    /// length.
    pub fn pieces(
        head: usize,
        encode: impl FnOnce(&mut dyn Write) -> Result<Vec<u8>, BoxError> + Send + 'static,
    ) -> Self {
        Self { head, encode: Box::new(encode) }
    }

    /// Returns the number of first bytes, which `encode` returns last.
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    /// Writes the state without its first bytes, and returns these bytes.
    pub(crate) fn encode(self, out: &mut dyn Write) -> io::Result<Vec<u8>> {
        let head = (self.encode)(out).map_err(io::Error::other)?;
        match head.len() == self.head {
            true => Ok(head),
            false => Err(io::Error::other("the head of the encoded state has another length than announced")),
        }
    }
}

/// The decoded form of a command, from its proposer. It saves decoding the bytes.
pub type Meaning = Box<dyn Any + Send>;

/// A state machine, which interprets commands. All calls come from one task, in log order.
pub trait StateMachine: Send + 'static {
    /// Applies the command at `index` and returns the response. `index` grows with each call, with gaps. The result
    /// must depend only on the state and the arguments: after a restart, and on other servers, the same commands are
    /// applied again. A panic stops the log, as a failed disk does.
    ///
    /// `meaning` is set if the command was proposed on this server since its start. It is the value that the proposer
    /// encoded, and must be equivalent to the bytes.
    ///
    /// # Errors
    /// If this server cannot apply a command that other servers may apply, for example a command of a newer
    /// version. The error stops the log, because a server that skips a command differs from the others for
    /// ever.
    fn apply(&mut self, index: u64, command: &[u8], meaning: Option<Meaning>) -> Result<Vec<u8>, BoxError>;

    /// Captures the current state, which must be cheap. The returned closure encodes it.
    fn snapshot(&self) -> Capture;

    /// Replaces the state by a state that [`Self::snapshot`] encoded.
    ///
    /// # Errors
    /// If the bytes cannot be decoded; the log then does not start.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), BoxError>;
}

/// A caller's state machine with the positions that openraft needs.
pub(crate) struct Machine {
    // The mutex only implements `Sync`, which openraft requires; never contended. `None` after a failed restore.
    inner: Mutex<Option<Box<dyn StateMachine>>>,
    log: LogStore,
    applied: Option<LogId>,
    /// Index of the last applied entry, for readers.
    applied_index: Arc<AtomicU64>,
    membership: StoredMembership,
    snapshots: SnapshotStore,
    growth: Growth,
    /// Whether a caller requested the next snapshot, which is therefore not deferred.
    requested: Arc<AtomicBool>,
}

/// The number of times that a snapshot is deferred. Example: if a snapshot is due after each 100 entries, it is
/// deferred up to 700 entries, and written after 800. The limit bounds the entries that a restart applies.
pub(crate) const MAX_DEFERRED: u64 = 7;

/// The size of the commands since the newest snapshot.
struct Growth {
    /// The bytes after which a snapshot is due.
    after: u64,
    /// The bytes of the commands since the newest snapshot.
    bytes: u64,
    /// The bytes at which the next request for a snapshot is due.
    mark: u64,
    /// The last entry that the newest snapshot covers, or that the snapshot in progress covers.
    covered: u64,
    /// The number of entries up to which a snapshot is deferred.
    max_entries: u64,
    due: Arc<Notify>,
}

impl Growth {
    fn add(&mut self, command: &[u8]) {
        self.bytes += command.len() as u64;
        if self.bytes >= self.mark {
            // The request is repeated if no snapshot follows, for example because one was being written.
            self.mark = self.bytes + self.after;
            self.due.notify_one();
        }
    }

    /// Restarts the count after a snapshot that covers an entry. `newest` is the size of the newest
    /// snapshot.
    fn reset(&mut self, newest: u64, covered: Option<LogId>) {
        (self.bytes, self.mark) = (0, self.after.max(newest));
        self.covered = covered.map_or(0, |id| id.index);
    }

    /// Returns whether a snapshot at this entry is deferred: the commands since the newest one are smaller
    /// than its size.
    ///
    /// The cost of a snapshot grows with the state. Example: 8,192 entries of 1 KiB are 8 MiB, and would
    /// write a state of 400 MiB.
    fn defers(&self, newest: u64, applied: Option<LogId>) -> bool {
        let entries = applied.map_or(0, |id| id.index).saturating_sub(self.covered);
        self.bytes < newest && entries <= self.max_entries
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("applied", &self.applied).finish_non_exhaustive()
    }
}

impl Machine {
    /// Creates a machine that requests a snapshot after a number of bytes of commands. It defers a snapshot
    /// that is due after a number of small entries.
    pub(crate) fn new(
        inner: Box<dyn StateMachine>,
        log: LogStore,
        snapshots: SnapshotStore,
        (after, after_entries): (u64, u64),
    ) -> Self {
        let membership = StoredMembership::default();
        let applied_index = Arc::default();
        let max_entries = after_entries.saturating_mul(MAX_DEFERRED);
        let mut growth = Growth { after, bytes: 0, mark: 0, covered: 0, max_entries, due: Arc::default() };
        growth.reset(snapshots.newest_bytes(), snapshots.newest().and_then(|newest| newest.meta.last_log_id));
        Self {
            inner: Mutex::new(Some(inner)),
            log,
            applied: None,
            applied_index,
            membership,
            snapshots,
            growth,
            requested: Arc::default(),
        }
    }

    /// Returns the notification that the commands since the newest snapshot are too large.
    pub(crate) fn snapshot_due(&self) -> Arc<Notify> {
        Arc::clone(&self.growth.due)
    }

    /// Returns the flag that prevents the deferral of the next snapshot.
    pub(crate) fn snapshot_requested(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Returns the index of the last applied entry, which is updated before a proposer gets its response.
    pub(crate) fn applied_index(&self) -> Arc<AtomicU64> {
        self.applied_index.clone()
    }

    fn set_applied(&mut self, applied: Option<LogId>) {
        self.applied = applied;
        self.applied_index.store(applied.map_or(0, |id| id.index), Ordering::SeqCst);
    }

    /// Returns the part that receives snapshots.
    pub(crate) fn inbox(&self) -> Inbox {
        self.snapshots.inbox()
    }

    fn inner(&mut self) -> io::Result<&mut dyn StateMachine> {
        match self.inner.get_mut() {
            Some(inner) => Ok(&mut **inner),
            None => Err(io::Error::other("the state was not restored")),
        }
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let index = entry.log_id.index;
            self.log.flushed(index).await?;
            let output = match entry.payload {
                EntryPayload::Blank => Vec::new(),
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Vec::new()
                }
                EntryPayload::Normal(command) => {
                    self.growth.add(&command.bytes);
                    let inner = self.inner()?;
                    // A panic may leave the state half changed, but nothing is applied or captured after the error.
                    let meaning = command.take_meaning();
                    catch_unwind(AssertUnwindSafe(|| inner.apply(index, &command.bytes, meaning)))
                        .map_err(|_| {
                            io::Error::other(format!("applying the command at index {index} panicked"))
                        })?
                        .map_err(io::Error::other)?
                }
            };
            self.set_applied(Some(entry.log_id));
            if let Some(responder) = responder {
                responder.send(Output(output));
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Builder> {
        let is_requested = self.requested.swap(false, Ordering::SeqCst);
        if !force && !is_requested && self.growth.defers(self.snapshots.newest_bytes(), self.applied) {
            return None;
        }
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let meta = SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() };
        self.growth.reset(self.snapshots.newest_bytes(), self.applied);
        let capture = self.inner.get_mut().as_ref().map(|inner| inner.snapshot());
        Builder { capture: Mutex::new(capture), meta, snapshots: self.snapshots.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> io::Result<()> {
        // The snapshot is durable before a reader sees the state: after a restart, a reader must not see an
        // older state. At start, the snapshot is the newest one of this server and need not be written
        // again.
        let data = if self.snapshots.newest().is_some_and(|newest| newest.meta == *meta) {
            snapshot
        } else {
            let (store, meta) = (self.snapshots.clone(), meta.clone());
            blocking(move || store.adopt(meta, snapshot)).await??.snapshot
        };
        let mut inner =
            self.inner.get_mut().take().ok_or_else(|| io::Error::other("the state was not restored"))?;
        // Decoding a large state takes seconds.
        let inner = blocking(move || -> io::Result<_> {
            inner.restore(&data.load()?).map_err(io::Error::other)?;
            Ok(inner)
        });
        *self.inner.get_mut() = Some(inner.await??);
        self.growth.reset(self.snapshots.newest_bytes(), meta.last_log_id);
        self.set_applied(meta.last_log_id);
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        Ok(self.snapshots.newest())
    }
}

/// The part that writes one captured state to a snapshot.
pub(crate) struct Builder {
    capture: Mutex<Option<Capture>>,
    meta: SnapshotMeta,
    snapshots: SnapshotStore,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        let capture = self.capture.get_mut().take();
        let capture = capture.ok_or_else(|| io::Error::other("this snapshot was built before"))?;
        let (store, meta) = (self.snapshots.clone(), self.meta.clone());
        blocking(move || store.write(meta, capture)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use openraft::testing::log_id;

    fn growth(after: u64, due: &Arc<Notify>) -> Growth {
        Growth { after, bytes: 0, mark: after, covered: 0, max_entries: 70, due: Arc::clone(due) }
    }

    #[test]
    fn a_snapshot_is_due_after_a_number_of_bytes_and_not_for_less_than_the_newest_one() {
        let due = Arc::new(Notify::new());
        let mut growth = growth(10, &due);
        let add = |growth: &mut Growth, bytes: usize| {
            growth.add(&vec![0; bytes]);
            due.notified().now_or_never().is_some()
        };
        assert!(!add(&mut growth, 9) && add(&mut growth, 1));
        // The next request follows only after as many bytes again.
        assert!(!add(&mut growth, 9) && add(&mut growth, 1));
        growth.reset(25, None);
        assert!(!add(&mut growth, 24) && add(&mut growth, 1));
        growth.reset(3, None);
        assert!(add(&mut growth, 10));
    }

    #[test]
    fn a_snapshot_for_little_is_deferred_for_some_entries() {
        let entry = |index| Some(log_id::<TypeConfig>(1, 1, index));
        let mut growth = growth(1000, &Arc::default());
        assert!(!growth.defers(0, entry(10)), "there is no snapshot");
        growth.reset(0, entry(20));
        growth.add(&[0; 99]);
        assert!(growth.defers(100, entry(30)) && growth.defers(100, entry(90)));
        assert!(!growth.defers(100, entry(91)), "too many entries");
        growth.add(&[0; 1]);
        assert!(!growth.defers(100, entry(30)), "the size of the snapshot");
    }
}
