//! Functions that encode and decode Base64, JSON, YAML, CSV and URLs.

use super::strings::bounded;
use super::{Function, P, Result, f, text, yaml};
use crate::value::{Type, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STR: &[(&str, P)] = &[("str", P::Str)];
const ANY: &[(&str, P)] = &[("val", P::Any)];

pub(super) const TABLE: &[Function] = &[
    f("base64encode", STR, |_, a| bounded(STANDARD.encode(text(&a[0])))),
    f("base64decode", STR, |_, a| {
        let bytes = base64_text(&text(&a[0])).ok_or("failed to decode base64 data")?;
        String::from_utf8(bytes)
            .map(Value::str)
            .map_err(|_| "the result of decoding the provided string is not valid UTF-8".into())
    }),
    f("jsonencode", ANY, |_, a| bounded(to_json_text(&a[0])?)),
    f("jsondecode", STR, |_, a| from_json_text(&text(&a[0]))),
    f("yamlencode", ANY, |_, a| bounded(yaml::encode(&a[0]))),
    f("yamldecode", &[("src", P::Str)], |_, a| Ok(yaml::decode(&text(&a[0]))?)),
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

/// Decodes base64, ignoring line ends.
pub(super) fn base64_text(s: &str) -> Option<Vec<u8>> {
    if s.contains(['\n', '\r']) {
        return STANDARD.decode(s.replace(['\n', '\r'], "")).ok();
    }
    STANDARD.decode(s).ok()
}

/// Encodes a value as JSON with exact numbers and sorted keys, and escapes `<`, `>` and `&`.
pub(super) fn to_json_text(value: &Value) -> Result<String> {
    let mut out = String::new();
    write_json(value, &mut out)?;
    Ok(out)
}

fn write_json(value: &Value, out: &mut String) -> Result<()> {
    match value {
        Value::Null(_) => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Num(n) if n.is_infinite() => return Err("JSON has no infinity".into()),
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
                write_json(item, out)?;
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
                write_json(item, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
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

/// Decodes JSON to a value, without rounding numbers to floating point.
fn from_json_text(s: &str) -> Result<Value> {
    use crate::parse::json::{Json, JsonKind, parse_json};
    fn value(json: Json) -> Result<Value> {
        Ok(match json.kind {
            JsonKind::Scalar(v) => v,
            JsonKind::Text(s) => Value::str(s),
            JsonKind::Array(items) => Value::tuple(items.into_iter().map(value).collect::<Result<_>>()?),
            JsonKind::Object(object) => {
                let mut out: BTreeMap<String, Value> = BTreeMap::new();
                for (name, json) in object.members {
                    let new = value(json)?;
                    // A later value replaces an earlier one, but only one of the same type.
                    if let Some(old) = out.insert(name.text.clone(), new.clone())
                        && Type::from_value(&old) != Type::from_value(&new)
                    {
                        return Err(format!("duplicate {:?} property in JSON object", name.text).into());
                    }
                }
                Value::object(out)
            }
        })
    }
    let json = parse_json(s, crate::source::SourceId::default()).map_err(|e| {
        e.into_iter().next().map(|d| d.detail.trim_end_matches('.').to_owned()).unwrap_or_default()
    })?;
    value(json)
}

/// Decodes CSV (RFC 4180) to one object per row. The first row contains the names.
fn csv(s: &str) -> Result<Value> {
    let mut rows = csv_rows(s)?.into_iter();
    let Some((_, header)) = rows.next() else { return Err("missing header line".into()) };
    let mut types = BTreeMap::new();
    for name in &header {
        if types.insert(name.clone(), Type::Str).is_some() {
            return Err(format!("duplicate column name {name:?}").into());
        }
    }
    let mut out = Vec::new();
    for (line, row) in rows {
        if row.len() != header.len() {
            return Err(format!("CSV parse error on line {line}: wrong number of fields").into());
        }
        let row = header.iter().cloned().zip(row.into_iter().map(Value::str)).collect();
        out.push(Value::object(row));
    }
    Ok(Value::list(Type::Object(types), out))
}

/// Returns the records with the lines on which they begin. Skips empty lines.
fn csv_rows(s: &str) -> Result<Vec<(usize, Vec<String>)>> {
    let mut rows = Vec::new();
    let mut lines = s.split_inclusive('\n').enumerate();
    while let Some((number, line)) = lines.next() {
        let wrong = |what: &str| format!("CSV parse error on line {}: {what}", number + 1);
        let mut rest = without_cr(line);
        if rest == "\n" || rest.is_empty() {
            continue;
        }
        let mut row = Vec::new();
        loop {
            let Some(quoted) = rest.strip_prefix('"') else {
                let end = rest.find(',').unwrap_or_else(|| rest.trim_end_matches('\n').len());
                let field = &rest[..end];
                if field.contains('"') {
                    return Err(wrong("bare \" in a field that is not quoted").into());
                }
                row.push(field.to_owned());
                match rest[end..].strip_prefix(',') {
                    Some(after) => rest = Cow::Owned(after.to_owned()),
                    None => break,
                }
                continue;
            };
            // A quoted field may span several lines.
            let mut field = String::new();
            let mut left = quoted.to_owned();
            rest = loop {
                let Some(quote) = left.find('"') else {
                    field.push_str(&left);
                    match lines.next() {
                        Some((_, line)) => left = without_cr(line).into_owned(),
                        None => return Err(wrong("a quoted field is not closed").into()),
                    }
                    continue;
                };
                field.push_str(&left[..quote]);
                let after = &left[quote + 1..];
                if let Some(more) = after.strip_prefix('"') {
                    field.push('"');
                    left = more.to_owned();
                } else {
                    break Cow::Owned(after.to_owned());
                }
            };
            row.push(field);
            if let Some(after) = rest.strip_prefix(',') {
                rest = Cow::Owned(after.to_owned());
            } else if matches!(&*rest, "" | "\n") {
                break;
            } else {
                return Err(wrong("extra text behind a quoted field").into());
            }
        }
        rows.push((number + 1, row));
    }
    Ok(rows)
}

/// Removes the carriage return at the end of a line.
fn without_cr(line: &str) -> Cow<'_, str> {
    match line.strip_suffix("\r\n") {
        Some(start) => Cow::Owned(format!("{start}\n")),
        None => Cow::Borrowed(line.strip_suffix('\r').unwrap_or(line)),
    }
}
