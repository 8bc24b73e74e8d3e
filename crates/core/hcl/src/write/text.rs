//! Writes strings: quoted, or as heredocs.

use std::fmt::Write as _;

/// The treatment of `${...}` within a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum References {
    /// Run time references stay unchanged, because they parse to the same text.
    Kept,
    /// All sequences are escaped.
    Escaped,
}

/// Writes a string as the value of an argument.
pub(super) fn value(out: &mut String, text: &str) {
    if text.ends_with('\n')
        && text.matches('\n').count() > 1
        && text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t'))
    {
        heredoc(out, text);
    } else {
        quoted(out, text, References::Kept);
    }
}

fn heredoc(out: &mut String, text: &str) {
    let mut marker = "EOH".to_owned();
    while text.lines().any(|line| line.trim() == marker) {
        marker.push('H');
    }
    out.push_str("<<");
    out.push_str(&marker);
    out.push('\n');
    escaped(out, text, References::Kept, |out, c| out.push(c));
    out.push_str(&marker);
}

/// Writes a quoted string.
pub(super) fn quoted(out: &mut String, text: &str, references: References) {
    out.push('"');
    escaped(out, text, references, |out, c| match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        c if c.is_control() => {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04X}", u32::from(c));
        }
        c => out.push(c),
    });
    out.push('"');
}

fn escaped(out: &mut String, text: &str, references: References, put: impl Fn(&mut String, char)) {
    let mut rest = text;
    let mut last = None;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("${") || rest.starts_with("%{") {
            let kept = match references {
                References::Kept if last != Some('$') => reference(rest),
                _ => None,
            };
            if let Some(length) = kept {
                out.push_str(&rest[..length]);
                rest = &rest[length..];
                last = Some('}');
                continue;
            }
            out.push(c);
        }
        put(out, c);
        last = Some(c);
        rest = &rest[c.len_utf8()..];
    }
}

/// Returns the length of a run time reference that parses back to itself: `${name.name["name"]}` with an unknown
/// root. The text after the reference must not begin with a closing brace, which would add braces to the text.
fn reference(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("${")?;
    let name = |text: &str| {
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let end =
            text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(text.len());
        starts.then_some(end)
    };
    let root = name(inner)?;
    if matches!(&inner[..root], "var" | "local" | "true" | "false" | "null" | "for") {
        return None;
    }
    let mut rest = &inner[root..];
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return (!after.starts_with('}')).then_some(text.len() - after.len());
        }
        if let Some(step) = rest.strip_prefix('.') {
            rest = &step[name(step)?..];
        } else {
            let step = rest.strip_prefix("[\"")?;
            let (key, after) = step.split_once("\"]")?;
            if !key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')) {
                return None;
            }
            rest = after;
        }
    }
}
