//! `rsadecrypt`: PKCS #1 v1.5 decryption (RFC 8017, 7.2.2) with a private key. The key is in PEM, in the format of
//! PKCS #1, PKCS #8 or OpenSSH, without a passphrase. It serves values that are stored encrypted in a repository.
//! Timing attacks are not a concern: a caller that can measure the time already has the job file and the key.

use super::encoding::base64_text;
use super::{Function, P, Result, f, text};
use crate::value::Value;
use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::{BigUint, Pkcs1v15Encrypt, RsaPrivateKey};

pub(super) const TABLE: &[Function] = &[Function {
    work: |_| 200_000,
    ..f("rsadecrypt", &[("ciphertext", P::Str), ("privatekey", P::Str)], |_, a| {
        decrypt(&text(&a[0]), &text(&a[1])).map(Value::str)
    })
}];

fn decrypt(ciphertext: &str, pem: &str) -> Result<String> {
    let cipher = base64_text(ciphertext).ok_or("the cipher text must be base64-encoded")?;
    let key = read_key(pem).ok_or(
        "the key must be an RSA private key in PEM (PKCS #1, PKCS #8 or OpenSSH) without a passphrase",
    )?;
    let message = key
        .decrypt(Pkcs1v15Encrypt, &cipher)
        .map_err(|_| "the cipher text was not encrypted for this key".to_owned())?;
    String::from_utf8(message).map_err(|_| "the message is not valid UTF-8".into())
}

fn read_key(pem: &str) -> Option<RsaPrivateKey> {
    let pem = pem.trim();
    if pem.starts_with("-----BEGIN OPENSSH") {
        let key = ssh_key::PrivateKey::from_openssh(pem).ok()?;
        let key = key.key_data().rsa()?;
        // Convert each part separately, because the crate's own conversion rejects short keys, which PEM files may
        // contain.
        let part = |n| BigUint::try_from(n).ok();
        let primes = vec![part(&key.private.p)?, part(&key.private.q)?];
        let (n, e, d) = (part(&key.public.n)?, part(&key.public.e)?, part(&key.private.d)?);
        return RsaPrivateKey::from_components(n, e, d, primes).ok();
    }
    RsaPrivateKey::from_pkcs1_pem(pem).ok().or_else(|| RsaPrivateKey::from_pkcs8_pem(pem).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "hello world", encrypted by OpenSSL for the keys in `tests/keys`, which are one key in several formats.
    const CIPHER: &str = "ynbvuuibaWsVgkLK8HF4arVM2yJlUTMH5/T5yRYGeG2r/2l9PDrLIX1X+rno9lA1fI+sf/yRQWgmpMkkUOmrFuyq5ZPiksZeDcFmh5b4l98kHH/8H63rO4DeSNQISwQ0B4WJN6ldXp/IhWJLarY1qBCwQ9hOlBLXhDce+h9OJrA=";

    #[test]
    fn messages_are_decrypted_with_keys_of_all_notations() {
        let keys = [
            include_str!("../../../tests/keys/pkcs1.pem"),
            include_str!("../../../tests/keys/pkcs8.pem"),
            include_str!("../../../tests/keys/openssh.pem"),
        ];
        for key in keys {
            assert_eq!(decrypt(CIPHER, key).map_err(|e| e.text).as_deref(), Ok("hello world"));
        }
        for (cipher, key, want) in [
            ("!", keys[0], "base64"),
            (CIPHER, "no key", "in PEM"),
            ("AAAA", keys[0], "not encrypted for this key"),
            (&CIPHER.replace('y', "x"), keys[0], "not encrypted for this key"),
        ] {
            let error = decrypt(cipher, key).unwrap_err().text;
            assert!(error.contains(want), "{error}");
            assert!(!error.contains("BEGIN"), "{error}");
        }
    }

    #[test]
    fn broken_keys_are_refused() {
        let key = include_str!("../../../tests/keys/pkcs1.pem");
        for cut in (30..key.len() - 40).step_by(37) {
            assert!(decrypt(CIPHER, &key[..cut]).is_err());
            let _ = decrypt(CIPHER, &format!("{}\n-----END RSA PRIVATE KEY-----", &key[..cut]));
        }
    }
}
