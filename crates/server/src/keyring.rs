//! The servers' root key, and sealing with it: secrets are in the log and in snapshots in this form only.
//!
//! The algorithm is XChaCha20-Poly1305 (RFC 8439 with the extended nonce of draft-irtf-cfrg-xchacha), whose
//! nonces are long enough to be drawn by lot. What is sealed is bound to the object that it belongs to, so
//! that nobody who can write the state can have one object's secrets opened as another's.

use crate::error::{Kind, ServerError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_types::sealed::SealedSecrets;
use caravan_types::ser::Secrets;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use rand::TryRngCore as _;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a root key.
const KEY: usize = 32;
/// Bytes of a nonce.
const NONCE: usize = 24;
/// Ending of key files.
const SUFFIX: &str = ".key";

/// Root keys by id, one of which seals; cheap to clone.
#[derive(Clone)]
pub(crate) struct Keyring(Arc<Keys>);

struct Keys {
    by_id: BTreeMap<String, XChaCha20Poly1305>,
    active: String,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("active", &self.0.active).finish_non_exhaustive()
    }
}

fn failed(what: impl fmt::Display) -> ServerError {
    ServerError::new(Kind::Internal, format!("the keyring cannot be used: {what}"))
}

fn random<const N: usize>() -> Result<[u8; N], ServerError> {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// What a key is called; says nothing about it, but tells a damaged one.
fn id_of(key: &[u8]) -> String {
    Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(secrets: &Secrets) -> Result<Vec<u8>, ServerError> {
    serde_json::to_vec(secrets.expose()).map_err(|e| failed(format!("secrets cannot be encoded: {e}")))
}

impl Keyring {
    /// One key that ends with the process, for servers that keep nothing.
    pub(crate) fn memory() -> Result<Self, ServerError> {
        Ok(Self::of(&[random::<KEY>()?]))
    }

    /// The keys of a directory; the first one is made if there is none.
    pub(crate) fn dir(dir: &Path) -> Result<Self, ServerError> {
        caravan_sys::files::private_dir(dir).map_err(failed)?;
        let mut keys: Vec<[u8; KEY]> = Vec::new();
        let entries = std::fs::read_dir(dir).map_err(|e| failed(format!("{}: {e}", dir.display())))?;
        for entry in entries {
            let path = entry.map_err(|e| failed(format!("{}: {e}", dir.display())))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let Some(id) = name.strip_suffix(SUFFIX) else { continue };
            let bytes = std::fs::read(&path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
            let key = <[u8; KEY]>::try_from(bytes).ok().filter(|key| id_of(key) == id);
            keys.push(key.ok_or_else(|| failed(format!("{} is damaged", path.display())))?);
        }
        if keys.is_empty() {
            let key = random::<KEY>()?;
            let path = dir.join(format!("{}{SUFFIX}", id_of(&key)));
            caravan_sys::files::atomic_write(&path, &key, 0o600).map_err(failed)?;
            keys.push(key);
        }
        keys.sort_unstable_by_key(|key| id_of(key));
        Ok(Self::of(&keys))
    }

    fn of(keys: &[[u8; KEY]]) -> Self {
        let by_id = keys.iter().map(|key| (id_of(key), XChaCha20Poly1305::new(key.into()))).collect();
        let active = keys.first().map(|key| id_of(key)).unwrap_or_default();
        Self(Arc::new(Keys { by_id, active }))
    }

    /// Seals the secrets of an object, which `owner` names. No secrets are sealed to nothing.
    pub(crate) fn seal(&self, owner: &str, secrets: &Secrets) -> Result<SealedSecrets, ServerError> {
        if secrets.is_empty() {
            return Ok(SealedSecrets::default());
        }
        let keys = &self.0;
        let cipher = keys.by_id.get(&keys.active).ok_or_else(|| failed("it has no key"))?;
        let nonce = random::<NONCE>()?;
        let plain = bytes_of(secrets)?;
        let payload = Payload { msg: &plain, aad: owner.as_bytes() };
        let sealed = cipher
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| failed(format!("the secrets of {owner} cannot be sealed")))?;
        let text = BASE64.encode([&nonce[..], &sealed[..]].concat());
        Ok(SealedSecrets { key: keys.active.clone(), text })
    }

    /// Opens what was sealed for the same object.
    pub(crate) fn open(&self, owner: &str, sealed: &SealedSecrets) -> Result<Secrets, ServerError> {
        if sealed.is_empty() {
            return Ok(Secrets::default());
        }
        let wrong = |why: String| {
            ServerError::new(Kind::Internal, format!("the secrets of {owner} cannot be opened: {why}"))
        };
        let cipher = self.0.by_id.get(&sealed.key).ok_or_else(|| {
            wrong(format!("they were sealed with key {}, which this server does not have", sealed.key))
        })?;
        let damaged = || wrong("they are damaged".to_owned());
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

    #[test]
    fn what_is_sealed_is_read_by_its_owner_only() {
        let ring = Keyring::memory().unwrap();
        let sealed = ring.seal("volume a", &secrets()).unwrap();
        assert!(!format!("{sealed:?}{}", sealed.text).contains("hunter2"));
        assert_eq!(ring.open("volume a", &sealed).unwrap(), secrets());
        assert!(ring.open("volume b", &sealed).unwrap_err().message.contains("damaged"));
        let other = Keyring::memory().unwrap();
        assert!(other.open("volume a", &sealed).unwrap_err().message.contains("does not have"));
        assert_ne!(ring.seal("volume a", &secrets()).unwrap(), sealed, "each has a nonce of its own");
    }

    #[test]
    fn nothing_is_sealed_to_nothing() {
        let ring = Keyring::memory().unwrap();
        let sealed = ring.seal("x", &Secrets::default()).unwrap();
        assert!(sealed.is_empty() && ring.open("y", &sealed).unwrap().is_empty());
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
        assert!(Keyring::dir(&dir).unwrap_err().message.contains("damaged"));
    }
}
