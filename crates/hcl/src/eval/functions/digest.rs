//! Digests and identifiers.

use sha2::{Digest as _, Sha256, Sha512};

use super::{Function, P, Result, bcrypt, f, text, v, whole};
use crate::value::Value;

const STR: &[(&str, P)] = &[("str", P::Str)];

#[expect(clippy::disallowed_methods, reason = "the language's own source of fresh ids")]
pub(super) const TABLE: &[Function] = &[
    Function {
        // Each step of the cost doubles the work.
        work: |a| 4 << a.get(1).and_then(|cost| whole(cost).ok()).map_or(10, |cost| cost.clamp(4, 40)),
        ..v("bcrypt", &[("str", P::Str)], ("cost", P::Num), |_, a| {
            let cost = match a.as_slice() {
                [_] => 10,
                [_, cost] => whole(cost)?,
                _ => return Err("bcrypt() takes no more than two arguments".to_owned()),
            };
            bcrypt::hash(&text(&a[0]), cost).map(Value::str)
        })
    },
    f("md5", STR, |_, a| Ok(Value::str(hex(&md5(text(&a[0]).as_bytes()))))),
    f("sha1", STR, |_, a| Ok(Value::str(hex(&sha1(text(&a[0]).as_bytes()))))),
    f("sha256", STR, |_, a| Ok(Value::str(hex(&Sha256::digest(text(&a[0])))))),
    f("sha512", STR, |_, a| Ok(Value::str(hex(&Sha512::digest(text(&a[0])))))),
    f("uuidv4", &[], |_, _| Ok(Value::str(uuid::Uuid::new_v4().to_string()))),
    f("uuidv5", &[("namespace", P::Str), ("name", P::Str)], |_, a| uuidv5(&text(&a[0]), &text(&a[1]))),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// RFC 9562, section 5.5.
fn uuidv5(namespace: &str, name: &str) -> Result<Value> {
    let namespace = match namespace {
        "dns" => uuid::Uuid::NAMESPACE_DNS,
        "url" => uuid::Uuid::NAMESPACE_URL,
        "oid" => uuid::Uuid::NAMESPACE_OID,
        "x500" => uuid::Uuid::NAMESPACE_X500,
        other => uuid::Uuid::parse_str(other)
            .map_err(|e| format!("uuidv5() doesn't support namespace {other:?}: {e}"))?,
    };
    let mut input = namespace.as_bytes().to_vec();
    input.extend_from_slice(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sha1(&input)[..16]);
    Ok(Value::str(uuid::Builder::from_sha1_bytes(bytes).into_uuid().to_string()))
}

/// The message with its padding: a one bit, zeros, and the length in bits.
fn padded(message: &[u8], length: [u8; 8]) -> Vec<u8> {
    let mut out = message.to_vec();
    out.push(0x80);
    while out.len() % 64 != 56 {
        out.push(0);
    }
    out.extend_from_slice(&length);
    out
}

fn word(bytes: &[u8]) -> [u8; 4] {
    let mut out = [0; 4];
    out.copy_from_slice(bytes);
    out
}

/// FIPS 180-4, section 6.1. For checksums only; nothing here relies on its strength.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for chunk in padded(message, (message.len() as u64 * 8).to_be_bytes()).chunks_exact(64) {
        let mut w = [0_u32; 80];
        for (i, bytes) in chunk.chunks_exact(4).enumerate() {
            w[i] = u32::from_be_bytes(word(bytes));
        }
        for i in 16..80 {
            w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, w) in w.iter().enumerate() {
            let (f, k) = match i {
                0..=19 => ((b & c) | (!b & d), 0x5a82_7999),
                20..=39 => (b ^ c ^ d, 0x6ed9_eba1),
                40..=59 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*w);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d, e]) {
            *s = s.wrapping_add(v);
        }
    }
    let mut out = [0; 20];
    for (o, s) in out.chunks_exact_mut(4).zip(state) {
        o.copy_from_slice(&s.to_be_bytes());
    }
    out
}

/// RFC 1321. For checksums only.
fn md5(message: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for chunk in padded(message, (message.len() as u64 * 8).to_le_bytes()).chunks_exact(64) {
        let mut m = [0_u32; 16];
        for (i, bytes) in chunk.chunks_exact(4).enumerate() {
            m[i] = u32::from_le_bytes(word(bytes));
        }
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64_usize {
            let (f, g) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            let sum = a.wrapping_add(f).wrapping_add(sine(i)).wrapping_add(m[g]);
            let next = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
            (a, d, c, b) = (d, c, b, next);
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d]) {
            *s = s.wrapping_add(v);
        }
    }
    let mut out = [0; 16];
    for (o, s) in out.chunks_exact_mut(4).zip(state) {
        o.copy_from_slice(&s.to_le_bytes());
    }
    out
}

/// `floor(2^32 * |sin(i + 1)|)`, RFC 1321 section 3.4.
fn sine(i: usize) -> u32 {
    let i = u32::try_from(i).unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a sine times 2^32 fits 32 bits"
    )]
    let out = (f64::from(i + 1).sin().abs() * 4_294_967_296.0) as u32;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        assert_eq!(hex(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&sha1(&[b'a'; 1000])), "291e9a6c66994949b57ba5e650361e98fc36b1ba");
        assert_eq!(hex(&md5(&[b'a'; 1000])), "cabe45dcc9ae5b66ba86600cca6b8ba8");
    }
}
