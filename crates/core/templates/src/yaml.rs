//! The conversion of values from and to YAML: block style, sorted keys, and quotes only where a plain text would be
//! read differently.

use crate::json;
use crate::session::Answer;
use crate::value::map;
use gotmpl::Value;

/// Parses YAML. An empty text is an empty map, as for JSON.
pub(crate) fn read(supplied: &str) -> Answer {
    if supplied.trim().is_empty() {
        return Ok(map::<&str>([]));
    }
    let value = caravan_hcl::eval::functions::of_text("yamldecode", supplied)
        // The parser's own message may contain the input, which may be secret.
        .map_err(|_| "this is no YAML that can be read".to_owned())?;
    Ok(json::value(&value.to_json()))
}

/// Writes a value as YAML, without a line end at the end.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out.trim_end_matches('\n').to_owned()
}

/// Writes a value at the current position, on a line that is indented already.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Map(items) if !items.is_empty() => {
            for (i, (key, item)) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str(&scalar(key));
                out.push(':');
                match item {
                    Value::Map(inner) if !inner.is_empty() => {
                        out.push('\n');
                        out.push_str(&" ".repeat(indent + 2));
                        block(item, indent + 2, out);
                    }
                    // A list below its key has the key's indent.
                    Value::List(inner) if !inner.is_empty() => {
                        out.push('\n');
                        out.push_str(&" ".repeat(indent));
                        block(item, indent, out);
                    }
                    Value::String(long) if is_long(long) => literal(long, indent + 2, out),
                    item => {
                        out.push(' ');
                        block(item, indent, out);
                    }
                }
            }
        }
        Value::List(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push('-');
                match item {
                    Value::String(long) if is_long(long) => literal(long, indent + 2, out),
                    item => {
                        out.push(' ');
                        block(item, indent + 2, out);
                    }
                }
            }
        }
        simple => {
            out.push_str(&match simple {
                Value::Map(_) => "{}".to_owned(),
                Value::List(_) => "[]".to_owned(),
                Value::Nil | Value::Function(_) => "null".to_owned(),
                Value::String(text) => scalar(text),
                other => other.to_string(),
            });
            out.push('\n');
        }
    }
}

/// Returns whether a multi-line text can be written as a literal block.
fn is_long(text: &str) -> bool {
    let plain = |c: char| c == '\n' || (!c.is_control() && c != '\u{feff}');
    text.contains('\n') && !text.starts_with([' ', '\n']) && text.chars().all(plain)
}

fn literal(text: &str, indent: usize, out: &mut String) {
    let kept = text.trim_end_matches('\n');
    out.push_str(match text.len() - kept.len() {
        0 => " |-\n",
        1 => " |\n",
        _ => " |+\n",
    });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent));
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// Writes a text as a scalar.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 13] =
        ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf"];
    let first_is_plain =
        text.chars().next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | '.'));
    let plain = |c: char| c.is_alphanumeric() || " _-./+:@%=~,()$".contains(c);
    let numeric = text.trim_start_matches(['-', '+', '.']).starts_with(|c: char| c.is_ascii_digit());
    let stands = first_is_plain
        && !numeric
        && text.chars().all(plain)
        && !text.contains(": ")
        && !text.ends_with([' ', ':'])
        && !WORDS.contains(&text.to_lowercase().as_str());
    match stands {
        true => text.to_owned(),
        // JSON's quoted strings are valid YAML.
        false => serde_json::Value::String(text.to_owned()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let all = json!({
            "a": {"b": [1, "2", {"c": "d", "e": [true, null]}, []], "empty": {}},
            "lines": "one\n  two\n\nthree\n",
            "open": "one\ntwo",
            "many": ["x\ny\n\n", "plain text", "- no", "a: b", "yes", "1.5", "", " lead", "#", "é\u{7}"],
            "n": -3.5
        });
        let written = write(&json::value(&all));
        let back = read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
        assert_eq!(json::from_value(&back), json::from_value(&json::value(&all)), "{written}");
        assert_eq!(
            write(&json::value(&json!({"b": [1, 2], "a": {"c": "d e"}}))),
            "a:\n  c: d e\nb:\n- 1\n- 2"
        );
    }
}
