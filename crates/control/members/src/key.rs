//! Gossip keys. A key seals messages with XChaCha20-Poly1305, under a key that HKDF-SHA256 (RFC 5869)
//! derives from the 16, 24 or 32 bytes of the user. A tag, which is derived too, names the key in each
//! message and reveals nothing about it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Size of a nonce in bytes. Nonces of this size are long enough to be random.
pub(crate) const NONCE: usize = 24;
/// Size of a key's tag in bytes.
pub(crate) const TAG: usize = 8;

/// The name of a key in messages and logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyTag(pub(crate) [u8; TAG]);

impl fmt::Display for KeyTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reasons for which a change of the key ring is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not base64 of 16, 24 or 32 bytes.
    #[error("a gossip key is base64 of 16, 24 or 32 bytes")]
    NotAKey,
    /// The ring has no such key.
    #[error("the key is not in the ring: install it first")]
    Unknown,
    /// The primary key cannot be removed.
    #[error("the primary key cannot be removed: use another key first")]
    Primary,
    /// The server does not encrypt, and the configuration permits no change-over.
    #[error(
        "encryption is not enabled: set server.encrypt, or server.encrypt_accept_plain for a change-over"
    )]
    NotEncrypted,
    /// The file of the ring cannot be written.
    #[error("the key ring file cannot be written: {0}")]
    File(String),
}

/// One gossip key.
#[derive(Clone)]
pub struct Key {
    /// The user's bytes.
    secret: Vec<u8>,
    cipher: XChaCha20Poly1305,
    tag: KeyTag,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.tag)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.secret.ct_eq(&other.secret).into()
    }
}

impl Eq for Key {}

impl Key {
    /// Reads a key from base64.
    ///
    /// # Errors
    /// [`KeyError::NotAKey`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let secret = BASE64.decode(text.trim()).map_err(|_| KeyError::NotAKey)?;
        if !matches!(secret.len(), 16 | 24 | 32) {
            return Err(KeyError::NotAKey);
        }
        let derive = Hkdf::<Sha256>::new(None, &secret);
        let (mut key, mut tag) = ([0; 32], [0; TAG]);
        let fits = "the output of HKDF is shorter than its maximum";
        derive.expand(b"caravan gossip seal 1", &mut key).expect(fits);
        derive.expand(b"caravan gossip tag 1", &mut tag).expect(fits);
        Ok(Self { cipher: XChaCha20Poly1305::new(&key.into()), secret, tag: KeyTag(tag) })
    }

    /// Returns the key in base64.
    pub fn to_text(&self) -> String {
        BASE64.encode(&self.secret)
    }

    /// Returns the tag.
    pub fn tag(&self) -> KeyTag {
        self.tag
    }

    fn seal(&self, nonce: [u8; NONCE], context: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        self.cipher.encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: context }).ok()
    }

    fn open(&self, nonce: [u8; NONCE], context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        self.cipher.decrypt(&XNonce::from(nonce), Payload { msg: sealed, aad: context }).ok()
    }
}

/// The keys of a server. The first one, the primary key, seals; all of them open. Without keys, nothing is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring(Vec<Key>);

impl Ring {
    /// Creates a ring with these keys, without repetitions.
    pub(crate) fn new(keys: impl IntoIterator<Item = Key>) -> Self {
        let mut ring = Self::default();
        for key in keys {
            if !ring.0.contains(&key) {
                ring.0.push(key);
            }
        }
        ring
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.0
    }

    pub(crate) fn primary(&self) -> Option<&Key> {
        self.0.first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ring with an additional key. The first key becomes the primary one.
    pub(crate) fn installed(&self, key: Key) -> Self {
        Self::new(self.0.iter().cloned().chain([key]))
    }

    /// Returns the ring with another primary key.
    pub(crate) fn using(&self, key: &Key) -> Result<Self, KeyError> {
        if !self.0.contains(key) {
            return Err(KeyError::Unknown);
        }
        Ok(Self::new([key.clone()].into_iter().chain(self.0.iter().cloned())))
    }

    /// Returns the ring without a key. Removing an absent key is no error.
    pub(crate) fn without(&self, key: &Key) -> Result<Self, KeyError> {
        if self.primary() == Some(key) {
            return Err(KeyError::Primary);
        }
        Ok(Self(self.0.iter().filter(|own| *own != key).cloned().collect()))
    }

    /// Seals with the primary key. `None` without keys.
    pub(crate) fn seal(&self, nonce: [u8; NONCE], context: &[u8], plain: &[u8]) -> Option<(KeyTag, Vec<u8>)> {
        let key = self.primary()?;
        Some((key.tag, key.seal(nonce, context, plain)?))
    }

    /// Opens sealed bytes with the key of a tag. The outer `None`: the ring lacks the key. The inner
    /// `None`: the key did not seal these bytes in this context.
    pub(crate) fn open(
        &self,
        tag: KeyTag,
        nonce: [u8; NONCE],
        context: &[u8],
        sealed: &[u8],
    ) -> Option<Option<Vec<u8>>> {
        let key = self.0.iter().find(|key| key.tag == tag)?;
        Some(key.open(nonce, context, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn key(byte: u8) -> Key {
        Key::parse(&BASE64.encode([byte; 32])).unwrap()
    }

    #[test]
    fn keys_have_three_lengths() {
        for length in 0..40_usize {
            let text = BASE64.encode(vec![7; length]);
            assert_eq!(Key::parse(&text).is_ok(), matches!(length, 16 | 24 | 32), "{length}");
        }
        assert_eq!(Key::parse("no base64!"), Err(KeyError::NotAKey));
        assert_eq!(Key::parse(&key(1).to_text()).unwrap(), key(1));
        assert!(!format!("{:?}", key(1)).contains(&key(1).to_text()));
    }

    #[test]
    fn a_ring_opens_with_every_key_and_seals_with_the_first() {
        let ring = Ring::new([key(1), key(2), key(1)]);
        assert_eq!(ring.keys().len(), 2);
        let (tag, sealed) = ring.seal([3; NONCE], b"context", b"text").unwrap();
        assert_eq!(tag, key(1).tag());
        let reader = Ring::new([key(2), key(1)]);
        assert_eq!(reader.open(tag, [3; NONCE], b"context", &sealed).unwrap().unwrap(), b"text");
        assert_eq!(reader.open(tag, [3; NONCE], b"other", &sealed), Some(None));
        assert_eq!(Ring::new([key(2)]).open(tag, [3; NONCE], b"context", &sealed), None);
        assert!(Ring::default().seal([0; NONCE], b"", b"").is_none());
    }

    #[test]
    fn rotation_installs_uses_and_removes() {
        let ring = Ring::new([key(1)]).installed(key(2));
        assert_eq!(ring.primary(), Some(&key(1)));
        assert_eq!(ring.without(&key(1)), Err(KeyError::Primary));
        assert_eq!(ring.using(&key(3)), Err(KeyError::Unknown));
        let ring = ring.using(&key(2)).unwrap();
        assert_eq!(ring.primary(), Some(&key(2)));
        assert_eq!(ring.without(&key(1)).unwrap(), Ring::new([key(2)]));
        assert_eq!(ring.without(&key(3)).unwrap(), ring);
    }
}
