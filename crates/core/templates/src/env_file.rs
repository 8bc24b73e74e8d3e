//! The parser of `KEY=value` lines, which a template with `env = true` renders.

use std::collections::BTreeMap;
use thiserror::Error;

/// The error for a line that is no assignment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} is not of the form KEY=value: {why}")]
pub struct EnvFault {
    /// The line's number, from 1.
    pub line: usize,
    /// The reason, which never contains the value.
    pub why: &'static str,
}

/// Parses assignments. Ignores blank lines, lines that begin with `#`, and `export` before a key. Values may be in
/// single quotes (literal) or double quotes (with JSON escapes). After an unquoted value, a space and `#` begin a
/// comment.
///
/// # Errors
/// The first line that is no assignment.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, EnvFault> {
    let mut out = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        let fault = |why| EnvFault { line: i + 1, why };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (key, value) = line.split_once('=').ok_or_else(|| fault("it has no ="))?;
        let key = key.trim();
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if key.is_empty() || !key.chars().all(named) || key.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(fault("the key must have letters, digits and _, and not begin with a digit"));
        }
        out.insert(key.to_owned(), self::value(value.trim()).map_err(fault)?);
    }
    Ok(out)
}

fn value(text: &str) -> Result<String, &'static str> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (inside, after) = rest.split_once('\'').ok_or("a single quote is not closed")?;
        return ended(after).map(|()| inside.to_owned());
    }
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let inside = values.next().and_then(Result::ok).ok_or("what is in double quotes cannot be read")?;
        let end = values.byte_offset();
        return ended(text.get(end..).unwrap_or_default()).map(|()| inside);
    }
    let comment = text.char_indices().find(|(i, c)| *c == '#' && text[..*i].ends_with([' ', '\t']));
    let value = comment.map_or(text, |(i, _)| &text[..i]).trim_end();
    if text.starts_with('#') {
        return Ok(String::new());
    }
    if value.contains('\0') { Err("it has a null character") } else { Ok(value.to_owned()) }
}

/// Returns an error if anything but a comment follows the quotes.
fn ended(rest: &str) -> Result<(), &'static str> {
    match rest.trim_start().chars().next() {
        None | Some('#') => Ok(()),
        Some(_) => Err("something follows the closing quote"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_read() {
        let text = "# comment\n\nA=1\nexport B = two words # why\nC='a # b'\nD=\"x\\ny\" # c\nE=\nF=a#b\nG=a=b\nH=# c\n  I=\"\"\n";
        let read = parse(text).unwrap();
        let wanted = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "a # b"),
            ("D", "x\ny"),
            ("E", ""),
            ("F", "a#b"),
            ("G", "a=b"),
            ("H", ""),
            ("I", ""),
        ];
        assert_eq!(read, wanted.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn what_is_none_is_named_by_its_line() {
        for (text, line) in
            [("A", 1), ("A=1\nB C=1", 2), ("=x", 1), ("A='x", 1), ("A=\"x", 1), ("A='x' y", 1), ("1A=2", 1)]
        {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
        assert!(!parse("A='hunter2").unwrap_err().to_string().contains("hunter2"));
    }
}
