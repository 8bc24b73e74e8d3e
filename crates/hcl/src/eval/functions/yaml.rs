//! The YAML that the functions write: block style, keys and strings in quotes, long texts as literal blocks.
//! Reading understands what job files hold: block and flow collections, plain and quoted scalars, literal
//! and folded blocks, anchors, aliases and merge keys, tags, one document.

mod read;
mod scalar;

pub(super) use self::read::decode;

use super::encoding::write_string;
use crate::value::Value;

type Result<T> = std::result::Result<T, String>;

pub(super) fn encode(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn write(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Null(_) => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Num(n) => out.push_str(&n.to_string()),
        Value::Str(s) if s.contains('\n') && !s.starts_with([' ', '\n']) && !s.contains('\r') => {
            block_text(s, indent, out);
        }
        Value::Str(s) => write_string(s, out),
        Value::Seq(.., items) if items.is_empty() => out.push_str("[]"),
        Value::Map(.., map) if map.is_empty() => out.push_str("{}"),
        Value::Seq(.., items) => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str("- ");
                write(item, indent + 2, out);
                newline(out);
            }
        }
        Value::Map(.., map) => {
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                write_string(key, out);
                out.push(':');
                match item {
                    Value::Seq(.., items) if !items.is_empty() => {
                        out.push('\n');
                        out.push_str(&" ".repeat(indent));
                        write(item, indent, out);
                    }
                    Value::Map(.., inner) if !inner.is_empty() => {
                        out.push('\n');
                        out.push_str(&" ".repeat(indent + 2));
                        write(item, indent + 2, out);
                    }
                    other => {
                        out.push(' ');
                        write(other, indent + 2, out);
                    }
                }
                newline(out);
            }
        }
    }
}

fn newline(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

fn block_text(s: &str, indent: usize, out: &mut String) {
    let chomp = if s.ends_with("\n\n") {
        "+"
    } else if s.ends_with('\n') {
        ""
    } else {
        "-"
    };
    out.push('|');
    out.push_str(chomp);
    out.push('\n');
    let pad = " ".repeat(indent.max(2));
    let body = s.strip_suffix('\n').unwrap_or(s);
    for line in body.split('\n') {
        if !line.is_empty() {
            out.push_str(&pad);
            out.push_str(line);
        }
        out.push('\n');
    }
}
