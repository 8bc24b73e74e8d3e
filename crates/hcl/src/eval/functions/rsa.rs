//! `rsadecrypt`: PKCS #1 v1.5 decryption (RFC 8017, 7.2.2) with a private key in PEM, without a passphrase, as
//! PKCS #1, PKCS #8 or OpenSSH write it. For values that were encrypted to be kept in a repository; whoever can
//! measure how long this takes has the job file and the key anyway.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use num_bigint::BigUint;

use super::encoding::base64_text;
use super::{Function, P, Result, f, text};
use crate::value::Value;

/// Longer keys are refused: the work grows with the cube of the length.
const MAX_BITS: u64 = 8192;

pub(super) const TABLE: &[Function] = &[Function {
    work: |_| 200_000,
    ..f("rsadecrypt", &[("ciphertext", P::Str), ("privatekey", P::Str)], |_, a| {
        decrypt(&text(&a[0]), &text(&a[1])).map(Value::str)
    })
}];

/// What of a private key is needed.
struct Key {
    modulus: BigUint,
    exponent: BigUint,
}

fn decrypt(ciphertext: &str, pem: &str) -> Result<String> {
    let cipher = base64_text(ciphertext).ok_or("the cipher text must be base64-encoded")?;
    let key = read_key(pem).ok_or(
        "the key must be an RSA private key in PEM (PKCS #1, PKCS #8 or OpenSSH) without a passphrase",
    )?;
    let failed = || "the cipher text was not encrypted for this key".to_owned();
    let cipher = BigUint::from_bytes_be(&cipher);
    if key.modulus.bits() > MAX_BITS {
        return Err(format!("keys of more than {MAX_BITS} bits are not supported"));
    }
    if key.modulus < BigUint::from(256_u32) || cipher >= key.modulus {
        return Err(failed());
    }
    let length = usize::try_from(key.modulus.bits().div_ceil(8)).map_err(|e| e.to_string())?;
    let message = cipher.modpow(&key.exponent, &key.modulus).to_bytes_be();
    let mut block = vec![0; length - message.len()];
    block.extend_from_slice(&message);
    // 0, 2, at least eight bytes of padding that are not zero, 0, the message.
    let zero = block.iter().skip(2).position(|b| *b == 0).filter(|at| *at >= 8).ok_or_else(failed)?;
    if block[..2] != [0, 2] {
        return Err(failed());
    }
    String::from_utf8(block.split_off(zero + 3)).map_err(|_| "the message is not valid UTF-8".to_owned())
}

fn read_key(pem: &str) -> Option<Key> {
    let start = pem.find("-----BEGIN ")? + "-----BEGIN ".len();
    let (kind, rest) = pem[start..].split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let body: String = body.split_whitespace().collect();
    let bytes = STANDARD.decode(body).ok()?;
    match kind {
        "RSA PRIVATE KEY" => pkcs1(&bytes),
        "PRIVATE KEY" => {
            let mut outer = Der(&bytes).inside(0x30)?;
            let _version = outer.inside(0x02)?;
            let _algorithm = outer.inside(0x30)?;
            pkcs1(outer.inside(0x04)?.0)
        }
        "OPENSSH PRIVATE KEY" => openssh(&bytes),
        _ => None,
    }
}

fn pkcs1(bytes: &[u8]) -> Option<Key> {
    let mut all = Der(bytes).inside(0x30)?;
    let mut number = || Some(BigUint::from_bytes_be(all.inside(0x02)?.0));
    let (_version, modulus, _public, exponent) = (number()?, number()?, number()?, number()?);
    Some(Key { modulus, exponent })
}

/// Values of DER one after the other.
struct Der<'b>(&'b [u8]);

impl<'b> Der<'b> {
    /// The content of the next value, which must have this tag.
    fn inside(&mut self, tag: u8) -> Option<Der<'b>> {
        let (first, rest) = self.0.split_first()?;
        let (short, mut rest) = rest.split_first()?;
        let length = if *short < 0x80 {
            usize::from(*short)
        } else {
            let bytes = usize::from(short & 0x7f);
            if bytes > 4 {
                return None;
            }
            let (length, after) = rest.split_at_checked(bytes)?;
            rest = after;
            length.iter().fold(0, |n, b| n << 8 | usize::from(*b))
        };
        let (inner, after) = rest.split_at_checked(length)?;
        self.0 = after;
        (*first == tag).then_some(Der(inner))
    }
}

/// `openssh-key-v1`, see PROTOCOL.key of OpenSSH.
fn openssh(bytes: &[u8]) -> Option<Key> {
    let mut all = Fields(bytes.strip_prefix(b"openssh-key-v1\0")?);
    if (all.field()?, all.field()?) != (b"none", b"none") {
        return None;
    }
    let _options = all.field()?;
    if all.take(4)? != [0, 0, 0, 1] {
        return None;
    }
    let _public = all.field()?;
    let mut key = Fields(all.field()?);
    let _check = key.take(8)?;
    if key.field()? != b"ssh-rsa" {
        return None;
    }
    let modulus = BigUint::from_bytes_be(key.field()?);
    let _public = key.field()?;
    Some(Key { modulus, exponent: BigUint::from_bytes_be(key.field()?) })
}

/// Fields with their length in front.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<&'b [u8]> {
        let length = self.take(4)?.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "hello world", encrypted with OpenSSL for the keys in `tests/keys`, which are one key.
    const CIPHER: &str = "ynbvuuibaWsVgkLK8HF4arVM2yJlUTMH5/T5yRYGeG2r/2l9PDrLIX1X+rno9lA1fI+sf/yRQWgmpMkkUOmrFuyq5ZPiksZeDcFmh5b4l98kHH/8H63rO4DeSNQISwQ0B4WJN6ldXp/IhWJLarY1qBCwQ9hOlBLXhDce+h9OJrA=";

    #[test]
    fn messages_are_decrypted_with_keys_of_all_notations() {
        let keys = [
            include_str!("../../../tests/keys/pkcs1.pem"),
            include_str!("../../../tests/keys/pkcs8.pem"),
            include_str!("../../../tests/keys/openssh.pem"),
        ];
        for key in keys {
            assert_eq!(decrypt(CIPHER, key).as_deref(), Ok("hello world"));
        }
        for (cipher, key, want) in [
            ("!", keys[0], "base64"),
            (CIPHER, "no key", "in PEM"),
            ("AAAA", keys[0], "not encrypted for this key"),
            (&CIPHER.replace('y', "x"), keys[0], "not encrypted for this key"),
        ] {
            let error = decrypt(cipher, key).unwrap_err();
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
