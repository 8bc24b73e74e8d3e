//! Orders the elements of sets.

use super::{MapKind, SeqKind, Value};
use std::cmp::Ordering;
use std::fmt::Write as _;

/// Sorts the elements of a set and removes duplicates. Primitives have their natural order, other values the order of
/// a text that is built from them, as in Nomad. Null is last.
pub(super) fn sorted(mut items: Vec<Value>) -> Vec<Value> {
    if items.iter().any(|v| matches!(v, Value::Seq(..) | Value::Map(..))) {
        items.sort_by_cached_key(|v| (v.is_null(), text(v)));
    } else {
        items.sort_by(primitives);
    }
    // Different elements may have the same text, because it contains numbers with ten digits.
    let mut out: Vec<Value> = Vec::with_capacity(items.len());
    let mut same_text = 0;
    for item in items {
        if out.last().is_none_or(|last| !same_place(last, &item)) {
            same_text = out.len();
        }
        if !out[same_text..].contains(&item) {
            out.push(item);
        }
    }
    out
}

fn same_place(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Seq(..) | Value::Map(..), Value::Seq(..) | Value::Map(..)) => text(a) == text(b),
        _ => primitives(a, b).is_eq(),
    }
}

fn primitives(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Num(x), Value::Num(y)) => x.cmp(y),
        (Value::Str(x), Value::Str(y)) => x.cmp(y),
        _ => a.is_null().cmp(&b.is_null()),
    }
}

/// Returns the text by which collections are ordered.
fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null(_) => out.push('~'),
        Value::Bool(b) => out.push(if *b { 'T' } else { 'F' }),
        Value::Num(n) => out.push_str(&n.general(Some(10))),
        Value::Str(s) => quoted(s, out),
        Value::Seq(kind, _, items) => {
            let (open, close) = if *kind == SeqKind::Tuple { ('<', '>') } else { ('[', ']') };
            out.push(open);
            for item in items {
                write(item, out);
                out.push(';');
            }
            out.push(close);
        }
        Value::Map(MapKind::Object, _, map) => {
            out.push('<');
            for item in map.values() {
                write(item, out);
                out.push(';');
            }
            out.push('>');
        }
        Value::Map(MapKind::Map, _, map) => {
            out.push('{');
            for (key, item) in map {
                quoted(key, out);
                out.push(':');
                write(item, out);
                out.push(';');
            }
            out.push('}');
        }
    }
}

/// Writes a quoted string, with escapes for invisible characters.
fn quoted(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            ' ' => out.push(c),
            c if c.is_control() || c.is_whitespace() || is_hidden(c) => {
                let _ = if c > '\u{ffff}' {
                    write!(out, "\\U{:08x}", u32::from(c))
                } else {
                    write!(out, "\\u{:04x}", u32::from(c))
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Returns whether the character is a format character or a character for private use.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Type;

    #[test]
    fn sets_are_sorted_as_in_the_reference() {
        let list = |items: &[&str]| Value::strings(items.iter().map(|s| (*s).to_owned()));
        let set = Value::set(
            Type::List(Box::new(Type::Str)),
            vec![list(&["b"]), list(&["a", "b"]), list(&["a"]), list(&[]), list(&["b"]), list(&["a\n"])],
        );
        assert_eq!(set.to_json().to_string(), r#"[["a","b"],["a"],["a\n"],["b"],[]]"#);
        let numbers = [Value::int(10), Value::NULL, Value::int(9), Value::int(-1), Value::int(9)];
        let set = Value::set(Type::Num, numbers.to_vec());
        assert_eq!(set.to_json().to_string(), "[-1,9,10,null]");
        let pairs: Vec<Value> = (8..12).map(|n| Value::tuple(vec![Value::int(n)])).collect();
        let set = Value::set(Type::Tuple(vec![Type::Num]), pairs);
        assert_eq!(set.to_json().to_string(), "[[10],[11],[8],[9]]");
    }
}
