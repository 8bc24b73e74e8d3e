//! A state snapshot for operators: a compressed archive of the state and its metadata, with checksums of both.

use crate::root::Root;
use crate::snapshot;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _, Write};

/// The metadata of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ArchiveMeta {
    /// The version of the archive's format.
    pub version: u32,
    /// The id of the archive: `<term>-<index>-<milliseconds>`.
    #[serde(rename = "ID")]
    pub id: String,
    /// The index of the state.
    pub index: u64,
    /// The term of the leader that wrote the archive.
    pub term: u64,
    /// The time of creation, in milliseconds since the epoch.
    pub created: i64,
}

/// The size of the key of a cluster in bytes.
pub const KEY: usize = 32;

/// The key of the cluster in an archive. It opens the root keys in the state, and so all secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum ArchiveKey {
    /// The bytes of the key, in plain.
    Clear([u8; KEY]),
    /// The key, sealed with a passphrase by the program that saved the archive.
    Sealed(Vec<u8>),
}

// The implementation is not derived, so that `Debug` hides the key.
impl fmt::Debug for ArchiveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear(_) => "Clear(…)",
            Self::Sealed(_) => "Sealed(…)",
        })
    }
}

/// The content of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The metadata, written before the state so that a reader can show it without decoding the state.
    pub meta: ArchiveMeta,
    /// The encoded state; the archive only contains the bytes and their digest.
    pub state: Vec<u8>,
    /// The key of the cluster, in archives that were saved with it.
    pub key: Option<ArchiveKey>,
}

/// The reason that bytes are not a valid archive.
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
    /// The key of the cluster has another size.
    #[error("the snapshot archive is damaged: the key of the cluster in it has the wrong size")]
    KeySize,
    /// The metadata cannot be parsed.
    #[error("the snapshot archive does not say what it holds")]
    Meta(#[source] serde_json::Error),
}

const META: &str = "meta.json";
const STATE: &str = "state.bin";
const SUMS: &str = "SHA256SUMS";
const CLEAR_KEY: &str = "cluster.key";
const SEALED_KEY: &str = "cluster.key.sealed";
/// The maximum size of a sealed key.
const MAX_SEALED_KEY: usize = 4096;
/// The maximum size of an unpacked state, so that a small file cannot fill the memory.
const LARGEST: u64 = 8 << 30;

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sum(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Packs an encoded state, with the key of the cluster if one is given.
///
/// # Errors
/// Never in memory; the signature follows from the `Write` trait.
pub fn pack(meta: &ArchiveMeta, state: &[u8], key: Option<&ArchiveKey>) -> io::Result<Vec<u8>> {
    pack_written(meta, state.len() as u64, |out| out.write_all(state), key)
}

/// Packs a state as [`pack`] does, without the whole encoded state in memory. The state is encoded twice, because its
/// length precedes it in the archive.
///
/// # Errors
/// Never in memory; the signature follows from the `Write` trait.
pub fn pack_root(meta: &ArchiveMeta, root: &Root, key: Option<&ArchiveKey>) -> io::Result<Vec<u8>> {
    let mut body = Counted { out: io::sink(), sum: None, length: 0 };
    let head = snapshot::encode_to(root, &mut body)?;
    let write = |out: &mut dyn Write| {
        out.write_all(&head)?;
        snapshot::encode_to(root, out).map(drop)
    };
    pack_written(meta, head.len() as u64 + body.length, write, key)
}

type Builder = tar::Builder<GzEncoder<Vec<u8>>>;

fn pack_written(
    meta: &ArchiveMeta,
    length: u64,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    key: Option<&ArchiveKey>,
) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut sums = String::new();
    let mut add = |archive: &mut Builder, name: &str, bytes: &[u8]| {
        sums.push_str(&format!("{}  {name}\n", sum(bytes)));
        archive.append_data(&mut header(meta, bytes.len() as u64), name, bytes)
    };
    add(&mut archive, META, &serde_json::to_vec(meta)?)?;
    let digest = append_written(&mut archive, meta, length, write)?;
    match key {
        Some(ArchiveKey::Clear(key)) => add(&mut archive, CLEAR_KEY, key)?,
        Some(ArchiveKey::Sealed(sealed)) => add(&mut archive, SEALED_KEY, sealed)?,
        None => {}
    }
    sums.push_str(&format!("{digest}  {STATE}\n"));
    archive.append_data(&mut header(meta, sums.len() as u64), SUMS, sums.as_bytes())?;
    archive.into_inner()?.finish()
}

/// Returns the header of a file, which has no name yet.
fn header(meta: &ArchiveMeta, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(meta.created / 1000).unwrap_or(0));
    header.set_cksum();
    header
}

/// Appends the state in the pieces that `write` writes, and returns its checksum.
fn append_written(
    archive: &mut Builder,
    meta: &ArchiveMeta,
    length: u64,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<String> {
    let mut header = header(meta, length);
    header.set_path(STATE)?;
    header.set_cksum();
    let out = archive.get_mut();
    out.write_all(header.as_bytes())?;
    let mut counted = Counted { out: &mut *out, sum: Some(Sha256::new()), length: 0 };
    write(&mut counted)?;
    let Counted { sum, length: written, .. } = counted;
    if written != length {
        return Err(io::Error::other("the encoded state has another length than announced"));
    }
    // Files of an archive fill whole blocks.
    let end = usize::try_from(length % BLOCK as u64).map_err(io::Error::other)?;
    out.write_all(&[0; BLOCK][..(BLOCK - end) % BLOCK])?;
    Ok(sum.map_or_else(String::new, |sum| hex(&sum.finalize())))
}

/// The size of a block of a tar archive.
const BLOCK: usize = 512;

/// A writer that counts the bytes, and adds them to a checksum if there is one.
struct Counted<W> {
    out: W,
    sum: Option<Sha256>,
    length: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        if let Some(sum) = &mut self.sum {
            sum.update(&bytes[..written]);
        }
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Unpacks an archive.
///
/// # Errors
/// If the bytes are not an archive, or the archive is damaged.
pub fn unpack(bytes: &[u8]) -> Result<Archive, ArchiveError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(ArchiveError::Compression);
    }
    let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(LARGEST));
    let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for entry in archive.entries().map_err(ArchiveError::Read)? {
        let mut entry = entry.map_err(ArchiveError::Read)?;
        let name = entry.path().map_err(ArchiveError::Read)?.display().to_string();
        if ![META, STATE, SUMS, CLEAR_KEY, SEALED_KEY].contains(&name.as_str()) {
            continue;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(ArchiveError::Read)?;
        parts.insert(name, content);
    }
    let mut take = |name: &'static str| parts.remove(name).ok_or(ArchiveError::Missing(name));
    let (about, state, sums) = (take(META)?, take(STATE)?, take(SUMS)?);
    let sums = String::from_utf8_lossy(&sums);
    let (clear, sealed) = (parts.remove(CLEAR_KEY), parts.remove(SEALED_KEY));
    let keys = [(CLEAR_KEY, clear.as_ref()), (SEALED_KEY, sealed.as_ref())];
    for (name, bytes) in [(META, Some(&about)), (STATE, Some(&state))].into_iter().chain(keys) {
        let is_listed = |bytes| sums.lines().any(|line| line == format!("{}  {name}", sum(bytes)));
        if bytes.is_some_and(|bytes| !is_listed(bytes)) {
            return Err(ArchiveError::Checksum(name));
        }
    }
    let key = match (clear, sealed) {
        (Some(key), _) => Some(ArchiveKey::Clear(key.try_into().map_err(|_| ArchiveError::KeySize)?)),
        (None, Some(sealed)) if sealed.len() > MAX_SEALED_KEY => return Err(ArchiveError::KeySize),
        (None, sealed) => sealed.map(ArchiveKey::Sealed),
    };
    Ok(Archive { meta: serde_json::from_slice(&about).map_err(ArchiveError::Meta)?, state, key })
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
        for key in [None, Some(ArchiveKey::Clear([7; KEY])), Some(ArchiveKey::Sealed(b"sealed".to_vec()))] {
            let packed = pack(&meta, &state, key.as_ref()).unwrap();
            let archive = Archive { meta: meta.clone(), state: state.clone(), key };
            assert!(!format!("{:?}", archive.key).contains('7'));
            assert_eq!(unpack(&packed).unwrap(), archive);
            assert_eq!(pack_root(&meta, &Root::default(), archive.key.as_ref()).unwrap(), packed);
        }
        for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 100_000] {
            let packed = pack(&meta, &vec![7; size], None).unwrap();
            assert_eq!(unpack(&packed).unwrap().state, vec![7; size]);
        }
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
        let mut packed = pack(&ArchiveMeta::default(), b"state", None).unwrap();
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

    #[test]
    fn a_key_without_a_checksum_is_noticed() {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let sums = format!("{}  {META}\n{}  {STATE}\n", sum(b"{}"), sum(b"x"));
        for (name, bytes) in [(META, "{}"), (STATE, "x"), (CLEAR_KEY, "k"), (SUMS, sums.as_str())] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            archive.append_data(&mut header, name, bytes.as_bytes()).unwrap();
        }
        let packed = archive.into_inner().unwrap().finish().unwrap();
        assert!(matches!(unpack(&packed), Err(ArchiveError::Checksum(CLEAR_KEY))));
    }
}
