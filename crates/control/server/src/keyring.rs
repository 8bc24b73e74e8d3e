//! The servers' root keys, which seal secrets: log and snapshots contain secrets in sealed form only.
//!
//! The log also contains the root keys, sealed with the key of the cluster, which every server receives when it is
//! admitted. So every server that has a secret can also open it.
//!
//! The algorithm is XChaCha20-Poly1305 (RFC 8439 with the extended nonce of draft-irtf-cfrg-xchacha), whose nonces
//! are long enough to be random. The seal binds the data to its owner. A writer of the state therefore cannot have
//! the secrets of one object opened as those of another.

mod fault;
mod sign;

pub use fault::KeyringFault;
pub(crate) use sign::{Jwk, Signer};

use crate::runtime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_messages::cluster::ClusterKey;
use caravan_types::blob::Blob;
use caravan_types::operator::RootKeyMaterial;
use caravan_types::sealed::{SealedSecrets, Unopened};
use caravan_types::ser::Secrets;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sign::Signers;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The size of a root key in bytes.
const KEY: usize = 32;
/// The size of a nonce in bytes.
const NONCE: usize = 24;
/// The file extension of root keys.
const SUFFIX: &str = ".key";
/// The file name of the key of the cluster.
const CLUSTER_KEY: &str = "cluster.key";

/// Root keys by id, one of which is active; cheap to clone.
#[derive(Clone)]
pub(crate) struct Keyring(Arc<Shared>);

struct Shared {
    keys: RwLock<Keys>,
    signers: Signers,
    /// The key of the cluster, or `None` until the server belongs to a cluster.
    cluster: RwLock<Option<ClusterKey>>,
    /// The directory of the keys; with `None`, the keys exist in memory only.
    dir: Option<PathBuf>,
    /// The notification of tasks that wait for an active key.
    activated: Notify,
}

#[derive(Default)]
struct Keys {
    by_id: BTreeMap<String, RootKey>,
    active: String,
}

/// A root key and its cipher.
struct RootKey {
    bytes: [u8; KEY],
    cipher: XChaCha20Poly1305,
}

impl RootKey {
    fn new(bytes: [u8; KEY]) -> Self {
        Self { cipher: XChaCha20Poly1305::new((&bytes).into()), bytes }
    }
}

/// The sealed content of a [`RootKeyMaterial`].
#[derive(Serialize, Deserialize)]
struct Material {
    key: Blob,
    /// The key pair for signatures, in the format of PKCS #1 (RFC 8017).
    pair: Option<Blob>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("active", &self.active()).finish_non_exhaustive()
    }
}

fn random<const N: usize>() -> Result<[u8; N], KeyringFault> {
    runtime::random_bytes().map_err(|e| KeyringFault::Random(Arc::new(e)))
}

/// Returns the id of a key, in the form of a UUID. It reveals nothing about the key, but detects a damaged key.
fn id_of(key: &[u8]) -> String {
    let digest = Sha256::digest(key);
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The timeout for the first root key of a cluster.
const KEY_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the id of a key in the format of earlier versions.
fn old_id_of(key: &[u8]) -> String {
    Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the cipher that seals root keys with the key of a cluster.
fn cipher_of(cluster: &ClusterKey) -> XChaCha20Poly1305 {
    let mut key = [0; KEY];
    hkdf::Hkdf::<Sha256>::new(None, cluster.expose())
        .expand(b"caravan root keys", &mut key)
        .expect("32 bytes are fewer than 255 digests (RFC 5869)");
    XChaCha20Poly1305::new((&key).into())
}

fn seal_material(cipher: &XChaCha20Poly1305, id: &str, plain: &[u8]) -> Result<Blob, KeyringFault> {
    let nonce = random::<NONCE>()?;
    let payload = Payload { msg: plain, aad: id.as_bytes() };
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), payload)
        .map_err(|_| KeyringFault::Seal { owner: id.to_owned() })?;
    Ok(Blob([&nonce[..], &sealed[..]].concat()))
}

fn open_material(cipher: &XChaCha20Poly1305, material: &RootKeyMaterial) -> Result<Vec<u8>, KeyringFault> {
    let foreign = || KeyringFault::ForeignMaterial { key: material.key_id.clone() };
    let (nonce, sealed) = material.sealed.0.split_at_checked(NONCE).ok_or_else(foreign)?;
    let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| foreign())?;
    let payload = Payload { msg: sealed, aad: material.key_id.as_bytes() };
    cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| foreign())
}

fn bytes_of(secrets: &Secrets) -> Result<Vec<u8>, KeyringFault> {
    serde_json::to_vec(secrets.expose()).map_err(|e| KeyringFault::Encode(Arc::new(e)))
}

impl Keyring {
    /// Returns a keyring with one key in memory, for servers that store nothing.
    pub(crate) fn memory() -> Result<Self, KeyringFault> {
        Ok(Self::from_keys(&[random::<KEY>()?], None, Signers::default()))
    }

    /// Reads the keys of a directory: the key of the cluster, and root keys of earlier versions, which are not in the
    /// log.
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
        keys.sort_unstable_by_key(|key| id_of(key));
        let ring = Self::from_keys(&keys, Some(dir.to_owned()), Signers::read(dir)?);
        *ring.0.cluster.write() = cluster;
        // Data sealed under an id of the old format must still be opened.
        for key in keys.iter().filter(|key| old_names.contains(&old_id_of(*key))) {
            ring.keys_mut().by_id.insert(old_id_of(key), RootKey::new(*key));
        }
        Ok(ring)
    }

    fn from_keys(keys: &[[u8; KEY]], dir: Option<PathBuf>, signers: Signers) -> Self {
        let by_id = keys.iter().map(|key| (id_of(key), RootKey::new(*key))).collect();
        let active = keys.first().map(|key| id_of(key)).unwrap_or_default();
        let (keys, cluster) = (RwLock::new(Keys { by_id, active }), RwLock::default());
        Self(Arc::new(Shared { keys, signers, cluster, dir, activated: Notify::new() }))
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

    /// Locks the keys for reading. A panic of a lock holder leaves the data consistent, because each change is one
    /// assignment.
    fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.0.keys.read()
    }

    fn keys_mut(&self) -> RwLockWriteGuard<'_, Keys> {
        self.0.keys.write()
    }

    /// Returns the id of the active key, or the empty string without an active key.
    pub(crate) fn active(&self) -> String {
        self.keys().active.clone()
    }

    /// Returns whether this server has a key.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.keys().by_id.contains_key(id)
    }

    /// Creates another key, which is not active yet; returns its id.
    pub(crate) fn make(&self) -> Result<String, KeyringFault> {
        let key = random::<KEY>()?;
        let id = id_of(&key);
        self.keys_mut().by_id.insert(id.clone(), RootKey::new(key));
        Ok(id)
    }

    /// Returns a root key of this server and its key pair, sealed with the key of the cluster, for the log. `signer`
    /// is a key pair that this server does not use yet.
    pub(crate) fn sealed(&self, id: &str, signer: Option<&Signer>) -> Result<RootKeyMaterial, KeyringFault> {
        let known = self.known_signer(id);
        let pair = signer.or(known.as_deref()).map(|signer| Blob(signer.der().to_vec()));
        let signs = pair.is_some();
        let key = {
            let keys = self.keys();
            keys.by_id.get(id).map(|key| Blob(key.bytes.to_vec())).ok_or(KeyringFault::NoKey)?
        };
        let plain = rmp_serde::to_vec_named(&Material { key, pair }).map_err(KeyringFault::material)?;
        let sealed = seal_material(&self.cluster_cipher()?, id, &plain)?;
        Ok(RootKeyMaterial { key_id: id.to_owned(), sealed, signs })
    }

    /// Returns a root key from the log of another cluster, sealed with the key of this cluster. `other` is the key of
    /// the other cluster; a root key of this cluster is returned unchanged.
    ///
    /// # Errors
    /// [`KeyringFault::ForeignMaterial`] if neither of the keys sealed it.
    pub(crate) fn adopt(
        &self,
        material: &RootKeyMaterial,
        other: Option<&ClusterKey>,
    ) -> Result<RootKeyMaterial, KeyringFault> {
        let own = self.cluster_cipher()?;
        if open_material(&own, material).is_ok() {
            return Ok(material.clone());
        }
        let foreign = || KeyringFault::ForeignMaterial { key: material.key_id.clone() };
        let plain = open_material(&cipher_of(other.ok_or_else(foreign)?), material)?;
        let sealed = seal_material(&own, &material.key_id, &plain)?;
        Ok(RootKeyMaterial { sealed, ..material.clone() })
    }

    /// Opens a root key from the log, and uses it from now on.
    ///
    /// # Errors
    /// [`KeyringFault::ForeignMaterial`] if the key of another cluster sealed it.
    pub(crate) fn load(&self, material: &RootKeyMaterial) -> Result<(), KeyringFault> {
        let id = &material.key_id;
        if self.has(id) && (!material.signs || self.known_signer(id).is_some()) {
            return Ok(());
        }
        let foreign = || KeyringFault::ForeignMaterial { key: id.clone() };
        let plain = open_material(&self.cluster_cipher()?, material)?;
        let Material { key, pair } = rmp_serde::from_slice(&plain).map_err(|_| foreign())?;
        let key = <[u8; KEY]>::try_from(key.0).ok().filter(|key| id_of(key) == *id).ok_or_else(foreign)?;
        {
            let mut keys = self.keys_mut();
            // Data of early versions names the key by another id.
            keys.by_id.insert(old_id_of(&key), RootKey::new(key));
            keys.by_id.insert(id.clone(), RootKey::new(key));
        }
        if let Some(pair) = pair {
            self.0.signers.add(Signer::from_der(id, &pair.0)?);
        }
        Ok(())
    }

    /// Returns the cipher that seals root keys. Its key differs from the key of the cluster, which also proves
    /// membership.
    fn cluster_cipher(&self) -> Result<XChaCha20Poly1305, KeyringFault> {
        Ok(cipher_of(&self.cluster_key().ok_or(KeyringFault::NoClusterKey)?))
    }

    /// Activates a key, if this server has it.
    pub(crate) fn activate(&self, id: &str) {
        let mut keys = self.keys_mut();
        if keys.by_id.contains_key(id) {
            id.clone_into(&mut keys.active);
            self.0.activated.notify_waiters();
        }
    }

    /// Waits until a key is active, for at most [`KEY_TIMEOUT`]. A new cluster has a leader before it has its first
    /// root key.
    pub(crate) async fn wait_active(&self) {
        let active = async {
            loop {
                let mut notified = std::pin::pin!(self.0.activated.notified());
                notified.as_mut().enable();
                if !self.active().is_empty() {
                    return;
                }
                notified.await;
            }
        };
        // A timeout is no error here: the caller then reports the missing key.
        let _ = runtime::timeout(KEY_TIMEOUT, active).await;
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

    /// Creates a key pair for a key, which takes long. Signing with the key pair begins with [`Keyring::sign_with`].
    pub(crate) async fn make_signer(&self, id: &str) -> Result<Signer, KeyringFault> {
        sign::make(id).await
    }

    /// Signs with a key pair from now on.
    pub(crate) fn sign_with(&self, signer: Signer) -> Arc<Signer> {
        self.0.signers.add(signer)
    }

    /// Waits until no other key pair is being created.
    pub(crate) async fn signer_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.signers.turn().await
    }

    /// Returns whether a key pair is being created now.
    pub(crate) fn is_making_signer(&self) -> bool {
        self.0.signers.is_making()
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
        let cipher = &keys.by_id.get(&keys.active).ok_or(KeyringFault::NoKey)?.cipher;
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
        let cipher = &keys
            .by_id
            .get(&sealed.key)
            .ok_or_else(|| Unopened::ForeignKey { owner: owner.to_owned(), key: sealed.key.clone() })?
            .cipher;
        let damaged = || Unopened::Damaged { owner: owner.to_owned() };
        let bytes = BASE64.decode(&sealed.text).map_err(|_| damaged())?;
        let (nonce, text) = bytes.split_at_checked(NONCE).ok_or_else(damaged)?;
        let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| damaged())?;
        let payload = Payload { msg: text, aad: owner.as_bytes() };
        let plain = cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| damaged())?;
        serde_json::from_slice(&plain).map(Secrets::new).map_err(|_| damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn secrets() -> Secrets {
        Secrets::new(BTreeMap::from([("token".to_owned(), "hunter2".to_owned())]))
    }

    #[tokio::test]
    async fn a_writer_waits_for_the_first_key() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Keyring::dir(dir.path()).unwrap();
        assert!(ring.active().is_empty());
        let waiting = tokio::spawn({
            let ring = ring.clone();
            async move {
                ring.wait_active().await;
                ring.active()
            }
        });
        tokio::task::yield_now().await;
        let id = ring.make().unwrap();
        ring.activate(&id);
        assert_eq!(waiting.await.unwrap(), id);
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
        ring.make_cluster_key().unwrap();
        let first = ring.make().unwrap();
        ring.activate(&first);
        let sealed = ring.seal("x", &secrets()).unwrap();
        let second = ring.make().unwrap();
        ring.activate(&second);
        assert_eq!(ring.seal("x", &secrets()).unwrap().key, second);
        // Another server with the key of the cluster opens the secrets with the keys from the log.
        let other = Keyring::dir(dir.path()).unwrap();
        assert!(other.open("x", &sealed).is_err());
        other.load(&ring.sealed(&first, None).unwrap()).unwrap();
        assert_eq!(other.open("x", &sealed).unwrap(), secrets());
        ring.remove(&first).unwrap();
        assert!(!ring.has(&first) && ring.open("x", &sealed).is_err());
    }

    #[tokio::test]
    async fn keys_in_the_log_are_opened_by_servers_of_the_cluster_only() {
        let (ring, other) = (Keyring::memory().unwrap(), Keyring::memory().unwrap());
        ring.make_cluster_key().unwrap();
        let id = ring.active();
        let signer = ring.make_signer(&id).await.unwrap();
        let material = ring.sealed(&id, Some(&signer)).unwrap();
        assert!(material.signs && ring.known_signer(&id).is_none(), "not used before it is in the log");
        other.make_cluster_key().unwrap();
        assert!(matches!(other.load(&material), Err(KeyringFault::ForeignMaterial { .. })));
        let member = Keyring::memory().unwrap();
        member.set_cluster_key(&ring.cluster_key().unwrap()).unwrap();
        assert!(matches!(
            member.set_cluster_key(&other.cluster_key().unwrap()),
            Err(KeyringFault::OtherClusterKey)
        ));
        member.load(&material).unwrap();
        let token = member.known_signer(&id).unwrap().sign(&Default::default()).unwrap();
        assert!(signer.open(&token).is_ok());
        // The root key of another cluster needs that cluster's key.
        assert!(matches!(other.adopt(&material, None), Err(KeyringFault::ForeignMaterial { .. })));
        let wrong = ClusterKey::new([1; KEY]);
        assert!(matches!(other.adopt(&material, Some(&wrong)), Err(KeyringFault::ForeignMaterial { .. })));
        let adopted = other.adopt(&material, ring.cluster_key().as_ref()).unwrap();
        other.load(&adopted).unwrap();
        assert!(other.has(&id) && adopted.signs && ring.adopt(&material, None).unwrap() == material);
        let mut damaged = material.clone();
        *damaged.sealed.0.last_mut().unwrap() ^= 1;
        let third = Keyring::memory().unwrap();
        third.set_cluster_key(&ring.cluster_key().unwrap()).unwrap();
        assert!(third.load(&damaged).is_err());
        // The material of one key is refused under the id of another key.
        assert!(third.load(&RootKeyMaterial { key_id: other.active(), ..material }).is_err());
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
    fn the_key_of_the_cluster_is_readable_by_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("keyring");
        Keyring::dir(&dir).unwrap().make_cluster_key().unwrap();
        assert!(Keyring::dir(&dir).unwrap().cluster_key().is_some());
        let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(&files[0], [0; 5]).unwrap();
        assert!(Keyring::dir(&dir).unwrap_err().to_string().contains("damaged"));
    }
}
