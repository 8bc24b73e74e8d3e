//! Writes free-form blocks and plain values.
//!
//! Parsing turns every nested block, and every argument that is written as an object, into an array. An object in
//! parentheses stays an object (docs/reference/jobspec.md, section 3).

use super::{Done, WriteError, is_name, text};
use serde_json::{Map, Value as Json};

/// Writes `name = `.
pub(super) fn named(out: &mut String, place: &'static str, name: &str) -> Done {
    if !is_name(name) {
        return Err(WriteError::Name { place, name: name.to_owned() });
    }
    out.push_str(name);
    out.push_str(" = ");
    Ok(())
}

/// Writes the entries of a free-form block.
pub(super) fn body(out: &mut String, place: &'static str, object: &Map<String, Json>) -> Done {
    for (name, value) in object {
        match value {
            Json::Null => {}
            Json::Array(items) if !items.is_empty() && items.iter().all(is_block) => {
                for item in items.iter().filter_map(Json::as_object) {
                    if !is_name(name) {
                        return Err(WriteError::Name { place, name: name.clone() });
                    }
                    out.push_str(name);
                    out.push_str(" {\n");
                    body(out, place, item)?;
                    out.push_str("}\n");
                }
            }
            Json::Object(_) => {
                named(out, place, name)?;
                out.push('(');
                expression(out, value);
                out.push_str(")\n");
            }
            Json::String(value) => {
                named(out, place, name)?;
                text::value(out, value);
                out.push('\n');
            }
            value => {
                named(out, place, name)?;
                expression(out, value);
                out.push('\n');
            }
        }
    }
    Ok(())
}

/// Returns whether an object can be written as a block without loss.
fn is_block(value: &Json) -> bool {
    let inner = |value: &Json| match value {
        Json::Null => false,
        Json::Array(items) if items.iter().any(Json::is_object) => {
            items.iter().all(is_block) || !items.iter().all(Json::is_object)
        }
        _ => true,
    };
    value.as_object().is_some_and(|object| object.iter().all(|(key, value)| is_name(key) && inner(value)))
}

/// Writes a value as an expression.
pub(super) fn expression(out: &mut String, value: &Json) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(&number.to_string()),
        Json::String(value) => text::quoted(out, value, text::References::Kept),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                expression(out, item);
            }
            out.push(']');
        }
        Json::Object(object) if object.is_empty() => out.push_str("{}"),
        Json::Object(object) => {
            out.push_str("{\n");
            for (key, value) in object {
                if is_name(key) && !matches!(key.as_str(), "for" | "null" | "true" | "false") {
                    out.push_str(key);
                } else {
                    text::quoted(out, key, text::References::Escaped);
                }
                out.push_str(" = ");
                expression(out, value);
                out.push('\n');
            }
            out.push('}');
        }
    }
}
