//! Functions for strings.

use super::{Function, P, Result, blame, f, items, text, v, whole};
use crate::eval::MAX_STRING;
use crate::value::{Number, Value};
use unicode_segmentation::UnicodeSegmentation as _;

const STR: &[(&str, P)] = &[("str", P::Str)];

pub(super) const TABLE: &[Function] = &[
    f("chomp", STR, |_, a| Ok(Value::str(text(&a[0]).trim_end_matches(['\n', '\r'])))),
    f("indent", &[("spaces", P::Num), ("str", P::Str)], |_, a| {
        let spaces =
            usize::try_from(whole(&a[0])?).map_err(|_| "the number of spaces is negative".to_owned())?;
        let s = text(&a[1]);
        let lines = s.matches('\n').count();
        if lines > 0 && spaces > MAX_STRING / lines {
            return Err(format!("the result is longer than {MAX_STRING} bytes").into());
        }
        let pad = if lines == 0 { String::new() } else { " ".repeat(spaces) };
        bounded(s.replace('\n', &format!("\n{pad}")))
    }),
    v("join", &[("separator", P::Str)], ("lists", P::Strs), |_, a| {
        let separator = text(&a[0]);
        if a.len() < 2 {
            return Err("at least one list is required".into());
        }
        let mut all = Vec::new();
        for (i, list) in a.into_iter().enumerate().skip(1) {
            let list = items(list);
            if let Some(at) = list.iter().position(Value::is_null) {
                return Err(blame(i, format!("element {at} is null; cannot concatenate null values")));
            }
            all.extend(list.iter().map(text));
        }
        bounded(all.join(&separator))
    }),
    f("lower", STR, |_, a| Ok(Value::str(text(&a[0]).chars().map(lower).collect::<String>()))),
    f("upper", STR, |_, a| Ok(Value::str(text(&a[0]).chars().map(upper).collect::<String>()))),
    f("title", STR, |_, a| Ok(Value::str(title(&text(&a[0]))))),
    f("trim", &[("str", P::Str), ("cutset", P::Str)], |_, a| {
        let cut: Vec<char> = text(&a[1]).chars().collect();
        Ok(Value::str(text(&a[0]).trim_matches(cut.as_slice())))
    }),
    f("trimprefix", &[("str", P::Str), ("prefix", P::Str)], |_, a| {
        let (s, prefix) = (text(&a[0]), text(&a[1]));
        Ok(Value::str(s.strip_prefix(&prefix).unwrap_or(&s)))
    }),
    f("trimsuffix", &[("str", P::Str), ("suffix", P::Str)], |_, a| {
        let (s, suffix) = (text(&a[0]), text(&a[1]));
        Ok(Value::str(s.strip_suffix(&suffix).unwrap_or(&s)))
    }),
    f("trimspace", STR, |_, a| Ok(Value::str(text(&a[0]).trim()))),
    f("replace", &[("str", P::Str), ("substr", P::Str), ("replace", P::Str)], |_, a| {
        bounded(text(&a[0]).replace(&text(&a[1]), &text(&a[2])))
    }),
    f("regex_replace", &[("str", P::Str), ("pattern", P::Str), ("replace", P::Str)], |_, a| {
        let pattern = caravan_lang::regexp::compile(&text(&a[1]))
            .map_err(|e| format!("invalid regular expression pattern: {e}"))?;
        bounded(pattern.replace_all(&text(&a[0]), text(&a[2]).as_str()).into_owned())
    }),
    f("reverse", STR, |_, a| Ok(Value::str(clusters(&text(&a[0])).into_iter().rev().collect::<String>()))),
    f("strrev", STR, |_, a| Ok(Value::str(clusters(&text(&a[0])).into_iter().rev().collect::<String>()))),
    f("strlen", STR, |_, a| Ok(Value::Num(Number::from(clusters(&text(&a[0])).len())))),
    f("split", &[("separator", P::Str), ("str", P::Str)], |_, a| {
        let (separator, s) = (text(&a[0]), text(&a[1]));
        Ok(Value::strings(if separator.is_empty() {
            s.chars().map(String::from).collect::<Vec<_>>()
        } else {
            s.split(&separator).map(str::to_owned).collect()
        }))
    }),
    f("substr", &[("str", P::Str), ("offset", P::Num), ("length", P::Num)], |_, a| {
        substr(&text(&a[0]), whole(&a[1])?, whole(&a[2])?)
    }),
];

/// Returns the string, or an error if it is longer than `MAX_STRING`.
pub(super) fn bounded(s: String) -> Result<Value> {
    if s.len() > MAX_STRING {
        Err(format!("the result is longer than {MAX_STRING} bytes").into())
    } else {
        Ok(Value::str(s))
    }
}

/// Returns the user-perceived characters of a text (Unicode, annex 29).
pub(super) fn clusters(s: &str) -> Vec<&str> {
    s.graphemes(true).collect()
}

fn substr(s: &str, offset: i64, length: i64) -> Result<Value> {
    let all = clusters(s);
    let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
    // With length 0, a negative offset selects the rest of the text, and any other offset selects nothing.
    let (start, length) = match (offset, length) {
        (0.., 0) => return Ok(Value::str("")),
        (..0, 0) => (count.saturating_add(offset), -1),
        (..0, length) => (count.saturating_add(offset), length),
        (offset, length) => (offset, length),
    };
    let start = start.clamp(0, count);
    let end = if length < 0 { count } else { start.saturating_add(length).min(count) };
    let cut = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(s, e)| all.get(s..e));
    Ok(Value::str(cut.unwrap_or_default().concat()))
}

/// Returns the mapped character if the mapping gives exactly one, else the character itself.
fn single(mut mapped: impl Iterator<Item = char>, c: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// Returns the simple lower case mapping: one character for one (Unicode, section 3.13).
fn lower(c: char) -> char {
    match c {
        '\u{130}' => 'i',
        _ => single(c.to_lowercase(), c),
    }
}

fn upper(c: char) -> char {
    match title_pair(c) {
        Some(other) => other,
        None => single(c.to_uppercase(), c),
    }
}

/// Maps Greek letters with a subscript, whose full upper case is two letters, to their single title case letter.
fn title_pair(c: char) -> Option<char> {
    let code = u32::from(c);
    let other = match code {
        0x1f80..=0x1faf if code & 8 == 0 => code + 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => code + 9,
        _ => return None,
    };
    char::from_u32(other)
}

/// Returns the title case of a character: digraphs have a separate title case, and some scripts have none.
fn title_case(c: char) -> char {
    match c {
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}',
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}',
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}',
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}',
        '\u{10d0}'..='\u{10fa}' | '\u{10fd}'..='\u{10ff}' => c,
        _ => upper(c),
    }
}

/// Returns whether a word may begin after this character. Beyond ASCII, only spaces separate words.
fn separates(c: char) -> bool {
    if c.is_ascii() { !(c.is_ascii_alphanumeric() || c == '_') } else { c.is_whitespace() }
}

fn title(s: &str) -> String {
    let mut previous = ' ';
    s.chars()
        .map(|c| {
            let starts = separates(previous);
            previous = c;
            if starts { title_case(c) } else { c }
        })
        .collect()
}
