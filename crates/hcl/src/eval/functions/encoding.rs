//! Base64, JSON, YAML, CSV, URLs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::strings::bounded;
use super::{Function, P, Result, f, text, yaml};
use crate::value::Value;

const STR: &[(&str, P)] = &[("str", P::Str)];
const ANY: &[(&str, P)] = &[("val", P::Any)];

pub(super) const TABLE: &[Function] = &[
    f("base64encode", STR, |_, a| bounded(STANDARD.encode(text(&a[0])))),
    f("base64decode", STR, |_, a| {
        let bytes = base64_text(&text(&a[0])).ok_or("failed to decode base64 data")?;
        String::from_utf8(bytes)
            .map(Value::str)
            .map_err(|_| "the result of decoding the provided string is not valid UTF-8".to_owned())
    }),
    f("jsonencode", ANY, |_, a| bounded(to_json_text(&a[0]))),
    f("jsondecode", STR, |_, a| from_json_text(&text(&a[0]))),
    f("yamlencode", ANY, |_, a| bounded(yaml::encode(&a[0]))),
    f("yamldecode", &[("src", P::Str)], |_, a| yaml::decode(&text(&a[0]))),
    f("csvdecode", STR, |_, a| csv(&text(&a[0]))),
    f("urlencode", STR, |_, a| {
        let mut out = String::new();
        for byte in text(&a[0]).bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    out.push(char::from(byte))
                }
                b' ' => out.push('+'),
                _ => {
                    let _ = write!(out, "%{byte:02X}");
                }
            }
        }
        bounded(out)
    }),
];

/// The bytes of a text in base64; line ends in it do not count.
pub(super) fn base64_text(s: &str) -> Option<Vec<u8>> {
    if s.contains(['\n', '\r']) {
        return STANDARD.decode(s.replace(['\n', '\r'], "")).ok();
    }
    STANDARD.decode(s).ok()
}

/// JSON with exact numbers and sorted keys; `<`, `>` and `&` are escaped.
pub(super) fn to_json_text(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Num(n) => {
            let _ = write!(out, "{n}");
        }
        Value::Str(s) => write_string(s, out),
        Value::Seq(.., items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Map(.., map) => {
            out.push('{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_json(item, out);
            }
            out.push('}');
        }
    }
}

pub(super) fn write_string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// JSON to a value, without passing through floating point.
fn from_json_text(s: &str) -> Result<Value> {
    use crate::parse::json::{Json, JsonKind, parse_json};
    fn value(json: Json) -> Value {
        match json.kind {
            JsonKind::Scalar(v) => v,
            JsonKind::Text(s) => Value::str(s),
            JsonKind::Array(items) => Value::tuple(items.into_iter().map(value).collect()),
            JsonKind::Object(o) => {
                Value::object(o.members.into_iter().map(|(k, v)| (k.text, value(v))).collect())
            }
        }
    }
    parse_json(s, crate::source::SourceId::default()).map(value).map_err(|e| {
        e.into_iter().next().map(|d| d.detail.trim_end_matches('.').to_owned()).unwrap_or_default()
    })
}

fn csv(s: &str) -> Result<Value> {
    let mut rows = csv_rows(s)?.into_iter();
    let Some(header) = rows.next() else { return Err("missing header line".to_owned()) };
    let mut out = Vec::new();
    for (line, row) in rows.enumerate() {
        if row.len() != header.len() {
            return Err(format!("wrong number of fields in data row {}", line + 1));
        }
        let row: BTreeMap<String, Value> =
            header.iter().cloned().zip(row.into_iter().map(Value::str)).collect();
        out.push(Value::object(row));
    }
    Ok(Value::tuple(out))
}

fn csv_rows(s: &str) -> Result<Vec<Vec<String>>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut any) = (false, false);
    let mut chars = s.chars().peekable();
    while let Some(c) = chars.next() {
        any = true;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            '"' => return Err("bare \" in a field that is not quoted".to_owned()),
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                if !(row.is_empty() && field.is_empty()) {
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                any = false;
            }
            _ => field.push(c),
        }
    }
    if quoted {
        return Err("a quoted field is not closed".to_owned());
    }
    if any {
        row.push(field);
        rows.push(row);
    }
    Ok(rows)
}
