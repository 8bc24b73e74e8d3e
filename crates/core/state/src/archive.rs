//! A state snapshot for operators: a compressed archive of the state and its metadata, with checksums of both.

use crate::root::Root;
use crate::snapshot;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read as _};

/// The metadata of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ArchiveMeta {
    /// Version of the archive's format.
    pub version: u32,
    /// `<term>-<index>-<milliseconds>`.
    #[serde(rename = "ID")]
    pub id: String,
    /// Index of the state.
    pub index: u64,
    /// Term of the leader that made it.
    pub term: u64,
    /// Time of creation, in milliseconds since the epoch.
    pub created: i64,
}

/// Why bytes are not a valid archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bytes are not compressed.
    #[error("failed to decompress snapshot: gzip: invalid header")]
    Compression,
    /// The archive is truncated or damaged.
    #[error("failed to read the snapshot archive")]
    Read(#[source] io::Error),
    /// A file of the archive is missing.
    #[error("the snapshot archive has no {0}")]
    Missing(&'static str),
    /// The checksum of a file does not match.
    #[error("the snapshot archive is damaged: the checksum of {0} does not match")]
    Checksum(&'static str),
    /// The metadata cannot be parsed.
    #[error("the snapshot archive does not say what it holds")]
    Meta(#[source] serde_json::Error),
}

const META: &str = "meta.json";
const STATE: &str = "state.bin";
const SUMS: &str = "SHA256SUMS";
/// Maximum size of an unpacked state, so that a small file cannot fill the memory.
const LARGEST: u64 = 8 << 30;

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Packs an encoded state.
///
/// # Errors
/// Never in memory; the signature follows from the `Write` trait.
pub fn pack(meta: &ArchiveMeta, state: &[u8]) -> io::Result<Vec<u8>> {
    let about = serde_json::to_vec(meta)?;
    let sums = format!("{}  {META}\n{}  {STATE}\n", sum(&about), sum(state));
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, bytes) in [(META, about.as_slice()), (STATE, state), (SUMS, sums.as_bytes())] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(meta.created / 1000).unwrap_or(0));
        header.set_cksum();
        archive.append_data(&mut header, name, bytes)?;
    }
    archive.into_inner()?.finish()
}

/// Unpacks an archive: its metadata, and the encoded state.
///
/// # Errors
/// If the bytes are not an archive, or it is damaged.
pub fn unpack(bytes: &[u8]) -> Result<(ArchiveMeta, Vec<u8>), ArchiveError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(ArchiveError::Compression);
    }
    let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(LARGEST));
    let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for entry in archive.entries().map_err(ArchiveError::Read)? {
        let mut entry = entry.map_err(ArchiveError::Read)?;
        let name = entry.path().map_err(ArchiveError::Read)?.display().to_string();
        if ![META, STATE, SUMS].contains(&name.as_str()) {
            continue;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(ArchiveError::Read)?;
        parts.insert(name, content);
    }
    let mut take = |name: &'static str| parts.remove(name).ok_or(ArchiveError::Missing(name));
    let (about, state, sums) = (take(META)?, take(STATE)?, take(SUMS)?);
    let sums = String::from_utf8_lossy(&sums);
    for (name, bytes) in [(META, &about), (STATE, &state)] {
        if !sums.lines().any(|line| line == format!("{}  {name}", sum(bytes))) {
            return Err(ArchiveError::Checksum(name));
        }
    }
    Ok((serde_json::from_slice(&about).map_err(ArchiveError::Meta)?, state))
}

/// Returns the number of rows of each table, and their bytes in a snapshot.
pub fn table_sizes(root: &Root) -> Vec<(&'static str, u64, u64)> {
    snapshot::sizes(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let meta = ArchiveMeta { version: 1, id: "2-7-0".into(), index: 7, term: 2, created: 5000 };
        let state = snapshot::encode(&Root::default());
        let packed = pack(&meta, &state).unwrap();
        assert_eq!(unpack(&packed).unwrap(), (meta, state));
        assert!(
            table_sizes(&Root::default()).iter().any(|(name, rows, _)| *name == "node_pools" && *rows == 2)
        );
    }

    #[test]
    fn an_invalid_archive_is_reported() {
        assert_eq!(
            unpack(b"not an archive").unwrap_err().to_string(),
            "failed to decompress snapshot: gzip: invalid header"
        );
        let mut packed = pack(&ArchiveMeta::default(), b"state").unwrap();
        packed.truncate(packed.len() / 2);
        assert!(unpack(&packed).is_err());
    }

    #[test]
    fn a_changed_state_is_noticed() {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, bytes) in [(META, "{}"), (STATE, "x"), (SUMS, "0  meta.json\n")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            archive.append_data(&mut header, name, bytes.as_bytes()).unwrap();
        }
        let packed = archive.into_inner().unwrap().finish().unwrap();
        assert!(matches!(unpack(&packed), Err(ArchiveError::Checksum(META))));
    }
}
