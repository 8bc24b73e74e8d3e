//! Digests, password hashes and identifiers.

use super::{Function, P, Result, f, text, v, whole};
use crate::value::Value;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

const STR: &[(&str, P)] = &[("str", P::Str)];

/// The maximum cost that bcrypt supports. The limit on work ends an evaluation sooner: at cost 20 (`work`).
const MAX_COST: u32 = 31;
/// The cost if the call requests none, or less than [`MIN_COST`].
const DEFAULT_COST: u32 = 10;
const MIN_COST: u32 = 4;
/// The maximum length in bytes; bcrypt would ignore the rest of a longer password.
const MAX_PASSWORD: usize = 72;

#[expect(clippy::disallowed_methods, reason = "the language's own source of fresh ids")]
pub(super) const TABLE: &[Function] = &[
    Function {
        // Each increment of the cost doubles the work.
        work: |a| cost(a).map_or(0, |cost| 4 << cost),
        ..v("bcrypt", &[("str", P::Str)], ("cost", P::Num), |_, a| {
            if a.len() > 2 {
                return Err("bcrypt() takes no more than two arguments".into());
            }
            password_hash(&text(&a[0]), cost(&a)?).map(Value::str)
        })
    },
    f("md5", STR, |_, a| Ok(Value::str(hex::<Md5>(&text(&a[0]))))),
    f("sha1", STR, |_, a| Ok(Value::str(hex::<Sha1>(&text(&a[0]))))),
    f("sha256", STR, |_, a| Ok(Value::str(hex::<Sha256>(&text(&a[0]))))),
    f("sha512", STR, |_, a| Ok(Value::str(hex::<Sha512>(&text(&a[0]))))),
    f("uuidv4", &[], |_, _| Ok(Value::str(uuid::Uuid::new_v4().to_string()))),
    f("uuidv5", &[("namespace", P::Str), ("name", P::Str)], |_, a| uuidv5(&text(&a[0]), &text(&a[1]))),
];

fn hex<D: Digest>(text: &str) -> String {
    D::digest(text).iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the cost that the arguments of `bcrypt` request.
fn cost(a: &[Value]) -> Result<u32> {
    let Some(desired) = a.get(1) else { return Ok(DEFAULT_COST) };
    let desired = whole(desired)?;
    match u32::try_from(desired) {
        Ok(cost @ MIN_COST..=MAX_COST) => Ok(cost),
        _ if desired < i64::from(MIN_COST) => Ok(DEFAULT_COST),
        _ => Err(format!("the cost {desired} is not in the range from {MIN_COST} to {MAX_COST}").into()),
    }
}

/// Hashes a password with a random salt.
#[expect(clippy::disallowed_methods, reason = "the language asks for a fresh salt")]
fn password_hash(password: &str, cost: u32) -> Result<String> {
    if password.len() > MAX_PASSWORD {
        return Err(format!("the password must not be longer than {MAX_PASSWORD} bytes").into());
    }
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let mixed = Sha256::digest([random[0].into_bytes(), random[1].into_bytes()].concat());
    let mut salt = [0; 16];
    salt.copy_from_slice(&mixed[..16]);
    with_salt(password, cost, salt)
}

fn with_salt(password: &str, cost: u32, salt: [u8; 16]) -> Result<String> {
    let parts = bcrypt::hash_with_salt(password, cost, salt).map_err(|e| e.to_string())?;
    Ok(parts.format_for_version(bcrypt::Version::TwoA))
}

/// Returns a UUID of version 5 (RFC 9562, section 5.5).
fn uuidv5(namespace: &str, name: &str) -> Result<Value> {
    let namespace = match namespace {
        "dns" => uuid::Uuid::NAMESPACE_DNS,
        "url" => uuid::Uuid::NAMESPACE_URL,
        "oid" => uuid::Uuid::NAMESPACE_OID,
        "x500" => uuid::Uuid::NAMESPACE_X500,
        other => uuid::Uuid::parse_str(other)
            .map_err(|e| format!("uuidv5() doesn't support namespace {other:?}: {e}"))?,
    };
    let digest = Sha1::new().chain_update(namespace.as_bytes()).chain_update(name).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Ok(Value::str(uuid::Builder::from_sha1_bytes(bytes).into_uuid().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        assert_eq!(hex::<Md5>("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex::<Sha1>("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    }

    #[test]
    fn passwords() {
        // "CCCCCCCCCCCCCCCCCCCCC." in bcrypt's alphabet.
        let salt =
            [0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10];
        assert_eq!(
            with_salt("U*U", 5, salt).unwrap(),
            "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
        );
        assert!(password_hash("pw", 5).unwrap().starts_with("$2a$05$"));
        assert!(password_hash("", 4).unwrap().starts_with("$2a$04$"));
        assert!(password_hash(&"x".repeat(73), 4).is_err());
        for (expected, found) in [(3, Some(10)), (-1, Some(10)), (4, Some(4)), (31, Some(31)), (32, None)] {
            assert_eq!(cost(&[Value::NULL, Value::int(expected)]).ok(), found, "{expected}");
        }
    }
}
