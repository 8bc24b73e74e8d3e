//! Text functions. The text to process is the last argument, so that it can be piped, as in other Go templates.

use super::{Function, f};
use crate::limits;
use crate::session::Answer;
use crate::value::{as_count, as_text, map, shown, text, texts};
use gotmpl::Value;
use regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;

pub(super) const TABLE: &[Function] = &[
    f("toLower", 1, |_, a| Ok(text(as_text(&a[0])?.to_lowercase()))),
    f("toUpper", 1, |_, a| Ok(text(as_text(&a[0])?.to_uppercase()))),
    f("toTitle", 1, |_, a| Ok(text(title(as_text(&a[0])?)))),
    f("trim", 2, |_, a| {
        let cut = as_text(&a[0])?;
        Ok(text(as_text(&a[1])?.trim_matches(|c| cut.contains(c))))
    }),
    f("trimPrefix", 2, |_, a| {
        let from = as_text(&a[1])?;
        Ok(text(from.strip_prefix(as_text(&a[0])?).unwrap_or(from)))
    }),
    f("trimSuffix", 2, |_, a| {
        let from = as_text(&a[1])?;
        Ok(text(from.strip_suffix(as_text(&a[0])?).unwrap_or(from)))
    }),
    f("trimSpace", 1, |_, a| Ok(text(as_text(&a[0])?.trim()))),
    f("replaceAll", 3, |_, a| replace(as_text(&a[0])?, as_text(&a[1])?, as_text(&a[2])?)),
    f("regexMatch", 2, |_, a| Ok(Value::Bool(pattern(&a[0])?.is_match(as_text(&a[1])?)))),
    f("regexReplaceAll", 3, |_, a| regex_replace(&pattern(&a[0])?, as_text(&a[2])?, as_text(&a[1])?)),
    f("indent", 2, |_, a| indent(as_count(&a[0])?, as_text(&a[1])?)),
    f("split", 2, |_, a| {
        let (separator, whole) = (as_text(&a[0])?, as_text(&a[1])?.trim());
        Ok(if whole.is_empty() { texts::<&str>([]) } else { texts(split(whole, separator)) })
    }),
    f("splitToMap", 3, |_, a| {
        let (entries, pairs, whole) = (as_text(&a[0])?, as_text(&a[1])?, as_text(&a[2])?);
        let mut out = BTreeMap::new();
        for entry in split(whole, entries).into_iter().filter(|entry| !entry.trim().is_empty()) {
            let (key, value) = entry.split_once(pairs).unwrap_or((entry, ""));
            out.insert(key.trim(), text(value.trim()));
        }
        Ok(map(out))
    }),
    f("join", 2, |_, a| join(as_text(&a[0])?, &a[1])),
];

/// Capitalizes the first letter of each word, like Go's `strings.Title`.
pub(super) fn title(from: &str) -> String {
    let mut before = ' ';
    let mut out = String::with_capacity(from.len());
    for c in from.chars() {
        let begins = !(before.is_alphanumeric() || before == '_' || before == '\'');
        if begins {
            out.extend(c.to_uppercase())
        } else {
            out.push(c)
        }
        before = c;
    }
    out
}

pub(super) fn split<'a>(whole: &'a str, separator: &str) -> Vec<&'a str> {
    match separator {
        // As in Go, an empty separator splits into characters.
        "" => whole.char_indices().map(|(i, c)| &whole[i..i + c.len_utf8()]).collect(),
        separator => whole.split(separator).collect(),
    }
}

pub(super) fn join(separator: &str, list: &Value) -> Answer {
    let items = crate::value::as_list(list)?;
    let length = items.iter().map(|item| shown(item).len() + separator.len()).fold(0, usize::saturating_add);
    fits(length)?;
    Ok(text(items.iter().map(shown).collect::<Vec<_>>().join(separator)))
}

pub(super) fn replace(from: &str, to: &str, whole: &str) -> Answer {
    fits(whole.matches(from).count().saturating_mul(to.len()).saturating_add(whole.len()))?;
    Ok(text(whole.replace(from, to)))
}

pub(super) fn indent(width: usize, whole: &str) -> Answer {
    fits(whole.lines().count().saturating_mul(width).saturating_add(whole.len()))?;
    let blanks = " ".repeat(width);
    let lines: Vec<String> = whole.split('\n').map(|line| format!("{blanks}{line}")).collect();
    // A trailing line end begins no further line.
    let out = lines.join("\n");
    Ok(text(if whole.ends_with('\n') { &out[..out.len() - width] } else { &out }))
}

/// Returns an error if a result of this length would be too long.
pub(super) fn fits(length: usize) -> Result<(), String> {
    match u64::try_from(length).is_ok_and(|length| length <= limits::VALUE) {
        true => Ok(()),
        false => Err("a value is too large".to_owned()),
    }
}

pub(super) fn pattern(value: &Value) -> Result<Regex, String> {
    let built = RegexBuilder::new(as_text(value)?).size_limit(1 << 20).dfa_size_limit(1 << 20).build();
    built.map_err(|error| format!("the pattern cannot be used: {error}"))
}

/// Expands Go's replacement syntax: `$1`, `${name}`, `$$`. A name is as long as possible.
pub(super) fn regex_replace(pattern: &Regex, whole: &str, with: &str) -> Answer {
    fits(pattern.find_iter(whole).count().saturating_mul(with.len()).saturating_add(whole.len()))?;
    Ok(text(pattern.replace_all(whole, with)))
}
