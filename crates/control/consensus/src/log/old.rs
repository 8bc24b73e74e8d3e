//! The older form of the log, a redb file, and its conversion.
//!
//! A program that supports only the older form must not treat a directory with segments as empty. So the
//! name of the older file stays in use: the file holds a sentence, which is not a database.

use super::files::Directory;
use super::record::{Fact, Record};
use super::store::Store;
use crate::raft::{Entry, LogId, Vote};
use crate::{BoxError, ClusterId, ServerId};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The name of the older file.
pub(super) const FILE: &str = "raft.redb";
const MARK: &[u8] = b"caravan: the log of this server is in the files *.log of this directory\n";
/// The first bytes of a redb file.
const DATABASE: &[u8] = b"redb";

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Bytes of entries in one transaction of a conversion.
const CHUNK: usize = 1024 * 1024;

/// The content of the older file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// A log of the older form.
    Database,
    /// The sentence: the log is in segments.
    Mark,
}

/// Returns the kind of content of the older file.
pub(super) fn find(dir: &Path) -> Result<Found, BoxError> {
    let mut start = Vec::new();
    match File::open(dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        opened => opened?.take(MARK.len() as u64).read_to_end(&mut start)?,
    };
    match &*start {
        MARK => Ok(Found::Mark),
        _ if start.starts_with(DATABASE) => Ok(Found::Database),
        _ => {
            let text = format!("{FILE} is neither a log nor the note that replaces it");
            Err(io::Error::new(io::ErrorKind::InvalidData, text).into())
        }
    }
}

/// Writes the sentence in place of the older file.
pub(super) fn mark(dir: &Path, handle: &File) -> io::Result<()> {
    let new = dir.join("raft.redb.new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(MARK)?;
    file.sync_all()?;
    fs::rename(new, dir.join(FILE))?;
    handle.sync_all()
}

/// Writes the content of the older file as segments, and then replaces the file. A conversion that ends
/// early has no effect: the next conversion begins again.
pub(super) fn convert(dir: &Path, handle: &File) -> Result<(), BoxError> {
    for row in fs::read_dir(dir)? {
        let path = row?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path)?;
        }
    }
    let file = OpenOptions::new().read(true).write(true).open(dir.join(FILE))?;
    let db = Database::builder().create_file(file)?;
    let transaction = db.begin_read()?;
    let (log, meta) = (transaction.open_table(LOG)?, transaction.open_table(META)?);
    let mut store = Store::open(Box::new(Directory::open(dir)?))?;
    let facts = [
        read::<Vote>(&meta, "vote")?.map(Fact::Vote),
        read::<LogId>(&meta, "purged")?.map(Fact::Purged),
        read::<ClusterId>(&meta, "cluster")?.map(Fact::Cluster),
        read::<u64>(&meta, "server")?.map(|number| Fact::Server(ServerId(number))),
    ];
    store.write(facts.into_iter().flatten().map(Record::Fact))?;
    let mut chunk: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    for row in log.iter()? {
        let row = row?;
        bytes += row.1.value().len();
        chunk.push(rmp_serde::from_slice(row.1.value())?);
        if bytes >= CHUNK {
            store.write(chunk.iter().map(Record::Entry))?;
            chunk.clear();
            bytes = 0;
        }
    }
    let committed = read::<LogId>(&meta, "committed")?.map(|id| Record::Fact(Fact::Committed(id)));
    store.write(chunk.iter().map(Record::Entry).chain(committed))?;
    mark(dir, handle)?;
    tracing::info!(directory = %dir.display(), "the replicated log was converted to segments");
    Ok(())
}

fn read<T: DeserializeOwned>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<T>, BoxError> {
    Ok(meta.get(key)?.map(|bytes| rmp_serde::from_slice(bytes.value())).transpose()?)
}

#[cfg(test)]
mod tests;
