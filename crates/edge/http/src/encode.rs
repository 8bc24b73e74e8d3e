//! JSON as Nomad writes it (docs/reference/http-api.md, section 2.1): keys in byte order, floats with a fraction or
//! exponent, nothing escaped for HTML.

use serde_json::{Map, Value};

/// The indentation of `pretty`.
const INDENT: &str = "    ";

/// The keys of the users' own values. Their numbers came as JSON, which has one number type: Nomad treats all of
/// them as floats, including integers.
const FREE: [&str; 4] = ["Config", "Policy", "Meta", "Claims"];

/// The numbers that are written as integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    /// The integers of the value, except below the users' own keys.
    AsKept,
    /// All integers: the value comes from a job file, whose language has integers.
    Everywhere,
    /// No number.
    Nowhere,
}

impl Whole {
    fn below(self, key: &str) -> Self {
        match self {
            Self::AsKept if FREE.contains(&key) => Self::Nowhere,
            other => other,
        }
    }
}

/// Encodes a value; `pretty` indents and ends with a newline.
pub fn encode(value: &Value, pretty: bool) -> Vec<u8> {
    encode_with(value, pretty, Whole::AsKept)
}

/// Encodes a value that was parsed from a job file: its integers stay integers.
pub(crate) fn encode_parsed(value: &Value, pretty: bool) -> Vec<u8> {
    encode_with(value, pretty, Whole::Everywhere)
}

fn encode_with(value: &Value, pretty: bool, whole: Whole) -> Vec<u8> {
    let mut out = String::with_capacity(256);
    write(value, pretty.then_some(0), whole, &mut out);
    if pretty {
        out.push('\n');
    }
    out.into_bytes()
}

/// Writes a value at an indentation depth; `None` means no indentation.
fn write(value: &Value, depth: Option<usize>, whole: Whole, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() || whole == Whole::Nowhere => out.push_str(&float(f)),
            _ => out.push_str(&n.to_string()),
        },
        Value::String(text) => string(text, out),
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        Value::Array(items) => {
            out.push('[');
            let inner = depth.map(|d| d + 1);
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                newline(inner, out);
                write(item, inner, whole, out);
            }
            newline(depth, out);
            out.push(']');
        }
        Value::Object(map) if map.is_empty() => out.push_str("{}"),
        Value::Object(map) => object(map, depth, whole, out),
    }
}

fn object(map: &Map<String, Value>, depth: Option<usize>, whole: Whole, out: &mut String) {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| key.as_bytes());
    out.push('{');
    let inner = depth.map(|d| d + 1);
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        newline(inner, out);
        string(key, out);
        out.push_str(if inner.is_some() { ": " } else { ":" });
        write(value, inner, whole.below(key), out);
    }
    newline(depth, out);
    out.push('}');
}

fn newline(depth: Option<usize>, out: &mut String) {
    if let Some(depth) = depth {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(INDENT);
        }
    }
}

/// Formats a float: `1.0`, `0.25`, `1e+21`, `1e-07`. Uses the shortest digits that parse to the same number, with an
/// exponent below 1e-6 and from 1e21 on.
fn float(f: f64) -> String {
    let size = f.abs();
    if f != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{f:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let mut text = f.to_string();
    if !text.contains('.') {
        text.push_str(".0");
    }
    text
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        let escaped = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\u{2028}' => "\\u2028",
            '\u{2029}' => "\\u2029",
            c if c < ' ' => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        if escaped.is_empty() {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push_str(escaped);
        }
        plain = at + c.len_utf8();
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(value: &Value) -> String {
        String::from_utf8(encode(value, false)).unwrap()
    }

    #[test]
    fn keys_come_in_byte_order() {
        assert_eq!(
            text(&json!({"b": 1, "A": null, "a": [], "ID": {}})),
            r#"{"A":null,"ID":{},"a":[],"b":1}"#
        );
    }

    #[test]
    fn floats_show_that_they_are_floats() {
        for (f, want) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.059_193_498_005_180_506, "0.059193498005180506"),
            (1e20, "100000000000000000000.0"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (1e-6, "0.000001"),
        ] {
            assert_eq!(text(&json!(f)), want);
        }
        assert_eq!(text(&json!(u64::MAX)), "18446744073709551615");
    }

    #[test]
    fn numbers_that_users_made_up_are_floats() {
        let job = json!({"Config": {"a": 7, "b": [1, {"c": 2.5}]}, "Count": 3});
        assert_eq!(text(&job), r#"{"Config":{"a":7.0,"b":[1.0,{"c":2.5}]},"Count":3}"#);
        let parsed = String::from_utf8(encode_parsed(&job, false)).unwrap();
        assert_eq!(parsed, r#"{"Config":{"a":7,"b":[1,{"c":2.5}]},"Count":3}"#);
    }

    #[test]
    fn only_what_must_be_escaped_is() {
        assert_eq!(text(&json!("<a&b>\"\\\n\u{1}\u{2028}é")), "\"<a&b>\\\"\\\\\\n\\u0001\\u2028é\"");
    }

    #[test]
    fn pretty_indents_by_four_and_ends_the_line() {
        let pretty = encode(&json!({"a": [1, {"b": []}], "c": {}}), true);
        let want = "{\n    \"a\": [\n        1,\n        {\n            \"b\": []\n        }\n    ],\n    \"c\": {}\n}\n";
        assert_eq!(String::from_utf8(pretty).unwrap(), want);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_back(text in ".*", f in proptest::num::f64::NORMAL, n: i64) {
            let value = json!({"t": text, "n": [n]});
            proptest::prop_assert_eq!(&serde_json::from_slice::<Value>(&encode(&value, false)).unwrap(), &value);
            proptest::prop_assert_eq!(&serde_json::from_slice::<Value>(&encode(&value, true)).unwrap(), &value);
            proptest::prop_assert_eq!(float(f).parse::<f64>().unwrap(), f);
        }
    }
}
