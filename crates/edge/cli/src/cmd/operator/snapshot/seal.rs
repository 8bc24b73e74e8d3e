//! The key of a cluster, sealed with a passphrase.
//!
//! Argon2id (RFC 9106) derives a key from the passphrase, and XChaCha20-Poly1305 seals the key of the cluster with
//! it. Both are from libraries. The format begins with `CVKEY1`, and memory in KiB, passes and lanes of Argon2id (u32
//! each, little endian). The salt (16 bytes), the nonce (24 bytes) and the sealed key follow. Everything before the
//! nonce is authenticated with the key.

use argon2::{Algorithm, Argon2, Params, Version};
use caravan_state::archive::KEY;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use rand::TryRngCore as _;

const MAGIC: &[u8; 6] = b"CVKEY1";
const SALT: usize = 16;
const NONCE: usize = 24;
/// The size in bytes of the part before the nonce.
const HEAD: usize = MAGIC.len() + 12 + SALT;
/// The second recommended choice of RFC 9106, section 4: 64 MiB, three passes, four lanes.
const COSTS: Costs = Costs { memory_kib: 65_536, passes: 3, lanes: 4 };
/// The largest costs that are accepted in a file: 1 GiB of memory.
const MAX_COSTS: Costs = Costs { memory_kib: 1 << 20, passes: 16, lanes: 16 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Costs {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// The reasons for which a key is not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealError {
    #[error("no random numbers: {0}")]
    Random(rand::rand_core::OsError),
    #[error("the passphrase is empty")]
    Empty,
    #[error("the passphrase cannot be used: {0}")]
    Derive(argon2::Error),
    #[error("the key cannot be sealed")]
    Seal,
    #[error("the sealed key in the snapshot has a form that this version does not read")]
    Form,
    #[error("the passphrase is wrong, or the sealed key in the snapshot is damaged")]
    Wrong,
}

fn cipher(passphrase: &str, salt: &[u8], costs: Costs) -> Result<XChaCha20Poly1305, SealError> {
    if passphrase.is_empty() {
        return Err(SealError::Empty);
    }
    let params = Params::new(costs.memory_kib, costs.passes, costs.lanes, Some(KEY));
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.map_err(SealError::Derive)?);
    let mut key = [0; KEY];
    argon.hash_password_into(passphrase.as_bytes(), salt, &mut key).map_err(SealError::Derive)?;
    Ok(XChaCha20Poly1305::new((&key).into()))
}

/// Seals the key of a cluster with a passphrase.
pub(super) fn seal(key: &[u8; KEY], passphrase: &str) -> Result<Vec<u8>, SealError> {
    seal_with(key, passphrase, COSTS)
}

fn seal_with(key: &[u8; KEY], passphrase: &str, costs: Costs) -> Result<Vec<u8>, SealError> {
    let mut random = [0; SALT + NONCE];
    rand::rngs::OsRng.try_fill_bytes(&mut random).map_err(SealError::Random)?;
    let (salt, nonce) = random.split_at(SALT);
    let mut sealed = MAGIC.to_vec();
    for number in [costs.memory_kib, costs.passes, costs.lanes] {
        sealed.extend_from_slice(&number.to_le_bytes());
    }
    sealed.extend_from_slice(salt);
    let cipher = cipher(passphrase, salt, costs)?;
    let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| SealError::Seal)?;
    let text = cipher.encrypt(&XNonce::from(nonce), Payload { msg: key, aad: &sealed });
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(&text.map_err(|_| SealError::Seal)?);
    Ok(sealed)
}

/// Opens the key of a cluster with a passphrase.
pub(super) fn open(sealed: &[u8], passphrase: &str) -> Result<[u8; KEY], SealError> {
    let (head, rest) = sealed.split_at_checked(HEAD).ok_or(SealError::Form)?;
    let (nonce, text) = rest.split_at_checked(NONCE).ok_or(SealError::Form)?;
    let numbers = head.strip_prefix(MAGIC).ok_or(SealError::Form)?;
    let number = |at: usize| -> Result<u32, SealError> {
        let bytes = numbers.get(at * 4..at * 4 + 4).ok_or(SealError::Form)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| SealError::Form)?))
    };
    let costs = Costs { memory_kib: number(0)?, passes: number(1)?, lanes: number(2)? };
    let is_too_costly = costs.memory_kib > MAX_COSTS.memory_kib
        || costs.passes > MAX_COSTS.passes
        || costs.lanes > MAX_COSTS.lanes;
    if is_too_costly {
        return Err(SealError::Form);
    }
    let cipher = cipher(passphrase, &numbers[12..], costs)?;
    let nonce = <[u8; NONCE]>::try_from(nonce).map_err(|_| SealError::Form)?;
    let key = cipher.decrypt(&XNonce::from(nonce), Payload { msg: text, aad: head });
    key.map_err(|_| SealError::Wrong)?.try_into().map_err(|_| SealError::Form)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Costs = Costs { memory_kib: 64, passes: 1, lanes: 1 };

    #[test]
    fn only_the_passphrase_opens_a_sealed_key() {
        let key = [9; KEY];
        let sealed = seal_with(&key, "correct horse", CHEAP).unwrap();
        assert_eq!(open(&sealed, "correct horse").unwrap(), key);
        assert!(matches!(open(&sealed, "correct house"), Err(SealError::Wrong)));
        assert!(matches!(open(&sealed, ""), Err(SealError::Empty)));
        assert!(matches!(seal_with(&key, "", CHEAP), Err(SealError::Empty)));
        assert_ne!(seal_with(&key, "correct horse", CHEAP).unwrap(), sealed, "each has a salt of its own");
        assert!(!sealed.windows(KEY).any(|window| window == key));
    }

    #[test]
    fn a_changed_file_is_refused() {
        let sealed = seal_with(&[9; KEY], "p", CHEAP).unwrap();
        for at in [0, 14, 20, HEAD, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&changed, "p").is_err(), "byte {at}");
        }
        assert!(matches!(open(&sealed[..HEAD], "p"), Err(SealError::Form)));
        // Costs that would exhaust the memory are refused before any work.
        let mut costly = sealed;
        costly[MAGIC.len() + 3] = 0xff;
        assert!(matches!(open(&costly, "p"), Err(SealError::Form)));
    }
}
