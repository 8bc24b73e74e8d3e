//! The key ring of a server with its file (docs/reference/cluster.md, section 11).

use crate::error::Error;
use crate::frame::{KeyList, KeyOperation};
use crate::key::{Key, KeyError, Ring};
use parking_lot::{Mutex, RwLock};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file in the server's data directory: a JSON list of base64 keys, the primary one first.
const FILE: &str = "serf.keyring";

/// The key ring in use, and its file.
#[derive(Debug)]
pub(crate) struct Keys {
    ring: RwLock<Arc<Ring>>,
    /// The file of the ring, or `None` if the ring exists in memory only.
    file: Option<PathBuf>,
    accepts_plain: bool,
    /// A lock that lets one change run at a time.
    change: Mutex<()>,
}

impl Keys {
    /// Reads the ring from its file, or creates one with the configured key. The file takes precedence,
    /// with a warning.
    pub(crate) fn open(
        dir: Option<&Path>,
        configured: Option<Key>,
        accepts_plain: bool,
    ) -> Result<Self, Error> {
        let file = dir.map(|dir| dir.join(FILE));
        let stored = file.as_deref().map(read).transpose()?.flatten();
        let ring = match stored {
            Some(stored) => {
                if configured.is_some_and(|key| stored.primary() != Some(&key)) {
                    let path = file.as_deref().unwrap_or(Path::new(FILE)).display().to_string();
                    tracing::warn!(path, "server.encrypt is ignored: the key ring has another primary key");
                }
                stored
            }
            None => {
                let ring = Ring::new(configured);
                if let (Some(file), false) = (&file, ring.is_empty()) {
                    write(file, &ring).map_err(|error| Error::File { path: file.clone(), reason: error })?;
                }
                ring
            }
        };
        if accepts_plain {
            tracing::warn!(
                "server.encrypt_accept_plain is set: gossip without encryption is accepted. Remove the setting when all \
                 servers have the key"
            );
        }
        Ok(Self { ring: RwLock::new(Arc::new(ring)), file, accepts_plain, change: Mutex::new(()) })
    }

    pub(crate) fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.read())
    }

    pub(crate) fn accepts_plain(&self) -> bool {
        self.accepts_plain
    }

    /// Executes an operation. The call writes the file, so it must not run on a thread of the runtime.
    pub(crate) fn apply(&self, operation: &KeyOperation) -> Result<KeyList, KeyError> {
        let guard = self.change.lock();
        let ring = self.ring();
        if ring.is_empty() && !self.accepts_plain {
            return Err(KeyError::NotEncrypted);
        }
        let changed = match operation {
            KeyOperation::List => None,
            KeyOperation::Install(key) => Some(ring.installed(Key::parse(key)?)),
            KeyOperation::Use(key) => Some(ring.using(&Key::parse(key)?)?),
            KeyOperation::Remove(key) => Some(ring.without(&Key::parse(key)?)?),
        };
        let ring = match changed.filter(|changed| changed != ring.as_ref()) {
            Some(changed) => {
                if let Some(file) = &self.file {
                    write(file, &changed).map_err(KeyError::File)?;
                }
                let changed = Arc::new(changed);
                *self.ring.write() = Arc::clone(&changed);
                if let Some(primary) = changed.primary() {
                    let keys = changed.keys().len();
                    tracing::info!(?operation, keys, primary = %primary.tag(), "the gossip keys changed");
                }
                changed
            }
            None => ring,
        };
        drop(guard);
        Ok(KeyList(ring.keys().iter().map(Key::to_text).collect()))
    }
}

/// Reads the file; returns `None` if the file does not exist, or has no keys.
fn read(path: &Path) -> Result<Option<Ring>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::File { path: path.to_owned(), reason: error.to_string() }),
    };
    let invalid = |source| Error::Keyring { path: path.to_owned(), source };
    let texts: Vec<String> = serde_json::from_str(&text).map_err(|_| invalid(None))?;
    let keys: Result<Vec<Key>, KeyError> = texts.iter().map(|text| Key::parse(text)).collect();
    let ring = Ring::new(keys.map_err(|error| invalid(Some(error)))?);
    Ok(if ring.is_empty() { None } else { Some(ring) })
}

fn write(path: &Path, ring: &Ring) -> Result<(), String> {
    let texts: Vec<String> = ring.keys().iter().map(Key::to_text).collect();
    let bytes = serde_json::to_vec(&texts).map_err(|error| error.to_string())?;
    caravan_sys::files::atomic_write(path, &bytes, 0o600).map_err(|error| caravan_sys::describe(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use std::os::unix::fs::PermissionsExt as _;

    fn text(byte: u8) -> String {
        base64::engine::general_purpose::STANDARD.encode([byte; 32])
    }

    fn key(byte: u8) -> Key {
        Key::parse(&text(byte)).unwrap()
    }

    #[test]
    fn the_file_wins_and_keeps_the_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let open = |key| Keys::open(Some(dir.path()), key, false).unwrap();
        assert_eq!(open(None).apply(&KeyOperation::List), Err(KeyError::NotEncrypted));
        let keys = open(Some(key(1)));
        assert_eq!(keys.apply(&KeyOperation::Install(text(2))), Ok(KeyList(vec![text(1), text(2)])));
        assert_eq!(keys.apply(&KeyOperation::Use(text(2))), Ok(KeyList(vec![text(2), text(1)])));
        assert_eq!(keys.apply(&KeyOperation::Remove(text(2))), Err(KeyError::Primary));
        assert_eq!(keys.apply(&KeyOperation::Remove(text(1))), Ok(KeyList(vec![text(2)])));
        assert_eq!(keys.apply(&KeyOperation::Install("x".into())), Err(KeyError::NotAKey));
        let path = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("[\"{}\"]", text(2)));
        assert_eq!(open(Some(key(1))).ring().primary(), Some(&key(2)));
        std::fs::write(&path, "[\"short\"]").unwrap();
        assert!(matches!(Keys::open(Some(dir.path()), None, false), Err(Error::Keyring { .. })));
    }

    #[test]
    fn a_change_over_begins_without_a_key() {
        let keys = Keys::open(None, None, true).unwrap();
        assert_eq!(keys.apply(&KeyOperation::List), Ok(KeyList(Vec::new())));
        assert_eq!(keys.apply(&KeyOperation::Install(text(1))), Ok(KeyList(vec![text(1)])));
        assert_eq!(keys.ring().primary(), Some(&key(1)));
    }
}
