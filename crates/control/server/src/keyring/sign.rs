//! Signing with a root key: each key has an RSA key pair, created on first use.
//!
//! The algorithm is RS256 (RFC 7518 section 3.3), because all readers of key sets support it.

use super::KeyringFault;
use crate::runtime;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use caravan_types::identity::Claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use parking_lot::RwLock;
use rsa::pkcs1::{DecodeRsaPrivateKey as _, EncodeRsaPrivateKey as _};
use rsa::rand_core::OsRng;
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, RsaPublicKey};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The file extension of key pairs.
pub(super) const SUFFIX: &str = ".rsa";
/// The size of a modulus in bits.
const BITS: usize = 2048;

/// A signer and verifier with the key pair of one root key.
pub(crate) struct Signer {
    id: String,
    signing: EncodingKey,
    verifying: DecodingKey,
    public: RsaPublicKey,
    der: Vec<u8>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The public key as a JSON web key (RFC 7517).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Jwk {
    #[serde(rename = "use")]
    purpose: &'static str,
    kty: &'static str,
    kid: String,
    alg: &'static str,
    n: String,
    e: String,
}

/// The reason that a text is not an identity of this cluster, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unsigned(pub(crate) &'static str);

impl Signer {
    fn new(id: &str, private: &RsaPrivateKey) -> Result<Self, KeyringFault> {
        let public = private.to_public_key();
        let der = private.to_pkcs1_der().map_err(|e| KeyringFault::EncodeKeyPair(Arc::new(e)))?;
        let signing = EncodingKey::from_rsa_der(der.as_bytes());
        let verifying =
            DecodingKey::from_rsa_raw_components(&public.n().to_bytes_be(), &public.e().to_bytes_be());
        let der = der.as_bytes().to_vec();
        Ok(Self { id: id.to_owned(), signing, verifying, public, der })
    }

    /// Reads a key pair in the format of PKCS #1.
    pub(super) fn from_der(id: &str, der: &[u8]) -> Result<Self, KeyringFault> {
        let foreign = |_| KeyringFault::ForeignMaterial { key: id.to_owned() };
        Self::new(id, &RsaPrivateKey::from_pkcs1_der(der).map_err(foreign)?)
    }

    /// Returns the key pair in the format of PKCS #1.
    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the public key.
    pub(crate) fn jwk(&self) -> Jwk {
        Jwk {
            purpose: "sig",
            kty: "RSA",
            kid: self.id.clone(),
            alg: "RS256",
            n: BASE64URL.encode(self.public.n().to_bytes_be()),
            e: BASE64URL.encode(self.public.e().to_bytes_be()),
        }
    }

    /// Signs claims and returns the token.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, KeyringFault> {
        let header = Header { kid: Some(self.id.clone()), ..Header::new(Algorithm::RS256) };
        jsonwebtoken::encode(&header, claims, &self.signing).map_err(|e| KeyringFault::Sign(Arc::new(e)))
    }

    /// Returns the claims of a token that this key signed. The token may have expired.
    pub(crate) fn open(&self, token: &str) -> Result<Claims, Unsigned> {
        let mut rules = Validation::new(Algorithm::RS256);
        rules.required_spec_claims.clear();
        rules.validate_exp = false;
        rules.validate_nbf = false;
        rules.validate_aud = false;
        let opened = jsonwebtoken::decode(token, &self.verifying, &rules);
        opened.map(|token| token.claims).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => Unsigned("the signature of the token is not right"),
            _ => Unsigned("the token is malformed"),
        })
    }

    /// Returns the id of the key that a token names.
    pub(crate) fn key_of(token: &str) -> Option<String> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        header.kid.filter(|_| header.alg == Algorithm::RS256)
    }
}

/// The key pairs that this server has.
#[derive(Debug, Default)]
pub(super) struct Signers {
    known: RwLock<BTreeMap<String, Arc<Signer>>>,
    making: tokio::sync::Mutex<()>,
}

impl Signers {
    /// Reads the key pairs of a directory.
    pub(super) fn read(dir: &Path) -> Result<Self, KeyringFault> {
        let mut known = BTreeMap::new();
        let entries = std::fs::read_dir(dir).map_err(KeyringFault::file(dir))?;
        for entry in entries {
            let path = entry.map_err(KeyringFault::file(dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|n| n.strip_suffix(SUFFIX));
            let Some(id) = name else { continue };
            let bytes = std::fs::read(&path).map_err(KeyringFault::file(&path))?;
            let private =
                RsaPrivateKey::from_pkcs1_der(&bytes).map_err(|_| KeyringFault::Damaged(path.clone()))?;
            known.insert(id.to_owned(), Arc::new(Signer::new(id, &private)?));
        }
        Ok(Self { known: RwLock::new(known), making: tokio::sync::Mutex::default() })
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Signer>> {
        self.known.read().get(id).cloned()
    }

    pub(super) fn remove(&self, id: &str) {
        self.known.write().remove(id);
    }

    pub(super) fn add(&self, signer: Signer) -> Arc<Signer> {
        let signer = Arc::new(signer);
        self.known.write().insert(signer.id.clone(), signer.clone());
        signer
    }

    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.making.lock().await
    }

    pub(super) fn is_making(&self) -> bool {
        self.making.try_lock().is_err()
    }
}

/// Creates a key pair.
pub(super) async fn make(id: &str) -> Result<Signer, KeyringFault> {
    let id = id.to_owned();
    let made = runtime::spawn_blocking(move || {
        let private = RsaPrivateKey::new(&mut OsRng, BITS).map_err(|e| KeyringFault::KeyPair(Arc::new(e)))?;
        Signer::new(&id, &private)
    });
    made.await.map_err(|e| KeyringFault::Task(Arc::new(e)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_signed_is_read_with_the_same_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let signer = make("k1").await.unwrap();
        let claims = Claims { job_id: "web".into(), exp: Some(5), ..Claims::default() };
        let token = signer.sign(&claims).unwrap();
        assert_eq!(Signer::key_of(&token).as_deref(), Some("k1"));
        assert_eq!(signer.open(&token).unwrap(), claims);
        std::fs::write(dir.path().join("k1.rsa"), signer.der()).unwrap();
        let again = Signers::read(dir.path()).unwrap().get("k1").unwrap();
        assert_eq!((again.open(&token).unwrap(), again.jwk()), (claims, signer.jwk()));
        let (text, _) = token.rsplit_once('.').unwrap();
        for bad in [format!("{text}.AAAA"), "a.b.c".to_owned(), String::new(), format!("x{token}")] {
            assert!(signer.open(&bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_value(signer.jwk()).unwrap()["e"], "AQAB");
    }
}
