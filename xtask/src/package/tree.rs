//! The files of an artifact, and their archive.

use flate2::{Compression, GzBuilder};
use std::collections::BTreeMap;
use std::io::Write as _;
use tar::{Builder, EntryType, Header};

/// Files and directories by their path, without a leading slash.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<String, Entry>);

pub(super) struct Entry {
    pub(super) mode: u32,
    /// The content of a file; `None` for a directory.
    pub(super) content: Option<Vec<u8>>,
}

impl Tree {
    /// Adds a file, and the directories above it.
    pub(super) fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        self.above(path);
        self.0.insert(path.to_owned(), Entry { mode, content: Some(content) });
    }

    /// Adds a directory or sets its mode.
    pub(super) fn directory(&mut self, path: &str, mode: u32) {
        self.above(path);
        self.0.insert(path.to_owned(), Entry { mode, content: None });
    }

    /// Adds all entries of another tree, each path with a prefix.
    pub(super) fn add(&mut self, other: &Self, prefix: &str) {
        for (path, entry) in &other.0 {
            if let Some(content) = &entry.content {
                self.file(&format!("{prefix}{path}"), entry.mode, content.clone());
            }
        }
    }

    fn above(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry { mode: 0o755, content: None });
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Returns the sum of the sizes of all files.
    pub(super) fn size(&self) -> usize {
        self.0.values().filter_map(|entry| entry.content.as_ref()).map(Vec::len).sum()
    }

    /// Returns the tree as a tar archive. Each path begins with `prefix`.
    pub(super) fn tar(&self, prefix: &str, epoch: u64) -> std::io::Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(epoch);
            header.set_uid(0);
            header.set_gid(0);
            header.set_username("root")?;
            header.set_groupname("root")?;
            let content = entry.content.as_deref().unwrap_or_default();
            header.set_size(content.len() as u64);
            let slash = if entry.content.is_some() { "" } else { "/" };
            header.set_entry_type(if slash.is_empty() { EntryType::Regular } else { EntryType::Directory });
            archive.append_data(&mut header, format!("{prefix}{path}{slash}"), content)?;
        }
        archive.into_inner()
    }

    /// Returns the tree as a compressed tar archive.
    pub(super) fn tar_gz(&self, epoch: u64) -> std::io::Result<Vec<u8>> {
        gzip(&self.tar("", epoch)?)
    }
}

/// Compresses bytes without a name and a time.
pub(super) fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}
