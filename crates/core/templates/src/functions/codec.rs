//! Functions that encode, decode and convert: JSON, YAML, base64, digests, numbers.

use super::{Function, f};
use crate::session::Answer;
use crate::value::{as_text, shown, text};
use crate::{json, yaml};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use gotmpl::Value;
use sha2::{Digest, Sha256};

pub(super) const TABLE: &[Function] = &[
    f("base64Encode", 1, |_, a| Ok(text(STANDARD.encode(as_text(&a[0])?)))),
    f("base64Decode", 1, |_, a| decode64(as_text(&a[0])?)),
    f("base64URLEncode", 1, |_, a| Ok(text(URL_SAFE.encode(as_text(&a[0])?)))),
    f("base64URLDecode", 1, |_, a| decode64(as_text(&a[0])?)),
    f("sha256Hex", 1, |_, a| Ok(text(hex(&Sha256::digest(as_text(&a[0])?))))),
    f("md5sum", 1, |_, a| hcl("md5", as_text(&a[0])?)),
    f("hmacSHA256Hex", 2, |_, a| {
        Ok(text(hex(&hmac(as_text(&a[1])?.as_bytes(), as_text(&a[0])?.as_bytes()))))
    }),
    f("parseBool", 1, |_, a| match as_text(&a[0])? {
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
        _ => Err("the text is neither true nor false".to_owned()),
    }),
    f("parseFloat", 1, |_, a| {
        number(&a[0], "a number", Value::Float(0.0), |t| t.parse().map(Value::Float).ok())
    }),
    f("parseInt", 1, |_, a| {
        number(&a[0], "a whole number", Value::Int(0), |t| t.parse().map(Value::Int).ok())
    }),
    f("parseUint", 1, |_, a| {
        number(&a[0], "a whole number above zero", Value::Uint(0), |t| t.parse().map(Value::Uint).ok())
    }),
    f("parseJSON", 1, |_, a| json::read(as_text(&a[0])?)),
    f("parseYAML", 1, |_, a| yaml::read(as_text(&a[0])?)),
    f("toJSON", 1, |_, a| Ok(text(json::escaped(&json::from_value(&a[0]).to_string())))),
    f("toJSONPretty", 1, |_, a| Ok(text(json::escaped(&json::pretty(&json::from_value(&a[0])))))),
    f("toUnescapedJSON", 1, |_, a| Ok(text(json::from_value(&a[0]).to_string()))),
    f("toUnescapedJSONPretty", 1, |_, a| Ok(text(json::pretty(&json::from_value(&a[0]))))),
    f("toYAML", 1, |_, a| Ok(text(yaml::write(&a[0])))),
];

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn decode64(from: &str) -> Answer {
    let from = from.trim();
    let any = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
    let bytes = any.iter().find_map(|engine| engine.decode(from).ok());
    let bytes = bytes.ok_or("the text is not base64")?;
    String::from_utf8(bytes).map(text).map_err(|_| "what was encoded is not text".to_owned())
}

/// Calls a function of the job language.
pub(super) fn hcl(name: &str, from: &str) -> Answer {
    let value = caravan_hcl::eval::functions::of_text(name, from)?;
    Ok(json::value(&value.to_json()))
}

/// Returns the HMAC of a message (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let short = if key.len() > BLOCK { Sha256::digest(key).to_vec() } else { key.to_vec() };
    let padded =
        |with: u8| -> Vec<u8> { (0..BLOCK).map(|i| short.get(i).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

/// Parses a text as a number. An absent value gives `zero`.
fn number(value: &Value, what: &str, zero: Value, read: impl Fn(&str) -> Option<Value>) -> Answer {
    let supplied = shown(value);
    let supplied = supplied.trim();
    match supplied.is_empty() {
        true => Ok(zero),
        // The error does not contain the text, which may be secret.
        false => read(supplied).ok_or_else(|| format!("the text is not {what}")),
    }
}
