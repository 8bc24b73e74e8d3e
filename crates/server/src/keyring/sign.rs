//! Signing with a root key: each has an RSA key pair, created on first use.
//!
//! The algorithm is RS256 (RFC 7518 section 3.3), because all readers of key sets support it.

use super::failed;
use crate::error::ServerError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use caravan_types::identity::Claims;
use parking_lot::RwLock;
use rsa::pkcs1::{DecodeRsaPrivateKey as _, EncodeRsaPrivateKey as _};
use rsa::pkcs1v15::{Signature, SigningKey, VerifyingKey};
use rsa::rand_core::OsRng;
use rsa::sha2::Sha256;
use rsa::signature::{Keypair as _, RandomizedSigner as _, SignatureEncoding as _, Verifier as _};
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, RsaPublicKey};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File extension of key pairs.
pub(super) const SUFFIX: &str = ".rsa";
/// Size of a modulus in bits.
const BITS: usize = 2048;

/// Signs and verifies with the key pair of one root key.
pub(crate) struct Signer {
    id: String,
    signing: SigningKey<Sha256>,
    verifying: VerifyingKey<Sha256>,
    public: RsaPublicKey,
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

/// Why a text is not an identity of this cluster, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unsigned(pub(crate) &'static str);

impl Signer {
    fn new(id: &str, private: RsaPrivateKey) -> Self {
        let public = private.to_public_key();
        let signing = SigningKey::new(private);
        let verifying = signing.verifying_key();
        Self { id: id.to_owned(), signing, verifying, public }
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
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, ServerError> {
        let header = json!({"alg": "RS256", "kid": self.id, "typ": "JWT"});
        let claims = serde_json::to_vec(claims).map_err(failed)?;
        let text = format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims));
        let signature = self.signing.sign_with_rng(&mut OsRng, text.as_bytes());
        Ok(format!("{text}.{}", BASE64URL.encode(signature.to_bytes())))
    }

    /// Returns the claims of a token that this key signed. The token may have expired.
    pub(crate) fn open(&self, token: &str) -> Result<Claims, Unsigned> {
        let malformed = Unsigned("the token is malformed");
        let (text, signature) = token.rsplit_once('.').ok_or_else(|| malformed.clone())?;
        let (_, claims) = text.split_once('.').ok_or_else(|| malformed.clone())?;
        let signature = BASE64URL.decode(signature).map_err(|_| malformed.clone())?;
        let signature = Signature::try_from(signature.as_slice()).map_err(|_| malformed.clone())?;
        self.verifying
            .verify(text.as_bytes(), &signature)
            .map_err(|_| Unsigned("the signature of the token is not right"))?;
        let claims = BASE64URL.decode(claims).map_err(|_| malformed.clone())?;
        serde_json::from_slice(&claims).map_err(|_| malformed)
    }

    /// Returns the id of the key that a token names.
    pub(crate) fn key_of(token: &str) -> Option<String> {
        let (header, _) = token.split_once('.')?;
        let header: Value = serde_json::from_slice(&BASE64URL.decode(header).ok()?).ok()?;
        if header["alg"] != "RS256" {
            return None;
        }
        Some(header["kid"].as_str()?.to_owned())
    }
}

/// The key pairs that exist.
#[derive(Debug, Default)]
pub(super) struct Signers {
    known: RwLock<BTreeMap<String, Arc<Signer>>>,
    making: tokio::sync::Mutex<()>,
}

impl Signers {
    /// Reads the key pairs of a directory.
    pub(super) fn read(dir: &Path) -> Result<Self, ServerError> {
        let mut known = BTreeMap::new();
        let entries = std::fs::read_dir(dir).map_err(|e| failed(format!("{}: {e}", dir.display())))?;
        for entry in entries {
            let path = entry.map_err(|e| failed(format!("{}: {e}", dir.display())))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|n| n.strip_suffix(SUFFIX));
            let Some(id) = name else { continue };
            let bytes = std::fs::read(&path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
            let private = RsaPrivateKey::from_pkcs1_der(&bytes)
                .map_err(|_| failed(format!("{} is damaged", path.display())))?;
            known.insert(id.to_owned(), Arc::new(Signer::new(id, private)));
        }
        Ok(Self { known: RwLock::new(known), making: tokio::sync::Mutex::default() })
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Signer>> {
        self.known.read().get(id).cloned()
    }

    pub(super) fn forget(&self, id: &str) {
        self.known.write().remove(id);
    }

    pub(super) async fn get_or_make(
        &self,
        id: &str,
        dir: Option<PathBuf>,
    ) -> Result<Arc<Signer>, ServerError> {
        if let Some(signer) = self.get(id) {
            return Ok(signer);
        }
        let _turn = self.making.lock().await;
        if let Some(signer) = self.get(id) {
            return Ok(signer);
        }
        let name = id.to_owned();
        let made = tokio::task::spawn_blocking(move || make(&name, dir.as_deref()));
        let signer = Arc::new(made.await.map_err(failed)??);
        let mut known = self.known.write();
        known.insert(id.to_owned(), signer.clone());
        Ok(signer)
    }
}

fn make(id: &str, dir: Option<&Path>) -> Result<Signer, ServerError> {
    let private = RsaPrivateKey::new(&mut OsRng, BITS).map_err(failed)?;
    if let Some(dir) = dir {
        let der = private.to_pkcs1_der().map_err(failed)?;
        let path = dir.join(format!("{id}{SUFFIX}"));
        caravan_sys::files::atomic_write(&path, der.as_bytes(), 0o600).map_err(failed)?;
    }
    Ok(Signer::new(id, private))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_signed_is_read_with_the_same_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let signers = Signers::default();
        let signer = signers.get_or_make("k1", Some(dir.path().to_owned())).await.unwrap();
        let claims = Claims { job_id: "web".into(), exp: Some(5), ..Claims::default() };
        let token = signer.sign(&claims).unwrap();
        assert_eq!(Signer::key_of(&token).as_deref(), Some("k1"));
        assert_eq!(signer.open(&token).unwrap(), claims);
        let again = Signers::read(dir.path()).unwrap().get("k1").unwrap();
        assert_eq!((again.open(&token).unwrap(), again.jwk()), (claims, signer.jwk()));
        let (text, _) = token.rsplit_once('.').unwrap();
        for bad in [format!("{text}.AAAA"), "a.b.c".to_owned(), String::new(), format!("x{token}")] {
            assert!(signer.open(&bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_value(signer.jwk()).unwrap()["e"], "AQAB");
    }
}
