//! Tokens of an external issuer. The recorded tokens have expired, and their private key is unknown. The replay
//! trusts its own key, and signs the same claims with that key, with their times moved to today.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rsa::pkcs1v15::SigningKey;
use rsa::pkcs8::{EncodePublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use rsa::sha2::Sha256;
use rsa::signature::{SignatureEncoding as _, Signer as _};
use rsa::{RsaPrivateKey, RsaPublicKey};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The time when the recorded tokens were created, in seconds since 1970.
const RECORDED: i64 = 1_795_251_736;

fn key() -> &'static RsaPrivateKey {
    static KEY: OnceLock<RsaPrivateKey> = OnceLock::new();
    KEY.get_or_init(|| RsaPrivateKey::new(&mut OsRng, 2048).expect("a machine has randomness"))
}

/// Returns the trusted key in place of a recorded public key.
pub fn public_key() -> String {
    RsaPublicKey::from(key()).to_public_key_pem(LineEnding::LF).expect("every key has this form")
}

/// Signs a recorded token again; `None` if the text is not a token.
pub fn signed_again(token: &str) -> Option<String> {
    let (text, _) = token.rsplit_once('.')?;
    let (header, claims) = text.split_once('.')?;
    let part = |text: &str| serde_json::from_slice::<Value>(&BASE64.decode(text).ok()?).ok();
    let (header, mut claims) = (part(header)?, part(claims)?);
    let now = caravan_sys::time::wall_nanos() / 1_000_000_000;
    for name in ["iat", "nbf", "exp"] {
        if let Some(at) = claims[name].as_i64() {
            claims[name] = json!(at - RECORDED + now);
        }
    }
    let text = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
    let signature = SigningKey::<Sha256>::new(key().clone()).sign(text.as_bytes());
    Some(format!("{text}.{}", BASE64.encode(signature.to_bytes())))
}
