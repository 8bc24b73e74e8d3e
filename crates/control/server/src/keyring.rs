//! The servers' root keys, which seal secrets: log and snapshots contain secrets in sealed form only.
//!
//! The algorithm is XChaCha20-Poly1305 (RFC 8439 with the extended nonce of draft-irtf-cfrg-xchacha), whose nonces are
//! long enough to be random. The seal binds the data to its owner. A writer of the state therefore cannot have the
//! secrets of one object opened as those of another.

mod fault;
mod sign;

pub use fault::KeyringFault;
pub(crate) use sign::{Jwk, Signer};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_messages::cluster::ClusterKey;
use caravan_types::sealed::{SealedSecrets, Unopened};
use caravan_types::ser::Secrets;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rand::TryRngCore as _;
use sha2::{Digest as _, Sha256};
use sign::Signers;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of a root key in bytes.
const KEY: usize = 32;
/// Size of a nonce in bytes.
const NONCE: usize = 24;
/// File extension of root keys.
const SUFFIX: &str = ".key";
/// File name of the key of the cluster.
const CLUSTER_KEY: &str = "cluster.key";

/// Root keys by id, one of which is active; cheap to clone.
#[derive(Clone)]
pub(crate) struct Keyring(Arc<Shared>);

struct Shared {
    keys: RwLock<Keys>,
    signers: Signers,
    /// The key of the cluster; absent until the server belongs to a cluster.
    cluster: RwLock<Option<ClusterKey>>,
    /// The directory of the keys; `None`: the keys exist in memory only.
    dir: Option<PathBuf>,
}

#[derive(Default)]
struct Keys {
    by_id: BTreeMap<String, XChaCha20Poly1305>,
    active: String,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("active", &self.active()).finish_non_exhaustive()
    }
}

fn random<const N: usize>() -> Result<[u8; N], KeyringFault> {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|e| KeyringFault::Random(Arc::new(e)))?;
    Ok(bytes)
}

/// Returns the id of a key, in the form of a UUID. It reveals nothing about the key, but detects a damaged one.
fn id_of(key: &[u8]) -> String {
    let digest = Sha256::digest(key);
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Returns the id of a key in the format of earlier versions.
fn old_id_of(key: &[u8]) -> String {
    Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(secrets: &Secrets) -> Result<Vec<u8>, KeyringFault> {
    serde_json::to_vec(secrets.expose()).map_err(|e| KeyringFault::Encode(Arc::new(e)))
}

impl Keyring {
    /// Returns a keyring with one key in memory, for servers that store nothing.
    pub(crate) fn memory() -> Result<Self, KeyringFault> {
        Ok(Self::of(&[random::<KEY>()?], None, Signers::default()))
    }

    /// Reads the keys of a directory; creates the first key in an empty directory.
    pub(crate) fn dir(dir: &Path) -> Result<Self, KeyringFault> {
        caravan_sys::files::durable_private_dir(dir).map_err(KeyringFault::files)?;
        let mut keys: Vec<[u8; KEY]> = Vec::new();
        let mut old_names: Vec<String> = Vec::new();
        let mut cluster = None;
        let entries = std::fs::read_dir(dir).map_err(KeyringFault::file(dir))?;
        for entry in entries {
            let path = entry.map_err(KeyringFault::file(dir))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let Some(id) = name.strip_suffix(SUFFIX) else { continue };
            let bytes = std::fs::read(&path).map_err(KeyringFault::file(&path))?;
            if name == CLUSTER_KEY {
                let key = <[u8; KEY]>::try_from(bytes).map_err(|_| KeyringFault::Damaged(path.clone()))?;
                cluster = Some(ClusterKey::new(key));
                continue;
            }
            let key = <[u8; KEY]>::try_from(bytes).ok();
            let key = key.filter(|key| id_of(key) == id || old_id_of(key) == id);
            let key = key.ok_or_else(|| KeyringFault::Damaged(path.clone()))?;
            if old_id_of(&key) == id {
                old_names.push(id.to_owned());
            }
            keys.push(key);
        }
        if keys.is_empty() {
            let key = random::<KEY>()?;
            write_key(dir, &key)?;
            keys.push(key);
        }
        keys.sort_unstable_by_key(|key| id_of(key));
        let ring = Self::of(&keys, Some(dir.to_owned()), Signers::read(dir)?);
        *ring.0.cluster.write() = cluster;
        // Data sealed under an id of the old format must still be opened.
        for key in keys.iter().filter(|key| old_names.contains(&old_id_of(*key))) {
            ring.keys_mut().by_id.insert(old_id_of(key), XChaCha20Poly1305::new(key.into()));
        }
        Ok(ring)
    }

    fn of(keys: &[[u8; KEY]], dir: Option<PathBuf>, signers: Signers) -> Self {
        let by_id = keys.iter().map(|key| (id_of(key), XChaCha20Poly1305::new(key.into()))).collect();
        let active = keys.first().map(|key| id_of(key)).unwrap_or_default();
        let (keys, cluster) = (RwLock::new(Keys { by_id, active }), RwLock::default());
        Self(Arc::new(Shared { keys, signers, cluster, dir }))
    }

    /// Returns the key of the cluster, if this server belongs to one.
    pub(crate) fn cluster_key(&self) -> Option<ClusterKey> {
        self.0.cluster.read().clone()
    }

    /// Creates the key of a cluster, and stores it.
    pub(crate) fn make_cluster_key(&self) -> Result<(), KeyringFault> {
        self.set_cluster_key(&ClusterKey::new(random::<KEY>()?))
    }

    /// Stores the key of the cluster durably.
    ///
    /// # Errors
    /// If the server has the key of another cluster, or the disk fails.
    pub(crate) fn set_cluster_key(&self, key: &ClusterKey) -> Result<(), KeyringFault> {
        let mut known = self.0.cluster.write();
        if let Some(known) = &*known {
            return if known == key { Ok(()) } else { Err(KeyringFault::OtherClusterKey) };
        }
        if let Some(dir) = &self.0.dir {
            caravan_sys::files::atomic_write(&dir.join(CLUSTER_KEY), key.expose(), 0o600)
                .map_err(KeyringFault::files)?;
        }
        *known = Some(key.clone());
        Ok(())
    }

    /// A panic of a lock holder leaves the data consistent, because each change is one assignment.
    fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.0.keys.read()
    }

    fn keys_mut(&self) -> RwLockWriteGuard<'_, Keys> {
        self.0.keys.write()
    }

    /// Returns the active key.
    pub(crate) fn active(&self) -> String {
        self.keys().active.clone()
    }

    /// Whether this server has a key.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.keys().by_id.contains_key(id)
    }

    /// Creates another key, which is not active yet; returns its id.
    pub(crate) fn make(&self) -> Result<String, KeyringFault> {
        let key = random::<KEY>()?;
        if let Some(dir) = &self.0.dir {
            write_key(dir, &key)?;
        }
        let id = id_of(&key);
        self.keys_mut().by_id.insert(id.clone(), XChaCha20Poly1305::new(&key.into()));
        Ok(id)
    }

    /// Makes a key active, if this server has it.
    pub(crate) fn activate(&self, id: &str) {
        let mut keys = self.keys_mut();
        if keys.by_id.contains_key(id) {
            id.clone_into(&mut keys.active);
        }
    }

    /// Deletes a key permanently.
    pub(crate) fn remove(&self, id: &str) -> Result<(), KeyringFault> {
        self.keys_mut().by_id.remove(id);
        self.0.signers.remove(id);
        let Some(dir) = &self.0.dir else { return Ok(()) };
        for suffix in [SUFFIX, sign::SUFFIX] {
            let path = dir.join(format!("{id}{suffix}"));
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(KeyringFault::file(path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the signer of a key. The first request creates it, because creation takes long.
    pub(crate) async fn signer(&self, id: &str) -> Result<Arc<Signer>, KeyringFault> {
        self.0.signers.get_or_make(id, self.0.dir.clone()).await
    }

    /// Returns the signer of a key, if it was ever created.
    pub(crate) fn known_signer(&self, id: &str) -> Option<Arc<Signer>> {
        self.0.signers.get(id)
    }

    /// Seals the secrets of an object, which `owner` names. Empty secrets seal to the empty value.
    pub(crate) fn seal(&self, owner: &str, secrets: &Secrets) -> Result<SealedSecrets, KeyringFault> {
        if secrets.is_empty() {
            return Ok(SealedSecrets::default());
        }
        let keys = self.keys();
        let cipher = keys.by_id.get(&keys.active).ok_or(KeyringFault::NoKey)?;
        let nonce = random::<NONCE>()?;
        let plain = bytes_of(secrets)?;
        let payload = Payload { msg: &plain, aad: owner.as_bytes() };
        let sealed = cipher
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| KeyringFault::Seal { owner: owner.to_owned() })?;
        let text = BASE64.encode([&nonce[..], &sealed[..]].concat());
        Ok(SealedSecrets { key: keys.active.clone(), text })
    }

    /// Opens data that was sealed for the same object.
    pub(crate) fn open(&self, owner: &str, sealed: &SealedSecrets) -> Result<Secrets, Unopened> {
        if sealed.is_empty() {
            return Ok(Secrets::default());
        }
        let keys = self.keys();
        let cipher = keys
            .by_id
            .get(&sealed.key)
            .ok_or_else(|| Unopened::ForeignKey { owner: owner.to_owned(), key: sealed.key.clone() })?;
        let damaged = || Unopened::Damaged { owner: owner.to_owned() };
        let bytes = BASE64.decode(&sealed.text).map_err(|_| damaged())?;
        let (nonce, text) = bytes.split_at_checked(NONCE).ok_or_else(damaged)?;
        let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| damaged())?;
        let payload = Payload { msg: text, aad: owner.as_bytes() };
        let plain = cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| damaged())?;
        serde_json::from_slice(&plain).map(Secrets::new).map_err(|_| damaged())
    }
}

fn write_key(dir: &Path, key: &[u8; KEY]) -> Result<(), KeyringFault> {
    let path = dir.join(format!("{}{SUFFIX}", id_of(key)));
    caravan_sys::files::atomic_write(&path, key, 0o600).map_err(KeyringFault::files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn secrets() -> Secrets {
        Secrets::new(BTreeMap::from([("token".to_owned(), "hunter2".to_owned())]))
    }

    #[test]
    fn what_is_sealed_is_read_by_its_owner_only() {
        let ring = Keyring::memory().unwrap();
        let sealed = ring.seal("volume a", &secrets()).unwrap();
        assert!(!format!("{sealed:?}{}", sealed.text).contains("hunter2"));
        assert_eq!(ring.open("volume a", &sealed).unwrap(), secrets());
        assert!(ring.open("volume b", &sealed).unwrap_err().to_string().contains("damaged"));
        let other = Keyring::memory().unwrap();
        assert!(other.open("volume a", &sealed).unwrap_err().to_string().contains("does not have"));
        assert_ne!(ring.seal("volume a", &secrets()).unwrap(), sealed, "each has a nonce of its own");
    }

    #[test]
    fn nothing_is_sealed_to_nothing() {
        let ring = Keyring::memory().unwrap();
        let sealed = ring.seal("x", &Secrets::default()).unwrap();
        assert!(sealed.is_empty() && ring.open("y", &sealed).unwrap().is_empty());
    }

    #[test]
    fn a_new_key_seals_and_the_old_one_still_opens() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Keyring::dir(dir.path()).unwrap();
        let (first, sealed) = (ring.active(), ring.seal("x", &secrets()).unwrap());
        let second = ring.make().unwrap();
        ring.activate(&second);
        assert_eq!(ring.seal("x", &secrets()).unwrap().key, second);
        assert_eq!(Keyring::dir(dir.path()).unwrap().open("x", &sealed).unwrap(), secrets());
        ring.remove(&first).unwrap();
        assert!(!ring.has(&first) && ring.open("x", &sealed).is_err());
        assert_eq!(Keyring::dir(dir.path()).unwrap().active(), second);
    }

    #[test]
    fn keys_under_an_old_name_are_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let key = [7; KEY];
        std::fs::write(dir.path().join(format!("{}{SUFFIX}", old_id_of(&key))), key).unwrap();
        let ring = Keyring::dir(dir.path()).unwrap();
        let mut sealed = ring.seal("x", &secrets()).unwrap();
        assert_eq!(sealed.key, id_of(&key));
        sealed.key = old_id_of(&key);
        assert_eq!(ring.open("x", &sealed).unwrap(), secrets());
    }

    #[test]
    fn the_key_is_made_once_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("keyring");
        let sealed = Keyring::dir(&dir).unwrap().seal("x", &secrets()).unwrap();
        assert_eq!(Keyring::dir(&dir).unwrap().open("x", &sealed).unwrap(), secrets());
        let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(&files[0], [0; KEY]).unwrap();
        assert!(Keyring::dir(&dir).unwrap_err().to_string().contains("damaged"));
    }
}
