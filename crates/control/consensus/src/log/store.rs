//! The log in segments: reading at the start, transactions, and removal of unneeded segments.

use super::files::{SegmentFile, Segments};
use super::record::{self, Fact, Malformed, Read, Record};
use super::segment::{self, HEADER, Header, SEGMENT};
use crate::raft::{Entry, LogId, Vote};
use crate::{BoxError, Identity};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// The position of the encoding of an entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u64,
    offset: u64,
    length: u32,
    crc: u32,
    term: u64,
}

/// The facts about the log, the places of its entries, and its files.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) identity: Identity,
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) committed: Option<LogId>,
    /// The index of the first place.
    first: u64,
    places: VecDeque<Place>,
    files: BTreeMap<u64, Held>,
    /// Whether all frames since the log was created were read.
    is_whole: bool,
}

/// A segment that is in use.
#[derive(Debug)]
struct Held {
    file: Arc<dyn SegmentFile>,
    /// The highest index of an entry that was written to the segment.
    highest: Option<u64>,
}

impl Index {
    fn fact(&mut self, fact: Fact) {
        match fact {
            Fact::Vote(vote) => self.vote = Some(vote),
            Fact::TruncatedFrom(index) => self.truncate(index),
            Fact::Purged(upto) => {
                let removed = (upto.index + 1).saturating_sub(self.first);
                self.places.drain(..self.count(removed));
                self.first = self.first.max(upto.index + 1);
                self.purged = self.purged.max(Some(upto));
            }
            Fact::Committed(id) => self.committed = Some(id),
            // Otherwise the entries were read from those segments.
            Fact::Follows(next) if self.places.is_empty() => self.first = self.first.max(next),
            Fact::Follows(_) => {}
            Fact::Cluster(cluster) => self.identity.cluster = Some(cluster),
            Fact::Server(number) => self.identity.number = Some(number),
        }
    }

    fn truncate(&mut self, index: u64) {
        let kept = self.count(index.saturating_sub(self.first));
        self.places.truncate(kept);
        if self.places.is_empty() {
            // The removed entries may have begun in segments that are gone. Example: one segment has entry 32, the next one 33
            // and 34, and all are replaced from 32 on. The purge of entry 32 removes only the first of these segments.
            self.first = self.first.min(index.max(self.needed()));
        }
    }

    /// Returns `number` as a count of places, limited to all places.
    fn count(&self, number: u64) -> usize {
        usize::try_from(number).unwrap_or(usize::MAX).min(self.places.len())
    }

    fn entry(&mut self, index: u64, place: Place) -> Result<(), Malformed> {
        let next = self.next();
        if next == 0 {
            self.first = index;
        } else if index != next {
            return Err(Malformed::Gap { index, last: next.saturating_sub(1) });
        }
        self.places.push_back(place);
        if let Some(held) = self.files.get_mut(&place.segment) {
            held.highest = held.highest.max(Some(index));
        }
        Ok(())
    }

    /// Checks before a write that all entries follow each other: a log with a gap could not be opened
    /// again.
    fn accepts(&self, changes: &[Change]) -> Result<(), Malformed> {
        let mut next = self.next();
        for change in changes {
            match change {
                // A new log may begin with any index.
                Change::Entry(id, _) if id.index == next || next == 0 => next = id.index + 1,
                Change::Entry(id, _) => {
                    return Err(Malformed::Gap { index: id.index, last: next.saturating_sub(1) });
                }
                Change::Fact(Fact::TruncatedFrom(index)) => next = next.min(*index),
                Change::Fact(Fact::Purged(upto)) => next = next.max(upto.index + 1),
                Change::Fact(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the index after the last entry.
    pub(super) fn next(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    /// Returns the index after the last removed entry.
    fn needed(&self) -> u64 {
        self.purged.map_or(0, |id| id.index + 1)
    }

    /// Returns the facts that a new segment begins with, so that older ones can be removed.
    fn facts(&self) -> Vec<Fact> {
        let mut facts: Vec<Fact> = Fact::identity(self.identity).collect();
        facts.extend(self.vote.map(Fact::Vote));
        facts.extend(self.purged.map(Fact::Purged));
        facts.extend(self.committed.map(Fact::Committed));
        facts.extend((self.next() > 0).then_some(Fact::Follows(self.next())));
        facts
    }

    /// Checks that no entry is missing after the removed entries, and that terms never decrease. A smaller
    /// term would mean an entry that a later leader removed.
    fn check(&self) -> Result<(), Malformed> {
        let (needed, next) = (self.needed(), self.next());
        let begins = self.first == needed || self.purged.is_none() && self.is_whole;
        if !begins || self.committed.is_some_and(|id| id.index >= next) {
            return Err(Malformed::Missing { needed, next });
        }
        let mut highest = self.purged.map_or(0, |id| id.committed_leader_id().term);
        for (index, place) in (self.first..).zip(&self.places) {
            if place.term < highest {
                return Err(Malformed::Term { index, term: place.term });
            }
            highest = place.term;
        }
        Ok(())
    }
}

/// The reader of entries; clones share the index with the writer.
#[derive(Clone, Debug)]
pub(super) struct Reader(Arc<Mutex<Index>>);

impl Reader {
    /// Returns the entries from `start` to before `end`, up to `limit` bytes.
    pub(super) fn read(&self, start: u64, end: u64, limit: usize) -> Result<Vec<Entry>, BoxError> {
        let mut found = Vec::new();
        {
            let index = self.0.lock();
            let (from, to) = (start.max(index.first), end.min(index.next()));
            let mut bytes = 0;
            for at in from..to {
                let place = index.places[index.count(at - index.first)];
                let Some(held) = index.files.get(&place.segment) else { break };
                found.push((at, place, Arc::clone(&held.file)));
                bytes += place.length as usize;
                if bytes >= limit {
                    break;
                }
            }
        }
        super::take_bytes(found.iter().map(|(at, place, file)| entry(*at, *place, &**file)), limit)
    }

    /// Returns the last entry.
    pub(super) fn last(&self) -> Result<Option<Entry>, BoxError> {
        let next = self.0.lock().next();
        Ok(self.read(next.saturating_sub(1), next, 1)?.pop())
    }

    /// Returns a value that `read` takes from the index.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Index) -> T) -> T {
        read(&self.0.lock())
    }
}

fn entry(index: u64, place: Place, file: &dyn SegmentFile) -> Result<Entry, BoxError> {
    let mut bytes = vec![0; place.length as usize];
    file.read_at(place.offset, &mut bytes)?;
    if crc32fast::hash(&bytes) != place.crc {
        return Err(Malformed::Entry { index }.into());
    }
    Ok(record::value(&bytes)?)
}

/// The log, as its only writer holds it.
#[derive(Debug)]
pub(super) struct Store {
    segments: Box<dyn Segments>,
    index: Arc<Mutex<Index>>,
    /// The segment that receives transactions; `None` from the start until the first transaction.
    active: Option<Active>,
    /// The end of the newest segment that existed before the start.
    torn: Option<Torn>,
    /// Segments that were removed, and that exist again after a power loss.
    stale: Vec<(u64, Arc<dyn SegmentFile>)>,
    /// The number of the next frame.
    number: u64,
    /// The id of the next segment.
    next_id: u64,
}

#[derive(Debug)]
struct Active {
    id: u64,
    salt: u64,
    file: Arc<dyn SegmentFile>,
    offset: u64,
    size: u64,
}

#[derive(Debug)]
struct Torn {
    file: Arc<dyn SegmentFile>,
    end: u64,
}

impl Store {
    /// Reads all segments, and flushes the newest one: the process before may have ended between a write and
    /// its flush.
    pub(super) fn open(segments: Box<dyn Segments>) -> Result<Self, BoxError> {
        let ids = segments.list()?;
        let newest = ids.last().copied();
        let mut store = Self {
            segments,
            index: Arc::default(),
            active: None,
            torn: None,
            stale: Vec::new(),
            number: 0,
            next_id: newest.map_or(0, |id| id + 1),
        };
        let mut index = Index::default();
        for id in ids {
            let file = store.segments.open(id)?;
            let size = usize::try_from(file.size()?)?;
            let mut bytes = vec![0; size];
            file.read_at(0, &mut bytes)?;
            store.replay(&mut index, id, file, &bytes, Some(id) == newest).map_err(|malformed| {
                io::Error::new(io::ErrorKind::InvalidData, format!("segment {id}: {malformed}"))
            })?;
        }
        index.check()?;
        if let Some(torn) = &store.torn {
            torn.file.sync()?;
        }
        store.index = Arc::new(Mutex::new(index));
        Ok(store)
    }

    fn replay(
        &mut self,
        index: &mut Index,
        id: u64,
        file: Arc<dyn SegmentFile>,
        bytes: &[u8],
        is_newest: bool,
    ) -> Result<(), Malformed> {
        let header = Header::decode(bytes)?;
        if header.id != id {
            return Err(Malformed::Name { id: header.id });
        }
        if header.first != self.number && !index.files.is_empty() {
            // Each segment begins with all facts.
            let files = std::mem::take(index).files;
            self.stale.extend(files.into_iter().map(|(id, held)| (id, held.file)));
        }
        index.is_whole |= header.first == 0;
        self.number = header.first;
        index.files.insert(id, Held { file: Arc::clone(&file), highest: None });
        let mut offset = HEADER;
        while let Some(frame) = segment::frame_at(bytes, offset, header.salt, self.number) {
            let body = &bytes[frame.body.clone()];
            for read in record::decode(body) {
                match read? {
                    Read::Fact(fact) => index.fact(fact),
                    Read::Entry { index: at, term, bytes } => {
                        let place = place(id, frame.body.start as u64, body, bytes, term)?;
                        index.entry(at, place)?;
                    }
                }
            }
            offset = segment::after(&frame);
            self.number += 1;
        }
        if segment::has_later_frame(bytes, offset, header.salt, self.number) {
            return Err(Malformed::Damaged { offset });
        }
        if is_newest {
            self.torn = Some(Torn { file, end: offset as u64 });
        }
        Ok(())
    }

    /// Returns whether there are no segments.
    pub(super) fn is_empty(&self) -> bool {
        self.index.lock().files.is_empty()
    }

    /// Creates the first segment of a new log.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.is_empty() { self.reserve(0) } else { Ok(()) }
    }

    pub(super) fn reader(&self) -> Reader {
        Reader(Arc::clone(&self.index))
    }

    /// Writes a transaction. It is durable once this returns.
    pub(super) fn write<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) -> io::Result<()> {
        let mut frame = segment::begin_frame(256);
        let mut changes = Vec::new();
        for record in records {
            let bytes = record::encode(record, &mut frame)?;
            changes.push(match record {
                Record::Entry(entry) => Change::Entry(entry.log_id, bytes),
                Record::Fact(fact) => Change::Fact(fact),
            });
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.index.lock().accepts(&changes)?;
        let size = segment::frame_size(frame.len() - segment::body_offset()) as u64;
        self.reserve(size)?;
        let Some(active) = &mut self.active else { return Err(io::ErrorKind::NotFound.into()) };
        segment::end_frame(&mut frame, active.salt, self.number)?;
        active.file.write_at(active.offset, &frame)?;
        active.file.sync()?;
        let mut index = self.index.lock();
        for change in changes {
            match change {
                Change::Fact(fact) => index.fact(fact),
                Change::Entry(entry, bytes) => {
                    let term = entry.committed_leader_id().term;
                    let place = place(active.id, active.offset, &frame, bytes, term)?;
                    index.entry(entry.index, place)?;
                }
            }
        }
        active.offset += size;
        self.number += 1;
        drop(index);
        self.remove_unneeded()
    }

    /// Begins another segment if the active one has no room for a frame of this size.
    fn reserve(&mut self, size: u64) -> io::Result<()> {
        if self.active.as_ref().is_some_and(|active| active.offset + size <= active.size) {
            return Ok(());
        }
        if let Some(torn) = self.torn.take() {
            // The remains of a write before a crash must never follow a frame.
            torn.file.set_size(torn.end)?;
        }
        let (id, salt) = (self.next_id, self.segments.salt());
        let mut start = Header { id, salt, first: self.number }.encode();
        let facts = self.index.lock().facts();
        if !facts.is_empty() {
            let mut frame = segment::begin_frame(256);
            for fact in facts {
                record::encode(Record::Fact(fact), &mut frame)?;
            }
            segment::end_frame(&mut frame, salt, self.number)?;
            start.append(&mut frame);
            self.number += 1;
        }
        let offset = start.len() as u64;
        let size = SEGMENT.max(offset + size);
        let file = self.segments.create(id, &start, size)?;
        self.next_id += 1;
        self.index.lock().files.insert(id, Held { file: Arc::clone(&file), highest: None });
        self.active = Some(Active { id, salt, file, offset, size });
        Ok(())
    }

    /// Removes the oldest segments as long as all their entries were removed from the log.
    fn remove_unneeded(&mut self) -> io::Result<()> {
        for (id, file) in self.stale.drain(..) {
            self.segments.remove(id, file)?;
        }
        let active = self.active.as_ref().map(|active| active.id);
        loop {
            let removed = {
                let mut index = self.index.lock();
                let purged = index.purged.map(|id| id.index);
                match index.files.first_entry() {
                    Some(oldest) if Some(*oldest.key()) != active && oldest.get().highest <= purged => {
                        Some(oldest.remove_entry())
                    }
                    _ => None,
                }
            };
            match removed {
                Some((id, held)) => self.segments.remove(id, held.file)?,
                None => return Ok(()),
            }
        }
    }
}

enum Change {
    Entry(LogId, std::ops::Range<usize>),
    Fact(Fact),
}

/// Returns the place of an entry whose encoding is in `bytes` of a buffer that begins at offset `base` of a
/// segment.
fn place(
    segment: u64,
    base: u64,
    buffer: &[u8],
    bytes: std::ops::Range<usize>,
    term: u64,
) -> Result<Place, Malformed> {
    let encoding = buffer.get(bytes.clone()).ok_or(Malformed::TooLong)?;
    let length = u32::try_from(encoding.len()).map_err(|_| Malformed::TooLong)?;
    Ok(Place { segment, offset: base + bytes.start as u64, length, crc: crc32fast::hash(encoding), term })
}

#[cfg(test)]
mod tests;
